//! Memory for what is read, used again: to be given new memory takes about as long as to read into it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

/// How many are kept, and how large one may be: 4 MiB together.
const KEPT: usize = 2;
pub(super) const LARGEST_BYTES: usize = 2 << 20;

/// What was read into and is no longer needed. What stands in it is never seen again.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<BytesMut>>);

/// Content that lies in one of them, which comes back when the last look at it is gone.
struct Lent {
    content: BytesMut,
    spare: BytesMut,
    home: Arc<Buffers>,
}

impl Buffers {
    /// `size` bytes that are to be written over, since anything may stand in them, and what there is beyond.
    pub(super) fn take(&self, size: usize) -> (BytesMut, BytesMut) {
        let mut kept = self.kept();
        // None that is much too large: whoever holds on to the content holds on to all of it.
        let fits = |buffer: &BytesMut| (size..=2 * size).contains(&buffer.len());
        let found = kept.iter().rposition(fits);
        let mut buffer = match found {
            Some(at) => kept.swap_remove(at),
            None => BytesMut::zeroed(size),
        };
        drop(kept);
        let spare = buffer.split_off(size);
        (buffer, spare)
    }

    /// Hands out what was read into room that was taken here.
    pub(super) fn lend(self: &Arc<Self>, content: BytesMut, spare: BytesMut) -> Bytes {
        Bytes::from_owner(Lent {
            content,
            spare,
            home: Arc::clone(self),
        })
    }

    /// Keeps the largest.
    fn give_back(&self, buffer: BytesMut) {
        let mut kept = self.kept();
        if buffer.len() <= LARGEST_BYTES {
            kept.push(buffer);
            kept.sort_unstable_by_key(|buffer| std::cmp::Reverse(buffer.len()));
            kept.truncate(KEPT);
        }
    }

    #[cfg(test)]
    pub(super) fn were_used(&self) -> bool {
        !self.kept().is_empty()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.content);
        // They lie side by side, so nothing is copied.
        buffer.unsplit(std::mem::take(&mut self.spare));
        self.home.give_back(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lend(buffers: &Arc<Buffers>, size: usize) -> Bytes {
        let (content, spare) = buffers.take(size);
        assert_eq!(content.len(), size);
        buffers.lend(content, spare)
    }

    #[test]
    fn a_buffer_comes_back_whole_when_nobody_looks_at_it() {
        let buffers = Arc::new(Buffers::default());
        let first = lend(&buffers, 1_000);
        let place = first.as_ptr();
        let slice = first.slice(10..20);
        drop(first);
        // Somebody looks at it still.
        assert_ne!(lend(&buffers, 1_000).as_ptr(), place);
        buffers.kept().clear();
        drop(slice);
        let second = lend(&buffers, 600);
        assert_eq!((second.as_ptr(), second.len()), (place, 600));
        drop(second);
        assert_eq!(lend(&buffers, 1_000).as_ptr(), place);
    }

    #[test]
    fn few_are_kept_and_none_that_is_large() {
        let buffers = Arc::new(Buffers::default());
        let all = [1_000, 3_000, 2_000, LARGEST_BYTES + 1].map(|size| lend(&buffers, size));
        drop(all);
        let kept: Vec<_> = buffers.kept().iter().map(|buffer| buffer.len()).collect();
        assert_eq!(kept, [3_000, 2_000]);
        let places = [3_000, 2_000, 1_000, 999].map(|size| (lend(&buffers, size), size));
        let kept: Vec<_> = buffers.kept().iter().map(|buffer| buffer.len()).collect();
        assert!(kept.is_empty(), "{kept:?}");
        drop(places);
        let small = lend(&buffers, 999);
        assert_eq!(buffers.kept().len(), KEPT);
        drop(small);
    }
}
