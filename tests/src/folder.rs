use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A folder for one test; it goes with it.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    #[expect(
        clippy::new_without_default,
        reason = "it makes a folder, which is more than a value"
    )]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// The path of `name` in here, whether it is there or not.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file, and the folders above it.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap();
        }
        fs::write(&path, text).unwrap();
        path
    }

    /// A folder of policies with this one file of rules.
    pub fn rules(&self, rules: &str) -> PathBuf {
        self.write("policies/test.rules", rules);
        self.path("policies")
    }
}
