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

/// What one store holds and is about to hold, in bytes.
#[derive(Debug)]
pub(crate) struct Usage {
    limits: Limits,
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    stored: u64,
    /// All that was ever stored by this process.
    kept: u64,
    /// How much more this process may store until it is counted anew.
    unseen: u64,
    /// When it is, whatever was stored.
    due: Option<Instant>,
    /// When it was begun to count last.
    counted: Option<Instant>,
    // INVARIANT: the sum of all living reservations.
    reserved: u64,
}

/// What is stored is being counted on the medium, which takes a while.
#[derive(Debug)]
pub(crate) struct Counting {
    kept: u64,
    began: Instant,
}

/// Room that one writer holds. Dropped without `keep`, it is given back.
#[derive(Debug)]
pub(crate) struct Reservation {
    usage: Arc<Usage>,
    bytes: u64,
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
    pub(crate) fn set_stored(&self, bytes: u64) {
        self.count().stored = bytes;
    }

    /// Counting begins. One does it at a time.
    pub(crate) fn begin_counting(&self) -> Counting {
        Counting {
            kept: self.count().kept,
            began: Instant::now(),
        }
    }

    /// Counting has ended, with this.
    pub(crate) fn end_counting(&self, counting: &Counting, bytes: u64) {
        let quota = self.limits.quota_bytes.unwrap_or(u64::MAX);
        let now = Instant::now();
        let mut count = self.count();
        // What was stored meanwhile may have been counted or not.
        let meanwhile = count.kept.saturating_sub(counting.kept);
        count.stored = bytes.saturating_add(meanwhile);
        let room = quota.saturating_sub(count.stored);
        count.unseen = (room / SHARE_OF_ROOM).max(quota / SHARE_OF_QUOTA);
        let took = now.saturating_duration_since(counting.began);
        count.counted = Some(counting.began);
        count.due = now.checked_add(LONGEST.max(took.saturating_mul(TIMES_COUNTING)));
    }

    /// Whether it was counted, all of it after `since`.
    pub(crate) fn is_counted(&self, since: Instant) -> bool {
        self.count().counted > Some(since)
    }

    /// Whether it is time to count anew.
    pub(crate) fn is_due(&self) -> bool {
        let count = self.count();
        count.unseen == 0 || count.due.is_some_and(|due| due <= Instant::now())
    }

    /// Whether there is room for `bytes` now. None is taken.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let count = self.count();
        let used = count.stored.saturating_add(count.reserved);
        let quota = self.limits.quota_bytes.unwrap_or(u64::MAX);
        used.saturating_add(bytes) <= quota
    }

    pub(crate) fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation {
            usage: Arc::clone(self),
            bytes: 0,
        }
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Takes room for `more` bytes.
    pub(crate) fn grow(&mut self, more: u64) -> Result<(), BlobError> {
        let total = self.bytes.saturating_add(more);
        if total > self.usage.limits.max_blob_bytes {
            return Err(BlobError::TooLarge {
                limit_bytes: self.usage.limits.max_blob_bytes,
            });
        }
        let mut count = self.usage.count();
        if let Some(quota_bytes) = self.usage.limits.quota_bytes {
            let used_bytes = count.stored.saturating_add(count.reserved);
            if used_bytes.saturating_add(more) > quota_bytes {
                return Err(BlobError::Quota {
                    quota_bytes,
                    used_bytes,
                    needed_bytes: more,
                });
            }
        }
        count.reserved = count.reserved.saturating_add(more);
        self.bytes = total;
        Ok(())
    }

    /// What was reserved is now stored.
    pub(crate) fn keep(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut count = self.usage.count();
        count.reserved = count.reserved.saturating_sub(bytes);
        count.stored = count.stored.saturating_add(bytes);
        count.kept = count.kept.saturating_add(bytes);
        count.unseen = count.unseen.saturating_sub(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut count = self.usage.count();
        count.reserved = count.reserved.saturating_sub(self.bytes);
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
            usage.end_counting(&usage.begin_counting(), stored);
            store(&usage, may_store - 1);
            assert!(!usage.is_due());
            store(&usage, 1);
            assert!(usage.is_due());
        }
        for (takes_ms, after_ms) in [(0, 1_000), (10, 1_000), (100, 6_400)] {
            let counting = usage.begin_counting();
            tokio::time::advance(Duration::from_millis(takes_ms)).await;
            usage.end_counting(&counting, 0);
            tokio::time::advance(Duration::from_millis(after_ms - 1)).await;
            assert!(!usage.is_due());
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(usage.is_due());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_stored_while_it_is_counted_is_not_lost() {
        let usage = with_quota(1_000);
        store(&usage, 100);
        let counting = usage.begin_counting();
        store(&usage, 300);
        usage.end_counting(&counting, 100);
        assert!(matches!(
            usage.reservation().grow(601),
            Err(BlobError::Quota { used_bytes: 400, .. })
        ));
        usage.reservation().grow(600).unwrap();
    }
}
