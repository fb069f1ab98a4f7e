mod builder;
mod response;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use portcullis_types::EgressRule;
use tokio::time::{Instant, timeout, timeout_at};
use url::{Origin, Url};

use crate::{
    EgressError, EgressProxy, EgressRules, Limits, SystemResolver,
    body::Body,
    proxy,
    record::{EgressLog, Way},
    redirect::{self, Hop},
    resolve::ResolveFailure,
    rules::target,
};
pub use builder::GuardedClientBuilder;
pub use response::GuardedResponse;

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
        let mut limits = self.inner.limits;
        let first_byte = request.first_byte.unwrap_or(limits.first_byte);
        // A first byte that may take longer than the total moves the total with it.
        limits.total = limits.total.max(first_byte);
        let deadline = Instant::now() + limits.total;
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
                return accept(answer, hop.url, limits, deadline);
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

impl fmt::Debug for GuardedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedClient")
            .field("rules", &self.inner.rules)
            .finish_non_exhaustive()
    }
}

/// An answer that is no redirect, and not read yet.
fn accept(
    answer: reqwest::Response,
    url: Url,
    limits: Limits,
    deadline: Instant,
) -> Result<GuardedResponse, EgressError> {
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
