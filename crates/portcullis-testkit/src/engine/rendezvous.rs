use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// A place where one thread waits, with a deadline, for what another brings at most once.
pub(super) struct Rendezvous<T> {
    brought: Mutex<Option<T>>,
    met: Condvar,
}

impl<T> Rendezvous<T> {
    pub(super) fn new() -> Self {
        Self {
            brought: Mutex::new(None),
            met: Condvar::new(),
        }
    }

    /// Brings what the other waits for.
    pub(super) fn meet(&self, value: T) {
        *self.brought.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        self.met.notify_all();
    }

    /// Waits for it, and takes it; none when the time is over.
    pub(super) fn wait(&self, at_most: Duration) -> Option<T> {
        let brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .met
            .wait_timeout_while(brought, at_most, |brought| brought.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

/// Lets time pass that nothing can cut short.
pub(super) fn pause(time: Duration) {
    Rendezvous::<()>::new().wait(time);
}
