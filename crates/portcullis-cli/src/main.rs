//! The program `portcullis`; all of it is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    portcullis_cli::run(std::env::args_os())
}
