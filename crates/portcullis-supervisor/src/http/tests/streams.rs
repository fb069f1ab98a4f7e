//! Streams of calls that die: what goes on where it broke off, and what is told where nothing can.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, poll};
use portcullis_config::Protocol;
use portcullis_wire::Id;
use rmcp::model::{
    InitializedNotification, SubscriptionFilter, SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};
use tokio::{
    task::yield_now,
    time::{Instant, timeout},
};

use super::{
    super::{
        client::{Back, GuardedError},
        event_id::EventId,
    },
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

/// Where nothing can go on any more, a call does not wait for its deadline to say so.
#[tokio::test]
async fn a_stream_that_may_not_go_on_ends_its_call_at_once() {
    for (status, kind) in [
        ("404 Not Found", "content-type: text/plain"),
        ("405 No", JSON),
        ("401 Unauthorized", "www-authenticate: Bearer"),
        ("200 OK", JSON),
    ] {
        let server = Server::new(move |request| {
            if request.contains(r#""method":"tools/call""#) {
                return reply("200 OK", EVENTS, b"id: 7\nretry: 10\ndata:\n\n");
            }
            if request.starts_with("GET") && header_of(request, "last-event-id").is_some() {
                return reply(status, kind, b"");
            }
            legacy(request)
        })
        .await;
        let mut hub = Hub::patient(server.spec(), Protocol::Initialize, |_| {}).await;
        hub.state("ready").await;
        let fault = timeout(WAIT, hub.call("{}")).await.unwrap().unwrap_err();
        let number = status.split(' ').next().unwrap();
        let told = format!("where it was to go on the server answered with status {number}");
        assert!(
            matches!(&fault, CallFault::OutcomeUnknown { reason } if reason.contains(&told)),
            "{status}: {fault:?}"
        );
        assert_eq!(calls(&server), 1);
    }
}

/// Nor where the rules keep it from going on: neither place is one that they allow.
#[tokio::test]
async fn a_stream_that_the_rules_keep_from_going_on_ends_its_call_at_once() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("http://{}/mcp", elsewhere.local_addr().unwrap());
    for (location, told) in [
        (elsewhere.as_str(), "is not allowed"),
        ("ftp://127.0.0.1/", "ftp"),
        ("/mcp", "redirects again after"),
    ] {
        let header = format!("location: {location}");
        let server = Server::new(move |request| {
            if request.contains(r#""method":"tools/call""#) {
                return reply("200 OK", EVENTS, b"id: 7\nretry: 10\ndata:\n\n");
            }
            if request.starts_with("GET") && header_of(request, "last-event-id").is_some() {
                return reply("307 Temporary Redirect", &header, b"");
            }
            legacy(request)
        })
        .await;
        let mut hub = Hub::patient(server.spec(), Protocol::Initialize, |_| {}).await;
        hub.state("ready").await;
        let fault = timeout(WAIT, hub.call("{}")).await.unwrap().unwrap_err();
        assert!(
            matches!(&fault, CallFault::OutcomeUnknown { reason } if reason.contains(told)),
            "{location}: {fault:?}"
        );
        assert_eq!(calls(&server), 1);
    }
}

/// What may pass is tried again: the first time nothing comes back at all.
#[tokio::test]
async fn a_stream_that_cannot_go_on_for_a_moment_goes_on_later() {
    let (asked, tries) = (
        Arc::<Mutex<Option<Value>>>::default(),
        Arc::<AtomicUsize>::default(),
    );
    let count = Arc::clone(&tries);
    let server = Server::new(move |request| {
        if request.contains(r#""method":"tools/call""#) {
            *asked.lock().unwrap() = Some(id_of(request));
            return reply("200 OK", EVENTS, b"id: 7\nretry: 10\ndata:\n\n");
        }
        if request.starts_with("GET") && header_of(request, "last-event-id").is_some() {
            if count.fetch_add(1, Ordering::SeqCst) == 0 {
                return Vec::new();
            }
            let id = asked.lock().unwrap().clone().unwrap();
            let event = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n");
            return reply("200 OK", EVENTS, event.as_bytes());
        }
        legacy(request)
    })
    .await;
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    hub.state("ready").await;
    assert_eq!(hub.call("{}").await.unwrap(), "{}");
    assert_eq!((tries.load(Ordering::SeqCst), calls(&server)), (2, 1));
}

/// Nor where the name of its address leads elsewhere by now.
#[tokio::test]
async fn a_stream_does_not_go_on_at_an_address_that_is_allowed_no_more() {
    let (client, url) = by_name("127.0.0.1:9".parse().unwrap(), &[Some("10.0.0.9")]);
    let ticket = Arc::new(Ticket::default());
    client.outstanding.note(&call(&ticket));
    let go_on = client.get_stream(url.as_str().into(), None, Some(event_of(7)), None, HashMap::new());
    let over = go_on.await.err();
    assert!(
        matches!(over, Some(StreamableHttpError::ServerDoesNotSupportSse)),
        "{over:?}"
    );
    let fault = ticket.fault();
    assert!(
        matches!(fault, Some(WireFault::Closed(why)) if why.contains("`10.0.0.9`")),
        "{fault:?}"
    );
}

/// What the SDK goes on with where the stream of the request `id` broke off after its event `a`.
fn event_of(id: i64) -> String {
    let event = EventId {
        asked: Some(RequestId::Number(id)),
        id: "a".to_owned(),
    };
    event.to_sdk()
}

/// A client whose request 7 has a stream that broke off after its event `a`, of a server that answers whoever would go on
/// with `answer` and neither says more nor closes; and how it goes on.
async fn broken_off(
    message: &ClientJsonRpcMessage,
    patience: Duration,
    answer: &'static [u8],
) -> (GuardedHttp, Arc<str>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let spec = spec(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            request_of(&mut stream).await;
            let _ = stream.write_all(answer).await;
            if answer.ends_with(b"\n") {
                held.push(stream);
            }
        }
    });
    let terms = HttpTerms { patience, ..terms() };
    let client = http_client(&spec, &NoEnvironment, terms).unwrap();
    client.outstanding.note(message);
    (client, spec.url.as_str().into())
}

/// As the SDK does it after an error in a stream: at once, again and again.
#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_again_and_again_is_gone_on_with_after_a_pause() {
    const BROKEN: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 10\r\n\r\nid";
    let (client, uri) = broken_off(&call(&Arc::default()), WAIT, BROKEN).await;
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let began = Instant::now();
        let stream = client.get_stream(Arc::clone(&uri), None, Some(event_of(7)), None, HashMap::new());
        let events: Vec<_> = stream.await.unwrap().collect().await;
        assert!(events.last().unwrap().is_err());
        pauses.push(began.elapsed());
    }
    assert!(pauses[0] < Duration::from_millis(100), "{pauses:?}");
    let paced = |pause: &Duration| *pause >= Duration::from_millis(500);
    assert!(pauses[1..].iter().all(paced), "{pauses:?}");
}

/// A server that asks to be left alone is, for five minutes at most, by what stands while nobody calls. A call goes out all
/// the same, and an answer that is one ends the wait.
#[tokio::test(start_paused = true)]
async fn streams_that_stand_wait_for_a_server_that_asks_for_it() {
    let server = Server::new(|_| reply("200 OK", EVENTS, b"")).await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    let uri: Arc<str> = server.spec().url.as_str().into();
    let took = async |message: Option<ClientJsonRpcMessage>| {
        let (began, uri) = (Instant::now(), Arc::clone(&uri));
        match message {
            Some(message) => {
                let posted = client.post_message(uri, message, None, None, HashMap::new());
                posted.await.unwrap();
            }
            None => {
                let stream = client.get_stream(uri, None, None, None, HashMap::new());
                drop(stream.await.unwrap());
            }
        }
        began.elapsed().as_secs()
    };
    for (asked, waited) in [(5, 5), (86_400, 300)] {
        for message in [None, Some(listen(1))] {
            client.standing.leave_alone(Duration::from_secs(asked));
            assert_eq!(took(message).await, waited);
        }
        assert_eq!(took(Some(listen(1))).await, 0, "it answered");
        client.standing.leave_alone(Duration::from_secs(asked));
        assert_eq!(took(Some(call(&Arc::default()))).await, 0);
    }
}

/// A subscription is silent while nothing changes; whatever else is asked for is answered in time.
#[tokio::test(start_paused = true)]
async fn the_stream_of_a_subscription_alone_may_be_silent_for_ever() {
    const SILENT: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
    let list = ClientJsonRpcMessage::request(list, RequestId::Number(7));
    for (message, ends) in [(list, true), (listen(7), false)] {
        let (client, uri) = broken_off(&message, WAIT, SILENT).await;
        let posted = client.post_message(uri, message, None, None, HashMap::new());
        let StreamableHttpPostResponse::Sse(mut events, _) = posted.await.unwrap() else {
            panic!("no stream");
        };
        let next = timeout(WAIT * 100, events.next()).await;
        assert_eq!(next.is_ok(), ends, "{next:?}");
    }
}

fn listen(id: i64) -> ClientJsonRpcMessage {
    let params = SubscriptionsListenRequestParams::new(SubscriptionFilter::new());
    let listen = SubscriptionsListenRequest::new(params);
    ClientJsonRpcMessage::request(
        ClientRequest::SubscriptionsListenRequest(listen),
        RequestId::Number(id),
    )
}

/// Nobody says that a listing is waited for no longer, and a server may be silent for ever.
#[tokio::test]
async fn a_stream_goes_on_for_as_long_as_somebody_may_wait() {
    const SILENT: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
    let message = ClientJsonRpcMessage::request(list, RequestId::Number(7));
    let (patience, sent) = (Duration::from_millis(300), Instant::now());
    let (client, uri) = broken_off(&message, patience, SILENT).await;
    let go_on = || client.get_stream(Arc::clone(&uri), None, Some(event_of(7)), None, HashMap::new());
    let events = go_on().await.unwrap();
    let events: Vec<_> = timeout(WAIT, events.collect()).await.unwrap();
    assert!(events.iter().all(Result::is_err) && sent.elapsed() >= patience);
    let over = go_on().await.err();
    assert!(
        matches!(over, Some(StreamableHttpError::ServerDoesNotSupportSse)),
        "{over:?}"
    );
    assert!(client.outstanding.waiting(&RequestId::Number(7)).is_none());
}

/// Servers that count the events of each stream anew give several of them one id: each goes on, or ends, by itself.
#[tokio::test]
async fn streams_whose_events_have_one_id_are_told_apart() {
    let server = Server::new(|request| {
        assert_eq!(header_of(request, "last-event-id"), Some("a"));
        match header_of(request, "mcp-session-id") {
            Some("gone") => reply("404 Not Found", JSON, b""),
            _ => reply("200 OK", EVENTS, b": working\n\n"),
        }
    })
    .await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    let uri: Arc<str> = server.spec().url.as_str().into();
    let [waits, left] = [(); 2].map(|()| Arc::new(Ticket::default()));
    for (id, ticket) in [(7, &waits), (8, &left)] {
        let ClientJsonRpcMessage::Request(mut request) = call(ticket) else {
            panic!("a call is a request")
        };
        request.id = RequestId::Number(id);
        client.outstanding.note(&ClientJsonRpcMessage::Request(request));
    }
    left.give_up();
    let go_on = async |event: String, session: Option<&str>| {
        let session = session.map(Arc::from);
        let stream = client.get_stream(Arc::clone(&uri), session, Some(event), None, HashMap::new());
        stream.await.err()
    };
    assert!(go_on(event_of(7), None).await.is_none());
    assert!(is_not_again(go_on(event_of(8), None).await));
    assert_eq!(server.seen().len(), 1, "nobody waits for the other one");
    // One that answers no request takes none of them along.
    let standing = EventId {
        asked: None,
        id: "a".to_owned(),
    };
    assert!(!is_not_again(go_on(standing.to_sdk(), Some("gone")).await));
    assert!(client.outstanding.waiting(&RequestId::Number(7)).is_some() && waits.fault().is_none());
    assert!(is_not_again(go_on(event_of(7), Some("gone")).await));
    assert!(waits.fault().is_some());
}

fn is_not_again(failure: Option<StreamableHttpError<GuardedError>>) -> bool {
    matches!(failure, Some(StreamableHttpError::ServerDoesNotSupportSse))
}

/// Nobody is asked to go on with the stream of a request that is over; where its reply is still on its way, that is heard
/// first.
#[tokio::test]
async fn the_stream_of_a_request_that_is_over_is_not_gone_on_with() {
    let server = Server::new(|_| reply("200 OK", EVENTS, b"")).await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    let uri: Arc<str> = server.spec().url.as_str().into();
    client.outstanding.note(&call(&Arc::default()));
    let (_, _, on_its_way) = client.outstanding.claim(&Id::Number(7)).unwrap();
    let go_on = client.get_stream(uri, None, Some(event_of(7)), None, HashMap::new());
    let mut go_on = std::pin::pin!(go_on);
    assert!(poll!(go_on.as_mut()).is_pending());
    drop(on_its_way);
    assert!(is_not_again(timeout(WAIT, go_on).await.unwrap().err()));
    assert!(server.seen().is_empty());
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

/// So often `data:x` as an event of its own: 8,192 times.
const EVENTS_IN_GZIP: &str = "H4sIAAAAAAACA+3FIQ0AAAgAME8k2rARAUF8gvCbd03lRrRt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt\
     27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt27Zt+/UHdvEuXQAAAQA=";

/// What a compressed stream brings at once is not looked at all at once, and gives others their turn.
#[tokio::test]
async fn a_flood_of_events_is_read_as_it_is_dealt_with() {
    const MEMBERS: usize = 24;
    const SENT: u64 = 8_192 * MEMBERS as u64;
    let packed = base64_simd::STANDARD
        .decode_to_vec(EVENTS_IN_GZIP)
        .unwrap()
        .repeat(MEMBERS);
    let server = Server::new(move |_| {
        let kind = format!("{EVENTS}\r\ncontent-encoding: gzip");
        reply("200 OK", &kind, &packed)
    })
    .await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    let noise = || client.terms.counters.counts().noise;
    let turns = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&turns);
    tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::SeqCst);
            yield_now().await;
        }
    });
    let uri = server.spec().url.as_str().into();
    let stream = client.get_stream(uri, None, None, None, HashMap::new());
    let mut stream = stream.await.unwrap();
    stream.next().await.unwrap().unwrap();
    assert!((1..10_000).contains(&noise()), "{}", noise());
    let before = turns.load(Ordering::SeqCst);
    assert_eq!(stream.count().await as u64, SENT - 1);
    assert_eq!(noise(), SENT);
    let turns = turns.load(Ordering::SeqCst) - before;
    assert!(turns >= 1_000, "{turns}");
}

#[tokio::test]
async fn a_server_does_not_have_the_client_wait_for_ever() {
    let body = b"retry: 18446744073709551615\ndata:\n\nretry: 10\ndata:\n\n";
    let server = Server::new(|_| reply("200 OK", EVENTS, body)).await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    let uri = server.spec().url.as_str().into();
    let stream = client.get_stream(uri, None, None, None, HashMap::new());
    let waits: Vec<_> = stream
        .await
        .unwrap()
        .map(|event| event.unwrap().retry)
        .collect()
        .await;
    assert_eq!(waits, [Some(300_000), Some(10)]);
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
