//! A call whose decision is *ask*: a stored approval, the host's hook, a person, in that order.

mod always;
mod told;

use std::{sync::Arc, time::Duration};

use portcullis_policy::Explanation;
use portcullis_state::ApprovedCall;
use portcullis_types::{Answer, Approver, Hash, ReasonCode};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, timeout, timeout_at},
};

use self::{always::Always, told::Told};
use crate::{
    approval::{ApprovalHandler, ApprovalRequest, HookAnswer, PersonAnswer},
    catalog::CatalogTool,
    clock,
    decide::Decided,
    dispatch::{Call, Dispatch},
    error::CallError,
    event::{AnsweredBy, ApprovalAnswer, DecidedBy},
    pins::chain,
};

/// How long the state may take for one approval, other processes that hold it included.
const STATE_WITHIN: Duration = Duration::from_secs(5);

/// Whatever a host says, nobody is waited for longer: a time beyond all clocks has no end that can be counted.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// An approval of one call. It holds for the very definition and policies that were asked about.
#[derive(Debug)]
pub(crate) struct Grant {
    definition: Arc<str>,
    policy_digest: Hash,
    pub(crate) by: DecidedBy,
}

impl Grant {
    /// Whether it lets this call of `tool` run.
    pub(crate) fn holds(&self, tool: &CatalogTool, decided: &Decided) -> bool {
        let may = match self.by {
            DecidedBy::Person => true,
            DecidedBy::StoredApproval => decided.explanation.decision.code == ReasonCode::AskByPolicy,
            DecidedBy::Hook => decided.explanation.decision.approver == Some(Approver::PersonOrHook),
            DecidedBy::Policies => false,
        };
        may && self.definition == tool.definition && self.policy_digest == decided.policies.digest()
    }
}

impl Dispatch {
    /// Looks for an approval that is kept. Only a plain *ask* is answered by one: all others ask each time anew.
    pub(crate) async fn recall(
        &self,
        call: &mut Call,
        tool: &CatalogTool,
        decided: &Decided,
        deadline: Instant,
    ) {
        if decided.explanation.decision.code != ReasonCode::AskByPolicy {
            return;
        }
        let state = Arc::clone(self.pinning.state());
        let bound = call.bound(tool, decided);
        let found = spawn_blocking(move || state.approval_of(&bound, clock::unix_ms()));
        match timeout_at(deadline.min(Instant::now() + STATE_WITHIN), found).await {
            Ok(Ok(Ok(found))) => {
                // To find it takes time, while others hold the state, and it may have ended in that.
                if let Some(approval) = found.filter(|found| found.holds_at(clock::unix_ms())) {
                    tracing::debug!(approval = approval.id, "an approval that is kept holds");
                    call.grant = Some(grant(tool, decided, DecidedBy::StoredApproval));
                }
            }
            // Then somebody is asked.
            Ok(Ok(Err(error))) => tracing::warn!(error = chain(&error), "approvals cannot be read"),
            Ok(Err(_)) | Err(_) => tracing::warn!("approvals cannot be read in time"),
        }
    }

    /// Asks the hook, then a person, all within one deadline. On a yes the call holds a grant. Where other policies
    /// take over meanwhile and leave nothing to ask, it returns as well: the caller decides anew in any case. How the
    /// question ended is told, also where the caller goes away.
    pub(crate) async fn ask(
        &self,
        call: &mut Call,
        tool: &Arc<CatalogTool>,
        decided: Decided,
    ) -> Result<(), CallError> {
        let mut told = Told::of(&self.events, call);
        let Some(handler) = self.options.approval.clone() else {
            told.ends(ApprovalAnswer::Unanswered, AnsweredBy::Nobody);
            return Err(call.needs_approval(decided.explanation));
        };
        let until = Instant::now() + self.options.keeping.approval_wait.min(LONGEST_WAIT);
        // What takes over from here on is noticed.
        let mut swaps = self.policies.swaps();
        if self.policies.current().digest() != decided.policies.digest() {
            swaps.mark_changed();
        }
        let mut request = call.asked_about(tool, &decided);
        let hook = timeout_at(until, handler.hook(&request))
            .await
            .unwrap_or(HookAnswer::NoOpinion);
        let may_allow = decided.explanation.decision.approver == Some(Approver::PersonOrHook);
        match hook {
            HookAnswer::Deny(reason) => {
                told.ends(ApprovalAnswer::Refused, AnsweredBy::Hook);
                return Err(call.refused(AnsweredBy::Hook, reason, decided.explanation));
            }
            HookAnswer::Allow if may_allow => {
                call.grant = Some(grant(tool, &decided, DecidedBy::Hook));
                told.ends(ApprovalAnswer::Approved, AnsweredBy::Hook);
                return Ok(());
            }
            HookAnswer::Allow | HookAnswer::NoOpinion => {}
        }
        let mut always = None;
        if decided.explanation.decision.code == ReasonCode::AskByPolicy {
            request.hold = Some(self.options.keeping.approval_hold);
            always = self.always(call, tool, &decided, &handler.name()).await;
            request.always = always.as_ref().map(Always::offer);
        }
        match self.person(call, tool, &handler, &request, swaps, until).await {
            None => {
                told.error = Some("other policies took over that leave nothing to ask".to_owned());
                Ok(())
            }
            Some(PersonAnswer::Deny(reason)) => {
                told.ends(ApprovalAnswer::Refused, AnsweredBy::Person);
                told.person = Some(handler.name());
                Err(call.refused(AnsweredBy::Person, reason, decided.explanation))
            }
            Some(PersonAnswer::Nobody) => {
                told.ends(ApprovalAnswer::Unanswered, AnsweredBy::Nobody);
                Err(call.needs_approval(decided.explanation))
            }
            Some(answer) => {
                call.grant = Some(grant(tool, &decided, DecidedBy::Person));
                told.ends(ApprovalAnswer::Approved, AnsweredBy::Person);
                told.person = Some(handler.name());
                match (answer, request.hold, always) {
                    (PersonAnswer::AllowFor, Some(hold), _) => {
                        self.keep(call.bound(tool, &decided), hold, &mut told).await;
                    }
                    (PersonAnswer::AllowAlways, _, Some(always)) => {
                        self.write_always(always, &mut told).await;
                    }
                    _ => {}
                }
                Ok(())
            }
        }
    }

    /// What a person answers; none where other policies took over that leave nothing to ask.
    async fn person(
        &self,
        call: &Call,
        tool: &CatalogTool,
        handler: &Arc<dyn ApprovalHandler>,
        request: &ApprovalRequest,
        mut swaps: watch::Receiver<u64>,
        until: Instant,
    ) -> Option<PersonAnswer> {
        let mut answer = handler.person(request);
        loop {
            tokio::select! {
                answer = timeout_at(until, &mut answer) => return Some(answer.unwrap_or(PersonAnswer::Nobody)),
                Ok(()) = swaps.changed() => {
                    let policies = self.policies.current();
                    if self.decision(&policies, call, tool).answer != Answer::Ask {
                        return None;
                    }
                }
            }
        }
    }

    /// Keeps the approval.
    async fn keep(&self, bound: ApprovedCall, hold: Duration, told: &mut Told<'_>) {
        let state = Arc::clone(self.pinning.state());
        let by = told.person.clone().unwrap_or_default();
        let kept = spawn_blocking(move || state.approve(&bound, &by, clock::unix_ms(), hold));
        // Until more is known.
        let error =
            "the approval could not be kept in time, and may still be: `portcullis approvals list` shows it";
        told.error = Some(error.to_owned());
        match timeout(STATE_WITHIN, kept).await {
            Ok(Ok(Ok(approval))) => {
                (told.holds_until_ms, told.error) = (Some(approval.until_ms), None);
            }
            // The call runs this once: that is what the person said at the least.
            Ok(Ok(Err(error))) => told.error = Some(chain(&error)),
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

impl Call {
    /// Whether an approval that is kept lets it run.
    pub(crate) fn runs_by_what_is_kept(&self) -> bool {
        self.grant
            .as_ref()
            .is_some_and(|grant| grant.by == DecidedBy::StoredApproval)
    }

    /// Has an approval that is kept looked for anew: it may have ended, or have been taken back.
    pub(crate) fn forget_what_is_kept(&mut self) {
        self.grant.take_if(|grant| grant.by == DecidedBy::StoredApproval);
    }

    /// What somebody is asked, with the least that they can answer.
    fn asked_about(&self, tool: &CatalogTool, decided: &Decided) -> ApprovalRequest {
        ApprovalRequest {
            call: self.number,
            capability: self.capability.clone(),
            agent: self.agent.clone(),
            tier: self.tier,
            arguments: self.arguments.to_string(),
            description: tool.description.clone(),
            decision: decided.explanation.decision.clone(),
            hold: None,
            always: None,
        }
    }

    fn refused(&self, by: AnsweredBy, reason: String, explanation: Box<Explanation>) -> CallError {
        CallError::Refused {
            capability: self.capability.clone(),
            by,
            reason,
            explanation,
        }
    }

    /// What an approval of this call is bound to.
    fn bound(&self, tool: &CatalogTool, decided: &Decided) -> ApprovedCall {
        ApprovedCall {
            capability: self.capability.to_string(),
            agent: self.agent.to_string(),
            profile: self.profile.to_string(),
            tier: self.tier.to_string(),
            arguments_hash: self.arguments_hash,
            policy_digest: decided.policies.digest(),
            definition_hash: tool.pin.hash,
        }
    }
}

fn grant(tool: &CatalogTool, decided: &Decided, by: DecidedBy) -> Grant {
    Grant {
        definition: Arc::clone(&tool.definition),
        policy_digest: decided.policies.digest(),
        by,
    }
}
