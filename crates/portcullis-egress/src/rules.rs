use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use portcullis_types::{EgressRule, HostPattern};
use url::Url;

use crate::{
    Refusal,
    address::{Named, check_address, literal_line},
};

mod normal;

use normal::{HostText, ascii_name, check_literal, has_tricks, normal_host, normal_prefix};
pub(crate) use normal::{shown_path, target};

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

#[cfg(test)]
mod tests;
