//! `cargo xtask guard`: no code of ours offers, calls or handles MCP's sampling, roots or logging.
//!
//! The three are deprecated (SEP-2577) and each would open a way around the decision point: a server that asks for
//! a completion, looks at the user's folders, or writes into the host's log. The check reads syntax trees, so words
//! in comments and documents, a `RootCertStore` or tracing's logging do not trip it; strings and names inside macros
//! do. What it cannot see is a name that is put together at run time.

mod collect;
mod names;
#[cfg(test)]
mod tests;
mod tokens;
mod visitor;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::finding::Finding;
use crate::process::say;
use crate::workspace::Root;

/// Where string literals may name the three, and why. Names of rmcp's items are refused there too.
const STRINGS_ALLOWED_IN: &[(&str, &str)] = &[
    (
        "crates/portcullis-testkit/",
        "the scripted server sends these messages as data, to see the hub refuse them",
    ),
    (
        "xtask/src/guard/",
        "the guard's own list, and the violations that its tests plant",
    ),
];

/// Checks each Rust file of the checkout.
pub(crate) fn run(root: &Root) -> Result<()> {
    let files = root.rust_files()?;
    let findings = check_files(root, &files);
    for finding in &findings {
        say(&finding.to_string());
    }
    if !findings.is_empty() {
        bail!("guard: {} finding(s) in {} files", findings.len(), files.len());
    }
    say(&format!(
        "guard: {} files, none uses MCP's sampling, roots or logging",
        files.len()
    ));
    Ok(())
}

fn check_files(root: &Root, files: &[PathBuf]) -> Vec<Finding> {
    files.iter().flat_map(|file| check_file(root, file)).collect()
}

/// A file that cannot be read counts as a finding: what is not looked at is not guarded.
fn check_file(root: &Root, file: &Path) -> Vec<Finding> {
    let shown = root.show(file);
    match std::fs::read_to_string(file) {
        Ok(text) => check_text(&shown, &text),
        Err(error) => vec![Finding::file(
            shown,
            format!("cannot be read: {error}"),
            "make it a readable UTF-8 file",
        )],
    }
}

/// `path` is from the root and only says where the text stands.
fn check_text(path: &str, text: &str) -> Vec<Finding> {
    match syn::parse_file(text) {
        Ok(file) => {
            let strings_allowed = STRINGS_ALLOWED_IN
                .iter()
                .any(|(folder, _)| path.starts_with(folder));
            visitor::check(path, &file, !strings_allowed)
        }
        Err(error) => {
            let start = error.span().start();
            let help =
                "the guard must be able to read every file: make it valid Rust, or give it another extension";
            vec![
                Finding::file(path, format!("is not valid Rust: {error}"), help)
                    .at(start.line, start.column + 1),
            ]
        }
    }
}
