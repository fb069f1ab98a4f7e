use std::sync::atomic::{AtomicU64, Ordering};

/// What of a server's output was dropped so far, through all its connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// Lines, or parts of an answer over HTTP, that are not JSON-RPC, and requests of a server's that got no answer since
    /// too many of them waited for one.
    pub noise: u64,
    /// Replies whose id nobody waits for: late, repeated or made up.
    pub unclaimed: u64,
    /// Notifications that nobody heeds.
    pub unheeded: u64,
    /// Replies that could not be used; each failed its call.
    pub unusable: u64,
}

/// Counts what is dropped.
#[derive(Debug, Default)]
pub(crate) struct WireCounters {
    noise: AtomicU64,
    unclaimed: AtomicU64,
    unheeded: AtomicU64,
    unusable: AtomicU64,
}

impl WireCounters {
    pub(crate) fn noise(&self) {
        self.noise.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unclaimed(&self) {
        self.unclaimed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unheeded(&self) {
        self.unheeded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unusable(&self) {
        self.unusable.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> WireCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WireCounts {
            noise: load(&self.noise),
            unclaimed: load(&self.unclaimed),
            unheeded: load(&self.unheeded),
            unusable: load(&self.unusable),
        }
    }
}
