//! `cargo xtask deny`: licences and duplicates of what we depend on.
//!
//! A machine that builds has cargo and nothing else, so the part of `deny.toml` that can be decided from `cargo tree`
//! alone is decided here: licences, crates that are refused, and crates that are there in two versions. (Where
//! crates come from, `tidy` reads in `Cargo.lock`.) Whoever has cargo-deny gets the same answers for this machine's
//! target from it out of the same file, and the advisories besides, which need a network.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use crate::finding::Finding;
use crate::process::{Run, say};
use crate::spdx;
use crate::workspace::Root;

const FILE: &str = "deny.toml";

/// Checks what is built for this machine (not development-only dependencies) against `deny.toml`.
pub(crate) fn run(root: &Root) -> Result<()> {
    let rules = std::fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read `{FILE}`"))?;
    let rules = Rules::parse(&rules).with_context(|| format!("cannot use `{FILE}`"))?;
    let tree = [
        "--quiet",
        "tree",
        "--workspace",
        "--all-features",
        "--edges",
        "no-dev",
        "--prefix",
        "none",
    ];
    let tree = Run::cargo(root, &[&tree[..], &["--format", "{p} | {l}"]].concat()).capture()?;
    let crates = crates_of(&tree)?;
    let findings = check(&rules, &crates);
    for finding in &findings {
        say(&finding.to_string());
    }
    if findings.is_empty() {
        say(&format!(
            "deny: {} crates, licences and versions as `{FILE}` allows",
            crates.len()
        ));
        return Ok(());
    }
    bail!("deny: {} finding(s) in what we depend on", findings.len())
}

/// The part of `deny.toml` that is used here.
#[derive(Debug, Default)]
struct Rules {
    licences: BTreeSet<String>,
    /// Licences that one crate alone may have.
    exceptions: BTreeMap<String, BTreeSet<String>>,
    refused: BTreeMap<String, String>,
    /// `name@version` that may stand beside another version; `name@1.2` stands for each 1.2.x.
    skipped: BTreeSet<String>,
}

/// A crate that is part of what we build.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
    /// Empty if it names none.
    licence: String,
}

impl Rules {
    fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse()?;
        let list = |section: &str, key: &str| {
            table
                .get(section)
                .and_then(|section| section.get(key))
                .and_then(toml::Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let mut rules = Self {
            licences: strings(&list("licenses", "allow"))?,
            ..Self::default()
        };
        for exception in list("licenses", "exceptions") {
            let allowed = exception
                .get("allow")
                .and_then(toml::Value::as_array)
                .cloned()
                .unwrap_or_default();
            rules
                .exceptions
                .insert(crate_name(&exception)?, strings(&allowed)?);
        }
        for refused in list("bans", "deny") {
            let reason = refused
                .get("reason")
                .and_then(toml::Value::as_str)
                .unwrap_or("no reason is given");
            rules.refused.insert(crate_name(&refused)?, reason.to_owned());
        }
        for skipped in list("bans", "skip") {
            let name = crate_name(&skipped)?;
            if !name.contains('@') {
                bail!("`bans.skip` must name a version, as in `name@1.2`, but has `{name}`");
            }
            rules.skipped.insert(name);
        }
        if rules.licences.is_empty() {
            bail!("`licenses.allow` must name the licences that are allowed");
        }
        Ok(rules)
    }
}

impl Rules {
    fn skips(&self, name: &str, version: &str) -> bool {
        let full = format!("{name}@{version}");
        self.skipped.iter().any(|skipped| {
            full.strip_prefix(skipped.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

fn strings(values: &[toml::Value]) -> Result<BTreeSet<String>> {
    values
        .iter()
        .map(|value| {
            value
                .as_str()
                .map(str::to_owned)
                .with_context(|| format!("expected a string, not a {}", value.type_str()))
        })
        .collect()
}

fn crate_name(value: &toml::Value) -> Result<String> {
    let name = value
        .as_str()
        .or_else(|| value.get("crate").and_then(toml::Value::as_str));
    name.map(str::to_owned)
        .with_context(|| format!("expected a crate's name, not a {}", value.type_str()))
}

fn check(rules: &Rules, crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in crates {
        by_name.entry(&one.name).or_default().push(&one.version);
        findings.extend(refused(rules, one));
        findings.extend(unlicensed(rules, one));
    }
    for (name, versions) in by_name {
        let counted: Vec<&str> = versions
            .iter()
            .copied()
            .filter(|version| !rules.skips(name, version))
            .collect();
        if counted.len() > 1 {
            let what = format!(
                "`{name}` is built in {} versions: {}",
                versions.len(),
                versions.join(", ")
            );
            let help = format!(
                "`cargo tree -i {name}@{}` shows who asks for it; agree on one version, or add the older one to `bans.skip` with the reason",
                counted.first().copied().unwrap_or_default()
            );
            findings.push(Finding::file(FILE, what, help));
        }
    }
    findings
}

fn refused(rules: &Rules, one: &Crate) -> Option<Finding> {
    let reason = rules.refused.get(&one.name)?;
    let what = format!("`{}` {} is refused: {reason}", one.name, one.version);
    Some(Finding::file(
        FILE,
        what,
        format!(
            "`cargo tree -i {}` shows who asks for it; turn that feature off",
            one.name
        ),
    ))
}

fn unlicensed(rules: &Rules, one: &Crate) -> Option<Finding> {
    let crate_version = format!("`{}` {}", one.name, one.version);
    if one.licence.is_empty() {
        let what = format!("{crate_version} names no licence");
        return Some(Finding::file(
            FILE,
            what,
            "read its licence file, or do without it",
        ));
    }
    let own = rules.exceptions.get(&one.name);
    let allowed = |name: &str| rules.licences.contains(name) || own.is_some_and(|own| own.contains(name));
    let what = match spdx::is_met(&one.licence, &allowed) {
        Ok(true) => return None,
        Ok(false) => format!(
            "{crate_version} has the licence `{}`, which is not allowed",
            one.licence
        ),
        Err(error) => format!("{crate_version}: {error}"),
    };
    Some(Finding::file(
        FILE,
        what,
        "do without it, or add the licence to `licenses.allow` if MIT OR Apache-2.0 code may be shipped with it",
    ))
}

/// Reads what `cargo tree` prints: `name v1.2.3 (…) | MIT`, with ` (*)` after a crate that it has shown before.
fn crates_of(tree: &str) -> Result<Vec<Crate>> {
    let mut crates = BTreeSet::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let (package, licence) = line
            .trim_end_matches(" (*)")
            .split_once(" |")
            .with_context(|| odd(line))?;
        let mut words = package.split(' ');
        let name = words.next().unwrap_or_default();
        let version = words
            .next()
            .and_then(|version| version.strip_prefix('v'))
            .with_context(|| odd(line))?;
        crates.insert(Crate {
            name: name.into(),
            version: version.into(),
            licence: licence.trim().into(),
        });
    }
    if crates.is_empty() {
        bail!("`cargo tree` lists no crates");
    }
    Ok(crates.into_iter().collect())
}

fn odd(line: &str) -> String {
    format!("cannot read this line of `cargo tree`: `{line}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        [licenses]
        allow = ["MIT"]
        exceptions = [{ crate = "odd", allow = ["ISC"] }]
        [bans]
        deny = [{ crate = "openssl", reason = "one TLS stack" }]
        skip = [{ crate = "old@1.1", reason = "only for x" }]
    "#;

    fn a_crate(name: &str, version: &str, licence: &str) -> Crate {
        Crate {
            name: name.into(),
            version: version.into(),
            licence: licence.into(),
        }
    }

    #[track_caller]
    fn check_crates(crates: &[Crate], expected: &[&str]) {
        let findings = check(&Rules::parse(RULES).unwrap(), crates);
        assert_eq!(findings.len(), expected.len(), "{findings:#?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.what.contains(expected), "{findings:#?}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_found() {
        check_crates(
            &[
                a_crate("ours", "0.1.0", "MIT"),
                a_crate("good", "1.0.0", "GPL-3.0 OR MIT"),
            ],
            &[],
        );
        check_crates(
            &[a_crate("bad", "1.0.0", "GPL-3.0")],
            &["`GPL-3.0`, which is not allowed"],
        );
        check_crates(&[a_crate("odd", "1.0.0", "ISC")], &[]);
        check_crates(&[a_crate("other", "1.0.0", "ISC")], &["`ISC`"]);
        check_crates(&[a_crate("none", "1.0.0", "")], &["names no licence"]);
        check_crates(&[a_crate("openssl", "1.0.0", "MIT")], &["refused: one TLS stack"]);
    }

    #[test]
    fn two_versions_are_found_unless_one_is_skipped() {
        let two = |name: &str, old: &str| [a_crate(name, old, "MIT"), a_crate(name, "2.0.0", "MIT")];
        check_crates(
            &two("twice", "1.0.0"),
            &["`twice` is built in 2 versions: 1.0.0, 2.0.0"],
        );
        check_crates(&two("old", "1.1.0"), &[]);
        check_crates(&two("old", "1.1.7"), &[]);
        check_crates(&two("old", "1.10.0"), &["`old` is built in 2 versions"]);
    }

    #[test]
    fn rules_that_decide_nothing_are_refused() {
        for rules in ["", "[licenses]\nallow = []", "[licenses]\nallow = [1]"] {
            assert!(Rules::parse(rules).is_err(), "{rules}");
        }
        assert!(Rules::parse(&RULES.replace("old@1.1", "old")).is_err());
    }

    #[test]
    fn the_tree_is_read() {
        let tree = "ours v0.1.0 (/somewhere) | MIT\nmac v2.0.0 (proc-macro) | Apache-2.0 / MIT (*)\n\nbare v1.0.0+spec-1 | \n\
                    bare v1.0.0+spec-1 |  (*)\n";
        let expected = [
            a_crate("bare", "1.0.0+spec-1", ""),
            a_crate("mac", "2.0.0", "Apache-2.0 / MIT"),
            a_crate("ours", "0.1.0", "MIT"),
        ];
        assert_eq!(crates_of(tree).unwrap(), expected);
        for odd in ["", "one", "one 1.0 | MIT", "one v1.0"] {
            assert!(crates_of(odd).is_err(), "{odd}");
        }
    }
}
