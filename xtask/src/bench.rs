//! `cargo xtask bench NAME`: figures beside a baseline measured in the same run (not part of `ci`).

use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::Run;
use crate::workspace::Root;

/// A benchmark: its name, and the package and example that measure it.
const BENCHES: &[(&str, &str, &str)] = &[("blobs", "portcullis-blobs", "bench_blobs")];

const WITHIN: Duration = Duration::from_secs(40 * 60);

pub(crate) fn run(root: &Root, arguments: &[&str]) -> Result<()> {
    let names: Vec<&str> = BENCHES.iter().map(|(name, ..)| *name).collect();
    let found = match arguments {
        [wanted] => BENCHES.iter().find(|(name, ..)| name == wanted),
        _ => None,
    };
    let Some((_, package, example)) = found else {
        bail!(
            "`bench` takes the name of one benchmark; there are: {}",
            names.join(", ")
        );
    };
    Run::cargo(
        root,
        &["run", "--release", "-q", "-p", package, "--example", example],
    )
    .within(WITHIN)
    .status()
}
