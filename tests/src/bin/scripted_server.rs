//! A copy of the program `portcullis-scripted-server`.

fn main() -> std::process::ExitCode {
    portcullis_testkit::run(std::env::args_os().skip(1))
}
