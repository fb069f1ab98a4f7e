use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle_and_ct};
use serde_json::json;
use tokio::{
    io::{
        AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split,
    },
    sync::mpsc,
    task::JoinHandle,
};

use portcullis_config::{ServerSpec, StdioSpec, Timeouts};

mod hanging;

use super::*;
use crate::{
    elicitation::{ElicitationReply, ElicitationRequest, ElicitationResponder},
    service::ClientService,
    strings::memory::Shelf,
    tools::list_tools,
    transport::StdioTransport,
};

const IDLE: Duration = Duration::from_secs(10);
const CAP: Duration = Duration::from_secs(35);

static QUESTION: std::sync::LazyLock<Value> = std::sync::LazyLock::new(
    || json!({"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
);

/// A person who answers after so long.
#[derive(Debug)]
struct Person(Duration);

impl ElicitationResponder for Person {
    fn respond(
        &self,
        _: ServerId,
        _: ElicitationRequest,
    ) -> futures::future::BoxFuture<'_, ElicitationReply> {
        Box::pin(async {
            tokio::time::sleep(self.0).await;
            ElicitationReply::Accept(None)
        })
    }
}

/// A person who answers at once, and tells that it was asked.
#[derive(Debug)]
struct Counted(mpsc::UnboundedSender<()>);

impl ElicitationResponder for Counted {
    fn respond(
        &self,
        _: ServerId,
        _: ElicitationRequest,
    ) -> futures::future::BoxFuture<'_, ElicitationReply> {
        self.0.send(()).unwrap();
        Box::pin(std::future::ready(ElicitationReply::Accept(None)))
    }
}

/// A person who never answers: tells that it is asked, and then that it is not any more.
#[derive(Debug)]
struct Absent(mpsc::UnboundedSender<bool>);

impl ElicitationResponder for Absent {
    fn respond(
        &self,
        _: ServerId,
        _: ElicitationRequest,
    ) -> futures::future::BoxFuture<'_, ElicitationReply> {
        struct Asked(mpsc::UnboundedSender<bool>);
        impl Drop for Asked {
            fn drop(&mut self) {
                let _ = self.0.send(false);
            }
        }
        let asked = Asked(self.0.clone());
        Box::pin(async move {
            asked.0.send(true).unwrap();
            std::future::pending().await
        })
    }
}

/// A connection that has shaken hands, and the hand-played server at its other end.
struct Rig {
    connection: Arc<Connection>,
    heard: Lines<BufReader<ReadHalf<DuplexStream>>>,
    speak: WriteHalf<DuplexStream>,
    shelf: Arc<Shelf>,
}

impl Rig {
    /// `pipe_bytes` is what the pipes hold before a writer has to wait.
    async fn new(pipe_bytes: usize) -> Self {
        Self::with(pipe_bytes, None).await
    }

    async fn with(pipe_bytes: usize, responder: Option<Arc<dyn ElicitationResponder>>) -> Self {
        let (asking, shelf) = (Arc::new(Asking::new(responder)), Arc::<Shelf>::default());
        let (ours, theirs) = duplex(pipe_bytes);
        let (reader, writer) = split(ours);
        let (heard, speak) = split(theirs);
        let mut heard = BufReader::new(heard).lines();
        let mut speak = speak;
        let closed = CancellationToken::new();
        let client = ClientService {
            server: "s".parse().unwrap(),
            asking: Arc::clone(&asking),
            progress: Arc::default(),
            tools_changed: Arc::default(),
            closed: closed.clone(),
        };
        let progress = Arc::clone(&client.progress);
        let transport = StdioTransport::new(reader, writer, Arc::default(), closed.clone())
            .with_spool(Some(Arc::clone(&shelf) as _));
        let serving = serve_client_with_lifecycle_and_ct(
            client,
            transport,
            ClientLifecycleMode::Initialize,
            CancellationToken::new(),
        );
        let answering = async {
            let asked: Value = serde_json::from_str(&heard.next_line().await.unwrap().unwrap()).unwrap();
            let info = json!({"name": "hand", "version": "1"});
            let result =
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info});
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
            speak.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            let initialized = heard.next_line().await.unwrap().unwrap();
            assert!(initialized.contains("notifications/initialized"), "{initialized}");
        };
        let (running, ()) = tokio::join!(serving, answering);
        let running = running.unwrap();
        let peer = running.peer().clone();
        tokio::spawn(running.waiting());
        let connection = Connection {
            generation: 1,
            peer,
            gate: Gate::default(),
            progress,
            closed,
            server: "s".parse().unwrap(),
            asking,
            stderr: StderrRing::default(),
            complaint: Complaint::default(),
        };
        Self {
            connection: Arc::new(connection),
            heard,
            speak,
            shelf,
        }
    }

    fn call(&self, arguments: &str) -> JoinHandle<(Result<String, CallFault>, Duration)> {
        let (connection, arguments) = (Arc::clone(&self.connection), Arc::from(arguments));
        let deadlines = Timeouts {
            call: IDLE,
            call_max: CAP,
            ..Timeouts::default()
        };
        tokio::spawn(async move {
            let began = Instant::now();
            let within = CallDeadline::from_now(deadlines);
            let reply = connection.call("t", arguments, within, None).await;
            (reply.map(|reply| reply.json), began.elapsed())
        })
    }

    /// The server asks for input in the place of the result of the call `id`.
    async fn require_input(&mut self, id: &Value) {
        let ask = json!({"method": "elicitation/create", "params": QUESTION.clone()});
        let result =
            json!({"resultType": "input_required", "inputRequests": {"a": ask}, "requestState": "s"});
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
            .await;
    }

    async fn hear(&mut self) -> Value {
        let line = timeout(Duration::from_secs(60), self.heard.next_line()).await;
        serde_json::from_str(&line.expect("nothing came").unwrap().unwrap()).unwrap()
    }

    async fn say(&mut self, message: &Value) {
        self.speak
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Whatever the hub still has to say, it says nothing within a minute.
    async fn assert_silence(&mut self) {
        let line = timeout(Duration::from_secs(60), self.heard.next_line()).await;
        assert!(line.is_err(), "{line:?}");
    }

    /// The hub says that it cancelled the call `id`, and then nothing more.
    async fn assert_cancelled_once(&mut self, id: &Value) {
        let told = self.hear().await;
        assert_eq!(
            (&told["method"], &told["params"]["requestId"]),
            (&"notifications/cancelled".into(), id)
        );
        self.assert_silence().await;
        assert!(
            self.connection.progress.is_empty(),
            "nobody watches for its progress any more"
        );
        assert_eq!(self.connection.gate.inside(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_word_times_out_and_is_cancelled_once() {
    let mut rig = Rig::new(64 * 1024).await;
    let call = rig.call("{}");
    let id = rig.hear().await["id"].clone();
    let (result, took) = call.await.unwrap();
    assert_eq!(
        result,
        Err(CallFault::TimedOut {
            after: IDLE,
            sent: true
        })
    );
    assert_eq!(took, IDLE);
    rig.assert_cancelled_once(&id).await;
    // The late reply is nobody's; the next call gets its own.
    rig.say(&json!({"jsonrpc": "2.0", "id": id, "result": {"late": true}}))
        .await;
    let call = rig.call("{}");
    let id = rig.hear().await["id"].clone();
    rig.say(&json!({"jsonrpc": "2.0", "id": id, "result": {"own": true}}))
        .await;
    assert_eq!(call.await.unwrap().0, Ok(r#"{"own":true}"#.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn progress_renews_the_idle_deadline_and_not_the_cap() {
    let mut rig = Rig::new(64 * 1024).await;
    let call = rig.call("{}");
    let asked = rig.hear().await;
    let token = asked["params"]["_meta"]["progressToken"].clone();
    let progress = |token: &Value, n: u32| {
        let params = json!({"progressToken": token, "progress": n});
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    };
    for n in 0..4 {
        tokio::time::advance(Duration::from_secs(8)).await;
        // Progress of another call renews nothing; had it, the last one would not be needed.
        rig.say(&progress(&json!("another"), n)).await;
        rig.say(&progress(&token, n)).await;
        // The notification passes through the SDK's tasks.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert!(!call.is_finished(), "after {n}");
    }
    let (result, took) = call.await.unwrap();
    assert_eq!(
        result,
        Err(CallFault::TimedOut {
            after: CAP,
            sent: true
        })
    );
    assert_eq!(took, CAP);
    rig.assert_cancelled_once(&asked["id"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_progress_of_another_call_renews_nothing() {
    let mut rig = Rig::new(64 * 1024).await;
    let call = rig.call("{}");
    rig.hear().await;
    tokio::time::advance(Duration::from_secs(8)).await;
    let params = json!({"progressToken": 4711, "progress": 1});
    rig.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        .await;
    let (result, took) = call.await.unwrap();
    assert_eq!(
        (result, took),
        (
            Err(CallFault::TimedOut {
                after: IDLE,
                sent: true
            }),
            IDLE
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_cancelled_once() {
    let mut rig = Rig::new(64 * 1024).await;
    let call = rig.call("{}");
    let id = rig.hear().await["id"].clone();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    rig.assert_cancelled_once(&id).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_at_once_and_says_whether_it_was_sent() {
    let mut rig = Rig::new(64 * 1024).await;
    let cancel = CancellationToken::new();
    let call = {
        let (connection, cancel) = (Arc::clone(&rig.connection), cancel.clone());
        let within = CallDeadline::from_now(Timeouts::uniform(IDLE));
        tokio::spawn(async move { connection.call("t", "{}".into(), within, Some(&cancel)).await })
    };
    let id = rig.hear().await["id"].clone();
    cancel.cancel();
    assert_eq!(
        call.await.unwrap().unwrap_err(),
        CallFault::Cancelled { sent: true }
    );
    rig.assert_cancelled_once(&id).await;
}

#[tokio::test(start_paused = true)]
async fn an_answered_call_is_not_cancelled() {
    let mut rig = Rig::new(64 * 1024).await;
    let call = rig.call("{}");
    let id = rig.hear().await["id"].clone();
    rig.say(&json!({"jsonrpc": "2.0", "id": id, "result": {}})).await;
    assert_eq!(call.await.unwrap().0, Ok("{}".to_owned()));
    rig.assert_silence().await;
}

/// A call that waits behind a full pipe and is given up never reaches the server, so there is nothing to cancel.
#[tokio::test(start_paused = true)]
async fn a_withdrawn_call_is_neither_sent_nor_cancelled() {
    let mut rig = Rig::new(512).await;
    // Larger than the pipe, and the server does not read: it stays half written.
    let stuck = rig.call(&format!(r#"{{"long":"{}"}}"#, "x".repeat(2_000)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (behind, dropped) = (rig.call(r#"{"never":1}"#), rig.call(r#"{"never":2}"#));
    tokio::time::sleep(Duration::from_secs(1)).await;
    dropped.abort();
    let (result, _) = stuck.await.unwrap();
    assert_eq!(
        result,
        Err(CallFault::TimedOut {
            after: IDLE,
            sent: true
        })
    );
    let (result, _) = behind.await.unwrap();
    assert_eq!(
        result,
        Err(CallFault::TimedOut {
            after: IDLE,
            sent: false
        })
    );
    // Now the server reads: the first call whole, that it is cancelled, and nothing else.
    let first = rig.hear().await;
    assert!(first["params"]["arguments"]["long"].is_string(), "{first}");
    rig.assert_cancelled_once(&first["id"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shut_gate_sends_nothing() {
    let mut rig = Rig::new(64 * 1024).await;
    rig.connection.gate.shut();
    let (result, _) = rig.call("{}").await.unwrap();
    assert!(matches!(result, Err(CallFault::NotSent { .. })), "{result:?}");
    rig.assert_silence().await;
}

/// Once the server has seen a round of a call, no later trouble makes the call one that was not sent.
#[tokio::test(start_paused = true)]
async fn a_later_round_that_is_not_sent_leaves_the_outcome_unknown() {
    let person = Arc::new(Person(Duration::from_secs(5)));
    let mut rig = Rig::with(64 * 1024, Some(person)).await;
    let call = rig.call("{}");
    let id = rig.hear().await["id"].clone();
    rig.require_input(&id).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The connection ends before the second round can begin.
    let Rig { heard, speak, .. } = rig;
    drop((heard, speak));
    let (result, _) = call.await.unwrap();
    assert!(
        matches!(result, Err(CallFault::OutcomeUnknown { .. })),
        "{result:?}"
    );
}

/// A gate that is shut between two rounds lets the call that is inside end.
#[tokio::test(start_paused = true)]
async fn a_call_stays_inside_through_all_its_rounds() {
    let mut rig = Rig::new(64 * 1024).await;
    let call = rig.call("{}");
    let id = rig.hear().await["id"].clone();
    assert!(!rig.connection.gate.shut_if_empty());
    rig.connection.gate.shut();
    rig.require_input(&id).await;
    let id = rig.hear().await["id"].clone();
    assert_eq!(rig.connection.gate.inside(), 1);
    rig.say(&json!({"jsonrpc": "2.0", "id": id, "result": {}})).await;
    assert_eq!(call.await.unwrap().0, Ok("{}".to_owned()));
    rig.connection.gate.emptied().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_never_has_enough_is_called_and_a_person_asked_so_often_and_no_more() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut rig = Rig::with(64 * 1024, Some(Arc::new(Counted(tell)))).await;
    let call = rig.call("{}");
    for _ in 0..=MAX_ROUNDS {
        let asked = rig.hear().await;
        rig.require_input(&asked["id"]).await;
    }
    let (result, _) = call.await.unwrap();
    assert!(
        matches!(&result, Err(CallFault::BadReply { reason }) if reason.contains("8 rounds")),
        "{result:?}"
    );
    rig.assert_silence().await;
    let mut questions = 0;
    while told.try_recv().is_ok() {
        questions += 1;
    }
    assert_eq!(questions, MAX_ROUNDS);
}

/// However often a tool asks, the cap is one for all rounds, and for the people between them.
#[tokio::test(start_paused = true)]
async fn the_cap_holds_over_all_rounds() {
    let person = Arc::new(Person(Duration::from_secs(8)));
    let mut rig = Rig::with(64 * 1024, Some(person)).await;
    let call = rig.call("{}");
    for _ in 0..5 {
        let id = rig.hear().await["id"].clone();
        rig.require_input(&id).await;
    }
    let (result, took) = call.await.unwrap();
    assert_eq!(
        result,
        Err(CallFault::TimedOut {
            after: CAP,
            sent: true
        })
    );
    assert_eq!(took, CAP);
}

/// A server of the older era asks while its call is in flight: the person's time is not the server's.
#[tokio::test(start_paused = true)]
async fn the_idle_deadline_stands_still_while_a_person_is_asked() {
    let person = Arc::new(Person(Duration::from_secs(15)));
    let mut rig = Rig::with(64 * 1024, Some(person)).await;
    let call = rig.call("{}");
    let id = rig.hear().await["id"].clone();
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.say(
        &json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION.clone()}),
    )
    .await;
    let answer = rig.hear().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["action"]),
        (&json!("q"), &json!("accept"))
    );
    tokio::time::sleep(IDLE / 2).await;
    assert!(!call.is_finished());
    rig.say(&json!({"jsonrpc": "2.0", "id": id, "result": {}})).await;
    let (result, took) = call.await.unwrap();
    assert_eq!((result, took), (Ok("{}".to_owned()), Duration::from_secs(25)));

    // A server that has its answer and says nothing more is out of time as ever.
    let call = rig.call("{}");
    rig.hear().await;
    rig.say(
        &json!({"jsonrpc": "2.0", "id": "r", "method": "elicitation/create", "params": QUESTION.clone()}),
    )
    .await;
    let (result, took) = call.await.unwrap();
    assert!(
        matches!(result, Err(CallFault::TimedOut { sent: true, .. })),
        "{result:?}"
    );
    assert_eq!(took, Duration::from_secs(15) + IDLE);
}

/// Cancellation the other way: a question that the server takes back is open no longer, and is not answered. Nor is one
/// of a server that is gone.
#[tokio::test(start_paused = true)]
async fn a_question_that_is_taken_back_is_asked_no_longer() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut rig = Rig::with(64 * 1024, Some(Arc::new(Absent(tell)))).await;
    let question =
        json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION.clone()});
    rig.say(&question).await;
    assert_eq!(told.recv().await, Some(true));
    let params = json!({"requestId": "q", "reason": "never mind"});
    let began = Instant::now();
    rig.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        .await;
    assert_eq!(told.recv().await, Some(false));
    rig.assert_silence().await;

    rig.say(&question).await;
    assert_eq!(told.recv().await, Some(true));
    rig.connection.closed.cancel();
    assert_eq!(told.recv().await, Some(false));
    assert!(began.elapsed() < Duration::from_secs(70), "not by its own time");
}

/// Nor is a question of a round of a call: without its connection the answer could go nowhere.
#[tokio::test(start_paused = true)]
async fn a_rounds_question_ends_with_its_connection_and_the_call_with_it() {
    for dies in [true, false] {
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut rig = Rig::with(64 * 1024, Some(Arc::new(Absent(tell)))).await;
        let call = rig.call("{}");
        let id = rig.hear().await["id"].clone();
        rig.require_input(&id).await;
        assert_eq!(told.recv().await, Some(true));
        let Rig {
            connection,
            heard,
            speak,
            ..
        } = rig;
        if dies {
            drop((heard, speak));
        } else {
            connection.closed.cancel();
        }
        assert_eq!(told.recv().await, Some(false));
        let (result, took) = call.await.unwrap();
        assert!(
            matches!(result, Err(CallFault::OutcomeUnknown { .. })),
            "{result:?}"
        );
        assert!(took < IDLE, "by its own time: {took:?}");
        assert_eq!(connection.gate.inside(), 0);
    }
}

/// What a call waited before it was sent is taken off its deadline.
#[tokio::test(start_paused = true)]
async fn a_call_that_began_before_has_only_what_is_left() {
    let mut rig = Rig::new(64 * 1024).await;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(7)).await;
    let within = CallDeadline::since(began, Timeouts::uniform(IDLE));
    let fault = rig
        .connection
        .call("t", "{}".into(), within, None)
        .await
        .unwrap_err();
    assert_eq!(
        fault,
        CallFault::TimedOut {
            after: IDLE,
            sent: true
        }
    );
    assert_eq!(began.elapsed(), IDLE);
    let id = rig.hear().await["id"].clone();
    rig.assert_cancelled_once(&id).await;
}

/// What a tool needs before it can go on is nobody's result: nothing of it goes to a store, and its state comes back
/// to the server word for word, however long it is.
#[tokio::test]
async fn a_long_state_goes_back_to_the_server_as_it_was() {
    let mut rig = Rig::new(1 << 20).await;
    let call = rig.call("{}");
    let id = rig.hear().await["id"].clone();
    let state = "s\u{e9}\u{1f600}".repeat(30_000);
    let result = json!({"requestState": state, "resultType": "input_required", "inputRequests": {}});
    rig.say(&json!({"jsonrpc": "2.0", "result": result, "id": id}))
        .await;
    let again = rig.hear().await;
    assert!(again["params"]["requestState"] == state, "the state is another");
    let done = json!({"content": [{"type": "text", "text": "done"}]});
    rig.say(&json!({"jsonrpc": "2.0", "id": again["id"], "result": done}))
        .await;
    assert_eq!(call.await.unwrap().0, Ok(done.to_string()));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_fails_each_call_truly() {
    let mut rig = Rig::new(512).await;
    let sent = rig.call("{}");
    rig.hear().await;
    // The pipe is full with the second, so the third is not begun.
    let half = rig.call(&format!(r#"{{"long":"{}"}}"#, "x".repeat(2_000)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let queued = rig.call("{}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let Rig { heard, speak, .. } = rig;
    drop((heard, speak));
    for (call, known) in [(sent, false), (half, false), (queued, true)] {
        let (result, took) = call.await.unwrap();
        assert!(took < IDLE, "at once");
        match result.unwrap_err() {
            CallFault::NotSent { .. } => assert!(known),
            CallFault::OutcomeUnknown { .. } => assert!(!known),
            other => panic!("{other:?}"),
        }
    }
}

/// Where both are due at once, chance would decide whether the server hears that nobody waits any more.
#[tokio::test(start_paused = true)]
async fn what_is_below_waits_longer_than_the_call_itself() {
    let attempt = Attempt {
        tool: "t",
        arguments: "{}".into(),
        round: Round::default(),
        within: CallDeadline::from_now(Timeouts::uniform(IDLE)),
        cancel: None,
    };
    let waits = attempt.ticket().left();
    assert!(waits > Some(IDLE), "{waits:?}");
}

/// Else its late reply would be waited for on, and blamed on nobody a reply without an id.
#[tokio::test(start_paused = true)]
async fn a_listing_that_takes_too_long_is_cancelled_once() {
    let mut rig = Rig::new(64 * 1024).await;
    let none: [&str; 0] = [];
    let mut spec = ServerSpec::new("s".parse().unwrap(), StdioSpec::new("/bin/true", none));
    spec.timeouts.list = IDLE;
    let peer = rig.connection.peer.clone();
    let listing = tokio::spawn(async move { list_tools(&peer, &spec, None).await });
    let first = rig.hear().await;
    let page = json!({"tools": [], "nextCursor": "more"});
    rig.say(&json!({"jsonrpc": "2.0", "id": first["id"], "result": page}))
        .await;
    let second = rig.hear().await;
    assert_eq!(second["method"], "tools/list");
    let error = listing.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "listing tools took over 10 s");
    rig.assert_cancelled_once(&second["id"]).await;
}

/// More calls than the SDK queues.
fn many(rig: &Rig, cancel: &CancellationToken) -> Vec<BoxFuture<'static, Result<RawReply, CallFault>>> {
    (0..2_500)
        .map(|number| {
            let (connection, cancel) = (Arc::clone(&rig.connection), cancel.clone());
            let within = CallDeadline::from_now(Timeouts::uniform(IDLE));
            async move {
                let arguments = json!({"n": number}).to_string().into();
                connection.call("t", arguments, within, Some(&cancel)).await
            }
            .boxed()
        })
        .collect()
}

/// All of them begin before anything else runs, so the SDK takes none of them meanwhile.
async fn all_begin(calls: &mut [BoxFuture<'static, Result<RawReply, CallFault>>]) {
    let at_once = async {
        for call in calls {
            assert!(futures::poll!(call).is_pending());
        }
    };
    tokio::task::unconstrained(at_once).await;
}

#[tokio::test(start_paused = true)]
async fn more_calls_than_the_sdk_queues_each_reach_the_server_once() {
    let mut rig = Rig::new(1024 * 1024).await;
    let mut calls = many(&rig, &CancellationToken::new());
    let count = calls.len();
    all_begin(&mut calls).await;
    let all = tokio::spawn(futures::future::join_all(calls));
    let mut heard = Vec::new();
    for _ in 0..count {
        let call = rig.hear().await;
        let number = call["params"]["arguments"]["n"].clone();
        rig.say(&json!({"jsonrpc": "2.0", "id": call["id"], "result": {"n": number}}))
            .await;
        heard.push(number.as_u64().unwrap());
    }
    for (number, reply) in all.await.unwrap().into_iter().enumerate() {
        assert_eq!(reply.unwrap().json, json!({"n": number}).to_string());
    }
    rig.assert_silence().await;
    heard.sort_unstable();
    assert_eq!(heard, (0..count as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_the_sdk_ends_when_it_is_cancelled_and_is_never_sent() {
    let mut rig = Rig::new(1024 * 1024).await;
    let cancel = CancellationToken::new();
    let mut calls = many(&rig, &cancel);
    all_begin(&mut calls).await;
    cancel.cancel();
    for call in tokio::task::unconstrained(futures::future::join_all(calls)).await {
        match call {
            Err(CallFault::Cancelled { sent: false }) => {}
            other => panic!("{other:?}"),
        }
    }
    rig.assert_silence().await;
}

/// It is copied and allocated with each call, also by whoever keeps many of them.
#[tokio::test]
async fn a_call_is_small() {
    let rig = Rig::new(1024).await;
    let within = CallDeadline::from_now(Timeouts::uniform(IDLE));
    let call = rig.connection.call("t", "{}".into(), within, None);
    assert!(size_of_val(&call) <= 1_024, "{} bytes", size_of_val(&call));
}
