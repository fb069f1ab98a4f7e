//! The data plane: one call, from lookup to result, through no mailbox.

mod standing;

use std::{
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use futures::poll;
use portcullis_policy::Explanation;
use portcullis_supervisor::{CallDeadline, CallFault, Ready, Upstream};
use portcullis_types::{AgentId, Answer, CapabilityId, Hash, ServerId, Tier};
use ractor::ActorRef;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    admission::Admission,
    approve::Grant,
    call::{CallOutcome, CallRequest},
    call_code::CallCode,
    catalog::{Catalog, CatalogTool},
    error::CallError,
    event::{CallEnd, Event, EventBus},
    pins::Pinning,
    policies::Policies,
    router::{RouterMessage, RouterOptions},
    shape::{ShapeError, ShapeFlags, ShapedResult, Shaping},
};

/// How often a call that was not sent is tried again, within its deadline.
const ATTEMPTS: usize = 16;

pub(crate) struct Dispatch {
    pub(crate) upstreams: BTreeMap<ServerId, Upstream>,
    pub(crate) catalog: watch::Receiver<Arc<Catalog>>,
    pub(crate) admission: Admission,
    pub(crate) shaping: Shaping,
    pub(crate) events: EventBus,
    pub(crate) pinning: Pinning,
    pub(crate) policies: Arc<Policies>,
    pub(crate) actor: ActorRef<RouterMessage>,
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
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) capability: CapabilityId,
    pub(crate) arguments: Arc<str>,
    pub(crate) arguments_hash: Hash,
    pub(crate) agent: AgentId,
    /// What the agent belongs to.
    pub(crate) profile: AgentId,
    pub(crate) tier: Tier,
    pub(crate) grant: Option<Grant>,
}

impl Dispatch {
    pub(crate) async fn call(&self, request: CallRequest) -> Result<CallOutcome, CallError> {
        let began = Instant::now();
        let arguments = if request.arguments.trim().is_empty() {
            "{}".to_owned()
        } else {
            request.arguments
        };
        let agent = request.agent.unwrap_or_else(|| self.options.agent.clone());
        let mut call = Call {
            number: next_call(),
            capability: request.capability,
            arguments_hash: Hash::of(arguments.as_bytes()),
            arguments: arguments.into(),
            profile: self.options.profile_of(&agent),
            agent,
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
        let (mut since, mut within) = (began, CallDeadline::since(began, deadlines));
        let mut attempt = 0;
        // After a failure only a newer connection will do, and each has a listing of its own.
        let mut at_least = 0;
        let mut turn = None;
        loop {
            let deadline = within.first();
            call.forget_what_is_kept();
            let tool = self.look_up(call, upstream, deadline).await?;
            let decided = self.decide(call, &tool, deadline).await;
            match decided.explanation.decision.answer {
                Answer::Allow => {}
                Answer::Deny => return Err(call.denied(decided.explanation)),
                Answer::Ask if call.is_granted(&tool, &decided) => {}
                Answer::Ask => {
                    // Nobody is asked about what is over.
                    call.is_in_time(since, deadline)?;
                    // Nobody waits for a server because a person thinks.
                    drop(turn.take());
                    self.ask(call, &tool, decided).await?;
                    // The time that somebody took to answer is not the server's.
                    since = Instant::now();
                    within = CallDeadline::since(since, deadlines);
                    continue;
                }
            }
            let fault = |fault| CallError::Upstream {
                capability: call.capability.clone(),
                fault,
            };
            let mut waited = false;
            let permit = match turn.take() {
                Some(permit) => permit,
                None => noticing(&mut waited, self.admission.enter(&call.capability, deadline)).await?,
            };
            let coming = upstream.ready(deadline, at_least.max(tool.version));
            let ready = noticing(&mut waited, coming).await.map_err(fault)?;
            if ready.version() != tool.version {
                drop(permit);
                self.catch_up(call, &ready, deadline).await?;
                continue;
            }
            // What let it run may be gone by the time that its turn comes.
            if !self.is_in_force(&decided) || !self.still_holds(call, &tool, &decided, waited) {
                turn = Some(permit);
                continue;
            }
            call.is_in_time(since, deadline)?;
            self.events.tell(Event::ToolCall {
                call: call.number,
                capability: call.capability.clone(),
                arguments_hash: call.arguments_hash,
            });
            match ready
                .call_raw(call.capability.tool(), Arc::clone(&call.arguments), within)
                .await
            {
                Ok(reply) => {
                    let shaped = self.shaping.shape(upstream.id(), reply).await;
                    let result = shaped.map_err(|fault| call.without_result(fault))?;
                    return Ok(CallOutcome {
                        call: call.number,
                        result,
                        approved_by: call.granted_by(&tool, &decided),
                        decision: decided.explanation.decision,
                        duration: began.elapsed(),
                    });
                }
                // Nothing of it went out, so sending it on the next connection sends it once.
                Err(CallFault::NotSent { .. }) if attempt < ATTEMPTS && Instant::now() < deadline => {
                    attempt += 1;
                    at_least = ready.version() + 1;
                }
                Err(other) => return Err(fault(self.shaping.fault(upstream.id(), other).await)),
            }
        }
    }

    /// The tool in the current snapshot, as it stands now. Where its server has not said what it offers, that is waited
    /// for.
    async fn look_up(
        &self,
        call: &Call,
        upstream: &Upstream,
        deadline: Instant,
    ) -> Result<Arc<CatalogTool>, CallError> {
        loop {
            let catalog = Arc::clone(&self.catalog.borrow());
            if let Some(tool) = catalog.get(&call.capability) {
                return self.as_it_stands(Arc::clone(tool), deadline).await;
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
}

/// The outcome of `future`, and whether it had to be waited for.
async fn noticing<T>(waited: &mut bool, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match poll!(&mut future) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => {
            *waited = true;
            future.await
        }
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
                let outcome = if done.result.is_error {
                    CallEnd::ToolError
                } else {
                    CallEnd::Ok
                };
                self.event(outcome, None, Some(&done.result));
            }
            Err(error) => self.event(CallEnd::Failed(error.into()), error.without_content(), None),
        }
    }

    fn event(&mut self, outcome: CallEnd, error: Option<String>, result: Option<&ShapedResult>) {
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
            let why = "the caller no longer waits".to_owned();
            self.event(CallEnd::Failed(CallCode::Cancelled), Some(why), None);
        }
    }
}

impl Call {
    /// What is over is not sent, also where nothing had to be waited for.
    fn is_in_time(&self, since: Instant, deadline: Instant) -> Result<(), CallError> {
        if Instant::now() < deadline {
            Ok(())
        } else {
            Err(CallError::timed_out(&self.capability, deadline - since))
        }
    }

    fn denied(&self, explanation: Box<Explanation>) -> CallError {
        CallError::Denied {
            capability: self.capability.clone(),
            explanation,
        }
    }

    fn without_result(&self, fault: ShapeError) -> CallError {
        CallError::Result {
            capability: self.capability.clone(),
            fault,
        }
    }

    pub(crate) fn needs_approval(&self, explanation: Box<Explanation>) -> CallError {
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
