use std::{fmt, time::Duration};

use serde::Serialize;

/// Where a server is in its life, without the times: what is told of it. Closed: the names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Nothing connects it.
    Disabled,
    /// A connection is being made.
    Connecting,
    /// It takes calls.
    Ready,
    /// The next call connects it.
    Idle,
    /// Calls in flight may end, and new ones wait.
    Draining,
    /// It failed a short while ago, and is tried again soon.
    BackingOff,
    /// It failed too often in a row, and is tried now and then.
    Parked,
    /// It is over for good.
    Stopped,
}

/// As it is written: a formatter takes the name of a variant as serde has it.
impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Where a server is in its life. Times count from the epoch that the caller's `now` counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Switched off: nothing connects it.
    Disabled,
    /// A connection is being made.
    Connecting,
    /// Connected.
    Ready,
    /// Not connected, and not missed: the next demand connects it. Also a machine that was not started yet.
    Idle,
    /// Connected; no new calls, those in flight may end.
    Draining,
    /// A failure is a short while ago.
    BackingOff {
        /// When it connects again.
        until: Duration,
    },
    /// Too many failures in a row: it is tried now and then only.
    Parked {
        /// When it is tried next, if nobody demands it before.
        probe_at: Duration,
    },
    /// Over, for good.
    Stopped,
}

impl State {
    /// The state without its times.
    #[must_use]
    pub fn name(&self) -> ServerState {
        match self {
            Self::Disabled => ServerState::Disabled,
            Self::Connecting => ServerState::Connecting,
            Self::Ready => ServerState::Ready,
            Self::Idle => ServerState::Idle,
            Self::Draining => ServerState::Draining,
            Self::BackingOff { .. } => ServerState::BackingOff,
            Self::Parked { .. } => ServerState::Parked,
            Self::Stopped => ServerState::Stopped,
        }
    }

    /// Whether a connection exists or is being made.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Connecting | Self::Ready | Self::Draining)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// Why a state changed. Closed: the codes are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The hub started.
    Started,
    /// The server was switched on.
    Enabled,
    /// The server was switched off.
    Disabled,
    /// A call wants the server.
    Demanded,
    /// The back-off is over.
    Retry,
    /// A parked server is tried again.
    Probe,
    /// The connection stands.
    Connected,
    /// No connection came about.
    ConnectFailed,
    /// The connection ended by itself.
    Lost,
    /// Nobody called for a while.
    Idle,
    /// The server is to be restarted.
    Restart,
    /// The server is to end once its calls have.
    Drain,
    /// The last call in flight ended.
    Drained,
    /// The calls in flight took longer than they may.
    DrainTimedOut,
    /// The server is to end now.
    Stop,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 15] = [
        Self::Started,
        Self::Enabled,
        Self::Disabled,
        Self::Demanded,
        Self::Retry,
        Self::Probe,
        Self::Connected,
        Self::ConnectFailed,
        Self::Lost,
        Self::Idle,
        Self::Restart,
        Self::Drain,
        Self::Drained,
        Self::DrainTimedOut,
        Self::Stop,
    ];

    /// The stable code, and what it means in a few words.
    #[must_use]
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Started => ("started", "the hub started"),
            Self::Enabled => ("enabled", "switched on"),
            Self::Disabled => ("disabled", "switched off"),
            Self::Demanded => ("demanded", "a call wants it"),
            Self::Retry => ("retry", "the back-off is over"),
            Self::Probe => ("probe", "it is time to try again"),
            Self::Connected => ("connected", "the connection stands"),
            Self::ConnectFailed => ("connect_failed", "no connection came about"),
            Self::Lost => ("lost", "the connection ended"),
            Self::Idle => ("idle", "nobody called for a while"),
            Self::Restart => ("restart", "to be restarted"),
            Self::Drain => ("drain", "to end once its calls have"),
            Self::Drained => ("drained", "no call is in flight any more"),
            Self::DrainTimedOut => ("drain_timed_out", "calls in flight took longer than they may"),
            Self::Stop => ("stop", "to end now"),
        }
    }

    /// The stable code alone.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.describe().0
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe().1)
    }
}
