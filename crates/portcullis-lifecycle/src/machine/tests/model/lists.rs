//! The lists of tools beside the machine, as the shell makes them anew.

use std::time::Duration;

use proptest::prelude::*;

use crate::{Relist, Relisting};

/// How long nothing must change for a burst to be over, and the longest that one lasts.
const QUIET: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// The longest wait after listings that failed.
const MOST_WAIT: Duration = Duration::from_secs(32);

/// The tools of the connection at hand: what the shell does beside the machine, and what it knows of them.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Made anew for each connection, whose tools have just been listed.
    pub(super) relist: Option<Relist>,
    pub(super) timer: Option<Duration>,
    /// How often the tools had changed when the listing that runs began.
    running: Option<u32>,
    changes: u32,
    /// How much of that the last listing that went well has seen.
    seen: u32,
    /// When the burst at hand began, and when its last change came.
    burst: Option<(Duration, Duration)>,
    /// How many listings began in it, and how many failed.
    begun: u32,
    failed: u32,
}

impl Lists {
    pub(super) fn of_a_new_connection() -> Self {
        Self {
            relist: Some(Relist::new(QUIET)),
            ..Self::default()
        }
    }

    /// One that is gone leaves nothing to list.
    pub(super) fn happens(
        &mut self,
        now: Duration,
        happened: impl FnOnce(&mut Relist) -> Vec<Relisting>,
    ) -> Result<(), TestCaseError> {
        let Some(relist) = &mut self.relist else {
            return Ok(());
        };
        for command in happened(relist) {
            match command {
                Relisting::List => {
                    prop_assert!(self.running.is_none(), "two listings at once");
                    self.running = Some(self.changes);
                    self.begun += 1;
                }
                Relisting::WakeAt(at) => self.timer = Some(at),
            }
        }
        let waits = self.timer.is_some_and(|timer| timer <= now + MOST_WAIT);
        prop_assert!(
            self.seen == self.changes || self.running.is_some() || waits,
            "a change is lost: {self:?}"
        );
        prop_assert!(
            self.begun <= 2 + self.failed,
            "over two listings for a burst: {self:?}"
        );
        Ok(())
    }

    pub(super) fn changed(&mut self, now: Duration) -> Result<(), TestCaseError> {
        self.burst = match self.burst {
            Some((began, last)) if now - last < QUIET && now - began < LONGEST => Some((began, now)),
            _ => {
                (self.begun, self.failed) = (0, 0);
                Some((now, now))
            }
        };
        self.changes += 1;
        self.happens(now, |relist| relist.changed(now))
    }

    pub(super) fn listed(&mut self, well: bool, now: Duration) -> Result<(), TestCaseError> {
        let Some(began) = self.running.take() else {
            return Ok(());
        };
        if well {
            self.seen = began;
        } else {
            self.failed += 1;
        }
        self.happens(now, |relist| relist.listed(now, well, None))
    }
}
