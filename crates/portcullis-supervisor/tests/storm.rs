//! Two storms: a race of many callers against a server that is killed and restarted all the time, and a chaos of
//! servers that misbehave in every way beside a few that are well. The program plays every part: the runner, the hub,
//! the warden (through `init`), the servers, and the driver that runs the misbehaving ones without a hub.
//!
//! A short run of each is part of the tests; `cargo xtask race` and `cargo xtask chaos --minutes N` are the long ones.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the helpers of a test fail as its test functions do; processes and real time are what is tried here"
)]

#[cfg(target_os = "linux")]
#[path = "storm/chaos.rs"]
mod chaos;
#[cfg(target_os = "linux")]
#[path = "storm/driver.rs"]
mod driver;
#[cfg(target_os = "linux")]
#[path = "storm/load.rs"]
mod load;
#[cfg(target_os = "linux")]
#[path = "storm/misfits.rs"]
mod misfits;
#[cfg(target_os = "linux")]
#[path = "storm/race.rs"]
mod race;
#[cfg(target_os = "linux")]
#[path = "storm/report.rs"]
mod report;
#[cfg(target_os = "linux")]
#[path = "storm/rig.rs"]
mod rig;

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("no warden on this system");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    portcullis_warden::init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server", script @ ..] => portcullis_testkit::run(script.iter().map(Into::into)),
        ["drive", mark, folder, seed] => driver::drive(mark, folder.as_ref(), seed.parse().unwrap()),
        ["race", options @ ..] => race::run(&race::Options::parse(options)),
        ["chaos", options @ ..] => chaos::run(&chaos::Options::parse(options)),
        ["--list", ..] => std::process::ExitCode::SUCCESS,
        filters => short(filters),
    }
}

/// What the tests run: a short race and a short chaos.
#[cfg(target_os = "linux")]
fn short(filters: &[&str]) -> std::process::ExitCode {
    let names: Vec<_> = filters.iter().filter(|name| !name.starts_with('-')).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(**part));
    let mut failed = false;
    for name in ["race", "chaos"] {
        if wanted(name) {
            let code = if name == "race" {
                race::run(&race::Options::short())
            } else {
                chaos::run(&chaos::Options::short())
            };
            let well = code == std::process::ExitCode::SUCCESS;
            println!("test {name} ... {}", if well { "ok" } else { "FAILED" });
            failed |= !well;
        }
    }
    std::process::ExitCode::from(u8::from(failed))
}
