use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// One line of an allowlist: where an HTTP server may connect.
///
/// `example.com` (https, port 443), `*.example.com` (every name below it, not itself), or
/// `http://127.0.0.1:8080/mcp` with a scheme, a port and a path prefix. Methods may stand before it:
/// `GET,POST https://api.example.com/mcp`; without them, any method is allowed.
///
/// ```
/// use portcullis_types::EgressRule;
///
/// let rule: EgressRule = "post https://api.example.com/mcp".parse()?;
/// assert_eq!(rule.to_string(), "POST https://api.example.com:443/mcp");
/// # Ok::<(), portcullis_types::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EgressRule {
    /// `https` or `http`.
    pub scheme: String,
    /// Which hosts.
    pub host: HostPattern,
    /// The port; the scheme's own where none is written.
    pub port: u16,
    /// What the path starts with; `/` for any.
    pub path_prefix: String,
    /// Which HTTP methods (RFC 9110, section 9), in upper case; none for any.
    pub methods: BTreeSet<String>,
}

/// The host part of an [`EgressRule`], in lower case, without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// This very name or literal address (an IPv6 address without its brackets).
    Exact(String),
    /// Every name below this one: `*.example.com`.
    Suffix(String),
}

impl FromStr for EgressRule {
    type Err = ParseError;

    fn from_str(input: &str) -> Result<Self, ParseError> {
        let refuse = |why| ParseError::EgressRule {
            input: input.to_owned(),
            why,
        };
        let (methods, written) = split_methods(input.trim()).map_err(refuse)?;
        let text = written.to_ascii_lowercase();
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
            Some(_) => return Err(refuse("the scheme is neither http nor https")),
            None => ("https", text.as_str()),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (host, port) = split_port(authority).map_err(refuse)?;
        let host = host_pattern(host).map_err(refuse)?;
        let port = port.unwrap_or(if scheme == "https" { 443 } else { 80 });
        // The path is taken from the input: paths keep their case.
        let path = written
            .get(written.len() - path.len()..)
            .filter(|p| p.starts_with('/'))
            .unwrap_or(path);
        if path.contains('…') {
            return Err(refuse(
                "`…` stands in its path for what a message left out, since it may be a key: write it out, or end the \
                 path before it",
            ));
        }
        Ok(Self {
            scheme: scheme.to_owned(),
            host,
            port,
            path_prefix: path.to_owned(),
            methods,
        })
    }
}

/// The methods that stand before a space, and the rest.
fn split_methods(input: &str) -> Result<(BTreeSet<String>, &str), &'static str> {
    let Some((methods, rest)) = input.split_once(char::is_whitespace) else {
        return Ok((BTreeSet::new(), input));
    };
    let method = |name: &str| {
        let name = name.to_ascii_uppercase();
        let known = [
            "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT",
        ];
        known.contains(&name.as_str()).then_some(name)
    };
    let methods: Option<BTreeSet<String>> = methods.split(',').map(method).collect();
    let methods = methods.ok_or(
        "what stands before the space is no list of methods, such as `GET,POST`, and a host has no space",
    )?;
    Ok((methods, rest.trim_start()))
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or("the bracket of an IPv6 address is not closed")?;
        (
            host,
            after
                .strip_prefix(':')
                .or(if after.is_empty() { None } else { Some(after) }),
        )
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    match port {
        None => Ok((host, None)),
        Some(port) => port
            .parse()
            .map(|port| (host, Some(port)))
            .map_err(|_| "the port is not a number up to 65535"),
    }
}

fn host_pattern(host: &str) -> Result<HostPattern, &'static str> {
    let host = host.trim_end_matches('.');
    let (name, suffix) = match host.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (host, false),
    };
    if name.is_empty() {
        return Err("the host is empty");
    }
    if name.contains('*') {
        return Err("a star may only stand first, as in `*.example.com`");
    }
    if suffix && name.contains(':') {
        return Err("a star stands before names, and this is an address");
    }
    if name
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || matches!(c, '@' | '?' | '#' | '\\' | '%' | '[' | ']'))
    {
        return Err("the host has a character that no host has");
    }
    Ok(if suffix {
        HostPattern::Suffix(name.to_owned())
    } else {
        HostPattern::Exact(name.to_owned())
    })
}

impl TryFrom<String> for EgressRule {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<EgressRule> for String {
    fn from(rule: EgressRule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (star, host) = match &self.host {
            HostPattern::Exact(host) => ("", host),
            HostPattern::Suffix(host) => ("*.", host),
        };
        for (at, method) in self.methods.iter().enumerate() {
            let last = at + 1 == self.methods.len();
            write!(f, "{method}{}", if last { " " } else { "," })?;
        }
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(
            f,
            "{}://{star}{open}{host}{close}:{}{}",
            self.scheme, self.port, self.path_prefix
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_print_whole_and_read_back() {
        for (text, whole) in [
            ("Example.com", "https://example.com:443/"),
            ("*.example.com.", "https://*.example.com:443/"),
            ("http://127.0.0.1:8080/Mcp", "http://127.0.0.1:8080/Mcp"),
            ("https://[::1]:9000", "https://[::1]:9000/"),
            (
                "post,GET  example.com/Mcp",
                "GET,POST https://example.com:443/Mcp",
            ),
            (" DELETE *.example.com ", "DELETE https://*.example.com:443/"),
        ] {
            let rule: EgressRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), whole);
            assert_eq!(rule.to_string().parse::<EgressRule>().unwrap(), rule);
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_the_part_that_is_wrong() {
        for (text, why) in [
            ("", "empty"),
            ("ftp://a", "scheme"),
            ("a.*.com", "star"),
            ("*", "star"),
            ("user@host", "character"),
            ("[", "bracket"),
            ("a]", "character"),
            ("a[b", "character"),
            ("[*.a:b]", "address"),
            ("host:99999", "port"),
            ("[::1", "bracket"),
            ("FETCH example.com", "methods"),
            ("GET,, example.com", "methods"),
            ("example.com example.org", "methods"),
            ("GET POST example.com", "character"),
            ("example.com/s/…/mcp", "write it out"),
        ] {
            let error = text.parse::<EgressRule>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
