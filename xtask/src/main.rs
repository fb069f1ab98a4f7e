//! The project's own chores. `cargo xtask ci` is everything that CI runs; each of its stages is a command of
//! its own (`cargo xtask guard`), so that a failure can be repeated alone.

mod bench;
mod ci;
mod deny;
#[cfg(test)]
mod events;
mod finding;
mod fuzz;
mod guard;
mod law;
#[cfg(test)]
mod planted;
mod policies;
mod process;
mod real_servers;
mod spdx;
mod storm;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use workspace::Root;

/// The exit code for a command line that makes no sense; a chore that failed exits with 1.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some((command, rest)) = arguments.split_first() else {
        process::complain(&help());
        return ExitCode::from(USAGE);
    };
    if matches!(*command, "help" | "-h" | "--help") {
        process::say(&help());
        return ExitCode::SUCCESS;
    }
    match dispatch(command, rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            process::complain(&format!("error: {error:#}"));
            if error.is::<Usage>() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// A command line that names no chore, or gives one an argument that it does not take.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn dispatch(command: &str, arguments: &[&str]) -> Result<()> {
    let root = Root::of_this_checkout().context("cannot find the workspace")?;
    match command {
        "ci" => ci::run(&root, ci::Options::parse(arguments)?),
        "bench" => bench::run(&root, arguments),
        "fuzz" => fuzz::run(&root, arguments),
        "race" | "chaos" => storm::run(&root, command, arguments),
        "law" => law::run(&root, arguments),
        name => match ci::stage(name) {
            Some(stage) if arguments.is_empty() => stage.run(&root),
            Some(_) => bail!(Usage(format!(
                "`{name}` takes no arguments, but got `{}`",
                arguments.join(" ")
            ))),
            None => bail!(Usage(format!(
                "there is no chore `{name}`; `cargo xtask help` lists them"
            ))),
        },
    }
}

fn help() -> String {
    let mut text = String::from("Usage: cargo xtask <chore>\n\n");
    let ci = [
        (
            "ci",
            "all stages below that are part of it, in this order, each timed",
        ),
        (
            "ci --stage NAME",
            "one stage alone, as `ci` runs it; the same as `cargo xtask NAME`",
        ),
        (
            "ci --keep-going",
            "all stages, also the slow ones after a failure",
        ),
    ];
    let stages = ci::STAGES.iter().map(|stage| (stage.name(), stage.about()));
    let others = [
        (
            "fuzz [TARGET [SECONDS]]",
            "each fuzz target for a minute, or one (not part of `ci`)",
        ),
        (
            "law [CASES [SEED]]",
            "decisions beside plain Cedar, a million by default (not part of `ci`)",
        ),
        ("bench NAME", "the figures of one part (not part of `ci`)"),
    ];
    for (name, about) in ci.into_iter().chain(stages).chain(others) {
        text.push_str(&format!("  {name:<24}{about}\n"));
    }
    for (name, options, about) in storm::STORMS {
        let options = options.join(" N, ");
        text.push_str(&format!("  {name:<24}{about}; {options} N (not part of `ci`)\n"));
    }
    text
}
