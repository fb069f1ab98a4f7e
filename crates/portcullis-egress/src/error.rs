use std::{error::Error as _, time::Duration};

use thiserror::Error;

use crate::Refusal;

/// Why a request has no answer. Messages name the host, never a header's value, a query or a body.
#[derive(Debug, Error)]
pub enum EgressError {
    /// The rules do not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The host's name has no address.
    #[error("the name of `{host}` cannot be resolved")]
    Resolve {
        /// `scheme://host:port`.
        host: String,
        /// What the resolver said.
        #[source]
        source: std::io::Error,
    },
    /// No connection came to be: refused, timed out, or TLS failed.
    #[error("`{host}` cannot be connected to{}", through(.proxy))]
    Connect {
        /// `scheme://host:port`.
        host: String,
        /// `scheme://host:port` of the proxy that it was tried through.
        proxy: Option<String>,
        /// What happened.
        #[source]
        source: reqwest::Error,
    },
    /// The connection failed after something may have been sent.
    #[error("the connection to `{host}` failed")]
    Exchange {
        /// `scheme://host:port`.
        host: String,
        /// What happened.
        #[source]
        source: reqwest::Error,
    },
    /// The head of the answer did not come in time.
    #[error("`{host}` did not begin to answer within {} ms", after.as_millis())]
    FirstByte {
        /// `scheme://host:port`.
        host: String,
        /// The limit.
        after: Duration,
    },
    /// The body stood still.
    #[error("`{host}` sent nothing for {} ms in the middle of its answer", after.as_millis())]
    Idle {
        /// `scheme://host:port`.
        host: String,
        /// The limit.
        after: Duration,
    },
    /// The whole exchange took too long.
    #[error("`{host}` did not finish its answer within {} ms", after.as_millis())]
    Total {
        /// `scheme://host:port`.
        host: String,
        /// The limit.
        after: Duration,
    },
    /// The head of the answer is too large.
    #[error("`{host}` answered with headers above the limit of {limit_bytes} bytes")]
    HeadersTooLarge {
        /// `scheme://host:port`.
        host: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// The body is too large as it came.
    #[error("`{host}` answered with a body above the limit of {limit_bytes} bytes")]
    BodyTooLarge {
        /// `scheme://host:port`.
        host: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// The body is too large once decompressed.
    #[error("`{host}` answered with a body above the limit of {limit_bytes} bytes once decompressed")]
    DecodedTooLarge {
        /// `scheme://host:port`.
        host: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// The body is compressed in a way that was not asked for.
    #[error(
        "`{host}` answered with a body whose encoding cannot be read: it is `{}`, and only gzip was asked for",
        short(.name)
    )]
    UnknownEncoding {
        /// `scheme://host:port`.
        host: String,
        /// What the server calls it, word for word: the message shows the start of it.
        name: String,
    },
    /// The body's compressed data are broken.
    #[error("`{host}` answered with a body whose encoding cannot be read: {why}")]
    Encoding {
        /// `scheme://host:port`.
        host: String,
        /// What is wrong with it.
        why: String,
    },
    /// A redirect that would drop the body of the request.
    #[error(
        "`{host}` redirects with status {status}, which cannot be followed: it could drop the request's body; where \
         `{place}` is the server's new address, configure it"
    )]
    Moved {
        /// `scheme://host:port`.
        host: String,
        /// The status.
        status: u16,
        /// Where it leads to.
        place: String,
    },
    /// A redirect that cannot be followed.
    #[error("`{host}` redirects with status {status}, which cannot be followed: {why}")]
    Redirect {
        /// `scheme://host:port`.
        host: String,
        /// The status.
        status: u16,
        /// Why not, and what to do.
        why: String,
    },
    /// Redirects without end.
    #[error("`{host}` redirects again after {limit} redirects")]
    TooManyRedirects {
        /// `scheme://host:port`.
        host: String,
        /// The limit.
        limit: usize,
    },
    /// Something failed at a place that a redirect led to.
    #[error("following a redirect from `{from}` failed")]
    AfterRedirect {
        /// `scheme://host:port` of the place that redirected.
        from: String,
        /// What failed.
        #[source]
        source: Box<EgressError>,
    },
    /// A header that the client sets itself, or that would break the exchange.
    #[error("the header `{name}` may not be set: it belongs to the connection")]
    Header {
        /// Its name.
        name: String,
    },
    /// The rules do not allow the proxy that is configured.
    #[error("the configured proxy cannot be used: {0}")]
    Proxy(Refusal),
    /// The proxy wants a login, or another one.
    #[error(
        "the proxy `{proxy}` wants a login that it was not given: set the `username` and `password` of the proxy"
    )]
    ProxyLogin {
        /// `scheme://host:port`.
        proxy: String,
    },
    /// There is nothing to check certificates against.
    #[error(
        "`{host}` cannot be verified: {why}; install the system's root certificates, such as the package `ca-certificates`"
    )]
    NoRoots {
        /// `scheme://host:port`.
        host: String,
        /// What was found.
        why: String,
    },
    /// The client could not be set up.
    #[error("the http client cannot be set up: {why}")]
    Setup {
        /// What failed.
        why: String,
    },
}

impl EgressError {
    /// True where no byte of the request can have reached anyone: it may be sent again without doing anything
    /// twice. False wherever that is not certain.
    #[must_use]
    pub fn is_not_sent(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Header { .. }
            | Self::NoRoots { .. }
            | Self::Proxy(_)
            | Self::Setup { .. } => true,
            // A server could answer so as well, once it had the request.
            Self::ProxyLogin { .. } => false,
            // After a redirect, the first host has seen the request.
            Self::AfterRedirect { .. }
            | Self::Exchange { .. }
            | Self::FirstByte { .. }
            | Self::Idle { .. }
            | Self::Total { .. }
            | Self::HeadersTooLarge { .. }
            | Self::BodyTooLarge { .. }
            | Self::DecodedTooLarge { .. }
            | Self::UnknownEncoding { .. }
            | Self::Encoding { .. }
            | Self::Moved { .. }
            | Self::Redirect { .. }
            | Self::TooManyRedirects { .. } => false,
        }
    }

    /// True where the same request fails in the same way, as long as the configuration and, behind a redirect, the server
    /// stay as they are: to try again is of no use. False for what may pass.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Header { .. }
            | Self::NoRoots { .. }
            | Self::Proxy(_)
            | Self::ProxyLogin { .. }
            | Self::Setup { .. }
            | Self::Moved { .. }
            | Self::Redirect { .. }
            | Self::TooManyRedirects { .. } => true,
            Self::AfterRedirect { source, .. } => source.is_lasting(),
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Exchange { .. }
            | Self::FirstByte { .. }
            | Self::Idle { .. }
            | Self::Total { .. }
            | Self::HeadersTooLarge { .. }
            | Self::BodyTooLarge { .. }
            | Self::DecodedTooLarge { .. }
            | Self::UnknownEncoding { .. }
            | Self::Encoding { .. } => false,
        }
    }

    /// The error with its causes, in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// The same, where `shown` gives what a server may have said in it: a place that it redirected to, what it calls an
    /// encoding, what a library quotes of it. The error's own words stay.
    #[must_use]
    pub fn told(mut self, shown: &dyn Fn(&str) -> String) -> String {
        for word in self.words() {
            *word = shown(word);
        }
        let mut text = self.to_string();
        if let Self::AfterRedirect { source, .. } = self {
            return format!("{text}: {}", source.told(shown));
        }
        let mut cause = self.source();
        while let Some(current) = cause {
            text = format!("{text}: {}", shown(&current.to_string()));
            cause = current.source();
        }
        text
    }

    /// What of this error's own message a server may have chosen. Whether a redirect led to a host is not known here.
    fn words(&mut self) -> Vec<&mut String> {
        match self {
            Self::Refused(refusal) => refusal.words(),
            Self::UnknownEncoding { host, name } => vec![host, name],
            Self::Moved { host, place, .. } => vec![host, place],
            Self::AfterRedirect { from, .. } => vec![from],
            Self::Resolve { host, .. }
            | Self::Connect { host, .. }
            | Self::Exchange { host, .. }
            | Self::FirstByte { host, .. }
            | Self::Idle { host, .. }
            | Self::Total { host, .. }
            | Self::HeadersTooLarge { host, .. }
            | Self::BodyTooLarge { host, .. }
            | Self::DecodedTooLarge { host, .. }
            | Self::Encoding { host, .. }
            | Self::Redirect { host, .. }
            | Self::TooManyRedirects { host, .. }
            | Self::NoRoots { host, .. } => vec![host],
            Self::Header { .. } | Self::Proxy(_) | Self::ProxyLogin { .. } | Self::Setup { .. } => Vec::new(),
        }
    }

    /// The refusal behind this error, on whichever hop it was.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) | Self::Proxy(refusal) => Some(refusal),
            Self::AfterRedirect { source, .. } => source.refusal(),
            _ => None,
        }
    }
}

/// The start of a word of the server's. Nothing is left out of it: what stood on both sides would be read as one.
fn short(word: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    word.chars().map(printable).take(32).collect()
}

fn through(proxy: &Option<String>) -> String {
    proxy
        .as_ref()
        .map(|proxy| format!(" through the proxy `{proxy}`"))
        .unwrap_or_default()
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        text = format!("{text}: {current}");
        cause = current.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rule, a setting or a redirect keeps from going out will be kept from it again; all else may pass.
    #[test]
    fn what_lasts_is_what_somebody_decided() {
        let host = || "http://a.test:80".to_owned();
        let url = "http://a.test/".parse().unwrap();
        let refused = || EgressError::Refused(crate::EgressRules::default().check_url(&url).unwrap_err());
        let behind_a_redirect = |source| EgressError::AfterRedirect {
            from: host(),
            source: Box::new(source),
        };
        let unresolved = || EgressError::Resolve {
            host: host(),
            source: std::io::Error::other("x"),
        };
        let (why, after, proxy) = (String::new, Duration::ZERO, host());
        let lasting = [
            refused(),
            behind_a_redirect(refused()),
            behind_a_redirect(behind_a_redirect(refused())),
            EgressError::TooManyRedirects {
                host: host(),
                limit: 1,
            },
            EgressError::NoRoots {
                host: host(),
                why: why(),
            },
            EgressError::ProxyLogin { proxy },
            EgressError::Setup { why: why() },
        ];
        let passing = [
            unresolved(),
            behind_a_redirect(unresolved()),
            EgressError::FirstByte { host: host(), after },
            EgressError::Idle { host: host(), after },
            EgressError::Total { host: host(), after },
            EgressError::Encoding {
                host: host(),
                why: why(),
            },
        ];
        assert!(lasting.iter().all(EgressError::is_lasting), "{lasting:?}");
        assert!(!passing.iter().any(EgressError::is_lasting), "{passing:?}");
    }

    /// What is taken for two words, and so for no secret, is not told as one.
    #[test]
    fn no_character_of_a_servers_is_left_out() {
        let error = EgressError::UnknownEncoding {
            host: "http://a.test:80".to_owned(),
            name: "s3cret-\u{fffd} canary".to_owned(),
        };
        assert!(error.to_string().contains("`s3cret-??canary`"), "{error}");
    }
}
