//! Hashing content in parts, which two threads can share.

use std::{iter, ops::Range};

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

/// How long a part is: what fits into a core's cache.
pub(super) const PART_BYTES: usize = 128 << 10;

/// How much at the end is cut into shorter parts, and how long those are: whoever is done first waits for the other no
/// longer than one of them takes. Short ones alone would take longer, since each costs something of its own.
const END_BYTES: usize = 2 * PART_BYTES;
const END_PART_BYTES: usize = 32 << 10;

/// What stands for a part in the hash of the whole: where the part begins, and its value.
pub(super) type Value = (u64, ChainingValue);

/// How content is cut into parts, each what one thread does at a time. Their lengths are powers of two and each begins at a
/// multiple of its own, so that each is a tree in the hash's tree (BLAKE3, section 2.1); the last one may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    size_bytes: u64,
}

/// The hash of content that lies in memory, while it is being found.
pub(super) struct Hashing {
    content: Bytes,
    parts: Parts<(u64, Bytes), Value>,
}

impl Cut {
    pub(super) fn of(size_bytes: u64) -> Self {
        Self { size_bytes }
    }

    /// Where each part begins and ends, from the first to the last.
    pub(super) fn parts(self) -> impl Iterator<Item = Range<u64>> {
        let long = PART_BYTES as u64;
        let end_start = self.size_bytes.saturating_sub(END_BYTES as u64) / long * long;
        let mut start = 0;
        iter::from_fn(move || {
            let length = if start < end_start {
                long
            } else {
                END_PART_BYTES as u64
            };
            let part = start..self.size_bytes.min(start + length);
            start = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// What stands for `part`, which begins there.
    pub(super) fn value(start: u64, part: &[u8]) -> Value {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(start);
        hasher.update(part);
        (start, hasher.finalize_non_root())
    }

    /// The hash of the whole, from all of its parts; `None` where that is one, or some are missing.
    pub(super) fn root(self, values: &mut [Value]) -> Option<Hash> {
        values.sort_unstable_by_key(|(start, _)| *start);
        let starts = values.iter().map(|(start, _)| *start);
        if values.len() < 2 || !starts.eq(self.parts().map(|part| part.start)) {
            return None;
        }
        let (left, right) = halve(0..self.size_bytes, values)?;
        let hash = merge_subtrees_root(&left, &right, Mode::Hash);
        Some(Hash::from_bytes(*hash.as_bytes()))
    }
}

/// What stands for each half of what lies there and is made of `values`, cut where the tree of the hash is.
fn halve(place: Range<u64>, values: &[Value]) -> Option<(ChainingValue, ChainingValue)> {
    let middle = place.start + left_subtree_len(place.end - place.start);
    let (left, right) = values.split_at(values.partition_point(|(start, _)| *start < middle));
    Some((
        inner(place.start..middle, left)?,
        inner(middle..place.end, right)?,
    ))
}

fn inner(place: Range<u64>, values: &[Value]) -> Option<ChainingValue> {
    match values {
        [] => None,
        [(_, value)] => Some(*value),
        _ => {
            let (left, right) = halve(place, values)?;
            Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
        }
    }
}

impl Hashing {
    /// Lets a helper begin, where one is free.
    pub(super) fn begin(content: &Bytes, helpers: &Helpers) -> Self {
        let mut rest = content.clone();
        let parts = Cut::of(content.len() as u64).parts().map(|part| {
            let length = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
            (part.start, rest.split_to(length.min(rest.len())))
        });
        Self {
            content: content.clone(),
            parts: Parts::begin(helpers, parts.collect(), |(start, part): (u64, Bytes)| {
                Cut::value(start, &part)
            }),
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
        // Beside each boundary of a part.
        let boundaries = (2..=9 * PART_BYTES / END_PART_BYTES).map(|count| count * END_PART_BYTES);
        let sizes = boundaries.flat_map(|size| [size - 1, size, size + 1]);
        for size in sizes.chain([7 * PART_BYTES + 12_345]) {
            let content = content.slice(..size);
            let cut = Cut::of(size as u64);
            let value =
                |part: Range<u64>| Cut::value(part.start, &content[part.start as usize..part.end as usize]);
            let mut values: Vec<_> = cut.parts().map(value).collect();
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
        assert_eq!(Cut::of(0).root(&mut []), None);
        assert_eq!(Cut::of(10).root(&mut [(0, [0; 32])]), None);
        let cut = Cut::of(3 * PART_BYTES as u64 + 5);
        let all: Vec<_> = cut.parts().map(|part| (part.start, [7; 32])).collect();
        assert!(cut.root(&mut all.clone()).is_some());
        for missing in 0..all.len() {
            let mut values = all.clone();
            values.remove(missing);
            assert_eq!(cut.root(&mut values), None, "{missing}");
            // Nor does another in its place.
            values.push(all[(missing + 1) % all.len()]);
            assert_eq!(cut.root(&mut values), None, "{missing}");
        }
    }

    #[test]
    fn parts_lie_side_by_side_and_only_the_last_ones_are_short() {
        for size in [
            0,
            1,
            END_PART_BYTES,
            PART_BYTES,
            END_BYTES,
            END_BYTES + PART_BYTES + 1,
            1 << 20,
        ] {
            let parts: Vec<_> = Cut::of(size as u64).parts().collect();
            let mut at = 0;
            for part in &parts {
                assert_eq!(part.start, at);
                at = part.end;
                let left = size - part.start as usize;
                if part.end - part.start > END_PART_BYTES as u64 {
                    assert!(left >= END_BYTES + PART_BYTES, "{size}: {part:?}");
                } else {
                    assert!(left < END_BYTES + PART_BYTES, "{size}: {part:?}");
                }
            }
            assert_eq!(at, size as u64);
        }
    }
}
