//! Streams of calls that die: what goes on where it broke off, and what is told where nothing can.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, poll};
use portcullis_config::Protocol;
use rmcp::model::InitializedNotification;
use tokio::{task::yield_now, time::timeout};

use super::{
    super::client::Back,
    supervised::{Hub, WAIT, header_of, id_of},
    *,
};
use crate::CallFault;

/// A server of the older era whose stream of a call breaks off after `events`, and which sends the reply to whoever
/// goes on from event `7` with the `turn`th try.
async fn breaking(events: &'static str, turn: usize) -> (Server, Arc<AtomicUsize>) {
    let asked = Arc::<Mutex<Option<Value>>>::default();
    let tries = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&tries);
    let server = Server::new(move |request| {
        if request.contains(r#""method":"tools/call""#) {
            *asked.lock().unwrap() = Some(id_of(request));
            return reply("200 OK", EVENTS, events.as_bytes());
        }
        if request.starts_with("GET") && header_of(request, "last-event-id") == Some("7") {
            assert_eq!(header_of(request, "mcp-session-id"), Some("s1"));
            if count.fetch_add(1, Ordering::SeqCst) + 1 < turn {
                return reply("200 OK", EVENTS, b": not yet\n\n");
            }
            let id = asked.lock().unwrap().clone().unwrap();
            let reply_event =
                format!("id: 8\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"x\":1.0}}}}\n\n");
            return reply("200 OK", EVENTS, reply_event.as_bytes());
        }
        legacy(request)
    })
    .await;
    (server, tries)
}

fn calls(server: &Server) -> usize {
    let seen = server.seen();
    seen.iter().filter(|seen| seen.contains("tools/call")).count()
}

#[tokio::test]
async fn a_stream_that_breaks_off_after_an_event_goes_on_from_there() {
    for turn in [1, 2] {
        let (server, tries) = breaking("id: 7\nretry: 10\ndata:\n\n", turn).await;
        let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
        hub.state("ready").await;
        assert_eq!(hub.call("{}").await.unwrap(), r#"{"x":1.0}"#);
        assert_eq!(tries.load(Ordering::SeqCst), turn);
        assert_eq!(calls(&server), 1, "the call itself is sent once");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_without_one_leaves_the_outcome_unknown() {
    for events in [": working\n\n", "retry: 10\ndata: {\"a\n\n", ""] {
        let (server, tries) = breaking(events, 1).await;
        let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
        hub.state("ready").await;
        let fault = hub.call("{}").await.unwrap_err();
        assert!(
            matches!(
                &fault,
                CallFault::OutcomeUnknown { .. } | CallFault::BadReply { .. }
            ),
            "{events}: {fault:?}"
        );
        assert_eq!(
            (tries.load(Ordering::SeqCst), calls(&server)),
            (0, 1),
            "it is never sent again"
        );
    }
}

/// Of a request that is answered on another stream, the SDK hears the answer first and then that its own stream, or its
/// own body, is over: the other way round it takes the request for lost.
#[tokio::test]
async fn a_reply_on_another_stream_is_heard_before_the_end_of_its_own() {
    const REPLY: &[u8] = b"data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n";
    const NOTHING: &[u8] = b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n";
    for json in [false, true] {
        let server = Server::new(move |request| match (request.starts_with("GET"), json) {
            (true, _) => reply("200 OK", EVENTS, REPLY),
            (false, false) => reply("200 OK", EVENTS, NOTHING),
            (false, true) => reply("200 OK", JSON, b"[]"),
        })
        .await;
        let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
        let uri: Arc<str> = server.spec().url.as_str().into();
        let message = call(&Arc::default());
        let back = Back {
            uri: Arc::clone(&uri),
            session: None,
            headers: HashMap::new(),
        };
        let answer = client.post(&back, &message).await.unwrap();
        let standing = client.get_stream(uri, None, None, None, HashMap::new());
        let mut standing = standing.await.unwrap();
        let heard = standing.next().await.unwrap().unwrap();
        assert!(heard.data.unwrap().contains(r#""id":7"#), "it is on its way");
        // A body is not waited with: what it holds may be what another one waits for.
        let answer = client.answer(answer, &message, Default::default(), back);
        let answer = timeout(WAIT, answer).await.unwrap().unwrap();
        let over = async {
            match answer {
                StreamableHttpPostResponse::Sse(events, _) => events.skip(usize::from(!json)).next().await,
                other => panic!("{other:?}"),
            }
        };
        let mut over = std::pin::pin!(over.fuse());
        for _ in 0..200 {
            assert!(poll!(&mut over).is_pending(), "the end came first (json: {json})");
            yield_now().await;
        }
        // Whoever asks for more has dealt with what there was.
        assert!(standing.next().await.is_none());
        assert!(timeout(WAIT, over).await.unwrap().is_none());
    }
}

/// What is no request has no answer: a stream that a server opens for it is not read, and goes.
#[tokio::test]
async fn a_stream_for_what_is_no_request_is_not_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let spec = spec(listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !whole(&bytes) {
            stream.read_buf(&mut bytes).await.unwrap();
        }
        let head = format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\n\r\n: for ever\n\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // It ends when the client lets go, in whichever way that is told.
        while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
    });
    let client = http_client(&spec, &NoEnvironment, terms()).unwrap();
    let answer = client
        .post_message(
            spec.url.as_str().into(),
            ClientJsonRpcMessage::notification(InitializedNotification::default().into()),
            None,
            None,
            HashMap::new(),
        )
        .await
        .unwrap();
    assert!(
        matches!(answer, StreamableHttpPostResponse::Accepted),
        "{answer:?}"
    );
    timeout(WAIT, served).await.unwrap().unwrap();
}

/// What nobody heeds costs the SDK nothing.
#[tokio::test]
async fn notifications_that_nobody_heeds_do_not_go_up() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let made_up = r#"{"jsonrpc":"2.0","method":"notifications/made_up"}"#;
    for (message, goes_up) in [(progress, true), (made_up, false)] {
        let body = format!("data: {message}\n\n");
        let (text, ..) = outcome(reply("200 OK", EVENTS, body.as_bytes()), None).await;
        assert_eq!(text.contains("Notification"), goes_up, "{message}: {text}");
    }
}
