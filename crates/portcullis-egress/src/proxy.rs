use std::fmt;

use url::{Host, Url};

use crate::{EgressError, EgressRules, address::kind_of, rules::target};

/// A proxy that requests go through, where a configuration names one. None is ever taken from the environment.
///
/// What is asked for over `https` goes through a tunnel (`CONNECT`): the proxy sees host and port, and nothing of what
/// is said. What is asked for over `http` it sees whole. Either way it is the proxy that resolves the target's name,
/// out of our sight, so only the rules guard the target then, and no check of its address.
///
/// `localhost` and addresses that are not of the public internet mean places near this machine, and another place near
/// the proxy's: they are connected to directly.
#[derive(Clone)]
pub struct EgressProxy {
    url: Url,
    login: Option<(String, String)>,
}

impl EgressProxy {
    /// A proxy at an `http` or `https` url.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self { url, login: None }
    }

    /// The user and the password that the proxy wants (basic authentication, RFC 7617). No other host sees them.
    #[must_use]
    pub fn login(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some((username.into(), password.into()));
        self
    }

    /// `scheme://host:port`.
    pub(crate) fn target(&self) -> String {
        target(&self.url)
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Whether the rules let it be used: for `CONNECT`, whatever is then asked of it, so that a rule may allow that
    /// alone. Its address is checked as any other's when it is connected to.
    pub(crate) fn check(&self, rules: &EgressRules) -> Result<(), EgressError> {
        rules
            .check_request("CONNECT", &self.url)
            .map_err(EgressError::Proxy)?;
        match &self.login {
            Some((username, _)) if username.contains(':') => Err(EgressError::Setup {
                why: "the proxy's user name has a colon, which basic authentication cannot send".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// As the HTTP library takes it.
    pub(crate) fn intercept(&self) -> reqwest::Proxy {
        let url = self.url.clone();
        let proxy = reqwest::Proxy::custom(move |asked| carries(asked).then(|| url.clone()));
        match &self.login {
            Some((username, password)) => {
                // Encoded by the library, and marked as a secret.
                proxy.basic_auth(username, password)
            }
            None => proxy,
        }
    }
}

impl fmt::Debug for EgressProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressProxy")
            .field("target", &self.target())
            .finish_non_exhaustive()
    }
}

/// Whether a proxy is asked for this url.
pub(crate) fn carries(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => kind_of(address.into()).is_none(),
        Some(Host::Ipv6(address)) => kind_of(address.into()).is_none(),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name != "localhost" && !name.ends_with(".localhost")
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_this_machine_goes_through_no_proxy() {
        for (url, through) in [
            ("https://api.example.com/", true),
            ("http://8.8.8.8/", true),
            ("https://[2606:4700::1111]/", true),
            ("http://localhost:8080/", false),
            ("http://LOCALHOST.:8080/", false),
            ("http://a.localhost/", false),
            ("http://127.0.0.1/", false),
            ("http://0x7f.1/", false),
            ("http://10.0.0.5/", false),
            ("http://169.254.169.254/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:8.8.8.8]/", false),
        ] {
            assert_eq!(carries(&Url::parse(url).unwrap()), through, "{url}");
        }
    }

    #[test]
    fn a_login_is_never_shown() {
        let proxy = EgressProxy::new(Url::parse("http://proxy.test:3128").unwrap()).login("ada", "hunter2");
        let shown = format!("{proxy:?} {:?}", proxy.intercept());
        assert!(
            !shown.contains("hunter2") && shown.contains("http://proxy.test:3128"),
            "{shown}"
        );
    }

    #[test]
    fn a_proxy_needs_a_rule_of_its_own() {
        let lines = [
            "api.test",
            "CONNECT http://proxy.test:3128",
            "GET http://get.test:3128",
        ];
        let rules = EgressRules::new(lines.iter().map(|line| line.parse().unwrap()).collect());
        for (url, code) in [
            ("http://proxy.test:3128", "ok"),
            ("http://get.test:3128", "method_not_allowed"),
            ("http://proxy.test:8080", "port_not_allowed"),
            ("https://proxy.test:3128", "scheme_not_allowed"),
            ("http://other.test:3128", "host_not_allowed"),
            ("http://u:p@proxy.test:3128", "credentials_in_url"),
            ("socks5://proxy.test:3128", "scheme_unsupported"),
        ] {
            let found = EgressProxy::new(Url::parse(url).unwrap()).check(&rules);
            let found = found.map_err(|error| error.refusal().map(|refusal| refusal.code()));
            assert_eq!(found.map_or_else(|code| code.unwrap(), |()| "ok"), code, "{url}");
        }
        let colon = EgressProxy::new(Url::parse("http://proxy.test:3128").unwrap()).login("a:b", "c");
        assert!(matches!(colon.check(&rules), Err(EgressError::Setup { .. })));
    }
}
