use std::{sync::Arc, time::Duration};

use portcullis_config::Timeouts;
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
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    elicitation::ElicitationResponder,
    error::CallFault,
    gate::Gate,
    rounds::{InputRequired, MAX_ROUNDS, Round},
    service::ProgressTable,
    strings::RawReply,
    ticket::{Ticket, WireFault},
    transport::{CallCap, RawArguments},
};

/// How long telling a server that a call is cancelled may take before it is given up.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// One live connection to a server. Calls go straight through it, past every mailbox.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) generation: u64,
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) gate: Gate,
    pub(crate) progress: Arc<ProgressTable>,
    pub(crate) closed: CancellationToken,
    pub(crate) server: ServerId,
    pub(crate) elicitation: Option<Arc<dyn ElicitationResponder>>,
}

impl Connection {
    /// Calls `tool` with `arguments`, the JSON text of an object, and gives the raw JSON text of the result.
    ///
    /// The idle deadline is renewed by progress, the cap is not. Dropped while it waits, the server is told
    /// `notifications/cancelled` once.
    ///
    /// A tool that needs something of the user first is answered and called again, which the protocol means as one
    /// call.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Arc<str>,
        deadlines: Timeouts,
    ) -> Result<RawReply, CallFault> {
        let mut round = Round::default();
        for number in 0..=MAX_ROUNDS {
            let sent = self.send(tool, Arc::clone(&arguments), round, deadlines).await;
            // The server has had the call since the first round, whatever became of a later one.
            let reply = if number == 0 {
                sent?
            } else {
                sent.map_err(CallFault::after_it_was_sent)?
            };
            let required = match InputRequired::read(&reply.json) {
                None => return Ok(reply),
                Some(required) if reply.strings.is_empty() => required,
                // What it wants goes back to the server or to a person, word for word: no string of it may stay out.
                Some(_) => {
                    let whole = reply.whole().await;
                    let whole = whole.map_err(|reason| CallFault::BadReply { reason })?;
                    let required = InputRequired::read(&whole);
                    required.unwrap_or_else(|| serde_json::from_str(&whole))
                }
            };
            let required = required.map_err(|error| CallFault::BadReply {
                reason: error.to_string(),
            })?;
            round = required
                .answer(&self.server, self.elicitation.as_ref())
                .await
                .map_err(|reason| CallFault::BadReply { reason })?;
        }
        Err(CallFault::BadReply {
            reason: format!("the tool asked for more than {MAX_ROUNDS} rounds of input"),
        })
    }

    /// Sends one request and waits for its reply.
    async fn send(
        &self,
        tool: &str,
        arguments: Arc<str>,
        round: Round,
        deadlines: Timeouts,
    ) -> Result<RawReply, CallFault> {
        let Some(_pass) = self.gate.enter() else {
            return Err(CallFault::NotSent {
                reason: "the connection was being closed".to_owned(),
            });
        };
        let started = Instant::now();
        let ticket = Arc::new(Ticket::default());
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.input_responses = round.responses;
        params.request_state = round.state;
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(RawArguments(arguments));
        request.extensions.insert(CallCap(deadlines.call_max));
        request.extensions.insert(Arc::clone(&ticket));
        let queued = self.peer.send_request_with_option(
            ClientRequest::CallToolRequest(request),
            PeerRequestOptions::no_options(),
        );
        let cap = started + deadlines.call_max;
        let handle = tokio::select! {
            handle = queued => handle.map_err(|error| self.fault(error, &ticket))?,
            () = sleep_until(started + deadlines.call) => {
                return Err(CallFault::TimedOut { after: deadlines.call, sent: !ticket.withdraw() });
            }
        };
        let progress = self.progress.watch(handle.progress_token.clone());
        let mut call = InFlight {
            handle: Some(handle),
            ticket: Arc::clone(&ticket),
        };
        let mut idle = started + deadlines.call;
        loop {
            tokio::select! {
                biased;
                reply = call.reply() => {
                    let json = reply.and_then(raw_result).map_err(|error| self.fault(error, &ticket))?;
                    return Ok(RawReply { json, strings: ticket.strings() });
                }
                () = progress.renewed() => idle = Instant::now() + deadlines.call,
                () = sleep_until(idle.min(cap)) => {
                    let after = if cap <= idle { deadlines.call_max } else { deadlines.call };
                    // Dropping the call tells the server, where it was not withdrawn.
                    return Err(CallFault::TimedOut { after, sent: !ticket.withdraw() });
                }
            }
        }
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
            other => lost(other.to_string(), ticket),
        }
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
struct InFlight {
    handle: Option<RequestHandle<RoleClient>>,
    ticket: Arc<Ticket>,
}

impl InFlight {
    async fn reply(&mut self) -> Result<ServerResult, ServiceError> {
        let Some(handle) = self.handle.as_mut() else {
            return Err(ServiceError::TransportClosed);
        };
        let reply = (&mut handle.rx)
            .await
            .unwrap_or(Err(ServiceError::TransportClosed));
        self.handle = None;
        reply
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        if self.ticket.withdraw() {
            // The server never sees the call, so there is nothing to cancel.
            return;
        }
        // The janitor: a caller that is gone cannot wait, and a server that reads nothing must not hold it up.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let notification = cancelled(handle.id.clone());
                let _ = timeout(CANCEL_WAIT, handle.peer.send_notification(notification.into())).await;
            });
        }
    }
}

fn cancelled(id: RequestId) -> CancelledNotification {
    let reason = Some("the caller no longer waits".to_owned());
    CancelledNotification::new(CancelledNotificationParam::new(Some(id), reason))
}

#[cfg(test)]
mod tests;
