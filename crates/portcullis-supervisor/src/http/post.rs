use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use futures::{StreamExt, future::ready};
use http::{HeaderValue, Method, StatusCode, header};
use portcullis_egress::{EgressError, GuardedResponse};
use portcullis_wire::Limits;
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId},
    transport::streamable_http_client::{
        StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};

use super::{
    client::{Back, EVENT_STREAM, Failure, GuardedHttp, JSON, SESSION_ID, header_text, is_media_type},
    messages::Refused,
    outstanding::{left, ticket},
    reply::{Stray, Translated, translate_message},
    stream::{StreamOf, event_of},
};
use crate::{
    encode::encode_message,
    ticket::{Ticket, WireFault},
};

impl GuardedHttp {
    /// Sends one message and reads the head of the answer. What a call's ticket is told follows from where it
    /// failed, never from what the failure is called.
    pub(super) async fn post(
        &self,
        back: &Back,
        message: &ClientJsonRpcMessage,
    ) -> Result<GuardedResponse, Failure> {
        let body = encode_message(message)?;
        let mut request = self.request(Method::POST, back)?;
        request.headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        request
            .headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        request.body = Bytes::from(body);
        // Of the newer era alone: in the older one nobody says which (SEP-2243).
        request.headers.extend(self.outstanding.params.headers(message));
        if matches!(message, JsonRpcMessage::Request(_)) {
            request.first_byte = Some(left(message).unwrap_or(self.terms.patience));
        }
        if is_listen(message) {
            self.standing.peace().await;
        }
        let ticket = ticket(message);
        if ticket.is_some_and(|ticket| !ticket.begin()) {
            return Err(StreamableHttpError::UnexpectedServerResponse(Cow::from(
                "the call was withdrawn before it was sent",
            )));
        }
        self.outstanding.note(message);
        match self.send(request).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let why = error.to_string();
                self.terms.complaint.say(&why);
                if is_listen(message) {
                    self.standing_failed(&why);
                }
                if error.is_not_sent() {
                    // Also where the rules refuse the address that the server has by now: a call waits for a newer
                    // connection then.
                    self.give_up(&why);
                }
                if let Some(ticket) = ticket {
                    settle(ticket, !error.is_not_sent(), Some(WireFault::Closed(why)));
                }
                self.forget(message);
                Err(StreamableHttpError::Client(error))
            }
        }
    }

    /// Turns the answer to a POST into what the SDK expects.
    pub(super) async fn answer(
        &self,
        answer: GuardedResponse,
        message: &ClientJsonRpcMessage,
        limits: StreamableHttpResponseLimits,
        back: Back,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let answered = self.read_answer(answer, message, limits, back).await;
        if is_initialize(message) {
            return self.session(answered).await;
        }
        answered
    }

    async fn read_answer(
        &self,
        answer: GuardedResponse,
        message: &ClientJsonRpcMessage,
        limits: StreamableHttpResponseLimits,
        back: Back,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = answer.status();
        if status == StatusCode::NOT_FOUND && back.session.is_some() {
            self.session_lost(message);
            return Err(StreamableHttpError::SessionExpired);
        }
        if let Some(ticket) = ticket(message) {
            ticket.sent();
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            self.answered();
            // Only a session has a stream that stands, on which the reply may come yet.
            if request_id(message).is_some() && back.session.is_none() {
                let reason = format!("the server answered with status {status}, and with no reply");
                return Err(self.unusable(message, reason));
            }
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !status.is_success() {
            return self.refused(answer, message, back).await;
        }
        self.answered();
        let session = header_text(&answer, &SESSION_ID);
        let Some(asked) = request_id(message) else {
            // Nobody waits for an answer to this, and the server is to give none (MCP 2025-11-25, transports, sending
            // messages). What it writes here is of no use to anybody, and a stream of it might never end.
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if is_media_type(&answer, EVENT_STREAM) {
            if is_listen(message) {
                self.standing.opened();
            }
            // A subscription is silent for as long as nothing changes.
            let longest = (!is_listen(message)).then(|| left(message).unwrap_or(self.terms.patience));
            let reading = StreamOf::Request(asked.clone(), longest);
            let events = self.events(answer, reading, limits.max_sse_event_size, back);
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        let json = is_media_type(&answer, JSON);
        let content_type = header_text(&answer, &header::CONTENT_TYPE);
        if !json {
            let kind = content_type.unwrap_or_else(|| "none".to_owned());
            let reason = format!(
                "the answer is of the type `{}`, not json or an event stream",
                self.shown(&kind)
            );
            return Err(self.unusable(message, reason));
        }
        self.json(answer, message, asked, session).await
    }

    /// A JSON body. It is one message as a rule, but a batch or noise beside the message is no reason to fail.
    async fn json(
        &self,
        answer: GuardedResponse,
        message: &ClientJsonRpcMessage,
        asked: &RequestId,
        session: Option<String>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let mut reading = self.messages(Limits::default().max_line_bytes);
        let mut body = std::pin::pin!(answer.into_pieces());
        let mut missing = "the answer holds no reply to the request".to_owned();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| self.broken(message, error))?;
            match reading.read(&piece).await {
                Ok(()) => {}
                // What it holds up to here may be, or tell of, the reply.
                Err(Refused::TooLarge) => {
                    missing = Refused::TooLarge.to_string();
                    break;
                }
                Err(Refused::Hangs) => return Err(self.unusable(message, Refused::Hangs.to_string())),
            }
        }
        let (mut messages, mut on_their_way, mut stray) = (Vec::new(), Vec::new(), None);
        let whole = reading.finish();
        if reading.hand_over().await.is_err() {
            return Err(self.unusable(message, Refused::Hangs.to_string()));
        }
        for received in whole {
            match translate_message(received, &self.outstanding).await {
                Some(Translated::Up(message, on_its_way)) => {
                    messages.push(message);
                    on_their_way.extend(on_its_way);
                }
                Some(Translated::Stray(reply)) if stray.is_none() => stray = Some(reply),
                Some(Translated::Stray(_)) => self.terms.counters.unclaimed(),
                Some(Translated::Back(_)) | None => {}
            }
        }
        // The request is still waiting only if none of that was its reply; then what came for nobody was.
        if let Some(waiting) = self.outstanding.take(asked) {
            self.terms.counters.unusable();
            let reply = stray.unwrap_or_else(|| Stray::unusable(missing));
            messages.push(reply.blame(waiting));
        } else if stray.is_some() {
            self.terms.counters.unclaimed();
        }
        on_their_way.retain(|reply| reply.id() != asked);
        if on_their_way.is_empty()
            && !self.outstanding.is_on_its_way(asked)
            && let [_] = messages.as_slice()
            && let Some(message) = messages.pop()
        {
            return Ok(StreamableHttpPostResponse::Json(message, session));
        }
        let events: Vec<_> = messages.iter().filter_map(event_of).collect();
        let (outstanding, asked) = (Arc::clone(&self.outstanding), asked.clone());
        let end = async move {
            // Whoever asks for more has the replies to others. Its own may have come on another stream: then that is
            // heard first, and after it that this was all. Others may wait for what is here as this waits for theirs.
            drop(on_their_way);
            outstanding.arrived(&asked).await;
            None
        };
        let end = futures::stream::once(end).filter_map(ready);
        let events = futures::stream::iter(events).map(Ok).chain(end);
        Ok(StreamableHttpPostResponse::Sse(events.boxed(), session))
    }

    /// The server knows no such session and has done nothing: the call may go out again in a new one, once.
    fn session_lost(&self, message: &ClientJsonRpcMessage) {
        let Some(ticket) = ticket(message) else { return };
        if ticket.lost_session() {
            ticket.not_sent();
        } else {
            ticket.sent();
            let reason = "the server lost the session again as soon as it was set up anew";
            ticket.fail(WireFault::Unusable(reason.to_owned()));
        }
    }

    /// The answer to `initialize`, read up to the reply: an error may come with any status, and on a stream.
    async fn session(
        &self,
        answered: Result<StreamableHttpPostResponse, Failure>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let answered = match answered {
            Ok(answer) => answer.expect_initialized().await,
            Err(failure) => Err(failure),
        };
        if let Ok((JsonRpcMessage::Error(error), _)) = &answered {
            let (code, said) = (error.error.code.0, self.shown(&error.error.message));
            self.terms
                .complaint
                .say(&format!("the server answered with error {code}: {said}"));
        }
        self.set_up(matches!(answered, Ok((JsonRpcMessage::Response(_), _))));
        answered.map(|(reply, session)| StreamableHttpPostResponse::Json(reply, session))
    }

    /// A session was set up, or could not be. What is set up a second time stands in the place of one that was lost:
    /// its tools may be others, and without it the connection is of no use.
    fn set_up(&self, done: bool) {
        let before = self.initialized.swap(true, Ordering::AcqRel);
        match (before, done) {
            (true, true) => self.terms.tools_changed.notify_one(),
            (true, false) => {
                let why = self.terms.complaint.last();
                self.give_up(why.as_deref().unwrap_or("the session could not be set up anew"));
            }
            (false, _) => self.initialized.store(done, Ordering::Release),
        }
    }

    /// The server carried a request out: what it said before is over.
    pub(super) fn answered(&self) {
        self.terms.complaint.withdraw();
        self.standing.answered();
    }

    /// A stream that stood before cannot be opened. After some such tries the connection is given up, so that it is
    /// known before the next call.
    pub(super) fn standing_failed(&self, why: &str) {
        if self.standing.failed() {
            self.give_up(why);
        }
    }

    pub(super) fn forget(&self, message: &ClientJsonRpcMessage) {
        if let Some(id) = request_id(message) {
            self.outstanding.forget(id);
        }
    }

    pub(super) fn tell(&self, message: &ClientJsonRpcMessage, fault: WireFault) {
        if let Some(ticket) = ticket(message) {
            ticket.fail(fault);
        }
    }

    fn unusable(&self, message: &ClientJsonRpcMessage, reason: String) -> Failure {
        self.terms.complaint.say(&reason);
        self.tell(message, WireFault::Unusable(reason.clone()));
        self.forget(message);
        StreamableHttpError::UnexpectedServerResponse(Cow::from(reason))
    }

    fn broken(&self, message: &ClientJsonRpcMessage, error: EgressError) -> Failure {
        let error = self.failed(error);
        self.terms.complaint.say(&error.to_string());
        self.tell(message, WireFault::Closed(error.to_string()));
        self.forget(message);
        StreamableHttpError::Client(error)
    }
}

fn settle(ticket: &Ticket, sent: bool, fault: Option<WireFault>) {
    if sent {
        ticket.sent()
    } else {
        ticket.not_sent()
    }
    if let Some(fault) = fault {
        ticket.fail(fault);
    }
}

pub(super) fn request_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

pub(super) fn is_initialize(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

pub(super) fn is_listen(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::SubscriptionsListenRequest(_)))
}

pub(super) fn is_discover(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::DiscoverRequest(_)))
}
