use std::time::Duration;

use portcullis_types::{AgentId, CapabilityId, Decision, Tier};

use crate::{event::DecidedBy, shape::ShapedResult};

/// A call, as a host asks for it.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// What to call.
    pub capability: CapabilityId,
    /// The JSON text of an object. It is decided upon and sent word for word; empty stands for `{}`.
    pub arguments: String,
    /// Who calls; the router's default where it is `None`.
    pub agent: Option<AgentId>,
    /// The tier; the router's default where it is `None`.
    pub tier: Option<Tier>,
}

impl CallRequest {
    /// A call by the router's default agent and tier.
    #[must_use]
    pub fn new(capability: CapabilityId, arguments: impl Into<String>) -> Self {
        Self {
            capability,
            arguments: arguments.into(),
            agent: None,
            tier: None,
        }
    }
}

/// What became of a call that ran.
#[derive(Debug)]
pub struct CallOutcome {
    /// The call's number; its events share it.
    pub call: u64,
    /// The result, shaped. `is_error` in it is the tool's own word; the call itself went well.
    pub result: ShapedResult,
    /// The decision that it ran under.
    pub decision: Decision,
    /// Who approved it, where the policies ask.
    pub approved_by: Option<DecidedBy>,
    /// From its arrival to its end.
    pub duration: Duration,
}
