//! All text files: none speaks of one machine, and no lock file records where a package was downloaded from.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::finding::Finding;
use crate::workspace::Root;

/// Where crates may come from, as `Cargo.lock` writes it.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Names of people's folders that stand for any reader in an example.
const ANYBODY: &[&str] = &[
    "me", "you", "user", "username", "alice", "bob", "ada", "name", "dev",
];

pub(super) fn check(root: &Root) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let checkout = root.path().to_string_lossy().into_owned();
    for file in root.files()? {
        let path = root.show(&file);
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read `{path}`"))?;
        // What is not UTF-8, or holds a NUL, is no text.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        if text.contains('\0') {
            continue;
        }
        findings.extend(machine_paths(&path, &text, &checkout));
        findings.extend(match path.rsplit('/').next() {
            Some("package-lock.json" | "npm-shrinkwrap.json") => npm_addresses(&path, &text),
            Some("Cargo.lock") => cargo_sources(&path, &text),
            _ => Vec::new(),
        });
    }
    Ok(findings)
}

/// Absolute paths of the machine that a file was written on.
fn machine_paths(path: &str, text: &str, checkout: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let at = home_path(line).or_else(|| checkout_path(line, checkout));
        if let Some((column, what)) = at {
            let help = "write it from the root of the checkout, or use a made-up folder such as `/home/me`";
            findings.push(
                Finding::file(path, format!("a path of one machine: `{what}`"), help).at(number, column),
            );
        }
    }
    findings
}

/// A person's home folder. Part of a longer path, as in `/srv/home/x`, it means something else.
fn home_path(line: &str) -> Option<(usize, String)> {
    ["home", "Users", "root"].iter().find_map(|folder| {
        let wanted = format!("/{folder}/");
        line.match_indices(&wanted).find_map(|(at, _)| {
            let (before, from) = line.split_at(at);
            let name: String = from
                .chars()
                .skip(wanted.chars().count())
                .take_while(|next| is_of_name(*next))
                .collect();
            let whose = *folder == "root" || !(name.is_empty() || ANYBODY.contains(&name.as_str()));
            (whose && !before.ends_with(is_of_path))
                .then(|| (before.chars().count() + 1, format!("{wanted}{name}")))
        })
    })
}

/// The very checkout. One that lies directly under the root of the file system, like `/src`, has a name that may
/// stand in any text, and is not looked for.
fn checkout_path(line: &str, checkout: &str) -> Option<(usize, String)> {
    if checkout.matches('/').count() < 2 {
        return None;
    }
    line.match_indices(checkout).find_map(|(at, _)| {
        let (before, from) = line.split_at(at);
        let after = from.get(checkout.len()..).unwrap_or_default();
        let whole = !before.ends_with(is_of_path) && !after.starts_with(is_of_name);
        whole.then(|| (before.chars().count() + 1, checkout.to_owned()))
    })
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || "_-.".contains(character)
}

fn is_of_path(character: char) -> bool {
    is_of_name(character) || "/~}".contains(character)
}

fn npm_addresses(path: &str, text: &str) -> Vec<Finding> {
    let lock: Value = match serde_json::from_str(text) {
        Ok(lock) => lock,
        Err(error) => {
            return vec![
                Finding::file(
                    path,
                    format!("is not valid JSON: {error}"),
                    "make it anew with npm",
                )
                .at(error.line(), error.column()),
            ];
        }
    };
    let mut addresses = 0;
    count_addresses(&lock, &mut addresses);
    let what = format!("{addresses} package(s) with the address they were downloaded from");
    let help =
        "set `omit-lockfile-registry-resolved=true` in the `.npmrc` beside it, and make the lock file anew";
    let line = text
        .lines()
        .position(|line| line.contains("\"resolved\""))
        .map_or(0, |at| at + 1);
    if addresses > 0 {
        vec![Finding::file(path, what, help).at(line, 0)]
    } else {
        Vec::new()
    }
}

fn count_addresses(value: &Value, addresses: &mut usize) {
    match value {
        Value::Object(object) => {
            *addresses +=
                usize::from(object.get("resolved").is_some_and(|resolved| {
                    resolved.as_str().is_some_and(|address| address.contains("://"))
                }));
            object
                .values()
                .for_each(|value| count_addresses(value, addresses));
        }
        Value::Array(array) => array.iter().for_each(|value| count_addresses(value, addresses)),
        _ => {}
    }
}

fn cargo_sources(path: &str, text: &str) -> Vec<Finding> {
    let source = |line: &str| {
        line.strip_prefix("source = \"")
            .and_then(|rest| rest.strip_suffix('"'))
            .map(str::to_owned)
    };
    text.lines()
        .zip(1..)
        .filter_map(|(line, number)| Some((source(line)?, number)))
        .filter(|(source, _)| source != CRATES_IO)
        .map(|(source, number)| {
            let what = format!("a crate comes from `{source}`");
            Finding::file(path, what, "depend on releases on crates.io only").at(number, 0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::Planted;

    #[track_caller]
    fn check_text(path: &str, text: &str, expected: &[(usize, &str)]) {
        let findings = check(&Planted::new(&[(path, text)]).root()).unwrap();
        assert_eq!(findings.len(), expected.len(), "{findings:#?}");
        for (finding, (line, what)) in findings.iter().zip(expected) {
            assert!(
                finding.path == path && finding.line == *line && finding.what.contains(what),
                "{findings:#?}"
            );
        }
    }

    /// Built from parts, so that this file passes its own check.
    fn home(folder: &str, rest: &str) -> String {
        format!("/{folder}/{rest}")
    }

    #[test]
    fn home_folders_are_found() {
        let grace = home("home", "grace/code");
        check_text("README.md", &format!("fine\nsee {grace}\n"), &[(2, "/grace`")]);
        check_text(
            "a.json",
            &format!("{{\"cwd\": \"{}\"}}", home("Users", "grace")),
            &[(1, "/grace`")],
        );
        check_text(
            "a.yaml",
            &format!("path: {}", home("root", ".cargo")),
            &[(1, "/.cargo`")],
        );
    }

    #[test]
    fn made_up_folders_and_longer_paths_are_not() {
        for fine in [
            "/home/me/x",
            "/Users/username/Desktop",
            "/home/$USER/x",
            "/home/<name>/x",
            "/home/",
            "https://x.example/home/grace",
            "./root/x",
            "~/root/x",
            "${HOME}/root/x",
            "/srv/home/grace",
        ] {
            check_text("README.md", fine, &[]);
        }
    }

    #[test]
    fn the_checkout_itself_is_found() {
        let checkout = "/somewhere/deep/portcullis";
        let found = |line: &str| !machine_paths("x", line, checkout).is_empty();
        assert!(found("at /somewhere/deep/portcullis/crates"));
        assert!(found("file:\"/somewhere/deep/portcullis\""));
        assert!(!found("/somewhere/deep/portcullis-two"));
        assert!(!found("/else/somewhere/deep/portcullis"));
        assert!(machine_paths("x", "crates /src lib", "/src").is_empty());
    }

    #[test]
    fn what_is_no_text_is_left_alone() {
        check_text("a.bin", &format!("\0{}", home("home", "grace")), &[]);
    }

    #[test]
    fn download_addresses_are_found() {
        let lock = "{\n \"packages\": {\n  \"node_modules/a\": {\n   \"resolved\": \"https://registry.example/a.tgz\"\n  }\n }\n}\n";
        check_text("tests/x/package-lock.json", lock, &[(4, "1 package(s)")]);
        check_text(
            "tests/x/package-lock.json",
            &lock.replace("https://registry.example/a.tgz", "../a"),
            &[],
        );
        check_text("tests/x/package-lock.json", "{", &[(1, "not valid JSON")]);
        check_text("tests/x/other.json", lock, &[]);
    }

    #[test]
    fn crates_come_from_one_registry() {
        let good = format!("[[package]]\nname = \"a\"\nsource = \"{CRATES_IO}\"\n");
        check_text("Cargo.lock", &good, &[]);
        check_text(
            "fuzz/Cargo.lock",
            &format!("{good}source = \"git+https://example.com/a#1\"\n"),
            &[(4, "git+https")],
        );
    }
}
