//! Putting blobs under their names and taking them from there.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use portcullis_types::{BlobRef, Hash};
use rustix::{fs::Stat, io::Errno};

use super::{
    Durability, FsOptions,
    folder::{Folder, is_file, is_private, size_bytes},
    layout,
    temp::{self, TempFile, random_name},
};
use crate::{
    BlobError, Stored,
    usage::{Reservation, Usage},
};

/// How often a name that something else keeps taking is tried before we give up.
const ATTEMPTS: usize = 8;

/// The blocking half of the store.
#[derive(Debug)]
pub(crate) struct Shelf {
    path: PathBuf,
    root: Folder,
    durability: Durability,
    usage: Arc<Usage>,
    /// For each of the 256 folders, whether its own name is known to be on the disk.
    synced: Vec<AtomicBool>,
}

/// One blob being written: hashed on the way, and named at the end.
#[derive(Debug)]
pub(crate) struct Writer {
    shelf: Arc<Shelf>,
    temp: TempFile,
    hasher: blake3::Hasher,
    room: Reservation,
    size_bytes: u64,
}

impl Shelf {
    pub(crate) fn open(path: &Path, options: FsOptions) -> Result<Self, BlobError> {
        let shelf = Self {
            path: path.to_owned(),
            root: layout::open(path)?,
            durability: options.durability,
            usage: Usage::new(options.limits),
            synced: (0..=u8::MAX).map(|_| AtomicBool::new(false)).collect(),
        };
        if let Ok(scratch) = shelf.root.child(layout::TEMP) {
            // Leftovers take room and do no other harm, and a store that can only be read is still of use.
            let _ = temp::clean(&scratch);
        }
        shelf.count()?;
        Ok(shelf)
    }

    pub(crate) fn place(&self) -> &Path {
        &self.path
    }

    pub(crate) fn put(self: &Arc<Self>, content: &[u8]) -> Result<Stored, BlobError> {
        let size_bytes = content.len() as u64;
        let limit_bytes = self.usage.limits().max_blob_bytes;
        if size_bytes > limit_bytes {
            return Err(BlobError::TooLarge { limit_bytes });
        }
        let blob = BlobRef(Hash::of(content));
        if self.has(blob, size_bytes)? {
            return Ok(Stored {
                blob,
                size_bytes,
                existed: true,
            });
        }
        let mut writer = Writer::create(self)?;
        writer.append(content)?;
        writer.publish_as(blob)
    }

    pub(crate) fn get(&self, blob: BlobRef) -> Result<Bytes, BlobError> {
        let name = blob.0.to_string();
        let folder = self.folder(blob)?.ok_or(BlobError::NotFound(blob))?;
        let (file, stat) = match folder.file(&name) {
            Err(Errno::NOENT) => return Err(BlobError::NotFound(blob)),
            Err(Errno::LOOP | Errno::NXIO) => {
                return Err(self.corrupt(blob, &folder, None, "it is not a file"));
            }
            other => other.map_err(self.failed("open a blob"))?,
        };
        if !is_file(&stat) {
            return Err(self.corrupt(blob, &folder, Some(&stat), "it is not a file"));
        }
        let content = self.read(file, &stat)?;
        if Hash::of(&content) == blob.0 {
            return Ok(content.into());
        }
        Err(self.corrupt(
            blob,
            &folder,
            Some(&stat),
            "its content does not hash to its name",
        ))
    }

    pub(crate) fn size_bytes(&self, blob: BlobRef) -> Result<Option<u64>, BlobError> {
        let Some(folder) = self.folder(blob)? else {
            return Ok(None);
        };
        let stat = folder
            .stat(&blob.0.to_string())
            .map_err(self.failed("look for a blob"))?;
        Ok(stat.filter(is_file).as_ref().map(size_bytes))
    }

    /// Whether `blob` is stored already, told by its size where only we can have written it, else by its hash.
    /// Whatever else has its name is moved aside. Where it is, it is as durable as if it were put now.
    fn has(&self, blob: BlobRef, size: u64) -> Result<bool, BlobError> {
        let name = blob.0.to_string();
        let Some(folder) = self.folder(blob)? else {
            return Ok(false);
        };
        let Some(stat) = folder.stat(&name).map_err(self.failed("look for a blob"))? else {
            return Ok(false);
        };
        if !is_file(&stat) || size_bytes(&stat) != size {
            self.set_aside(&folder, &name, Some(&stat))
                .map_err(self.failed("move a damaged blob aside"))?;
            return Ok(false);
        }
        if !is_private(&stat) {
            return match self.get(blob) {
                Ok(_) => Ok(true),
                Err(BlobError::Corrupt { .. } | BlobError::NotFound(_)) => Ok(false),
                Err(other) => Err(other),
            };
        }
        if self.durability == Durability::Fsync {
            // Its first writer may not have come to syncing it yet, or may not have wanted to.
            let (file, _) = match folder.file(&name) {
                Err(Errno::NOENT) => return Ok(false),
                other => other.map_err(self.failed("open a blob"))?,
            };
            file.sync_data().map_err(self.io_failed("sync a blob"))?;
            self.sync(blob, &folder)?;
        }
        Ok(true)
    }

    /// The folder of `blob`, `None` where it is missing. A link in its place is moved aside, not followed.
    fn folder(&self, blob: BlobRef) -> Result<Option<Folder>, BlobError> {
        let all = self.own_folder(&self.root, layout::BLOBS)?;
        match all {
            Some(all) => self.own_folder(&all, &fan_out(blob)),
            None => Ok(None),
        }
    }

    fn own_folder(&self, parent: &Folder, name: &str) -> Result<Option<Folder>, BlobError> {
        match parent.child(name) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                self.set_aside(parent, name, None)
                    .map_err(self.failed("move aside what is not a folder"))?;
                Ok(None)
            }
            Err(other) => Err(self.failed("open a folder")(other)),
        }
    }

    fn own_folder_or_new(&self, parent: &Folder, name: &str) -> Result<Folder, BlobError> {
        match self.own_folder(parent, name)? {
            Some(folder) => Ok(folder),
            None => parent.child_or_new(name).map_err(self.failed("create a folder")),
        }
    }

    /// Makes the names that lead to `blob` durable.
    fn sync(&self, blob: BlobRef, folder: &Folder) -> Result<(), BlobError> {
        folder.sync().map_err(self.failed("sync a folder"))?;
        let [first, ..] = *blob.0.as_bytes();
        if let Some(synced) = self.synced.get(usize::from(first))
            && !synced.load(Ordering::Acquire)
        {
            let all = self.own_folder_or_new(&self.root, layout::BLOBS)?;
            all.sync()
                .and_then(|()| self.root.sync())
                .map_err(self.failed("sync a folder"))?;
            synced.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn read(&self, file: std::fs::File, stat: &Stat) -> Result<Vec<u8>, BlobError> {
        let size = size_bytes(stat);
        let limit_bytes = self.usage.limits().max_blob_bytes;
        if size > limit_bytes {
            return Err(BlobError::TooLarge { limit_bytes });
        }
        let mut content = Vec::new();
        let room = usize::try_from(size)
            .ok()
            .and_then(|size| content.try_reserve_exact(size).ok());
        room.ok_or(BlobError::Memory { needed_bytes: size })?;
        // What was appended since is not read: the hash then tells.
        file.take(size)
            .read_to_end(&mut content)
            .map_err(self.io_failed("read a blob"))?;
        Ok(content)
    }

    /// Moves what has the name of `blob` aside and says so.
    fn corrupt(&self, blob: BlobRef, folder: &Folder, found: Option<&Stat>, what: &str) -> BlobError {
        let why = match self.set_aside(folder, &blob.0.to_string(), found) {
            Ok(aside) => format!("{what}, and was moved to `{}`", self.path.join(aside).display()),
            Err(errno) => format!("{what}, and could not be moved aside ({errno})"),
        };
        BlobError::Corrupt { blob, why }
    }

    /// Moves `name` out of `folder` into the root, under a name that is never read. Should a good file have come
    /// into its place since `found` was seen, that one is put back.
    fn set_aside(&self, folder: &Folder, name: &str, found: Option<&Stat>) -> Result<String, Errno> {
        let aside = format!("quarantine-{name}-{}", random_name()?);
        match folder.rename_new(name, &self.root, &aside) {
            // Someone else was quicker.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(other) => return Err(other),
        }
        let moved = self.root.stat(&aside)?;
        if let (Some(found), Some(moved)) = (found, moved)
            && (found.st_dev, found.st_ino) != (moved.st_dev, moved.st_ino)
        {
            match self.root.rename_new(&aside, folder, name) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(aside)
    }

    /// Counts what is stored, where there is a quota to hold it against.
    fn count(&self) -> Result<(), BlobError> {
        if self.usage.limits().quota_bytes.is_none() {
            return Ok(());
        }
        let mut total = 0_u64;
        if let Some(all) = self.own_folder(&self.root, layout::BLOBS)? {
            for folder in all.names().map_err(self.failed("list a folder"))? {
                // What is no folder holds no blobs.
                let Ok(folder) = all.child(&folder) else { continue };
                for name in folder.names().map_err(self.failed("list a folder"))? {
                    let stat = folder.stat(&name).map_err(self.failed("look for a blob"))?;
                    total = total.saturating_add(stat.as_ref().map_or(0, size_bytes));
                }
            }
        }
        self.usage.set_stored(total);
        Ok(())
    }

    fn failed(&self, action: &'static str) -> impl Fn(Errno) -> BlobError {
        let path = &self.path;
        move |errno| layout::error(action, path, errno)
    }

    fn io_failed(&self, action: &'static str) -> impl Fn(std::io::Error) -> BlobError {
        let path = &self.path;
        move |source| layout::io_error(action, path, source)
    }
}

impl Writer {
    pub(crate) fn create(shelf: &Arc<Shelf>) -> Result<Self, BlobError> {
        let scratch = shelf.own_folder_or_new(&shelf.root, layout::TEMP)?;
        let temp = TempFile::create(scratch).map_err(shelf.failed("create a file"))?;
        let room = shelf.usage.reservation();
        Ok(Self {
            shelf: Arc::clone(shelf),
            temp,
            hasher: blake3::Hasher::new(),
            room,
            size_bytes: 0,
        })
    }

    /// Takes the next pieces of the content, hashing them on the way.
    pub(crate) fn write(mut self, pieces: &[Bytes]) -> Result<Self, BlobError> {
        for piece in pieces {
            self.hasher.update(piece);
            self.append(piece)?;
        }
        Ok(self)
    }

    /// Names what was written by its hash.
    pub(crate) fn publish(self) -> Result<Stored, BlobError> {
        let blob = BlobRef(Hash::from_bytes(*self.hasher.finalize().as_bytes()));
        self.publish_as(blob)
    }

    fn append(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        let more = piece.len() as u64;
        match self.room.grow(more) {
            Err(BlobError::Quota { .. }) => {
                // Another process may have removed some since we counted.
                self.shelf.count()?;
                self.room.grow(more)?;
            }
            other => other?,
        }
        self.size_bytes = self.size_bytes.saturating_add(more);
        self.temp
            .file()
            .write_all(piece)
            .map_err(self.shelf.io_failed("write a blob"))
    }

    fn publish_as(mut self, blob: BlobRef) -> Result<Stored, BlobError> {
        let Self {
            shelf,
            temp,
            size_bytes,
            ..
        } = &mut self;
        let size_bytes = *size_bytes;
        if shelf.durability == Durability::Fsync {
            temp.file().sync_data().map_err(shelf.io_failed("sync a blob"))?;
        }
        for _ in 0..ATTEMPTS {
            let all = shelf.own_folder_or_new(&shelf.root, layout::BLOBS)?;
            let folder = shelf.own_folder_or_new(&all, &fan_out(blob))?;
            match temp.publish(&folder, &blob.0.to_string()) {
                Ok(()) => {
                    if shelf.durability == Durability::Fsync {
                        shelf.sync(blob, &folder)?;
                    }
                    self.room.keep();
                    return Ok(Stored {
                        blob,
                        size_bytes,
                        existed: false,
                    });
                }
                Err(Errno::EXIST) if shelf.has(blob, size_bytes)? => {
                    return Ok(Stored {
                        blob,
                        size_bytes,
                        existed: true,
                    });
                }
                Err(Errno::EXIST) => {}
                Err(other) => return Err(shelf.failed("name a blob")(other)),
            }
        }
        let why = "something keeps putting another file in its place".to_owned();
        Err(BlobError::Corrupt { blob, why })
    }
}

/// The folder that holds `blob`: the first two digits of its name.
pub(crate) fn fan_out(blob: BlobRef) -> String {
    let [first, ..] = *blob.0.as_bytes();
    format!("{first:02x}")
}
