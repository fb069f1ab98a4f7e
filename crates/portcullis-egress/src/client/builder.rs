use std::{fmt, sync::Arc, time::Duration};

use http::HeaderMap;
use url::{Origin, Url};

use super::{GuardedClient, Inner, OWNED};
use crate::{
    EgressError, EgressProxy, EgressRules, Limits, Resolver,
    error::chain,
    record::EgressLog,
    resolve::CheckedResolver,
    tls::{Tls, read_pem},
};

/// Sets up a [`GuardedClient`].
pub struct GuardedClientBuilder {
    pub(super) rules: EgressRules,
    pub(super) limits: Limits,
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) credentials: Option<(Origin, HeaderMap)>,
    pub(super) proxy: Option<EgressProxy>,
    pub(super) roots: Vec<Vec<u8>>,
    pub(super) log: EgressLog,
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

impl fmt::Debug for GuardedClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedClientBuilder")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
