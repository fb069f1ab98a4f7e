//! The program `portcullis-scripted-server`; all of it is in the library beside it.

fn main() -> std::process::ExitCode {
    portcullis_testkit::run(std::env::args_os().skip(1))
}
