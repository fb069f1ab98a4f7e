//! What the program shows of this machine: its variables and files, and the keyring where it was built with one.

use std::path::Path;

use portcullis::config::{Environment, HostEnvironment, SecretString, Sources};

#[cfg(feature = "keyring")]
mod keyring;

/// This process's variables, as they were when the program started, and the files of this machine.
pub(crate) struct Host(HostEnvironment);

impl Host {
    pub(crate) fn capture() -> Self {
        Self(HostEnvironment::capture())
    }
}

impl Sources for Host {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.variable(name)
    }

    fn file(&self, path: &str) -> Option<String> {
        self.0.file(path)
    }

    #[cfg(feature = "keyring")]
    fn keyring(&self, service: &str, account: &str) -> Option<SecretString> {
        keyring::secret(service, account)
    }

    #[cfg(not(feature = "keyring"))]
    fn keyring(&self, _service: &str, _account: &str) -> Option<SecretString> {
        None
    }

    fn has_keyring(&self) -> bool {
        cfg!(feature = "keyring")
    }
}

impl Environment for Host {
    fn is_executable(&self, path: &Path) -> bool {
        self.0.is_executable(path)
    }
}

#[cfg(test)]
mod tests {
    use portcullis::{
        Document,
        config::{Options, normalize},
    };

    use super::*;

    /// No machine that runs tests has this entry, and most have no keyring: either way it is a finding, within a
    /// deadline, and no panic.
    #[test]
    fn an_entry_that_cannot_be_had_is_said_so_and_why() {
        let text =
            r#"{"mcpServers":{"a":{"command":"/bin/sh","env":{"T":"${keyring:portcullis-test/nobody}"}}}}"#;
        let document = Document::new("a.json", text);
        let normalized = normalize(&[document], &Options::default(), &Host::capture());
        let [found] = normalized.diagnostics.as_slice() else {
            panic!("one finding: {:?}", normalized.diagnostics)
        };
        let said = match cfg!(feature = "keyring") {
            true => "which is not there, or cannot be read",
            false => "this program was built without a keyring",
        };
        assert!(
            found.message.contains("`portcullis-test/nobody`") && found.message.contains(said),
            "{found}"
        );
    }
}
