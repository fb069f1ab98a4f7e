use std::time::Duration;

use portcullis_lifecycle::ServerState;
use portcullis_types::ServerId;
use thiserror::Error;

/// Why the supervisor itself cannot do what it was asked.
#[derive(Debug, Error)]
pub enum SupervisorError {
    /// The actors could not be started.
    #[error("the supervisor cannot be started: {0}")]
    Start(String),
    /// It has been shut down.
    #[error("the supervisor has been shut down")]
    Stopped,
    /// Children were still there when the stop sequence's time was over.
    #[error("some servers' processes were still there {0:?} after they were told to stop")]
    Lingering(Duration),
    /// No connection came about.
    #[error("`{server}` cannot be connected to: {reason}")]
    Connect {
        /// Which server.
        server: ServerId,
        /// What went wrong.
        reason: String,
    },
    /// No server has this id.
    #[error("no server is called `{0}`")]
    Unknown(ServerId),
    /// Two specs have one id.
    #[error("two servers are called `{0}`")]
    Duplicate(ServerId),
}

/// Why a call has no result. Each says whether the server may have acted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CallFault {
    /// Nothing of the call was sent: it is safe to send it again.
    #[error("not sent: {reason}")]
    NotSent {
        /// Why not.
        reason: String,
    },
    /// The call was sent and no reply can come: the server may or may not have acted. Never sent again.
    #[error("outcome unknown: {reason}")]
    OutcomeUnknown {
        /// What happened.
        reason: String,
    },
    /// The deadline passed. The server was told to stop, where the call had been sent.
    #[error("timed out after {}: {}", seconds(*.after), if *.sent { "the outcome is unknown" } else { "it was not sent" })]
    TimedOut {
        /// The deadline that passed.
        after: Duration,
        /// Whether the server may have seen the call.
        sent: bool,
    },
    /// The server answered with a JSON-RPC error.
    #[error("the server answered with error {code}: {message}")]
    Rpc {
        /// The JSON-RPC error code.
        code: i32,
        /// Its message, as the server wrote it.
        message: String,
        /// Its data, as JSON text.
        data: Option<String>,
    },
    /// The server's reply cannot be used.
    #[error("the server's reply cannot be used: {reason}")]
    BadReply {
        /// What is wrong with it.
        reason: String,
    },
    /// The server wants a login first; it did nothing.
    #[error("login needed: {reason}")]
    LoginNeeded {
        /// What it answered, its challenge included.
        reason: String,
    },
    /// The server turns calls away for now; it did nothing.
    #[error("the server turns calls away: {reason}")]
    Overloaded {
        /// What it answered.
        reason: String,
        /// How long it wants to be left alone, where it says so.
        retry_after: Option<Duration>,
    },
    /// The caller cancelled it. The server was told, where the call had been sent.
    #[error("cancelled: {}", if *.sent { "the outcome is unknown" } else { "it was not sent" })]
    Cancelled {
        /// Whether the server may have seen the call.
        sent: bool,
    },
    /// The arguments are not the JSON text of an object; nothing was sent.
    #[error("the arguments cannot be sent: {reason}")]
    BadArguments {
        /// What is wrong with them.
        reason: String,
    },
    /// The server offers no such tool, or its definition disables it; it was not asked.
    #[error("{}", unknown_tool(.tool, *.disabled, .offered))]
    UnknownTool {
        /// The name.
        tool: String,
        /// Whether it is the definition that takes it away.
        disabled: bool,
        /// What is offered, for people.
        offered: String,
    },
    /// The server is not to be had: parked, disabled or stopped, or about to be once its calls in flight have ended.
    #[error("the server is {state}: {reason}")]
    Unavailable {
        /// The state.
        state: ServerState,
        /// Why it is in that state.
        reason: String,
    },
}

impl CallFault {
    /// The same of a request that belongs to a call of which the server has seen something before.
    pub(crate) fn after_it_was_sent(self) -> Self {
        match self {
            Self::NotSent { reason } => Self::OutcomeUnknown { reason },
            Self::TimedOut { after, .. } => Self::TimedOut { after, sent: true },
            Self::Cancelled { .. } => Self::Cancelled { sent: true },
            // What it turned away is not all that it was asked to do.
            turned_away @ (Self::LoginNeeded { .. } | Self::Overloaded { .. }) => Self::OutcomeUnknown {
                reason: format!("it was asked back, and then {turned_away}"),
            },
            other => other,
        }
    }
}

/// A deadline as it was given, without the moment that passed before it was counted.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", (duration.as_secs_f64() * 1e3).round() / 1e3)
}

fn unknown_tool(tool: &str, disabled: bool, offered: &str) -> String {
    let tool = tool.escape_debug();
    let why = if disabled {
        format!("the tool `{tool}` is disabled by the server's definition")
    } else {
        format!("the server offers no tool `{tool}`")
    };
    if offered.is_empty() {
        format!("{why}; it offers none")
    } else {
        format!("{why}; there is {offered}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_told_as_it_was_given() {
        for (given, told) in [
            (Duration::from_secs(30), "30 s"),
            (Duration::from_micros(29_999_876), "30 s"),
            (Duration::from_millis(200), "0.2 s"),
        ] {
            let fault = CallFault::TimedOut {
                after: given,
                sent: false,
            };
            assert_eq!(
                fault.to_string(),
                format!("timed out after {told}: it was not sent")
            );
        }
    }

    /// A caller may send again what the server has not acted on, and this it may have.
    #[test]
    fn what_belongs_to_a_call_that_was_sent_does_not_say_that_nothing_was_done() {
        let reason = || "HTTP 429".to_owned();
        for later in [
            CallFault::NotSent { reason: reason() },
            CallFault::LoginNeeded { reason: reason() },
            CallFault::Overloaded {
                reason: reason(),
                retry_after: Some(Duration::from_secs(5)),
            },
        ] {
            let fault = later.after_it_was_sent();
            assert!(matches!(fault, CallFault::OutcomeUnknown { .. }), "{fault:?}");
            assert!(fault.to_string().contains("HTTP 429"), "{fault}");
        }
        let after = Duration::from_secs(1);
        for later in [
            CallFault::TimedOut { after, sent: false },
            CallFault::Cancelled { sent: false },
        ] {
            let fault = later.after_it_was_sent();
            assert!(fault.to_string().ends_with("the outcome is unknown"), "{fault}");
        }
    }
}
