//! The data plane: one call, from lookup to result, through no mailbox.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use portcullis_policy::{CallQuestion, Explanation};
use portcullis_supervisor::{CallFault, Ready, Upstream};
use portcullis_types::{AgentId, Answer, Approver, CapabilityId, Decision, Hash, ServerId, Tier};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    admission::Admission,
    approval::{ApprovalRequest, HookAnswer, PersonAnswer},
    call::{CallOutcome, CallRequest},
    catalog::{Catalog, CatalogTool},
    clock,
    error::CallError,
    event::{Event, EventBus},
    router::RouterOptions,
    shape::{ShapeFlags, ShapedResult, shape_any},
};

/// How long somebody may take to approve a call.
const APPROVAL_WAIT: Duration = Duration::from_secs(120);
/// Who approved or refused, as events name them.
const HOOK: &str = "hook";
const PERSON: &str = "person";
/// How often a call that was not sent is tried again, within its deadline.
const ATTEMPTS: usize = 16;

pub(crate) struct Dispatch {
    pub(crate) upstreams: BTreeMap<ServerId, Upstream>,
    pub(crate) catalog: watch::Receiver<Arc<Catalog>>,
    pub(crate) admission: Admission,
    pub(crate) events: EventBus,
    pub(crate) options: RouterOptions,
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch")
            .field("upstreams", &self.upstreams.keys())
            .finish_non_exhaustive()
    }
}

/// One call on its way.
struct Call {
    number: u64,
    capability: CapabilityId,
    arguments: Arc<str>,
    arguments_hash: Hash,
    agent: AgentId,
    tier: Tier,
    grant: Option<Grant>,
}

/// An approval. It holds for the very definition that was asked about.
struct Grant {
    definition: Arc<str>,
    by: &'static str,
}

impl Dispatch {
    pub(crate) async fn call(&self, request: CallRequest) -> Result<CallOutcome, CallError> {
        let began = Instant::now();
        let arguments = if request.arguments.trim().is_empty() {
            "{}".to_owned()
        } else {
            request.arguments
        };
        let mut call = Call {
            number: next_call(),
            capability: request.capability,
            arguments_hash: Hash::of(arguments.as_bytes()),
            arguments: arguments.into(),
            agent: request.agent.unwrap_or_else(|| self.options.agent.clone()),
            tier: request.tier.unwrap_or(self.options.tier),
            grant: None,
        };
        let mut ending = Ending {
            events: &self.events,
            number: call.number,
            capability: call.capability.clone(),
            began,
            told: false,
        };
        let result = self.run(&mut call, began).await;
        ending.tell(&result);
        result
    }

    /// Lookup, decision, approval and sending. Where a person was asked, or another connection took the place of the
    /// one that was decided on, lookup and decision are made anew: the tool need not be what it was.
    async fn run(&self, call: &mut Call, began: Instant) -> Result<CallOutcome, CallError> {
        let upstream =
            self.upstreams
                .get(call.capability.server())
                .ok_or_else(|| CallError::UnknownServer {
                    server: call.capability.server().clone(),
                    known: self.upstreams.keys().cloned().collect(),
                })?;
        let deadlines = upstream.timeouts();
        let mut deadline = began + deadlines.call;
        let mut attempt = 0;
        // After a failure only a newer connection will do, and each has a listing of its own.
        let mut at_least = 0;
        loop {
            let tool = self.look_up(call, upstream, deadline).await?;
            let explanation = self.decide(call, &tool);
            match explanation.decision.answer {
                Answer::Allow => {}
                Answer::Deny => return Err(call.denied(explanation)),
                Answer::Ask if call.is_granted(&tool, &explanation.decision) => {}
                Answer::Ask => {
                    self.ask(call, &tool, explanation).await?;
                    // The time that somebody took to answer is not the server's.
                    deadline = Instant::now() + deadlines.call;
                    continue;
                }
            }
            let fault = |fault| CallError::Upstream {
                capability: call.capability.clone(),
                fault,
            };
            let permit = self.admission.enter(&call.capability, deadline).await?;
            let ready = upstream
                .ready(deadline, at_least.max(tool.version))
                .await
                .map_err(fault)?;
            if ready.version() != tool.version {
                drop(permit);
                self.catch_up(call, &ready, deadline).await?;
                continue;
            }
            self.events.tell(Event::ToolCall {
                call: call.number,
                capability: call.capability.clone(),
                arguments_hash: call.arguments_hash,
            });
            match ready
                .call(call.capability.tool(), Arc::clone(&call.arguments), deadlines)
                .await
            {
                Ok(raw) => {
                    let result = shape_any(raw, &self.options.store, &self.options.shape)
                        .await
                        .map_err(|fault| CallError::Result {
                            capability: call.capability.clone(),
                            fault,
                        })?;
                    return Ok(CallOutcome {
                        call: call.number,
                        result,
                        decision: explanation.decision,
                        approved_by: call.grant.as_ref().map(|grant| grant.by),
                        duration: began.elapsed(),
                    });
                }
                // Nothing of it went out, so sending it on the next connection sends it once.
                Err(CallFault::NotSent { .. }) if attempt < ATTEMPTS && Instant::now() < deadline => {
                    attempt += 1;
                    at_least = ready.version() + 1;
                }
                Err(other) => return Err(fault(other)),
            }
        }
    }

    /// The tool in the current snapshot. Where its server has not said what it offers, that is waited for.
    async fn look_up(
        &self,
        call: &Call,
        upstream: &Upstream,
        deadline: Instant,
    ) -> Result<Arc<CatalogTool>, CallError> {
        loop {
            let catalog = Arc::clone(&self.catalog.borrow());
            if let Some(tool) = catalog.get(&call.capability) {
                return Ok(Arc::clone(tool));
            }
            if catalog.is_disabled(&call.capability) {
                return Err(CallError::Disabled(call.capability.clone()));
            }
            let ready = upstream
                .ready(deadline, 0)
                .await
                .map_err(|fault| CallError::Upstream {
                    capability: call.capability.clone(),
                    fault,
                })?;
            if ready.version() <= catalog.version_of(upstream.id()) {
                let nearest = catalog.nearest(&call.capability);
                return Err(CallError::UnknownTool {
                    capability: call.capability.clone(),
                    nearest,
                });
            }
            self.catch_up(call, &ready, deadline).await?;
        }
    }

    /// Waits until the catalog knows the listing that came with this connection.
    async fn catch_up(&self, call: &Call, ready: &Ready, deadline: Instant) -> Result<(), CallError> {
        let began = Instant::now();
        let mut catalog = self.catalog.clone();
        let known =
            catalog.wait_for(|catalog| catalog.version_of(call.capability.server()) >= ready.version());
        match timeout_at(deadline, known).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(CallError::timed_out(&call.capability, deadline - began)),
        }
    }

    /// The decision on `tool` for the default caller, with no arguments and no event.
    pub(crate) fn outlook(&self, tool: &CatalogTool) -> Decision {
        self.options.policies.decide(&CallQuestion {
            agent: &self.options.agent,
            profile: &AgentId::default(),
            tier: self.options.tier,
            tool: &tool.facts,
            arguments: "{}",
            now_ms: clock::unix_ms(),
        })
    }

    fn decide(&self, call: &Call, tool: &CatalogTool) -> Box<Explanation> {
        let policies = &self.options.policies;
        let question = CallQuestion {
            agent: &call.agent,
            profile: &AgentId::default(),
            tier: call.tier,
            tool: &tool.facts,
            arguments: &call.arguments,
            now_ms: clock::unix_ms(),
        };
        let decision = policies.decide(&question);
        let explanation = Box::new(policies.explain_decided(&question, decision, call.arguments_hash));
        self.events.tell(Event::Permission {
            call: call.number,
            capability: call.capability.clone(),
            agent: call.agent.clone(),
            tier: call.tier,
            arguments_hash: call.arguments_hash,
            policy_digest: explanation.policy_digest,
            decision: explanation.clone(),
        });
        explanation
    }

    /// Asks the hook, then a person. On a yes the call holds a grant for this very definition.
    async fn ask(
        &self,
        call: &mut Call,
        tool: &CatalogTool,
        explanation: Box<Explanation>,
    ) -> Result<(), CallError> {
        let decision = &explanation.decision;
        let Some(handler) = &self.options.approval else {
            self.tell_approval(call, "unanswered", "nobody");
            return Err(call.needs_approval(explanation));
        };
        let request = ApprovalRequest {
            call: call.number,
            capability: call.capability.clone(),
            agent: call.agent.clone(),
            tier: call.tier,
            arguments: call.arguments.to_string(),
            description: tool.description.clone(),
            decision: decision.clone(),
        };
        let hook = timeout(APPROVAL_WAIT, handler.hook(&request))
            .await
            .unwrap_or(HookAnswer::NoOpinion);
        let may_allow = decision.approver == Some(Approver::PersonOrHook);
        match hook {
            HookAnswer::Deny(reason) => return Err(self.refused(call, HOOK, reason, explanation)),
            HookAnswer::Allow if may_allow => {
                self.grant(call, tool, HOOK);
                return Ok(());
            }
            HookAnswer::Allow | HookAnswer::NoOpinion => {}
        }
        match timeout(APPROVAL_WAIT, handler.person(&request))
            .await
            .unwrap_or(PersonAnswer::Nobody)
        {
            PersonAnswer::Allow => {
                self.grant(call, tool, PERSON);
                Ok(())
            }
            PersonAnswer::Deny(reason) => Err(self.refused(call, PERSON, reason, explanation)),
            PersonAnswer::Nobody => {
                self.tell_approval(call, "unanswered", "nobody");
                Err(call.needs_approval(explanation))
            }
        }
    }

    fn grant(&self, call: &mut Call, tool: &CatalogTool, by: &'static str) {
        self.tell_approval(call, "approved", by);
        call.grant = Some(Grant {
            definition: Arc::clone(&tool.definition),
            by,
        });
    }

    fn refused(
        &self,
        call: &Call,
        by: &'static str,
        reason: String,
        explanation: Box<Explanation>,
    ) -> CallError {
        self.tell_approval(call, "refused", by);
        CallError::Refused {
            capability: call.capability.clone(),
            by,
            reason,
            explanation,
        }
    }

    fn tell_approval(&self, call: &Call, answer: &'static str, by: &'static str) {
        self.events.tell(Event::Approval {
            call: call.number,
            capability: call.capability.clone(),
            answer,
            by,
        });
    }
}

/// Tells how a call ended, also one whose caller has gone away in the middle of it.
struct Ending<'a> {
    events: &'a EventBus,
    number: u64,
    capability: CapabilityId,
    began: Instant,
    told: bool,
}

impl Ending<'_> {
    fn tell(&mut self, result: &Result<CallOutcome, CallError>) {
        match result {
            Ok(done) => {
                let outcome = if done.result.is_error { "tool-error" } else { "ok" };
                self.event(outcome, None, Some(&done.result));
            }
            Err(error) => self.event(error.code(), error.without_content(), None),
        }
    }

    fn event(&mut self, outcome: &'static str, error: Option<String>, result: Option<&ShapedResult>) {
        self.told = true;
        self.events.tell(Event::ToolResult {
            call: self.number,
            capability: self.capability.clone(),
            outcome,
            error,
            duration_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            size_bytes: result.map_or(0, |result| result.size_bytes),
            blobs: result.map_or_else(Vec::new, |result| result.blobs.clone()),
            flags: result.map_or_else(ShapeFlags::default, |result| result.flags),
        });
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.event("cancelled", Some("the caller no longer waits".to_owned()), None);
        }
    }
}

impl Call {
    /// Whether somebody who may has approved this very definition.
    fn is_granted(&self, tool: &CatalogTool, decision: &Decision) -> bool {
        self.grant.as_ref().is_some_and(|grant| {
            let may = grant.by == PERSON || decision.approver == Some(Approver::PersonOrHook);
            may && grant.definition == tool.definition
        })
    }

    fn denied(&self, explanation: Box<Explanation>) -> CallError {
        CallError::Denied {
            capability: self.capability.clone(),
            explanation,
        }
    }

    fn needs_approval(&self, explanation: Box<Explanation>) -> CallError {
        CallError::NeedsApproval {
            capability: self.capability.clone(),
            explanation,
        }
    }
}

/// Calls are numbered through the process, so that the events of two hubs in one log stay apart.
fn next_call() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed) + 1
}
