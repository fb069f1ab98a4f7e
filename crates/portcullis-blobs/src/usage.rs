//! How much is stored, and whether more may be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{BlobError, Limits};

/// What one store holds and is about to hold, in bytes.
#[derive(Debug)]
pub(crate) struct Usage {
    limits: Limits,
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    stored: u64,
    // INVARIANT: the sum of all living reservations.
    reserved: u64,
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

    /// Sets what is stored to what was just counted on the medium.
    pub(crate) fn set_stored(&self, bytes: u64) {
        self.count().stored = bytes;
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
}
