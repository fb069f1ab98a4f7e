//! The program `portcullis`; all of it is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before any thread is started: this very program, executed once more, parents the servers.
    portcullis::warden::init();
    portcullis_cli::run(std::env::args_os())
}
