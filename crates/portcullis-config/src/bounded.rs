//! What a document makes the normaliser ask of the outside, held within bounds.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret, SecretString};

use crate::{Environment, Sources};

/// Most bytes of files' texts that the references of one call come to, each counted as often as it is referred to.
const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;
/// Most entries of the keyring that one call asks for: each is a question to another process.
const MAX_KEYRING_ENTRIES: usize = 1_024;
/// Most programs whose state is remembered.
const MAX_PROGRAMS: usize = 10_000;

/// Asks an environment each question once. A document names the same file or program as often as it likes, and a
/// short one could make the reading of a long file the work of hours.
pub(crate) struct Bounded<'a> {
    inner: &'a dyn Environment,
    files: RefCell<HashMap<String, Option<SecretString>>>,
    file_bytes: Cell<usize>,
    keyring: RefCell<HashMap<(String, String), Option<SecretString>>>,
    programs: RefCell<HashMap<PathBuf, bool>>,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(inner: &'a dyn Environment) -> Self {
        Self {
            inner,
            files: RefCell::default(),
            file_bytes: Cell::new(0),
            keyring: RefCell::default(),
            programs: RefCell::default(),
        }
    }
}

impl Sources for Bounded<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.inner.variable(name)
    }

    fn file(&self, path: &str) -> Option<String> {
        let mut files = self.files.borrow_mut();
        let text = match files.get(path) {
            Some(text) => text,
            None => {
                let text = self.inner.file(path).map(SecretString::from);
                files.entry(path.to_owned()).or_insert(text)
            }
        };
        let text = text.as_ref()?.expose_secret();
        let bytes = self.file_bytes.get().saturating_add(text.len());
        self.file_bytes.set(bytes);
        (bytes <= MAX_FILE_BYTES).then(|| text.to_owned())
    }

    fn keyring(&self, service: &str, account: &str) -> Option<SecretString> {
        let mut known = self.keyring.borrow_mut();
        let entry = (service.to_owned(), account.to_owned());
        if let Some(secret) = known.get(&entry) {
            return secret.clone();
        }
        if known.len() >= MAX_KEYRING_ENTRIES {
            return None;
        }
        let secret = self.inner.keyring(service, account);
        known.insert(entry, secret.clone());
        secret
    }

    fn has_keyring(&self) -> bool {
        self.inner.has_keyring()
    }
}

impl Environment for Bounded<'_> {
    fn is_executable(&self, path: &Path) -> bool {
        let mut known = self.programs.borrow_mut();
        if let Some(is) = known.get(path) {
            return *is;
        }
        let is = self.inner.is_executable(path);
        if known.len() < MAX_PROGRAMS {
            known.insert(path.to_owned(), is);
        }
        is
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what it is asked.
    #[derive(Default)]
    struct Counting(Cell<usize>);

    impl Counting {
        fn count(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    impl Sources for Counting {
        fn variable(&self, _name: &str) -> Option<String> {
            None
        }

        fn file(&self, path: &str) -> Option<String> {
            self.count();
            (path == "/large").then(|| "x".repeat(MAX_FILE_BYTES / 4))
        }

        fn keyring(&self, _service: &str, account: &str) -> Option<SecretString> {
            self.count();
            Some(SecretString::from(account))
        }
    }

    impl Environment for Counting {
        fn is_executable(&self, _path: &Path) -> bool {
            self.count();
            true
        }
    }

    #[test]
    fn each_question_is_asked_once() {
        let counting = Counting::default();
        let bounded = Bounded::new(&counting);
        for _ in 0..3 {
            assert_eq!(bounded.file("/gone"), None);
            assert_eq!(bounded.keyring("a", "b").unwrap().expose_secret(), "b");
            assert!(bounded.is_executable(Path::new("/bin/x")));
        }
        assert_eq!(counting.0.get(), 3);
    }

    #[test]
    fn files_and_the_keyring_give_so_much_and_no_more() {
        let counting = Counting::default();
        let bounded = Bounded::new(&counting);
        let read = (0..6)
            .map(|_| bounded.file("/large").is_some())
            .collect::<Vec<_>>();
        assert_eq!(read, [true, true, true, true, false, false]);
        assert_eq!(counting.0.get(), 1);
        let entries = 0..MAX_KEYRING_ENTRIES + 10;
        let found = entries.filter(|entry| bounded.keyring("a", &entry.to_string()).is_some());
        assert_eq!(found.count(), MAX_KEYRING_ENTRIES);
    }
}
