//! Servers that go away while nobody calls, and servers that ask to be left alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use portcullis_config::Protocol;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    supervised::{Hub, Site, WAIT, changing, id_of, modern},
    *,
};
use crate::{CallFault, SupervisorOptions};

/// What a request is answered with, and whether the connection is then held open.
type Answer = (Vec<u8>, bool);

/// A server whose streams stand until it ends.
pub(super) struct Live {
    pub(super) address: SocketAddr,
    running: tokio::task::JoinHandle<()>,
}

impl Live {
    async fn at(address: &str, answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        let running = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                connections.spawn(async move {
                    let mut bytes = Vec::new();
                    while !whole(&bytes) {
                        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let (reply, held) = answer(&String::from_utf8_lossy(&bytes));
                    let _ = stream.write_all(&reply).await;
                    if held {
                        std::future::pending::<()>().await;
                    }
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { address, running }
    }

    pub(super) async fn new(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", answer).await
    }

    /// Ends, with all its connections.
    async fn stop(self) -> SocketAddr {
        self.running.abort();
        let _ = self.running.await;
        self.address
    }
}

/// A server of the newer era that keeps subscriptions open; it declares that it tells changes, or not.
fn subscribed(request: &str, tells: bool) -> Answer {
    if !request.contains(r#""method":"subscriptions/listen""#) {
        let plain = if tells { changing(request) } else { modern(request) };
        return (plain, false);
    }
    let filter = if tells {
        r#"{"toolsListChanged":true}"#
    } else {
        "{}"
    };
    let acknowledged = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{}}},"notifications":{filter}}}}}"#,
        id_of(request)
    );
    let head = format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\n\r\ndata: {acknowledged}\n\n");
    (head.into_bytes(), true)
}

/// Waits until the server has a subscription.
pub(super) async fn until(count: &AtomicUsize, wanted: usize) {
    let there = async {
        while count.load(Ordering::SeqCst) < wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WAIT, there).await.unwrap();
}

#[tokio::test]
async fn a_modern_server_that_goes_away_while_idle_is_noticed_and_comes_back() {
    for tells in [true, false] {
        let listens = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&listens);
        let answer = move |request: &str| {
            count.fetch_add(
                usize::from(request.contains("subscriptions/listen")),
                Ordering::SeqCst,
            );
            subscribed(request, tells)
        };
        let server = Live::new(answer.clone()).await;
        let mut hub = Hub::new(spec(server.address), Protocol::Modern).await;
        hub.state("ready").await;
        until(&listens, 1).await;
        let address = server.stop().await;
        let reason = hub.state("backing_off").await;
        assert!(
            reason.contains("the connection ended") && reason.contains("cannot be connected to"),
            "{reason}"
        );
        let _server = Live::at(&address.to_string(), answer).await;
        hub.state("ready").await;
        hub.call("{}").await.unwrap();
    }
}

/// Behind a gateway that answers for it, a server is gone as well; also where its stream could be gone on with.
#[tokio::test]
async fn a_server_whose_gateway_alone_still_answers_is_noticed() {
    for event in ["data:", "id: a\ndata:"] {
        let gone = Arc::<AtomicBool>::default();
        let listens = Arc::<AtomicUsize>::default();
        let (is_gone, count) = (Arc::clone(&gone), Arc::clone(&listens));
        let server = Live::new(move |request| {
            if is_gone.load(Ordering::SeqCst) {
                return (
                    reply("502 Bad Gateway", "content-type: text/html", b"gone"),
                    false,
                );
            }
            if request.contains("subscriptions/listen") {
                count.fetch_add(1, Ordering::SeqCst);
                // The gateway ends the stream when the server behind it ends.
                is_gone.store(true, Ordering::SeqCst);
                let stream = String::from_utf8(subscribed(request, true).0).unwrap();
                return (stream.replacen("data:", event, 1).into_bytes(), false);
            }
            subscribed(request, true)
        })
        .await;
        let mut hub = Hub::new(spec(server.address), Protocol::Modern).await;
        hub.state("ready").await;
        let reason = hub.state("backing_off").await;
        assert!(reason.contains("status 502"), "{reason}");
        assert_eq!(listens.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_server_that_takes_no_subscriptions_is_not_given_up_for_that() {
    let refusals: [fn(&str) -> Vec<u8>; 3] = [
        |request| {
            let error = format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"no such method"}}}}"#,
                id_of(request)
            );
            reply("404 Not Found", JSON, error.as_bytes())
        },
        |_| reply("500 Oops", "content-type: text/plain", b"what?"),
        |_| reply("404 Not Found", "content-type: text/html", b""),
    ];
    for refuse in refusals {
        let listens = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&listens);
        let server = Server::new(move |request| {
            if request.contains("subscriptions/listen") {
                count.fetch_add(1, Ordering::SeqCst);
                return refuse(request);
            }
            modern(request)
        })
        .await;
        let mut hub = Hub::new(server.spec(), Protocol::Modern).await;
        hub.state("ready").await;
        until(&listens, 1).await;
        hub.call("{}").await.unwrap();
        let quiet = tokio::time::timeout(Duration::from_secs(4), hub.state("backing_off")).await;
        assert!(quiet.is_err(), "it left `ready`: {quiet:?}");
        assert!(listens.load(Ordering::SeqCst) <= 3);
        hub.call("{}").await.unwrap();
    }
}

/// A server of the older era whose stream stood, and which has forgotten the session or is gone behind its gateway.
#[tokio::test]
async fn a_legacy_server_whose_stream_is_lost_while_idle_is_connected_anew() {
    for status in ["404 Not Found", "502 Bad Gateway"] {
        let (site, streams) = (Arc::<Site>::default(), Arc::<AtomicUsize>::default());
        let (shared, count) = (Arc::clone(&site), Arc::clone(&streams));
        let server = Server::new(move |request| {
            if request.starts_with("GET") {
                return match count.fetch_add(1, Ordering::SeqCst) {
                    0 => reply("200 OK", EVENTS, b": hello\n\n"),
                    _ => reply(status, "content-type: text/plain", b"no such session"),
                };
            }
            shared.answer(request)
        })
        .await;
        let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
        hub.state("ready").await;
        let reason = hub.state("backing_off").await;
        assert!(reason.contains(&format!("status {status}")), "{reason}");
        hub.state("ready").await;
        assert_eq!(site.begun.load(Ordering::SeqCst), 2);
    }
}

/// Over HTTP too, whatever becomes of the newer era's question, the older handshake is tried, and what was found is
/// remembered; a question that was left unanswered is put once more.
#[tokio::test]
async fn the_older_era_is_found_however_the_newer_one_is_refused() {
    for (how, asked) in [
        ("500 Broken", 1),
        ("502 Bad Gateway", 1),
        ("400 Bad Request", 1),
        ("404 Not Found", 1),
        ("200 OK", 1),
        ("", 2),
    ] {
        let count = Arc::new(AtomicUsize::new(0));
        let questions = Arc::clone(&count);
        let server = Live::new(move |request| {
            if !request.contains("server/discover") {
                return (legacy(request), false);
            }
            questions.fetch_add(1, Ordering::SeqCst);
            let empty = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id_of(request));
            match how {
                "" => (Vec::new(), true),
                "200 OK" => (reply(how, JSON, empty.as_bytes()), false),
                _ => (reply(how, "content-type: text/plain", b"what?"), false),
            }
        })
        .await;
        let mut hub = Hub::new(spec(server.address), Protocol::Auto).await;
        hub.state("ready").await;
        assert_eq!(count.load(Ordering::SeqCst), 1, "{how}");
        hub.supervisor.restart(&"s".parse().unwrap()).unwrap();
        hub.state("ready").await;
        assert_eq!(count.load(Ordering::SeqCst), asked, "{how}");
    }
}

/// The times at which a handshake was tried of a server that turns the first one away like this.
async fn tries(
    status: &'static str,
    head: &'static str,
    era: &'static str,
    protocol: Protocol,
) -> Vec<Instant> {
    let times = Arc::<Mutex<Vec<Instant>>>::default();
    let all = Arc::clone(&times);
    let server = Server::new(move |request| {
        if request.contains(era) {
            let mut all = all.lock().unwrap();
            all.push(Instant::now());
            if all.len() == 1 {
                return reply(status, head, b"later");
            }
        }
        match protocol {
            Protocol::Modern => modern(request),
            _ => legacy(request),
        }
    })
    .await;
    let mut hub = Hub::new(server.spec(), protocol).await;
    let reason = hub.state("backing_off").await;
    assert!(reason.contains("asks to be tried again after"), "{reason}");
    hub.state("ready").await;
    let all = times.lock().unwrap();
    all.clone()
}

#[tokio::test]
async fn a_server_that_asks_for_it_is_left_alone_for_so_long() {
    const SECONDS: &str = "retry-after: 1\r\ncontent-type: text/plain";
    const DATE: &str = "date: Wed, 01 Jan 2025 00:00:00 GMT\r\nretry-after: Wed, 01 Jan 2025 00:00:01 GMT\r\n\
         content-type: text/plain";
    for (head, era, protocol) in [
        (SECONDS, r#""method":"initialize""#, Protocol::Initialize),
        (DATE, r#""method":"initialize""#, Protocol::Initialize),
        (SECONDS, "server/discover", Protocol::Modern),
        (SECONDS, "tools/list", Protocol::Initialize),
    ] {
        for status in ["503 Away", "429 Too Many"] {
            let times = tries(status, head, era, protocol).await;
            let gap = times[1] - times[0];
            // Without it, the next try comes within 20 ms.
            assert!(
                gap >= Duration::from_millis(950),
                "{status} {head} {era}: {gap:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_wait_is_capped_and_an_answer_ends_it() {
    // A day is asked for; the cap of this hub is far less.
    let site = Arc::<Site>::default();
    let shared = Arc::clone(&site);
    let server = Server::new(move |request| {
        if shared.shut.load(Ordering::SeqCst) && request.contains(r#""method":"initialize""#) {
            return reply(
                "503 Away",
                "retry-after: 86400\r\ncontent-type: text/plain",
                b"later",
            );
        }
        shared.answer(request)
    })
    .await;
    let change = |options: &mut SupervisorOptions| {
        options.lifecycle.leave_alone_at_most = Duration::from_millis(600);
    };
    let mut hub = Hub::with(server.spec(), Protocol::Initialize, change).await;
    hub.state("ready").await;
    site.lose_sessions();
    site.shut.store(true, Ordering::SeqCst);
    assert!(hub.call("{}").await.is_err());
    hub.state("backing_off").await;
    let began = Instant::now();
    site.shut.store(false, Ordering::SeqCst);
    hub.state("ready").await;
    assert!(
        began.elapsed() >= Duration::from_millis(550),
        "{:?}",
        began.elapsed()
    );

    // Said of one call, and nothing of the next: a connection that is lost later comes back at once.
    let busy = Arc::new(AtomicBool::new(true));
    let (shared, is_busy) = (Arc::clone(&site), Arc::clone(&busy));
    let server = Server::new(move |request| {
        if request.contains("tools/call") && is_busy.swap(false, Ordering::SeqCst) {
            return reply(
                "429 Too Many",
                "retry-after: 60\r\ncontent-type: text/plain",
                b"slowly",
            );
        }
        shared.answer(request)
    })
    .await;
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    hub.state("ready").await;
    let fault = hub.call("{}").await.unwrap_err();
    let sixty = Some(Duration::from_secs(60));
    assert!(
        matches!(&fault, CallFault::Overloaded { retry_after, .. } if *retry_after == sixty),
        "{fault:?}"
    );
    hub.call("{}").await.unwrap();
    site.lose_sessions();
    site.shut.store(true, Ordering::SeqCst);
    assert!(hub.call("{}").await.is_err());
    hub.state("backing_off").await;
    site.shut.store(false, Ordering::SeqCst);
    let began = Instant::now();
    hub.state("ready").await;
    assert!(began.elapsed() < Duration::from_secs(30));
}
