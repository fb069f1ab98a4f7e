//! Any bytes as a server's output. The laws are in the body.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/wire.rs"]
mod wire;

fuzz_target!(|data: &[u8]| wire::check(data));
