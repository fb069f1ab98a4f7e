use std::time::Duration;

use portcullis_policy::Explanation;
use portcullis_state::StateError;
use portcullis_supervisor::{CallFault, SupervisorError};
use portcullis_types::{CapabilityId, Decision, ParseError, ServerId};
use thiserror::Error;

use crate::{CallCode, event::AnsweredBy, shape::ShapeError};

/// Why the router cannot be started or stopped.
#[derive(Debug, Error)]
pub enum RouterError {
    /// The supervisor's say.
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    /// The state in memory could not be made.
    #[error(transparent)]
    State(#[from] StateError),
    /// The actor could not be started.
    #[error("the router cannot be started: {0}")]
    Start(String),
}

/// Why a call has no result. [`code`](Self::code) is stable.
#[derive(Debug, Error)]
pub enum CallError {
    /// What was asked for is no capability id.
    #[error(transparent)]
    NotACapability(#[from] ParseError),
    /// No server of that name is configured.
    #[error("no server `{server}` is configured, or what configures it cannot be used{}", listed(.known))]
    UnknownServer {
        /// The name that was asked for.
        server: ServerId,
        /// The servers that are configured.
        known: Vec<ServerId>,
    },
    /// The server has no such tool.
    #[error("`{capability}` is not offered: its server is up and lists no such tool{}", meant(.nearest))]
    UnknownTool {
        /// What was asked for.
        capability: CapabilityId,
        /// The offered tool whose name is nearest.
        nearest: Option<CapabilityId>,
    },
    /// The configuration disables the tool.
    #[error("`{0}` is disabled by the configuration (`disabledTools`)")]
    Disabled(CapabilityId),
    /// The policies deny it.
    #[error("denied: `{capability}`: {}", .explanation.decision)]
    Denied {
        /// What was asked for.
        capability: CapabilityId,
        /// The answer and its reasons.
        explanation: Box<Explanation>,
    },
    /// It needs approval and nobody is there to give it.
    #[error("needs approval: `{capability}`: {}", .explanation.decision)]
    NeedsApproval {
        /// What was asked for.
        capability: CapabilityId,
        /// The answer and its reasons.
        explanation: Box<Explanation>,
    },
    /// Whoever was asked refused.
    #[error("refused by the {by}: `{capability}`: {reason}")]
    Refused {
        /// What was asked for.
        capability: CapabilityId,
        /// The hook or a person.
        by: AnsweredBy,
        /// What they gave as reason.
        reason: String,
        /// The decision that was asked about.
        explanation: Box<Explanation>,
    },
    /// The server has as many calls in flight and waiting as are admitted.
    #[error("`{server}` is busy: {waiting} calls wait for it already; try again later")]
    Busy {
        /// Which server.
        server: ServerId,
        /// How many calls wait.
        waiting: usize,
    },
    /// The call reached the server, or tried to.
    #[error("`{capability}`: {fault}")]
    Upstream {
        /// What was called.
        capability: CapabilityId,
        /// What went wrong; it says whether the server may have acted.
        fault: CallFault,
    },
    /// The result came but could not be shaped or stored.
    #[error("`{capability}` ran, but its result cannot be handed on: {fault}")]
    Result {
        /// What was called.
        capability: CapabilityId,
        /// Why not.
        fault: ShapeError,
    },
}

impl CallError {
    /// The stable code, as events and machine-readable output name it: [`CallCode`] has them all.
    #[must_use]
    pub fn code(&self) -> &'static str {
        CallCode::from(self).as_str()
    }

    /// The decision behind it, where it was the policies or an approver who said no.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.explanation().map(|explanation| &explanation.decision)
    }

    /// The same, explained: what stands in machine-readable errors, as `portcullis policy explain --format json` tells
    /// it.
    #[must_use]
    pub fn explanation(&self) -> Option<&Explanation> {
        match self {
            Self::Denied { explanation, .. }
            | Self::NeedsApproval { explanation, .. }
            | Self::Refused { explanation, .. } => Some(explanation),
            _ => None,
        }
    }

    /// The message, where nothing in it is the server's own text: that may be the very content of a result.
    pub(crate) fn without_content(&self) -> Option<String> {
        match self {
            Self::Upstream {
                fault: CallFault::Rpc { code, .. },
                ..
            } => Some(format!("JSON-RPC error {code}")),
            Self::Upstream {
                fault: CallFault::BadReply { .. },
                ..
            } => None,
            other => Some(other.to_string()),
        }
    }

    pub(crate) fn timed_out(capability: &CapabilityId, after: Duration) -> Self {
        Self::Upstream {
            capability: capability.clone(),
            fault: CallFault::TimedOut { after, sent: false },
        }
    }
}

fn listed(servers: &[ServerId]) -> String {
    match servers {
        [] => String::new(),
        servers => {
            let names: Vec<_> = servers.iter().map(ServerId::as_str).collect();
            format!("; there are: {}", names.join(", "))
        }
    }
}

fn meant(nearest: &Option<CapabilityId>) -> String {
    nearest
        .as_ref()
        .map(|nearest| format!("; did you mean `{nearest}`?"))
        .unwrap_or_default()
}
