//! What people do with a folder of policies.

mod check;
mod explain;
mod folder;
mod write;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{ExitStatus, arguments::Format};

#[derive(Debug, Args)]
pub(crate) struct PolicyArguments {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Load a folder, look for what may not be meant, and run its decision tables
    Check(check::CheckArguments),
    /// Say what a call's answer is, and why
    Explain(explain::ExplainArguments),
    /// Lay out the files of a folder in the one way to write them
    Fmt(WriteArguments),
    /// Write down what the rules of a folder compile to, for people to review
    Rules(WriteArguments),
    /// Write down the hashes of a folder's files: from then on only these load
    Seal(SealArguments),
}

#[derive(Debug, Args)]
struct WriteArguments {
    /// The folder of policies
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Write nothing; fail where something would be written
    #[arg(long)]
    check: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Args)]
struct SealArguments {
    /// The folder of policies
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(arguments: &PolicyArguments) -> ExitStatus {
    let done = match &arguments.command {
        PolicyCommand::Check(arguments) => check::run(arguments),
        PolicyCommand::Explain(arguments) => explain::run(arguments),
        PolicyCommand::Fmt(arguments) => write::format(arguments),
        PolicyCommand::Rules(arguments) => write::compile(arguments),
        PolicyCommand::Seal(arguments) => write::seal(&arguments.folder, arguments.format),
    };
    done.unwrap_or_else(|status| status)
}
