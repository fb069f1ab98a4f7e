use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use url::Url;

use crate::{
    EgressError,
    rules::{shown_path, target},
};

/// One request of a chain of redirects.
#[derive(Debug, Clone)]
pub(crate) struct Hop {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// False once the chain has left its origin. It never becomes true again, also on the way back: what another
    /// origin made us ask is not ours to vouch for.
    pub(crate) at_home: bool,
}

/// What crosses to another origin. All else stays behind: any header may be a credential.
const NEUTRAL: [header::HeaderName; 4] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_TYPE,
    header::USER_AGENT,
];

pub(crate) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The hop that a redirect asks for (RFC 9110, section 15.4). It is not checked against the rules yet.
pub(crate) fn next(hop: Hop, status: StatusCode, answer: &HeaderMap) -> Result<Hop, EgressError> {
    let host = target(&hop.url);
    let refuse = |why: String| EgressError::Redirect {
        host: host.clone(),
        status: status.as_u16(),
        why,
    };
    let location = answer
        .get(header::LOCATION)
        .ok_or_else(|| refuse("it names no location".to_owned()))?;
    let location = location
        .to_str()
        .map_err(|_| refuse("its location is no text".to_owned()))?;
    let mut url = hop
        .url
        .join(location)
        .map_err(|_| refuse("its location is no url".to_owned()))?;
    url.set_fragment(None);
    let safe = matches!(hop.method, Method::GET | Method::HEAD);
    let mut next = hop;
    match status.as_u16() {
        303 if !safe => {
            next.method = Method::GET;
            next.body = Bytes::new();
            next.headers.remove(header::CONTENT_TYPE);
        }
        301 | 302 if !safe => {
            return Err(EgressError::Moved {
                host,
                status: status.as_u16(),
                place: format!("{}{}", target(&url), shown_path(&url)),
            });
        }
        _ => {}
    }
    if url.origin() != next.url.origin() {
        next.at_home = false;
        next.headers = neutral(&next.headers);
    }
    next.url = url;
    Ok(next)
}

fn neutral(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| NEUTRAL.contains(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn hop(method: Method) -> Hop {
        let mut headers = HeaderMap::new();
        for name in [
            "accept",
            "content-type",
            "authorization",
            "cookie",
            "x-api-key",
            "mcp-session-id",
        ] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        let url = Url::parse("https://a.test/mcp?q").unwrap();
        Hop {
            method,
            url,
            headers,
            body: Bytes::from_static(b"{}"),
            at_home: true,
        }
    }

    fn check(
        method: Method,
        status: u16,
        location: &str,
        expected: Result<(&str, Method, usize, bool), &str>,
    ) {
        let mut answer = HeaderMap::new();
        answer.insert(header::LOCATION, HeaderValue::from_str(location).unwrap());
        let found = next(hop(method), StatusCode::from_u16(status).unwrap(), &answer);
        match (found, expected) {
            (Ok(hop), Ok((url, method, headers, at_home))) => {
                assert_eq!((hop.url.as_str(), &hop.method), (url, &method));
                assert_eq!(
                    (hop.headers.len(), hop.at_home),
                    (headers, at_home),
                    "{location}: {:?}",
                    hop.headers
                );
                assert_eq!(hop.body.is_empty(), status == 303 && method == Method::GET);
            }
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
            (found, expected) => panic!("{location}: {found:?} is not {expected:?}"),
        }
    }

    #[test]
    fn the_method_stays_where_the_status_says_so() {
        let home = "https://a.test/new";
        check(Method::POST, 307, "/new", Ok((home, Method::POST, 6, true)));
        check(Method::POST, 308, "new", Ok((home, Method::POST, 6, true)));
        check(Method::POST, 303, "/new", Ok((home, Method::GET, 5, true)));
        check(Method::POST, 301, "/new", Err("configure it"));
        check(Method::DELETE, 302, "/new", Err("`https://a.test:443/new`"));
    }

    /// A server often asks for the same path with a slash at its end, and some have a key in it.
    #[test]
    fn a_key_in_the_path_is_not_shown() {
        let location = "/s/9f8e7d6c5b4a39281706/mcp/";
        check(Method::POST, 301, location, Err("`https://a.test:443/s/…/mcp/`"));
    }

    #[test]
    fn another_scheme_host_or_port_is_another_origin() {
        for url in [
            "https://b.test/",
            "http://a.test/",
            "https://a.test:8443/",
            "https://sub.a.test/",
        ] {
            check(Method::POST, 307, url, Ok((url, Method::POST, 2, false)));
        }
        check(
            Method::POST,
            307,
            "//b.test/x#f",
            Ok(("https://b.test/x", Method::POST, 2, false)),
        );
        check(
            Method::POST,
            307,
            "https://a.test:443/x",
            Ok(("https://a.test/x", Method::POST, 6, true)),
        );
    }

    #[test]
    fn a_chain_that_left_home_stays_away() {
        let mut answer = HeaderMap::new();
        answer.insert(header::LOCATION, HeaderValue::from_static("https://b.test/"));
        let away = next(hop(Method::GET), StatusCode::FOUND, &answer).unwrap();
        answer.insert(header::LOCATION, HeaderValue::from_static("https://a.test/"));
        let back = next(away, StatusCode::FOUND, &answer).unwrap();
        assert!(!back.at_home);
        assert!(back.headers.get(header::AUTHORIZATION).is_none());
    }

    #[test]
    fn a_location_that_is_none_is_said() {
        check(Method::GET, 307, "https://[", Err("no url"));
        let none = next(
            hop(Method::GET),
            StatusCode::TEMPORARY_REDIRECT,
            &HeaderMap::new(),
        );
        assert!(none.unwrap_err().to_string().contains("names no location"));
    }
}
