//! Reading all of a blob into memory, and hashing it on the way.

use std::{fs::File, io, sync::Arc};

use bytes::{Bytes, BytesMut};
use portcullis_types::Hash;
use rustix::{buffer::spare_capacity, io::Errno};
use tokio::time::Instant;

use super::{
    buffers::Buffers,
    hash::{Cut, Value},
    helper::Helpers,
    parts::Parts,
};

/// Whether reading may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    ForDisk,
    /// What is not in memory is an error: `AGAIN`, or another where it cannot be told what is.
    Never,
}

/// A large blob on its way into memory: two threads read it, and each hashes what it has read itself.
pub(super) struct Whole {
    size: u64,
    parts: Parts<(u64, BytesMut), io::Result<Part>>,
    /// Of the memory what the blob does not need.
    spare: BytesMut,
    buffers: Arc<Buffers>,
}

/// A part that was read, with its value in the hash.
type Part = (BytesMut, Value);

impl Whole {
    /// Begins with `size` bytes of `file`, more than one part of them. What was appended since is not read.
    pub(super) fn begin(
        file: File,
        size: u64,
        wait: Wait,
        buffers: &Arc<Buffers>,
        helpers: &Helpers,
    ) -> Self {
        let (mut rest, spare) = buffers.take(usize::try_from(size).unwrap_or(0));
        let parts = Cut::of(size).parts().map(|part| {
            let length = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
            (part.start, rest.split_to(length.min(rest.len())))
        });
        let parts = Parts::begin(helpers, parts.collect(), move |(start, mut part)| {
            fill(&file, start, &mut part, wait)?;
            let value = Cut::value(start, &part);
            Ok((part, value))
        });
        Self {
            size,
            parts,
            spare,
            buffers: Arc::clone(buffers),
        }
    }

    /// Reads what is left, and gives the content and its hash.
    pub(super) fn finish(self) -> io::Result<(Bytes, Hash)> {
        let parts = self.parts.finish();
        joined(self.size, parts, self.spare, &self.buffers)
    }

    /// The same, where that is done by `deadline`, or a moment later; else it is given up.
    pub(super) fn finish_by(self, deadline: Instant) -> Option<io::Result<(Bytes, Hash)>> {
        let parts = self.parts.finish_by(deadline)?;
        Some(joined(self.size, Some(parts), self.spare, &self.buffers))
    }
}

fn joined(
    size: u64,
    parts: Option<Vec<io::Result<Part>>>,
    spare: BytesMut,
    buffers: &Arc<Buffers>,
) -> io::Result<(Bytes, Hash)> {
    let lost = || io::Error::other("the thread that helped to read it came to grief or hangs; try again");
    let parts: io::Result<Vec<_>> = parts.ok_or_else(lost)?.into_iter().collect();
    let mut parts = parts?;
    parts.sort_unstable_by_key(|(_, (start, _))| *start);
    let mut values: Vec<Value> = parts.iter().map(|(_, value)| *value).collect();
    let hash = Cut::of(size).root(&mut values).ok_or_else(lost)?;
    let mut content = BytesMut::new();
    // They lie side by side, so nothing is copied.
    parts.into_iter().for_each(|(part, _)| content.unsplit(part));
    Ok((buffers.lend(content, spare), hash))
}

/// Reads `size` bytes of `file` into `content`, which has room for them, on this thread alone. What was appended since is not
/// read: the hash then tells.
pub(super) fn read(file: &File, mut content: Vec<u8>, size: u64) -> io::Result<(Bytes, Hash)> {
    while (content.len() as u64) < size {
        let at = content.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut content), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
    }
    content.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    let hash = Hash::of(&content);
    Ok((content.into(), hash))
}

/// Fills `part` with what stands in `file` from `start` on. Where the file was cut short since, with zeros.
pub(super) fn fill(file: &File, start: u64, part: &mut [u8], wait: Wait) -> Result<(), Errno> {
    let mut filled = 0;
    while let Some(rest) = part.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read_some(file, start + filled as u64, rest, wait) {
            // What stood there before is not what was read.
            Ok(0) => {
                rest.fill(0);
                break;
            }
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn read_some(file: &File, at: u64, part: &mut [u8], wait: Wait) -> Result<usize, Errno> {
    match wait {
        Wait::ForDisk => rustix::io::pread(file, part, at),
        #[cfg(target_os = "linux")]
        Wait::Never => {
            let flags = rustix::io::ReadWriteFlags::NOWAIT;
            rustix::io::preadv2(file, &mut [io::IoSliceMut::new(part)], at, flags)
        }
        #[cfg(not(target_os = "linux"))]
        Wait::Never => Err(Errno::NOSYS),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::fs::hash::{HELPED_BYTES, PART_BYTES};

    /// Memory that is used again holds what others read: none of that may be taken for the file's.
    #[test]
    fn where_a_file_was_cut_short_nothing_that_was_read_before_stands() {
        let size = HELPED_BYTES + 2 * PART_BYTES;
        for left in [0, 1, PART_BYTES, PART_BYTES + 1, size - 1] {
            let buffers = Arc::new(Buffers::default());
            let (mut before, spare) = buffers.take(size);
            before.fill(0xAA);
            drop(buffers.lend(before, spare));

            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![1; left]).unwrap();
            let helpers = Helpers::at_most(0);
            let whole = Whole::begin(file, size as u64, Wait::ForDisk, &buffers, &helpers);
            let (content, hash) = whole.finish().unwrap();
            let mut expected = vec![1; left];
            expected.resize(size, 0);
            assert!(content == expected, "{left}");
            assert_eq!(hash, Hash::of(&expected), "{left}");
        }
    }
}
