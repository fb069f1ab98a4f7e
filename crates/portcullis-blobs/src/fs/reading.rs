//! Taking blobs from under their names, and proving that they are what the names say.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use portcullis_types::{BlobRef, Hash};
use rustix::{fs::Stat, io::Errno};

use super::{
    hash::HELPED_BYTES,
    shelf::Shelf,
    stat::{is_file, size_bytes},
    steps::opened,
    whole::{self, Wait, Whole},
};
use crate::BlobError;

/// How much of a stream is read and hashed at once: what fits into a core's cache, and keeps its memory small.
const PIECE_BYTES: usize = 128 << 10;

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
        let room = room_for(size)?;
        let read = if size < HELPED_BYTES as u64 {
            whole::read(&file, room, size)
        } else {
            // The room is known to be there.
            drop(room);
            Whole::begin(file, size, Wait::ForDisk, &self.buffers, &self.helpers).finish()
        };
        let (content, hash) = read.map_err(self.io_failed("read a blob"))?;
        if hash == blob.0 {
            Ok(content)
        } else {
            Err(self.damaged(blob, &stat, WRONG_HASH))
        }
    }

    pub(crate) fn get_range(&self, blob: BlobRef, range: &Range<u64>) -> Result<Bytes, BlobError> {
        let (file, stat) = self.find(blob)?;
        let size = size_bytes(&stat);
        // Where the file has not its true size, the hash tells before the range matters.
        let room = room_for(range.end.min(size).saturating_sub(range.start))?;
        let (wanted, read, hash) =
            read_range(file, size, range, room).map_err(self.io_failed("read a blob"))?;
        if hash != blob.0 {
            return Err(self.damaged(blob, &stat, WRONG_HASH));
        }
        BlobError::check_range(blob, read, range)?;
        Ok(wanted.into())
    }

    /// Whether what is stored as `blob` is `content`. Where that cannot be told it is not.
    pub(crate) fn is_the_same(&self, blob: BlobRef, content: &[u8]) -> bool {
        let Ok((mut file, stat)) = self.find(blob) else {
            return false;
        };
        let mut piece = vec![0; content.len().min(PIECE_BYTES)];
        let is_next = |expected: &[u8]| {
            let piece = piece.get_mut(..expected.len()).unwrap_or_default();
            // Where it ends sooner by now, what stands there is not what was read.
            read_full(&mut file, piece).is_ok_and(|count| count == expected.len()) && piece == expected
        };
        size_bytes(&stat) == content.len() as u64 && content.chunks(PIECE_BYTES).all(is_next)
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
            Ok((file, stat)) if is_file(&stat) => Ok((opened(file), stat)),
            Ok((_, stat)) => Err(self.damaged(blob, &stat, NO_FILE)),
            Err(Errno::NOENT) => Err(BlobError::NotFound(blob)),
            Err(Errno::LOOP | Errno::NXIO) => {
                let stat = folder
                    .stat(&blob.0.to_string())
                    .map_err(self.failed("look for a blob"))?;
                // Where it is gone by now, there was none.
                let found = stat.filter(|stat| !is_file(stat));
                Err(found.map_or(BlobError::NotFound(blob), |stat| {
                    self.damaged(blob, &stat, NO_FILE)
                }))
            }
            Err(other) => Err(self.failed("open a blob")(other)),
        }
    }

    fn damaged(&self, blob: BlobRef, found: &Stat, what: &str) -> BlobError {
        match self.folder(blob) {
            Ok(Some(folder)) => self.corrupt(blob, &folder, found, what),
            Ok(None) => BlobError::NotFound(blob),
            Err(error) => error,
        }
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
            Err(self.shelf.damaged(self.blob, &self.stat, WRONG_HASH))
        }
    }
}

/// Whether a read that ended so says that the disk no longer has what was written: file systems with sums of their own say
/// the first, too, for what does not match them, and the others for what leads to it. It may pass (a cable, a server that
/// is away), so nothing is moved aside for it but where the content is at hand.
pub(crate) fn is_lost(error: &BlobError) -> bool {
    let BlobError::Io { source, .. } = error else {
        return false;
    };
    match Errno::from_io_error(source) {
        Some(Errno::IO | Errno::BADMSG) => true,
        #[cfg(target_os = "linux")]
        Some(Errno::UCLEAN) => true,
        _ => false,
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

/// Reads `size` bytes of `file` and hashes them: what of them lies in `range`, appended to `wanted`, how many there were,
/// and their hash. What was appended since is not read, so that it ends, and takes no more memory than it has.
fn read_range(
    mut file: impl Read,
    size: u64,
    range: &Range<u64>,
    mut wanted: Vec<u8>,
) -> io::Result<(Vec<u8>, u64, Hash)> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < size {
        let most = usize::try_from(size - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        let count = read_full(&mut file, piece.get_mut(..most).unwrap_or_default())?;
        let read = piece.get(..count).unwrap_or_default();
        if read.is_empty() {
            break;
        }
        hasher.update(read);
        wanted.extend_from_slice(overlap(read, at, range));
        at += count as u64;
    }
    Ok((wanted, at, hash_of(&hasher)))
}

/// Reads until `piece` is full or the file ends.
fn read_full(file: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{FsOptions, fs::layout};

    #[test]
    fn what_a_disk_has_lost_is_told_from_what_it_does_not_give_just_now() {
        let is_lost = |errno| is_lost(&layout::error("read a blob", Path::new("blobs"), errno));
        assert!([Errno::IO, Errno::BADMSG].into_iter().all(is_lost));
        #[cfg(target_os = "linux")]
        assert!(is_lost(Errno::UCLEAN));
        let other = [
            Errno::ACCESS,
            Errno::MFILE,
            Errno::NOMEM,
            Errno::ROFS,
            Errno::STALE,
        ];
        assert!(!other.into_iter().any(is_lost));
    }

    /// From its first byte to its last.
    #[test]
    fn what_is_stored_is_the_same_in_every_byte_and_as_long() {
        let parent = tempfile::tempdir().unwrap();
        let shelf = Arc::new(Shelf::open_or_new(&parent.path().join("blobs"), FsOptions::default()).unwrap());
        let whole = Bytes::from(vec![7; 2 * PIECE_BYTES + 5]);
        let blob = shelf.put(&Arc::default(), &whole).unwrap().blob;
        assert!(shelf.is_the_same(blob, &whole));
        for at in [0, PIECE_BYTES - 1, PIECE_BYTES, whole.len() - 1] {
            let mut other = whole.to_vec();
            other[at] = 8;
            assert!(!shelf.is_the_same(blob, &other), "{at}");
        }
        for length in [0, PIECE_BYTES, whole.len() - 1] {
            assert!(!shelf.is_the_same(blob, &whole[..length]), "{length}");
        }
        assert!(!shelf.is_the_same(blob, &[&whole[..], &[7]].concat()));
        assert!(!shelf.is_the_same(BlobRef(Hash::of(b"never put")), &whole));
    }

    /// A file can be longer than any memory, and takes no room on the disk.
    #[test]
    fn what_memory_does_not_hold_is_an_error() {
        for size in [1 << 60, u64::MAX] {
            let refused = room_for(size);
            assert!(
                matches!(refused, Err(BlobError::Memory { needed_bytes }) if needed_bytes == size),
                "{refused:?}"
            );
        }
        assert!(room_for(10).unwrap().capacity() >= 10);
    }

    /// Whoever appends to a file can do so for as long as it likes.
    #[test]
    fn of_a_file_that_grows_a_range_reads_what_there_was() {
        for size in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 5] {
            let (wanted, read, hash) =
                read_range(io::repeat(7), size as u64, &(1..u64::MAX), Vec::new()).unwrap();
            assert_eq!((wanted.len(), read), (size.saturating_sub(1), size as u64));
            assert_eq!(hash, Hash::of(&vec![7; size]));
        }
    }
}
