use std::time::Duration;

use crate::{Options, State};

/// What is remembered of a server's failures: what the next one leads to.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Since the server was last healthy for long enough.
    count: u32,
    /// Time spent ready since the last failure, the connection at hand not counted.
    health: Duration,
    /// Until when the server asked to be left alone.
    left_alone_until: Duration,
}

impl Failures {
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Whether there are so many that the server is given up for a while.
    pub(super) fn are_too_many(&self, options: &Options) -> bool {
        self.count >= options.park_after.max(1)
    }

    /// One more, at `now`; the state that it leads to.
    pub(super) fn add(&mut self, now: Duration, options: &Options, jitter: f64) -> State {
        self.count = self.count.saturating_add(1);
        self.health = Duration::ZERO;
        if self.are_too_many(options) {
            let probe_at = now.saturating_add(options.probe_every);
            State::Parked {
                probe_at: probe_at.max(self.left_alone_until),
            }
        } else {
            let delay = fraction(options.longest_delay(self.count), jitter);
            State::BackingOff {
                until: now.saturating_add(delay).max(self.left_alone_until),
            }
        }
    }

    /// The server was ready for so long: enough of that wipes them out.
    pub(super) fn was_ready(&mut self, time: Duration, options: &Options) {
        self.health = self.health.saturating_add(time);
        if self.health >= options.healthy_after {
            self.count = 0;
        }
    }

    /// The server asks at `now` to be left alone for so long.
    pub(super) fn leave_alone(&mut self, now: Duration, wait: Duration, options: &Options) {
        let until = now.saturating_add(wait.min(options.leave_alone_at_most));
        self.left_alone_until = self.left_alone_until.max(until);
    }

    /// What the server asked for is over.
    pub(super) fn end_peace(&mut self) {
        self.left_alone_until = Duration::ZERO;
    }

    pub(super) fn asks_for_peace(&self, now: Duration) -> bool {
        now < self.left_alone_until
    }
}

/// `part` of `whole`, for a part in [0, 1]; a part that is no number counts as 1.
fn fraction(whole: Duration, part: f64) -> Duration {
    let part = if part.is_nan() { 1.0 } else { part.clamp(0.0, 1.0) };
    Duration::try_from_secs_f64(whole.as_secs_f64() * part)
        .unwrap_or(whole)
        .min(whole)
}
