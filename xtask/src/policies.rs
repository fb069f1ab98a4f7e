//! `cargo xtask policies`: parses and validates `policies/`, and decides each row of `policies/cases/`.
//!
//! The work is a test of portcullis-policy, so that this program is built in seconds and without Cedar.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::Run;
use crate::workspace::Root;

pub(crate) fn run(root: &Root) -> Result<()> {
    // `--workspace` makes cargo choose the features that the stage `test` will choose, so that Cedar is built once.
    let test = ["test", "--workspace", "--test", "decision_tables"];
    let test = Run::cargo(root, &test).within(Duration::from_secs(20 * 60));
    test.status()
        .context("the policies are not as their decision tables say, which stands above with file and line")
}
