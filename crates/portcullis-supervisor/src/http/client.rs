use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use portcullis_egress::{
    EgressError, EgressLog, EgressRules, GuardedClient, GuardedRequest, GuardedResponse,
};
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::streamable_http_client::{
        AuthRequiredError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
        StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};
use sse_stream::Sse;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    complaint::Complaint, messages::Messages, outstanding::Outstanding, param::ParamCache, standing::Standing,
};
use crate::{
    counters::WireCounters,
    said::shown_without,
    strings::StringSpool,
    transport::{Strings, Wanted},
};

/// How long after a connection could not be made it is tried once more.
const SECOND_TRY: Duration = Duration::from_millis(250);

/// How many requests of a server's that cannot be read are answered at once.
const ANSWERING: usize = 16;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const JSON: &str = "application/json";
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// The guarded client as the SDK's HTTP client. Cheap to clone; clones share the requests that wait.
#[derive(Clone)]
pub(crate) struct GuardedHttp {
    pub(super) client: GuardedClient,
    pub(super) outstanding: Arc<Outstanding>,
    pub(super) standing: Arc<Standing>,
    /// A session was set up: what sets up another one does so because that was lost.
    pub(super) initialized: Arc<AtomicBool>,
    pub(super) terms: HttpTerms,
    /// What of long strings may be on its way to who takes them.
    room: Arc<Semaphore>,
    /// What of answers that the SDK never sees may be on its way at once.
    answering: Arc<Semaphore>,
}

/// What a connection over HTTP has to do with the hub around it.
#[derive(Clone)]
pub(crate) struct HttpTerms {
    /// What holds for every server, beside its own rules.
    pub(crate) hub: Option<EgressRules>,
    pub(crate) log: EgressLog,
    /// Cancelled where the server turns out to be gone.
    pub(crate) closed: CancellationToken,
    /// Told where the tools may be others now.
    pub(crate) tools_changed: Arc<Notify>,
    /// How many calls the server may have at once. None that is let in waits below here, since it would go out long after
    /// it was decided on; only one whose session was lost waits for the new one.
    pub(crate) calls_in_flight: usize,
    /// How long the answer to what is no call may take to begin.
    pub(crate) patience: Duration,
    pub(crate) complaint: Complaint,
    /// Who takes the long strings of results. Without one they stay where they are.
    pub(crate) spool: Option<Arc<dyn StringSpool>>,
    /// Where what is dropped is counted.
    pub(crate) counters: Arc<WireCounters>,
    /// Which arguments go into headers; said by whoever lists the tools.
    pub(crate) params: Arc<ParamCache>,
}

/// Where a message goes, in which session and with which headers; and with that, where an answer to the server's own
/// request goes.
#[derive(Clone)]
pub(super) struct Back {
    pub(super) uri: Arc<str>,
    pub(super) session: Option<Arc<str>>,
    pub(super) headers: HashMap<HeaderName, HeaderValue>,
}

/// A failure of the guarded client with its causes in one line, since the SDK prints no chain. It holds words alone, and
/// none that the server was given: wherever it goes, it can be shown.
#[derive(Debug)]
pub(crate) struct GuardedError {
    told: String,
    is_not_sent: bool,
    is_lasting: bool,
}

impl fmt::Display for GuardedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told)
    }
}

impl std::error::Error for GuardedError {}

impl GuardedError {
    /// True where the connection was never made, so nothing of the request can have reached anyone.
    pub(crate) fn is_not_sent(&self) -> bool {
        self.is_not_sent
    }

    /// True where to try again is of no use.
    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting
    }
}

pub(super) type Failure = StreamableHttpError<GuardedError>;

/// The failure of the guarded client that the SDK's error is, where it is one: its words are the hub's.
pub(crate) fn guarded<'e>(
    error: &'e (dyn std::error::Error + Send + Sync + 'static),
) -> Option<&'e GuardedError> {
    match error.downcast_ref::<Failure>()? {
        StreamableHttpError::Client(failure) => Some(failure),
        _ => None,
    }
}

impl GuardedHttp {
    pub(crate) fn new(client: GuardedClient, terms: HttpTerms) -> Self {
        Self {
            client,
            outstanding: Arc::new(Outstanding::of(&terms)),
            standing: Arc::default(),
            initialized: Arc::default(),
            terms,
            room: Strings::room(),
            answering: Arc::new(Semaphore::new(ANSWERING)),
        }
    }

    /// A reader of bodies, or of events' data, of which at most `most_bytes` stay in memory.
    pub(super) fn messages(&self, most_bytes: usize) -> Messages {
        let counters = Arc::clone(&self.terms.counters);
        let outstanding = Arc::clone(&self.outstanding);
        Messages::new(most_bytes, self.terms.spool.as_ref(), &self.room)
            .counting(counters)
            .wanted(Wanted::when(move || outstanding.awaits()))
    }

    /// Text of a server's for a message to a person: short, without the secrets that the server was given, and
    /// without characters that a terminal obeys.
    pub(super) fn shown(&self, text: &str) -> String {
        shown_without(text, |text| self.terms.complaint.without_secrets(text))
    }

    /// The only way from a failure of the client to words: what the server may have said in them is shown as all else
    /// that it says.
    pub(super) fn failed(&self, error: EgressError) -> GuardedError {
        GuardedError {
            is_not_sent: error.is_not_sent(),
            is_lasting: error.is_lasting(),
            told: error.told(&|said| self.shown(said)),
        }
    }

    /// Answers a request of the server's own, where the SDK never sees it. A server that asks more than it hears the
    /// answers of is not answered.
    pub(super) fn answer_back(&self, back: Back, message: ClientJsonRpcMessage) {
        let Ok(turn) = Arc::clone(&self.answering).try_acquire_owned() else {
            self.terms.counters.noise();
            return;
        };
        let client = self.clone();
        tokio::spawn(async move {
            if let Err(error) = client.post(&back, &message).await {
                tracing::debug!(%error, "the server's request could not be answered");
            }
            drop(turn);
        });
    }

    /// The server is gone, or of no use as it is: its connection ends.
    pub(super) fn give_up(&self, why: &str) {
        self.terms.complaint.end(&self.terms.closed, why);
    }

    /// 401, or 403 with a challenge (RFC 9110, section 11.6.1; MCP, authorization). The SDK logs the challenge.
    pub(super) fn login_needed(&self, answer: &GuardedResponse) -> Option<Failure> {
        let challenge = self.shown(&header_text(answer, &header::WWW_AUTHENTICATE)?);
        match answer.status() {
            StatusCode::UNAUTHORIZED => Some(StreamableHttpError::AuthRequired(AuthRequiredError::new(
                challenge,
            ))),
            StatusCode::FORBIDDEN => Some(StreamableHttpError::InsufficientScope(
                InsufficientScopeError::new(challenge, None),
            )),
            _ => None,
        }
    }

    pub(super) fn request(&self, method: Method, back: &Back) -> Result<GuardedRequest, Failure> {
        let url = Url::parse(&back.uri).map_err(|_| {
            StreamableHttpError::UnexpectedServerResponse(Cow::from("the server's url is none"))
        })?;
        let mut request = GuardedRequest::new(method, url);
        request.headers.extend(back.headers.clone());
        if let Some(session) = &back.session {
            request.headers.insert(SESSION_ID, secret(session)?);
        }
        Ok(request)
    }

    /// Sends a request. Where no connection comes to be, it is tried once more, since nothing was sent; then the
    /// server is gone, and with it the connection.
    pub(super) async fn send(&self, request: GuardedRequest) -> Result<GuardedResponse, GuardedError> {
        let gone =
            |error: &EgressError| matches!(error, EgressError::Connect { .. } | EgressError::Resolve { .. });
        match self.client.send(request.clone()).await {
            Err(error) if gone(&error) => tokio::time::sleep(SECOND_TRY).await,
            other => return other.map_err(|error| self.failed(error)),
        }
        let error = match self.client.send(request).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_gone = gone(&error);
        let error = self.failed(error);
        if is_gone {
            self.terms.complaint.say(&error.told);
            self.give_up(&error.told);
        }
        Err(error)
    }
}

// The SDK's own credential is never set: whatever a server is given stands in the configured headers, which the guarded
// client keeps to their origin.
impl StreamableHttpClient for GuardedHttp {
    type Error = GuardedError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits)
            .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let back = Back {
            uri,
            session: session_id,
            headers: custom_headers,
        };
        let answer = self.post(&back, &message).await?;
        self.answer(answer, &message, limits, back).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let back = Back {
            uri,
            session: Some(session_id),
            headers: custom_headers,
        };
        let request = self.request(Method::DELETE, &back)?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| StreamableHttpError::Client(self.failed(error)))?;
        let status = answer.status();
        // 405: the server keeps its sessions to itself. 404: it has already forgotten this one.
        if status.is_success() || matches!(status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND) {
            return Ok(());
        }
        let reason = format!("the server answered with status {status} to the end of the session");
        Err(StreamableHttpError::UnexpectedServerResponse(Cow::from(reason)))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let most_bytes = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            most_bytes,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let back = Back {
            uri,
            session: session_id,
            headers: custom_headers,
        };
        self.get(back, last_event_id, max_sse_event_size).await
    }
}

pub(super) fn header_text(answer: &GuardedResponse, name: &HeaderName) -> Option<String> {
    answer
        .headers()
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
}

pub(super) fn is_media_type(answer: &GuardedResponse, expected: &str) -> bool {
    let value = header_text(answer, &header::CONTENT_TYPE).unwrap_or_default();
    value
        .split(';')
        .next()
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case(expected))
}

fn secret(text: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        StreamableHttpError::UnexpectedServerResponse(Cow::from(
            "a credential holds characters that no header may have",
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}
