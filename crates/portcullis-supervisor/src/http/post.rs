use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures::{StreamExt, future::ready};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use portcullis_egress::{EgressError, GuardedResponse};
use portcullis_wire::Limits;
use rmcp::{
    model::{
        ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    },
    transport::streamable_http_client::{
        HttpStatusError, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};

use super::{
    client::{
        Back, EVENT_STREAM, Failure, GuardedError, GuardedHttp, JSON, SESSION_ID, header_text, is_media_type,
        login_needed,
    },
    events::{Event, EventParser, EventSink, EventTooLarge},
    messages::Refused,
    outstanding::{left, ticket},
    reply::{Stray, Translated, errors, translate, translate_message},
    retry_after::retry_after,
    stream::{StreamOf, event_of},
};
use crate::{
    encode::encode_message,
    ticket::{Ticket, WireFault},
};

/// A header that the SDK sends in the eras that also have arguments in headers (SEP-2243).
const METHOD_HEADER: &str = "mcp-method";

/// How long the first event of an older server may take.
const OLD_TRANSPORT_WAIT: Duration = Duration::from_secs(3);

const OLD_TRANSPORT: &str = "the server speaks the HTTP+SSE transport of 2024-11-05, which is not supported: update it, \
     or configure its url for streamable HTTP, which often ends in `/mcp`";

/// How much of an error page is read for a person, in bytes.
const DIAGNOSTIC_BYTES: usize = 4 << 10;

/// How much of one is read that may hold a JSON-RPC error, in bytes.
const REPORT_BYTES: usize = 1 << 20;

impl GuardedHttp {
    /// Sends one message and reads the head of the answer. What a call's ticket is told follows from where it
    /// failed, never from what the failure is called.
    pub(super) async fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<GuardedResponse, Failure> {
        let body = encode_message(message)?;
        let mut request = self.request(Method::POST, uri, session_id, auth, custom)?;
        request.headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        request
            .headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        request.body = Bytes::from(body);
        if request.headers.contains_key(METHOD_HEADER) {
            request.headers.extend(self.outstanding.params.headers(message));
        }
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
                let error = GuardedError(error);
                self.terms.complaint.say(&error.to_string());
                if is_listen(message) {
                    self.standing_failed();
                }
                if let Some(ticket) = ticket {
                    settle(
                        ticket,
                        !error.is_not_sent(),
                        Some(WireFault::Closed(error.to_string())),
                    );
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
        had_session: bool,
        limits: StreamableHttpResponseLimits,
        back: Back,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = answer.status();
        if status == StatusCode::NOT_FOUND && had_session {
            self.session_lost(message);
            return Err(StreamableHttpError::SessionExpired);
        }
        if is_initialize(message) {
            self.set_up(status.is_success());
        }
        if let Some(ticket) = ticket(message) {
            ticket.sent();
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            self.answered();
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !status.is_success() {
            return self.refused(answer, message, had_session, back).await;
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

    /// An answer with an error status.
    async fn refused(
        &self,
        answer: GuardedResponse,
        message: &ClientJsonRpcMessage,
        had_session: bool,
        back: Back,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = answer.status();
        let session = header_text(&answer, &SESSION_ID);
        if let Some(failure) = login_needed(&answer) {
            let challenge = header_text(&answer, &header::WWW_AUTHENTICATE).unwrap_or_default();
            let reason = format!(
                "the server answered with status {status} (`{}`)",
                self.shown(&challenge)
            );
            self.terms.complaint.say(&format!("login needed: {reason}"));
            self.tell(message, WireFault::LoginNeeded(reason));
            self.forget(message);
            return Err(failure);
        }
        let asks = header_text(&answer, &header::RETRY_AFTER);
        let retry_after = self.left_alone(&answer);
        let auth = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let json = is_media_type(&answer, JSON) && !auth && status != StatusCode::TOO_MANY_REQUESTS;
        let most = if json { REPORT_BYTES } else { DIAGNOSTIC_BYTES };
        let body = answer.prefix(most).await;
        let asked = request_id(message);
        let reported = json.then(|| self.reported(&body, asked)).flatten();
        if let Some(message) = reported {
            return Ok(StreamableHttpPostResponse::Json(message, session));
        }
        let excerpt = body.get(..DIAGNOSTIC_BYTES).unwrap_or(&body);
        let excerpt = self.shown(&String::from_utf8_lossy(excerpt));
        let colon = if excerpt.is_empty() { "" } else { ": " };
        let reason = format!("the server answered with status {status}{colon}{excerpt}");
        if let Some(asked) = asked
            && is_discover(message)
            && status.is_client_error()
            && !auth
            && !had_session
        {
            // A server of the older era, which knows no `server/discover`.
            self.outstanding.forget(asked);
            let error = ErrorData::invalid_request(reason, None);
            return Ok(StreamableHttpPostResponse::Json(
                ServerJsonRpcMessage::error(error, Some(asked.clone())),
                None,
            ));
        }
        let reason = match is_initialize(message) && self.speaks_the_old_transport(status, back).await {
            true => OLD_TRANSPORT.to_owned(),
            false => reason,
        };
        let reason = match (&asks, is_overloaded(status)) {
            (Some(asks), true) => format!("{reason}; it asks to be tried again after `{}`", self.shown(asks)),
            _ => reason,
        };
        self.terms.complaint.say(&reason);
        if is_listen(message) && status.is_server_error() {
            self.standing_failed();
        }
        self.tell(message, fault_of(status, reason.clone(), retry_after));
        self.forget(message);
        if is_overloaded(status) || status.is_server_error() {
            return Err(HttpStatusError::new(status.as_u16(), asks).into());
        }
        Err(StreamableHttpError::UnexpectedServerResponse(Cow::from(reason)))
    }

    /// The server knows no such session and has done nothing: the call may go out again in a new one, once.
    fn session_lost(&self, message: &ClientJsonRpcMessage) {
        let Some(ticket) = ticket(message) else { return };
        if ticket.lost_session() {
            ticket.not_sent();
        } else {
            ticket.sent();
            let reason = "the server lost the session again as soon as it was set up anew; it did not act";
            ticket.fail(WireFault::Unusable(reason.to_owned()));
        }
    }

    /// A session was set up, or could not be. What is set up a second time stands in the place of one that was lost:
    /// its tools may be others, and without it the connection is of no use.
    fn set_up(&self, done: bool) {
        let before = self.initialized.swap(true, Ordering::AcqRel);
        match (before, done) {
            (true, true) => self.terms.tools_changed.notify_one(),
            (true, false) => self.terms.closed.cancel(),
            (false, _) => self.initialized.store(done, Ordering::Release),
        }
    }

    /// Whether a server that refuses `initialize` offers the event stream of 2024-11-05 instead, whose first event
    /// says where to post (MCP 2025-11-25, transports, backwards compatibility).
    async fn speaks_the_old_transport(&self, status: StatusCode, back: Back) -> bool {
        if !matches!(
            status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        ) {
            return false;
        }
        let Ok(mut request) = self.request(Method::GET, &back.uri, None, back.auth, back.headers) else {
            return false;
        };
        request
            .headers
            .insert(header::ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        let look = async {
            let answer = self.client.send(request).await.ok()?;
            if !answer.status().is_success() || !is_media_type(&answer, EVENT_STREAM) {
                return None;
            }
            let (mut parser, mut first) = (EventParser::new(DIAGNOSTIC_BYTES), FirstEvent::default());
            let mut body = std::pin::pin!(answer.into_stream(Some(OLD_TRANSPORT_WAIT)));
            loop {
                parser.feed(&body.next().await?.ok()?, &mut first).ok()?;
                if let Some(event) = first.event {
                    return event.event;
                }
            }
        };
        let first = tokio::time::timeout(OLD_TRANSPORT_WAIT, look).await;
        matches!(first, Ok(Some(event)) if event == "endpoint")
    }

    /// The JSON-RPC error in the body of an error status, for the request that was asked.
    fn reported(&self, body: &[u8], asked: Option<&RequestId>) -> Option<ServerJsonRpcMessage> {
        errors(body)
            .filter_map(|frame| translate(frame, &self.outstanding))
            .find_map(|translated| match translated {
                Translated::Up(message, _) => Some(message),
                Translated::Stray(stray) => {
                    let waiting = self.outstanding.take(asked?)?;
                    self.terms.counters.unusable();
                    Some(stray.blame(waiting))
                }
                Translated::Back(_) => None,
            })
    }

    /// Notes how long the server asks to be left alone, where it turns requests away.
    pub(super) fn left_alone(&self, answer: &GuardedResponse) -> Option<Duration> {
        if !is_overloaded(answer.status()) {
            return None;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a date of the server's is compared with the time of day"
        )]
        let wait = retry_after(answer.headers(), SystemTime::now())?;
        self.terms.complaint.leave_alone(wait);
        self.standing.leave_alone(wait);
        Some(wait)
    }

    /// The server carried a request out: what it said before is over.
    pub(super) fn answered(&self) {
        self.terms.complaint.withdraw();
        self.standing.answered();
    }

    /// A stream that stood before cannot be opened. After some such tries the connection is given up, so that it is
    /// known before the next call.
    pub(super) fn standing_failed(&self) {
        if self.standing.failed() {
            self.terms.closed.cancel();
        }
    }

    fn forget(&self, message: &ClientJsonRpcMessage) {
        if let Some(id) = request_id(message) {
            self.outstanding.forget(id);
        }
    }

    fn tell(&self, message: &ClientJsonRpcMessage, fault: WireFault) {
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
        let error = GuardedError(error);
        self.terms.complaint.say(&error.to_string());
        self.tell(message, WireFault::Closed(error.to_string()));
        self.forget(message);
        StreamableHttpError::Client(error)
    }
}

/// The first event of a stream, without its data.
#[derive(Default)]
struct FirstEvent {
    event: Option<Event>,
    data_bytes: usize,
}

impl EventSink for FirstEvent {
    fn data(&mut self, data: &[u8]) -> Result<(), EventTooLarge> {
        self.data_bytes += data.len();
        match self.data_bytes > DIAGNOSTIC_BYTES {
            true => Err(EventTooLarge),
            false => Ok(()),
        }
    }

    fn event(&mut self, event: Event) {
        self.event.get_or_insert(event);
    }
}

/// What a call is told of an error status.
fn fault_of(status: StatusCode, reason: String, retry_after: Option<Duration>) -> WireFault {
    match status {
        // With a challenge, a 403 wants a login as well; it is told apart before.
        StatusCode::UNAUTHORIZED => WireFault::LoginNeeded(reason),
        status if is_overloaded(status) => WireFault::Overloaded(reason, retry_after),
        _ => WireFault::Unusable(reason),
    }
}

fn is_overloaded(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
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

fn request_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

fn is_initialize(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

fn is_listen(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::SubscriptionsListenRequest(_)))
}

fn is_discover(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::DiscoverRequest(_)))
}
