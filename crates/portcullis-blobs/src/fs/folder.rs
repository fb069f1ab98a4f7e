//! A folder held open: everything in it is reached by one plain name, and no link is ever followed.

use std::{fs::File, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat},
    io::{Errno, Result},
};

/// An open folder. Names given to its methods are single names, never paths.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

const FOLDER_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Folder {
    /// Opens `path`, following links: it is the caller's word.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(Self)
    }

    /// Creates `path` and what is missing above it, each for this user alone.
    pub(crate) fn create_all(path: &Path) -> Result<()> {
        match create_private(path) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(Errno::NOENT) => {
                let parent = path
                    .parent()
                    .filter(|parent| !parent.as_os_str().is_empty())
                    .ok_or(Errno::NOENT)?;
                Self::create_all(parent)?;
                match create_private(path) {
                    Err(Errno::EXIST) => Ok(()),
                    other => other,
                }
            }
            Err(other) => Err(other),
        }
    }

    /// The folder `name` in this one. `NOTDIR` or `LOOP` when it is a link or a file.
    pub(crate) fn child(&self, name: &str) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(Self)
    }

    /// The folder `name` in this one, created for this user alone where it is missing.
    pub(crate) fn child_or_new(&self, name: &str) -> Result<Self> {
        match self.child(name) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        match rustix::fs::mkdirat(&self.0, name, FOLDER_MODE) {
            // The umask may have taken even the owner's bits.
            Ok(()) => rustix::fs::chmodat(&self.0, name, FOLDER_MODE, AtFlags::empty())?,
            Err(Errno::EXIST) => {}
            Err(other) => return Err(other),
        }
        self.child(name)
    }

    /// Makes this folder one that only its owner can look into.
    pub(crate) fn make_private(&self) -> Result<()> {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&self.0)?.st_mode);
        if mode.intersects(Mode::RWXG | Mode::RWXO) {
            rustix::fs::fchmod(&self.0, FOLDER_MODE)
        } else {
            Ok(())
        }
    }

    /// A new file `name`, 0600 whatever the umask. `EXIST` when anything has that name, a link included.
    pub(crate) fn new_file(&self, name: &str) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, FILE_MODE)?;
        rustix::fs::fchmod(&file, FILE_MODE)?;
        Ok(File::from(file))
    }

    /// The file `name`, to read, and what it is. `LOOP` when it is a link. Never waits for the other end of a
    /// pipe.
    pub(crate) fn file(&self, name: &str) -> Result<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        Ok((File::from(file), stat))
    }

    /// What `name` is, a link not followed; `None` where there is nothing.
    pub(crate) fn stat(&self, name: &str) -> Result<Option<Stat>> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Moves `name` to `to_name` in `to`, replacing nothing: `EXIST` when that name is taken.
    pub(crate) fn rename_new(&self, name: &str, to: &Self, to_name: &str) -> Result<()> {
        match rustix::fs::renameat_with(&self.0, name, &to.0, to_name, RenameFlags::NOREPLACE) {
            // This file system cannot rename without replacing. A hard link replaces nothing either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(&self.0, name, &to.0, to_name, AtFlags::empty())?;
                self.remove(name)
            }
            other => other,
        }
    }

    /// Removes the file or link `name`.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.0, name, AtFlags::empty())
    }

    /// Waits until the names in this folder are on the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.0)
    }

    /// The names in this folder that are UTF-8, as all of ours are, in no order.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            match entry?.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        Ok(names)
    }
}

/// Whether this is a plain file.
pub(crate) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The size in bytes.
pub(crate) fn size_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Whether only this user can have written it: ours, and nobody else has a right to it.
pub(crate) fn is_private(stat: &Stat) -> bool {
    let mode = Mode::from_raw_mode(stat.st_mode);
    stat.st_uid == rustix::process::geteuid().as_raw() && !mode.intersects(Mode::RWXG | Mode::RWXO)
}

fn create_private(path: &Path) -> Result<()> {
    rustix::fs::mkdir(path, FOLDER_MODE)?;
    // The umask may have taken even the owner's bits.
    rustix::fs::chmod(path, FOLDER_MODE)
}
