//! Small trees of files for the tests: each plants what a chore must find.

#![expect(
    clippy::disallowed_methods,
    reason = "tests write into temporary folders of their own"
)]

use crate::workspace::Root;

/// A temporary folder, gone when the value is dropped.
pub(crate) struct Planted {
    folder: tempfile::TempDir,
}

impl Planted {
    /// Writes each text at its path from the root.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn root(&self) -> Root {
        Root::at(self.folder.path())
    }
}
