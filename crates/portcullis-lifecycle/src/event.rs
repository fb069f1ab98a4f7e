use std::time::Duration;

use crate::{Cause, State};

/// What happened, as the shell reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The hub starts its servers.
    Start,
    /// The server is switched on.
    Enable,
    /// The server is switched off; its calls in flight may end first.
    Disable,
    /// An attempt succeeded.
    Connected {
        /// The attempt's generation.
        generation: u64,
    },
    /// An attempt failed, and nothing of it is left.
    ConnectFailed {
        /// The attempt's generation.
        generation: u64,
        /// What went wrong, for people.
        reason: String,
    },
    /// A connection ended by itself. What is left of it is closed by the command that follows.
    Lost {
        /// The connection's generation.
        generation: u64,
        /// What was seen, for people.
        reason: String,
    },
    /// The server asked to be left alone for so long (`Retry-After`). Reported before the failure that it came with:
    /// what follows that failure waits as long, though no longer than [`Options::leave_alone_at_most`].
    ///
    /// [`Options::leave_alone_at_most`]: crate::Options::leave_alone_at_most
    LeaveAlone {
        /// The attempt's or the connection's generation.
        generation: u64,
        /// How long.
        wait: Duration,
    },
    /// A call wants the server.
    Demand,
    /// A call is in flight.
    CallStarted,
    /// A call that was in flight is over, however it ended: each [`Event::CallStarted`] is followed by exactly one,
    /// also where the connection was lost.
    CallEnded,
    /// The time that [`Command::WakeAt`] named has come. One too early or too many does no harm.
    Tick,
    /// The server is to be restarted (its definition changed); its calls in flight may end first.
    Restart,
    /// The server is to end for good once its calls in flight have.
    Drain,
    /// The server is to end for good, now.
    Stop,
}

/// What the shell has to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make a connection, and report [`Event::Connected`] or [`Event::ConnectFailed`] for this generation.
    Connect {
        /// The attempt's generation, greater than all before.
        generation: u64,
    },
    /// Close this connection, or give up this attempt, and clean up behind it.
    Close {
        /// Its generation.
        generation: u64,
    },
    /// Report [`Event::Tick`] at this time. Replaces the time named before.
    WakeAt(Duration),
    /// Tell whoever listens that the state changed.
    Announce(Transition),
}

/// A change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state now.
    pub to: State,
    /// Why, as a stable code.
    pub cause: Cause,
    /// Why, for people.
    pub reason: String,
}
