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

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn root(&self) -> Vec<u8> {
        self.0.as_ref().der().to_vec()
    }

    /// A server on loopback whose certificate, by this authority, is for `names`. It answers each connection once
    /// and tells the protocol that was agreed upon.
    async fn serve(&self, names: &[&str]) -> u16 {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &self.0)
            .unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
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

#[test]
fn a_root_that_is_none_is_said_at_once() {
    let error = builder(&["https://a.test".to_owned()])
        .root_certificate(b"no certificate".to_vec())
        .build()
        .unwrap_err();
    assert!(matches!(error, EgressError::Setup { .. }), "{error:?}");
}
