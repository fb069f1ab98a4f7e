use std::sync::atomic::{AtomicU64, Ordering};

const SHUT: u64 = 1 << 63;

/// Counts the calls in flight on one connection and lets no more in once it is shut: one atomic holds both, so
/// nobody slips through between the check and the count.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: AtomicU64,
    entered: AtomicU64,
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
        self.0.state.fetch_sub(1, Ordering::AcqRel);
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
}
