use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

const SHUT: u64 = 1 << 63;

/// Counts the calls in flight on one connection and lets no more in once it is shut: one atomic holds both, so
/// nobody slips through between the check and the count.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: AtomicU64,
    entered: AtomicU64,
    /// The last one left after the gate was shut.
    emptied: Notify,
}

impl Gate {
    /// Enters, unless the gate is shut.
    pub(crate) fn enter(&self) -> Option<GatePass<'_>> {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let pass = GatePass(self);
        self.entered.fetch_add(1, Ordering::Relaxed);
        (before & SHUT == 0).then_some(pass)
    }

    /// Shuts it for good. Whoever is inside stays until it leaves.
    pub(crate) fn shut(&self) {
        self.state.fetch_or(SHUT, Ordering::AcqRel);
    }

    /// Shuts it for good, unless somebody is inside: who has entered keeps it open, who comes later finds it shut.
    pub(crate) fn shut_if_empty(&self) -> bool {
        self.state
            .compare_exchange(0, SHUT, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Resolves once a gate that was shut is empty. One may wait for that.
    pub(crate) async fn emptied(&self) {
        while self.inside() > 0 {
            self.emptied.notified().await;
        }
    }

    /// How many are inside.
    pub(crate) fn inside(&self) -> u64 {
        self.state.load(Ordering::Acquire) & !SHUT
    }

    /// How many ever entered, or tried to.
    pub(crate) fn entered(&self) -> u64 {
        self.entered.load(Ordering::Relaxed)
    }
}

/// One call inside; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct GatePass<'a>(&'a Gate);

impl Drop for GatePass<'_> {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(1, Ordering::AcqRel) == SHUT | 1 {
            self.0.emptied.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shut_gate_lets_nobody_in_and_those_inside_leave() {
        let gate = Gate::default();
        let pass = gate.enter().unwrap();
        gate.shut();
        assert!(gate.enter().is_none());
        assert_eq!(gate.inside(), 1);
        drop(pass);
        assert_eq!(gate.inside(), 0);
    }

    #[test]
    fn a_gate_with_somebody_inside_is_not_shut_for_want_of_anybody() {
        let gate = Gate::default();
        let pass = gate.enter().unwrap();
        assert!(!gate.shut_if_empty());
        assert!(gate.enter().is_some(), "it is still open");
        drop(pass);
        assert!(gate.shut_if_empty());
        assert!(gate.enter().is_none());
    }

    #[tokio::test]
    async fn who_waits_for_a_shut_gate_hears_when_the_last_one_leaves() {
        let gate = Gate::default();
        let passes = [gate.enter().unwrap(), gate.enter().unwrap()];
        gate.shut();
        let leave = async {
            for pass in passes {
                tokio::task::yield_now().await;
                assert!(gate.enter().is_none());
                drop(pass);
            }
        };
        tokio::join!(gate.emptied(), leave);
        gate.emptied().await;
    }
}
