use std::{collections::BTreeMap, fmt, path::Path};

use crate::Sources;

/// All that normalising needs from outside, so that it stays a pure function of what the caller gives.
pub trait Environment: Sources {
    /// Whether `path`, always absolute, is a file that may be executed.
    fn is_executable(&self, path: &Path) -> bool;
}

/// An environment in which nothing is set, no file can be read and nothing can be executed.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEnvironment;

impl Sources for NoEnvironment {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn file(&self, _path: &str) -> Option<String> {
        None
    }
}

impl Environment for NoEnvironment {
    fn is_executable(&self, _path: &Path) -> bool {
        false
    }
}

/// This process's variables, as they were when it was captured, and the files of this machine.
#[derive(Clone)]
pub struct HostEnvironment {
    variables: BTreeMap<String, String>,
}

impl HostEnvironment {
    /// The longest file that `${file:…}` reads, in bytes. A secret is short; a longer file is none.
    pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

    /// Takes over the variables of this process. A variable that is not UTF-8 counts as unset.
    #[must_use]
    pub fn capture() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where the environment is read"
        )]
        let all = std::env::vars_os();
        Self::from_variables(
            all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// The files of this machine with these variables instead of the process's own.
    pub fn from_variables(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            variables: variables.into_iter().collect(),
        }
    }
}

impl Sources for HostEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn file(&self, path: &str) -> Option<String> {
        use std::io::Read;

        let path = Path::new(path);
        // Opening a pipe would wait for its writer, and a device may never end: plain files only.
        if !path.is_absolute() || !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut text = String::new();
        let mut file = std::fs::File::open(path).ok()?.take(Self::MAX_FILE_BYTES + 1);
        let length = file.read_to_string(&mut text).ok()?;
        (length as u64 <= Self::MAX_FILE_BYTES).then_some(text)
    }
}

impl Environment for HostEnvironment {
    fn is_executable(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && may_execute(&metadata))
    }
}

impl fmt::Debug for HostEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secrets.
        write!(f, "HostEnvironment({} variables)", self.variables.len())
    }
}

#[cfg(unix)]
fn may_execute(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;

    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn may_execute(_metadata: &std::fs::Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_folders_and_relative_paths_are_no_texts() {
        let host = HostEnvironment::from_variables([]);
        for path in ["/dev/zero", "/", "Cargo.toml", "/no/such/file"] {
            assert_eq!(host.file(path), None, "{path}");
        }
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(host.file(manifest).unwrap().contains("portcullis-config"));
        assert!(!host.is_executable(Path::new(manifest)));
        assert!(!host.is_executable(Path::new("/")));
    }

    #[test]
    fn a_file_that_is_too_long_for_a_secret_is_none() {
        let name = format!("portcullis-config-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        #[expect(clippy::disallowed_methods, reason = "a test makes the file that it reads")]
        let file = std::fs::File::create(&path).unwrap();
        let host = HostEnvironment::from_variables([]);
        let mut has_text = |length| {
            file.set_len(length).unwrap();
            host.file(path.to_str().unwrap()).is_some()
        };
        let read = [
            HostEnvironment::MAX_FILE_BYTES,
            HostEnvironment::MAX_FILE_BYTES + 1,
        ]
        .map(&mut has_text);
        #[expect(clippy::disallowed_methods, reason = "and takes it away")]
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, [true, false]);
    }

    #[test]
    fn debug_shows_no_value() {
        let host = HostEnvironment::from_variables([("TOKEN".to_owned(), "canary".to_owned())]);
        assert_eq!(host.variable("TOKEN").as_deref(), Some("canary"));
        assert!(!format!("{host:?}").contains("canary"));
    }
}
