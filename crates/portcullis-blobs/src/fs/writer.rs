//! Putting blobs under their names.

use std::{io::Write, os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use portcullis_types::{BlobRef, Hash};
use rustix::io::Errno;

use super::{
    folder::{Folder, Lock},
    hash::{HELPED_BYTES, Hashing},
    layout,
    recent::Mark,
    session::Session,
    shelf::{Proof, Shelf},
    steps::{Step::WrittenMeanwhile, happened},
    temp::TempFile,
};
use crate::{BlobError, BlobWriter, Stored, usage::Reservation};

/// How often a name that something else keeps taking is tried before we give up.
const ATTEMPTS: usize = 8;
/// How much is written between two looks at whether the hash is there. Smaller pieces take longer to write.
const PIECE_BYTES: usize = 256 << 10;
/// From which size on the file system is told the size beforehand, so that it need not find room piece by piece.
const PREALLOCATED_BYTES: u64 = 256 << 10;

/// A blob of which something is written, and what of its content is not.
pub(super) type Begun<'a> = (Writer, &'a [u8]);

/// One blob being written: hashed on the way, and named at the end.
#[derive(Debug)]
pub(crate) struct Writer {
    shelf: Arc<Shelf>,
    session: Arc<Session>,
    temp: TempFile,
    hasher: blake3::Hasher,
    room: Reservation,
    size_bytes: u64,
    /// A write failed, so that the file and the hash may differ.
    is_broken: bool,
}

impl Shelf {
    pub(crate) fn put(
        self: &Arc<Self>,
        session: &Arc<Session>,
        content: &Bytes,
    ) -> Result<Stored, BlobError> {
        let size_bytes = content.len() as u64;
        let limit_bytes = self.usage.limits().max_blob_bytes;
        if size_bytes > limit_bytes {
            return Err(BlobError::TooLarge { limit_bytes });
        }
        if content.len() < HELPED_BYTES {
            return self.put_as(BlobRef(Hash::of(content)), session, content, None);
        }
        let mark = Mark::of(content);
        let mut hashing = Hashing::begin(content, &self.helpers);
        // What was put before is not written in vain, what nobody else hashes is hashed first, and what there is no room
        // for may be there.
        let is_worth_it = hashing.is_asked() && !self.recent.has(mark) && self.usage.has_room(size_bytes);
        // What goes wrong may not matter. Where it does, all begins anew and it is seen.
        let begun = is_worth_it.then(|| self.write_meanwhile(session, content, &mut hashing).ok());
        let stored = self.put_as(BlobRef(hashing.finish()), session, content, begun.flatten())?;
        self.recent.add(mark);
        Ok(stored)
    }

    /// Stores `content`, whose name is `blob`, and of which some may be written with the rest still to write.
    fn put_as(
        self: &Arc<Self>,
        blob: BlobRef,
        session: &Arc<Session>,
        content: &[u8],
        mut begun: Option<Begun<'_>>,
    ) -> Result<Stored, BlobError> {
        let size_bytes = content.len() as u64;
        // Its name tells whether it is there already. What is synced before it is named had better know sooner.
        if let Some((writer, [])) = &mut begun
            && !self.is_durable()
            && writer.room.grow(size_bytes).is_ok()
            && let Some((writer, _)) = begun.take()
        {
            return writer.publish_as(blob, Proof::Content(content));
        }
        // What is there already needs no room, so what went wrong with writing it once more is of no interest.
        if let Some(stored) = self.existing(session, blob, size_bytes, Proof::Content(content))? {
            return Ok(stored);
        }
        let (mut writer, rest) = match begun {
            Some((mut writer, rest)) => {
                writer.reserve(size_bytes)?;
                (writer, rest)
            }
            None => {
                let mut writer = Writer::create(self, session)?;
                writer.make_room(size_bytes)?;
                (writer, content)
            }
        };
        writer.append(rest)?;
        writer.publish_as(blob, Proof::Content(content))
    }

    /// Writes `content` while a helper hashes it, until its hash is there, and gives what is left of it then. Takes no room
    /// of the quota: what is there already must not keep others out.
    pub(super) fn write_meanwhile<'a>(
        self: &Arc<Self>,
        session: &Arc<Session>,
        content: &'a [u8],
        hashing: &mut Hashing,
    ) -> Result<Begun<'a>, BlobError> {
        let mut writer = Writer::create(self, session)?;
        writer.allocate(content.len() as u64)?;
        let mut rest = content;
        while !rest.is_empty() && !hashing.is_done() {
            // By when the first piece is written, a helper is there or the machine is busy.
            if hashing.is_helped() || rest.len() == content.len() {
                let (piece, later) = rest.split_at(rest.len().min(PIECE_BYTES));
                writer.append(piece)?;
                happened(|| WrittenMeanwhile);
                rest = later;
            } else {
                hashing.step();
            }
        }
        Ok((writer, rest))
    }

    /// `blob`, where it is stored already: from now on it is held and as durable as if it were put now.
    fn existing(
        &self,
        session: &Session,
        blob: BlobRef,
        size_bytes: u64,
        proof: Proof<'_>,
    ) -> Result<Option<Stored>, BlobError> {
        let Some(folder) = self.folder(blob)? else {
            return Ok(None);
        };
        self.lock(&folder, Lock::Shared)?;
        let existed = self.adopt(session, &folder, blob, size_bytes, proof)?;
        Ok(existed.then_some(Stored {
            blob,
            size_bytes,
            existed,
        }))
    }

    /// Whether `blob` is stored in `folder` already, which is locked. Where it is, it is from now on held and as
    /// durable as if it were put now, and the lock is given back. Where it is not, it may be held all the same.
    fn adopt(
        &self,
        session: &Session,
        folder: &Folder,
        blob: BlobRef,
        size: u64,
        proof: Proof<'_>,
    ) -> Result<bool, BlobError> {
        // A power cut may have damaged what was not synced, and a disk anything: what is put would be dropped for that.
        let proof = if session.has_proved(blob) {
            Proof::Size
        } else {
            proof
        };
        if !self.is_stored(folder, blob, size, proof)? {
            return Ok(false);
        }
        session.hold(self, blob)?;
        // Its retention begins anew. A reader that found it damaged may have moved it aside since.
        match folder.touch(&blob.0.to_string()) {
            Err(Errno::NOENT) => return Ok(false),
            other => other.map_err(self.failed("touch a blob"))?,
        }
        folder.unlock();
        let is_settled = self.settle_existing(blob, folder)?;
        // Not sooner: where the disk does not take it, the next put reads it again.
        if is_settled {
            session.proved(blob);
        }
        Ok(is_settled)
    }
}

impl Writer {
    pub(crate) fn create(shelf: &Arc<Shelf>, session: &Arc<Session>) -> Result<Self, BlobError> {
        shelf.count_if_due()?;
        let temp = shelf.temp_file()?;
        let room = shelf.usage.reservation();
        Ok(Self {
            shelf: Arc::clone(shelf),
            session: Arc::clone(session),
            temp,
            hasher: blake3::Hasher::new(),
            room,
            size_bytes: 0,
            is_broken: false,
        })
    }

    /// Takes the next pieces of the content, hashing them on the way.
    pub(crate) fn write_all(mut self, pieces: &[Bytes]) -> Result<Self, BlobError> {
        for piece in pieces {
            BlobWriter::write(&mut self, piece)?;
        }
        Ok(self)
    }

    /// Names what was written by its hash.
    pub(crate) fn finish(self) -> Result<Stored, BlobError> {
        let blob = self.blob();
        // What is there already is not brought to the disk a second time.
        if self.shelf.is_durable()
            && let Some(stored) = self
                .shelf
                .existing(&self.session, blob, self.size_bytes, Proof::Hash)?
        {
            return Ok(stored);
        }
        self.publish_as(blob, Proof::Hash)
    }

    /// Takes room for so many bytes, which are then appended. Where content is not synced before it gets its name, the
    /// file system gives it room only as it is written: nothing of a file is there before its content.
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<(), BlobError> {
        self.reserve(bytes)?;
        self.allocate(bytes)
    }

    fn allocate(&self, bytes: u64) -> Result<(), BlobError> {
        if bytes >= PREALLOCATED_BYTES && self.shelf.is_durable() {
            self.temp
                .allocate(bytes)
                .map_err(self.shelf.failed("make room for a blob"))?;
        }
        Ok(())
    }

    fn reserve(&mut self, more: u64) -> Result<(), BlobError> {
        match self.room.grow(more) {
            Err(BlobError::Quota { .. } | BlobError::TooMany { .. }) => {
                // Another process may have removed some since we counted.
                self.shelf.count()?;
                self.room.grow(more)
            }
            other => other,
        }
    }

    /// Writes what room was made for.
    pub(super) fn append(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        self.size_bytes = self.size_bytes.saturating_add(piece.len() as u64);
        self.temp
            .file()
            .write_all(piece)
            .map_err(self.shelf.io_failed("write a blob"))
    }

    fn publish_as(self, blob: BlobRef, proof: Proof<'_>) -> Result<Stored, BlobError> {
        let Self {
            shelf,
            session,
            mut temp,
            room,
            size_bytes,
            ..
        } = self;
        let stored = |existed| Stored {
            blob,
            size_bytes,
            existed,
        };
        shelf.settle_content(temp.file())?;
        for _ in 0..ATTEMPTS {
            let all = shelf.own_folder_or_new(&shelf.root, layout::BLOBS)?;
            let folder = shelf.own_folder_or_new(&all, &layout::fan_out(blob))?;
            shelf.lock(&folder, Lock::Shared)?;
            // INVARIANT: a blob is held before it can be seen, and both under one lock, so that a collector, which
            // looks at what is held under its own, never takes it.
            session.hold(&shelf, blob)?;
            match temp.publish(&folder, &blob.0.to_string()) {
                Ok(()) => {
                    folder.unlock();
                    room.keep();
                    shelf.settle_names(blob, &folder)?;
                    session.proved(blob);
                    return Ok(stored(false));
                }
                Err(Errno::EXIST) if shelf.adopt(&session, &folder, blob, size_bytes, proof)? => {
                    return Ok(stored(true));
                }
                Err(Errno::EXIST) => {}
                Err(other) => return Err(shelf.failed("name a blob")(other)),
            }
        }
        let why = "something keeps putting another file in its place".to_owned();
        Err(BlobError::Corrupt { blob, why })
    }
}

impl BlobWriter for Writer {
    fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Err(BlobError::broken_writer());
        }
        self.hasher.update(piece);
        self.reserve(piece.len() as u64)?;
        self.append(piece)?;
        self.is_broken = false;
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn blob(&self) -> BlobRef {
        BlobRef(Hash::from_bytes(*self.hasher.finalize().as_bytes()))
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, BlobError> {
        self.temp
            .opened()
            .read_at(buffer, at)
            .map_err(self.shelf.io_failed("read a file"))
    }

    fn publish(self: Box<Self>) -> Result<Stored, BlobError> {
        if self.is_broken {
            return Err(BlobError::broken_writer());
        }
        self.finish()
    }
}
