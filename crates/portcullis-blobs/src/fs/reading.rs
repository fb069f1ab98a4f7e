//! Taking blobs from under their names, and proving that they are what the names say.

use std::{
    fs::File,
    io::Read,
    ops::Range,
    sync::{Arc, mpsc},
    thread,
};

use bytes::Bytes;
use portcullis_types::{BlobRef, Hash};
use rustix::{fs::Stat, io::Errno};

use super::{
    folder::{is_file, size_bytes},
    shelf::Shelf,
};
use crate::BlobError;

/// How much is read and hashed at once: what fits into a core's cache, and keeps a stream's memory small.
const PIECE_BYTES: usize = 128 << 10;
/// From which size on hashing on a second core is worth starting a thread for.
const TWO_CORES_BYTES: u64 = 8 << 20;

const WRONG_HASH: &str = "its content does not hash to its name";
const NO_FILE: &str = "it is not a file";

/// A blob being read piece by piece.
#[derive(Debug)]
pub(crate) struct Reading {
    shelf: Arc<Shelf>,
    blob: BlobRef,
    file: File,
    stat: Stat,
    hasher: blake3::Hasher,
    left: u64,
}

impl Shelf {
    pub(crate) fn get(&self, blob: BlobRef) -> Result<Bytes, BlobError> {
        let (file, stat) = self.find(blob)?;
        let size = size_bytes(&stat);
        let limit_bytes = self.usage.limits().max_blob_bytes;
        if size > limit_bytes {
            return Err(BlobError::TooLarge { limit_bytes });
        }
        let mut content = room_for(size)?;
        let hash = if size < TWO_CORES_BYTES {
            // What was appended since is not read: the hash then tells.
            read_hashing_here(file.take(size), &mut content).map_err(self.io_failed("read a blob"))?
        } else {
            // The room is known to be there, and fresh zeros come without being written.
            drop(content);
            content = vec![0; usize::try_from(size).unwrap_or(0)];
            self.read_hashing(file, &mut content)?
        };
        if hash == blob.0 {
            Ok(content.into())
        } else {
            Err(self.damaged(blob, Some(&stat), WRONG_HASH))
        }
    }

    pub(crate) fn get_range(&self, blob: BlobRef, range: &Range<u64>) -> Result<Bytes, BlobError> {
        let (mut file, stat) = self.find(blob)?;
        let size = size_bytes(&stat);
        // Where the file has not its true size, the hash tells before the range matters.
        let mut wanted = room_for(range.end.min(size).saturating_sub(range.start))?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        loop {
            let count = file.read(&mut piece).map_err(self.io_failed("read a blob"))?;
            let read = piece.get(..count).unwrap_or_default();
            if read.is_empty() {
                break;
            }
            hasher.update(read);
            wanted.extend_from_slice(overlap(read, at, range));
            at += count as u64;
        }
        if hash_of(&hasher) != blob.0 {
            return Err(self.damaged(blob, Some(&stat), WRONG_HASH));
        }
        BlobError::check_range(blob, at, range)?;
        Ok(wanted.into())
    }

    pub(crate) fn reading(self: &Arc<Self>, blob: BlobRef) -> Result<Reading, BlobError> {
        let (file, stat) = self.find(blob)?;
        Ok(Reading {
            shelf: Arc::clone(self),
            blob,
            file,
            stat,
            hasher: blake3::Hasher::new(),
            left: size_bytes(&stat),
        })
    }

    /// The open file of `blob`.
    fn find(&self, blob: BlobRef) -> Result<(File, Stat), BlobError> {
        let folder = self.folder(blob)?.ok_or(BlobError::NotFound(blob))?;
        match folder.file(&blob.0.to_string()) {
            Ok((file, stat)) if is_file(&stat) => Ok((file, stat)),
            Ok((_, stat)) => Err(self.damaged(blob, Some(&stat), NO_FILE)),
            Err(Errno::NOENT) => Err(BlobError::NotFound(blob)),
            Err(Errno::LOOP | Errno::NXIO) => Err(self.damaged(blob, None, NO_FILE)),
            Err(other) => Err(self.failed("open a blob")(other)),
        }
    }

    fn damaged(&self, blob: BlobRef, found: Option<&Stat>, what: &str) -> BlobError {
        match self.folder(blob) {
            Ok(Some(folder)) => self.corrupt(blob, &folder, found, what),
            Ok(None) => BlobError::NotFound(blob),
            Err(error) => error,
        }
    }

    /// Fills `content` from `file`, while another thread hashes what is there already.
    fn read_hashing(&self, mut file: File, content: &mut [u8]) -> Result<Hash, BlobError> {
        thread::scope(|scope| {
            let (ready, pieces) = mpsc::channel::<&[u8]>();
            let hashing = thread::Builder::new().spawn_scoped(scope, move || {
                let mut hasher = blake3::Hasher::new();
                pieces.iter().for_each(|piece| {
                    hasher.update(piece);
                });
                hasher
            });
            let hashing = hashing.map_err(self.io_failed("start a thread"))?;
            for piece in content.chunks_mut(PIECE_BYTES) {
                // Where the file was cut short since, the zeros that stand there instead are hashed.
                read_full(&mut file, piece).map_err(self.io_failed("read a blob"))?;
                if ready.send(piece).is_err() {
                    break;
                }
            }
            drop(ready);
            // It only hashes, which does not fail; without a hash nothing matches.
            Ok(hashing
                .join()
                .map_or(Hash::from_bytes([0; 32]), |hasher| hash_of(&hasher)))
        })
    }
}

impl Reading {
    pub(crate) fn size_bytes(&self) -> u64 {
        size_bytes(&self.stat)
    }

    /// The next piece, and with the last one nothing more to come. The last one only where the hash is right.
    pub(crate) fn next(mut self) -> Result<(Bytes, Option<Self>), BlobError> {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let mut piece = vec![0; count];
        let read = read_full(&mut self.file, &mut piece).map_err(self.shelf.io_failed("read a blob"))?;
        piece.truncate(read);
        self.hasher.update(&piece);
        self.left = if read < count { 0 } else { self.left - read as u64 };
        if self.left > 0 {
            return Ok((piece.into(), Some(self)));
        }
        if hash_of(&self.hasher) == self.blob.0 {
            Ok((piece.into(), None))
        } else {
            Err(self.shelf.damaged(self.blob, Some(&self.stat), WRONG_HASH))
        }
    }
}

/// An empty buffer for `size` bytes.
fn room_for(size: u64) -> Result<Vec<u8>, BlobError> {
    let mut content = Vec::new();
    usize::try_from(size)
        .ok()
        .and_then(|size| content.try_reserve_exact(size).ok())
        .ok_or(BlobError::Memory { needed_bytes: size })?;
    Ok(content)
}

/// Appends what `file` gives to `content`, each piece hashed while the cache has it.
fn read_hashing_here(mut file: impl Read, content: &mut Vec<u8>) -> std::io::Result<Hash> {
    let mut hasher = blake3::Hasher::new();
    loop {
        let before = content.len();
        file.by_ref().take(PIECE_BYTES as u64).read_to_end(content)?;
        match content.get(before..) {
            Some(piece) if !piece.is_empty() => hasher.update(piece),
            _ => return Ok(hash_of(&hasher)),
        };
    }
}

/// Reads until `piece` is full or the file ends.
fn read_full(file: &mut File, piece: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// What of `piece`, which stands at `at` in its blob, lies in `range`.
fn overlap<'a>(piece: &'a [u8], at: u64, range: &Range<u64>) -> &'a [u8] {
    let index = |position: u64| {
        usize::try_from(position.saturating_sub(at))
            .unwrap_or(usize::MAX)
            .min(piece.len())
    };
    piece
        .get(index(range.start)..index(range.end))
        .unwrap_or_default()
}

fn hash_of(hasher: &blake3::Hasher) -> Hash {
    Hash::from_bytes(*hasher.finalize().as_bytes())
}
