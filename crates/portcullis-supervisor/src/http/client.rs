use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use portcullis_egress::{EgressError, GuardedClient, GuardedRequest, GuardedResponse};
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::streamable_http_client::{
        AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
        StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};
use sse_stream::Sse;
use url::Url;

use super::outstanding::Outstanding;

/// How long an answer to a call may keep us waiting here. A call's own deadline is its caller's, is shorter, and
/// drops the request; this is for requests whose caller has lost track.
pub(super) const LONGEST_CALL: Duration = Duration::from_secs(3_600);

/// The longest pause before a stream that keeps ending empty is opened again, and the first one.
const MOST_PAUSE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(500);

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub(super) const JSON: &str = "application/json";
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// The guarded client as the SDK's HTTP client. Cheap to clone; clones share the requests that wait.
#[derive(Clone)]
pub(crate) struct GuardedHttp {
    pub(super) client: GuardedClient,
    pub(super) outstanding: Arc<Outstanding>,
    /// How many streams in a row ended without an event.
    pub(super) barren: Arc<AtomicU32>,
}

/// A failure of the guarded client, with its causes in one line: the SDK prints no chain.
#[derive(Debug)]
pub(crate) struct GuardedError(pub(super) EgressError);

impl fmt::Display for GuardedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let mut cause = std::error::Error::source(&self.0);
        while let Some(current) = cause {
            write!(f, ": {current}")?;
            cause = current.source();
        }
        Ok(())
    }
}

impl std::error::Error for GuardedError {}

impl GuardedError {
    /// True where the connection was never made, so nothing of the request can have reached anyone.
    pub(crate) fn is_not_sent(&self) -> bool {
        self.0.is_not_sent()
    }
}

pub(super) type Failure = StreamableHttpError<GuardedError>;

impl From<EgressError> for GuardedError {
    fn from(error: EgressError) -> Self {
        Self(error)
    }
}

fn egress(error: EgressError) -> Failure {
    StreamableHttpError::Client(error.into())
}

impl GuardedHttp {
    pub(crate) fn new(client: GuardedClient) -> Self {
        Self {
            client,
            outstanding: Arc::default(),
            barren: Arc::default(),
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

    /// Before a stream is opened again that ended empty so many times: twice as long each time.
    fn pause(&self) -> Option<Duration> {
        let times = self.barren.load(Ordering::Relaxed).checked_sub(1)?;
        Some(
            FIRST_PAUSE
                .saturating_mul(2u32.saturating_pow(times))
                .min(MOST_PAUSE),
        )
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
        let answer = self
            .post(&uri, &message, session_id, auth_header, custom_headers)
            .await?;
        self.answer(answer, &message, had_session, limits).await
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
        let status = self.client.send(request).await.map_err(egress)?.status();
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
        if let Some(pause) = self.pause() {
            tokio::time::sleep(pause).await;
        }
        let mut request = self.request(Method::GET, &uri, session_id, auth_header, custom_headers)?;
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
        let answer = self.client.send(request).await.map_err(egress)?;
        let status = answer.status();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if let Some(failure) = login_needed(&answer) {
            return Err(failure);
        }
        if !status.is_success() {
            let retry_after = header_text(&answer, &header::RETRY_AFTER);
            return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
        }
        if !is_media_type(&answer, EVENT_STREAM) {
            return Err(StreamableHttpError::UnexpectedContentType(header_text(
                &answer,
                &header::CONTENT_TYPE,
            )));
        }
        Ok(self.events(answer, None, max_sse_event_size, true))
    }
}

/// 401, or 403 with a challenge (RFC 9110, section 11.6.1; MCP, authorization).
pub(super) fn login_needed(answer: &GuardedResponse) -> Option<Failure> {
    let challenge = header_text(answer, &header::WWW_AUTHENTICATE)?;
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
