//! What all work on the store's folder stands on: its folders, what they may hold, and when it is on the disk.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicBool},
};

use portcullis_types::BlobRef;
use rustix::{fs::Stat, io::Errno};
use tokio::time::Instant;

use super::{
    Durability, FsOptions,
    buffers::Buffers,
    commit::Committer,
    folder::{Folder, LOCK_TRIES, Lock},
    helper::Helpers,
    layout,
    reading::is_lost,
    recent::Recent,
    stat::{is_file, is_folder, is_private, size_bytes},
    temp::{self, TempFile, random_name},
};
use crate::{BlobError, usage::Usage};

/// The blocking half of the store.
#[derive(Debug)]
pub(crate) struct Shelf {
    path: PathBuf,
    pub(crate) root: Folder,
    pub(super) durability: Durability,
    pub(super) committer: Committer,
    /// How often a lock is asked for that another process holds.
    pub(crate) lock_tries: u32,
    pub(crate) usage: Arc<Usage>,
    /// Where files are written that have no name yet, while there are any: they share one descriptor.
    scratch: Mutex<Weak<Folder>>,
    /// Held by who counts what is stored.
    counting: Mutex<()>,
    pub(crate) tells_what_is_at_hand: bool,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) helpers: Helpers,
    pub(crate) recent: Recent,
    /// For each of the 256 folders, whether its own name is known to be on the disk.
    pub(super) synced: Vec<AtomicBool>,
    /// Whether the name of the folder that holds those is.
    pub(super) root_synced: AtomicBool,
}

/// What tells that a file is what its name says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Proof<'a> {
    /// That it is as long as its content, since this handle has written it, or read all of it. It counts for nothing where
    /// others can have written it since.
    Size,
    /// That it has this content, whose hash is its name.
    Content(&'a [u8]),
    /// Its hash.
    Hash,
}

impl Shelf {
    pub(crate) fn open_or_new(path: &Path, options: FsOptions) -> Result<Self, BlobError> {
        Self::on(layout::open_or_new(path)?, path, options)
    }

    pub(crate) fn open(path: &Path, options: FsOptions) -> Result<Self, BlobError> {
        let root = layout::open(path)?.ok_or_else(|| layout::none_at(path))?;
        Self::on(root, path, options)
    }

    fn on(root: Folder, path: &Path, options: FsOptions) -> Result<Self, BlobError> {
        let shelf = Self {
            path: path.to_owned(),
            tells_what_is_at_hand: root.tells_what_is_at_hand(),
            root,
            durability: options.durability,
            committer: Committer::default(),
            lock_tries: LOCK_TRIES,
            usage: Usage::new(options.limits),
            scratch: Mutex::default(),
            counting: Mutex::default(),
            buffers: Arc::default(),
            helpers: Helpers::at_most(options.helpers),
            recent: Recent::default(),
            synced: (0..=u8::MAX).map(|_| AtomicBool::new(false)).collect(),
            root_synced: AtomicBool::new(false),
        };
        if let Ok(scratch) = shelf.root.child(layout::TEMP) {
            layout::keep_others_out_of(&scratch, layout::TEMP, path)?;
            // Leftovers take room and do no other harm, and a store that can only be read is still of use.
            let _ = temp::clean(&scratch);
        }
        // Who only reads needs no count. Where there is none yet, nothing new is taken before there is.
        let _ = shelf.count();
        Ok(shelf)
    }

    pub(crate) fn place(&self) -> &Path {
        &self.path
    }

    pub(crate) fn size_bytes(&self, blob: BlobRef) -> Result<Option<u64>, BlobError> {
        let Some(folder) = self.folder(blob)? else {
            return Ok(None);
        };
        Ok(self.entry(&folder, blob)?.map(|entry| entry.size_bytes))
    }

    /// Whether `blob` is stored already in `folder`, told by its size where that is proof enough, else by its content where
    /// that is at hand, else by its hash. Whatever else has its name is moved aside.
    pub(crate) fn is_stored(
        &self,
        folder: &Folder,
        blob: BlobRef,
        size: u64,
        proof: Proof<'_>,
    ) -> Result<bool, BlobError> {
        let name = blob.0.to_string();
        let Some(stat) = folder.stat(&name).map_err(self.failed("look for a blob"))? else {
            return Ok(false);
        };
        if !is_file(&stat) || size_bytes(&stat) != size {
            self.set_aside(folder, &name, &stat)
                .map_err(self.failed("move a damaged blob aside"))?;
            return Ok(false);
        }
        match proof {
            Proof::Size if is_private(&stat) => return Ok(true),
            // A third of the work of hashing it. What differs is hashed as well, and moved aside.
            Proof::Content(content) if self.is_the_same(blob, content) => return Ok(true),
            _ => {}
        }
        // No byte of it is wanted, and it may be larger than memory.
        match self.get_range(blob, &(0..0)) {
            Ok(_) => Ok(true),
            Err(BlobError::Corrupt { .. } | BlobError::NotFound(_)) => Ok(false),
            // Left in its place it would keep the good content that is at hand from being put.
            Err(error) if is_lost(&error) => {
                self.set_aside(folder, &name, &stat)
                    .map_err(self.failed("move a damaged blob aside"))?;
                Ok(false)
            }
            Err(other) => Err(other),
        }
    }

    /// The folder of `blob`, `None` where it is missing. A link in its place is moved aside, not followed.
    pub(crate) fn folder(&self, blob: BlobRef) -> Result<Option<Folder>, BlobError> {
        self.shard(layout::BLOBS, &layout::fan_out(blob))
    }

    /// The folder `shard` in the store's folder `all`, `None` where either is missing.
    pub(crate) fn shard(&self, all: &str, shard: &str) -> Result<Option<Folder>, BlobError> {
        match self.own_folder(&self.root, all)? {
            Some(all) => self.own_folder(&all, shard),
            None => Ok(None),
        }
    }

    /// The folder `name` in `parent`, `None` where it is missing. A link or a file in its place is moved aside, and a folder
    /// that is not ours alone refused.
    pub(crate) fn own_folder(&self, parent: &Folder, name: &str) -> Result<Option<Folder>, BlobError> {
        let found = self.folder_in(parent, name)?;
        if let Some(folder) = &found {
            layout::keep_others_out_of(folder, name, &self.path)?;
        }
        Ok(found)
    }

    fn folder_in(&self, parent: &Folder, name: &str) -> Result<Option<Folder>, BlobError> {
        match parent.child(name) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let failed = self.failed("move aside what is not a folder");
                match parent.stat(name).map_err(&failed)? {
                    // Another process has mended it meanwhile.
                    Some(found) if is_folder(&found) => parent.child(name).map(Some).map_err(&failed),
                    Some(found) => {
                        self.set_aside(parent, name, &found).map_err(&failed)?;
                        Ok(None)
                    }
                    None => Ok(None),
                }
            }
            Err(other) => Err(self.failed("open a folder")(other)),
        }
    }

    /// A new file that has no name of its own yet.
    pub(crate) fn temp_file(&self) -> Result<TempFile, BlobError> {
        let created = match TempFile::create(self.scratch()?) {
            // Somebody has removed the folder that is held open.
            Err(Errno::NOENT) => {
                *self.shared_scratch() = Weak::new();
                TempFile::create(self.scratch()?)
            }
            other => other,
        };
        created.map_err(self.failed("create a file"))
    }

    fn scratch(&self) -> Result<Arc<Folder>, BlobError> {
        let mut shared = self.shared_scratch();
        if let Some(folder) = shared.upgrade() {
            return Ok(folder);
        }
        let folder = Arc::new(self.own_folder_or_new(&self.root, layout::TEMP)?);
        *shared = Arc::downgrade(&folder);
        Ok(folder)
    }

    fn shared_scratch(&self) -> MutexGuard<'_, Weak<Folder>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn own_folder_or_new(&self, parent: &Folder, name: &str) -> Result<Folder, BlobError> {
        match self.own_folder(parent, name)? {
            Some(folder) => Ok(folder),
            None => {
                let folder = parent
                    .child_or_new(name)
                    .map_err(self.failed("create a folder"))?;
                self.is_new(name);
                layout::keep_others_out_of(&folder, name, &self.path)?;
                Ok(folder)
            }
        }
    }

    /// Locks the folder of some blobs against its collector, or the collector against writers. Where the file
    /// system has no locks nothing is ever collected, so writers need none.
    pub(crate) fn lock(&self, folder: &Folder, lock: Lock) -> Result<(), BlobError> {
        self.locked(lock, folder.lock(lock, self.lock_tries))
    }

    /// What came of asking for a lock.
    pub(super) fn locked(&self, lock: Lock, asked: Result<(), Errno>) -> Result<(), BlobError> {
        let place = || self.path.display().to_string();
        match asked {
            Err(Errno::OPNOTSUPP) if lock == Lock::Shared => Ok(()),
            Err(Errno::OPNOTSUPP) => Err(BlobError::NoLocks { place: place() }),
            Err(Errno::WOULDBLOCK) => Err(BlobError::Busy { place: place() }),
            other => other.map_err(self.failed("lock a folder")),
        }
    }

    /// Moves what was found under the name of `blob` aside and says so.
    pub(crate) fn corrupt(&self, blob: BlobRef, folder: &Folder, found: &Stat, what: &str) -> BlobError {
        let why = match self.set_aside(folder, &blob.0.to_string(), found) {
            Ok(Some(aside)) => format!("{what}, and was moved to `{}`", self.path.join(aside).display()),
            Ok(None) => format!("{what}, and somebody else has moved it meanwhile"),
            Err(errno) => format!("{what}, and could not be moved aside ({errno})"),
        };
        BlobError::Corrupt { blob, why }
    }

    /// Moves `name`, which was `found` in `folder`, into the root, under a name that is never read. `None` where it is
    /// gone: another process has moved it, and may have put a good file or folder there that must stay.
    pub(crate) fn set_aside(
        &self,
        folder: &Folder,
        name: &str,
        found: &Stat,
    ) -> Result<Option<String>, Errno> {
        let is_it = |stat: &Stat| (stat.st_dev, stat.st_ino) == (found.st_dev, found.st_ino);
        // As late as can be: hashing what was found may have taken long.
        if !folder.stat(name)?.as_ref().is_some_and(is_it) {
            return Ok(None);
        }
        // Its retention begins now: what it held may be older, and the only copy. Where it cannot be touched it is not
        // ours, and nobody misses it.
        let _ = folder.touch(name);
        let aside = format!("{}{name}-{}", layout::ASIDE, random_name()?);
        match folder.rename_new(name, &self.root, &aside) {
            Ok(()) => {}
            // Someone else was quicker.
            Err(Errno::NOENT) => return Ok(None),
            Err(other) => return Err(other),
        }
        // Should it have been replaced in between, it goes back.
        if self.root.stat(&aside)?.as_ref().is_none_or(is_it) {
            return Ok(Some(aside));
        }
        match self.root.rename_new(&aside, folder, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Counts what is stored, where there is a quota for it.
    pub(crate) fn count(&self) -> Result<(), BlobError> {
        let asked = Instant::now();
        let _turn = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        // Of many who ask at once, one counts for those that wait.
        if self.usage.is_counted(asked) {
            return Ok(());
        }
        self.count_in_turn()
    }

    /// The same, where it is due and nobody is at it, or it was never done.
    pub(super) fn count_if_due(&self) -> Result<(), BlobError> {
        if !self.usage.was_counted() {
            return self.count();
        }
        match self.counting.try_lock() {
            Ok(_turn) if self.usage.is_due() => self.count_in_turn(),
            _ => Ok(()),
        }
    }

    fn count_in_turn(&self) -> Result<(), BlobError> {
        if self.usage.limits().quota_bytes.is_none() {
            return Ok(());
        }
        let counting = self.usage.begin_counting();
        self.usage.end_counting(&counting, self.stored()?);
        Ok(())
    }

    pub(crate) fn failed(&self, action: &'static str) -> impl Fn(Errno) -> BlobError {
        let path = &self.path;
        move |errno| layout::error(action, path, errno)
    }

    pub(crate) fn io_failed(&self, action: &'static str) -> impl Fn(std::io::Error) -> BlobError {
        let path = &self.path;
        move |source| layout::io_error(action, path, source)
    }
}
