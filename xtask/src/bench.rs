//! `cargo xtask bench NAME`: the figures of one part, built for release. Each is an example of its own crate, so that
//! what it needs stays out of the chores; one that needs what no crate may depend on is the package in `bench/`.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::Usage;
use crate::process::Run;
use crate::workspace::Root;

/// The manifest of the package that is a workspace of its own.
const APART: &str = "bench/Cargo.toml";

/// A name, the package, its example, and what it measures. The package apart has a program instead of examples.
const BENCHES: &[(&str, &str, &str, &str)] = &[
    (
        "blobs",
        APART,
        "",
        "putting and getting blobs, beside plain files, git and cacache",
    ),
    (
        "blobs",
        "portcullis-router",
        "bench_spill",
        "pictures from a server's pipe into the store, beside a bare program and the SDK alone",
    ),
    (
        "config",
        "portcullis-config",
        "bench_config",
        "reading 1,000 to 100,000 servers, and documents made to be slow",
    ),
    (
        "http",
        "portcullis-supervisor",
        "bench_http",
        "calls over HTTP through the guarded client, beside the SDK on plain reqwest; refused spellings",
    ),
    (
        "policy",
        "portcullis-policy",
        "bench_policy",
        "decisions, beside plain Cedar over all policies",
    ),
    (
        "supervision",
        "portcullis-supervisor",
        "bench_supervision",
        "calls, starts and trouble on stdio, beside the SDK alone",
    ),
];

/// A first build for release takes long.
const DEADLINE: Duration = Duration::from_secs(40 * 60);

pub(crate) fn run(root: &Root, arguments: &[&str]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        bail!(Usage(format!("`bench` needs a name: {}", names())));
    };
    let mut found = BENCHES.iter().filter(|(known, ..)| known == name).peekable();
    if found.peek().is_none() {
        bail!(Usage(format!("there is no bench `{name}`; there is {}", names())));
    }
    found.try_for_each(|(_, package, example, _)| example_of(root, package, example, rest))
}

fn example_of(root: &Root, package: &str, example: &str, rest: &[&str]) -> Result<()> {
    let mut all = vec!["run", "--release", "--quiet"];
    if package == APART {
        all.extend(["--locked", "--manifest-path", package]);
    } else {
        all.extend(["--package", package, "--example", example]);
    }
    if !rest.is_empty() {
        all.push("--");
        all.extend(rest);
    }
    Run::cargo(root, &all).within(DEADLINE).status()
}

fn names() -> String {
    let names = BENCHES
        .iter()
        .map(|(name, _, _, about)| format!("`{name}` ({about})"));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_a_wrong_command_line() {
        let root = Root::of_this_checkout().unwrap();
        for arguments in [&[][..], &["nothing"][..]] {
            let error = run(&root, arguments).unwrap_err();
            assert!(
                error.is::<Usage>() && error.to_string().contains("`http`"),
                "{error}"
            );
        }
    }

    #[test]
    fn each_bench_is_a_program_that_is_there() {
        let root = Root::of_this_checkout().unwrap();
        for (_, package, example, _) in BENCHES {
            let path = match *package {
                APART => root.join("bench/src/main.rs"),
                _ => root.join(&format!("crates/{package}/examples/{example}.rs")),
            };
            assert!(path.exists(), "{}", path.display());
        }
    }
}
