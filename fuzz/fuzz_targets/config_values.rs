//! Any bytes as a text with references, a file of variables, a server's name and an egress rule. The laws are in the
//! body, and hold within a bound on time.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/clock.rs"]
mod clock;
#[path = "../bodies/config_values.rs"]
mod config_values;

fuzz_target!(|data: &[u8]| clock::timed(data, config_values::check));
