//! The warden against servers that leave processes behind. The program plays every part: the runner of the cases,
//! the hub, the warden (through `init`), the server, and what the server leaves behind.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the helpers of a test fail as its test functions do; processes and real time are what is tried here"
)]

#[cfg(target_os = "linux")]
#[path = "warden/cases.rs"]
mod cases;
#[cfg(target_os = "linux")]
#[path = "warden/figures.rs"]
mod figures;
#[cfg(target_os = "linux")]
#[path = "warden/hub.rs"]
mod hub;
#[cfg(target_os = "linux")]
#[path = "warden/runner.rs"]
mod runner;
#[cfg(target_os = "linux")]
#[path = "warden/server.rs"]
mod server;
#[cfg(target_os = "linux")]
#[path = "warden/survivors.rs"]
mod survivors;

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("no warden on this system");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    // A host that does not call it first.
    let hasty = std::env::current_exe().is_ok_and(|program| program.ends_with(cases::HASTY));
    let _busy = hasty.then(|| std::thread::spawn(|| std::thread::park_timeout(runner::MOST)));
    portcullis_warden::init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["hub", mark, mode] => hub::play(mark, mode),
        ["server", mark, server] => hub::serve(mark, server),
        ["descendant", mark, verbs @ ..] => server::descend(mark, verbs),
        ["figures"] => figures::print(),
        ["--list", ..] => {}
        filters => return cases::run(filters),
    }
    std::process::ExitCode::SUCCESS
}
