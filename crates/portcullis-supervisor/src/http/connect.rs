use std::{path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use portcullis_config::{HttpSpec, ProxySpec, Sources};
use portcullis_egress::{EgressError, EgressProxy, EgressRules, GuardedClient};
use rmcp::{
    RoleClient,
    transport::{
        StreamableHttpClientTransport, Transport, common::client_side_sse::ExponentialBackoff,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use url::form_urlencoded;

use super::client::{GuardedHttp, HttpTerms};
use crate::environment::{UnresolvedField, resolve};

/// How many POSTs may be under way beside the calls that a server may have at once: listings and what else the hub asks. A
/// POST is under way until its answer begins.
const MORE_POSTS: usize = 16;

/// The largest event and the largest JSON reply, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// The longest wait between two tries to resume a stream.
const MOST_RETRY: Duration = Duration::from_secs(30);

/// How long a part of the url is at least that is left out of what the server says, in bytes: parameters hold words too, such
/// as `mode=read`, and these stand everywhere.
const LEAST_OF_URL: usize = 8;

/// Headers that belong to the protocol: a configuration may not set them. Names are in lower case.
const RESERVED: &[&str] = &[
    "accept",
    "content-type",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
];

/// Why a transport over HTTP cannot be set up. Nothing has been sent.
#[derive(Debug, Error)]
pub(crate) enum HttpError {
    #[error(transparent)]
    Unresolved(#[from] UnresolvedField),
    #[error("headers.{name}: {why}")]
    Header { name: String, why: &'static str },
    #[error("rootCertificates: `{}`: {why}", path.display())]
    Roots { path: PathBuf, why: String },
    #[error(transparent)]
    Egress(#[from] EgressError),
}

/// A transport to `spec`, through the guarded client and under its egress rules alone. Nothing is sent yet, but a
/// url that the rules do not allow is refused here.
///
/// # Errors
/// [`HttpError`]: a header's reference without a value, a header that cannot be set, a url that is not allowed.
pub(crate) fn connect_http(
    spec: &HttpSpec,
    sources: &dyn Sources,
    terms: HttpTerms,
) -> Result<impl Transport<RoleClient> + use<>, HttpError> {
    let calls_in_flight = terms.calls_in_flight;
    let client = http_client(spec, sources, terms)?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(spec.url.as_str());
    config.max_concurrent_requests = calls_in_flight.saturating_add(MORE_POSTS);
    config.max_sse_event_size = MOST_BYTES;
    config.max_json_response_size = MOST_BYTES;
    let mut backoff = ExponentialBackoff::default();
    backoff.max_delay = Some(MOST_RETRY);
    config.retry_config = std::sync::Arc::new(backoff);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

pub(super) fn http_client(
    spec: &HttpSpec,
    sources: &dyn Sources,
    terms: HttpTerms,
) -> Result<GuardedHttp, HttpError> {
    let (headers, mut secrets) = headers(spec, sources)?;
    secrets.extend(hidden_of_the_url(spec));
    // Before anything is tried, since what is tried is told.
    terms.complaint.keep(&secrets);
    let complaint = terms.complaint.clone();
    let log = terms.log.showing(move |said| complaint.without_secrets(said));
    let mut rules = EgressRules::new(spec.egress.to_vec());
    if let Some(hub) = &terms.hub {
        rules = rules.within(hub.clone());
    }
    let mut client = GuardedClient::builder(rules)
        .credentials(&spec.url, headers)
        .log(log);
    if let Some(proxy) = &spec.proxy {
        client = client.proxy(egress_proxy(proxy, sources)?);
    }
    for path in &spec.root_certificates {
        let refuse = |why: String| HttpError::Roots {
            path: path.clone(),
            why,
        };
        // Read here and now, so that a file that was renewed counts from the next connection on.
        let pem = sources
            .file(&path.to_string_lossy())
            .ok_or_else(|| refuse("the file cannot be read".to_owned()))?;
        client = client
            .root_certificates(pem.as_bytes())
            .map_err(|error| refuse(error.to_string()))?;
    }
    let client = client.build()?;
    client.check(&Method::POST, &spec.url)?;
    Ok(GuardedHttp::new(client, terms))
}

/// The configured headers, and the values that must not be shown.
fn headers(spec: &HttpSpec, sources: &dyn Sources) -> Result<(HeaderMap, Vec<SecretString>), HttpError> {
    let (mut headers, mut secrets) = (HeaderMap::new(), Vec::new());
    for (name, value) in &spec.headers {
        let field = format!("headers.{name}");
        let refuse = |why| HttpError::Header {
            name: name.clone(),
            why,
        };
        let parsed =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("this is no name of a header"))?;
        if RESERVED.contains(&parsed.as_str()) || parsed.as_str().starts_with("mcp-param-") {
            return Err(refuse("the protocol sets this header itself: leave it out"));
        }
        let secret = resolve(&field, value, sources)?;
        let mut value = HeaderValue::from_str(secret.expose_secret())
            .map_err(|_| refuse("its value has characters that no header may have, such as a newline"))?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
        // What has a scheme, `Bearer …`, is known without it too.
        if let Some((_, bare)) = secret.expose_secret().rsplit_once(' ') {
            secrets.push(SecretString::from(bare));
        }
        secrets.push(secret);
    }
    Ok((headers, secrets))
}

/// What is left out of the url where that is shown, as it stands there and as it reads: many a server says the path of
/// whatever it does not know.
fn hidden_of_the_url(spec: &HttpSpec) -> Vec<SecretString> {
    let shown = spec.shown_url();
    let query = spec.url.query().unwrap_or_default().split('&');
    let query = query.flat_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        [name, value]
    });
    let parts = spec.url.path().split('/').chain(query).map(readings);
    let hidden = parts.filter(|part| part.iter().all(|reading| !shown.contains(reading.as_str())));
    let long = hidden.flatten().filter(|reading| reading.len() >= LEAST_OF_URL);
    long.map(SecretString::from).collect()
}

/// A part of a url as it stands there, and as it reads, with its `+` for a space or for itself.
fn readings(part: &str) -> [String; 3] {
    let read = |part: &str| {
        let pair = format!("={}", part.replace('&', "%26"));
        form_urlencoded::parse(pair.as_bytes())
            .map(|(_, value)| value.into_owned())
            .collect()
    };
    [part.to_owned(), read(part), read(&part.replace('+', "%2B"))]
}

fn egress_proxy(spec: &ProxySpec, sources: &dyn Sources) -> Result<EgressProxy, HttpError> {
    let proxy = EgressProxy::new(spec.url.clone());
    let Some(username) = &spec.username else {
        return Ok(proxy);
    };
    let username = resolve("proxy.username", username, sources)?;
    let password = match &spec.password {
        Some(password) => resolve("proxy.password", password, sources)?,
        None => SecretString::default(),
    };
    Ok(proxy.login(username.expose_secret(), password.expose_secret()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::complaint::Complaint;

    /// What is left of `said` by a server with this url.
    fn shown(url: &str, said: &str) -> String {
        let complaint = Complaint::default();
        complaint.keep(&hidden_of_the_url(&HttpSpec::new(
            url.parse().unwrap(),
            Vec::new(),
        )));
        complaint.without_secrets(said)
    }

    #[test]
    fn what_is_left_out_of_a_url_is_known_as_it_stands_there_and_as_it_reads() {
        let query = "https://example.com/mcp?key=alpha-word+beta%2Dword";
        let path = "https://example.com/s/ghp_abcd%2Defgh+ijklmnop/mcp";
        for (url, said, left) in [
            (
                query,
                "POST /mcp?key=alpha-word+beta%2Dword",
                "POST /mcp?key=[redacted]",
            ),
            (
                query,
                "POST /mcp?key=alpha-word+beta-word",
                "POST /mcp?key=[redacted]",
            ),
            (
                query,
                "POST /mcp?key=alpha-word%20beta-word",
                "POST /mcp?key=[redacted]",
            ),
            (query, "no key alpha-word beta-word", "no key [redacted]"),
            (path, "/s/ghp_abcd%2Defgh+ijklmnop/", "/s/[redacted]/"),
            (path, "/s/ghp_abcd-efgh+ijklmnop/", "/s/[redacted]/"),
        ] {
            assert_eq!(shown(url, said), left, "{url}");
        }
    }

    #[test]
    fn words_of_a_url_stay_in_what_its_server_says() {
        let url = "https://example.com/a%20plain%20word/mcp?mode=read&transport=http&json=true";
        for said in ["already http, true", "GET /a plain word/mcp", "transport: json"] {
            assert_eq!(shown(url, said), said);
        }
        let words = "https://example.com/mcp?scope=read+write+list";
        assert_eq!(shown(words, "no `tools/list`"), "no `tools/list`");
        assert_eq!(shown(words, "no scope read write list"), "no scope [redacted]");
        let eight = |value: &str| shown(&format!("https://example.com/mcp?key={value}"), value);
        assert_eq!(
            (eight("QQQQQQQQ").as_str(), eight("QQQQQQQ").as_str()),
            ("[redacted]", "QQQQQQQ")
        );
    }
}
