use std::{
    io,
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ErrorCode, JsonRpcResponse, ListToolsRequest, RequestId, ServerResult,
};
use serde_json::Value;
use tokio::{
    io::{
        AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, sink,
        split,
    },
    time::timeout,
};

use super::*;
use crate::ticket::WireFault;

mod floods;
mod strings;

/// The transport under test, and the hand-played peer at the other end of its pipes.
struct Rig {
    transport: StdioTransport<ReadHalf<DuplexStream>>,
    heard: Lines<BufReader<ReadHalf<DuplexStream>>>,
    speak: WriteHalf<DuplexStream>,
    counters: Arc<WireCounters>,
    closed: CancellationToken,
}

impl Rig {
    fn new() -> Self {
        let (ours, theirs) = duplex(1024 * 1024);
        let (reader, writer) = split(ours);
        let (heard, speak) = split(theirs);
        let (counters, closed) = (Arc::<WireCounters>::default(), CancellationToken::new());
        let transport = StdioTransport::new(reader, writer, Arc::clone(&counters), closed.clone());
        Self {
            transport,
            heard: BufReader::new(heard).lines(),
            speak,
            counters,
            closed,
        }
    }

    /// Sends a call and waits until the peer has read it.
    async fn call(&mut self, id: i64) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        self.transport.send(call(id, &ticket)).await.unwrap();
        self.hear().await;
        ticket
    }

    async fn hear(&mut self) -> String {
        self.heard.next_line().await.unwrap().unwrap()
    }

    async fn say(&mut self, line: &str) {
        self.speak.write_all(line.as_bytes()).await.unwrap();
        self.speak.write_all(b"\n").await.unwrap();
    }

    /// What goes up next: the raw text of a result, or the message of an error, for this id.
    async fn next(&mut self) -> (RequestId, Result<String, String>) {
        up(self.transport.receive().await.unwrap())
    }

    fn waiting(&self) -> usize {
        self.transport.pending.len()
    }

    fn count(&self) -> [u64; 3] {
        let counts = self.counters.counts();
        [counts.noise, counts.unclaimed, counts.unusable]
    }

    /// The connection lives: a call more is answered.
    async fn assert_lives(&mut self) {
        self.call(900).await;
        self.say(r#"{"jsonrpc":"2.0","id":900,"result":{"still":"here"}}"#)
            .await;
        assert_eq!(
            self.next().await,
            (RequestId::Number(900), Ok(r#"{"still":"here"}"#.to_owned()))
        );
        assert_eq!(self.waiting(), 0);
    }
}

fn call(id: i64, ticket: &Arc<Ticket>) -> ClientJsonRpcMessage {
    let mut request = CallToolRequest::new(CallToolRequestParams::new("tool"));
    request.extensions.insert(RawArguments("{}".into()));
    request.extensions.insert(Arc::clone(ticket));
    ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(id))
}

/// Boxed, so that several sends can wait at once.
fn send<R>(
    transport: &mut StdioTransport<R>,
    message: ClientJsonRpcMessage,
) -> BoxFuture<'static, Result<(), TransportError>>
where
    R: AsyncRead + Send + Unpin + 'static,
{
    Box::pin(transport.send(message))
}

fn cancel(id: i64) -> ClientJsonRpcMessage {
    let params = CancelledNotificationParam::new(Some(RequestId::Number(id)), None);
    let cancelled = CancelledNotification::new(params);
    ClientJsonRpcMessage::notification(ClientNotification::CancelledNotification(cancelled))
}

fn up(message: ServerJsonRpcMessage) -> (RequestId, Result<String, String>) {
    match message {
        JsonRpcMessage::Response(JsonRpcResponse {
            id,
            result: ServerResult::CustomResult(custom),
            ..
        }) => {
            let Value::String(raw) = custom.0 else {
                panic!("the result is not raw text")
            };
            (id, Ok(raw))
        }
        JsonRpcMessage::Error(error) => (error.id.unwrap(), Err(error.error.message.into_owned())),
        other => panic!("neither a raw result nor an error: {other:?}"),
    }
}

#[tokio::test]
async fn a_result_goes_up_word_for_word() {
    for result in [
        r#"{"content":[{"type":"text","text":"a"}]}"#,
        r#"{"content":[],"big":123456789012345678901234567890,"n":1.10,"e":1E+2}"#,
        r#"{"tools":[],"contents":"not the SDK's business","unknown":{"b":1,"a":2}}"#,
        r#"{ "content" : [ ] ,  "dup":1, "dup":2 }"#,
        r#"{"content":[{"type":"video","x":"\u00e9\/\ud800"}],"isError":true}"#,
        "{}",
    ] {
        let mut rig = Rig::new();
        let ticket = rig.call(7).await;
        rig.say(&format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{result},"extra":1}}"#
        ))
        .await;
        assert_eq!(rig.next().await, (RequestId::Number(7), Ok(result.to_owned())));
        assert!(ticket.fault().is_none());
        assert_eq!((rig.waiting(), rig.count()), (0, [0, 0, 0]));
    }
}

#[tokio::test]
async fn lists_go_up_as_they_came_too() {
    let mut rig = Rig::new();
    let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
    rig.transport
        .send(ClientJsonRpcMessage::request(list, RequestId::Number(3)))
        .await
        .unwrap();
    let result = r#"{"tools":[{"name":null},null,{"name":"good","inputSchema":{},"x":1e400}]}"#;
    rig.say(&format!(r#"{{"jsonrpc":"2.0","id":3,"result":{result}}}"#))
        .await;
    assert_eq!(rig.next().await, (RequestId::Number(3), Ok(result.to_owned())));
}

/// Report 18: a reply that cannot be used fails its own call with the reason; the connection lives on.
#[tokio::test]
async fn an_unusable_reply_fails_its_call_and_nothing_else() {
    for (reply, reason) in [
        (r#"{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}"#, "NaN"),
        (
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"m"}}"#,
            "both",
        ),
        (r#"{"jsonrpc":"2.0","id":7}"#, "neither"),
        (r#"{"jsonrpc":"2.0","id":7,"result":{"cut":"#, "end"),
    ] {
        let mut rig = Rig::new();
        let ticket = rig.call(7).await;
        rig.say(reply).await;
        let (id, result) = timeout(Duration::from_secs(1), rig.next()).await.unwrap();
        assert_eq!(id, RequestId::Number(7), "{reply}");
        let error = result.unwrap_err();
        assert!(error.contains(reason), "{reply}: {error}");
        assert_eq!(ticket.fault(), Some(&WireFault::Unusable(error)), "{reply}");
        assert_eq!(rig.count()[2], 1, "{reply}");
        rig.assert_lives().await;
    }
}

#[tokio::test]
async fn an_error_of_the_servers_goes_up_with_its_data() {
    let mut rig = Rig::new();
    let ticket = rig.call(7).await;
    rig.say(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"no","data":{"a":[1]}}}"#)
        .await;
    let JsonRpcMessage::Error(error) = rig.transport.receive().await.unwrap() else {
        panic!("it is an error")
    };
    assert_eq!(error.error.code, ErrorCode(-32001));
    assert_eq!(error.error.data, Some(serde_json::json!({"a": [1]})));
    // The server's own word is no fault of the wire's.
    assert!(ticket.fault().is_none());
}

#[tokio::test]
async fn the_text_of_a_numeric_id_is_taken_for_it() {
    let mut rig = Rig::new();
    rig.call(7).await;
    rig.say(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#).await;
    assert_eq!(rig.next().await, (RequestId::Number(7), Ok("{}".to_owned())));
    assert_eq!(rig.waiting(), 0);
}

#[tokio::test]
async fn an_error_without_an_id_is_blamed_only_where_one_call_waits() {
    let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#;
    let mut rig = Rig::new();
    rig.call(1).await;
    rig.say(null).await;
    assert_eq!(rig.next().await, (RequestId::Number(1), Err("what?".to_owned())));

    // Two wait: it could be either's, so it is neither's.
    rig.call(2).await;
    rig.call(3).await;
    rig.say(null).await;
    for id in [3, 2] {
        rig.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
            .await;
        assert_eq!(rig.next().await, (RequestId::Number(id), Ok("{}".to_owned())));
    }
    // And none waits.
    rig.say(null).await;
    assert!(rig.transport.receive().now_or_never().is_none());
    rig.assert_lives().await;
    assert_eq!(rig.count(), [0, 2, 0]);
}

#[tokio::test]
async fn unknown_and_repeated_ids_are_dropped_and_counted() {
    let mut rig = Rig::new();
    for id in [7, 8, 9] {
        rig.call(id).await;
    }
    for id in ["99", "7", "7", "\"x\"", "-1"] {
        rig.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"for":{id}}}}}"#
        ))
        .await;
    }
    assert_eq!(
        rig.next().await,
        (RequestId::Number(7), Ok(r#"{"for":7}"#.to_owned()))
    );
    // The repeated one is late; who waits alone is not blamed for it.
    for id in [8, 9] {
        rig.say(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#).await;
        rig.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"for":{id}}}}}"#
        ))
        .await;
        assert_eq!(
            rig.next().await,
            (RequestId::Number(id), Ok(format!(r#"{{"for":{id}}}"#)))
        );
    }
    rig.assert_lives().await;
    assert_eq!(rig.count(), [0, 6, 0]);
}

/// Report 18's kind: the reply of the only call that waits, under an id that is nobody's.
#[tokio::test]
async fn a_foreign_id_is_blamed_on_the_only_call_that_waits() {
    for reply in [
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"x\u001b","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":-1,"error":{"code":-1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":NaN}"#,
    ] {
        let mut rig = Rig::new();
        let ticket = rig.call(7).await;
        rig.say(reply).await;
        let (id, result) = rig.next().await;
        assert_eq!(id, RequestId::Number(7), "{reply}");
        let told = result.unwrap_err();
        assert!(told.contains("carries the id"), "{told}");
        assert!(matches!(ticket.fault(), Some(WireFault::Unusable(_))), "{reply}");
        // Its own reply, should it come after all, is late.
        rig.say(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
        rig.assert_lives().await;
    }
}

/// Report 29: after a cancellation the reply is late, whatever it says.
#[tokio::test]
async fn the_reply_to_a_cancelled_call_is_dropped_and_counted() {
    let mut rig = Rig::new();
    rig.call(7).await;
    rig.transport.send(cancel(7)).await.unwrap();
    let told: Value = serde_json::from_str(&rig.hear().await).unwrap();
    assert_eq!(
        (&told["method"], &told["params"]["requestId"]),
        (&"notifications/cancelled".into(), &7.into())
    );
    assert_eq!(rig.waiting(), 0);
    rig.say(r#"{"jsonrpc":"2.0","id":7,"result":{"late":true}}"#)
        .await;
    rig.say(r#"{"jsonrpc":"2.0","id":7,"result":NaN}"#).await;
    rig.assert_lives().await;
    assert_eq!(rig.count(), [0, 2, 1]);
}

/// However long ago that was, the server's word on an old call says nothing of the one that waits now.
#[tokio::test]
async fn a_late_reply_fails_no_other_call_however_late_it_is() {
    let mut rig = Rig::new();
    for id in 0..3 {
        rig.call(id).await;
    }
    rig.transport.send(cancel(2)).await.unwrap();
    rig.hear().await;
    for id in [0, 1].into_iter().chain(3..1_033) {
        if id > 2 {
            rig.call(id).await;
        }
        rig.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
            .await;
        assert_eq!(rig.next().await, (RequestId::Number(id), Ok("{}".to_owned())));
    }
    let ticket = rig.call(1_033).await;
    for id in ["2", "\"2\"", "0"] {
        rig.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"late":true}}}}"#
        ))
        .await;
    }
    rig.say(r#"{"jsonrpc":"2.0","id":1033,"result":{"own":true}}"#)
        .await;
    let own = Ok(r#"{"own":true}"#.to_owned());
    assert_eq!(rig.next().await, (RequestId::Number(1_033), own));
    assert_eq!((ticket.fault(), rig.count()), (None, [0, 3, 0]));
    // The number of a request that is yet to come is nobody's.
    rig.call(1_034).await;
    rig.say(r#"{"jsonrpc":"2.0","id":1035,"result":{}}"#).await;
    let (_, foreign) = rig.next().await;
    assert!(foreign.unwrap_err().contains("carries the id `1035`"));
}

/// Report 40: what was written before the end still counts; then every pending call fails at once.
#[tokio::test]
async fn the_end_of_the_stream_fails_all_that_wait() {
    let mut rig = Rig::new();
    let mut tickets = Vec::new();
    for id in 0..50 {
        tickets.push(rig.call(id).await);
    }
    rig.say(r#"{"jsonrpc":"2.0","id":0,"result":{"last":"word"}}"#)
        .await;
    // Cut in the middle, and without a newline: no reply.
    rig.speak.write_all(br#"{"jsonrpc":"2.0","id":"#).await.unwrap();
    rig.speak.shutdown().await.unwrap();
    assert_eq!(rig.next().await.1, Ok(r#"{"last":"word"}"#.to_owned()));
    let mut failed = Vec::new();
    while let Some(message) = timeout(Duration::from_secs(1), rig.transport.receive())
        .await
        .unwrap()
    {
        let (id, result) = up(message);
        assert_eq!(result, Err("the server closed its output".to_owned()));
        failed.push(id.to_string().parse::<i64>().unwrap());
    }
    failed.sort_unstable();
    assert_eq!(failed, (1..50).collect::<Vec<_>>());
    for ticket in tickets.iter().skip(1) {
        assert_eq!(
            ticket.fault(),
            Some(&WireFault::Closed("the server closed its output".to_owned()))
        );
        assert!(!ticket.withdraw(), "it was sent, so its outcome is unknown");
    }
    assert!(rig.closed.is_cancelled());
    assert_eq!(rig.waiting(), 0);
    assert!(rig.transport.receive().await.is_none(), "the end stays the end");
}

/// A reply that breaks off tells its call that the server ended: whoever hears so, and calls again, finds no connection
/// here rather than one that is about to end.
#[tokio::test]
async fn who_hears_of_half_a_reply_finds_the_connection_closed() {
    let mut rig = Rig::new();
    rig.call(1).await;
    rig.speak
        .write_all(br#"{"jsonrpc":"2.0","id":1,"result":{"content":"#)
        .await
        .unwrap();
    rig.speak.shutdown().await.unwrap();
    let (id, result) = rig.next().await;
    assert!(id == RequestId::Number(1) && result.is_err(), "{result:?}");
    assert!(rig.closed.is_cancelled());
}

/// What a writer does with what it is given.
#[derive(Debug, Clone, Copy)]
enum Pipe {
    /// Takes so many bytes, then breaks.
    Breaks(usize),
    /// Takes so many bytes, then says that it took none.
    TakesNone(usize),
    /// Takes so many bytes, then never any more.
    Sticks(usize),
}

struct Written {
    pipe: Pipe,
    taken: Arc<Mutex<Vec<u8>>>,
}

impl AsyncWrite for Written {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (Pipe::Breaks(room) | Pipe::TakesNone(room) | Pipe::Sticks(room)) = self.pipe;
        let mut taken = self.taken.lock().unwrap();
        let count = bytes.len().min(room - taken.len());
        match (count, self.pipe) {
            (0, Pipe::Breaks(_)) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            (0, Pipe::TakesNone(_)) => Poll::Ready(Ok(0)),
            (0, Pipe::Sticks(_)) => Poll::Pending,
            _ => {
                taken.extend_from_slice(&bytes[..count]);
                Poll::Ready(Ok(count))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Sends calls 1 and 2 into `pipe`, ends the connection, and says of each whether nothing of it went out.
async fn unsent(pipe: Pipe) -> [bool; 2] {
    let taken = Arc::default();
    let (reader, _held_open) = duplex(64);
    let closed = CancellationToken::new();
    let writer = Written {
        pipe,
        taken: Arc::clone(&taken),
    };
    let mut transport = StdioTransport::new(reader, writer, Arc::default(), closed.clone());
    let tickets = [Arc::<Ticket>::default(), Arc::default()];
    let sends = [1, 2].map(|id| tokio::spawn(send(&mut transport, call(id, &tickets[usize::from(id == 2)]))));
    if matches!(pipe, Pipe::Sticks(_)) {
        // Nothing of the peer's and nothing of the writer's ends this one.
        tokio::task::yield_now().await;
        closed.cancel();
    }
    while timeout(Duration::from_secs(1), transport.receive())
        .await
        .unwrap()
        .is_some()
    {}
    for send in sends {
        let _ = timeout(Duration::from_secs(1), send).await.unwrap().unwrap();
    }
    assert_eq!(transport.pending.len(), 0);
    let first = encode_message(&call(1, &tickets[0])).unwrap().len() + 1;
    let went = taken.lock().unwrap().len();
    let unsent = [0, 1].map(|at| tickets[at].withdraw());
    // The offset decides, and nothing else.
    assert_eq!(
        unsent,
        [went == 0, went <= first],
        "{pipe:?}: {went} of {first} bytes went"
    );
    unsent
}

/// `not sent` is said exactly where not a byte was accepted.
#[tokio::test(start_paused = true)]
async fn the_offset_tells_unsent_from_unknown() {
    let line = encode_message(&call(1, &Arc::default())).unwrap().len() + 1;
    let pipes: [fn(usize) -> Pipe; 3] = [Pipe::Breaks, Pipe::TakesNone, Pipe::Sticks];
    for pipe in pipes {
        assert_eq!(unsent(pipe(0)).await, [true, true]);
        for room in [1, line - 1, line] {
            assert_eq!(unsent(pipe(room)).await, [false, true], "{:?}", pipe(room));
        }
        assert_eq!(unsent(pipe(line + 1)).await, [false, false]);
    }
}

/// A call that was withdrawn while it waited for its turn never runs.
#[tokio::test]
async fn a_withdrawn_call_is_never_written() {
    let (ours, theirs) = duplex(1);
    let (reader, writer) = split(ours);
    let mut transport = StdioTransport::new(reader, writer, Arc::default(), CancellationToken::new());
    let tickets: Vec<Arc<Ticket>> = (0..3).map(|_| Arc::default()).collect();
    let sends: Vec<_> = (0..)
        .zip(&tickets)
        .map(|(id, ticket)| tokio::spawn(send(&mut transport, call(id, ticket))))
        .collect();
    // The first fills the pipe; the others wait for it.
    tokio::task::yield_now().await;
    assert!(!tickets[0].withdraw());
    assert!(tickets[1].withdraw());
    let mut heard = BufReader::new(theirs).lines();
    for id in [0, 2] {
        let line = timeout(Duration::from_secs(1), heard.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], id);
    }
    let results: Vec<_> = futures::future::join_all(sends)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(
        matches!(results[..], [Ok(()), Err(TransportError::Withdrawn), Ok(())]),
        "{results:?}"
    );
    assert_eq!(transport.pending.len(), 2);
}

#[tokio::test]
async fn the_order_of_sends_is_the_order_on_the_wire() {
    let mut rig = Rig::new();
    // Futures that are polled in reverse, or never, change nothing.
    let sends: Vec<_> = (0..40)
        .map(|id| send(&mut rig.transport, call(id, &Arc::default())))
        .collect();
    let mut sends: Vec<_> = sends.into_iter().rev().collect();
    sends.truncate(20);
    futures::future::join_all(sends).await;
    for id in 0..40 {
        assert_eq!(
            serde_json::from_str::<Value>(&rig.hear().await).unwrap()["id"],
            id
        );
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_fail_before_anything_is_sent() {
    let mut rig = Rig::new();
    let mut request = CallToolRequest::new(CallToolRequestParams::new("tool"));
    request.extensions.insert(RawArguments("{".into()));
    let message =
        ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(1));
    assert!(matches!(
        rig.transport.send(message).await,
        Err(TransportError::Encode(_))
    ));
    assert_eq!(rig.waiting(), 0);
    rig.assert_lives().await;
}

/// Report 15: what is printed beside the protocol is dropped and counted, and nothing is said to it.
#[tokio::test]
async fn a_storm_of_log_lines_gets_no_reply() {
    let mut rig = Rig::new();
    rig.call(7).await;
    for _ in 0..1_000 {
        rig.say(r#"{"level":"info","msg":"working"}"#).await;
    }
    rig.say("").await;
    rig.say("plain text").await;
    rig.say("{'jsonrpc': '2.0', 'id': 7, 'method': 'tools/call', 'params': {'name': 'tool'}}")
        .await;
    rig.say(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
    assert_eq!(rig.next().await.0, RequestId::Number(7));
    assert_eq!(rig.count(), [1_002, 0, 0]);
    // The very next line that the peer hears is the next call.
    rig.transport.send(call(8, &Arc::default())).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&rig.hear().await).unwrap()["id"], 8);
}

#[tokio::test]
async fn a_request_that_does_not_parse_is_refused_by_its_id() {
    let mut rig = Rig::new();
    rig.say(r#"{"jsonrpc":"2.0","id":"q","method":"ping","params":7}"#)
        .await;
    rig.say(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":7}"#)
        .await;
    rig.assert_request_or_refusal().await;
    rig.assert_lives().await;
}

impl Rig {
    /// Either the SDK can hold the request and gets it, or its sender is told.
    async fn assert_request_or_refusal(&mut self) {
        tokio::select! {
            message = self.transport.receive() => {
                assert!(matches!(message, Some(JsonRpcMessage::Request(_))), "{message:?}");
            }
            line = self.heard.next_line() => {
                let answer: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
                assert_eq!((&answer["id"], &answer["error"]["code"]), (&"q".into(), &(-32602).into()));
            }
        }
    }
}

/// Whoever sent it waits for an answer. Its id is the server's own, whatever call of ours has the same.
#[tokio::test]
async fn a_request_that_cannot_be_read_whole_is_refused_and_blames_no_call() {
    let mut rig = Rig::new();
    let ticket = rig.call(7).await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    rig.say(&format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{deep}}}"#
    ))
    .await;
    rig.say(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
    assert_eq!(rig.next().await, (RequestId::Number(7), Ok("{}".to_owned())));
    assert!(ticket.fault().is_none());
    assert_eq!(rig.count(), [0, 0, 0]);
    let answer: Value = serde_json::from_str(&rig.hear().await).unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&7.into(), &(-32600).into())
    );
    let told = answer["error"]["message"].as_str().unwrap();
    assert!(told.contains("nested deeper"), "{told}");
    rig.assert_lives().await;
}

/// Report 17: a line without end fails the server, and does not fill the memory.
#[tokio::test]
async fn an_overlong_line_ends_the_connection() {
    let mut rig = Rig::new();
    rig.transport.decoder = Decoder::taking(
        Limits {
            max_line_bytes: 4_096,
            ..Limits::default()
        },
        Strings::new(None),
    );
    let ticket = rig.call(7).await;
    rig.speak.write_all(&[b'x'; 5_000]).await.unwrap();
    let (_, result) = timeout(Duration::from_secs(1), rig.next()).await.unwrap();
    let error = result.unwrap_err();
    assert!(error.contains("longer than 4096 bytes"), "{error}");
    assert_eq!(ticket.fault(), Some(&WireFault::Closed(error)));
    assert!(rig.transport.receive().await.is_none());
    assert!(rig.closed.is_cancelled());
}

#[tokio::test]
async fn a_dropped_transport_closes_the_servers_input() {
    let Rig {
        transport,
        mut heard,
        speak: _open,
        closed,
        ..
    } = Rig::new();
    drop(transport);
    assert!(closed.is_cancelled());
    assert_eq!(
        timeout(Duration::from_secs(1), heard.next_line())
            .await
            .unwrap()
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn closing_from_outside_ends_it_even_if_the_peer_says_nothing() {
    let (ours, _theirs) = duplex(64);
    let closed = CancellationToken::new();
    let mut transport = StdioTransport::new(ours, sink(), Arc::default(), closed.clone());
    let ticket = Arc::default();
    transport.send(call(1, &ticket)).await.unwrap();
    closed.cancel();
    let (_, result) = up(timeout(Duration::from_secs(1), transport.receive())
        .await
        .unwrap()
        .unwrap());
    assert_eq!(result, Err("the connection was closed".to_owned()));
    assert!(transport.receive().await.is_none());
    // Afterwards nothing can be sent, and nothing stays behind.
    assert!(transport.send(call(2, &Arc::default())).await.is_err());
    assert_eq!(transport.pending.len(), 0);
}

#[tokio::test]
async fn what_lies_in_the_pipe_when_the_connection_is_closed_is_still_read() {
    let mut rig = Rig::new();
    rig.call(1).await;
    rig.call(2).await;
    rig.say(r#"{"jsonrpc":"2.0","id":1,"result":{"n":1}}"#).await;
    rig.closed.cancel();
    assert_eq!(
        rig.next().await,
        (RequestId::Number(1), Ok(r#"{"n":1}"#.to_owned()))
    );
    let ended = Err("the connection was closed".to_owned());
    assert_eq!(rig.next().await, (RequestId::Number(2), ended));
    assert!(rig.transport.receive().await.is_none());
}

/// Never stops writing.
struct Flood;

impl AsyncRead for Flood {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(b"x\n");
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_closed_connection_ends_although_its_peer_never_stops_writing() {
    let closed = CancellationToken::new();
    let mut transport = StdioTransport::new(Flood, sink(), Arc::default(), closed.clone());
    assert!(
        transport.receive().now_or_never().is_none(),
        "noise is no message"
    );
    closed.cancel();
    let ended = timeout(Duration::from_secs(1), transport.receive());
    assert!(ended.await.unwrap().is_none());
}
