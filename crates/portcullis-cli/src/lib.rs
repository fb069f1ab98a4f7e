//! The program `portcullis`: the hub in front of your usual MCP client, and a way to look at it.
//!
//! A library with a thin binary, so that tests can build their own copy of the program. One command a file in
//! `command/`; [`ExitStatus`] is what each ends with.
//!
//! Deliberately absent: anything that decides, supervises or shapes. Commands build a `Hub`, ask it, and print.
//!
//! ```
//! // A word that is no command ends with the code for wrong usage, and says which commands there are.
//! assert_eq!(portcullis_cli::run(["portcullis", "raise"]), portcullis_cli::ExitStatus::Usage.into());
//! ```

mod arguments;
mod command;
mod exit;
mod findings;
mod host;
mod hub;
mod output;

mod approval;
mod demo;
mod interrupt;
mod progress;
mod stderr;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

use crate::arguments::{Arguments, Command};
pub use crate::exit::ExitStatus;

/// Runs the program with `arguments`, the program's own name first. All that `main` does: this very program, executed
/// once more, is the warden that parents the servers.
pub fn run<A: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = A>) -> ExitCode {
    // Before any thread is started.
    portcullis::warden::init();
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors, and clap knows where each belongs.
            let status = if error.use_stderr() {
                ExitStatus::Usage
            } else {
                ExitStatus::Done
            };
            return match output::refusal(&error) {
                Ok(()) => status,
                Err(_) if status != ExitStatus::Done => status,
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => status,
                Err(error) => {
                    output::error(&format!("standard output cannot be written: {error}"));
                    ExitStatus::Failed
                }
            }
            .into();
        }
    };
    output::init_log();
    if let Command::DemoServer { name } = &arguments.command {
        return command::demo_server::run(name);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&format!("the async runtime cannot be started: {error}"));
            return ExitStatus::Failed.into();
        }
    };
    let status = runtime.block_on(async {
        match arguments.command {
            Command::Demo(demo) => demo::run(demo).await,
            Command::Check(check) => command::check::run(&check),
            Command::Import(import) => command::import::run(&import),
            Command::Init(init) => command::init::run(&init),
            Command::Tools(tools) => command::tools::run(tools).await,
            Command::Call(call) => command::call::run(call).await,
            Command::Blobs(blobs) => command::blobs::run(blobs).await,
            Command::Approvals(approvals) => command::approvals::run(&approvals),
            Command::Pins(pins) => command::pins::run(&pins),
            Command::Policy(policy) => command::policy::run(&policy),
            Command::Serve(serve) => command::serve::run(serve).await,
            Command::DemoServer { .. } => ExitStatus::Done,
        }
    });
    // A read from a terminal cannot be called off: do not wait for it.
    runtime.shutdown_background();
    output::end(status).into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
