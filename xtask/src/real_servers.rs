//! `cargo xtask real-servers`: installs the MCP servers that the end-to-end tests talk to, at the versions of
//! `tests/real-servers/package-lock.json` and `tests/real-servers/requirements.txt`, into `target/real-servers`.
//!
//! The lock file holds versions and hashes and no addresses, so any registry serves; npm checks each hash. The
//! install goes to a folder of its own and is moved into place when it is whole, so one that was cut short never
//! looks finished. A second call with the same lock file does nothing.

#![expect(
    clippy::disallowed_methods,
    reason = "this chore installs files; the shipped crates write through their stores"
)]

mod python;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{Run, say};
use crate::workspace::Root;

const FROM: &str = "tests/real-servers";
const INTO: &str = "target/real-servers";

/// What decides whether an install is still the right one; a copy of each stays beside it.
const INPUTS: [&str; 4] = [
    "package.json",
    "package-lock.json",
    ".npmrc",
    python::REQUIREMENTS,
];

/// The programs that the tests start.
const PROGRAMS: [&str; 4] = [
    "mcp-server-everything",
    "mcp-server-filesystem",
    "mcp-server-memory",
    "mcp-server-sequential-thinking",
];

const OLDEST_NODE: u32 = 20;

const HELP: &str =
    "install Node.js 20 or newer with its npm, from your system's packages or from Node's own site";

pub(crate) fn run(root: &Root) -> Result<()> {
    let node = Run::new(root, "node", &["--version"])
        .capture()
        .with_context(|| format!("the real servers run on Node: {HELP}"))?;
    check_node(&node)?;
    let installed = root.join(INTO);
    if is_current(root, &installed)? {
        say(&format!("real-servers: already in {INTO}"));
        return Ok(());
    }
    Run::new(root, "npm", &["--version"])
        .capture()
        .with_context(|| format!("the real servers are installed with npm: {HELP}"))?;

    let partial = root.join(&format!("{INTO}.{}.partial", std::process::id()));
    let outcome = install(root, &partial).and_then(|()| {
        remove(&installed)?;
        fs::rename(&partial, &installed).with_context(|| format!("cannot move the servers to `{INTO}`"))
    });
    if outcome.is_err() {
        remove(&partial)?;
    }
    outcome?;
    say(&format!(
        "real-servers: {} servers in {INTO}/node_modules/.bin, and a Python for the others in {INTO}/venv",
        PROGRAMS.len()
    ));
    Ok(())
}

fn install(root: &Root, folder: &Path) -> Result<()> {
    remove(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    for input in INPUTS {
        let from = root.join(FROM).join(input);
        fs::copy(&from, folder.join(input)).with_context(|| format!("cannot copy `{FROM}/{input}`"))?;
    }
    let npm = Run::new(root, "npm", &["ci"])
        .in_folder(folder.to_path_buf())
        .within(Duration::from_secs(5 * 60));
    npm.status()
        .context("cannot install the real servers; npm says above why (they come from the npm registry)")?;
    let missing: Vec<&str> = PROGRAMS
        .into_iter()
        .filter(|program| !program_in(folder, program).exists())
        .collect();
    if !missing.is_empty() {
        bail!(
            "npm installed the packages of `{FROM}`, but there is no {}",
            missing.join(", ")
        );
    }
    python::install(root, folder)
}

/// Whether all programs are there and were installed from the inputs as they are now.
fn is_current(root: &Root, folder: &Path) -> Result<bool> {
    for input in INPUTS {
        let wanted =
            fs::read(root.join(FROM).join(input)).with_context(|| format!("cannot read `{FROM}/{input}`"))?;
        if fs::read(folder.join(input)).ok() != Some(wanted) {
            return Ok(false);
        }
    }
    Ok(python::python_in(folder).exists()
        && PROGRAMS
            .iter()
            .all(|program| program_in(folder, program).exists()))
}

fn program_in(folder: &Path, program: &str) -> PathBuf {
    folder.join("node_modules/.bin").join(program)
}

fn check_node(version: &str) -> Result<()> {
    let version = version.trim();
    let major = version
        .strip_prefix('v')
        .and_then(|version| version.split('.').next())
        .and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major >= OLDEST_NODE => Ok(()),
        Some(_) => bail!("the real servers need Node {OLDEST_NODE}, but `node` is {version}: {HELP}"),
        None => bail!("cannot tell the version of `node` from `{version}`: {HELP}"),
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::Planted;

    #[test]
    fn an_old_node_is_refused() {
        for good in ["v20.0.0\n", "v24.1.2"] {
            check_node(good).unwrap();
        }
        let error = check_node("v18.20.0\n").unwrap_err().to_string();
        assert!(error.contains("Node 20") && error.contains("v18.20.0"), "{error}");
        assert!(check_node("whatever").is_err());
    }

    #[test]
    fn an_install_is_current_only_if_whole_and_of_the_same_lock_file() {
        let programs = PROGRAMS.map(|program| format!("{INTO}/node_modules/.bin/{program}"));
        let mut files: Vec<(String, &str)> = programs.iter().map(|program| (program.clone(), "")).collect();
        files.push((format!("{INTO}/venv/bin/python"), ""));
        for input in INPUTS {
            files.push((format!("{FROM}/{input}"), "as committed"));
            files.push((format!("{INTO}/{input}"), "as committed"));
        }
        let is_current = |files: &[(String, &str)]| {
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let root = Planted::new(&files);
            super::is_current(&root.root(), &root.root().join(INTO)).unwrap()
        };
        assert!(is_current(&files));
        assert!(!is_current(&files[1..]), "a program is missing");
        files.last_mut().unwrap().1 = "another";
        assert!(!is_current(&files), "the lock file changed");
    }

    #[test]
    fn the_pinned_servers_are_those_of_the_manifest() {
        let root = Root::of_this_checkout().unwrap();
        let manifest = fs::read_to_string(root.join(FROM).join("package.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let pinned: Vec<String> = manifest["dependencies"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(
            pinned,
            PROGRAMS.map(|program| program.replace("mcp-", "@modelcontextprotocol/"))
        );
    }
}
