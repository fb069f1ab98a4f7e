use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The longest pause before a stream that keeps ending empty is opened again, and the first one.
pub(super) const MOST_PAUSE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// How often in a row a stream that stood before may fail to open: then the server is gone, whatever stands in front
/// of it and still answers.
const MOST_FAILURES: u32 = 3;

/// How long streams are held back for a server that asks for it, at most.
const MOST_PEACE: Duration = Duration::from_secs(300);

/// The streams of one connection that stand while nothing is called: they are what shows that a server is gone before
/// the next call finds it so. The older era has one for whatever the server has to say, the newer one subscriptions.
#[derive(Default)]
pub(super) struct Standing {
    /// How many in a row ended soon and without a message.
    barren: AtomicU32,
    /// One was open.
    stood: AtomicBool,
    /// How many tries in a row failed since then.
    failed: AtomicU32,
    /// Until when the server asked to be left alone.
    peace: Mutex<Option<Instant>>,
}

impl Standing {
    /// One was opened.
    pub(super) fn opened(&self) {
        self.stood.store(true, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
    }

    /// One could not be opened. True where the server is to be given up for that.
    pub(super) fn failed(&self) -> bool {
        self.stood.load(Ordering::Relaxed) && self.failed.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_FAILURES
    }

    /// One ended that was open for so long; `any` says that a message came on it.
    pub(super) fn ended(&self, any: bool, lived: Duration) {
        // One that lived long was of use, though nothing happened on it.
        if any || lived >= MOST_PAUSE {
            self.barren.store(0, Ordering::Relaxed);
        } else {
            self.barren.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Before one is opened again that ended empty so many times: twice as long each time.
    pub(super) fn pause(&self) -> Duration {
        match self.barren.load(Ordering::Relaxed).checked_sub(1) {
            None => Duration::ZERO,
            Some(times) => FIRST_PAUSE
                .saturating_mul(2u32.saturating_pow(times))
                .min(MOST_PAUSE),
        }
    }

    /// The server asked to be left alone for so long.
    pub(super) fn leave_alone(&self, wait: Duration) {
        *self.lock() = Some(Instant::now() + wait.min(MOST_PEACE));
    }

    /// The server answered: what it asked before is over.
    pub(super) fn answered(&self) {
        *self.lock() = None;
    }

    /// Waits as long as the server asked to be left alone.
    pub(super) async fn peace(&self) {
        let until = *self.lock();
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.peace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_stood_may_fail_three_times_in_a_row() {
        let standing = Standing::default();
        assert!((0..10).all(|_| !standing.failed()), "none stood yet");
        standing.opened();
        assert!(!standing.failed() && !standing.failed());
        standing.opened();
        assert!(!standing.failed() && !standing.failed() && standing.failed());
    }

    #[test]
    fn one_that_ends_empty_is_opened_ever_more_slowly_until_one_is_of_use() {
        let standing = Standing::default();
        let end_empty = || {
            standing.ended(false, MOST_PAUSE - Duration::from_millis(1));
            standing.pause().as_millis()
        };
        for (any, lived) in [(true, Duration::ZERO), (false, MOST_PAUSE)] {
            assert_eq!(standing.pause(), Duration::ZERO);
            let pauses: Vec<_> = (0..9).map(|_| end_empty()).collect();
            assert_eq!(
                pauses,
                [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
            );
            standing.ended(any, lived);
        }
        assert_eq!(standing.pause(), Duration::ZERO);
    }
}
