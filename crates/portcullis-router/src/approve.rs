//! A call whose decision is *ask*: a stored approval, the host's hook, a person, in that order.

use std::{path::Path, sync::Arc, time::Duration};

use portcullis_policy::{AlwaysAllow, CallQuestion, DecisionPoint, Explanation, PolicyFile};
use portcullis_state::{ApprovedCall, Privacy, StateError, write_new};
use portcullis_types::{Answer, Approver, Hash, ReasonCode};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    approval::{AlwaysOffer, ApprovalHandler, ApprovalRequest, HookAnswer, PersonAnswer},
    catalog::CatalogTool,
    clock,
    decide::Decided,
    dispatch::{Call, Dispatch},
    error::CallError,
    event::{AnsweredBy, ApprovalAnswer, DecidedBy, Event},
    pins::chain,
    policy_folder::PolicyFolder,
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

/// What is told of an approval beside the answer.
#[derive(Debug, Default)]
struct Told {
    person: Option<String>,
    holds_until_ms: Option<i64>,
    policy: Option<String>,
    error: Option<String>,
}

impl Told {
    /// How writing a policy to `path` went, as far as that is known in time. Whether it is there.
    fn of_policy(&mut self, path: &Path, written: Option<Result<(), StateError>>) -> bool {
        let is_there = matches!(written, Some(Ok(()) | Err(StateError::Unsynced { .. })));
        let path = path.display().to_string();
        self.error = match written {
            Some(written) => written.err().map(|error| chain(&error)),
            None => Some(format!(
                "the policy could not be written in time, and may still be: look for `{path}`"
            )),
        };
        self.policy = is_there.then_some(path);
        is_there
    }
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
    pub(crate) async fn recall(&self, call: &mut Call, tool: &CatalogTool, decided: &Decided) {
        if decided.explanation.decision.code != ReasonCode::AskByPolicy {
            return;
        }
        let state = Arc::clone(self.pinning.state());
        let bound = call.bound(tool, decided);
        let found = spawn_blocking(move || state.approval_of(&bound, clock::unix_ms()));
        match timeout(STATE_WITHIN, found).await {
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
    /// take over meanwhile and leave nothing to ask, it returns as well: the caller decides anew in any case.
    pub(crate) async fn ask(
        &self,
        call: &mut Call,
        tool: &CatalogTool,
        decided: Decided,
    ) -> Result<(), CallError> {
        let Some(handler) = self.options.approval.clone() else {
            self.tell_approval(
                call,
                ApprovalAnswer::Unanswered,
                AnsweredBy::Nobody,
                Told::default(),
            );
            return Err(call.needs_approval(decided.explanation));
        };
        let until = Instant::now() + self.options.keeping.approval_wait.min(LONGEST_WAIT);
        // What takes over from here on is noticed.
        let mut swaps = self.policies.swaps();
        if self.policies.current().digest() != decided.policies.digest() {
            swaps.mark_changed();
        }
        let mut request = ApprovalRequest {
            call: call.number,
            capability: call.capability.clone(),
            agent: call.agent.clone(),
            tier: call.tier,
            arguments: call.arguments.to_string(),
            description: tool.description.clone(),
            decision: decided.explanation.decision.clone(),
            hold: None,
            always: None,
        };
        let hook = timeout_at(until, handler.hook(&request))
            .await
            .unwrap_or(HookAnswer::NoOpinion);
        let may_allow = decided.explanation.decision.approver == Some(Approver::PersonOrHook);
        match hook {
            HookAnswer::Deny(reason) => {
                return Err(self.refused(call, AnsweredBy::Hook, reason, decided.explanation));
            }
            HookAnswer::Allow if may_allow => {
                call.grant = Some(grant(tool, &decided, DecidedBy::Hook));
                self.tell_approval(call, ApprovalAnswer::Approved, AnsweredBy::Hook, Told::default());
                return Ok(());
            }
            HookAnswer::Allow | HookAnswer::NoOpinion => {}
        }
        if decided.explanation.decision.code == ReasonCode::AskByPolicy {
            request.hold = Some(self.options.keeping.approval_hold);
            request.always = self.always(call, tool, &decided, handler.name()).await;
        }
        match self.person(call, tool, &handler, &request, swaps, until).await {
            None => Ok(()),
            Some(PersonAnswer::Deny(reason)) => {
                Err(self.refused(call, AnsweredBy::Person, reason, decided.explanation))
            }
            Some(PersonAnswer::Nobody) => {
                self.tell_approval(
                    call,
                    ApprovalAnswer::Unanswered,
                    AnsweredBy::Nobody,
                    Told::default(),
                );
                Err(call.needs_approval(decided.explanation))
            }
            Some(answer) => {
                call.grant = Some(grant(tool, &decided, DecidedBy::Person));
                let mut told = Told {
                    person: Some(handler.name()),
                    ..Told::default()
                };
                match answer {
                    PersonAnswer::AllowFor => self.keep(call, tool, &decided, &request, &mut told).await,
                    PersonAnswer::AllowAlways => self.write_always(request.always, &mut told).await,
                    _ => {}
                }
                self.tell_approval(call, ApprovalAnswer::Approved, AnsweredBy::Person, told);
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

    /// Keeps the approval, where it may be kept.
    async fn keep(
        &self,
        call: &Call,
        tool: &CatalogTool,
        decided: &Decided,
        request: &ApprovalRequest,
        told: &mut Told,
    ) {
        let Some(hold) = request.hold else {
            return;
        };
        let (state, bound) = (Arc::clone(self.pinning.state()), call.bound(tool, decided));
        let by = told.person.clone().unwrap_or_default();
        let kept = spawn_blocking(move || state.approve(&bound, &by, clock::unix_ms(), hold));
        match timeout(STATE_WITHIN, kept).await {
            Ok(Ok(Ok(approval))) => told.holds_until_ms = Some(approval.until_ms),
            // The call runs this once: that is what the person said at the least.
            Ok(Ok(Err(error))) => told.error = Some(chain(&error)),
            Ok(Err(_)) | Err(_) => {
                let error = "the approval could not be kept in time, and may still be: `portcullis approvals list` \
                             shows it";
                told.error = Some(error.to_owned());
            }
        }
    }

    /// What "always" would write, where that answer can hold: the policies come from a folder that nobody sealed, they
    /// are those in force, and with one more that permits this call they allow it.
    async fn always(
        &self,
        call: &Call,
        tool: &CatalogTool,
        decided: &Decided,
        by: String,
    ) -> Option<AlwaysOffer> {
        let folder = self.policies.folder()?.clone();
        let (capability, agent) = (call.capability.clone(), call.agent.clone());
        let profile = call.profile.clone();
        let (number, arguments_hash) = (call.number, call.arguments_hash);
        let (arguments, tier, facts) = (Arc::clone(&call.arguments), call.tier, tool.facts.clone());
        let in_force = decided.policies.digest();
        let offer = spawn_blocking(move || {
            let always = AlwaysAllow {
                capability: &capability,
                agent: &agent,
                by: &by,
                call: number,
                arguments_hash,
                at_ms: clock::unix_ms(),
            };
            let (offer, policies) = prospect(&folder, &always, in_force)?;
            let question = CallQuestion {
                agent: &agent,
                profile: &profile,
                tier,
                tool: &facts,
                arguments: &arguments,
                now_ms: clock::unix_ms(),
            };
            (policies.decide(&question).answer == Answer::Allow).then_some(offer)
        });
        timeout(STATE_WITHIN, offer).await.ok()?.ok()?
    }

    /// Writes the policy that was shown, and lets it take over.
    async fn write_always(&self, offer: Option<AlwaysOffer>, told: &mut Told) {
        let Some(AlwaysOffer { path, text }) = offer else {
            return;
        };
        let to = path.clone();
        let written = spawn_blocking(move || write_new(&to, text.as_bytes(), Privacy::Shared));
        let written = timeout(STATE_WITHIN, written).await;
        if told.of_policy(&path, written.ok().and_then(Result::ok)) {
            let _ = self.policies.reload(None).await;
        }
    }

    fn refused(
        &self,
        call: &Call,
        by: AnsweredBy,
        reason: String,
        explanation: Box<Explanation>,
    ) -> CallError {
        let person =
            (by == AnsweredBy::Person).then(|| self.options.approval.as_ref().map(|handler| handler.name()));
        let told = Told {
            person: person.flatten(),
            ..Told::default()
        };
        self.tell_approval(call, ApprovalAnswer::Refused, by, told);
        CallError::Refused {
            capability: call.capability.clone(),
            by,
            reason,
            explanation,
        }
    }

    fn tell_approval(&self, call: &Call, answer: ApprovalAnswer, by: AnsweredBy, told: Told) {
        self.events.tell(Event::Approval {
            call: call.number,
            capability: call.capability.clone(),
            answer,
            by,
            person: told.person,
            holds_until_ms: told.holds_until_ms,
            policy: told.policy,
            error: told.error,
        });
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

/// The file that would be written, and all policies with it.
fn prospect(
    folder: &PolicyFolder,
    always: &AlwaysAllow<'_>,
    in_force: Hash,
) -> Option<(AlwaysOffer, DecisionPoint)> {
    let texts = folder.texts().ok()?;
    if texts.seal.is_some() || DecisionPoint::load(&texts.files).ok()?.digest() != in_force {
        return None;
    }
    let PolicyFile { name, text } = always.policy().ok()?;
    let path = folder.path().join(&name);
    let mut files = texts.files;
    files.push(PolicyFile {
        name,
        text: text.clone(),
    });
    let policies = DecisionPoint::load(&files).ok()?;
    Some((AlwaysOffer { path, text }, policies))
}

#[cfg(test)]
mod tests;
