//! Where the checkout is and which files and packages are in it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::Run;

/// The folder that holds the workspace's `Cargo.toml`.
#[derive(Debug, Clone)]
pub(crate) struct Root(PathBuf);

/// A member of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder, from the root, with `/` between names.
    pub(crate) folder: String,
}

impl Root {
    /// The checkout that this program belongs to. `cargo run` and `cargo test` tell where that is; where it was built
    /// counts only for whoever starts it by itself, since a checkout can be moved with all that was built in it.
    #[expect(
        clippy::disallowed_methods,
        reason = "chores have no other edge; tests ask for it too"
    )]
    pub(crate) fn of_this_checkout() -> Result<Self> {
        let here = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = here
            .parent()
            .with_context(|| format!("`{}` has no parent folder", here.display()))?;
        Ok(Self(root.to_path_buf()))
    }

    /// Some other workspace: the tests plant small ones.
    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_path_buf())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// How a path of the checkout is shown: from the root, with `/` between names.
    pub(crate) fn show(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.0).unwrap_or(path);
        relative.to_string_lossy().replace('\\', "/")
    }

    /// Each file that is ours, in a stable order: not what was built, installed or belongs to git. It does not ask
    /// git, which a machine that only builds may lack.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            let entries =
                fs::read_dir(&folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
            for entry in entries {
                let entry = entry.with_context(|| format!("cannot list `{}`", folder.display()))?;
                let path = entry.path();
                let kind = entry
                    .file_type()
                    .with_context(|| format!("cannot look at `{}`", path.display()))?;
                if self.is_foreign(&path) {
                    continue;
                }
                // A link to a file is read like the file, so that it hides nothing; a link to a folder could lead in
                // circles or out of the checkout.
                if kind.is_symlink() && path.is_dir() {
                    bail!(
                        "`{}` is a link to a folder: put the folder itself there",
                        self.show(&path)
                    );
                }
                if kind.is_dir() {
                    folders.push(path);
                } else if path.is_file() {
                    files.push(path);
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// Each Rust file that is ours.
    pub(crate) fn rust_files(&self) -> Result<Vec<PathBuf>> {
        let mut files = self.files()?;
        files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
        Ok(files)
    }

    /// The members of the workspace, as cargo sees them.
    pub(crate) fn packages(&self) -> Result<Vec<Package>> {
        let run = Run::cargo(
            self,
            &["--quiet", "metadata", "--format-version", "1", "--no-deps"],
        );
        let metadata: Value =
            serde_json::from_str(&run.capture()?).context("cannot read what `cargo metadata` says")?;
        let packages = metadata
            .get("packages")
            .and_then(Value::as_array)
            .context("`cargo metadata` lists no packages")?;
        packages.iter().map(|package| self.package(package)).collect()
    }

    fn package(&self, package: &Value) -> Result<Package> {
        let text = |key: &str| package.get(key).and_then(Value::as_str);
        let name = text("name").context("`cargo metadata` lists a package without a name")?;
        let manifest = text("manifest_path").with_context(|| format!("package `{name}` has no manifest"))?;
        // Cargo resolves links on the way to a manifest, so the root is resolved before the two are compared.
        let root = self
            .0
            .canonicalize()
            .with_context(|| format!("cannot find `{}`", self.0.display()))?;
        let folder = Path::new(manifest).parent().context("a manifest has no folder")?;
        let folder = folder.strip_prefix(&root).unwrap_or(folder);
        Ok(Package {
            name: name.to_owned(),
            folder: folder.to_string_lossy().replace('\\', "/"),
        })
    }

    /// Folders that hold nothing of ours. A folder that cargo builds into marks itself with `CACHEDIR.TAG`.
    fn is_foreign(&self, folder: &Path) -> bool {
        let name = folder.file_name().unwrap_or_default();
        name == ".git"
            || name == "node_modules"
            || *folder == self.join("target")
            || *folder == self.join("bench/target")
            || *folder == self.join("fuzz/target")
            || *folder == self.join("fuzz/artifacts")
            || folder.join("CACHEDIR.TAG").exists()
    }
}
