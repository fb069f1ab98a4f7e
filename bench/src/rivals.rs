//! What the store is compared with.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement reads the clock, writes plain files and starts git to compare with"
)]

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use cacache::{Algorithm, Integrity};
use portcullis_blobs::Bytes;
use tokio::task::spawn_blocking;

use crate::Result;

/// Times how long `content` takes into a new file, and removes that again. On the same kind of thread as the store's own
/// work: under load, one that has just worked hard waits longer.
pub(crate) async fn plain_write(folder: &Path, content: &Bytes, sync: bool) -> Result<Duration> {
    let (path, content) = (folder.join("plain-write"), content.clone());
    let written = spawn_blocking(move || {
        let begun = Instant::now();
        let mut file = File::create_new(&path)?;
        file.write_all(&content)?;
        if sync {
            file.sync_data()?;
        }
        drop(file);
        let took = begun.elapsed();
        fs::remove_file(&path)?;
        Ok::<_, std::io::Error>(took)
    });
    Ok(written.await??)
}

/// The cache of that name, by its blocking functions and without its index of keys.
pub(crate) struct Cacache {
    folder: PathBuf,
    algorithm: Algorithm,
}

impl Cacache {
    /// With its default algorithm.
    pub(crate) fn sha256(parent: &Path) -> Self {
        Self {
            folder: parent.join("cacache-sha256"),
            algorithm: Algorithm::Sha256,
        }
    }

    /// With its quickest.
    pub(crate) fn xxh3(parent: &Path) -> Self {
        Self {
            folder: parent.join("cacache-xxh3"),
            algorithm: Algorithm::Xxh3,
        }
    }

    pub(crate) fn put(&self, content: &[u8]) -> Result<Integrity> {
        let algorithm = self.algorithm;
        Ok(cacache::write_hash_sync_with_algo(
            algorithm,
            &self.folder,
            content,
        )?)
    }

    /// Times it, and removes it again.
    pub(crate) async fn write(&self, content: &Bytes) -> Result<Duration> {
        let (algorithm, folder, content) = (self.algorithm, self.folder.clone(), content.clone());
        let written = spawn_blocking(move || {
            let begun = Instant::now();
            let entry = cacache::write_hash_sync_with_algo(algorithm, &folder, content)?;
            let took = begun.elapsed();
            cacache::remove_hash_sync(&folder, &entry)?;
            Ok::<_, cacache::Error>(took)
        });
        Ok(written.await??)
    }

    pub(crate) async fn read(&self, entry: &Integrity) -> Result<Vec<u8>> {
        let (folder, entry) = (self.folder.clone(), entry.clone());
        Ok(spawn_blocking(move || cacache::read_hash_sync(folder, &entry)).await??)
    }
}

/// A repository, where git is installed.
pub(crate) struct Git(PathBuf);

impl Git {
    pub(crate) fn new(parent: &Path) -> Option<Self> {
        let repository = parent.join("git");
        let made = Command::new("git").args(["init", "-q"]).arg(&repository).status();
        made.is_ok_and(|done| done.success()).then_some(Self(repository))
    }

    /// Times it, and removes it again.
    pub(crate) fn write(&self, content: &[u8]) -> Result<Duration> {
        let begun = Instant::now();
        let mut git = Command::new("git")
            .arg("-C")
            .arg(&self.0)
            .args(["hash-object", "-w", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = git.stdin.take() {
            input.write_all(content)?;
        }
        let done = git.wait_with_output()?;
        let took = begun.elapsed();
        let name = String::from_utf8(done.stdout)?;
        match name.trim().split_at_checked(2) {
            Some((folder, file)) if done.status.success() => {
                fs::remove_file(self.0.join(".git/objects").join(folder).join(file))?;
                Ok(took)
            }
            _ => Err("git hash-object failed".into()),
        }
    }
}
