//! Turns, medians, and how they are shown.

#![expect(clippy::print_stdout, reason = "the figures")]

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

/// In which order so many take their turns in a round: by chance, the same in each run, so that everyone comes after everyone
/// now and then. What was done just before can make a difference of a third.
pub(crate) fn turns<const N: usize>(round: usize) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..N).collect();
    turns.sort_by_cached_key(|turn| {
        let mut hasher = DefaultHasher::new();
        (round, turn).hash(&mut hasher);
        hasher.finish()
    });
    turns
}

/// What so many things took, each as often as it was measured.
pub(crate) struct Times<const N: usize>([Vec<Duration>; N]);

impl<const N: usize> Default for Times<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Vec::new()))
    }
}

impl<const N: usize> Times<N> {
    pub(crate) fn add(&mut self, at: usize, time: Duration) {
        if let Some(times) = self.0.get_mut(at) {
            times.push(time);
        }
    }

    pub(crate) fn medians(self) -> [Duration; N] {
        self.0.map(|mut times| {
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or_default()
        })
    }
}

pub(crate) fn row(name: &str, time: Duration, over: Option<Duration>, target: &str) {
    let ratio = over.map_or(String::new(), |over| {
        format!("{:>7.2} x", time.as_secs_f64() / over.as_secs_f64())
    });
    let target = if target.is_empty() {
        String::new()
    } else {
        format!("  (target {target})")
    };
    println!("  {name:<26}{time:>10.2?} {ratio}{target}");
}
