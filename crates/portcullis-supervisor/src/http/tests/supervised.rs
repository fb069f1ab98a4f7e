//! Whole servers over HTTP, under their actors.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use portcullis_config::{Protocol, ServerSpec, Timeouts};
use portcullis_egress::EgressOutcome;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::*;
use crate::{CallFault, Supervisor, SupervisorEvent, SupervisorOptions, Upstream};

pub(super) const WAIT: Duration = Duration::from_secs(10);

pub(super) struct Hub {
    pub(super) supervisor: Supervisor,
    pub(super) events: mpsc::UnboundedReceiver<SupervisorEvent>,
}

impl Hub {
    pub(super) async fn new(http: HttpSpec, protocol: Protocol) -> Self {
        Self::with(http, protocol, |_| {}).await
    }

    pub(super) async fn with(
        http: HttpSpec,
        protocol: Protocol,
        change: impl FnOnce(&mut SupervisorOptions),
    ) -> Self {
        Self::within(http, protocol, Timeouts::uniform(Duration::from_secs(5)), change).await
    }

    /// Of a server whose calls may take an hour.
    pub(super) async fn patient(
        http: HttpSpec,
        protocol: Protocol,
        change: impl FnOnce(&mut SupervisorOptions),
    ) -> Self {
        let hour = Duration::from_secs(3_600);
        let timeouts = Timeouts {
            call: hour,
            call_max: hour,
            ..Timeouts::uniform(Duration::from_secs(5))
        };
        Self::within(http, protocol, timeouts, change).await
    }

    async fn within(
        http: HttpSpec,
        protocol: Protocol,
        timeouts: Timeouts,
        change: impl FnOnce(&mut SupervisorOptions),
    ) -> Self {
        let spec = ServerSpec {
            timeouts,
            protocol,
            ..ServerSpec::new("s".parse().unwrap(), http)
        };
        let (tell, events) = mpsc::unbounded_channel();
        let mut options = SupervisorOptions::new(Arc::new(NoEnvironment));
        options.lifecycle.base = Duration::from_millis(20);
        change(&mut options);
        let supervisor = Supervisor::start(vec![spec], options, tell).await.unwrap();
        Self { supervisor, events }
    }

    fn upstream(&self) -> Upstream {
        self.supervisor.upstream(&"s".parse().unwrap()).unwrap().clone()
    }

    /// The first event from now on of which `find` says something.
    pub(super) async fn event<T>(&mut self, find: impl Fn(&SupervisorEvent) -> Option<T>) -> T {
        let next = async {
            loop {
                if let Some(found) = find(&self.events.recv().await.unwrap()) {
                    return found;
                }
            }
        };
        timeout(WAIT, next).await.unwrap()
    }

    /// Waits for a state, and gives its reason with what was told of connections before it.
    async fn told_until(&mut self, wanted: &str) -> (String, Vec<String>) {
        let mut told = Vec::new();
        loop {
            let (state, text) = self
                .event(|event| match event {
                    SupervisorEvent::State { to, reason, .. } if to.to_string() == wanted => {
                        Some((true, reason.clone()))
                    }
                    SupervisorEvent::Egress { record, .. } => Some((false, format!("{record:?}"))),
                    _ => None,
                })
                .await;
            match state {
                true => return (text, told),
                false => told.push(text),
            }
        }
    }

    /// Waits for a state, and gives its reason.
    pub(super) async fn state(&mut self, wanted: &str) -> String {
        self.event(|event| match event {
            SupervisorEvent::State { to, reason, .. } if to.to_string() == wanted => Some(reason.clone()),
            _ => None,
        })
        .await
    }

    pub(super) async fn call(&self, arguments: &str) -> Result<String, CallFault> {
        let upstream = self.upstream();
        let ready = upstream.ready(Instant::now() + WAIT, 0).await?;
        ready.call("t", arguments.into(), upstream.timeouts()).await
    }
}

/// A server of the older era with sessions, which it may lose.
#[derive(Default)]
pub(super) struct Site {
    sessions: Mutex<BTreeSet<String>>,
    pub(super) begun: AtomicUsize,
    /// Calls that it carried out, and calls that it turned away.
    pub(super) executed: AtomicUsize,
    turned_away: AtomicUsize,
    /// It forgets each session as soon as it has begun it.
    forgetful: AtomicBool,
    /// It begins no more sessions.
    pub(super) shut: AtomicBool,
}

impl Site {
    pub(super) fn answer(&self, request: &str) -> Vec<u8> {
        let session = header_of(request, "mcp-session-id");
        if request.contains(r#""method":"initialize""#) {
            if self.shut.load(Ordering::SeqCst) {
                return reply("500 Shut", "content-type: text/plain", b"shut");
            }
            let session = format!("s{}", self.begun.fetch_add(1, Ordering::SeqCst));
            let kind = format!("{JSON}\r\nmcp-session-id: {session}");
            self.sessions.lock().unwrap().insert(session);
            return reply("200 OK", &kind, initialized(request).as_bytes());
        }
        let known = session.is_some_and(|session| self.sessions.lock().unwrap().contains(session));
        if request.starts_with("DELETE") {
            self.sessions.lock().unwrap().clear();
            return reply("200 OK", JSON, b"");
        }
        let call = request.contains(r#""method":"tools/call""#);
        if !known || (call && self.forgetful.load(Ordering::SeqCst)) {
            if call {
                self.turned_away.fetch_add(1, Ordering::SeqCst);
            }
            return reply("404 Not Found", "content-type: text/plain", b"no such session");
        }
        if call {
            self.executed.fetch_add(1, Ordering::SeqCst);
        }
        self::legacy(request)
    }

    pub(super) fn lose_sessions(&self) {
        self.sessions.lock().unwrap().clear();
    }
}

pub(super) fn header_of<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let head = request.split_once("\r\n\r\n")?.0;
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

pub(super) fn id_of(request: &str) -> Value {
    let body = request.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str::<Value>(body).unwrap()["id"].clone()
}

pub(super) fn initialized(request: &str) -> String {
    let id = id_of(request);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
    )
}

async fn site() -> (Arc<Site>, Server) {
    let site = Arc::<Site>::default();
    let shared = Arc::clone(&site);
    let server = Server::new(move |request| shared.answer(request)).await;
    (site, server)
}

/// Report 32.
#[tokio::test]
async fn ten_calls_that_find_the_session_lost_share_one_new_one_and_go_out_once_more() {
    let (site, server) = site().await;
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    hub.state("ready").await;
    site.lose_sessions();
    let calls = (0..10).map(|_| hub.call("{}"));
    for result in futures::future::join_all(calls).await {
        assert_eq!(result.unwrap(), r#"{"content":1.0}"#);
    }
    assert_eq!(site.begun.load(Ordering::SeqCst), 2, "one session more");
    assert_eq!(site.executed.load(Ordering::SeqCst), 10);
    assert!(site.turned_away.load(Ordering::SeqCst) <= 10);
    // The tools may be others in the new session.
    let listed = |event: &SupervisorEvent| match event {
        SupervisorEvent::Tools { version, .. } => Some(*version),
        _ => None,
    };
    assert_eq!(hub.event(listed).await, 2);
}

#[tokio::test]
async fn a_server_that_forgets_each_session_is_asked_twice_and_no_more() {
    let (site, server) = site().await;
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    hub.state("ready").await;
    site.forgetful.store(true, Ordering::SeqCst);
    let fault = hub.call("{}").await.unwrap_err();
    assert!(
        matches!(&fault, CallFault::BadReply { reason } if reason.contains("lost the session again")),
        "{fault:?}"
    );
    assert_eq!(site.begun.load(Ordering::SeqCst), 2);
    assert_eq!(site.turned_away.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_session_that_cannot_be_set_up_anew_ends_the_connection() {
    let (site, server) = site().await;
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    hub.state("ready").await;
    site.lose_sessions();
    site.shut.store(true, Ordering::SeqCst);
    let fault = hub.call("{}").await.unwrap_err();
    assert!(matches!(fault, CallFault::NotSent { .. }), "{fault:?}");
    hub.state("backing_off").await;
    assert_eq!(site.executed.load(Ordering::SeqCst), 0);
    // It comes back by itself.
    site.shut.store(false, Ordering::SeqCst);
    hub.state("ready").await;
    hub.call("{}").await.unwrap();
}

/// Whatever its status, an answer without a session leaves the connection of no use: a call would wait for a newer one.
#[tokio::test]
async fn a_session_that_is_refused_with_an_error_ends_the_connection() {
    for kind in [JSON, EVENTS] {
        let (site, lost) = (Arc::<Site>::default(), Arc::<AtomicBool>::default());
        let (shared, is_lost) = (Arc::clone(&site), Arc::clone(&lost));
        let server = Server::new(move |request| {
            if !is_lost.load(Ordering::SeqCst) || !request.contains(r#""method":"initialize""#) {
                return shared.answer(request);
            }
            let id = id_of(request);
            let error =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"no more"}}}}"#);
            match kind {
                JSON => reply("200 OK", JSON, error.as_bytes()),
                _ => reply("200 OK", EVENTS, format!("data: {error}\n\n").as_bytes()),
            }
        })
        .await;
        let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
        hub.state("ready").await;
        site.lose_sessions();
        lost.store(true, Ordering::SeqCst);
        let fault = hub.call("{}").await.unwrap_err();
        assert!(matches!(fault, CallFault::NotSent { .. }), "{fault:?}");
        let reason = hub.state("backing_off").await;
        assert!(reason.contains("error -32000: no more"), "{reason}");
        lost.store(false, Ordering::SeqCst);
        hub.state("ready").await;
        hub.call("{}").await.unwrap();
        assert_eq!(site.executed.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_server_that_went_away_leaves_ready_and_comes_back() {
    let (site, server) = site().await;
    let address = server.address;
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    hub.state("ready").await;
    // The stream that the SDK asks for beside all calls must not be what finds it gone.
    let asked = async {
        while !server.seen().iter().any(|seen| seen.starts_with("GET")) {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT, asked).await.unwrap();
    server.stop().await;
    let fault = hub.call("{}").await.unwrap_err();
    assert!(
        matches!(&fault, CallFault::NotSent { reason } if reason.contains("cannot be connected to")),
        "{fault:?}"
    );
    hub.state("backing_off").await;
    site.lose_sessions();
    let shared = Arc::clone(&site);
    let _server = Server::at(address, move |request| shared.answer(request)).await;
    hub.state("ready").await;
    hub.call("{}").await.unwrap();
    assert_eq!(site.executed.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_end_of_the_hub_ends_the_session() {
    let (site, server) = site().await;
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    hub.state("ready").await;
    hub.supervisor.shutdown().await.unwrap();
    let ended = async {
        while !site.sessions.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT, ended).await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_be_used_says_why() {
    const OLD: &str = "event: endpoint\ndata: /messages?session=1\n\n";
    let old = |request: &str| match request {
        _ if request.starts_with("GET") => reply("200 OK", EVENTS, OLD.as_bytes()),
        _ => reply("405 Method Not Allowed", "content-type: text/plain", b""),
    };
    let login = |_: &str| reply("401 Unauthorized", "www-authenticate: Bearer realm=\"x\"", b"");
    let busy = |_: &str| reply("503 Away", "retry-after: 9\r\ncontent-type: text/plain", b"later");
    let missing = |_: &str| reply("404 Not Found", "content-type: text/plain", b"nothing here");
    type Answer = fn(&str) -> Vec<u8>;
    let no_challenge = |_: &str| reply("401 Unauthorized", "content-type: text/plain", b"who?");
    let cases: [(Answer, &str); 5] = [
        (old, "speaks the HTTP+SSE transport of 2024-11-05"),
        (login, "login needed: the server answered with status 401"),
        (
            no_challenge,
            "the server answered with status 401 Unauthorized: who?",
        ),
        (busy, "status 503 Service Unavailable: later"),
        (missing, "status 404 Not Found: nothing here"),
    ];
    for protocol in [Protocol::Auto, Protocol::Initialize] {
        for (answer, part) in cases {
            let server = Server::new(answer).await;
            let mut hub = Hub::new(server.spec(), protocol).await;
            let reason = hub.state("backing_off").await;
            assert!(reason.contains(part), "{reason:?} without {part:?}");
        }
    }
}

#[tokio::test]
async fn connections_are_told_with_their_rule_and_address() {
    let (_, server) = site().await;
    let rule = format!("http://{}/", server.address);
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    let told = |event: &SupervisorEvent| match event {
        SupervisorEvent::Egress { record, .. } => Some(record.clone()),
        _ => None,
    };
    let record = hub.event(told).await;
    assert_eq!(record.target, rule.trim_end_matches('/'));
    assert_eq!(record.rule.as_deref(), Some(rule.as_str()));
    assert_eq!(record.address, Some(server.address.ip()));
    assert_eq!(record.outcome, EgressOutcome::Allowed);
    hub.state("ready").await;
    assert!(hub.upstream().egress().connections >= 1);
}

#[tokio::test]
async fn what_the_hub_does_not_allow_is_refused_whatever_the_server_has() {
    let (_, server) = site().await;
    let rules = EgressRules::new(vec!["*.example.com".parse().unwrap()]);
    let within = |options: &mut SupervisorOptions| options.egress = Some(rules);
    let mut hub = Hub::with(server.spec(), Protocol::Initialize, within).await;
    let refused = hub
        .event(|event| match event {
            SupervisorEvent::Egress { record, .. } => Some(record.outcome.clone()),
            _ => None,
        })
        .await;
    assert!(matches!(refused, EgressOutcome::Refused(_)), "{refused:?}");
    let reason = hub.state("backing_off").await;
    assert!(reason.contains("the rules of the whole hub"), "{reason}");
    assert!(server.seen().is_empty());
}

/// A server of the newer era, whose one good tool has an argument in a header.
pub(super) fn modern(request: &str) -> Vec<u8> {
    const GOOD: &str = r#"{"name":"t","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}"#;
    const BAD: &str = r#"{"name":"bad","inputSchema":{"type":"object","properties":{"r":{"type":"number","x-mcp-header":"R"}}}}"#;
    let result = match request {
        _ if request.contains(r#""method":"server/discover""#) => {
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}"#.to_owned()
        }
        _ if request.contains(r#""method":"tools/list""#) => {
            format!(r#"{{"resultType":"complete","tools":[{BAD},{GOOD}]}}"#)
        }
        _ => {
            let region = header_of(request, "mcp-param-region").unwrap_or("none");
            format!(r#"{{"resultType":"complete","content":["{region}"]}}"#)
        }
    };
    let id = id_of(request);
    reply(
        "200 OK",
        JSON,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).as_bytes(),
    )
}

/// As [`modern`], and tells one change on each subscription before it ends it.
pub(super) fn changing(request: &str) -> Vec<u8> {
    if request.contains(r#""method":"server/discover""#) {
        let plain = String::from_utf8(modern(request)).unwrap();
        let body = plain.split_once("\r\n\r\n").unwrap().1;
        let body = body.replace(r#""tools":{}"#, r#""tools":{"listChanged":true}"#);
        return reply("200 OK", JSON, body.as_bytes());
    }
    if !request.contains(r#""method":"subscriptions/listen""#) {
        return modern(request);
    }
    let meta = format!(
        r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}"#,
        id_of(request)
    );
    let acknowledged = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{meta},"notifications":{{"toolsListChanged":true}}}}}}"#
    );
    let changed =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{meta}}}}}"#);
    reply(
        "200 OK",
        EVENTS,
        format!("data: {acknowledged}\n\ndata: {changed}\n\n").as_bytes(),
    )
}

#[tokio::test]
async fn changes_of_the_tools_come_by_subscription_and_it_is_opened_again() {
    let server = Server::new(changing).await;
    let mut hub = Hub::new(server.spec(), Protocol::Modern).await;
    for wanted in 1..=3 {
        let version = hub
            .event(|event| match event {
                SupervisorEvent::Tools { version, .. } => Some(*version),
                _ => None,
            })
            .await;
        assert_eq!(version, wanted);
    }
    let subscriptions = server.seen();
    let subscriptions = subscriptions
        .iter()
        .filter(|seen| seen.contains("subscriptions/listen"));
    // The third listing follows the second subscription, or the end of the burst of the first.
    assert!((1..=3).contains(&subscriptions.count()));
}

#[tokio::test]
async fn annotated_arguments_go_out_as_headers_and_bad_annotations_cost_the_tool() {
    let server = Server::new(modern).await;
    let mut hub = Hub::new(server.spec(), Protocol::Auto).await;
    let list = hub
        .event(|event| match event {
            SupervisorEvent::Tools { list, .. } => Some(Arc::clone(list)),
            _ => None,
        })
        .await;
    let names: Vec<_> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["t"]);
    assert!(list.reports[0].contains("`bad`") && list.reports[0].contains("x-mcp-header"));
    for (arguments, seen) in [(r#"{"r":"eu"}"#, "eu"), ("{}", "none")] {
        let raw = hub.call(arguments).await.unwrap();
        assert!(raw.contains(&format!(r#""content":["{seen}"]"#)), "{raw}");
    }
    // What every request of this era says of itself in its headers is what its body says (SEP-2243).
    for request in server.seen() {
        let method = header_of(&request, "mcp-method").unwrap();
        assert!(request.contains(&format!(r#""method":"{method}""#)), "{request}");
        assert_eq!(
            header_of(&request, "mcp-protocol-version"),
            Some("2026-07-28"),
            "{request}"
        );
        let name = (method == "tools/call").then_some("t");
        assert_eq!(header_of(&request, "mcp-name"), name, "{request}");
    }
}

/// A server of the older era that asks, on the stream of a call, what no type of the SDK holds, and answers the call
/// once it has its own answer.
#[tokio::test]
async fn a_request_of_the_servers_that_does_not_parse_is_answered() {
    let ask = r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":7}"#;
    let server = Server::new(move |request| {
        if request.contains(r#""method":"tools/call""#) {
            let call = self::legacy(request);
            let text = String::from_utf8(call).unwrap();
            let events = text.split_once("\r\n\r\n").unwrap().1;
            return reply("200 OK", EVENTS, format!("data: {ask}\n\n{events}").as_bytes());
        }
        self::legacy(request)
    })
    .await;
    let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
    hub.state("ready").await;
    assert_eq!(hub.call("{}").await.unwrap(), r#"{"content":1.0}"#);
    let answered = async {
        while !server.seen().iter().any(|seen| seen.contains(r#""id":"q1""#)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT, answered).await.unwrap();
    let answer = server
        .seen()
        .into_iter()
        .find(|seen| seen.contains(r#""id":"q1""#))
        .unwrap();
    assert!(
        answer.contains("mcp-session-id: s1") && answer.contains("\"error\""),
        "{answer}"
    );
}

#[tokio::test]
async fn an_answer_that_never_begins_is_waited_for_as_long_as_the_request_may_take() {
    // Accepts and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let spec = spec(listener.local_addr().unwrap());
    let mut terms = terms();
    terms.patience = Duration::from_millis(50);
    let client = http_client(&spec, &NoEnvironment, terms).unwrap();
    let waited_ms = async |request| {
        let message = ClientJsonRpcMessage::request(request, RequestId::Number(1));
        let posted = client.post_message(spec.url.as_str().into(), message, None, None, HashMap::new());
        let error = timeout(WAIT, posted).await.unwrap().err().unwrap().to_string();
        let (_, after) = error.split_once("did not begin to answer within ").unwrap();
        after.strip_suffix(" ms").unwrap().parse::<u64>().unwrap()
    };
    let list = ListToolsRequest::default();
    assert_eq!(waited_ms(ClientRequest::ListToolsRequest(list)).await, 50);
    let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
    let until = Instant::now() + Duration::from_millis(800);
    call.extensions.insert(Arc::new(Ticket::until(until)));
    let waited = waited_ms(ClientRequest::CallToolRequest(call)).await;
    assert!(waited != 50 && waited <= 800, "{waited}");
    assert!(Instant::now() >= until);
}

const LONG: &str = "Canary-With-Capitals-And-Far-More-Letters-Than-Are-Shown";

/// How a server says what it was given, and how that is shown.
struct Canary {
    case: &'static str,
    answer: fn(&str) -> Vec<u8>,
    shown: &'static str,
}

impl Canary {
    fn all() -> Vec<Self> {
        fn error(request: &str) -> Vec<u8> {
            let id = id_of(request);
            let error = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"bad key s3cret-canary"}}}}"#
            );
            reply("200 OK", JSON, error.as_bytes())
        }
        let new = |case, answer, shown| Self { case, answer, shown };
        vec![
            new("error", error, "bad key [redacted]"),
            new(
                "encoding",
                |_| reply("200 OK", "content-encoding: s3cret-canary", b"{}"),
                "it is `[redacted]`, and only gzip was asked for",
            ),
            // What is shown of it is short, and what that left of a secret would not be known again.
            new(
                "long",
                |_| reply("200 OK", &format!("content-encoding: {LONG}"), b"{}"),
                "it is `[redacted]`, and only gzip was asked for",
            ),
            new(
                "elsewhere",
                |_| reply("301 Moved Permanently", "location: /s3cret-canary", b""),
                "/[redacted]` is the server's new address",
            ),
            // Where it leads is allowed to nobody, and is said, with the rule that would allow it.
            new(
                "away",
                |_| reply("307 Temporary Redirect", "location: http://s3cret-canary/", b""),
                "`http://[redacted]:80` is not allowed: no egress rule names this host",
            ),
            // A URL has its host in lower case.
            new(
                "away in capitals",
                |_| {
                    reply(
                        "307 Temporary Redirect",
                        "location: http://AbCd-Canary-5678/",
                        b"",
                    )
                },
                "`http://[redacted]:80` is not allowed: no egress rule names this host",
            ),
            // Its session is lost, and cannot be set up anew.
            new(
                "again",
                |request| match request.contains(r#""method":"initialize""#) {
                    true => error(request),
                    false => reply("404 Not Found", "content-type: text/plain", b"no such session"),
                },
                "bad key [redacted]",
            ),
        ]
    }

    /// A server that does so from the first request of `method` on.
    async fn server(&self, method: &'static str) -> Server {
        let (asked, answer, again) = (AtomicBool::default(), self.answer, self.case == "again");
        Server::new(move |request| {
            let is_asked = request.contains(&format!(r#""method":"{method}""#));
            let before = asked.fetch_or(is_asked, Ordering::SeqCst);
            if is_asked || (before && again && !request.starts_with("DELETE")) {
                return answer(request);
            }
            match request.contains(r#""method":"initialize""#) {
                true => {
                    let kind = format!("{JSON}\r\nmcp-session-id: s");
                    reply("200 OK", &kind, initialized(request).as_bytes())
                }
                false => self::legacy(request),
            }
        })
        .await
    }
}

/// The server with what it must not show.
fn given(server: &Server) -> HttpSpec {
    let mut spec = server.spec();
    for (name, value) in [
        ("Authorization", "Bearer s3cret-canary"),
        // One that is a part of another.
        ("x-short", "s3cret"),
        ("x-capitals", "AbCd-Canary-5678"),
        ("x-long", LONG),
        // What the hub itself says stays, whatever is a secret.
        ("x-a", "server"),
        ("x-b", "redirects"),
        ("x-c", "gzip"),
        ("x-d", "egress"),
    ] {
        spec.headers.insert(name.to_owned(), Template::literal(value));
    }
    spec
}

/// Many a server says the path of what it does not know, and some have a key in it.
#[tokio::test]
async fn no_failure_shows_what_is_left_out_of_the_url() {
    let server = Server::new(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let said = format!("Cannot POST {path}: the key {} is none", "Q".repeat(8));
        reply("404 Not Found", "content-type: text/plain", said.as_bytes())
    })
    .await;
    let mut spec = server.spec();
    spec.url
        .set_path("/s/9f8e7d6c5b4a392817069f8e7d6c5b4a/a-plain-and-long-word/mcp");
    spec.url.set_query(Some("key=QQQQQQQQ"));
    let mut hub = Hub::new(spec, Protocol::Initialize).await;
    let reason = hub.state("backing_off").await;
    assert!(
        reason.contains("POST /s/[redacted]/a-plain-and-long-word/mcp?key=[redacted]: the key [redacted] is"),
        "{reason}"
    );
}

/// A call that finds its session lost, which cannot be set up anew: the SDK says so with all that the server said.
#[tokio::test]
async fn no_fault_of_a_call_shows_what_the_server_was_given() {
    fn answer(request: &str) -> Vec<u8> {
        if !request.contains(r#""method":"initialize""#) {
            return reply("404 Not Found", "content-type: text/plain", b"no such session");
        }
        let (id, more) = (id_of(request), "no ".repeat(1 << 20));
        let message = format!("bad key s3cret-canary {more}");
        let error =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"{message}"}}}}"#);
        reply("200 OK", JSON, error.as_bytes())
    }
    let case = Canary {
        case: "again",
        answer,
        shown: "",
    };
    let server = case.server("tools/call").await;
    let mut hub = Hub::new(given(&server), Protocol::Initialize).await;
    hub.state("ready").await;
    let fault = hub.call("{}").await.unwrap_err().to_string();
    assert!(fault.contains("bad key [redacted] no no"), "{fault:.400}");
    assert!(!fault.contains("canary") && fault.len() < 400, "{fault:.400}");
}

/// The SDK logs these failures, with all that is in them.
#[tokio::test]
async fn no_failure_that_the_sdk_hears_of_shows_what_the_server_was_given() {
    for (status, head) in [
        ("200 OK", "content-type: s3cret-canary"),
        ("401 Unauthorized", "www-authenticate: Bearer s3cret-canary"),
        ("403 Forbidden", "www-authenticate: Bearer s3cret-canary"),
        ("429 Too Many", "retry-after: Bearer s3cret-canary"),
        ("503 Away", "retry-after: Bearer s3cret-canary"),
    ] {
        let server = Server::new(move |_| reply(status, head, b"")).await;
        let client = http_client(&given(&server), &NoEnvironment, terms()).unwrap();
        let url: Arc<str> = server.spec().url.as_str().into();
        let stream = client.get_stream(Arc::clone(&url), None, None, None, HashMap::new());
        let heard = format!("{:?}", stream.await.err().unwrap());
        let posted = post(&client, &server.spec().url, None, &Arc::default()).await;
        let heard = heard + &format!("{:?}", posted.unwrap_err());
        assert!(
            heard.contains("[redacted]") && !heard.contains("canary"),
            "{heard}"
        );
    }
}

/// A server may say anything in its errors, what it was given too: in those of JSON-RPC, and in what its answers make the
/// client say.
#[tokio::test]
async fn no_error_of_a_handshake_or_a_listing_shows_what_the_server_was_given() {
    for at in ["initialize", "tools/list"] {
        for canary in Canary::all() {
            let Canary { case, shown, .. } = canary;
            if (at, case) == ("initialize", "again") {
                continue;
            }
            let server = canary.server(at).await;
            let mut hub = Hub::new(given(&server), Protocol::Initialize).await;
            let (reason, told) = hub.told_until("backing_off").await;
            let told = told.join("\n");
            assert!(!told.to_lowercase().contains("canary"), "{case} at {at}: {told}");
            assert_eq!(
                told.contains("[redacted]"),
                case.starts_with("away"),
                "{case}: {told}"
            );
            assert_eq!(reason.matches(shown).count(), 1, "{case} at {at}: {reason}");
            assert!(
                !reason.to_lowercase().contains("canary"),
                "{case} at {at}: {reason}"
            );
            let ours = reason.replace(shown, "");
            assert!(
                case.starts_with("away") || !ours.contains("[redacted]"),
                "{case} at {at}: {reason}"
            );
        }
    }
}

/// An error may be as long as a message, and a state's reason is kept, told and logged.
#[tokio::test]
async fn no_error_of_a_handshake_or_a_listing_is_longer_than_a_person_reads() {
    for at in ["initialize", "tools/list"] {
        let error = |request: &str| {
            let (id, message) = (id_of(request), "no ".repeat(1 << 20));
            let error =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"{message}"}}}}"#);
            reply("200 OK", JSON, error.as_bytes())
        };
        let case = Canary {
            case: "error",
            answer: error,
            shown: "",
        };
        let mut hub = Hub::new(case.server(at).await.spec(), Protocol::Initialize).await;
        let reason = hub.state("backing_off").await;
        assert!(reason.contains("error -32000: no no no"), "{at}");
        assert!(
            reason.ends_with("no…") && reason.len() < 300,
            "{at}: {} bytes",
            reason.len()
        );
    }
}
