//! Hashing content in parts, which two threads can share.

use blake3::{
    Hasher,
    hazmat::{
        ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
    },
};
use bytes::Bytes;
use portcullis_types::Hash;

use super::parts::Parts;

/// How long a part is: what one thread does at a time. A power of two, so that each is a tree in the hash's tree
/// (BLAKE3, section 2.1); the last one may be shorter.
pub(super) const PART_BYTES: usize = 512 << 10;

/// From which size on calling a second thread is worth it: until one comes, a MiB is nearly hashed.
pub(super) const HELPED_BYTES: usize = 2 << 20;

/// What stands for a part in the hash of the whole: its number, counted from 0, and its value.
pub(super) type Value = (usize, ChainingValue);

/// The hash of content that lies in memory, while it is being found.
pub(super) struct Hashing {
    content: Bytes,
    /// Where there is enough for two.
    parts: Option<Parts<(usize, Bytes), Value>>,
}

impl Hashing {
    /// Lets another thread begin, where `content` is worth it.
    pub(super) fn begin(content: &Bytes) -> Self {
        Self {
            content: content.clone(),
            parts: (content.len() >= HELPED_BYTES).then(|| Parts::begin(parts_of(content), value_of)),
        }
    }

    /// Whether it is there, but for at most one part.
    pub(super) fn is_near(&self) -> bool {
        self.parts.as_ref().is_none_or(Parts::all_begun)
    }

    /// Does what is left, and gives the hash.
    pub(super) fn finish(self) -> Hash {
        let size_bytes = self.content.len() as u64;
        let values = self.parts.and_then(Parts::finish);
        values
            .and_then(|mut values| root(&mut values, size_bytes))
            // It is not worth two, or the other thread came to grief.
            .unwrap_or_else(|| Hash::of(&self.content))
    }
}

fn parts_of(content: &Bytes) -> Vec<(usize, Bytes)> {
    let starts = (0..content.len()).step_by(PART_BYTES);
    let parts = starts.map(|at| content.slice(at..content.len().min(at + PART_BYTES)));
    parts.enumerate().collect()
}

fn value_of((number, part): (usize, Bytes)) -> Value {
    let mut hasher = hasher_of(number);
    hasher.update(&part);
    (number, hasher.finalize_non_root())
}

/// A hasher for the part of that number.
pub(super) fn hasher_of(number: usize) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(number as u64 * PART_BYTES as u64);
    hasher
}

/// The hash of a whole of so many bytes, from all of its parts; `None` where that is one, or some are missing.
pub(super) fn root(values: &mut [Value], size_bytes: u64) -> Option<Hash> {
    if values.len() as u64 != size_bytes.div_ceil(PART_BYTES as u64) || values.len() < 2 {
        return None;
    }
    values.sort_unstable_by_key(|(number, _)| *number);
    let (left, right, left_bytes) = halve(values, size_bytes)?;
    let left = inner(left, left_bytes)?;
    let right = inner(right, size_bytes - left_bytes)?;
    let hash = merge_subtrees_root(&left, &right, Mode::Hash);
    Some(Hash::from_bytes(*hash.as_bytes()))
}

fn inner(values: &[Value], size_bytes: u64) -> Option<ChainingValue> {
    if let [(_, value)] = values {
        return Some(*value);
    }
    let (left, right, left_bytes) = halve(values, size_bytes)?;
    let left = inner(left, left_bytes)?;
    let right = inner(right, size_bytes - left_bytes)?;
    Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
}

/// Cut where the tree of the hash is, with the bytes on the left.
fn halve(values: &[Value], size_bytes: u64) -> Option<(&[Value], &[Value], u64)> {
    let left_bytes = left_subtree_len(size_bytes);
    let left = usize::try_from(left_bytes / PART_BYTES as u64).ok()?;
    let (left, right) = values.split_at_checked(left)?;
    Some((left, right, left_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_hash_in_any_number_of_parts() {
        let part = PART_BYTES;
        let content: Vec<u8> = (0..9 * part as u32 + 1)
            .map(|at| ((at * 31) >> 7) as u8)
            .collect();
        let content = Bytes::from(content);
        for size in [
            0,
            1_000,
            2 * part - 1,
            2 * part,
            2 * part + 1,
            3 * part + 12_345,
            5 * part,
            7 * part + 1,
            8 * part,
            content.len(),
        ] {
            let content = content.slice(..size);
            assert_eq!(Hashing::begin(&content).finish(), Hash::of(&content), "{size}");
        }
    }

    #[test]
    fn a_part_that_is_missing_gives_no_hash() {
        let value = (0, [0; 32]);
        assert_eq!(root(&mut [], 0), None);
        assert_eq!(root(&mut [value], 10), None);
        assert_eq!(root(&mut [value, (1, [1; 32])], 3 * PART_BYTES as u64), None);
    }
}
