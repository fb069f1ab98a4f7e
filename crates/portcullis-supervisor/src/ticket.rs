use std::{
    mem,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::strings::LongString;

const QUEUED: u8 = 0;
const WRITING: u8 = 1;
const SENT: u8 = 2;
const WITHDRAWN: u8 = 3;

/// What became of one call on its way out. It travels with the request through the SDK, in its extensions, so
/// that caller and transport speak of the same call without ids of their own.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    // INVARIANT: SENT and WITHDRAWN are final, and exclude each other.
    state: AtomicU8,
    fault: OnceLock<WireFault>,
    lost_session: AtomicBool,
    given_up: AtomicBool,
    /// What left the reply on its way up.
    strings: Mutex<Vec<LongString>>,
    /// When the server last told of progress.
    progress: Mutex<Option<Instant>>,
    until: Option<Instant>,
}

/// Why a call that was sent, or was about to be, got no reply that can be used. Set by the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WireFault {
    /// The connection ended; the text says how.
    Closed(String),
    /// A reply came that cannot be used; the text names what was wrong with it.
    Unusable(String),
    /// The server wants a login first.
    LoginNeeded(String),
    /// The server turns calls away for now, for so long where it says so.
    Overloaded(String, Option<Duration>),
}

impl Ticket {
    /// Of a call that is over by then: nothing below begins to wait for its answer for longer.
    pub(crate) fn until(until: Instant) -> Self {
        Self {
            until: Some(until),
            ..Self::default()
        }
    }

    /// When that is, where it was said.
    pub(crate) fn over_at(&self) -> Option<Instant> {
        self.until
    }

    /// How long that is from now, where it was said.
    pub(crate) fn left(&self) -> Option<Duration> {
        Some(self.until?.saturating_duration_since(Instant::now()))
    }

    /// The server has told of progress.
    pub(crate) fn progressed(&self) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// A call's idle deadline `idle` has come: the one that takes its place, where there was progress meanwhile.
    /// `patience` is how long the call may be silent.
    pub(crate) fn renews(&self, idle: Instant, patience: Duration) -> Option<Instant> {
        let progress = *self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        Some(progress? + patience).filter(|later| *later > idle)
    }

    /// The writer is about to write. False where the caller has withdrawn the call: skip it.
    pub(crate) fn begin(&self) -> bool {
        self.state
            .compare_exchange(QUEUED, WRITING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The first byte was accepted: from now on the outcome is the server's to know.
    pub(crate) fn sent(&self) {
        self.state.store(SENT, Ordering::Release);
    }

    /// Not a byte was accepted, and none will be.
    pub(crate) fn not_sent(&self) {
        let _ = self
            .state
            .compare_exchange(WRITING, QUEUED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The server knew no such session, and so did nothing with the call. False where that happens to it again.
    pub(crate) fn lost_session(&self) -> bool {
        !self.lost_session.swap(true, Ordering::AcqRel)
    }

    /// Whether the server said that it knows no such session.
    pub(crate) fn is_of_a_lost_session(&self) -> bool {
        self.lost_session.load(Ordering::Acquire)
    }

    /// The caller gives up. True where not a byte has gone, and so none ever will.
    pub(crate) fn withdraw(&self) -> bool {
        self.state
            .compare_exchange(QUEUED, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
            || self.state.load(Ordering::Acquire) == WITHDRAWN
    }

    /// Nobody waits for the reply any more, whatever the server is told and when.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether that is so.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// The long strings of the reply, which comes next.
    pub(crate) fn bring(&self, strings: Vec<LongString>) {
        *self.strings.lock().unwrap_or_else(PoisonError::into_inner) = strings;
    }

    /// Takes the long strings of the reply.
    pub(crate) fn strings(&self) -> Vec<LongString> {
        mem::take(&mut *self.strings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records why there will be no reply; the first fault stands.
    pub(crate) fn fail(&self, fault: WireFault) {
        let _ = self.fault.set(fault);
    }

    /// The recorded fault.
    pub(crate) fn fault(&self) -> Option<&WireFault> {
        self.fault.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_call_is_never_written_and_a_written_one_never_withdrawn() {
        let ticket = Ticket::default();
        assert!(ticket.withdraw() && ticket.withdraw());
        assert!(!ticket.begin());

        let ticket = Ticket::default();
        assert!(ticket.begin());
        assert!(
            !ticket.withdraw(),
            "while bytes may be going out, nobody can say that none went"
        );
        ticket.sent();
        assert!(!ticket.withdraw());
    }

    #[test]
    fn a_write_that_took_no_byte_leaves_the_call_unsent() {
        let ticket = Ticket::default();
        assert!(ticket.begin());
        ticket.not_sent();
        assert!(ticket.withdraw());
    }
}
