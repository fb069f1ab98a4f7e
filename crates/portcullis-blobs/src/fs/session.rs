//! What living handles hold: one file for each, of the hashes that were put through it, locked by its process.
//!
//! The file is written before a blob can be seen and is only ever added to, so a collector that has read it once
//! reads what was added since. It goes with its handle; one whose process died is no longer locked, holds nothing
//! and is removed. No clock tells the living from the dead.

use std::{
    collections::{HashMap, HashSet},
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portcullis_types::{BlobRef, Hash};
use rustix::io::Errno;

use super::{
    folder::Folder,
    layout,
    shelf::Shelf,
    stat::is_file,
    temp::{self, TempFile},
};
use crate::BlobError;

const HASH_BYTES: usize = 32;
/// How many of the hashes that it holds a session remembers: half a MiB of them.
pub(super) const KNOWN: usize = 8 << 10;
/// How much of a session's file is read at once: a multiple of a hash.
const READ_BYTES: usize = 64 << 10;

/// What one handle holds. The file comes with the first blob, so that looking at a store writes nothing.
#[derive(Debug, Default)]
pub(crate) struct Session {
    log: Mutex<Option<Log>>,
}

#[derive(Debug)]
struct Log {
    file: TempFile,
    at: u64,
    /// What of it is remembered, and whether this handle has proved it.
    known: HashMap<BlobRef, bool>,
}

impl Session {
    /// Holds `blob` for as long as this session is there. To be called under the shared lock of its folder.
    pub(crate) fn hold(&self, shelf: &Shelf, blob: BlobRef) -> Result<(), BlobError> {
        let mut log = self.log();
        let log = match &mut *log {
            Some(log) => log,
            none => {
                let folder = shelf.own_folder_or_new(&shelf.root, layout::SESSIONS)?;
                let file = TempFile::create(Arc::new(folder)).map_err(shelf.failed("create a file"))?;
                none.insert(Log {
                    file,
                    at: 0,
                    known: HashMap::new(),
                })
            }
        };
        if log.known.contains_key(&blob) {
            return Ok(());
        }
        // What fails half-way is written over by the next: a reader takes whole hashes only.
        log.file
            .file()
            .write_all_at(blob.0.as_bytes(), log.at)
            .map_err(shelf.io_failed("write a file"))?;
        log.at += HASH_BYTES as u64;
        if log.known.len() >= KNOWN {
            // Nothing is let go. What comes again is written down and proved once more.
            log.known.clear();
        }
        log.known.insert(blob, false);
        Ok(())
    }

    /// Whether this handle has written `blob`, or read all of it, and it was what its name says.
    pub(crate) fn has_proved(&self, blob: BlobRef) -> bool {
        let log = self.log();
        log.as_ref()
            .is_some_and(|log| log.known.get(&blob) == Some(&true))
    }

    /// Remembers that it has. What is not held is not remembered.
    pub(crate) fn proved(&self, blob: BlobRef) {
        let mut log = self.log();
        if let Some(is_proved) = log.as_mut().and_then(|log| log.known.get_mut(&blob)) {
            *is_proved = true;
        }
    }

    fn log(&self) -> MutexGuard<'_, Option<Log>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all living sessions hold, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// How far each file was read. The names are random, so none comes twice.
    read: HashMap<String, u64>,
    held: HashSet<BlobRef>,
}

impl Holdings {
    pub(crate) fn new(shelf: &Shelf) -> Result<Self, BlobError> {
        if let Some(folder) = shelf.own_folder(&shelf.root, layout::SESSIONS)? {
            temp::clean(&folder).map_err(shelf.failed("clean up"))?;
        }
        let mut holdings = Self::default();
        holdings.refresh(shelf)?;
        Ok(holdings)
    }

    pub(crate) fn contains(&self, blob: BlobRef) -> bool {
        self.held.contains(&blob)
    }

    /// Reads what was added since. Under the exclusive lock of a folder, all that is held there is known then.
    pub(crate) fn refresh(&mut self, shelf: &Shelf) -> Result<(), BlobError> {
        let Some(folder) = shelf.own_folder(&shelf.root, layout::SESSIONS)? else {
            return Ok(());
        };
        let mut names = folder.names().map_err(shelf.failed("list a folder"))?;
        // What is not a session's would never be cleaned away, and must not keep anything for ever.
        names.retain(|name| temp::is_name(name));
        for name in names {
            self.refresh_one(shelf, &folder, name)?;
        }
        Ok(())
    }

    fn refresh_one(&mut self, shelf: &Shelf, folder: &Folder, name: String) -> Result<(), BlobError> {
        let (file, stat) = match folder.file(&name) {
            // It ended just now, or is none of ours.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(()),
            other => other.map_err(shelf.failed("open a file"))?,
        };
        // No session is a folder or a pipe, which cannot be read as one either.
        if !is_file(&stat) {
            return Ok(());
        }
        let at = self.read.entry(name).or_default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = file
                .read_at(&mut buffer, *at)
                .map_err(shelf.io_failed("read a file"))?;
            let whole = buffer.get(..count).unwrap_or_default().chunks_exact(HASH_BYTES);
            if whole.len() == 0 {
                return Ok(());
            }
            *at += (whole.len() * HASH_BYTES) as u64;
            let hashes = whole.filter_map(|bytes| <[u8; HASH_BYTES]>::try_from(bytes).ok());
            self.held
                .extend(hashes.map(|bytes| BlobRef(Hash::from_bytes(bytes))));
        }
    }
}
