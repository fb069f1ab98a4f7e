//! Answers with an error status: what the call that asked is told, and what a person is.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use futures::StreamExt;
use http::{HeaderValue, Method, StatusCode, header};
use portcullis_egress::GuardedResponse;
use portcullis_wire::Frame;
use rmcp::{
    model::{ClientJsonRpcMessage, ErrorData, RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::{HttpStatusError, StreamableHttpError, StreamableHttpPostResponse},
};

use super::{
    client::{Back, EVENT_STREAM, Failure, GuardedHttp, JSON, SESSION_ID, header_text, is_media_type},
    events::{Event, EventParser, EventSink, EventTooLarge},
    post::{is_discover, is_initialize, is_listen, request_id},
    reply::{Translated, errors, translate},
    retry_after::retry_after,
};
use crate::ticket::WireFault;

/// How long the first event of an older server may take.
const OLD_TRANSPORT_WAIT: Duration = Duration::from_secs(3);

const OLD_TRANSPORT: &str = "the server speaks the HTTP+SSE transport of 2024-11-05, which is not supported: update it, \
     or configure its url for streamable HTTP, which often ends in `/mcp`";

/// How much of an error page is read for a person, in bytes.
const DIAGNOSTIC_BYTES: usize = 4 << 10;

/// How much of one is read that may hold a JSON-RPC error, in bytes.
const REPORT_BYTES: usize = 1 << 20;

impl GuardedHttp {
    /// An answer with an error status.
    pub(super) async fn refused(
        &self,
        answer: GuardedResponse,
        message: &ClientJsonRpcMessage,
        back: Back,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = answer.status();
        let session = header_text(&answer, &SESSION_ID);
        if let Some(failure) = self.login_needed(&answer) {
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
        let asks = self.asked_to_wait(&answer);
        let retry_after = self.left_alone(&answer);
        let auth = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let json = is_media_type(&answer, JSON) && !auth && status != StatusCode::TOO_MANY_REQUESTS;
        let most = if json { REPORT_BYTES } else { DIAGNOSTIC_BYTES };
        let body = answer.prefix(most).await;
        let asked = request_id(message);
        let reported = asked
            .filter(|_| json)
            .and_then(|asked| self.reported(&body, asked));
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
            && !asks_for_peace(status)
            && back.session.is_none()
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
        let reason = match (&asks, asks_for_peace(status)) {
            (Some(asks), true) => format!("{reason}; it asks to be tried again after `{asks}`"),
            _ => reason,
        };
        self.terms.complaint.say(&reason);
        if is_listen(message) && status.is_server_error() {
            self.standing_failed(&reason);
        }
        self.tell(message, fault_of(status, reason.clone(), retry_after));
        self.forget(message);
        if asks_for_peace(status) || status.is_server_error() {
            return Err(HttpStatusError::new(status.as_u16(), asks).into());
        }
        Err(StreamableHttpError::UnexpectedServerResponse(Cow::from(reason)))
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
        let Ok(mut request) = self.request(Method::GET, &back) else {
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

    /// The JSON-RPC error in the body of an error status, for the request that was asked. One that names another request
    /// that waits would end that one, and leave this one without any end.
    fn reported(&self, body: &[u8], asked: &RequestId) -> Option<ServerJsonRpcMessage> {
        let is_anothers = |frame: &Frame| match frame {
            Frame::Error { id: Some(id), .. } => {
                self.outstanding.named(id).is_some_and(|named| named != *asked)
            }
            _ => false,
        };
        errors(body)
            .filter(|frame| !is_anothers(frame))
            .filter_map(|frame| translate(frame, &self.outstanding))
            .find_map(|translated| match translated {
                Translated::Up(message, _) => Some(message),
                Translated::Stray(stray) => {
                    let waiting = self.outstanding.take(asked)?;
                    self.terms.counters.unusable();
                    Some(stray.blame(waiting))
                }
                Translated::Back(_) => None,
            })
    }

    /// What the server says of when to try again, as it is shown. The SDK has it in its log.
    pub(super) fn asked_to_wait(&self, answer: &GuardedResponse) -> Option<String> {
        header_text(answer, &header::RETRY_AFTER).map(|asks| self.shown(&asks))
    }

    /// Notes how long the server asks to be left alone, where it is one that may ask.
    pub(super) fn left_alone(&self, answer: &GuardedResponse) -> Option<Duration> {
        if !asks_for_peace(answer.status()) {
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
        // Of too many requests this was one, and not carried out (RFC 6585, section 4). Of a 503 that is not said: it may
        // come from what stands before the server, which had passed the call on (RFC 9110, sections 9.2.2 and 15.6.4).
        StatusCode::TOO_MANY_REQUESTS => WireFault::Overloaded(reason, retry_after),
        _ => WireFault::Unusable(reason),
    }
}

/// Whether this is how a server says that it is to be left alone for a while.
fn asks_for_peace(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}
