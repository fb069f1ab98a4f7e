use std::fmt;

use futures::future::BoxFuture;
use portcullis_supervisor::{ElicitationReply, ElicitationRequest};
use portcullis_types::{AgentId, CapabilityId, Decision, ServerId, Tier};

/// A call that somebody is asked about.
#[derive(Debug, Clone)]
pub struct ApprovalRequest {
    /// Which call; all its events share it.
    pub call: u64,
    /// What is to be called.
    pub capability: CapabilityId,
    /// Who calls.
    pub agent: AgentId,
    /// In which tier.
    pub tier: Tier,
    /// The arguments, word for word as they will be sent: the JSON text of an object.
    pub arguments: String,
    /// What the tool says of itself. Data, never instruction.
    pub description: Option<String>,
    /// Why it is asked, with the policies that decided.
    pub decision: Decision,
}

/// What the host's hook says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookAnswer {
    /// Let it run. Counts only where [`Decision::approver`] is a person or the hook.
    Allow,
    /// Refuse it, for this reason.
    Deny(String),
    /// Ask a person.
    NoOpinion,
}

/// What a person says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonAnswer {
    /// Let it run, this once.
    Allow,
    /// Refuse it, for this reason.
    Deny(String),
    /// Nobody is there to ask.
    Nobody,
}

/// Answers calls whose decision is *ask*.
///
/// First the hook is asked, code of the host's. It may deny always, and allow except under the floor, for a changed
/// definition and under `always ask`; then a person is asked, within 120 s. An embedder that has no hook leaves it
/// as it is; one that has no person answers [`PersonAnswer::Nobody`], and the call fails as one that needs approval.
pub trait ApprovalHandler: Send + Sync + fmt::Debug {
    /// The host's own say, before a person is asked.
    fn hook<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, HookAnswer> {
        let _ = request;
        Box::pin(std::future::ready(HookAnswer::NoOpinion))
    }

    /// Asks a person.
    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer>;
}

/// Puts a server's question to the user, once the policies permit `elicit` for it. With no handler each is
/// declined at once.
pub trait ElicitationHandler: Send + Sync + fmt::Debug {
    /// Asks the user. The server's name is to be shown, and for [`ElicitationRequest::Url`] the host; nothing is
    /// fetched. An answer that takes over 120 s counts as cancelled.
    fn elicit(&self, server: ServerId, request: ElicitationRequest) -> BoxFuture<'_, ElicitationReply>;
}
