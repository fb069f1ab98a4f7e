use std::time::Duration;

use portcullis_config::Timeouts;
use tokio::time::Instant;

/// Far enough off to be never, and near enough for every clock.
pub(crate) const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How long one call may take, over all that it needs: the wait for its server, each attempt, each round of input.
///
/// ```
/// # use std::time::Duration;
/// # use portcullis_config::Timeouts;
/// # use portcullis_supervisor::CallDeadline;
/// let timeouts = Timeouts { call: Duration::from_secs(30), call_max: Duration::from_secs(300), ..Timeouts::default() };
/// let within = CallDeadline::from_now(timeouts);
/// assert_eq!(within.end() - within.first(), Duration::from_secs(270));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct CallDeadline {
    began: Instant,
    idle: Duration,
    cap: Duration,
}

impl CallDeadline {
    /// Of a call that begins now.
    #[must_use]
    pub fn from_now(timeouts: Timeouts) -> Self {
        Self::since(Instant::now(), timeouts)
    }

    /// Of a call that began before: what it took so far is taken off its first deadline, and off the cap.
    #[must_use]
    pub fn since(began: Instant, timeouts: Timeouts) -> Self {
        Self {
            began,
            idle: timeouts.call.min(NEVER),
            cap: timeouts.call_max.min(NEVER),
        }
    }

    /// Until when the call must have been answered, or have shown progress, for the first time.
    #[must_use]
    pub fn first(&self) -> Instant {
        self.began + self.idle.min(self.cap)
    }

    /// Until when it must be over, whatever progress it makes.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.began + self.cap
    }

    /// How long it may be silent.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// How long it may take at all.
    pub(crate) fn cap(&self) -> Duration {
        self.cap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_may_take_at_all_holds_for_its_silence_too() {
        let seconds = Duration::from_secs;
        for (call, call_max, first) in [(30, 300, 30), (300, 30, 30)] {
            let timeouts = Timeouts {
                call: seconds(call),
                call_max: seconds(call_max),
                ..Timeouts::default()
            };
            let began = Instant::now();
            let within = CallDeadline::since(began, timeouts);
            assert_eq!(within.first() - began, seconds(first));
            assert_eq!(within.end() - began, seconds(call_max));
        }
    }
}
