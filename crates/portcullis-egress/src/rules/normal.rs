//! Hosts and paths in the form in which URLs and rules are compared, and what of them may be shown.

use std::net::IpAddr;

use portcullis_types::EgressRule;
use url::{Host, Url};

use crate::{Refusal, address::check_address};

/// The host of a URL.
pub(super) enum HostText {
    Name(String),
    Literal(IpAddr),
}

impl HostText {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Literal(address) => address.to_string(),
        }
    }
}

/// `scheme://host:port`: all of a URL that may be shown.
pub(crate) fn target(url: &Url) -> String {
    let host = url.host_str().unwrap_or("");
    match url.port_or_known_default() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

/// The path of a URL for a message to a person. Some servers have a key in it: what nobody would type is left out.
pub(crate) fn shown_path(url: &Url) -> String {
    const LONGEST: usize = 16;
    let word = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || b"-_.".contains(&byte);
        part.len() <= LONGEST || part.bytes().all(plain)
    };
    let parts = url
        .path()
        .split('/')
        .map(|part| if word(part) { part } else { "…" });
    parts.collect::<Vec<_>>().join("/")
}

pub(super) fn check_literal(host: &HostText, port: u16, rule: &EgressRule) -> Result<(), Refusal> {
    match host {
        HostText::Literal(address) => check_address(*address, port, rule),
        HostText::Name(_) => Ok(()),
    }
}

/// The host of a URL, one trailing dot aside; `None` where a label is empty.
pub(super) fn normal_host(url: &Url) -> Option<HostText> {
    match url.host()? {
        Host::Ipv4(address) => Some(HostText::Literal(address.into())),
        Host::Ipv6(address) => Some(HostText::Literal(address.into())),
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            let whole = !name.is_empty() && name.split('.').all(|label| !label.is_empty());
            whole.then(|| HostText::Name(name.to_ascii_lowercase()))
        }
    }
}

/// A rule's name in the form that URLs have.
pub(super) fn ascii_name(host: &str) -> Option<String> {
    match Host::parse(host) {
        Ok(Host::Domain(name)) => {
            Some(name.strip_suffix('.').unwrap_or(&name).to_owned()).filter(|n| !n.is_empty())
        }
        _ => None,
    }
}

/// A rule's path prefix in the form that URLs have; `None` where it holds what no prefix should.
pub(super) fn normal_prefix(prefix: &str) -> Option<String> {
    let dots = prefix
        .split(['/', '\\'])
        .any(|segment| matches!(segment, "." | ".."));
    if dots || has_tricks(prefix) || prefix.contains(['?', '#', '\\']) || !prefix.starts_with('/') {
        return None;
    }
    // Only the path is wanted; the host serves to have the standard's parser write it.
    let mut url = Url::parse("http://prefix.invalid/").ok()?;
    url.set_path(prefix);
    Some(url.path().to_owned())
}

/// Whether a server that decodes once more than we do could read another path here.
pub(super) fn has_tricks(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    ["%2e", "%2f", "%5c", "%25", "%00", "\\"]
        .iter()
        .any(|trick| lower.contains(trick))
        || lower.split('/').any(|segment| {
            // Some servers cut `..;x` at the semicolon.
            matches!(segment.split(';').next(), Some("." | ".."))
        })
}
