//! Files that are being written and have no name of their own yet.

use std::{fs::File, sync::Arc};

use rustix::{
    fs::FlockOperation,
    io::{Errno, Result},
};

use super::{
    folder::Folder,
    steps::{Step::Created, happened},
};

/// How many random names are tried; only a cleaner in the very moment makes a second one necessary.
const ATTEMPTS: usize = 16;
/// How long a random name is.
const NAME_DIGITS: usize = 32;

/// A file under a random name. Removed when dropped, unless it was published.
#[derive(Debug)]
pub(crate) struct TempFile {
    folder: Arc<Folder>,
    name: String,
    file: File,
    published: bool,
}

impl TempFile {
    /// A new empty file in `folder`, locked so that [`clean`] leaves it alone for as long as it is open.
    pub(crate) fn create(folder: Arc<Folder>) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let name = random_name()?;
            let file = match folder.new_file(&name) {
                Err(Errno::EXIST) => continue,
                other => other?,
            };
            happened(|| Created);
            // A cleaner may have come between: then it holds the lock, or has removed the name already.
            // Where there are no locks, cleaners cannot take one either, and leave the file alone.
            let locked =
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK);
            let named = rustix::fs::fstat(&file)?.st_nlink > 0;
            if locked && named {
                return Ok(Self {
                    folder,
                    name,
                    file,
                    published: false,
                });
            }
        }
        Err(Errno::AGAIN)
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    pub(crate) fn opened(&self) -> &File {
        &self.file
    }

    /// Lets the file system find room for so many bytes at once. Only that there is none is an error: one that cannot
    /// do this finds room as it goes. The file's length does not change: it comes with what is written, so that after a
    /// power cut no file is as long as its content and holds zeros.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<()> {
        #[cfg(target_os = "linux")]
        let allocated = {
            let mode = rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&self.file, mode, 0, bytes)
        };
        #[cfg(not(target_os = "linux"))]
        let allocated = {
            let _ = bytes;
            Ok(())
        };
        match allocated {
            Err(full @ (Errno::NOSPC | Errno::DQUOT)) => Err(full),
            _ => Ok(()),
        }
    }

    /// Gives the file its name in `to`, replacing nothing: `EXIST` when the name is taken.
    pub(crate) fn publish(&mut self, to: &Folder, name: &str) -> Result<()> {
        self.folder.rename_new(&self.name, to, name)?;
        self.published = true;
        Ok(())
    }

    /// Gives the file its name in `to`, in the place of what had it.
    pub(crate) fn replace(&mut self, to: &Folder, name: &str) -> Result<()> {
        self.folder.rename_over(&self.name, to, name)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.published {
            // Where this fails too, the next opening of the store tries again.
            let _ = self.folder.remove(&self.name);
        }
    }
}

/// Removes the files whose writers are gone. A writer's lock ends with its process, so this needs no clock. What has no
/// name that we give is somebody else's and stays.
pub(crate) fn clean(folder: &Folder) -> Result<()> {
    for name in folder.names()?.into_iter().filter(|name| is_name(name)) {
        match folder.file_to_lock(&name) {
            // The lock is kept until the name is gone: a writer that created the file just now either finds it
            // taken, or finds its file without a name.
            Ok(file) => {
                if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    let _ = folder.remove(&name);
                }
            }
            // A link is none of ours: the link goes, never what it points to.
            Err(Errno::LOOP) => {
                let _ = folder.remove(&name);
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Whether it is a name that we give.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() == NAME_DIGITS
        && name
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// 128 random bits as hexadecimal digits.
pub(crate) fn random_name() -> Result<String> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|_| Errno::IO)?;
    Ok(format!("{:0NAME_DIGITS$x}", u128::from_ne_bytes(bits)))
}
