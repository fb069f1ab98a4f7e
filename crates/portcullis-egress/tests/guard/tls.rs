//! TLS, with certification authorities of the test's own.

use std::sync::Arc;

use portcullis_egress::{EgressError, GuardedClient};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::server::{builder, get, short};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn root(&self) -> Vec<u8> {
        self.0.as_ref().der().to_vec()
    }

    /// The same as a text.
    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.root())
    }

    /// How a server is set up whose certificate, by this authority, is for `names`.
    pub(crate) fn config(&self, names: &[&str]) -> ServerConfig {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &self.0)
            .unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }

    /// A server on loopback with such a certificate. It answers each connection once.
    pub(crate) async fn serve(&self, names: &[&str]) -> u16 {
        let acceptor = TlsAcceptor::from(Arc::new(self.config(names)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut bytes = vec![0; 4096];
                let _ = stream.read(&mut bytes).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret";
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            }
        });
        port
    }
}

/// A text in PEM (RFC 7468).
fn pem(kind: &str, der: &[u8]) -> String {
    let base64 = base64_simd::STANDARD.encode_to_string(der);
    let lines: Vec<_> = base64
        .as_bytes()
        .chunks(64)
        .map(String::from_utf8_lossy)
        .collect();
    format!(
        "-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n",
        lines.join("\n")
    )
}

fn client(port: u16, host: &str, root: Option<Vec<u8>>) -> GuardedClient {
    let mut client = builder(&[format!("https://{host}:{port}")]).limits(short());
    if let Some(root) = root {
        client = client.root_certificate(root);
    }
    client.build().unwrap()
}

/// The body, or that the connection was not made.
async fn ask(client: &GuardedClient, host: &str, port: u16) -> Option<String> {
    let url = Url::parse(&format!("https://{host}:{port}/")).unwrap();
    match client.send(get(url)).await {
        Ok(answer) => Some(String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap()),
        Err(error) => {
            assert!(
                matches!(error, EgressError::Connect { .. } | EgressError::NoRoots { .. }),
                "{error:?}"
            );
            assert!(error.is_not_sent());
            None
        }
    }
}

#[tokio::test]
async fn a_certificate_must_come_from_a_trusted_authority_and_name_the_host() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let good = ours.serve(&["localhost", "127.0.0.1"]).await;
    let other_name = ours.serve(&["other.test"]).await;
    for (port, host, root, expected) in [
        (good, "localhost", Some(ours.root()), Some("secret")),
        (good, "127.0.0.1", Some(ours.root()), Some("secret")),
        (good, "localhost", Some(theirs.root()), None),
        (good, "localhost", None, None),
        (other_name, "localhost", Some(ours.root()), None),
        (other_name, "127.0.0.1", Some(ours.root()), None),
    ] {
        let body = ask(&client(port, host, root), host, port).await;
        assert_eq!(body.as_deref(), expected, "{host}:{port}");
    }
}

#[tokio::test]
async fn roots_come_from_a_text_of_many() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let port = ours.serve(&["localhost"]).await;
    let key = pem("PRIVATE KEY", &KeyPair::generate().unwrap().serialize_der());
    let text = format!("# our own\n{}\n{key}\n{}", theirs.pem(), ours.pem());
    let client = builder(&[format!("https://localhost:{port}")])
        .limits(short())
        .root_certificates(text.as_bytes())
        .unwrap()
        .build()
        .unwrap();
    assert_eq!(ask(&client, "localhost", port).await.as_deref(), Some("secret"));
}

#[test]
fn a_text_without_a_root_is_said_at_once() {
    let broken = "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n";
    let key = pem("PRIVATE KEY", &KeyPair::generate().unwrap().serialize_der());
    for (text, part) in [
        ("", "BEGIN CERTIFICATE"),
        ("just text", "BEGIN CERTIFICATE"),
        (key.as_str(), "BEGIN CERTIFICATE"),
        (broken, "cannot be read"),
    ] {
        let error = builder(&["https://a.test".to_owned()])
            .root_certificates(text.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_root_that_is_none_is_said_at_once() {
    let error = builder(&["https://a.test".to_owned()])
        .root_certificate(b"no certificate".to_vec())
        .build()
        .unwrap_err();
    assert!(matches!(error, EgressError::Setup { .. }), "{error:?}");
}
