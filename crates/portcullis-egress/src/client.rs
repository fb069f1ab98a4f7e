use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use portcullis_types::EgressRule;
use tokio::time::{Instant, timeout, timeout_at};
use url::{Origin, Url};

use crate::{
    EgressError, EgressProxy, EgressRules, Limits, Resolver, SystemResolver,
    body::{Body, Reading},
    error::chain,
    proxy,
    record::{EgressLog, Way},
    redirect::{self, Hop},
    resolve::{CheckedResolver, ResolveFailure},
    rules::target,
    tls::{Tls, read_pem},
};

/// The one way out: an HTTP client that connects only where its rules allow. Cheap to clone.
///
/// There is one for each server, so that a connection kept for one is never used under another's rules.
#[derive(Clone)]
pub struct GuardedClient {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    rules: Arc<EgressRules>,
    limits: Limits,
    /// INVARIANT: sent to this origin only, and only by a chain of redirects that never left it.
    credentials: Option<(Origin, HeaderMap)>,
    proxy: Option<EgressProxy>,
    no_roots: Option<String>,
    log: EgressLog,
}

/// Sets up a [`GuardedClient`].
pub struct GuardedClientBuilder {
    rules: EgressRules,
    limits: Limits,
    resolver: Arc<dyn Resolver>,
    credentials: Option<(Origin, HeaderMap)>,
    proxy: Option<EgressProxy>,
    roots: Vec<Vec<u8>>,
    log: EgressLog,
}

/// What to ask.
#[derive(Debug, Clone)]
pub struct GuardedRequest {
    /// The method.
    pub method: Method,
    /// Where.
    pub url: Url,
    /// Headers beside the client's own ones.
    pub headers: HeaderMap,
    /// The body; empty for none.
    pub body: Bytes,
    /// A deadline for the head of the answer other than [`Limits::first_byte`].
    pub first_byte: Option<Duration>,
}

/// An answer whose body is still to come.
pub struct GuardedResponse {
    status: StatusCode,
    headers: HeaderMap,
    url: Url,
    body: Body,
    limits: Limits,
    deadline: Instant,
}

/// Headers that belong to the connection. `host` would let a request name another server than the one that the
/// rules were asked about.
const OWNED: [HeaderName; 10] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::ACCEPT_ENCODING,
    header::PROXY_AUTHORIZATION,
];

impl GuardedClient {
    /// Starts from rules; what they do not allow is refused.
    #[must_use]
    pub fn builder(rules: EgressRules) -> GuardedClientBuilder {
        GuardedClientBuilder {
            rules,
            limits: Limits::default(),
            resolver: Arc::new(SystemResolver),
            credentials: None,
            proxy: None,
            roots: Vec::new(),
            log: EgressLog::default(),
        }
    }

    /// The rules that it obeys.
    #[must_use]
    pub fn rules(&self) -> &EgressRules {
        &self.inner.rules
    }

    /// What it counts in.
    #[must_use]
    pub fn log(&self) -> &EgressLog {
        &self.inner.log
    }

    /// Whether the rules allow a request, before there is one to send. A refusal is counted and told as any other.
    ///
    /// # Errors
    /// [`EgressError::Refused`].
    pub fn check(&self, method: &Method, url: &Url) -> Result<(), EgressError> {
        self.rule(method, url).map(|_| ())
    }

    /// Sends a request and follows its redirects, each hop under the rules, until an answer's head is there.
    ///
    /// A 301 or 302 answer to anything but GET and HEAD is an error, since it could lose the body.
    ///
    /// # Errors
    /// [`EgressError`]: refused, not connected, not answered in time, or answered with too much.
    pub async fn send(&self, request: GuardedRequest) -> Result<GuardedResponse, EgressError> {
        let limits = &self.inner.limits;
        let deadline = Instant::now() + limits.total;
        let first_byte = request.first_byte.unwrap_or(limits.first_byte);
        // A first byte that may take longer than the total moves the total with it.
        let deadline = deadline.max(Instant::now() + first_byte);
        if let Some(name) = request.headers.keys().find(|name| OWNED.contains(name)) {
            return Err(EgressError::Header {
                name: name.to_string(),
            });
        }
        let GuardedRequest {
            method,
            mut url,
            headers,
            body,
            ..
        } = request;
        url.set_fragment(None);
        let mut hop = Hop {
            method,
            url,
            headers,
            body,
            at_home: true,
        };
        let mut came_from = None;
        for _ in 0..=limits.redirects {
            let answer = match timeout_at(deadline, self.hop(&hop, first_byte)).await {
                Ok(answer) => answer,
                Err(_) => Err(EgressError::Total {
                    host: target(&hop.url),
                    after: limits.total,
                }),
            };
            let answer = match (answer, came_from) {
                (Err(source), Some(from)) => {
                    return Err(EgressError::AfterRedirect {
                        from,
                        source: Box::new(source),
                    });
                }
                (answer, _) => answer?,
            };
            if !redirect::is_redirect(answer.status()) {
                return self.accept(answer, hop.url, deadline);
            }
            came_from = Some(target(&hop.url));
            hop = redirect::next(hop, answer.status(), answer.headers())?;
        }
        let host = came_from.unwrap_or_default();
        Err(EgressError::TooManyRedirects {
            host,
            limit: limits.redirects,
        })
    }

    /// The rule that allows a request.
    fn rule(&self, method: &Method, url: &Url) -> Result<&EgressRule, EgressError> {
        let inner = &self.inner;
        inner
            .rules
            .check_request(method.as_str(), url)
            .map_err(|refusal| {
                inner.log.refused(target(url), &refusal);
                refusal.into()
            })
    }

    /// One request and the head of its answer.
    async fn hop(&self, hop: &Hop, first_byte: Duration) -> Result<reqwest::Response, EgressError> {
        let inner = &self.inner;
        let host = target(&hop.url);
        let rule = self.rule(&hop.method, &hop.url)?.to_string();
        let proxy = inner.proxy.as_ref().filter(|_| proxy::carries(&hop.url));
        let encrypted = hop.url.scheme() == "https" || proxy.is_some_and(EgressProxy::is_https);
        if let (Some(why), true) = (&inner.no_roots, encrypted) {
            return Err(EgressError::NoRoots {
                host,
                why: why.clone(),
            });
        }
        let mut headers = hop.headers.clone();
        if let Some((origin, credentials)) = &inner.credentials
            && hop.at_home
            && *origin == hop.url.origin()
        {
            headers.extend(credentials.clone());
        }
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let mut request = reqwest::Request::new(hop.method.clone(), hop.url.clone());
        *request.headers_mut() = headers;
        if !hop.body.is_empty() {
            *request.body_mut() = Some(hop.body.clone().into());
        }
        let proxy = proxy.map(EgressProxy::target);
        let attempt = inner.log.begin(Way {
            target: host.clone(),
            rule,
            proxy: proxy.clone(),
        });
        let answer = match (timeout(first_byte, inner.http.execute(request)).await, proxy) {
            // Before a tunnel, the library reports it as a connection that could not be made.
            (Ok(Ok(answer)), Some(proxy)) if answer.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                Err(EgressError::ProxyLogin { proxy })
            }
            (Ok(answer), proxy) => {
                answer.map_err(|error| explain(error, host, proxy, inner.limits.header_bytes))
            }
            (Err(_), _) => Err(EgressError::FirstByte {
                host,
                after: first_byte,
            }),
        };
        match &answer {
            Ok(answer) => attempt.answered(answer),
            Err(error) => attempt.failed(error),
        }
        answer
    }

    fn accept(
        &self,
        answer: reqwest::Response,
        url: Url,
        deadline: Instant,
    ) -> Result<GuardedResponse, EgressError> {
        let limits = self.inner.limits;
        let (status, headers, host) = (answer.status(), answer.headers().clone(), target(&url));
        // Four bytes a line for the colon, the space and the line's end.
        let size: usize = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
            .sum();
        if size > limits.header_bytes {
            return Err(EgressError::HeadersTooLarge {
                host,
                limit_bytes: limits.header_bytes,
            });
        }
        Ok(GuardedResponse {
            status,
            headers,
            url,
            body: Body::new(answer, host)?,
            limits,
            deadline,
        })
    }
}

impl GuardedClientBuilder {
    /// Other limits than the default ones.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Another resolver than the system's.
    #[must_use]
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Headers that are sent with each request to the origin of `url`, and never to another one.
    #[must_use]
    pub fn credentials(mut self, url: &Url, mut headers: HeaderMap) -> Self {
        headers.values_mut().for_each(|value| value.set_sensitive(true));
        self.credentials = Some((url.origin(), headers));
        self
    }

    /// A root certificate to trust beside the system's, in DER.
    #[must_use]
    pub fn root_certificate(mut self, der: Vec<u8>) -> Self {
        self.roots.push(der);
        self
    }

    /// Root certificates to trust beside the system's: all that a text in PEM holds (RFC 7468).
    ///
    /// # Errors
    /// [`EgressError::Setup`] where it holds none, or one that cannot be read.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, EgressError> {
        self.roots.extend(read_pem(pem)?);
        Ok(self)
    }

    /// Sends requests through a proxy. It needs a rule of its own.
    #[must_use]
    pub fn proxy(mut self, proxy: EgressProxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Where each connection is counted and told: made, refused or failed.
    #[must_use]
    pub fn log(mut self, log: EgressLog) -> Self {
        self.log = log;
        self
    }

    /// Sets the client up. The system's root certificates are read here where a rule is for https.
    ///
    /// # Errors
    /// [`EgressError::Header`] for credentials in a header of the connection, [`EgressError::Proxy`] for a proxy that
    /// the rules do not allow, [`EgressError::Setup`] for a root certificate that cannot be read, a login that cannot
    /// be sent or a client that cannot be made.
    pub fn build(self) -> Result<GuardedClient, EgressError> {
        if let Some((_, headers)) = &self.credentials
            && let Some(name) = headers.keys().find(|name| OWNED.contains(name))
        {
            return Err(EgressError::Header {
                name: name.to_string(),
            });
        }
        if let Some(proxy) = &self.proxy {
            self.check_proxy(proxy)?;
        }
        let rules = Arc::new(self.rules);
        let limits = self.limits;
        let tls = Tls::new(self.roots, rules.need_tls())?;
        let resolver = CheckedResolver {
            rules: Arc::clone(&rules),
            resolver: self.resolver,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the door through which HTTP leaves"
        )]
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.config)
            .dns_resolver(Arc::new(resolver))
            // The system's proxy would resolve names elsewhere, out of our sight, and nobody would have allowed it.
            .no_proxy()
            // Redirects are ours to follow, hop by hop.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            // Decompression is ours to count: the library is built without any.
            // A request is sent once: what to send again is decided where it is known what it does.
            .retry(reqwest::retry::never())
            .connect_timeout(limits.connect)
            .http2_max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .tcp_keepalive(Duration::from_secs(30))
            .tcp_keepalive_interval(Duration::from_secs(10))
            .tcp_keepalive_retries(3)
            .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
        let http = match &self.proxy {
            Some(proxy) => http.proxy(proxy.intercept()),
            None => http,
        };
        let http = http
            .build()
            .map_err(|error| EgressError::Setup { why: chain(&error) })?;
        let inner = Inner {
            http,
            rules,
            limits,
            credentials: self.credentials,
            proxy: self.proxy,
            no_roots: tls.no_roots,
            log: self.log,
        };
        Ok(GuardedClient {
            inner: Arc::new(inner),
        })
    }

    /// A proxy that is refused is told of as any other way out.
    fn check_proxy(&self, proxy: &EgressProxy) -> Result<(), EgressError> {
        let checked = proxy.check(&self.rules);
        if let Some(refusal) = checked.as_ref().err().and_then(EgressError::refusal) {
            self.log.refused(proxy.target(), refusal);
        }
        checked
    }
}

impl GuardedRequest {
    /// A request without headers or body.
    #[must_use]
    pub fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            first_byte: None,
        }
    }
}

impl GuardedResponse {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers. `content-encoding` is as the server sent it, though the body comes decompressed.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Where the answer came from, after all redirects.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The whole body, decompressed.
    ///
    /// # Errors
    /// [`EgressError`] where it is too large on the wire or decompressed, stands still, or takes too long.
    pub async fn bytes(self) -> Result<Bytes, EgressError> {
        self.body.collect(&self.limits, self.deadline).await
    }

    /// At most the first `most` bytes of the body; fewer where it breaks. For a message to a person.
    pub async fn prefix(self, most: usize) -> Vec<u8> {
        self.body.prefix(most, &self.limits, self.deadline).await
    }

    /// The body piece by piece as it comes, decompressed, in the time that [`bytes`](Self::bytes) has: for who does not
    /// keep all of it. On the wire too it may have [`Limits::decoded_bytes`]. After an error it ends.
    pub fn into_pieces(self) -> impl Stream<Item = Result<Bytes, EgressError>> + Send + 'static {
        let reading = Reading {
            idle: Some(self.limits.idle),
            deadline: Some((self.deadline, self.limits.total)),
            most: Some((self.limits.decoded_bytes, self.limits.decoded_bytes)),
        };
        pieces(self.body, reading)
    }

    /// The body piece by piece as it comes, decompressed: no limit on its length or time, only on silence, and none
    /// on that where `idle` is `None`. After an error it ends.
    pub fn into_stream(
        self,
        idle: Option<Duration>,
    ) -> impl Stream<Item = Result<Bytes, EgressError>> + Send + 'static {
        let reading = Reading {
            idle,
            deadline: None,
            most: None,
        };
        pieces(self.body, reading)
    }
}

fn pieces(body: Body, reading: Reading) -> impl Stream<Item = Result<Bytes, EgressError>> + Send + 'static {
    futures::stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match body.chunk(reading).await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(body))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}

impl fmt::Debug for GuardedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedClient")
            .field("rules", &self.inner.rules)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GuardedClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedClientBuilder")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GuardedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// What the HTTP library reports, as ours: a refusal of the resolver's hook first, then the kind of failure.
fn explain(error: reqwest::Error, host: String, proxy: Option<String>, limit_bytes: usize) -> EgressError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = cause {
        if current
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_parse_too_large)
        {
            return EgressError::HeadersTooLarge { host, limit_bytes };
        }
        match current.downcast_ref::<ResolveFailure>() {
            Some(ResolveFailure::Refused(refusal)) => return EgressError::Refused(refusal.clone()),
            Some(ResolveFailure::Resolver(source)) => {
                let source = std::io::Error::new(source.kind(), source.to_string());
                return EgressError::Resolve { host, source };
            }
            None => cause = current.source(),
        }
    }
    let source = error.without_url();
    if source.is_connect() {
        EgressError::Connect { host, proxy, source }
    } else {
        EgressError::Exchange { host, source }
    }
}
