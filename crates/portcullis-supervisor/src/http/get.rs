//! Streams that the client asks for: the one for whatever a server has to say, and those that go on where the answer to
//! a request broke off.

use std::{borrow::Cow, time::Duration};

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use rmcp::transport::streamable_http_client::{HttpStatusError, SseError, StreamableHttpError};
use sse_stream::Sse;

use super::{
    client::{Back, EVENT_STREAM, Failure, GuardedError, GuardedHttp, header_text, is_media_type},
    event_id::EventId,
    outstanding::BrokenOff,
    stream::StreamOf,
};
use crate::ticket::WireFault;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How long after the stream of an answer was gone on with it is gone on with again.
const PAUSE: Duration = Duration::from_millis(500);

/// The one failure after which the SDK neither tries again nor takes the credentials for wrong.
const NOT_AGAIN: Failure = StreamableHttpError::ServerDoesNotSupportSse;

impl GuardedHttp {
    /// Opens a stream, or goes on with one after its last event.
    pub(super) async fn get(
        &self,
        back: Back,
        last_event_id: Option<String>,
        most_bytes: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let last_event = last_event_id.map(EventId::from_sdk);
        let broken = match last_event.as_ref().and_then(|event| event.asked.as_ref()) {
            Some(asked) => match self.outstanding.broken_off(asked) {
                Some(broken) => Some(broken),
                // It is over, and its stream is none that stands while nobody calls.
                None => {
                    self.outstanding.arrived(asked).await;
                    return Err(NOT_AGAIN);
                }
            },
            None => None,
        };
        match &broken {
            Some(broken) if broken.left == Some(Duration::ZERO) => {
                return Err(self.given_up(broken, "nobody waits for its reply any more".to_owned()));
            }
            // The first time at once: some servers have the reply fetched so.
            Some(broken) if !broken.again => {}
            Some(_) => tokio::time::sleep(PAUSE).await,
            // One that stands waits where those before it were of no use.
            None => tokio::time::sleep(self.standing.pause()).await,
        }
        let stands = broken.as_ref().is_none_or(|broken| broken.subscribes);
        self.standing.peace().await;
        let mut request = self.request(Method::GET, &back)?;
        request.first_byte = Some(self.terms.patience);
        request
            .headers
            .insert(header::ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        if let Some(EventId { id, .. }) = last_event {
            let id = HeaderValue::from_bytes(id.as_bytes()).map_err(|_| {
                StreamableHttpError::UnexpectedServerResponse(Cow::from(
                    "the id of the last event is no header",
                ))
            })?;
            request.headers.insert(LAST_EVENT_ID, id);
        }
        let answer = match self.send(request).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.unanswered(broken.as_ref(), stands, error)),
        };
        let status = answer.status();
        let is_stream = status.is_success() && is_media_type(&answer, EVENT_STREAM);
        if let Some(broken) = broken.as_ref().filter(|_| !is_stream && !may_pass(status)) {
            let why = format!(
                "the stream of its answer broke off, and where it was to go on the server answered with status \
                 {status} and no stream of events"
            );
            return Err(self.given_up(broken, why));
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if let Some(failure) = self.login_needed(&answer) {
            return Err(failure);
        }
        if !status.is_success() {
            let retry_after = self.asked_to_wait(&answer);
            self.left_alone(&answer);
            let session_is_over = status == StatusCode::NOT_FOUND && back.session.is_some();
            if stands && (status.is_server_error() || session_is_over) {
                let why = format!("the server answered with status {status} where its stream of events was");
                self.terms.complaint.say(&why);
                self.standing_failed(&why);
            }
            return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
        }
        if !is_stream {
            let kind = header_text(&answer, &header::CONTENT_TYPE);
            let kind = kind.map(|kind| self.shown(&kind));
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        if stands {
            self.standing.opened();
        }
        let reading = match broken {
            Some(broken) => StreamOf::Resumed(broken.id, broken.left),
            None => StreamOf::Nobody,
        };
        Ok(self.events(answer, reading, most_bytes, back))
    }

    /// A stream cannot be asked for.
    fn unanswered(&self, broken: Option<&BrokenOff>, stands: bool, error: GuardedError) -> Failure {
        let why = error.to_string();
        self.terms.complaint.say(&why);
        if stands {
            self.standing_failed(&why);
        }
        match broken {
            // Where the rules refuse the address that the server has by now, or redirects to, they will again.
            Some(broken) if error.is_not_sent() || error.is_lasting() => self.given_up(broken, why),
            _ => StreamableHttpError::Client(error),
        }
    }

    /// The stream is gone on with no more, and whoever waits for the reply is told why.
    fn given_up(&self, broken: &BrokenOff, why: String) -> Failure {
        if let Some((_, waiting)) = self.outstanding.take(&broken.id)
            && let Some(ticket) = waiting.ticket
        {
            ticket.fail(WireFault::Closed(why));
        }
        NOT_AGAIN
    }
}

/// Whether the same request may be answered otherwise soon.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
        )
}
