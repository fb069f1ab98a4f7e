//! The project's own chores: `cargo xtask ci` is everything that CI runs.

fn main() {}
