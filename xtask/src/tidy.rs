//! `cargo xtask tidy`: what the compiler and clippy cannot see. Which crate may depend on what, how long files are,
//! that every manifest inherits from the workspace, that no file speaks of one machine.

mod layering;
mod manifests;
mod source;
mod texts;

use anyhow::{Result, bail};

use crate::finding::Finding;
use crate::process::say;
use crate::workspace::Root;

pub(crate) fn run(root: &Root) -> Result<()> {
    let report = check(root)?;
    for note in &report.notes {
        say(&format!("note: {note}"));
    }
    for finding in &report.findings {
        say(&finding.to_string());
    }
    if report.findings.is_empty() {
        say("tidy: layering, sizes, manifests and texts are as they should be");
        return Ok(());
    }
    bail!("tidy: {} finding(s)", report.findings.len())
}

/// What was found, and what is worth saying without being wrong.
#[derive(Debug, Default)]
struct Report {
    findings: Vec<Finding>,
    notes: Vec<String>,
}

fn check(root: &Root) -> Result<Report> {
    let mut report = Report::default();
    let packages = root.packages()?;
    report.findings.extend(layering::check(root, &packages)?);
    report.findings.extend(manifests::check(root, &packages)?);
    source::check(root, &mut report)?;
    report.findings.extend(texts::check(root)?);
    Ok(report)
}
