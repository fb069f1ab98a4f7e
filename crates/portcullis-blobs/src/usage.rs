//! How much is stored, and whether more may be.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{BlobError, Limits};

/// Others may store on the same medium, of whom nothing is known here. So it is counted anew after so much of the room that
/// was left was taken,
const SHARE_OF_ROOM: u64 = 8;
/// where little room is left, after so much of the quota,
const SHARE_OF_QUOTA: u64 = 1_024;
/// and after this time, whatever was stored,
const LONGEST: Duration = Duration::from_secs(1);
/// or so many times what counting takes.
const TIMES_COUNTING: u32 = 64;

/// For each so many bytes of a quota there may be one blob,
const BYTES_OF_ONE: u64 = 4_096;
/// and so many in any case. A file takes a block and an inode however little is in it, and a quota that took no notice
/// would let the disk be filled with empty room.
const LEAST_BLOBS: u64 = 1_024;

/// So many blobs, and what is in them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) blobs: u64,
    pub(crate) bytes: u64,
}

/// What one store holds and is about to hold.
#[derive(Debug)]
pub(crate) struct Usage {
    limits: Limits,
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    stored: Amount,
    /// All that was ever stored by this process.
    kept: Amount,
    /// How much more this process may store until it is counted anew.
    unseen: Amount,
    /// When it is, whatever was stored.
    due: Option<Instant>,
    /// When it was begun to count last.
    counted: Option<Instant>,
    // INVARIANT: the sum of all living reservations.
    reserved: Amount,
}

/// What is stored is being counted on the medium, which takes a while.
#[derive(Debug)]
pub(crate) struct Counting {
    kept: Amount,
    began: Instant,
}

/// Room that one writer holds: for no blob before it has grown, then for one. Dropped without `keep`, it is given back.
#[derive(Debug)]
pub(crate) struct Reservation {
    usage: Arc<Usage>,
    amount: Amount,
}

impl Amount {
    /// One blob more.
    pub(crate) fn add(&mut self, bytes: u64) {
        *self = self.plus(Self { blobs: 1, bytes });
    }

    fn plus(self, other: Self) -> Self {
        Self {
            blobs: self.blobs.saturating_add(other.blobs),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            blobs: self.blobs.saturating_sub(other.blobs),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// How much of either may come, where this is there and `of` may be at most, before it is counted anew.
    fn shares(self, of: Self) -> Self {
        let share = |room: u64, all: u64| (room / SHARE_OF_ROOM).max(all / SHARE_OF_QUOTA);
        let room = of.minus(self);
        Self {
            blobs: share(room.blobs, of.blobs),
            bytes: share(room.bytes, of.bytes),
        }
    }
}

impl Usage {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            count: Mutex::default(),
        })
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Sets what is stored to what is known for certain.
    pub(crate) fn set_stored(&self, amount: Amount) {
        self.count().stored = amount;
    }

    /// What there may be at most.
    fn most(&self) -> Amount {
        let bytes = self.limits.quota_bytes.unwrap_or(u64::MAX);
        Amount {
            blobs: (bytes / BYTES_OF_ONE).max(LEAST_BLOBS),
            bytes,
        }
    }

    /// Counting begins. One does it at a time.
    pub(crate) fn begin_counting(&self) -> Counting {
        Counting {
            kept: self.count().kept,
            began: Instant::now(),
        }
    }

    /// Counting has ended, with this.
    pub(crate) fn end_counting(&self, counting: &Counting, amount: Amount) {
        let now = Instant::now();
        let mut count = self.count();
        // What was stored meanwhile may have been counted or not.
        let meanwhile = count.kept.minus(counting.kept);
        count.stored = amount.plus(meanwhile);
        count.unseen = count.stored.shares(self.most());
        let took = now.saturating_duration_since(counting.began);
        count.counted = Some(counting.began);
        count.due = now.checked_add(LONGEST.max(took.saturating_mul(TIMES_COUNTING)));
    }

    /// Whether it was counted, all of it after `since`.
    pub(crate) fn is_counted(&self, since: Instant) -> bool {
        self.count().counted > Some(since)
    }

    /// Whether it was ever counted.
    pub(crate) fn was_counted(&self) -> bool {
        self.count().counted.is_some()
    }

    /// Whether it is time to count anew.
    pub(crate) fn is_due(&self) -> bool {
        let count = self.count();
        count.unseen.bytes == 0
            || count.unseen.blobs == 0
            || count.due.is_some_and(|due| due <= Instant::now())
    }

    /// Whether there is room for `bytes` now. None is taken.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let count = self.count();
        let used = count.stored.plus(count.reserved);
        let most = self.most();
        used.blobs < most.blobs && used.bytes.saturating_add(bytes) <= most.bytes
    }

    pub(crate) fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation {
            usage: Arc::clone(self),
            amount: Amount::default(),
        }
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Takes room for `more` bytes.
    pub(crate) fn grow(&mut self, more: u64) -> Result<(), BlobError> {
        let more = Amount {
            blobs: 1_u64.saturating_sub(self.amount.blobs),
            bytes: more,
        };
        let total = self.amount.plus(more);
        if total.bytes > self.usage.limits.max_blob_bytes {
            return Err(BlobError::TooLarge {
                limit_bytes: self.usage.limits.max_blob_bytes,
            });
        }
        let mut count = self.usage.count();
        if let Some(quota_bytes) = self.usage.limits.quota_bytes {
            let used = count.stored.plus(count.reserved);
            let (needed, most) = (used.plus(more), self.usage.most());
            if needed.bytes > most.bytes {
                return Err(BlobError::Quota {
                    quota_bytes,
                    used_bytes: used.bytes,
                    needed_bytes: more.bytes,
                });
            }
            if needed.blobs > most.blobs {
                return Err(BlobError::TooMany {
                    quota_bytes,
                    most_blobs: most.blobs,
                });
            }
        }
        count.reserved = count.reserved.plus(more);
        self.amount = total;
        Ok(())
    }

    /// What was reserved is now stored.
    pub(crate) fn keep(mut self) {
        let amount = std::mem::take(&mut self.amount);
        let mut count = self.usage.count();
        count.reserved = count.reserved.minus(amount);
        count.stored = count.stored.plus(amount);
        count.kept = count.kept.plus(amount);
        count.unseen = count.unseen.minus(amount);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut count = self.usage.count();
        count.reserved = count.reserved.minus(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_is_not_kept_is_given_back() {
        let usage = Usage::new(Limits {
            max_blob_bytes: 8,
            quota_bytes: Some(10),
        });
        let mut kept = usage.reservation();
        kept.grow(6).unwrap();
        assert!(matches!(
            usage.reservation().grow(5),
            Err(BlobError::Quota { used_bytes: 6, .. })
        ));
        kept.keep();

        let mut dropped = usage.reservation();
        dropped.grow(4).unwrap();
        assert!(usage.reservation().grow(1).is_err());
        drop(dropped);
        usage.reservation().grow(4).unwrap();
        assert!(matches!(
            usage.reservation().grow(9),
            Err(BlobError::TooLarge { limit_bytes: 8 })
        ));
    }

    fn store(usage: &Arc<Usage>, bytes: u64) {
        let mut room = usage.reservation();
        room.grow(bytes).unwrap();
        room.keep();
    }

    fn in_one(bytes: u64) -> Amount {
        Amount { blobs: 1, bytes }
    }

    fn with_quota(quota_bytes: u64) -> Arc<Usage> {
        Usage::new(Limits {
            quota_bytes: Some(quota_bytes),
            ..Limits::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_counted_anew_after_a_part_of_the_room_or_a_time() {
        let usage = with_quota(10_240);
        for (stored, may_store) in [(2_240, 1_000), (10_200, 10)] {
            usage.end_counting(&usage.begin_counting(), in_one(stored));
            store(&usage, may_store - 1);
            assert!(!usage.is_due());
            store(&usage, 1);
            assert!(usage.is_due());
        }
        for (takes_ms, after_ms) in [(0, 1_000), (10, 1_000), (100, 6_400)] {
            let counting = usage.begin_counting();
            tokio::time::advance(Duration::from_millis(takes_ms)).await;
            usage.end_counting(&counting, Amount::default());
            tokio::time::advance(Duration::from_millis(after_ms - 1)).await;
            assert!(!usage.is_due());
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(usage.is_due());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_counted_anew_after_a_part_of_the_number_of_blobs() {
        let usage = with_quota(1 << 30);
        let most = 1 << 18;
        for (blobs, may_store) in [(most - 800, 256), (most, 256)] {
            usage.end_counting(&usage.begin_counting(), Amount { blobs, bytes: 0 });
            usage.count().stored.blobs = 0;
            (1..may_store).for_each(|_| store(&usage, 1));
            assert!(!usage.is_due());
            store(&usage, 1);
            assert!(usage.is_due());
        }
    }

    #[test]
    fn a_quota_bounds_how_many_blobs_there_are() {
        for (quota_bytes, most) in [(1, 1_024), (1_024 * 4_096, 1_024), (1_025 * 4_096, 1_025)] {
            let usage = with_quota(quota_bytes);
            usage.set_stored(Amount {
                blobs: most - 1,
                bytes: 0,
            });
            assert!(usage.has_room(0));
            let mut last = usage.reservation();
            last.grow(1).unwrap();
            // However it grows it is one.
            last.grow(0).unwrap();
            let refused = usage.reservation().grow(0);
            assert!(
                matches!(refused, Err(BlobError::TooMany { most_blobs, .. }) if most_blobs == most),
                "{refused:?}"
            );
            assert!(!usage.has_room(0));
            drop(last);
            let mut last = usage.reservation();
            last.grow(0).unwrap();
            last.keep();
            assert!(usage.reservation().grow(0).is_err());
        }
        let usage = Usage::new(Limits::default());
        usage.set_stored(Amount {
            blobs: u64::MAX,
            bytes: 0,
        });
        usage.reservation().grow(0).unwrap();
    }

    /// What was looked at before it asked may have changed since.
    #[tokio::test(start_paused = true)]
    async fn who_asks_while_it_is_counted_is_not_answered_by_that() {
        let usage = with_quota(1_000);
        let tick = || tokio::time::advance(Duration::from_millis(1));
        let before = Instant::now();
        tick().await;
        let counting = usage.begin_counting();
        tick().await;
        let meanwhile = Instant::now();
        tick().await;
        usage.end_counting(&counting, Amount::default());
        assert!(usage.is_counted(before) && !usage.is_counted(meanwhile));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_stored_while_it_is_counted_is_not_lost() {
        let usage = with_quota(1_000);
        store(&usage, 100);
        let counting = usage.begin_counting();
        store(&usage, 300);
        usage.end_counting(&counting, in_one(100));
        assert!(matches!(
            usage.reservation().grow(601),
            Err(BlobError::Quota { used_bytes: 400, .. })
        ));
        usage.reservation().grow(600).unwrap();
    }
}
