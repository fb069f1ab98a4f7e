//! A copy of the program `portcullis`.

fn main() -> std::process::ExitCode {
    portcullis_cli::run(std::env::args_os())
}
