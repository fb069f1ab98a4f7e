use std::time::Duration;

/// How patient the supervision of a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The longest delay after the first failure; it doubles with each further one. 200 ms by default.
    pub base: Duration,
    /// The longest delay at all. 30 s by default.
    pub cap: Duration,
    /// Health that wipes out the failures before it: time spent ready since the last failure, over as many
    /// connections as it took. 60 s by default.
    pub healthy_after: Duration,
    /// Failures in a row, without that health between them, that park the server. 5 by default; 0 counts as 1.
    pub park_after: u32,
    /// How often a parked server is probed. 5 min by default.
    pub probe_every: Duration,
    /// How long a server that asks to be left alone is, at most; longer than both delays above where it asks for that.
    /// 5 min by default; zero takes no notice of it.
    pub leave_alone_at_most: Duration,
    /// Time without a call after which a connection is closed; `None` keeps it. 30 min by default.
    pub idle_after: Option<Duration>,
    /// How long the calls in flight may still take when the server is drained. 30 s by default.
    pub drain_for: Duration,
    /// How long an attempt may take before it counts as failed; a backstop behind the deadlines of the shell, which sees
    /// to it that it is longer than those. `None` leaves it to them. 5 min by default.
    pub connect_within: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(200),
            cap: Duration::from_secs(30),
            healthy_after: Duration::from_secs(60),
            park_after: 5,
            probe_every: Duration::from_secs(5 * 60),
            leave_alone_at_most: Duration::from_secs(5 * 60),
            idle_after: Some(Duration::from_secs(30 * 60)),
            drain_for: Duration::from_secs(30),
            connect_within: Some(Duration::from_secs(5 * 60)),
        }
    }
}

impl Options {
    /// The longest delay after `failures` failures in a row: `base` doubled with each after the first, `cap` at most.
    #[must_use]
    pub fn longest_delay(&self, failures: u32) -> Duration {
        let doubled = 2_u32.checked_pow(failures.saturating_sub(1));
        doubled
            .and_then(|factor| self.base.checked_mul(factor))
            .unwrap_or(self.cap)
            .min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_delay_doubles_up_to_the_cap() {
        let options = Options::default();
        for (failures, millis) in [
            (0, 200),
            (1, 200),
            (2, 400),
            (3, 800),
            (8, 25_600),
            (9, 30_000),
            (u32::MAX, 30_000),
        ] {
            assert_eq!(
                options.longest_delay(failures),
                Duration::from_millis(millis),
                "{failures}"
            );
        }
    }
}
