use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use portcullis_types::{EgressRule, HostPattern};
use url::{Host, Url};

use crate::{
    Refusal,
    address::{Named, check_address, literal_line},
};

/// Where one server may connect. Without a rule: nowhere.
///
/// Hosts are compared as the URL standard reads them: internationalised names in their ASCII form, lower case, one
/// trailing dot aside, and every spelling of an IPv4 address as the address. A rule that cannot be read so matches
/// nothing, see [`EgressRules::unusable`].
///
/// ```
/// use portcullis_egress::EgressRules;
/// use url::Url;
///
/// let rules = EgressRules::new(vec!["https://api.example.com/mcp".parse()?]);
/// assert!(rules.check_url(&Url::parse("https://API.example.com./mcp/v1?q=1")?).is_ok());
/// assert!(rules.check_url(&Url::parse("https://api.example.com/mcpx")?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct EgressRules {
    rules: Vec<Compiled>,
    /// What holds for every server of the hub.
    hub: Option<Arc<EgressRules>>,
}

#[derive(Debug, Clone)]
struct Compiled {
    rule: EgressRule,
    host: Matcher,
    /// As the URL standard writes it.
    path_prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Matcher {
    Name(String),
    Suffix(String),
    Literal(IpAddr),
    /// The rule cannot be read: it matches nothing.
    Nothing,
}

impl EgressRules {
    /// Takes the rules of one server. A URL needs one of them, whichever.
    #[must_use]
    pub fn new(rules: Vec<EgressRule>) -> Self {
        Self {
            rules: rules.into_iter().map(Compiled::new).collect(),
            hub: None,
        }
    }

    /// The same rules under those of the whole hub: what is allowed needs a rule in both, and so does an address.
    ///
    /// ```
    /// use portcullis_egress::EgressRules;
    /// use url::Url;
    ///
    /// let hub = EgressRules::new(vec!["*.example.com".parse()?]);
    /// let server = EgressRules::new(vec!["a.example.com".parse()?, "b.example.org".parse()?]).within(hub);
    /// assert!(server.check_url(&Url::parse("https://a.example.com/")?).is_ok());
    /// assert!(server.check_url(&Url::parse("https://b.example.org/")?).is_err());
    /// assert!(server.check_url(&Url::parse("https://c.example.com/")?).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn within(mut self, hub: EgressRules) -> Self {
        self.hub = Some(Arc::new(hub));
        self
    }

    /// The rules that match nothing, because their host or path cannot be read.
    pub fn unusable(&self) -> impl Iterator<Item = &EgressRule> {
        self.rules
            .iter()
            .filter(|rule| rule.host == Matcher::Nothing)
            .map(|rule| &rule.rule)
    }

    /// Whether any rule is for `https`.
    pub(crate) fn need_tls(&self) -> bool {
        self.rules.iter().any(|rule| rule.rule.scheme == "https")
    }

    /// The rule that allows a URL, for one method or another: its scheme, host, port and path. A literal address in
    /// it is checked as well; a name must still be resolved, and its addresses pass
    /// [`EgressRules::check_resolved`].
    ///
    /// # Errors
    /// [`Refusal`]: which rule was missing, and the line to add.
    pub fn check_url(&self, url: &Url) -> Result<&EgressRule, Refusal> {
        self.check(None, url)
    }

    /// The rule that allows a request of this method (in upper case) to this URL, as
    /// [`check_url`](Self::check_url) does.
    ///
    /// # Errors
    /// [`Refusal`]: which rule was missing, and the line to add.
    pub fn check_request(&self, method: &str, url: &Url) -> Result<&EgressRule, Refusal> {
        self.check(Some(method), url)
    }

    fn check(&self, method: Option<&str>, url: &Url) -> Result<&EgressRule, Refusal> {
        let rule = self.check_own(method, url)?;
        if let Some(hub) = &self.hub {
            hub.check(method, url)
                .map_err(|refusal| Refusal::Hub(Box::new(refusal)))?;
        }
        Ok(rule)
    }

    fn check_own(&self, method: Option<&str>, url: &Url) -> Result<&EgressRule, Refusal> {
        let target = target(url);
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refusal::SchemeUnsupported {
                scheme: url.scheme().to_owned(),
            });
        }
        let (Some(host), Some(port)) = (normal_host(url), url.port_or_known_default()) else {
            return Err(Refusal::NoHost { target });
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refusal::Credentials { target });
        }
        let mut nearest = Nearest::Host;
        for rule in self.rules.iter().filter(|rule| rule.matches(&host)) {
            let step = if rule.rule.scheme != url.scheme() {
                Nearest::Scheme
            } else if rule.rule.port != port {
                Nearest::Port
            } else {
                match rule.check_path(url.path()) {
                    PathAnswer::Inside if !rule.allows_method(method) => Nearest::Method,
                    PathAnswer::Inside => return check_literal(&host, port, &rule.rule).map(|()| &rule.rule),
                    PathAnswer::Outside => Nearest::Path,
                    PathAnswer::Ambiguous => Nearest::PathTricks,
                }
            };
            nearest = nearest.max(step);
        }
        Err(nearest.refusal(method, url, target, host.text(), port))
    }

    /// Whether a host may be connected to at an address that its name resolved to.
    ///
    /// The port is not asked for: the address must be allowed at every port that the rules give this host, so that a
    /// connection pool, which knows no rules, can do no harm. An address that is not public is allowed where other
    /// rules name that very address at those ports.
    ///
    /// # Errors
    /// [`Refusal`] where no rule names the host, or the address is not one it may have.
    pub fn check_resolved(&self, host: &str, address: IpAddr) -> Result<(), Refusal> {
        self.check_own_resolved(host, address)?;
        match &self.hub {
            Some(hub) => hub
                .check_resolved(host, address)
                .map_err(|refusal| Refusal::Hub(Box::new(refusal))),
            None => Ok(()),
        }
    }

    fn check_own_resolved(&self, host: &str, address: IpAddr) -> Result<(), Refusal> {
        let host = HostText::Name(host.trim_end_matches('.').to_ascii_lowercase());
        let mut named = self.rules.iter().filter(|rule| rule.matches(&host)).peekable();
        if named.peek().is_none() {
            let name = host.text();
            return Err(Refusal::Host {
                target: name.clone(),
                add: name,
            });
        }
        for rule in named {
            let port = rule.rule.port;
            let by_address = |other: &Compiled| {
                matches!(other.host, Matcher::Literal(literal) if literal == address)
                    && other.rule.scheme == rule.rule.scheme
                    && other.rule.port == port
            };
            // `localhost` is exact: no other rule widens it.
            let local = rule.host == Matcher::Name("localhost".to_owned());
            match check_address(address, port, &rule.rule) {
                Err(_) if !local && self.rules.iter().any(by_address) => {}
                Err(Refusal::Address { address, kind, .. }) => {
                    let add = literal_line(&rule.rule.scheme, address, port);
                    return Err(Refusal::Address {
                        host: host.text(),
                        address,
                        kind,
                        add,
                    });
                }
                other => other?,
            }
        }
        Ok(())
    }
}

impl Compiled {
    fn new(rule: EgressRule) -> Self {
        let compiled = match &rule.host {
            HostPattern::Exact(host) => match Named::parse(host) {
                Named::Literal(address) => Some(Matcher::Literal(address)),
                Named::Localhost | Named::Name => ascii_name(host).map(Matcher::Name),
            },
            // A suffix that is an address, or a single label such as `com`, would be a slip: the first matches
            // nothing by itself, the second is the user's to answer for.
            HostPattern::Suffix(host) => ascii_name(host).map(Matcher::Suffix),
        };
        let path = normal_prefix(&rule.path_prefix);
        match (compiled, path) {
            (Some(host), Some(path_prefix)) => Self {
                rule,
                host,
                path_prefix,
            },
            _ => Self {
                rule,
                host: Matcher::Nothing,
                path_prefix: String::new(),
            },
        }
    }

    fn matches(&self, host: &HostText) -> bool {
        match (&self.host, host) {
            (Matcher::Literal(literal), HostText::Literal(address)) => literal == address,
            (Matcher::Name(name), HostText::Name(host)) => name == host,
            (Matcher::Suffix(suffix), HostText::Name(host)) => host
                .strip_suffix(suffix.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            _ => false,
        }
    }

    fn allows_method(&self, method: Option<&str>) -> bool {
        let methods = &self.rule.methods;
        methods.is_empty() || method.is_none_or(|method| methods.contains(method))
    }

    fn check_path(&self, path: &str) -> PathAnswer {
        if self.path_prefix == "/" {
            return PathAnswer::Inside;
        }
        let inside = path.strip_prefix(self.path_prefix.as_str()).is_some_and(|rest| {
            // The prefix ends where a segment does: `/mcp` is no prefix of `/mcpx`.
            rest.is_empty() || rest.starts_with('/') || self.path_prefix.ends_with('/')
        });
        match (inside, has_tricks(path)) {
            (true, false) => PathAnswer::Inside,
            (true, true) => PathAnswer::Ambiguous,
            (false, _) => PathAnswer::Outside,
        }
    }
}

enum PathAnswer {
    Inside,
    Outside,
    Ambiguous,
}

/// How near the nearest rule came; the refusal names the first part that did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Nearest {
    Host,
    Scheme,
    Port,
    Path,
    PathTricks,
    Method,
}

impl Nearest {
    fn refusal(self, method: Option<&str>, url: &Url, target: String, host: String, port: u16) -> Refusal {
        let rule = |path: &str| EgressRule {
            scheme: url.scheme().to_owned(),
            host: HostPattern::Exact(host.clone()),
            port,
            path_prefix: path.to_owned(),
            methods: BTreeSet::new(),
        };
        let line = |path: &str| rule(path).to_string();
        match self {
            Self::Host => Refusal::Host {
                add: line("/"),
                target,
            },
            Self::Scheme => Refusal::Scheme {
                add: line("/"),
                target,
            },
            Self::Port => Refusal::Port {
                add: line("/"),
                target,
            },
            Self::Path => Refusal::Path {
                add: line(&shown_path(url)),
                target: format!("{target}{}", shown_path(url)),
            },
            Self::PathTricks => Refusal::PathTricks {
                target: format!("{target}{}", shown_path(url)),
            },
            Self::Method => {
                let method = method.unwrap_or_default().to_owned();
                let mut add = rule(&shown_path(url));
                add.methods.insert(method.clone());
                Refusal::Method {
                    target: format!("{target}{}", shown_path(url)),
                    method,
                    add: add.to_string(),
                }
            }
        }
    }
}

enum HostText {
    Name(String),
    Literal(IpAddr),
}

impl HostText {
    fn text(&self) -> String {
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

fn check_literal(host: &HostText, port: u16, rule: &EgressRule) -> Result<(), Refusal> {
    match host {
        HostText::Literal(address) => check_address(*address, port, rule),
        HostText::Name(_) => Ok(()),
    }
}

/// The host of a URL, one trailing dot aside; `None` where a label is empty.
fn normal_host(url: &Url) -> Option<HostText> {
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
fn ascii_name(host: &str) -> Option<String> {
    match Host::parse(host) {
        Ok(Host::Domain(name)) => {
            Some(name.strip_suffix('.').unwrap_or(&name).to_owned()).filter(|n| !n.is_empty())
        }
        _ => None,
    }
}

/// A rule's path prefix in the form that URLs have; `None` where it holds what no prefix should.
fn normal_prefix(prefix: &str) -> Option<String> {
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
fn has_tricks(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    ["%2e", "%2f", "%5c", "%25", "%00", "\\"]
        .iter()
        .any(|trick| lower.contains(trick))
        || lower.split('/').any(|segment| {
            // Some servers cut `..;x` at the semicolon.
            matches!(segment.split(';').next(), Some("." | ".."))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` is `ok` or the refusal's code.
    fn check(rules: &[&str], cases: &[(&str, &str)]) {
        let rules = EgressRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
        for (url, expected) in cases {
            let url = Url::parse(url).unwrap();
            let answer = rules
                .check_url(&url)
                .map_or_else(|refusal| refusal.code(), |_| "ok");
            assert_eq!(answer, *expected, "{url}");
        }
    }

    #[test]
    fn without_rules_nothing_is_allowed() {
        check(
            &[],
            &[
                ("https://example.com/", "host_not_allowed"),
                ("http://127.0.0.1/", "host_not_allowed"),
            ],
        );
    }

    #[test]
    fn scheme_host_and_port_all_count() {
        check(
            &["example.com", "http://plain.example:8080"],
            &[
                ("https://example.com/any/path?q#f", "ok"),
                ("https://EXAMPLE.com./", "ok"),
                ("https://example.com:443/", "ok"),
                ("http://example.com/", "scheme_not_allowed"),
                ("https://example.com:8443/", "port_not_allowed"),
                ("https://sub.example.com/", "host_not_allowed"),
                ("https://example.com.evil.test/", "host_not_allowed"),
                ("https://example.com../", "no_host"),
                ("https://evil.test/example.com", "host_not_allowed"),
                ("https://example.com@evil.test/", "credentials_in_url"),
                ("https://user:secret@example.com/", "credentials_in_url"),
                ("http://plain.example:8080/", "ok"),
                ("http://plain.example/", "port_not_allowed"),
                ("ftp://example.com/", "scheme_unsupported"),
                ("file:///etc/passwd", "scheme_unsupported"),
                ("ws://example.com/", "scheme_unsupported"),
            ],
        );
    }

    #[test]
    fn a_refusal_shows_no_key_of_a_path() {
        let key = "9f8e7d6c5b4a39281706";
        for (rule, url) in [
            ("https://a.test/mcp", format!("https://a.test/s/{key}/x")),
            ("https://a.test/s", format!("https://a.test/s/{key}/%2e%2e%2f")),
            ("GET https://a.test/s", format!("https://a.test/s/{key}")),
        ] {
            let rules = EgressRules::new(vec![rule.parse().unwrap()]);
            let refusal = rules
                .check_request("POST", &Url::parse(&url).unwrap())
                .unwrap_err();
            let shown = format!("{refusal} {refusal:?}");
            assert!(!shown.contains(key) && shown.contains("/s/…"), "{shown}");
        }
        let long = Url::parse("https://a.test/mcp/streamable-http-endpoint/v1").unwrap();
        assert_eq!(shown_path(&long), long.path());
    }

    #[test]
    fn a_suffix_is_every_name_below_and_no_address() {
        check(
            &["*.example.com", "*.1"],
            &[
                ("https://a.example.com/", "ok"),
                ("https://a.b.example.com/", "ok"),
                ("https://example.com/", "host_not_allowed"),
                ("https://badexample.com/", "host_not_allowed"),
                ("https://.example.com/", "no_host"),
                ("https://127.0.0.1/", "host_not_allowed"),
            ],
        );
    }

    #[test]
    fn names_are_compared_after_idna() {
        check(
            &["bücher.example", "xn--mnchen-3ya.example", "FULLWIDTH.example"],
            &[
                ("https://xn--bcher-kva.example/", "ok"),
                ("https://BÜCHER.example/", "ok"),
                ("https://münchen.example/", "ok"),
                ("https://ｆｕｌｌｗｉｄｔｈ.example/", "ok"),
                ("https://bucher.example/", "host_not_allowed"),
                ("https://b\u{fc}cher\u{3002}example/", "ok"),
            ],
        );
    }

    #[test]
    fn a_path_prefix_ends_at_a_segment_and_cannot_be_left() {
        check(
            &["https://a.test/mcp", "https://b.test/x/"],
            &[
                ("https://a.test/mcp", "ok"),
                ("https://a.test/mcp/", "ok"),
                ("https://a.test/mcp/v1?q=..", "ok"),
                ("https://a.test/mcpx", "path_not_allowed"),
                ("https://a.test/", "path_not_allowed"),
                ("https://a.test/MCP", "path_not_allowed"),
                ("https://a.test/mcp/../admin", "path_not_allowed"),
                ("https://a.test/mcp/%2e%2e/admin", "path_not_allowed"),
                ("https://a.test/mcp\\..\\admin", "path_not_allowed"),
                ("https://a.test/mcp/..%2fadmin", "path_ambiguous"),
                ("https://a.test/mcp/..%5cadmin", "path_ambiguous"),
                ("https://a.test/mcp/%252e%252e/admin", "path_ambiguous"),
                ("https://a.test/mcp/..;/admin", "path_ambiguous"),
                ("https://b.test/x/y", "ok"),
                ("https://b.test/x", "path_not_allowed"),
            ],
        );
    }

    #[test]
    fn a_method_needs_a_rule_that_names_it_or_names_none() {
        let lines = ["post,GET https://a.test/mcp", "https://a.test/any"];
        let rules = EgressRules::new(lines.iter().map(|rule| rule.parse().unwrap()).collect());
        for (method, path, expected) in [
            ("POST", "mcp/x", "ok"),
            ("GET", "mcp", "ok"),
            ("DELETE", "mcp", "method_not_allowed"),
            ("post", "mcp", "method_not_allowed"),
            ("DELETE", "any", "ok"),
            ("POST", "other", "path_not_allowed"),
        ] {
            let url = Url::parse(&format!("https://a.test/{path}")).unwrap();
            let answer = rules.check_request(method, &url);
            assert_eq!(
                answer.as_ref().map_or_else(|refusal| refusal.code(), |_| "ok"),
                expected,
                "{method} {path}"
            );
            // The line to add does allow it.
            if let Err(Refusal::Method { add, .. }) = &answer {
                let rules = EgressRules::new(vec![add.parse().unwrap()]);
                assert!(rules.check_request(&method.to_uppercase(), &url).is_ok(), "{add}");
            }
            assert!(rules.check_url(&url).is_ok() || expected == "path_not_allowed");
        }
    }

    #[test]
    fn what_the_hub_does_not_allow_no_server_gets() {
        let hub = ["GET *.test", "http://10.0.0.5:80"].map(|rule| rule.parse().unwrap());
        let own = [
            "https://a.test",
            "b.example",
            "http://corp.test",
            "http://10.0.0.5:80",
        ];
        let rules = EgressRules::new(own.iter().map(|rule| rule.parse().unwrap()).collect())
            .within(EgressRules::new(hub.to_vec()));
        for (method, url, expected) in [
            ("GET", "https://a.test/", "ok"),
            ("POST", "https://a.test/", "hub method_not_allowed"),
            ("GET", "https://c.test/", "host_not_allowed"),
            ("GET", "https://b.example/", "hub host_not_allowed"),
            ("GET", "http://corp.test/", "hub scheme_not_allowed"),
            ("GET", "http://10.0.0.5/", "ok"),
        ] {
            let answer = match rules.check_request(method, &Url::parse(url).unwrap()) {
                Ok(_) => "ok".to_owned(),
                Err(refusal @ Refusal::Hub(_)) => format!("hub {}", refusal.code()),
                Err(refusal) => refusal.code().to_owned(),
            };
            assert_eq!(answer, expected, "{method} {url}");
        }
        assert!(rules.check_resolved("a.test", "8.8.8.8".parse().unwrap()).is_ok());
        let refusal = rules.check_resolved("corp.test", "10.0.0.5".parse().unwrap());
        assert!(matches!(refusal, Err(Refusal::Hub(_))), "{refusal:?}");
    }

    #[test]
    fn a_literal_address_needs_a_rule_that_names_it() {
        check(
            &[
                "http://127.0.0.1:8080",
                "http://[::1]:8080",
                "http://localhost:9090",
                "8.8.8.8",
            ],
            &[
                ("http://127.0.0.1:8080/", "ok"),
                ("http://2130706433:8080/", "ok"),
                ("http://[::1]:8080/", "ok"),
                ("http://[0:0::1]:8080/", "ok"),
                ("http://[::ffff:127.0.0.1]:8080/", "host_not_allowed"),
                ("http://127.0.0.2:8080/", "host_not_allowed"),
                ("http://127.0.0.1:8081/", "port_not_allowed"),
                ("http://localhost:8080/", "port_not_allowed"),
                ("http://localhost.:9090/", "ok"),
                ("https://8.8.8.8/", "ok"),
                ("https://8.8.4.4/", "host_not_allowed"),
            ],
        );
    }

    #[test]
    fn a_rule_that_cannot_be_read_matches_nothing_and_is_reported() {
        let rules = [
            "https://a.test/x/../..",
            "https://a.test/%2e%2e",
            "https://a.test/x?y",
            "xn--\u{fffd}.test",
        ];
        let rules = EgressRules::new(rules.iter().filter_map(|rule| rule.parse().ok()).collect());
        assert_eq!(rules.unusable().count(), 4);
        assert!(rules.check_url(&Url::parse("https://a.test/").unwrap()).is_err());
    }

    #[test]
    fn a_resolved_name_must_be_public_or_named_by_address() {
        let rules = [
            "https://api.test",
            "http://corp.test:8080",
            "http://10.0.0.5:8080",
            "http://localhost:9090",
        ];
        let rules = EgressRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
        for (host, address, expected) in [
            ("api.test", "8.8.8.8", "ok"),
            ("API.test.", "8.8.8.8", "ok"),
            ("api.test", "10.0.0.5", "address_not_allowed"),
            ("api.test", "::1", "address_not_allowed"),
            ("corp.test", "10.0.0.5", "ok"),
            ("corp.test", "10.0.0.6", "address_not_allowed"),
            ("localhost", "127.0.0.1", "ok"),
            ("localhost", "8.8.8.8", "address_not_allowed"),
            ("other.test", "8.8.8.8", "host_not_allowed"),
        ] {
            let answer = rules.check_resolved(host, address.parse().unwrap());
            assert_eq!(
                answer.map_or_else(|refusal| refusal.code(), |()| "ok"),
                expected,
                "{host} at {address}"
            );
        }
    }

    #[test]
    fn a_host_with_two_rules_needs_the_address_at_both_ports() {
        let rules = [
            "http://corp.test:80",
            "http://corp.test:8080",
            "http://10.0.0.5:8080",
        ];
        let rules = EgressRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
        assert!(
            rules
                .check_resolved("corp.test", "10.0.0.5".parse().unwrap())
                .is_err()
        );
    }

    #[test]
    fn a_refusal_never_shows_a_query_or_a_password() {
        let rules = EgressRules::new(vec!["https://a.test/mcp".parse().unwrap()]);
        for url in [
            "https://u:hunter2@a.test/?t=hunter2",
            "https://a.test/x?t=hunter2",
            "https://b.test/?hunter2",
        ] {
            let refusal = rules.check_url(&Url::parse(url).unwrap()).unwrap_err();
            assert!(!format!("{refusal} {refusal:?}").contains("hunter2"), "{refusal}");
        }
    }
}
