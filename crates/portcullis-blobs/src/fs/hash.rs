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

/// From which size on calling a second thread is worth it: until one comes, a MiB is nearly hashed.
pub(super) const HELPED_BYTES: usize = 2 << 20;

/// What stands for a part in the hash of the whole: its number, counted from 0, and its value.
pub(super) type Value = (usize, ChainingValue);

/// How content is cut into parts, each what one thread does at a time. Their length is a power of two, so that each is
/// a tree in the hash's tree (BLAKE3, section 2.1); the last one may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    size_bytes: u64,
    pub(super) part_bytes: usize,
}

/// The hash of content that lies in memory, while it is being found.
pub(super) struct Hashing {
    content: Bytes,
    /// Where there is enough for two.
    parts: Option<Parts<(usize, Bytes), Value>>,
}

impl Cut {
    pub(super) fn of(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            // Short enough that neither thread waits long for the other.
            part_bytes: if size_bytes < HELPED_BYTES as u64 {
                64 << 10
            } else {
                512 << 10
            },
        }
    }

    /// Where the part of that number begins.
    pub(super) fn start(self, number: usize) -> u64 {
        number as u64 * self.part_bytes as u64
    }

    /// A hasher for the part of that number.
    pub(super) fn hasher(self, number: usize) -> Hasher {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(self.start(number));
        hasher
    }

    fn parts(self, content: &Bytes) -> Vec<(usize, Bytes)> {
        let starts = (0..content.len()).step_by(self.part_bytes);
        let parts = starts.map(|at| content.slice(at..content.len().min(at + self.part_bytes)));
        parts.enumerate().collect()
    }

    fn value(self, (number, part): (usize, Bytes)) -> Value {
        let mut hasher = self.hasher(number);
        hasher.update(&part);
        (number, hasher.finalize_non_root())
    }

    /// The hash of the whole, from all of its parts; `None` where that is one, or some are missing.
    pub(super) fn root(self, values: &mut [Value]) -> Option<Hash> {
        let count = self.size_bytes.div_ceil(self.part_bytes as u64);
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
        let left = usize::try_from(left_bytes / self.part_bytes as u64).ok()?;
        let (left, right) = values.split_at_checked(left)?;
        let of = |size_bytes| Self { size_bytes, ..self };
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
    /// Lets another thread begin, where `content` is worth it.
    pub(super) fn begin(content: &Bytes) -> Self {
        let parts = (content.len() >= HELPED_BYTES).then(|| {
            let cut = Cut::of(content.len() as u64);
            Parts::begin(cut.parts(content), move |part| cut.value(part))
        });
        Self {
            content: content.clone(),
            parts,
        }
    }

    /// Whether it is there, but for at most one part.
    pub(super) fn is_near(&self) -> bool {
        self.parts.as_ref().is_none_or(Parts::all_begun)
    }

    /// Does what is left, and gives the hash.
    pub(super) fn finish(self) -> Hash {
        let values = self.parts.and_then(Parts::finish);
        values
            .and_then(|mut values| Cut::of(self.content.len() as u64).root(&mut values))
            // It is not worth two, or the other thread came to grief.
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
        let part = Cut::of(0).part_bytes;
        let large = Cut::of(u64::MAX).part_bytes;
        let content = content(9 * large + 1);
        for size in [
            part + 1,
            2 * part,
            5 * part,
            7 * part + 12_345,
            HELPED_BYTES - 1,
            HELPED_BYTES,
            HELPED_BYTES + 1,
            5 * large,
            7 * large + 1,
            8 * large,
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
        for size in [0, 1_000, HELPED_BYTES - 1, HELPED_BYTES, content.len()] {
            let content = content.slice(..size);
            assert_eq!(Hashing::begin(&content).finish(), Hash::of(&content), "{size}");
        }
    }

    #[test]
    fn a_part_that_is_missing_gives_no_hash() {
        let cut = Cut::of(3 * (64 << 10));
        let value = (0, [0; 32]);
        assert_eq!(Cut::of(0).root(&mut []), None);
        assert_eq!(Cut::of(10).root(&mut [value]), None);
        assert_eq!(cut.root(&mut [value, (1, [1; 32])]), None);
        assert!(cut.root(&mut [value, (1, [1; 32]), (2, [2; 32])]).is_some());
    }
}
