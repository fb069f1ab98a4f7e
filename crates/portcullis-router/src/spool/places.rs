//! How many strings may lie in files.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SpoolFault;

/// How many strings may lie in files at once, in the whole hub: each takes a descriptor, of which a process has 1,024
/// as a rule. To wait for a place could be for ever, since a server may leave a string without its end for as long as
/// it likes.
pub(super) const MAX_FILES: usize = 256;

/// How many of them may be one server's, so that one alone takes no place that another's results need. It is what one
/// message may have.
pub(super) const MAX_OF_ONE: usize = 64;

/// The places of the hub, or those of one server of it.
#[derive(Debug, Clone)]
pub(super) struct Places {
    hub: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

/// Dropped, it is free again.
#[derive(Debug)]
pub(super) struct Place {
    _hub: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Default for Places {
    fn default() -> Self {
        Self::of(Arc::new(Semaphore::new(MAX_FILES)))
    }
}

impl Places {
    /// Those of one server.
    pub(super) fn of_one(&self) -> Self {
        Self::of(Arc::clone(&self.hub))
    }

    /// A place, if there is one.
    pub(super) fn take(&self) -> Result<Place, SpoolFault> {
        let take = |of: &Arc<Semaphore>, most| {
            Arc::clone(of)
                .try_acquire_owned()
                .map_err(|_| SpoolFault::Crowded(most))
        };
        Ok(Place {
            _own: take(&self.own, MAX_OF_ONE)?,
            _hub: take(&self.hub, MAX_FILES)?,
        })
    }

    fn of(hub: Arc<Semaphore>) -> Self {
        let own = Arc::new(Semaphore::new(MAX_OF_ONE));
        Self { hub, own }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> (usize, usize) {
        (self.hub.available_permits(), self.own.available_permits())
    }
}
