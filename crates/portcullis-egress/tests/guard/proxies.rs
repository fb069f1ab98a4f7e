//! A proxy that is configured: used where a rule allows it, and no way around the rules for what lies behind it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use portcullis_egress::{
    EgressError, EgressLog, EgressOutcome, EgressProxy, EgressRecord, GuardedClient, Resolver,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use url::Url;

use crate::{
    server::{Answers, Server, Trap, builder, get, ok, redirect, short},
    tls::Authority,
};

/// What `ada:hunter2` is in basic authentication.
const LOGIN: &str = "Basic YWRhOmh1bnRlcjI=";

/// A proxy of the test's own. Whatever name it is asked for, it connects to the port of that name on loopback.
struct Proxy {
    address: SocketAddr,
    /// The heads of the requests that it got.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// One that wants a login, or none.
    async fn new(login: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let all = Arc::clone(&all);
                tokio::spawn(async move { serve(stream, &all, login).await });
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn port(&self) -> u16 {
        self.address.port()
    }
}

async fn serve(mut stream: TcpStream, all: &Mutex<Vec<String>>, login: Option<&str>) -> Option<()> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8(bytes).unwrap();
    all.lock().unwrap().push(head.clone());
    if let Some(login) = login
        && !head
            .to_lowercase()
            .contains(&format!("proxy-authorization: {login}\r\n").to_lowercase())
    {
        let answer = b"HTTP/1.1 407 Login\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return stream.write_all(answer).await.ok();
    }
    let mut words = head.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let url = match method {
        "CONNECT" => Url::parse(&format!("http://{target}")).unwrap(),
        // The whole url stands where else a path does (RFC 9112, section 3.2.2).
        _ => Url::parse(target).unwrap(),
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the test's own proxy opens what it is asked for"
    )]
    let mut upstream = TcpStream::connect(("127.0.0.1", url.port_or_known_default()?))
        .await
        .ok()?;
    if method == "CONNECT" {
        stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.ok()?;
    } else {
        let forwarded: Vec<_> = head
            .lines()
            .filter(|line| !line.to_lowercase().starts_with("proxy-"))
            .collect();
        let forwarded = forwarded.join("\r\n").replace(target, url.path()) + "\r\n\r\n";
        upstream.write_all(forwarded.as_bytes()).await.ok()?;
    }
    copy_bidirectional(&mut stream, &mut upstream).await.ok()?;
    Some(())
}

type Told = Arc<Mutex<Vec<EgressRecord>>>;

/// A client behind the proxy, under these rules. `names` is what its own resolver says.
fn client(
    proxy: EgressProxy,
    lines: &[String],
    names: impl Resolver,
    root: Option<Vec<u8>>,
) -> Result<(GuardedClient, Told), EgressError> {
    let told = Told::default();
    let all = Arc::clone(&told);
    let mut builder = builder(lines)
        .limits(short())
        .resolver(names)
        .log(EgressLog::new(move |record| all.lock().unwrap().push(record)))
        .proxy(proxy);
    if let Some(root) = root {
        builder = builder.root_certificate(root);
    }
    builder.build().map(|client| (client, told))
}

fn at(proxy: &Proxy) -> EgressProxy {
    EgressProxy::new(Url::parse(&format!("http://127.0.0.1:{}", proxy.port())).unwrap())
}

/// A resolver that nobody should ask: what lies behind a proxy is resolved there.
fn nobody() -> Answers {
    Answers(Mutex::new(Vec::new()))
}

async fn ask(client: &GuardedClient, url: &str) -> Result<String, EgressError> {
    let answer = client.send(get(Url::parse(url).unwrap())).await?;
    Ok(String::from_utf8(answer.bytes().await?.to_vec()).unwrap())
}

#[tokio::test]
async fn https_goes_through_a_tunnel_and_the_certificate_is_the_targets() {
    let (authority, proxy) = (Authority::new(), Proxy::new(Some(LOGIN)).await);
    let port = authority.serve(&["api.test"]).await;
    let lines = [
        format!("https://api.test:{port}"),
        format!("http://{}", proxy.address),
    ];
    let login = || at(&proxy).login("ada", "hunter2");
    let (good, told) = client(login(), &lines, nobody(), Some(authority.root())).unwrap();
    let url = format!("https://api.test:{port}/?q=secret");
    assert_eq!(ask(&good, &url).await.unwrap(), "secret");
    let seen = proxy.seen().remove(0);
    assert!(
        seen.starts_with(&format!("CONNECT api.test:{port} HTTP/1.1\r\n")),
        "{seen}"
    );
    assert!(!seen.contains("q=secret"), "{seen}");
    let record = told.lock().unwrap().remove(0);
    assert_eq!(
        (
            record.target,
            record.rule,
            record.proxy,
            record.address,
            record.outcome
        ),
        (
            format!("https://api.test:{port}"),
            Some(format!("https://api.test:{port}/")),
            Some(format!("http://{}", proxy.address)),
            Some(proxy.address.ip()),
            EgressOutcome::Allowed
        )
    );
    // Behind the proxy as before it: a certificate of somebody else's is none.
    let (bad, _) = client(login(), &lines, nobody(), Some(Authority::new().root())).unwrap();
    let error = ask(&bad, &url).await.unwrap_err();
    assert!(matches!(error, EgressError::Connect { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .ends_with(&format!("through the proxy `http://{}`", proxy.address)),
        "{error}"
    );
}

#[tokio::test]
async fn http_goes_through_it_and_its_login_goes_no_further() {
    let (server, proxy) = (
        Server::answering(|_| ok("plain")).await,
        Proxy::new(Some(LOGIN)).await,
    );
    let port = server.address.port();
    let lines = [
        format!("http://api.test:{port}"),
        format!("CONNECT http://{}", proxy.address),
    ];
    let (client, _) = client(at(&proxy).login("ada", "hunter2"), &lines, nobody(), None).unwrap();
    assert_eq!(
        ask(&client, &format!("http://api.test:{port}/x")).await.unwrap(),
        "plain"
    );
    assert!(proxy.seen()[0].starts_with(&format!("GET http://api.test:{port}/x ")));
    assert!(!server.seen()[0].head.to_lowercase().contains("proxy-"));
}

#[tokio::test]
async fn a_login_that_is_missing_or_wrong_is_said() {
    let (authority, proxy) = (Authority::new(), Proxy::new(Some(LOGIN)).await);
    let port = authority.serve(&["api.test"]).await;
    let lines = [
        format!("https://api.test:{port}"),
        format!("http://api.test:{port}"),
        format!("http://{}", proxy.address),
    ];
    for given in [at(&proxy), at(&proxy).login("ada", "wrong")] {
        let (client, _) = client(given, &lines, nobody(), Some(authority.root())).unwrap();
        let error = ask(&client, &format!("http://api.test:{port}/"))
            .await
            .unwrap_err();
        assert!(matches!(error, EgressError::ProxyLogin { .. }), "{error:?}");
        assert!(
            !error.is_not_sent(),
            "a server may answer so, once it had the request"
        );
        let error = ask(&client, &format!("https://api.test:{port}/"))
            .await
            .unwrap_err();
        assert!(error.is_not_sent(), "{error:?}");
        let text = error.chain();
        assert!(text.contains("proxy authorization required"), "{text}");
        assert!(!format!("{error:?} {text}").contains("wrong"));
    }
}

#[tokio::test]
async fn a_proxy_that_no_rule_allows_is_connected_to_by_nobody() {
    let trap = Trap::at("127.0.0.1:0").await;
    let url = Url::parse(&format!("http://{}", trap.address)).unwrap();
    let told = Told::default();
    let all = Arc::clone(&told);
    let error = builder(&["https://api.test".to_owned()])
        .proxy(EgressProxy::new(url.clone()))
        .log(EgressLog::new(move |record| all.lock().unwrap().push(record)))
        .build()
        .unwrap_err();
    let line = format!("add `http://{}/`", trap.address);
    assert!(
        matches!(&error, EgressError::Proxy(_)) && error.to_string().contains(&line),
        "{error}"
    );
    assert_eq!(told.lock().unwrap()[0].target, format!("http://{}", trap.address));

    // A name that leads inside is refused for a proxy as for anybody.
    let lines = [
        "http://api.test".to_owned(),
        format!("http://proxy.test:{}", trap.address.port()),
    ];
    let named = Url::parse(&format!("http://proxy.test:{}", trap.address.port())).unwrap();
    for address in ["127.0.0.1", "10.0.0.1", "::ffff:127.0.0.1"] {
        let names = Answers::new(&[address]);
        let (client, _) = client(EgressProxy::new(named.clone()), &lines, names, None).unwrap();
        let error = ask(&client, "http://api.test/").await.unwrap_err();
        let code = error.refusal().map(|refusal| refusal.code());
        assert_eq!(code, Some("address_not_allowed"), "{address}: {error:?}");
    }
    // And is let through where a rule names that very address and port.
    let mut lines = lines.to_vec();
    lines.push(format!("http://{}", trap.address));
    let (client, _) = client(
        EgressProxy::new(named),
        &lines,
        Answers::new(&["127.0.0.1"]),
        None,
    )
    .unwrap();
    let error = ask(&client, "http://api.test/").await.unwrap_err();
    // The trap hangs up: it was reached.
    assert!(matches!(error, EgressError::Exchange { .. }), "{error:?}");
    assert_eq!(trap.connections().await, 1);
}

#[tokio::test]
async fn behind_a_proxy_the_rules_hold_on_every_hop() {
    let proxy = Proxy::new(None).await;
    let server = Server::answering(|seen| match seen.path() {
        "/away" => redirect(307, "http://other.test/"),
        "/inside" => redirect(307, "http://169.254.169.254/latest/"),
        "/port" => redirect(307, "http://api.test:1/"),
        _ => ok("here"),
    })
    .await;
    let port = server.address.port();
    let lines = [
        format!("http://api.test:{port}"),
        format!("http://{}", proxy.address),
    ];
    let (client, _) = client(at(&proxy), &lines, nobody(), None).unwrap();
    for (path, code) in [
        ("/away", "host_not_allowed"),
        ("/inside", "host_not_allowed"),
        ("/port", "port_not_allowed"),
    ] {
        let error = ask(&client, &format!("http://api.test:{port}{path}"))
            .await
            .unwrap_err();
        assert_eq!(
            error.refusal().map(|refusal| refusal.code()),
            Some(code),
            "{error:?}"
        );
    }
    assert!(
        ask(&client, "http://other.test/")
            .await
            .unwrap_err()
            .refusal()
            .is_some()
    );
    assert_eq!(
        proxy.seen().len(),
        3,
        "nothing that is not allowed was asked of the proxy"
    );
}

#[tokio::test]
async fn what_is_near_this_machine_is_never_asked_of_a_proxy() {
    let (server, proxy) = (Server::answering(|_| ok("near")).await, Proxy::new(None).await);
    let port = server.address.port();
    let lines = [
        format!("http://127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
        format!("http://{}", proxy.address),
    ];
    let (client, told) = client(at(&proxy), &lines, Answers::new(&["127.0.0.1"]), None).unwrap();
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(
            ask(&client, &format!("http://{host}:{port}/")).await.unwrap(),
            "near"
        );
    }
    assert_eq!(proxy.seen(), [""; 0]);
    assert!(told.lock().unwrap().iter().all(|record| record.proxy.is_none()));
}
