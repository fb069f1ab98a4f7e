//! What was put lately, to tell beforehand whether it is likely to be there already.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many are remembered.
const KEPT: usize = 256;
/// At how many places content is looked at, and how much of it there.
const PLACES: usize = 16;
const PLACE_BYTES: usize = 64;

/// The marks of what was put last. They say what is probable and nothing more: what is there is told by its hash alone.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<VecDeque<Mark>>);

/// Tells content from other content, as a rule: its length, and what stands at a few places. Made in a microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    pub(super) fn of(content: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(content.len());
        let sections = content.chunks(content.len().div_ceil(PLACES).max(1));
        // Where the last section ends, too.
        for section in sections.chain(content.rchunks(PLACE_BYTES).take(1)) {
            hasher.write(section.get(..PLACE_BYTES).unwrap_or(section));
        }
        Self(hasher.finish())
    }
}

impl Recent {
    pub(super) fn has(&self, mark: Mark) -> bool {
        self.marks().contains(&mark)
    }

    /// Remembers `mark`, longer than all others.
    pub(super) fn add(&self, mark: Mark) {
        let mut marks = self.marks();
        match marks.iter().position(|known| *known == mark) {
            Some(at) => drop(marks.remove(at)),
            None if marks.len() == KEPT => drop(marks.pop_front()),
            None => {}
        }
        marks.push_back(mark);
    }

    fn marks(&self) -> MutexGuard<'_, VecDeque<Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_told_from_other_content_by_its_length_its_ends_and_places_between() {
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at >> 3) as u8).collect();
        let mark = Mark::of(&content);
        assert_eq!(Mark::of(&content.clone()), mark);
        assert_ne!(Mark::of(&content[..99_999]), mark);
        for at in [0, 50_000, 99_999] {
            let mut other = content.clone();
            other[at] ^= 1;
            assert_ne!(Mark::of(&other), mark, "{at}");
        }
        let short = [&b""[..], b"a", b"ab"].map(Mark::of);
        assert!(short[0] != short[1] && short[1] != short[2]);
    }

    #[test]
    fn the_last_ones_are_remembered_and_no_more() {
        let recent = Recent::default();
        let last = KEPT as u64 + 9;
        for number in 0..=last {
            recent.add(Mark(number));
            recent.add(Mark(number));
        }
        assert!(!recent.has(Mark(9)) && recent.has(Mark(10)) && recent.has(Mark(last)));
        assert_eq!(recent.marks().len(), KEPT);
        // What comes again and again is not forgotten for what comes once.
        recent.add(Mark(10));
        recent.add(Mark(last + 1));
        assert!(recent.has(Mark(10)) && !recent.has(Mark(11)));
    }
}
