use std::{fmt, path::PathBuf, time::Duration};

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
    /// How long a [`PersonAnswer::AllowFor`] would hold; none where each call is asked about anew.
    pub hold: Option<Duration>,
    /// What a [`PersonAnswer::AllowAlways`] would write; none where that answer could not hold.
    pub always: Option<AlwaysOffer>,
}

/// A policy that a person may have written for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlwaysOffer {
    /// The file that it would be: a new one in the folder of policies.
    pub path: PathBuf,
    /// What would stand in it.
    pub text: String,
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
    /// Let it run, and this very call by this agent again without a question, for [`ApprovalRequest::hold`]. Where
    /// that is none it is [`Allow`](Self::Allow).
    AllowFor,
    /// Let it run, and write [`ApprovalRequest::always`] into the policies. Where that is none it is
    /// [`Allow`](Self::Allow).
    AllowAlways,
    /// Refuse it, for this reason.
    Deny(String),
    /// Nobody is there to ask.
    Nobody,
}

/// Answers calls whose decision is *ask*.
///
/// First the hook is asked, code of the host's. It may deny always, and allow except under the floor, for a changed
/// definition and under `always ask`; then a person is asked, both within 120 s (an option). An embedder that has no hook leaves it
/// as it is; one that has no person answers [`PersonAnswer::Nobody`], and the call fails as one that needs approval.
pub trait ApprovalHandler: Send + Sync + fmt::Debug {
    /// The host's own say, before a person is asked.
    fn hook<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, HookAnswer> {
        let _ = request;
        Box::pin(std::future::ready(HookAnswer::NoOpinion))
    }

    /// The person's name, as it is kept with what they approve.
    fn name(&self) -> String {
        "a person".to_owned()
    }

    /// Asks a person. The future is dropped when the time is over, when the caller goes away, or when other policies leave
    /// nothing to ask.
    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer>;
}

/// Puts a server's question to the user, once the policies permit `elicit` for it. With no handler each is
/// declined at once.
pub trait ElicitationHandler: Send + Sync + fmt::Debug {
    /// Asks the user. The server's name is to be shown, and for [`ElicitationRequest::Url`] the host; nothing is
    /// fetched. An answer that takes over 120 s counts as cancelled. The future is dropped when that time or the call is
    /// over, or when other policies do not permit the question any more.
    fn elicit(&self, server: ServerId, request: ElicitationRequest) -> BoxFuture<'_, ElicitationReply>;
}
