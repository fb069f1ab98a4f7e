//! The servers that are written in Python: a virtual environment with the versions of `requirements.txt`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::FROM;
use crate::process::Run;
use crate::workspace::Root;

/// The pins, a copy of which stays beside the environment.
pub(super) const REQUIREMENTS: &str = "requirements.txt";

/// What the pinned FastMCP asks for.
const OLDEST_MINOR: u32 = 11;

const HELP: &str = "install Python 3.11 or newer with its `venv` module, from your system's packages or from Python's own \
                    site";

/// Makes `folder/venv`. It may be moved afterwards as long as only its `bin/python` is started.
pub(super) fn install(root: &Root, folder: &Path) -> Result<()> {
    let version = Run::new(root, "python3", &["--version"])
        .capture()
        .with_context(|| format!("one of the real servers runs on Python: {HELP}"))?;
    check_python(&version)?;
    Run::new(root, "python3", &["-m", "venv", "venv"])
        .in_folder(folder.to_path_buf())
        .status()
        .with_context(|| format!("cannot make a virtual environment: {HELP}"))?;
    let program = python_in(folder).to_string_lossy().into_owned();
    let arguments = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        // Nothing is built, and nothing is taken that the list does not name.
        "--only-binary=:all:",
        "--no-deps",
        "--requirement",
        REQUIREMENTS,
    ];
    Run::new(root, &program, &arguments)
        .in_folder(folder.to_path_buf())
        .within(Duration::from_secs(5 * 60))
        .status()
        .with_context(|| {
            format!(
                "cannot install what `{FROM}/{REQUIREMENTS}` lists; pip says above why (it comes from PyPI)"
            )
        })?;
    Run::new(root, &program, &["-c", "import fastmcp"])
        .in_folder(folder.to_path_buf())
        .status()
        .with_context(|| format!("pip installed what `{FROM}/{REQUIREMENTS}` lists, but it does not start"))
}

/// Where the interpreter of an install is.
pub(super) fn python_in(folder: &Path) -> PathBuf {
    folder.join("venv/bin/python")
}

fn check_python(version: &str) -> Result<()> {
    let version = version.trim();
    let mut parts = version
        .strip_prefix("Python ")
        .unwrap_or_default()
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(3), Some(minor)) if minor >= OLDEST_MINOR => Ok(()),
        (Some(_), Some(_)) => {
            bail!("the real servers need Python 3.{OLDEST_MINOR}, but `python3` is {version}: {HELP}")
        }
        _ => bail!("cannot tell the version of `python3` from `{version}`: {HELP}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_python_is_refused() {
        for good in ["Python 3.11.0\n", "Python 3.14.2", "Python 3.15.0rc1"] {
            check_python(good).unwrap();
        }
        for old in ["Python 3.10.14", "Python 3.9.18", "Python 2.7.18"] {
            let error = check_python(old).unwrap_err().to_string();
            assert!(error.contains("Python 3.11") && error.contains(old), "{error}");
        }
        assert!(check_python("whatever").is_err());
    }

    #[test]
    fn every_requirement_is_pinned_to_one_version() {
        let root = Root::of_this_checkout().unwrap();
        let text = std::fs::read_to_string(root.join(FROM).join(REQUIREMENTS)).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(lines.contains(&"fastmcp==4.2.3"));
        for line in lines {
            let pinned = line.split_once("==");
            assert!(
                pinned.is_some_and(|(name, version)| !name.contains(' ')
                    && version.starts_with(|c: char| c.is_ascii_digit())),
                "{line}"
            );
        }
    }
}
