use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::Verifier;

use crate::EgressError;

/// A TLS set-up with the system's roots and `extra` ones.
pub(crate) struct Tls {
    pub(crate) config: ClientConfig,
    /// Why there are no roots, where there are none: then no certificate is ever good.
    pub(crate) no_roots: Option<String>,
}

impl Tls {
    /// Reads the system's roots from disk where `wanted`; a client that has no rule for https needs none.
    pub(crate) fn new(extra: Vec<Vec<u8>>, wanted: bool) -> Result<Self, EgressError> {
        let setup = |why: rustls::Error| EgressError::Setup { why: why.to_string() };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(setup)?;
        let mut no_roots = None;
        let extra: Vec<_> = extra.into_iter().map(CertificateDer::from).collect();
        // Tried alone first, so that a bad one is not mistaken for a system without roots.
        for root in &extra {
            RootCertStore::empty()
                .add(root.clone())
                .map_err(|error| EgressError::Setup {
                    why: format!("a configured root certificate cannot be read: {error}"),
                })?;
        }
        let verifier = if wanted {
            Some(Verifier::new_with_extra_roots(extra, provider))
        } else {
            None
        };
        let mut config = match verifier {
            Some(Ok(verifier)) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth(),
            other => {
                no_roots = other.and_then(Result::err).map(|error| error.to_string());
                builder
                    .with_root_certificates(RootCertStore::empty())
                    .with_no_client_auth()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Tickets of one server are nothing to another one.
        config.resumption = Resumption::in_memory_sessions(32);
        Ok(Self { config, no_roots })
    }
}

/// The certificates of a text in PEM; what else it holds, such as a key, is passed over.
pub(crate) fn read_pem(pem: &[u8]) -> Result<Vec<Vec<u8>>, EgressError> {
    let setup = |why: String| EgressError::Setup { why };
    let mut all = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        match certificate {
            Ok(certificate) => all.push(certificate.as_ref().to_vec()),
            Err(error) => return Err(setup(format!("a root certificate cannot be read: {error}"))),
        }
    }
    if all.is_empty() {
        let why = "there is no `-----BEGIN CERTIFICATE-----` in what should hold root certificates, in PEM";
        return Err(setup(why.to_owned()));
    }
    Ok(all)
}
