//! Servers that are given many calls at once.

use futures::future::join_all;
use portcullis_config::{Protocol, ServerSpec, Timeouts};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

use super::{
    supervised::{WAIT, initialized},
    *,
};
use crate::{Supervisor, SupervisorOptions};

/// More than there are by default.
const CALLS: usize = 100;

/// What such a server has been asked.
#[derive(Debug, Default, Clone, Copy)]
struct Asked {
    calls: usize,
    listings: usize,
}

/// A server of the older era that answers no call before it has all of them and was then asked for its tools again.
async fn waits_for_all() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, _) = watch::channel(Asked::default());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, asked.clone()));
        }
    });
    address
}

async fn answer(mut stream: tokio::net::TcpStream, asked: watch::Sender<Asked>) {
    let Some(request) = request_of(&mut stream).await else {
        return;
    };
    let mut heard = asked.subscribe();
    let is = |method: &str| request.contains(&format!(r#""method":"{method}""#));
    if request.starts_with("GET") {
        let head = format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        heard.wait_for(|asked| asked.calls == CALLS).await.unwrap();
        let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
        stream.write_all(event.as_bytes()).await.unwrap();
        return std::future::pending().await;
    }
    let whole = if is("initialize") {
        let kind = format!("{JSON}\r\nmcp-session-id: s");
        reply("200 OK", &kind, initialized(&request).as_bytes())
    } else {
        asked.send_modify(|asked| {
            asked.calls += usize::from(is("tools/call"));
            asked.listings += usize::from(is("tools/list"));
        });
        if is("tools/call") {
            let all = |asked: &Asked| asked.calls == CALLS && asked.listings == 2;
            heard.wait_for(all).await.unwrap();
        }
        legacy(&request)
    };
    // Who asked may be gone.
    let _ = stream.write_all(&whole).await;
}

/// A call that was let in and waits below where nobody sees it would go out by policies of long ago.
#[tokio::test]
async fn a_server_has_as_many_calls_at_once_as_its_definition_says_and_its_list_beside_them() {
    let mut server = ServerSpec {
        timeouts: Timeouts::uniform(WAIT),
        protocol: Protocol::Initialize,
        ..ServerSpec::new("s".parse().unwrap(), spec(waits_for_all().await))
    };
    server.limits.calls_in_flight = u32::try_from(CALLS).unwrap();
    let (tell, _events) = mpsc::unbounded_channel();
    let options = SupervisorOptions::new(Arc::new(NoEnvironment));
    let supervisor = Supervisor::start(vec![server], options, tell).await.unwrap();
    let upstream = supervisor.upstream(&"s".parse().unwrap()).unwrap().clone();
    let ready = upstream.ready(Instant::now() + WAIT, 0).await.unwrap();
    let calls = (0..CALLS).map(|_| ready.call("t", "{}".into(), upstream.timeouts()));
    let results = timeout(WAIT * 2, join_all(calls)).await.unwrap();
    let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
    supervisor.shutdown().await.unwrap();
}
