use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use portcullis_types::Hash;
use serde::{Deserialize, Serialize};

use crate::{PolicyError, PolicyErrors, PolicyFile, PolicyProblem};

/// The hashes of a folder's policies as they were reviewed. Where there is a seal, only these very files load.
///
/// ```
/// use portcullis_policy::{PolicyFile, Seal};
///
/// let reviewed = PolicyFile { name: "team.rules".into(), text: "deny mcp.shell.*\n".into() };
/// let seal: Seal = Seal::of(std::slice::from_ref(&reviewed))?.to_string().parse()?;
/// assert!(seal.check(&[reviewed]).is_ok());
///
/// let edited = PolicyFile { name: "team.rules".into(), text: "# later\n".into() };
/// let errors = seal.check(&[edited]).unwrap_err();
/// assert!(errors.to_string().starts_with("team.rules:1: this file is not the one that was sealed"));
/// # Ok::<(), portcullis_policy::PolicyErrors>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    version: u32,
    /// By the file's name without its folder: blake3 over its text, in hexadecimal.
    files: BTreeMap<String, String>,
}

impl Seal {
    /// What the file is called that holds a folder's seal.
    pub const FILE_NAME: &'static str = "policies.seal";
    /// The version that is written and read.
    const VERSION: u32 = 1;

    /// The seal of these files.
    ///
    /// # Errors
    /// Each file that has the name of one before it, but for the folder: the seal could hold one of them only. A
    /// backslash ends a folder's name as well, as on Windows.
    pub fn of(files: &[PolicyFile]) -> Result<Self, PolicyErrors> {
        let (mut sealed, mut errors) = (BTreeMap::new(), Vec::new());
        for file in files {
            if let Some((first, _)) = sealed.get(file.base_name()) {
                let problem = PolicyProblem::SealedTwice(String::clone(first));
                errors.push(PolicyError::new(&file.name, 1, problem));
            } else {
                sealed.insert(file.base_name().to_owned(), (file.name.clone(), hash(file)));
            }
        }
        if !errors.is_empty() {
            return Err(PolicyErrors(errors));
        }
        let sealed = sealed.into_iter().map(|(name, (_, hash))| (name, hash));
        Ok(Self {
            version: Self::VERSION,
            files: sealed.collect(),
        })
    }

    /// Compares the files with what was sealed: none may differ, be missing or be new.
    ///
    /// # Errors
    /// Each file that is not as it was sealed.
    pub fn check(&self, files: &[PolicyFile]) -> Result<(), PolicyErrors> {
        let mut errors = Vec::new();
        // Each file for itself: two of them may have one name without their folders.
        for file in files {
            let problem = match self.files.get(file.base_name()) {
                Some(sealed) if *sealed == hash(file) => continue,
                Some(_) => PolicyProblem::SealBroken,
                None => PolicyProblem::SealLacks,
            };
            errors.push(PolicyError::new(&file.name, 1, problem));
        }
        let found: BTreeSet<_> = files.iter().map(PolicyFile::base_name).collect();
        let missing = self.files.keys().filter(|name| !found.contains(name.as_str()));
        errors.extend(missing.map(|name| PolicyError::new(name, 1, PolicyProblem::SealedFileMissing)));
        if errors.is_empty() {
            Ok(())
        } else {
            errors.sort_by(|one, other| one.file.cmp(&other.file));
            Err(PolicyErrors(errors))
        }
    }

    /// What is wrong where a seal is demanded and there is none.
    #[must_use]
    pub fn missing() -> PolicyErrors {
        PolicyErrors(vec![PolicyError::new(
            Self::FILE_NAME,
            1,
            PolicyProblem::Unsealed,
        )])
    }
}

fn hash(file: &PolicyFile) -> String {
    Hash::of(file.text.as_bytes()).to_string()
}

impl std::str::FromStr for Seal {
    type Err = PolicyErrors;

    fn from_str(text: &str) -> Result<Self, PolicyErrors> {
        let refuse = |line, why: String| {
            let problem = PolicyProblem::SealUnreadable(why);
            PolicyErrors(vec![PolicyError::new(Self::FILE_NAME, line, problem)])
        };
        let seal: Self =
            serde_json::from_str(text).map_err(|error| refuse(error.line().max(1), error.to_string()))?;
        if seal.version != Self::VERSION {
            return Err(refuse(
                1,
                format!("its version is {}, not {}", seal.version, Self::VERSION),
            ));
        }
        Ok(seal)
    }
}

impl fmt::Display for Seal {
    /// As it is committed: JSON, one file a line, in order of name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?;
        writeln!(f, "{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> PolicyFile {
        PolicyFile {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    #[track_caller]
    fn check(files: &[PolicyFile], expected: &[&str]) {
        let seal = Seal::of(&[
            file("policies/a.rules", "deny mcp.*"),
            file("policies/b.cedar", "// b"),
        ])
        .unwrap();
        let told = match seal.check(files) {
            Ok(()) => Vec::new(),
            Err(errors) => errors
                .0
                .iter()
                .map(|error| format!("{}: {}", error.file, error.problem))
                .collect(),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn each_difference_is_named() {
        let (a, b) = (file("a.rules", "deny mcp.*"), file("elsewhere/b.cedar", "// b"));
        check(&[b.clone(), a.clone()], &[]);
        check(
            std::slice::from_ref(&a),
            &["b.cedar: this file was sealed and is not there"],
        );
        check(
            &[file("a.rules", "deny mcp.* "), b.clone(), file("c.rules", "")],
            &[
                "a.rules: this file is not the one that was sealed",
                "c.rules: this file is not in the seal",
            ],
        );
        // A name of one system is a path of the other, and folders may be given together.
        for other in ["A\\a.rules", "elsewhere/a.rules"] {
            let planted = file(other, "allow mcp.*");
            let told = format!("{other}: this file is not the one that was sealed");
            check(&[planted.clone(), a.clone(), b.clone()], &[&told]);
            check(&[a.clone(), b.clone(), planted], &[&told]);
        }
    }

    #[test]
    fn files_of_one_name_are_not_sealed() {
        let (plain, other) = (file("t.rules", "deny mcp.*"), file("A\\t.rules", "deny mcp.*"));
        let told = Seal::of(&[other.clone(), file("b.rules", ""), plain.clone()]).unwrap_err();
        assert_eq!(
            told.to_string(),
            "t.rules:1: a seal cannot tell this file from `A\\t.rules`: their names differ in the folder alone\n  \
             help: rename one of them"
        );
        Seal::of(&[plain]).unwrap().check(&[other]).unwrap();
    }

    #[test]
    fn what_is_no_seal_is_refused_with_its_line() {
        for (text, told) in [
            ("", "policies.seal:1: the seal cannot be read"),
            (
                "{\n\"version\": 1\n}",
                "policies.seal:3: the seal cannot be read: missing field",
            ),
            (r#"{"version": 2, "files": {}}"#, "its version is 2, not 1"),
            (r#"{"version": 1, "files": {}, "more": 1}"#, "unknown field"),
        ] {
            let errors = text.parse::<Seal>().unwrap_err().to_string();
            assert!(errors.contains(told), "{errors}");
        }
    }
}
