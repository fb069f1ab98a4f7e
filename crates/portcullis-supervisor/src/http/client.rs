use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
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
        AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
        StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};
use secrecy::{ExposeSecret, SecretString};
use sse_stream::Sse;
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    messages::Messages, outstanding::Outstanding, param::ParamCache, standing::Standing, stream::StreamOf,
};
use crate::{
    counters::WireCounters,
    said::{shown_without, without},
    strings::StringSpool,
    transport::{Strings, Wanted},
};

/// How long after a connection could not be made it is tried once more.
const SECOND_TRY: Duration = Duration::from_millis(250);

/// How many requests of a server's that cannot be read are answered at once.
const ANSWERING: usize = 16;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
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

/// The last answer that was none, in words for people: the SDK keeps only the name of a failure. And how long the
/// server asked to be left alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Complaint(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Values that the server is given and may send back, the longest first: they are never shown.
    secrets: Arc<[SecretString]>,
    reason: Option<String>,
    leave_alone: Option<(Instant, Duration)>,
}

impl Complaint {
    pub(crate) fn last(&self) -> Option<String> {
        self.lock().reason.clone()
    }

    /// What is left of the time for which the server asked to be left alone.
    pub(crate) fn left_alone_for(&self) -> Option<Duration> {
        let (since, wait) = self.lock().leave_alone?;
        Some(wait.saturating_sub(since.elapsed())).filter(|left| !left.is_zero())
    }

    pub(crate) fn say(&self, reason: &str) {
        self.lock().reason = Some(reason.to_owned());
    }

    pub(super) fn leave_alone(&self, wait: Duration) {
        self.lock().leave_alone = Some((Instant::now(), wait));
    }

    /// A later answer was one: nothing of what was said before counts.
    pub(super) fn withdraw(&self) {
        let mut said = self.lock();
        said.reason = None;
        said.leave_alone = None;
    }

    /// Remembers the values that are never shown: each, and it alone where it has a scheme: `Bearer …`.
    pub(super) fn keep(&self, secrets: &[SecretString]) {
        let secrets = secrets.iter().map(|secret| secret.expose_secret());
        let mut values: Vec<_> = secrets
            .flat_map(|whole| [whole, whole.rsplit(' ').next().unwrap_or(whole)])
            // A word or two of letters is no secret, and its letters stand everywhere.
            .filter(|value| value.len() > 3)
            .collect();
        // One that is a part of another must not leave the rest of that other behind.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        self.lock().secrets = values.into_iter().map(SecretString::from).collect();
    }

    /// `text` without the values that the server is given.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
        let secrets = Arc::clone(&self.lock().secrets);
        let hide = |text: String, secret: &SecretString| without(&text, secret.expose_secret());
        secrets.iter().fold(text.to_owned(), hide)
    }

    /// Another handshake is tried. What the server asked for stands.
    pub(crate) fn begin(&self) {
        self.lock().reason = None;
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an answer to a server's own request goes, and with which headers.
#[derive(Clone)]
pub(super) struct Back {
    pub(super) uri: Arc<str>,
    pub(super) session: Option<Arc<str>>,
    pub(super) auth: Option<String>,
    pub(super) headers: HashMap<HeaderName, HeaderValue>,
}

/// A failure of the guarded client with its causes in one line, since the SDK prints no chain. It holds words alone, and
/// none that the server was given: wherever it goes, it can be shown.
#[derive(Debug)]
pub(crate) struct GuardedError {
    told: String,
    is_not_sent: bool,
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
            let Back {
                uri,
                session,
                auth,
                headers,
            } = back;
            if let Err(error) = client.post(&uri, &message, session, auth, headers).await {
                tracing::debug!(%error, "the server's request could not be answered");
            }
            drop(turn);
        });
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

    pub(super) fn request(
        &self,
        method: Method,
        uri: &str,
        session_id: Option<Arc<str>>,
        auth: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<GuardedRequest, Failure> {
        let url = Url::parse(uri).map_err(|_| {
            StreamableHttpError::UnexpectedServerResponse(Cow::from("the server's url is none"))
        })?;
        let mut request = GuardedRequest::new(method, url);
        request.headers.extend(custom);
        if let Some(session) = session_id {
            request.headers.insert(SESSION_ID, secret(&session)?);
        }
        if let Some(token) = auth {
            request
                .headers
                .insert(header::AUTHORIZATION, secret(&format!("Bearer {token}"))?);
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
            self.terms.closed.cancel();
        }
        Err(error)
    }
}

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
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let had_session = session_id.is_some();
        let back = Back {
            uri: Arc::clone(&uri),
            session: session_id.clone(),
            auth: auth_header.clone(),
            headers: custom_headers.clone(),
        };
        let answer = self
            .post(&uri, &message, session_id, auth_header, custom_headers)
            .await?;
        self.answer(answer, &message, had_session, limits, back).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let request = self.request(
            Method::DELETE,
            &uri,
            Some(session_id),
            auth_header,
            custom_headers,
        )?;
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
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        // The stream of a call goes on at once; a standing one waits where those before it were of no use.
        let asked = last_event_id
            .as_deref()
            .and_then(|event| self.outstanding.broken_off_at(event));
        if asked.is_none() {
            tokio::time::sleep(self.standing.pause()).await;
        }
        self.standing.peace().await;
        let back = Back {
            uri: Arc::clone(&uri),
            session: session_id.clone(),
            auth: auth_header.clone(),
            headers: custom_headers.clone(),
        };
        let mut request = self.request(Method::GET, &uri, session_id, auth_header, custom_headers)?;
        request.first_byte = Some(self.terms.patience);
        request
            .headers
            .insert(header::ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        if let Some(id) = last_event_id {
            let id = HeaderValue::from_bytes(id.as_bytes()).map_err(|_| {
                StreamableHttpError::UnexpectedServerResponse(Cow::from(
                    "the id of the last event is no header",
                ))
            })?;
            request.headers.insert(LAST_EVENT_ID, id);
        }
        let had_session = request.headers.contains_key(SESSION_ID);
        let answer = match self.send(request).await {
            Ok(answer) => answer,
            Err(error) => {
                self.terms.complaint.say(&error.told);
                if asked.is_none() {
                    self.standing_failed();
                }
                return Err(StreamableHttpError::Client(error));
            }
        };
        let status = answer.status();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if let Some(failure) = self.login_needed(&answer) {
            return Err(failure);
        }
        if !status.is_success() {
            let retry_after = header_text(&answer, &header::RETRY_AFTER);
            self.left_alone(&answer);
            let session_is_over = status == StatusCode::NOT_FOUND && had_session;
            if asked.is_none() && (status.is_server_error() || session_is_over) {
                let stream = "where its stream of events was";
                self.terms
                    .complaint
                    .say(&format!("the server answered with status {status} {stream}"));
                self.standing_failed();
            }
            return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
        }
        if !is_media_type(&answer, EVENT_STREAM) {
            let kind = header_text(&answer, &header::CONTENT_TYPE);
            let kind = kind.map(|kind| self.shown(&kind));
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let reading = match asked {
            Some(asked) => StreamOf::Resumed(asked),
            None => {
                self.standing.opened();
                StreamOf::Nobody
            }
        };
        Ok(self.events(answer, reading, max_sse_event_size, back))
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
