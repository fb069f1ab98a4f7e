//! A folder held open: everything in it is reached by one plain name, and no link is ever followed.

use std::{fs::File, os::fd::OwnedFd, path::Path, time::Duration};

use rustix::{
    fs::{
        AtFlags, FlockOperation, Mode, OFlags, RenameFlags, Stat, StatVfsMountFlags, Timespec, Timestamps,
        UTIME_NOW, UTIME_OMIT,
    },
    io::{Errno, Result},
};

#[cfg(target_os = "linux")]
use super::file_system;
use super::steps::{Step, happened, inode};

/// An open folder. Names given to its methods are single names, never paths, but where it says so.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// How a folder is locked. Locks are advisory, for all processes, and end with the [`Folder`] that took them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Beside others that share it.
    Shared,
    /// Alone.
    Exclusive,
}

/// How often a lock that another holds is asked for, as a rule: half a minute, by the longest pause between.
pub(crate) const LOCK_TRIES: u32 = 1_000;
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

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

    /// Creates `path` and what is missing above it, each for this user alone and with its name on the disk.
    pub(crate) fn create_all(path: &Path) -> Result<()> {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            // A name alone lies where the program runs.
            Some(_) => Path::new("."),
            None => return Ok(()),
        };
        match create_private(path) {
            Err(Errno::NOENT) if parent.as_os_str() != "." => {
                Self::create_all(parent)?;
                create_private(path)
            }
            other => other,
        }
        .or_else(|errno| if errno == Errno::EXIST { Ok(()) } else { Err(errno) })?;
        Self::open(parent)?.sync()
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

    /// What this folder is.
    pub(crate) fn own_stat(&self) -> Result<Stat> {
        rustix::fs::fstat(&self.0)
    }

    /// Whether it lies where nobody can write.
    pub(crate) fn is_read_only(&self) -> Result<bool> {
        let file_system = rustix::fs::fstatvfs(&self.0)?;
        Ok(file_system.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Makes this folder one that only its owner can look into.
    pub(crate) fn make_private(&self) -> Result<()> {
        let mode = Mode::from_raw_mode(self.own_stat()?.st_mode);
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
        let file = self.open_file(name, OFlags::RDONLY)?;
        let stat = rustix::fs::fstat(&file)?;
        Ok((file, stat))
    }

    /// The file that the names in `path` lead to, to read, and what it is: where all of them are in memory, so that nothing
    /// is waited for, no link is among them, and all lie on one file system. An error in any other case, and where the file
    /// belongs to another user. Reading does not change when it was last read: to write that down can take long.
    #[cfg(target_os = "linux")]
    pub(crate) fn file_at_hand(&self, path: &str) -> Result<(File, Stat)> {
        use rustix::fs::ResolveFlags;

        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOATIME;
        let resolve =
            ResolveFlags::CACHED | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let file = rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve)?;
        let stat = rustix::fs::fstat(&file)?;
        Ok((File::from(file), stat))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn file_at_hand(&self, _path: &str) -> Result<(File, Stat)> {
        Err(Errno::NOSYS)
    }

    /// The file `name`, to be locked alone: NFS grants that only where it is open for writing. `LOOP` when it is a link.
    pub(crate) fn file_to_lock(&self, name: &str) -> Result<File> {
        self.open_file(name, OFlags::RDWR)
    }

    fn open_file(&self, name: &str, access: OFlags) -> Result<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(File::from)
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
        happened(|| Step::Named);
        match rustix::fs::renameat_with(&self.0, name, &to.0, to_name, RenameFlags::NOREPLACE) {
            // This file system cannot rename without replacing. A hard link replaces nothing either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.link_new(name, to, to_name),
            other => other,
        }
    }

    fn link_new(&self, name: &str, to: &Self, to_name: &str) -> Result<()> {
        rustix::fs::linkat(&self.0, name, &to.0, to_name, AtFlags::empty())?;
        self.remove(name)
    }

    /// Moves `name` to `to_name` in `to`, in the place of what was there.
    pub(crate) fn rename_over(&self, name: &str, to: &Self, to_name: &str) -> Result<()> {
        happened(|| Step::Named);
        rustix::fs::renameat(&self.0, name, &to.0, to_name)
    }

    /// Locks this folder, asking so many times where others have it. `WOULDBLOCK` when it is still taken then;
    /// `OPNOTSUPP` where there are no locks, or, of those that are taken alone, where another machine does not heed them.
    ///
    /// The operating system's own waiting has no deadline, hence the asking again.
    pub(crate) fn lock(&self, lock: Lock, tries: u32) -> Result<()> {
        self.lock_where(lock, tries, Self::is_of_several_machines)
    }

    fn lock_where(
        &self,
        lock: Lock,
        tries: u32,
        is_of_several_machines: impl FnOnce(&Self) -> bool,
    ) -> Result<()> {
        let operation = match lock {
            Lock::Shared => FlockOperation::NonBlockingLockShared,
            Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        if lock == Lock::Exclusive && is_of_several_machines(self) {
            return Err(Errno::OPNOTSUPP);
        }
        for attempt in 0..tries {
            match rustix::fs::flock(&self.0, operation) {
                Err(Errno::WOULDBLOCK) => {
                    let pause = Duration::from_micros(50 << attempt.min(10));
                    std::thread::park_timeout(pause.min(LONGEST_PAUSE));
                }
                Err(Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::NOLCK | Errno::INVAL | Errno::OPNOTSUPP) => {
                    return Err(Errno::OPNOTSUPP);
                }
                other => return other,
            }
        }
        Err(Errno::WOULDBLOCK)
    }

    /// Whether other machines may have this folder, too, and know nothing of its locks; also where it cannot be told.
    fn is_of_several_machines(&self) -> bool {
        #[cfg(target_os = "linux")]
        return rustix::fs::fstatfs(&self.0).map_or(true, |found| file_system::has_local_locks(found.f_type));
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Whether it lies on a file system that asks nobody else, and tells what of a file is in memory.
    pub(crate) fn tells_what_is_at_hand(&self) -> bool {
        #[cfg(target_os = "linux")]
        return rustix::fs::fstatfs(&self.0).is_ok_and(|found| file_system::has_nowait(found.f_type));
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Gives the lock back before the folder is closed.
    pub(crate) fn unlock(&self) {
        // Where this fails, closing the folder does it.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }

    /// Sets the time at which the file `name` was written to now; a link is not followed.
    pub(crate) fn touch(&self, name: &str) -> Result<()> {
        let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let times = Timestamps {
            last_access: at(UTIME_OMIT),
            last_modification: at(UTIME_NOW),
        };
        rustix::fs::utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Waits until what was written to `file` is on the disk.
    pub(crate) fn sync_file(file: &File) -> std::io::Result<()> {
        happened(|| Step::FileSynced(inode(file)));
        file.sync_data()
    }

    /// Waits until all of the file system that holds this folder is on the disk.
    pub(crate) fn sync_file_system(&self) -> Result<()> {
        happened(|| Step::FileSystemSynced);
        #[cfg(target_os = "linux")]
        return rustix::fs::syncfs(&self.0);
        #[cfg(not(target_os = "linux"))]
        {
            rustix::fs::sync();
            Ok(())
        }
    }

    /// Removes the file or link `name`.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.0, name, AtFlags::empty())
    }

    /// Waits until the names in this folder are on the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        happened(|| Step::FolderSynced(inode(&self.0)));
        rustix::fs::fsync(&self.0)
    }

    /// Waits until the name of this folder itself is on the disk, where the folder above may be opened. One on which a file
    /// system is mounted has no name in this one.
    pub(crate) fn sync_name(&self) -> Result<()> {
        let Ok(above) = self.child("..") else {
            return Ok(());
        };
        if above.own_stat()?.st_dev == self.own_stat()?.st_dev {
            above.sync()
        } else {
            Ok(())
        }
    }

    /// The names in this folder, in no order. One that is not UTF-8, as all of ours are, is there too, altered so
    /// that it is none of ours.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            match &*entry?.file_name().to_string_lossy() {
                "." | ".." => {}
                name => names.push(name.to_owned()),
            }
        }
        Ok(names)
    }
}

fn create_private(path: &Path) -> Result<()> {
    rustix::fs::mkdir(path, FOLDER_MODE)?;
    // The umask may have taken even the owner's bits.
    rustix::fs::chmod(path, FOLDER_MODE)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn read(folder: &Folder, name: &str) -> String {
        let mut text = String::new();
        folder.file(name).unwrap().0.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn no_lock_is_taken_alone_where_other_machines_do_not_heed_it() {
        let parent = tempfile::tempdir().unwrap();
        let check = |lock, is_of_several, expected| {
            let folder = Folder::open(parent.path()).unwrap();
            assert_eq!(
                folder.lock_where(lock, 1, |_| is_of_several),
                expected,
                "{lock:?}"
            );
        };
        check(Lock::Exclusive, true, Err(Errno::OPNOTSUPP));
        check(Lock::Exclusive, false, Ok(()));
        // Writers need none where nothing is collected.
        check(Lock::Shared, true, Ok(()));
    }

    /// NFS locks nothing alone that is not.
    #[test]
    fn a_file_to_be_locked_is_open_for_writing_and_no_link_is_followed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path()).unwrap();
        folder.new_file("file").unwrap();
        folder.file_to_lock("file").unwrap().write_all(b"x").unwrap();
        assert_eq!(read(&folder, "file"), "x");
        rustix::fs::symlinkat("file", &folder.0, "link").unwrap();
        assert_eq!(folder.file_to_lock("link").unwrap_err(), Errno::LOOP);
    }

    #[test]
    fn what_has_a_name_keeps_it() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path()).unwrap();
        for name in ["old", "new"] {
            folder.new_file(name).unwrap().write_all(name.as_bytes()).unwrap();
        }
        assert_eq!(folder.new_file("old").unwrap_err(), Errno::EXIST);
        // Where the file system cannot rename without replacing, too.
        for rename in [Folder::rename_new, Folder::link_new] {
            assert_eq!(rename(&folder, "new", &folder, "old"), Err(Errno::EXIST));
            assert_eq!((&*read(&folder, "old"), &*read(&folder, "new")), ("old", "new"));
            rename(&folder, "new", &folder, "free").unwrap();
            assert_eq!(read(&folder, "free"), "new");
            assert!(folder.stat("new").unwrap().is_none());
            rename(&folder, "free", &folder, "new").unwrap();
        }
        assert_eq!(folder.names().unwrap().len(), 2);
    }
}
