//! Hashing content in parts, which two threads can share.

use blake3::{
    Hasher,
    hazmat::{
        ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
    },
};
use bytes::Bytes;
use portcullis_types::Hash;

use super::{helper::Helpers, parts::Parts};

/// From which size of content on a helper is asked.
pub(super) const HELPED_BYTES: usize = 512 << 10;

/// How long a part is: what fits into a core's cache, and is short enough that no thread waits long for another.
pub(super) const PART_BYTES: usize = 128 << 10;

/// What stands for a part in the hash of the whole: its number, counted from 0, and its value.
pub(super) type Value = (usize, ChainingValue);

/// How content is cut into parts, each what one thread does at a time. Their length is a power of two, so that each is
/// a tree in the hash's tree (BLAKE3, section 2.1); the last one may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    size_bytes: u64,
}

/// The hash of content that lies in memory, while it is being found.
pub(super) struct Hashing {
    content: Bytes,
    parts: Parts<(usize, Bytes), Value>,
}

impl Cut {
    pub(super) fn of(size_bytes: u64) -> Self {
        Self { size_bytes }
    }

    /// Where the part of that number begins.
    pub(super) fn start(self, number: usize) -> u64 {
        number as u64 * PART_BYTES as u64
    }

    /// A hasher for the part of that number.
    pub(super) fn hasher(self, number: usize) -> Hasher {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(self.start(number));
        hasher
    }

    fn parts(self, content: &Bytes) -> Vec<(usize, Bytes)> {
        let starts = (0..content.len()).step_by(PART_BYTES);
        let parts = starts.map(|at| content.slice(at..content.len().min(at + PART_BYTES)));
        parts.enumerate().collect()
    }

    fn value(self, (number, part): (usize, Bytes)) -> Value {
        let mut hasher = self.hasher(number);
        hasher.update(&part);
        (number, hasher.finalize_non_root())
    }

    /// The hash of the whole, from all of its parts; `None` where that is one, or some are missing.
    pub(super) fn root(self, values: &mut [Value]) -> Option<Hash> {
        let count = self.size_bytes.div_ceil(PART_BYTES as u64);
        if values.len() as u64 != count || values.len() < 2 {
            return None;
        }
        values.sort_unstable_by_key(|(number, _)| *number);
        let (left, right) = self.halve(values)?;
        let hash = merge_subtrees_root(&left, &right, Mode::Hash);
        Some(Hash::from_bytes(*hash.as_bytes()))
    }

    /// What stands for each half of `values`, cut where the tree of the hash is.
    fn halve(self, values: &[Value]) -> Option<(ChainingValue, ChainingValue)> {
        let left_bytes = left_subtree_len(self.size_bytes);
        let left = usize::try_from(left_bytes / PART_BYTES as u64).ok()?;
        let (left, right) = values.split_at_checked(left)?;
        let of = |size_bytes| Self { size_bytes };
        Some((
            of(left_bytes).inner(left)?,
            of(self.size_bytes - left_bytes).inner(right)?,
        ))
    }

    fn inner(self, values: &[Value]) -> Option<ChainingValue> {
        if let [(_, value)] = values {
            return Some(*value);
        }
        let (left, right) = self.halve(values)?;
        Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
    }
}

impl Hashing {
    /// Lets a helper begin, where one is free.
    pub(super) fn begin(content: &Bytes, helpers: &Helpers) -> Self {
        let cut = Cut::of(content.len() as u64);
        Self {
            content: content.clone(),
            parts: Parts::begin(helpers, cut.parts(content), move |part| cut.value(part)),
        }
    }

    /// Whether a helper is at it or on its way.
    pub(super) fn is_asked(&self) -> bool {
        self.parts.is_asked()
    }

    /// Whether a helper is at it.
    pub(super) fn is_helped(&self) -> bool {
        self.parts.is_helped()
    }

    /// Hashes the next part here.
    pub(super) fn step(&self) {
        self.parts.step();
    }

    /// Whether it is there.
    pub(super) fn is_done(&mut self) -> bool {
        self.parts.is_done()
    }

    /// Does what is left, and gives the hash.
    pub(super) fn finish(self) -> Hash {
        let values = self.parts.finish();
        values
            .and_then(|mut values| Cut::of(self.content.len() as u64).root(&mut values))
            // It is one part, or the helper came to grief or hangs.
            .unwrap_or_else(|| Hash::of(&self.content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(size: usize) -> Bytes {
        let content: Vec<u8> = (0..size as u32).map(|at| ((at * 31) >> 7) as u8).collect();
        content.into()
    }

    #[test]
    fn it_is_the_same_hash_in_any_number_of_parts() {
        let content = content(9 * PART_BYTES + 1);
        let helpers = Helpers::at_most(1);
        for size in [
            PART_BYTES + 1,
            2 * PART_BYTES,
            5 * PART_BYTES,
            7 * PART_BYTES + 12_345,
            8 * PART_BYTES,
            content.len(),
        ] {
            let content = content.slice(..size);
            let cut = Cut::of(size as u64);
            let mut values: Vec<_> = cut
                .parts(&content)
                .into_iter()
                .map(|part| cut.value(part))
                .collect();
            values.reverse();
            assert_eq!(cut.root(&mut values), Some(Hash::of(&content)), "{size}");
        }
        for size in [0, 1_000, PART_BYTES, PART_BYTES + 1, content.len()] {
            let content = content.slice(..size);
            let hashing = Hashing::begin(&content, &helpers);
            assert_eq!(hashing.finish(), Hash::of(&content), "{size}");
        }
    }

    #[test]
    fn a_part_that_is_missing_gives_no_hash() {
        let cut = Cut::of(3 * PART_BYTES as u64);
        let value = (0, [0; 32]);
        assert_eq!(Cut::of(0).root(&mut []), None);
        assert_eq!(Cut::of(10).root(&mut [value]), None);
        assert_eq!(cut.root(&mut [value, (1, [1; 32])]), None);
        assert!(cut.root(&mut [value, (1, [1; 32]), (2, [2; 32])]).is_some());
    }
}
