//! Any bytes as a configuration in JSON. The laws are in the body, and hold within a bound on time.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/clock.rs"]
mod clock;
#[path = "../bodies/config.rs"]
mod config;

fuzz_target!(|data: &[u8]| clock::timed(data, |data| config::check_named("a.json", data)));
