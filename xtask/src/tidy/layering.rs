//! Which crate never depends on what: the table in ARCHITECTURE.md against `cargo tree`, crate by crate.
//!
//! Each crate is looked at alone and with all its features, since in a whole-workspace build one crate's features
//! are switched on by another. A row may name features instead: then the crate is looked at with these alone.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::finding::Finding;
use crate::process::Run;
use crate::workspace::{Package, Root};

const FILE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## What each crate may not depend on";
const HELP_TABLE: &str =
    "the section has a table `| crate | never depends on |`, names in backticks, one row for each crate";

/// A row of the table: `` | `crate` (features `a`, `b`) | `tokio`, `rmcp` | ``.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    package: String,
    /// Looked at with these features and no others; with all if there are none.
    features: Vec<String>,
    never: Vec<String>,
}

pub(super) fn check(root: &Root, packages: &[Package]) -> Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read `{FILE}`"))?;
    let rows = match rows(&text) {
        Ok(rows) => rows,
        Err(finding) => return Ok(vec![*finding]),
    };
    let mut findings = unmatched(packages, &rows);
    let known = |row: &&Row| packages.iter().any(|package| package.name == row.package);
    for row in rows.iter().filter(known).filter(|row| !row.never.is_empty()) {
        let reached = dependencies(root, row)?;
        for name in row.never.iter().filter(|name| reached.contains(*name)) {
            let with = if row.features.is_empty() {
                String::new()
            } else {
                format!(" with {}", row.features.join(", "))
            };
            let what = format!(
                "`{}`{with} depends on `{name}`, which this table forbids",
                row.package
            );
            let help = format!(
                "`cargo tree --package {} --edges normal --invert {name}` shows through what",
                row.package
            );
            findings.push(Finding::file(FILE, what, help).at(row.line, 0));
        }
    }
    Ok(findings)
}

/// Crates without a row, and rows without a crate.
fn unmatched(packages: &[Package], rows: &[Row]) -> Vec<Finding> {
    let missing = packages.iter().filter(|package| {
        !rows
            .iter()
            .any(|row| row.package == package.name && row.features.is_empty())
    });
    let missing = missing.map(|package| {
        let what = format!(
            "`{}` has no row under \"{}\"",
            package.name,
            HEADING.trim_start_matches("## ")
        );
        Finding::file(
            FILE,
            what,
            "say what it never depends on, or `nothing is forbidden`",
        )
    });
    let stale = rows
        .iter()
        .filter(|row| !packages.iter().any(|package| package.name == row.package))
        .map(|row| {
            let what = format!("there is no crate `{}` in the workspace", row.package);
            Finding::file(FILE, what, "correct the name, or take the row out").at(row.line, 0)
        });
    missing.chain(stale).collect()
}

fn rows(text: &str) -> Result<Vec<Row>, Box<Finding>> {
    let wrong = |line: usize, what: String| Box::new(Finding::file(FILE, what, HELP_TABLE).at(line, 0));
    let mut lines = text.lines().zip(1..);
    if !lines.any(|(line, _)| line.trim_end() == HEADING) {
        return Err(wrong(0, format!("there is no section `{HEADING}`")));
    }
    let section = lines.take_while(|(line, _)| !line.starts_with('#'));
    let mut rows: Vec<Row> = Vec::new();
    // The first two lines of a table are its head and the rule under it.
    for (line, number) in section
        .filter(|(line, _)| line.trim_start().starts_with('|'))
        .skip(2)
    {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').collect();
        let [named, never] = cells.as_slice() else {
            return Err(wrong(
                number,
                format!("a row must have two cells, this one has {}", cells.len()),
            ));
        };
        let mut names = in_backticks(named).into_iter();
        let package = names
            .next()
            .ok_or_else(|| wrong(number, "the first cell names no crate".to_owned()))?;
        let row = Row {
            line: number,
            package,
            features: names.collect(),
            never: in_backticks(never),
        };
        if rows
            .iter()
            .any(|other| other.package == row.package && other.features == row.features)
        {
            return Err(wrong(number, format!("`{}` has two rows", row.package)));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        Err(wrong(0, format!("the section `{HEADING}` has no rows")))
    } else {
        Ok(rows)
    }
}

fn in_backticks(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The names of all crates that this one is built from, itself not counted.
fn dependencies(root: &Root, row: &Row) -> Result<BTreeSet<String>> {
    let mut arguments = vec![
        "--quiet",
        "tree",
        "--package",
        &row.package,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let features = row.features.join(",");
    if row.features.is_empty() {
        arguments.push("--all-features");
    } else {
        arguments.extend(["--no-default-features", "--features", &features]);
    }
    let tree = Run::cargo(root, &arguments).capture()?;
    Ok(tree
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::Planted;

    const HEAD: &str = "# Map\n\n## What each crate may not depend on\n\nWhy.\n\n| crate | never depends on |\n| --- | --- |\n";

    /// Two crates of ours over a `tokio` and a `middle` that are as local as they are, so no network is needed.
    /// `b` reaches tokio through `middle`, and only if its feature `net` is on; for its tests it always has it.
    fn planted(table: &str) -> Planted {
        let package =
            |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n{rest}");
        let a = package("a", "");
        let b = package(
            "b",
            "[features]\ndefault = [\"net\"]\nnet = [\"dep:middle\"]\nplain = []\n[dependencies]\nmiddle = { path = \"../../outside/middle\", optional = true }\n\
             [dev-dependencies]\nrmcp = { path = \"../../outside/rmcp\" }\n",
        );
        let middle = package("middle", "[dependencies]\ntokio = { path = \"../tokio\" }\n");
        let files = [
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\nexclude = [\"outside\"]\n"
                    .to_owned(),
            ),
            ("crates/a/Cargo.toml", a),
            ("crates/a/src/lib.rs", String::new()),
            ("crates/b/Cargo.toml", b),
            ("crates/b/src/lib.rs", String::new()),
            ("outside/middle/Cargo.toml", middle),
            ("outside/middle/src/lib.rs", String::new()),
            ("outside/tokio/Cargo.toml", package("tokio", "")),
            ("outside/tokio/src/lib.rs", String::new()),
            ("outside/rmcp/Cargo.toml", package("rmcp", "")),
            ("outside/rmcp/src/lib.rs", String::new()),
            (FILE, format!("{HEAD}{table}")),
        ];
        Planted::new(&files.each_ref().map(|(path, text)| (*path, text.as_str())))
    }

    #[track_caller]
    fn check_table(table: &str, expected: &[(usize, &str)]) {
        let planted = planted(table);
        let root = planted.root();
        let findings = check(&root, &root.packages().unwrap()).unwrap();
        let found: Vec<(usize, &str)> = findings
            .iter()
            .map(|finding| (finding.line, finding.what.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_forbidden_dependency_is_found_however_deep() {
        check_table(
            "| `a` | `tokio` |\n| `b` | `tokio`, `rmcp` |\n",
            &[(10, "`b` depends on `tokio`, which this table forbids")],
        );
        check_table(
            "| `a` | `tokio`, `b` |\n| `b` | `rmcp` (for its tests only) |\n",
            &[],
        );
        check_table(
            "| `a` | nothing is forbidden |\n| `b` | nothing is forbidden |\n",
            &[],
        );
    }

    #[test]
    fn a_row_may_be_about_some_features() {
        let table = "| `a` | nothing |\n| `b` | nothing |\n| `b` (features `plain`) | `tokio` |\n";
        check_table(table, &[]);
        let found = "`b` with net, plain depends on `tokio`, which this table forbids";
        check_table(&table.replace("`plain`", "`net`, `plain`"), &[(11, found)]);
    }

    #[test]
    fn every_crate_has_a_row_and_every_row_a_crate() {
        let missing = "`b` has no row under \"What each crate may not depend on\"";
        check_table("| `a` | nothing |\n", &[(0, missing)]);
        check_table(
            "| `a` | nothing |\n| `b` (features `plain`) | `tokio` |\n",
            &[(0, missing)],
        );
        check_table(
            "| `a` | nothing |\n| `b` | nothing |\n| `c` | `tokio` |\n",
            &[(11, "there is no crate `c` in the workspace")],
        );
    }

    #[test]
    fn a_table_that_cannot_be_read_is_found() {
        check_table(
            "",
            &[(
                0,
                "the section `## What each crate may not depend on` has no rows",
            )],
        );
        check_table(
            "| `a` | `tokio` | why |\n",
            &[(9, "a row must have two cells, this one has 3")],
        );
        check_table("| a | `tokio` |\n", &[(9, "the first cell names no crate")]);
        check_table("| `a` | `x` |\n| `a` | `y` |\n", &[(10, "`a` has two rows")]);
        let finding = rows("# Map\n\n## Another\n\n| `a` | `b` |\n").unwrap_err();
        assert!(finding.what.contains("there is no section"), "{finding}");
    }

    #[test]
    fn the_table_ends_with_its_section() {
        let text = format!("{HEAD}| `a` | `x` |\n\n## Other\n\n| k | v |\n| --- | --- |\n| `z` | `y` |\n");
        let rows = rows(&text).unwrap();
        assert_eq!(
            rows.iter().map(|row| row.package.as_str()).collect::<Vec<_>>(),
            ["a"]
        );
    }
}
