//! Which handshake a server speaks, and what earlier connections told of that.

use portcullis_config::Protocol;

use super::ConnectError;

/// Which handshake a server was found to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2026-07-28: `server/discover`.
    Modern,
    /// Up to 2025-11-25: `initialize`.
    Legacy,
}

/// What earlier connections told of the handshake that a server speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EraMemory {
    known: Option<Era>,
    /// Connections in a row that came up in the older era after the newer one's question was left unanswered: once
    /// may be a slow start, twice is how the server is.
    silences: u8,
    /// The server was slow to answer the newer era's question and refuses the older handshake: the question is put
    /// once more, with all the time that there is.
    patient: bool,
}

impl EraMemory {
    pub(super) fn attempts(self, protocol: Protocol) -> &'static [Era] {
        match (protocol, self.known) {
            (Protocol::Modern, _) => &[Era::Modern],
            (Protocol::Initialize, _) | (Protocol::Auto, Some(Era::Legacy)) => &[Era::Legacy],
            (Protocol::Auto, _) if self.patient => &[Era::Modern],
            (Protocol::Auto, _) => &[Era::Modern, Era::Legacy],
        }
    }

    /// What is remembered after a connection of `era`; `silent` says that the newer era's question went unanswered.
    pub(super) fn came_up(self, era: Era, silent: bool) -> Self {
        let silences = if silent {
            self.silences.saturating_add(1)
        } else {
            0
        };
        Self {
            known: (!silent || silences > 1).then_some(era),
            silences,
            // It was slow, and will be again.
            patient: self.patient && era == Era::Modern,
        }
    }

    /// What is remembered after a connection that failed: nothing, since the server may be another one by now.
    pub(super) fn failed(self, silent: bool, error: &ConnectError) -> Self {
        Self {
            patient: silent && !self.patient && matches!(error, ConnectError::Handshake { .. }),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused() -> ConnectError {
        ConnectError::Handshake {
            reason: "no".to_owned(),
            stderr: None,
        }
    }

    fn late() -> ConnectError {
        ConnectError::TimedOut {
            after: Duration::from_secs(2),
            stderr: None,
        }
    }

    #[test]
    fn an_era_that_was_found_is_tried_alone_and_one_that_was_guessed_at_twice() {
        let auto = |memory: EraMemory| memory.attempts(Protocol::Auto);
        let both: &[Era] = &[Era::Modern, Era::Legacy];
        let fresh = EraMemory::default();
        assert_eq!(auto(fresh), both);
        assert_eq!(auto(fresh.came_up(Era::Legacy, false)), [Era::Legacy]);
        // The newer era falls back all the same: it costs nothing where it answers.
        assert_eq!(auto(fresh.came_up(Era::Modern, false)), both);
        // A question that was left unanswered may have come too early.
        let once = fresh.came_up(Era::Legacy, true);
        assert_eq!(auto(once), both);
        assert_eq!(auto(once.came_up(Era::Legacy, true)), [Era::Legacy]);
        assert_eq!(auto(once.came_up(Era::Modern, false)), both);
    }

    #[test]
    fn a_failure_forgets_the_era_and_a_slow_newer_server_is_given_all_the_time_once() {
        let known = EraMemory::default().came_up(Era::Legacy, false);
        assert_eq!(known.failed(false, &refused()), EraMemory::default());
        assert_eq!(known.failed(false, &late()), EraMemory::default());
        let patient = EraMemory::default().failed(true, &refused());
        assert_eq!(patient.attempts(Protocol::Auto), [Era::Modern]);
        assert_eq!(patient.failed(true, &refused()), EraMemory::default());
        let found = patient.came_up(Era::Modern, false);
        assert_eq!(found.attempts(Protocol::Auto), [Era::Modern]);
        assert_eq!(EraMemory::default().failed(true, &late()), EraMemory::default());
    }
}
