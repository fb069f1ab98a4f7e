//! Chance, for tests that try another course each time.

use portcullis_blobs::Hash;

/// A stream of numbers from a random start.
pub(crate) struct Chance(Hash);

impl Chance {
    pub(crate) fn new() -> Self {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).unwrap();
        Self(Hash::from_bytes(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = Hash::of(self.0.as_bytes());
        u64::from_le_bytes(self.0.as_bytes()[..8].try_into().unwrap())
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
