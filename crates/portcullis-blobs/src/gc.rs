//! What collecting garbage is told, and what it tells.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use portcullis_types::BlobRef;

/// How garbage is collected.
///
/// A blob goes when no [`Tag`](crate::Tag) keeps it, no living session holds it and it was put longer than
/// [`retention`](Self::retention) ago. Only the last depends on a clock: a clock that jumps can shorten or lengthen
/// the retention and the life of tags that expire, and can never take what a session holds or a lasting tag keeps.
#[derive(Debug, Clone)]
pub struct GcOptions {
    /// What time it is, in milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// How long what nothing keeps stays all the same; 7 days.
    pub retention: Duration,
    /// Only say what would go.
    pub dry_run: bool,
    /// Follows the work, for those who show it.
    pub progress: Progress,
}

impl GcOptions {
    /// The defaults, at `now_ms` milliseconds since the Unix epoch.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        Self {
            now_ms,
            retention: Duration::from_secs(7 * 24 * 3600),
            dry_run: false,
            progress: Progress::default(),
        }
    }

    /// Whether what was last put at `stored_ms` is past its retention. What seems to come from the future is not.
    pub(crate) fn is_past(&self, stored_ms: i64) -> bool {
        let age_ms = i128::from(self.now_ms) - i128::from(stored_ms);
        u128::try_from(age_ms).is_ok_and(|age_ms| age_ms >= self.retention.as_millis())
    }
}

/// What became of a store's garbage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// How many blobs were looked at.
    pub examined: u64,
    /// How many went, or would go.
    pub removed: u64,
    /// What they took, in bytes.
    pub removed_bytes: u64,
    /// How many tags had expired and went, or would go.
    pub expired_tags: u64,
    /// How many of the store's parts were left alone because writers kept them busy; the next run sees to them.
    pub busy_parts: u64,
}

/// Follows long work from outside: cheap to clone, all clones show the same.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// How much is done, and of how much. The total is 0 before it is known.
    #[must_use]
    pub fn get(&self) -> (u64, u64) {
        (
            self.0.done.load(Ordering::Relaxed),
            self.0.total.load(Ordering::Relaxed),
        )
    }

    /// Begins anew, with so much to do.
    pub fn begin(&self, total: u64) {
        self.0.done.store(0, Ordering::Relaxed);
        self.0.total.store(total, Ordering::Relaxed);
    }

    /// Counts some as done.
    pub fn advance(&self, by: u64) {
        self.0.done.fetch_add(by, Ordering::Relaxed);
    }
}

/// A blob in a list of them. Its content was not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobEntry {
    /// Its name.
    pub blob: BlobRef,
    /// Its size in bytes, as the medium has it.
    pub size_bytes: u64,
    /// When it was last put, in milliseconds since the Unix epoch, where the medium knows.
    pub stored_ms: Option<i64>,
}

/// What a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many blobs.
    pub blobs: u64,
    /// What they take together, in bytes of content.
    pub size_bytes: u64,
    /// How many tags.
    pub tags: u64,
    /// How many damaged or planted files were set aside.
    pub quarantined: u64,
    /// What all blobs together may take, in bytes.
    pub quota_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_survives_any_clock() {
        let check = |now_ms, stored_ms, past: bool| {
            let options = GcOptions {
                retention: Duration::from_millis(100),
                ..GcOptions::at(now_ms)
            };
            assert_eq!(options.is_past(stored_ms), past, "{now_ms} {stored_ms}");
        };
        check(1_000, 900, true);
        check(1_000, 901, false);
        check(1_000, 2_000, false);
        check(i64::MIN, i64::MAX, false);
        check(i64::MAX, i64::MIN, true);
    }
}
