//! Manifests: a crate is called like its folder, inherits the workspace's lints and versions, and depends on nothing
//! outside of the checkout but crates.io.

use std::path::{Component, Path};

use anyhow::{Context, Result};

use crate::finding::Finding;
use crate::workspace::{Package, Root};

/// The package of end-to-end tests, whose lints may differ: it is all tests.
const END_TO_END: &str = "tests";

pub(super) fn check(root: &Root, packages: &[Package]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in packages {
        let path = format!("{}/Cargo.toml", package.folder);
        let text =
            std::fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read `{path}`"))?;
        let manifest: toml::Table = text.parse().with_context(|| format!("cannot read `{path}`"))?;
        let folder = Path::new(&package.folder)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        // A folder `tests` at the root says what is in it better than the package's name would.
        if package.name != folder && package.folder != END_TO_END {
            let what = format!("the package is called `{}`, its folder `{folder}`", package.name);
            findings.push(Finding::file(&path, what, "give both the same name"));
        }
        let inherits = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool);
        if inherits != Some(true) && package.folder != END_TO_END {
            let help = "add `[lints]` with `workspace = true`";
            findings.push(Finding::file(
                &path,
                "the workspace's lints are not inherited",
                help,
            ));
        }
        for (name, dependency) in dependencies(&manifest) {
            findings.extend(versioned(&path, name, dependency));
        }
    }
    // Versions stand in the root's manifest, and so do the paths of our own crates. The fuzz targets are a workspace
    // of their own that builds on a nightly toolchain, and what needs a competitor's crate is one too.
    for path in ["Cargo.toml", "bench/Cargo.toml", "fuzz/Cargo.toml"] {
        let Ok(text) = std::fs::read_to_string(root.join(path)) else {
            continue;
        };
        let manifest: toml::Table = text.parse().with_context(|| format!("cannot read `{path}`"))?;
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        let shared = manifest.get("workspace").and_then(toml::Value::as_table);
        let own = dependencies(&manifest).into_iter();
        for (name, dependency) in own.chain(shared.into_iter().flat_map(dependencies)) {
            findings.extend(foreign(path, folder, name, dependency));
        }
    }
    Ok(findings)
}

/// Each entry of each table of dependencies, those of single targets included.
fn dependencies(manifest: &toml::Table) -> Vec<(&str, &toml::Value)> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets
        .into_iter()
        .flat_map(|targets| targets.values())
        .filter_map(toml::Value::as_table);
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    std::iter::once(manifest)
        .chain(targets)
        .flat_map(|table| {
            kinds
                .iter()
                .filter_map(|kind| table.get(*kind).and_then(toml::Value::as_table))
        })
        .flat_map(|table| table.iter().map(|(name, value)| (name.as_str(), value)))
        .collect()
}

fn versioned(path: &str, name: &str, dependency: &toml::Value) -> Option<Finding> {
    let inherits = dependency.get("workspace").and_then(toml::Value::as_bool) == Some(true);
    let what = format!("the version of `{name}` is not the workspace's");
    (!inherits).then(|| {
        Finding::file(
            path,
            what,
            format!("write `{name}.workspace = true`, and the version in the root's manifest"),
        )
    })
}

fn foreign(path: &str, folder: &Path, name: &str, dependency: &toml::Value) -> Option<Finding> {
    if dependency.get("git").is_some() || dependency.get("registry").is_some() {
        let what = format!("`{name}` comes from git or from another registry");
        return Some(Finding::file(path, what, "depend on a release on crates.io"));
    }
    let target = dependency.get("path").and_then(toml::Value::as_str)?;
    let what = format!("the path of `{name}` leads out of the checkout: `{target}`");
    leads_out(&folder.join(target)).then(|| {
        Finding::file(
            path,
            what,
            "depend on a crate of the workspace or on a release on crates.io",
        )
    })
}

/// Whether a path, taken from the root, leaves it.
fn leads_out(path: &Path) -> bool {
    let mut depth = 0_i32;
    path.components().any(|component| {
        depth += match component {
            Component::Normal(_) => 1,
            Component::CurDir => 0,
            Component::ParentDir => -1,
            Component::RootDir | Component::Prefix(_) => return true,
        };
        depth < 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::Planted;

    const GOOD: &str = "[package]\nname = \"a\"\n[dependencies]\nx.workspace = true\n[dev-dependencies]\ny = { workspace = true, features = [\"z\"] }\n[lints]\nworkspace = true\n";

    #[track_caller]
    fn check_manifests(package: (&str, &str, &str), root_manifest: &str, expected: &[(&str, &str)]) {
        let (name, folder, manifest) = package;
        let path = format!("{folder}/Cargo.toml");
        let planted = Planted::new(&[("Cargo.toml", root_manifest), (&path, manifest)]);
        let packages = [Package {
            name: name.into(),
            folder: folder.into(),
        }];
        let findings = check(&planted.root(), &packages).unwrap();
        assert_eq!(findings.len(), expected.len(), "{findings:#?}");
        for (finding, (path, what)) in findings.iter().zip(expected) {
            assert!(
                finding.path == *path && finding.what.contains(what),
                "{findings:#?}"
            );
        }
    }

    #[test]
    fn a_package_is_called_like_its_folder() {
        check_manifests(("a", "crates/a", GOOD), "", &[]);
        check_manifests(
            ("a", "crates/b", GOOD),
            "",
            &[("crates/b/Cargo.toml", "called `a`, its folder `b`")],
        );
        check_manifests(("portcullis-tests", "tests", GOOD), "", &[]);
    }

    #[test]
    fn lints_are_inherited() {
        let path = "crates/a/Cargo.toml";
        check_manifests(
            ("a", "crates/a", "[package]\nname = \"a\"\n"),
            "",
            &[(path, "lints are not inherited")],
        );
        check_manifests(
            ("a", "crates/a", "[lints]\nworkspace = false\n"),
            "",
            &[(path, "lints are not inherited")],
        );
        check_manifests(("a", "crates/a", "lints.workspace = true\n"), "", &[]);
        check_manifests(
            ("e2e", "tests", "[lints.rust]\nunsafe_code = \"deny\"\n"),
            "",
            &[],
        );
    }

    #[test]
    fn versions_are_inherited() {
        let path = "crates/a/Cargo.toml";
        for extra in [
            "[build-dependencies]\nz = \"1\"\n",
            "[target.'cfg(unix)'.dependencies]\nz = { version = \"1\" }\n",
        ] {
            check_manifests(
                ("a", "crates/a", &format!("{GOOD}{extra}")),
                "",
                &[(path, "version of `z`")],
            );
        }
    }

    #[test]
    fn nothing_comes_from_outside() {
        let with = |dependency: &str| format!("[workspace.dependencies]\nz = {dependency}\n");
        let good = ("a", "crates/a", GOOD);
        check_manifests(good, &with("{ path = \"crates/z\" }"), &[]);
        check_manifests(good, &with("\"1.0\""), &[]);
        for outside in ["../z", "crates/../../z", "/elsewhere/z"] {
            check_manifests(
                good,
                &with(&format!("{{ path = \"{outside}\" }}")),
                &[("Cargo.toml", "leads out of the checkout")],
            );
        }
        check_manifests(
            good,
            &with("{ git = \"https://example.com/z\" }"),
            &[("Cargo.toml", "comes from git")],
        );
        let apart = |path: &str| format!("[dependencies]\nz = {{ path = \"{path}\" }}\n");
        for manifest in ["bench/Cargo.toml", "fuzz/Cargo.toml"] {
            for (path, wrong) in [("../crates/z", false), ("../../z", true)] {
                let planted = Planted::new(&[(manifest, &apart(path))]);
                assert_eq!(
                    check(&planted.root(), &[]).unwrap().len(),
                    usize::from(wrong),
                    "{manifest} {path}"
                );
            }
        }
    }
}
