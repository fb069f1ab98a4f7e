//! Callers that are gone, and what was kept for them.

use std::sync::atomic::Ordering;

use futures::future::join_all;
use portcullis_config::Protocol;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::timeout,
};

use super::{
    strings::{assert_none_is_left, long},
    supervised::{Hub, WAIT, changing},
    *,
};
use crate::strings::memory::Shelf;

/// More than the older era tells of their cancellation, where the server takes its time.
const CALLS: u32 = 4;

/// A server that answers no call and no cancellation, and begins a reply to nobody on the stream that stands beside them
/// as soon as all calls have come.
async fn beginning(protocol: Protocol, opened: Arc<Notify>) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let called = Arc::new(Semaphore::new(0));
    let mut running = JoinSet::new();
    running.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let (called, opened) = (Arc::clone(&called), Arc::clone(&opened));
            connections.spawn(async move {
                let Some(request) = request_of(&mut stream).await else {
                    return;
                };
                let is = |method: &str| request.contains(&format!(r#""method":"{method}""#));
                if request.starts_with("GET") || is("subscriptions/listen") {
                    let head = format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\nconnection: close\r\n\r\n: hello\n\n");
                    stream.write_all(head.as_bytes()).await.unwrap();
                    opened.notify_one();
                    let _all = called.acquire_many(CALLS).await.unwrap();
                    let begun = format!(r#"data: {{"jsonrpc":"2.0","id":999,"result":["{}"#, long('a'));
                    stream.write_all(begun.as_bytes()).await.unwrap();
                    return std::future::pending().await;
                }
                if is("tools/call") || is("notifications/cancelled") {
                    called.add_permits(usize::from(is("tools/call")));
                    return std::future::pending().await;
                }
                let answer = match protocol {
                    Protocol::Modern => changing(&request),
                    _ => legacy(&request),
                };
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (address, running)
}

/// In both eras, though the server never hears of the last cancellations, or of any.
#[tokio::test]
async fn what_is_not_finished_leaves_the_store_once_its_callers_are_gone() {
    for protocol in [Protocol::Modern, Protocol::Initialize] {
        let (shelf, opened) = (Arc::<Shelf>::default(), Arc::<Notify>::default());
        let (address, _running) = beginning(protocol, Arc::clone(&opened)).await;
        let spool = Arc::clone(&shelf);
        let mut hub = Hub::patient(spec(address), protocol, |options| {
            options.spool = Some(spool as _)
        })
        .await;
        hub.state("ready").await;
        timeout(WAIT, opened.notified()).await.unwrap();
        let begun = async {
            while shelf.there.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
        };
        let calls = join_all((0..CALLS).map(|_| hub.call("{}")));
        tokio::select! {
            answers = calls => panic!("{protocol:?}: {answers:?}"),
            begun = timeout(WAIT, begun) => begun.unwrap(),
        }
        assert_none_is_left(&shelf).await;
    }
}

/// However many calls may be in flight, the answer of the first one is its own.
#[tokio::test]
async fn as_many_calls_are_remembered_as_the_server_may_have() {
    let terms = HttpTerms {
        calls_in_flight: 5_000,
        ..terms()
    };
    let client = http_client(&spec("127.0.0.1:9".parse().unwrap()), &NoEnvironment, terms).unwrap();
    for id in 0..5_000 {
        let ping = ClientRequest::PingRequest(rmcp::model::PingRequest::default());
        let request = ClientJsonRpcMessage::request(ping, RequestId::Number(id));
        client.outstanding.note(&request);
    }
    assert!(
        client
            .outstanding
            .claim(&portcullis_wire::Id::Number(0))
            .is_some()
    );
}
