//! Any bytes as a configuration in YAML. The laws are in the body.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/config.rs"]
mod config;

fuzz_target!(|data: &[u8]| config::check_named("a.yaml", data));
