//! What a configuration says of the way to a server: a proxy, and roots to trust. And its secrets, which stay inside.

use portcullis_config::{Protocol, ProxySpec, Sources};
use portcullis_egress::{EgressOutcome, EgressRecord};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{io::copy_bidirectional, net::TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{
    supervised::{Hub, header_of, initialized},
    *,
};
use crate::{CallFault, SupervisorEvent, SupervisorOptions};

const CANARY: &str = "canary-5f0c1e";

/// Where references lead: one variable, and one file.
struct Vault(String);

impl Sources for Vault {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "SECRET").then(|| CANARY.to_owned())
    }

    fn file(&self, path: &str) -> Option<String> {
        match path {
            "/ca.pem" => Some(self.0.clone()),
            "/no-ca.pem" => Some("nothing".to_owned()),
            _ => None,
        }
    }
}

/// A server of the older era over TLS, for `api.test`, and its authority's certificate in PEM.
async fn encrypted() -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["api.test".to_owned()])
        .unwrap()
        .signed_by(&key, &authority)
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
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut bytes = Vec::new();
                while !whole(&bytes) {
                    if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let answer = legacy(&String::from_utf8_lossy(&bytes));
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    let root = base64_simd::STANDARD.encode_to_string(authority.as_ref().der());
    (
        port,
        format!("-----BEGIN CERTIFICATE-----\n{root}\n-----END CERTIFICATE-----\n"),
    )
}

/// A proxy that tunnels whatever name it is asked for to loopback, once it knows who asks.
async fn proxy() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let all = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"\r\n\r\n") {
                    if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let head = String::from_utf8(bytes).unwrap();
                all.lock().unwrap().push(head.clone());
                let login = base64_simd::STANDARD.encode_to_string(format!("hub:{CANARY}"));
                if header_of(&head, "proxy-authorization") != Some(&format!("Basic {login}")) {
                    let _ = stream.write_all(b"HTTP/1.1 407 Login\r\n\r\n").await;
                    return;
                }
                let port: u16 = head.split([' ', ':']).nth(2).unwrap().parse().unwrap();
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the test's own proxy opens what it is asked for"
                )]
                let Ok(mut upstream) = TcpStream::connect(("127.0.0.1", port)).await else {
                    return;
                };
                let _ = stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await;
                let _ = copy_bidirectional(&mut stream, &mut upstream).await;
            });
        }
    });
    (address, seen)
}

/// A server behind the proxy.
fn behind(port: u16, proxy: SocketAddr) -> HttpSpec {
    let through = ProxySpec {
        url: Url::parse(&format!("http://{proxy}")).unwrap(),
        username: Some(Template::literal("hub")),
        password: Some(Template::parse("${env:SECRET}")),
    };
    let url = Url::parse(&format!("https://api.test:{port}/mcp")).unwrap();
    let egress = vec![
        format!("https://api.test:{port}").parse().unwrap(),
        format!("CONNECT http://{proxy}").parse().unwrap(),
    ];
    HttpSpec {
        proxy: Some(Box::new(through)),
        root_certificates: vec!["/ca.pem".into()],
        ..HttpSpec::new(url, egress)
    }
}

async fn hub(http: HttpSpec, pem: &str) -> Hub {
    let vault = Vault(pem.to_owned());
    let change = |options: &mut SupervisorOptions| options.sources = Arc::new(vault);
    Hub::with(http, Protocol::Initialize, change).await
}

#[tokio::test]
async fn a_server_is_called_through_the_configured_proxy_and_by_the_configured_root() {
    let ((port, pem), (address, seen)) = (encrypted().await, proxy().await);
    let mut hub = hub(behind(port, address), &pem).await;
    let record: EgressRecord = hub
        .event(|event| match event {
            SupervisorEvent::Egress { record, .. } => Some(record.clone()),
            _ => None,
        })
        .await;
    assert_eq!(record.outcome, EgressOutcome::Allowed);
    assert_eq!(record.target, format!("https://api.test:{port}"));
    assert_eq!(record.proxy, Some(format!("http://{address}")));
    hub.state("ready").await;
    assert_eq!(hub.call("{}").await.unwrap(), r#"{"content":1.0}"#);
    let heads = seen.lock().unwrap().clone();
    assert!(
        heads
            .iter()
            .all(|head| head.starts_with(&format!("CONNECT api.test:{port} ")))
    );
}

#[tokio::test]
async fn what_is_wrong_with_the_way_is_said() {
    type Change = fn(&mut HttpSpec);
    let cases: [(Change, &str); 6] = [
        (
            |http| http.egress = http.egress.iter().take(1).cloned().collect::<Vec<_>>().into(),
            "the configured proxy cannot be used",
        ),
        // Where the machine has no roots at all, that is what is said.
        (|http| http.root_certificates.clear(), "`https://api.test:"),
        (
            |http| http.root_certificates = vec!["/none.pem".into()],
            "rootCertificates: `/none.pem`: the file cannot be read",
        ),
        (
            |http| http.root_certificates = vec!["/no-ca.pem".into()],
            "rootCertificates: `/no-ca.pem`: ",
        ),
        (
            |http| http.proxy.as_mut().unwrap().password = Some(Template::parse("${env:UNSET}")),
            "proxy.password: the variable `UNSET` is not set",
        ),
        (
            |http| http.proxy.as_mut().unwrap().password = None,
            "proxy authorization required",
        ),
    ];
    let ((port, pem), (address, _)) = (encrypted().await, proxy().await);
    for (change, part) in cases {
        let mut http = behind(port, address);
        change(&mut http);
        let mut hub = hub(http, &pem).await;
        let reason = hub.state("backing_off").await;
        assert!(reason.contains(part), "{reason} without {part}");
        assert!(!reason.contains(CANARY));
    }
}

/// A server that sends back, wherever it can, what it was given.
fn echo(request: &str) -> Vec<u8> {
    let given = header_of(request, "authorization").unwrap_or_default();
    let key = header_of(request, "x-api-key").unwrap_or_default();
    let body = format!("you sent {given} and {key}, that is {CANARY}");
    let kind = format!("content-type: text/plain\r\nwww-authenticate: Bearer error=\"{given}\"");
    match request {
        _ if request.contains(r#""method":"initialize""#) => {
            let session = format!("{JSON}\r\nmcp-session-id: s1");
            reply("200 OK", &session, initialized(request).as_bytes())
        }
        _ if request.contains(r#""n":401"#) => reply("401 Unauthorized", &kind, body.as_bytes()),
        _ if request.contains(r#""n":500"#) => reply("500 Oops", "content-type: text/plain", body.as_bytes()),
        _ if request.contains(r#""n":429"#) => {
            let kind = format!("content-type: text/plain\r\nretry-after: {given}");
            reply("429 Too Many", &kind, body.as_bytes())
        }
        _ if request.contains(r#""n":200"#) => {
            reply("200 OK", &format!("content-type: text/{key}"), body.as_bytes())
        }
        _ => legacy(request),
    }
}

#[tokio::test]
async fn a_header_that_is_a_secret_reaches_the_server_and_nobody_else() {
    let server = Server::new(echo).await;
    let mut http = server.spec();
    for (name, value) in [
        ("Authorization", "Bearer ${env:SECRET}"),
        ("X-Api-Key", "${env:SECRET}"),
    ] {
        http.headers.insert(name.to_owned(), Template::parse(value));
    }
    let shown_spec = format!("{http:?}");
    let mut hub = hub(http, "").await;
    hub.state("ready").await;
    let mut shown = shown_spec;
    for status in [401, 500, 429, 200] {
        let fault: CallFault = hub.call(&format!(r#"{{"n":{status}}}"#)).await.unwrap_err();
        shown += &format!("{fault} {fault:?} ");
    }
    hub.call("{}").await.unwrap();
    hub.supervisor.shutdown().await.unwrap();
    while let Ok(event) = hub.events.try_recv() {
        shown += &format!("{event:?} ");
    }
    assert!(
        shown.contains("[redacted]") && shown.contains("login needed"),
        "{shown}"
    );
    assert!(!shown.contains(CANARY), "{shown}");
    let sent = server.seen();
    assert!(
        sent.iter()
            .all(|request| request.contains(&format!("authorization: Bearer {CANARY}")))
    );
    assert!(sent.len() > 5);
}
