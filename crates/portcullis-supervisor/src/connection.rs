use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use portcullis_types::ServerId;
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
        ClientRequest, RequestId, ServerResult,
    },
    service::{Peer, PeerRequestOptions, RequestHandle, ServiceError},
};
use serde_json::Value;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    asking::Asking,
    connect::shown,
    deadline::CallDeadline,
    error::CallFault,
    gate::Gate,
    http::{Complaint, guarded},
    rounds::{InputRequired, MAX_ROUNDS, Round},
    service::ProgressTable,
    stderr::StderrRing,
    strings::RawReply,
    ticket::{Ticket, WireFault},
    transport::RawArguments,
};

/// How long telling a server that a call is cancelled may take before it is given up.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// How much longer than a call may take what is below waits for its answer. The call's own deadline ends it, and tells
/// the server; were both due at once, a busy machine would let chance decide.
const BACKSTOP: Duration = Duration::from_secs(5);

/// One live connection to a server. Calls go straight through it, past every mailbox.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) generation: u64,
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) gate: Gate,
    pub(crate) progress: Arc<ProgressTable>,
    pub(crate) closed: CancellationToken,
    pub(crate) server: ServerId,
    pub(crate) asking: Arc<Asking>,
    /// What knows the values that a process, or a server over HTTP, was given.
    pub(crate) stderr: StderrRing,
    pub(crate) complaint: Complaint,
}

impl Connection {
    /// Calls `tool` with `arguments`, the JSON text of an object, and gives the raw JSON text of the result.
    ///
    /// The idle deadline is renewed by progress, and stands still while a person is asked; the cap is one for all
    /// rounds. Dropped while it waits, the server is told `notifications/cancelled` once.
    ///
    /// A tool that needs something of the user first is answered and called again, which the protocol means as one
    /// call.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Arc<str>,
        within: CallDeadline,
        cancel: Option<&CancellationToken>,
    ) -> Result<RawReply, CallFault> {
        // One pass for all rounds: between two of them the connection is as much in use as in each.
        let Some(_pass) = self.gate.enter() else {
            return Err(CallFault::NotSent {
                reason: "the connection was being closed".to_owned(),
            });
        };
        let attempt = Attempt {
            tool,
            arguments,
            round: Round::default(),
            within,
            cancel,
        };
        let reply = self.send(&attempt, within.first()).await?;
        match InputRequired::read(&reply.json) {
            None => Ok(reply),
            // Boxed, since few calls have a second round and each would be as large.
            Some(required) => Box::pin(self.go_on(attempt, reply, required)).await,
        }
    }

    /// Answers what the tool needs first, round for round, until it gives its result.
    async fn go_on(
        &self,
        mut attempt: Attempt<'_>,
        mut reply: RawReply,
        mut required: Result<InputRequired, serde_json::Error>,
    ) -> Result<RawReply, CallFault> {
        let Attempt { within, cancel, .. } = attempt;
        for _ in 0..MAX_ROUNDS {
            let answered = tokio::select! {
                biased;
                () = cancelled_by(cancel) => return Err(CallFault::Cancelled { sent: true }),
                // No later round can be sent any more, so nobody is asked for it.
                () = self.closed.cancelled() => {
                    return Err(CallFault::OutcomeUnknown { reason: self.why_ended() });
                }
                answered = timeout_at(within.end(), self.answer(reply, required)) => answered,
            };
            attempt.round = answered
                .map_err(|_| CallFault::TimedOut {
                    after: within.cap(),
                    sent: true,
                })?
                .map_err(|reason| CallFault::BadReply { reason })?;
            // What a person took to answer is not the server's.
            let idle = Instant::now() + within.idle();
            let sent = self.send(&attempt, idle).await;
            // The server has had the call since the first round, whatever became of a later one.
            reply = sent.map_err(CallFault::after_it_was_sent)?;
            required = match InputRequired::read(&reply.json) {
                None => return Ok(reply),
                Some(required) => required,
            };
        }
        Err(CallFault::BadReply {
            reason: format!("the tool asked for more than {MAX_ROUNDS} rounds of input"),
        })
    }

    /// The next round: what `reply` says is required, with the answers to it.
    async fn answer(
        &self,
        reply: RawReply,
        mut required: Result<InputRequired, serde_json::Error>,
    ) -> Result<Round, String> {
        // What it wants goes back to the server or to a person, word for word: no string of it may stay out.
        if !reply.strings.is_empty() {
            let whole = reply.whole().await?;
            required = InputRequired::read(&whole).unwrap_or_else(|| serde_json::from_str(&whole));
        }
        let needed = required.map_err(|error| error.to_string())?;
        needed.answer(&self.server, &self.asking).await
    }

    /// Sends one request and waits for its reply, until `idle` if nothing is heard of it.
    async fn send(&self, attempt: &Attempt<'_>, mut idle: Instant) -> Result<RawReply, CallFault> {
        let Attempt { within, cancel, .. } = *attempt;
        let cap = within.end();
        let ticket = Arc::new(attempt.ticket());
        let handle = match self.queue_at_once(attempt, &ticket) {
            Some(queued) => queued,
            None => tokio::select! {
                biased;
                queued = self.queue(attempt, &ticket) => queued,
                () = sleep_until(idle.min(cap)) => return Err(overdue(idle, within, &ticket)),
                () = cancelled_by(cancel) => return Err(CallFault::Cancelled { sent: !ticket.withdraw() }),
            },
        };
        // Taken apart, since what else is in it would be carried along by each call.
        let RequestHandle {
            rx: reply,
            id,
            progress_token,
            ..
        } = handle.map_err(|error| self.fault(error, &ticket))?;
        let _watch = self.progress.watch(progress_token, &ticket);
        let mut call = InFlight {
            reply,
            id,
            peer: &self.peer,
            ticket: Arc::clone(&ticket),
            is_over: false,
        };
        loop {
            tokio::select! {
                biased;
                reply = call.reply() => {
                    let json = reply.and_then(raw_result).map_err(|error| self.fault(error, &ticket))?;
                    return Ok(RawReply { json, strings: ticket.strings() });
                }
                () = cancelled_by(cancel) => return Err(CallFault::Cancelled { sent: !ticket.withdraw() }),
                () = sleep_until(idle.min(cap)) => match self.renews(idle, within.idle(), &ticket) {
                    Some(later) if Instant::now() < cap => idle = later,
                    // Dropping the call tells the server, where it was not withdrawn.
                    _ => return Err(overdue(idle, within, &ticket)),
                },
            }
        }
    }

    /// Gives the request to the SDK. Boxed: its future is some KiB large and would be moved with each that holds it.
    fn queue(
        &self,
        attempt: &Attempt<'_>,
        ticket: &Arc<Ticket>,
    ) -> BoxFuture<'_, Result<RequestHandle<RoleClient>, ServiceError>> {
        let request = ClientRequest::CallToolRequest(attempt.request(ticket));
        Box::pin(
            self.peer
                .send_request_with_option(request, PeerRequestOptions::no_options()),
        )
    }

    /// As [`queue`](Self::queue), where the SDK's queue has room and the task may go on, which is nearly always: then
    /// nothing is boxed. Else nothing was queued; and whatever the SDK does, of two requests with one ticket only one is ever written.
    fn queue_at_once(
        &self,
        attempt: &Attempt<'_>,
        ticket: &Arc<Ticket>,
    ) -> Option<Result<RequestHandle<RoleClient>, ServiceError>> {
        let request = ClientRequest::CallToolRequest(attempt.request(ticket));
        self.peer
            .send_request_with_option(request, PeerRequestOptions::no_options())
            .now_or_never()
    }

    /// The idle deadline that takes the place of `idle`, which has come: after the server's last progress, or after a
    /// person was asked. Looked at then and not as it happens, since nearly every call ends before.
    fn renews(&self, idle: Instant, patience: Duration, ticket: &Ticket) -> Option<Instant> {
        let asked = self.asking.renews(idle, patience);
        ticket.renews(idle, patience).max(asked)
    }

    /// Over HTTP that was seen where the connection was given up.
    fn why_ended(&self) -> String {
        let why = self.complaint.why_ended();
        why.unwrap_or_else(|| "the connection ended".to_owned())
    }

    fn fault(&self, error: ServiceError, ticket: &Ticket) -> CallFault {
        match ticket.fault() {
            Some(WireFault::Unusable(reason)) => {
                return CallFault::BadReply {
                    reason: reason.clone(),
                };
            }
            Some(WireFault::Closed(reason)) => return lost(reason.clone(), ticket),
            Some(WireFault::LoginNeeded(reason)) => {
                return CallFault::LoginNeeded {
                    reason: reason.clone(),
                };
            }
            Some(WireFault::Overloaded(reason, retry_after)) => {
                return CallFault::Overloaded {
                    reason: reason.clone(),
                    retry_after: *retry_after,
                };
            }
            None => {}
        }
        match error {
            ServiceError::McpError(error) => CallFault::Rpc {
                code: error.code.0,
                message: error.message.into_owned(),
                data: error.data.map(|data| data.to_string()),
            },
            ServiceError::UnexpectedResponse => CallFault::BadReply {
                reason: "it is not the result of a call".to_owned(),
            },
            // Of a session that could not be set up anew it may say what the server did, in the SDK's words.
            ServiceError::TransportSend(failed) => {
                let reason = match guarded(failed.error.as_ref()) {
                    Some(failure) => failure.to_string(),
                    None => shown(&failed.error.to_string(), &self.stderr, &self.complaint),
                };
                let fault = lost(reason, ticket);
                // A session was lost, and not set up anew. A call that was not sent waits for a newer connection, which
                // comes only where this one ends.
                if let CallFault::NotSent { reason } = &fault
                    && ticket.is_of_a_lost_session()
                {
                    self.complaint.end(&self.closed, reason);
                }
                fault
            }
            ServiceError::TransportClosed => lost(self.why_ended(), ticket),
            other => lost(other.to_string(), ticket),
        }
    }
}

/// What the next request of a call is made of.
struct Attempt<'a> {
    tool: &'a str,
    arguments: Arc<str>,
    round: Round,
    within: CallDeadline,
    cancel: Option<&'a CancellationToken>,
}

impl Attempt<'_> {
    fn ticket(&self) -> Ticket {
        Ticket::until(self.within.end() + BACKSTOP)
    }

    fn request(&self, ticket: &Arc<Ticket>) -> CallToolRequest {
        let mut params = CallToolRequestParams::new(self.tool.to_owned());
        params.input_responses.clone_from(&self.round.responses);
        params.request_state.clone_from(&self.round.state);
        let mut request = CallToolRequest::new(params);
        request
            .extensions
            .insert(RawArguments(Arc::clone(&self.arguments)));
        request.extensions.insert(Arc::clone(ticket));
        request
    }
}

/// Resolves once the caller cancels; never where nobody can.
pub(crate) async fn cancelled_by(cancel: Option<&CancellationToken>) {
    match cancel {
        Some(cancel) => cancel.cancelled().await,
        None => std::future::pending().await,
    }
}

/// The fault of a call whose time is over: its idle deadline's, or the cap's.
fn overdue(idle: Instant, within: CallDeadline, ticket: &Ticket) -> CallFault {
    let after = if within.end() <= idle {
        within.cap()
    } else {
        within.idle()
    };
    CallFault::TimedOut {
        after,
        sent: !ticket.withdraw(),
    }
}

fn lost(reason: String, ticket: &Ticket) -> CallFault {
    if ticket.withdraw() {
        CallFault::NotSent { reason }
    } else {
        CallFault::OutcomeUnknown { reason }
    }
}

/// The raw text that the transport put in the place of a result.
pub(crate) fn raw_result(result: ServerResult) -> Result<String, ServiceError> {
    match result {
        ServerResult::CustomResult(custom) => match custom.0 {
            Value::String(raw) => Ok(raw),
            _ => Err(ServiceError::UnexpectedResponse),
        },
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

/// A call that waits for its reply. Dropped before the reply came, it is withdrawn, or the server is told.
struct InFlight<'a> {
    reply: oneshot::Receiver<Result<ServerResult, ServiceError>>,
    id: RequestId,
    peer: &'a Peer<RoleClient>,
    ticket: Arc<Ticket>,
    is_over: bool,
}

impl InFlight<'_> {
    async fn reply(&mut self) -> Result<ServerResult, ServiceError> {
        let reply = (&mut self.reply).await;
        self.is_over = true;
        reply.unwrap_or(Err(ServiceError::TransportClosed))
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // Telling the server may take a while, or fail. That nobody waits is so from now on.
        self.ticket.give_up();
        // Withdrawn, the server never sees the call, so there is nothing to cancel.
        if self.is_over || self.ticket.withdraw() {
            return;
        }
        tell_cancelled(self.peer, &self.id);
    }
}

/// The janitor: who is gone cannot wait, and a server that reads nothing must not hold it up.
pub(crate) fn tell_cancelled(peer: &Peer<RoleClient>, id: &RequestId) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let (id, peer) = (id.clone(), peer.clone());
        runtime.spawn(async move {
            let _ = timeout(CANCEL_WAIT, peer.send_notification(cancelled(id).into())).await;
        });
    }
}

fn cancelled(id: RequestId) -> CancelledNotification {
    let reason = Some("nobody waits for the reply any more".to_owned());
    CancelledNotification::new(CancelledNotificationParam::new(Some(id), reason))
}

#[cfg(test)]
mod tests;
