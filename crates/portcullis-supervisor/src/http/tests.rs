use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture};
use portcullis_config::{HttpSpec, NoEnvironment, Template};
use portcullis_egress::{EgressLog, EgressRules, GuardedClient, Resolver};
use rmcp::{
    RoleClient, ServiceExt,
    model::{
        CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ListToolsRequest,
        RequestId, ServerJsonRpcMessage, ServerResult,
    },
    service::PeerRequestOptions,
    transport::streamable_http_client::{
        StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
    },
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{Complaint, HttpTerms, client::GuardedHttp, connect::http_client, connect_http};
use crate::{
    ticket::{Ticket, WireFault},
    transport::RawArguments,
};

mod absent;
mod anew;
mod crowds;
mod floods;
mod proxied;
mod strays;
mod streams;
mod strings;
mod supervised;
mod waiting;

/// A server that answers each request with what `answer` says of it, and closes.
struct Server {
    address: SocketAddr,
    /// Head and body of each request, in one text.
    seen: Arc<Mutex<Vec<String>>>,
    listening: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn new(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), answer).await
    }

    async fn at(address: SocketAddr, answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let (all, answer) = (Arc::clone(&seen), Arc::new(answer));
        let listening = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (all, answer) = (Arc::clone(&all), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Some(request) = request_of(&mut stream).await else {
                        return;
                    };
                    let reply = answer(&request);
                    all.lock().unwrap().push(request);
                    let _ = stream.write_all(&reply).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self {
            address,
            seen,
            listening,
        }
    }

    /// Takes no more connections, from now on.
    async fn stop(self) {
        self.listening.abort();
        let _ = self.listening.await;
    }

    fn spec(&self) -> HttpSpec {
        spec(self.address)
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// One whole request; none where the connection ends before.
async fn request_of(stream: &mut tokio::net::TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !whole(&bytes) {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    body.len() >= length.unwrap_or(0)
}

fn spec(address: SocketAddr) -> HttpSpec {
    let url = Url::parse(&format!("http://{address}/mcp")).unwrap();
    HttpSpec::new(url, vec![format!("http://{address}").parse().unwrap()])
}

/// What a test that looks at none of it connects with.
fn terms() -> HttpTerms {
    HttpTerms {
        hub: None,
        log: EgressLog::default(),
        closed: CancellationToken::new(),
        tools_changed: Arc::default(),
        calls_in_flight: 64,
        patience: Duration::from_secs(10),
        complaint: Complaint::default(),
        spool: None,
        counters: Arc::default(),
        params: Arc::default(),
    }
}

fn reply(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

const JSON: &str = "content-type: application/json; charset=utf-8";
const EVENTS: &str = "content-type: text/event-stream";

fn call(ticket: &Arc<Ticket>) -> ClientJsonRpcMessage {
    let mut request = CallToolRequest::new(CallToolRequestParams::new("t"));
    request.extensions.insert(RawArguments(r#"{"n":1.10}"#.into()));
    request.extensions.insert(Arc::clone(ticket));
    ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(7))
}

async fn post(
    client: &GuardedHttp,
    url: &Url,
    session: Option<&str>,
    ticket: &Arc<Ticket>,
) -> Result<StreamableHttpPostResponse, StreamableHttpError<super::client::GuardedError>> {
    client
        .post_message(
            url.as_str().into(),
            call(ticket),
            session.map(Into::into),
            None,
            HashMap::new(),
        )
        .await
}

/// What the SDK's caller would see of a call: `raw <text>`, `error <message>`, `accepted`, or the failure; with the
/// fault that the ticket tells, and whether the call counts as sent.
async fn outcome(answer: Vec<u8>, session: Option<&str>) -> (String, Option<WireFault>, bool) {
    let server = Server::new(move |_| answer.clone()).await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    let ticket = Arc::new(Ticket::default());
    let text = match post(&client, &server.spec().url, session, &ticket).await {
        Ok(StreamableHttpPostResponse::Accepted) => "accepted".to_owned(),
        Ok(StreamableHttpPostResponse::Json(message, _)) => seen_by_the_caller(&message),
        Ok(StreamableHttpPostResponse::Sse(mut events, _)) => {
            let mut last = "nothing".to_owned();
            while let Some(event) = events.next().await {
                match event {
                    // As the SDK does it: what it cannot parse, it drops.
                    Ok(event) => {
                        let data = event.data.unwrap_or_default();
                        if let Ok(message) = serde_json::from_str::<ServerJsonRpcMessage>(&data) {
                            last = seen_by_the_caller(&message);
                        }
                    }
                    Err(error) => last = error.to_string(),
                }
            }
            last
        }
        Ok(_) => "unknown".to_owned(),
        Err(error) => format!("failure {error:?}"),
    };
    let sent = !ticket.withdraw();
    (text, ticket.fault().cloned(), sent)
}

fn seen_by_the_caller(message: &ServerJsonRpcMessage) -> String {
    match message {
        ServerJsonRpcMessage::Response(response) => match &response.result {
            ServerResult::CustomResult(custom) => match &custom.0 {
                Value::String(raw) => format!("{} raw {raw}", response.id),
                other => format!("not raw: {other}"),
            },
            other => format!("not raw: {other:?}"),
        },
        ServerJsonRpcMessage::Error(error) => {
            format!(
                "{} error {} {}",
                error.id.as_ref().unwrap(),
                error.error.code.0,
                error.error.message
            )
        }
        other => format!("{other:?}"),
    }
}

async fn check(answer: Vec<u8>, expected: &str) {
    let (text, _, sent) = outcome(answer.clone(), None).await;
    assert!(
        text.contains(expected),
        "{}\ngave: {text}\nnot:  {expected}",
        String::from_utf8_lossy(&answer)
    );
    assert!(sent, "the server had the request");
}

#[tokio::test]
async fn a_result_comes_up_word_for_word() {
    let raw = r#"{"n":1.10,"big":123456789012345678901234567890,"tools":[],"content":[{"type":"new"}]}"#;
    let message = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{raw}}}"#);
    let expected = format!("7 raw {raw}");
    check(reply("200 OK", JSON, message.as_bytes()), &expected).await;
    check(
        reply("200 OK", EVENTS, format!("data: {message}\n\n").as_bytes()),
        &expected,
    )
    .await;
    // A server whose last blank line is missing has said all the same.
    check(
        reply(
            "200 OK",
            EVENTS,
            format!("id: 1\n\n: hi\nevent: message\ndata: {message}").as_bytes(),
        ),
        &expected,
    )
    .await;
    for twisted in [
        format!(r#"{{"result":{raw},"id":"7"}}"#),
        format!(r#"[{{"jsonrpc":"2.0","id":7,"result":{raw}}}]"#),
        format!("{{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 7,\n  \"result\": {raw}\n}}\n"),
    ] {
        check(reply("200 OK", JSON, twisted.as_bytes()), &expected).await;
        let lines = twisted.replace("\r\n", "\n").trim_end().replace('\n', "\ndata: ");
        check(
            reply("200 OK", EVENTS, format!("data: {lines}\n\n").as_bytes()),
            &expected,
        )
        .await;
    }
    // A string as result is raw as well: it comes up as the text of a JSON string.
    check(
        reply("200 OK", JSON, br#"{"jsonrpc":"2.0","id":7,"result":"x"}"#),
        "7 raw \"x\"",
    )
    .await;
}

#[tokio::test]
async fn what_comes_beside_the_result_does_not_hide_it() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let message = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    check(
        reply("200 OK", JSON, format!("[{progress},{message}]").as_bytes()),
        "7 raw {}",
    )
    .await;
    let events =
        format!("data: banner\n\ndata: {progress}\n\nevent: ping\ndata: {{}}\n\ndata: {message}\n\n");
    check(reply("200 OK", EVENTS, events.as_bytes()), "7 raw {}").await;
}

#[tokio::test]
async fn a_reply_that_cannot_be_used_fails_its_call_and_says_why() {
    let cases: &[(&[u8], &str)] = &[
        (br#"{"jsonrpc":"2.0","id":7,"result":NaN}"#, "not JSON"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}", "not UTF-8"),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"a\nb\"}",
            "broken off",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"x"}}"#,
            "both",
        ),
        (
            br#"{"jsonrpc":"2.0","id":8,"result":{}}"#,
            "the id `8`, which no request has",
        ),
        (br#"{"jsonrpc":"2.0","id":null,"result":{}}"#, "null"),
        (br#"{"jsonrpc":"2.0","id":7}"#, "neither"),
    ];
    for (body, part) in cases {
        let event = [b"data: ".as_slice(), &body.replace_newline(), b"\n\n"].concat();
        for answer in [reply("200 OK", JSON, body), reply("200 OK", EVENTS, &event)] {
            let (text, fault, sent) = outcome(answer, None).await;
            assert!(
                text.starts_with("7 error -32603") && text.contains(part),
                "{text} without {part}"
            );
            assert!(
                matches!(&fault, Some(WireFault::Unusable(reason)) if reason.contains(part)),
                "{fault:?}"
            );
            assert!(sent);
        }
    }
    let (text, fault, _) = outcome(reply("200 OK", JSON, b""), None).await;
    assert_eq!(text, "7 error -32603 the answer holds no reply to the request");
    assert!(matches!(fault, Some(WireFault::Unusable(_))));
}

trait ReplaceNewline {
    fn replace_newline(&self) -> Vec<u8>;
}

impl ReplaceNewline for [u8] {
    /// A line of data after another, as an event stream writes a newline.
    fn replace_newline(&self) -> Vec<u8> {
        self.iter()
            .flat_map(|byte| {
                if *byte == b'\n' {
                    b"\ndata: ".to_vec()
                } else {
                    vec![*byte]
                }
            })
            .collect()
    }
}

#[tokio::test]
async fn an_error_of_the_server_is_its_own() {
    for (status, body) in [
        (
            "200 OK",
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool"}}"#,
        ),
        (
            "400 Bad Request",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no such tool"}}"#,
        ),
        (
            "500 Oops",
            r#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"no such tool"}}"#,
        ),
    ] {
        let (text, fault, _) = outcome(reply(status, JSON, body.as_bytes()), None).await;
        assert_eq!(
            (text.as_str(), fault),
            ("7 error -32602 no such tool", None),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_status_is_told_for_what_it_is() {
    let html = "content-type: text/html";
    let login = "www-authenticate: Bearer realm=\"x\"";
    for (answer, failure, part) in [
        (
            reply("401 Unauthorized", login, b""),
            "AuthRequired",
            "login: the server answered with status 401 Unauthorized (`Bearer realm=\"x\"`)",
        ),
        (
            reply("403 Forbidden", login, b""),
            "InsufficientScope",
            "login: the server answered with status 403 Forbidden (`Bearer",
        ),
        (
            reply("401 Unauthorized", html, b"no"),
            "UnexpectedServerResponse",
            "login: the server answered with status 401 Unauthorized: no",
        ),
        (
            reply("403 Forbidden", html, b"not you"),
            "UnexpectedServerResponse",
            "unusable: the server answered with status 403 Forbidden: not you",
        ),
        (
            reply("400 Bad Request", html, b"bad\x1b[31m\nthing"),
            "UnexpectedServerResponse",
            "400 Bad Request: bad [31m thing",
        ),
        (
            reply("404 Not Found", html, b""),
            "UnexpectedServerResponse",
            "status 404 Not Found",
        ),
        (
            reply("429 Too Many", "retry-after: 7", b""),
            "retry_after: Some(\"7\")",
            "overloaded for Some(7s): the server answered with status 429 Too Many Requests; it asks to be tried again \
             after `7`",
        ),
        (
            reply("503 Away", "retry-after: Fri, 31 Dec 1999 23:59:59 GMT", b""),
            "HttpStatus",
            // It may come from what stands before the server, after the call was passed on.
            "unusable: the server answered with status 503 Service Unavailable; it asks to be tried again after `Fri,",
        ),
        (
            reply("500 Oops", html, b""),
            "HttpStatus",
            "unusable: the server answered with status 500",
        ),
        (
            reply("200 OK", html, b"<html>"),
            "UnexpectedServerResponse",
            "of the type `text/html`",
        ),
    ] {
        let (text, fault, sent) = outcome(answer, None).await;
        assert!(
            text.starts_with("failure") && text.contains(failure),
            "{text} is no {failure}"
        );
        let fault = match fault.unwrap() {
            WireFault::Unusable(reason) => format!("unusable: {reason}"),
            WireFault::LoginNeeded(reason) => format!("login: {reason}"),
            WireFault::Overloaded(reason, after) => format!("overloaded for {after:?}: {reason}"),
            WireFault::Closed(reason) => format!("closed: {reason}"),
        };
        assert!(fault.contains(part), "{fault} without {part}");
        assert!(sent);
    }
}

/// The reply may come on the stream of a session; without one there is none, and a call would wait for its deadline.
#[tokio::test]
async fn an_answer_that_is_no_reply_is_one_only_where_another_stream_may_bring_it() {
    for status in ["202 Accepted", "204 No Content"] {
        let answer = reply(status, "content-type: text/html", b"");
        let (text, fault, sent) = outcome(answer.clone(), Some("s1")).await;
        assert_eq!((text.as_str(), fault, sent), ("accepted", None, true));
        let (_, fault, sent) = outcome(answer, None).await;
        assert!(
            matches!(&fault, Some(WireFault::Unusable(told)) if told.contains(status) && told.contains("no reply")),
            "{fault:?}"
        );
        assert!(sent);
    }
}

/// These say that nothing was done, whatever their body says.
#[tokio::test]
async fn a_status_that_turns_a_call_away_is_told_before_the_error_in_its_body() {
    let error = br#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool"}}"#;
    for (status, told) in [
        ("401 Unauthorized", "LoginNeeded"),
        ("403 Forbidden", "Unusable"),
        ("429 Too Many", "Overloaded"),
    ] {
        let (text, fault, _) = outcome(reply(status, JSON, error), None).await;
        let fault = format!("{:?}", fault.unwrap());
        assert!(
            text.starts_with("failure") && fault.starts_with(told),
            "{status}: {text} {fault}"
        );
    }
}

#[tokio::test]
async fn a_lost_session_leaves_the_call_unsent() {
    let (text, fault, sent) = outcome(reply("404 Not Found", JSON, b"{}"), Some("s1")).await;
    assert_eq!(
        (text.as_str(), fault, sent),
        ("failure SessionExpired", None, false)
    );
}

#[tokio::test]
async fn a_stream_that_ends_early_tells_the_call() {
    for (stream, told) in [
        ("data: {\"a\"\n\n", true),
        (": nothing\n\n", true),
        ("id: 4\ndata:\n\n", false),
    ] {
        let (text, fault, sent) = outcome(reply("200 OK", EVENTS, stream.as_bytes()), None).await;
        // With an event's id, the SDK goes on where the stream broke off.
        assert_eq!(
            matches!(fault, Some(WireFault::Closed(_) | WireFault::Unusable(_))),
            told,
            "{text} {fault:?}"
        );
        assert!(sent);
    }
}

#[tokio::test]
async fn a_connection_that_is_not_made_leaves_the_call_unsent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let spec = spec(listener.local_addr().unwrap());
    drop(listener);
    let client = http_client(&spec, &NoEnvironment, terms()).unwrap();
    let ticket = Arc::new(Ticket::default());
    let error = post(&client, &spec.url, None, &ticket).await.unwrap_err();
    assert!(
        matches!(&error, StreamableHttpError::Client(error) if error.is_not_sent()),
        "{error}"
    );
    assert!(ticket.withdraw());
    let Some(WireFault::Closed(reason)) = ticket.fault() else {
        panic!("{:?}", ticket.fault())
    };
    assert!(
        reason.contains("cannot be connected to") && reason.contains("refused"),
        "{reason}"
    );
    // Withdrawn, it never goes out.
    let server = Server::new(|_| reply("202 Accepted", JSON, b"")).await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    assert!(post(&client, &server.spec().url, None, &ticket).await.is_err());
    assert!(server.seen().is_empty());
}

/// A name of which these are the addresses, one time after the other; the last one for ever.
struct Leads(Mutex<Vec<Option<&'static str>>>);

impl Resolver for Leads {
    fn resolve(&self, _: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let mut all = self.0.lock().unwrap();
        let next = if all.len() > 1 { all.remove(0) } else { all[0] };
        Box::pin(async move {
            let address = next.ok_or_else(|| std::io::Error::other("no answer"))?;
            Ok(vec![address.parse().unwrap()])
        })
    }
}

/// A client of the server at this address, by a name that leads so.
fn by_name(address: SocketAddr, leads: &[Option<&'static str>]) -> (GuardedHttp, Url) {
    let name = format!("http://name.test:{}", address.port());
    let rules = [name.clone(), format!("http://{address}")];
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let client = GuardedClient::builder(EgressRules::new(rules))
        .resolver(Leads(Mutex::new(leads.to_vec())))
        .build()
        .unwrap();
    let url = Url::parse(&format!("{name}/mcp")).unwrap();
    (GuardedHttp::new(client, terms()), url)
}

/// Where a name leads may change: then the connection is of no use, and a call would wait for a newer one.
#[tokio::test]
async fn a_server_whose_address_is_allowed_no_more_is_not_ready() {
    let (client, url) = by_name("127.0.0.1:9".parse().unwrap(), &[Some("10.0.0.9")]);
    let ticket = Arc::new(Ticket::default());
    let error = post(&client, &url, None, &ticket).await.unwrap_err();
    assert!(error.to_string().contains("`10.0.0.9`"), "{error}");
    assert!(ticket.withdraw() && client.terms.closed.is_cancelled());
    assert!(client.terms.complaint.last().unwrap().contains("`10.0.0.9`"));
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_is_sent_once_more_after_a_moment_and_then_the_server_is_gone() {
    let server = Server::new(|_| reply("200 OK", JSON, br#"{"jsonrpc":"2.0","id":7,"result":{}}"#)).await;
    for (leads, requests) in [(&[None, Some("127.0.0.1")][..], 1), (&[None], 0)] {
        let (client, url) = by_name(server.address, leads);
        let began = tokio::time::Instant::now();
        let posted = post(&client, &url, None, &Arc::default()).await;
        assert_eq!(posted.is_ok(), requests == 1, "{posted:?}");
        assert!(began.elapsed() >= Duration::from_millis(250));
        assert_eq!(client.terms.closed.is_cancelled(), posted.is_err());
    }
    assert_eq!(server.seen().len(), 1);
    // So it is where a stream is asked for that stands.
    let (client, url) = by_name(server.address, &[None]);
    let stream = client.get_stream(url.as_str().into(), None, None, None, HashMap::new());
    assert!(stream.await.is_err() && client.terms.closed.is_cancelled());
}

#[tokio::test]
async fn arguments_and_configured_headers_go_out_as_they_are() {
    let server = Server::new(|_| reply("200 OK", JSON, br#"{"jsonrpc":"2.0","id":7,"result":{}}"#)).await;
    let mut spec = server.spec();
    spec.headers
        .insert("X-Api-Key".to_owned(), Template::literal("k3y"));
    spec.headers
        .insert("Authorization".to_owned(), Template::literal("Bearer t0ken"));
    let client = http_client(&spec, &NoEnvironment, terms()).unwrap();
    post(&client, &spec.url, Some("s1"), &Arc::default())
        .await
        .unwrap();
    let seen = server.seen().remove(0);
    for part in [
        "POST /mcp ",
        "x-api-key: k3y",
        "authorization: Bearer t0ken",
        "mcp-session-id: s1",
        "accept: application/json, text/event-stream",
        "content-type: application/json",
        r#""arguments":{"n":1.10}"#,
    ] {
        assert!(seen.contains(part), "{seen} without {part}");
    }
}

#[test]
fn what_cannot_be_set_up_is_said_before_anything_is_sent() {
    let address = "127.0.0.1:9".parse().unwrap();
    for (name, value, part) in [
        ("Mcp-Session-Id", "x", "headers.Mcp-Session-Id: the protocol"),
        ("Accept", "x", "headers.Accept: the protocol"),
        ("Mcp-Param-Region", "x", "headers.Mcp-Param-Region: the protocol"),
        ("Host", "evil.example", "`host` may not be set"),
        ("a b", "x", "headers.a b: this is no name"),
        ("X-Key", "a\nb", "headers.X-Key: its value"),
        (
            "X-Key",
            "${env:UNSET}",
            "headers.X-Key: the variable `UNSET` is not set",
        ),
    ] {
        let mut spec = spec(address);
        spec.headers.insert(name.to_owned(), Template::parse(value));
        let error = http_client(&spec, &NoEnvironment, terms())
            .err()
            .map(|error| error.to_string())
            .unwrap();
        assert!(error.contains(part), "{error} without {part}");
        assert!(!error.contains("evil"));
    }
    let mut elsewhere = spec(address);
    elsewhere.egress = vec!["example.com".parse().unwrap()].into();
    let error = http_client(&elsewhere, &NoEnvironment, terms())
        .err()
        .map(|error| error.to_string())
        .unwrap();
    assert!(error.contains("add `http://127.0.0.1:9/`"), "{error}");
}

/// A server of the older era, with a session, that answers calls on an event stream and lists as JSON.
fn legacy(request: &str) -> Vec<u8> {
    let session = "content-type: application/json\r\nmcp-session-id: s1";
    let id = || {
        let body = request.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str::<Value>(body).unwrap()["id"].clone()
    };
    match request {
        _ if request.starts_with("GET") => reply("405 No", JSON, b""),
        _ if request.starts_with("DELETE") => reply("200 OK", JSON, b""),
        _ if request.contains(r#""method":"initialize""#) => reply(
            "200 OK",
            session,
            format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}"#,
                id()
            )
            .as_bytes(),
        ),
        _ if request.contains(r#""method":"tools/list""#) => reply(
            "200 OK",
            JSON,
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"tools":[{{"name":7}}],"x":1.0}}}}"#, id()).as_bytes(),
        ),
        _ if request.contains(r#""method":"tools/call""#) => reply(
            "200 OK",
            EVENTS,
            format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":1.0}}}}\n\n", id()).as_bytes(),
        ),
        _ => reply("202 Accepted", JSON, b""),
    }
}

#[tokio::test]
async fn the_sdk_shakes_hands_lists_and_calls_over_it() {
    let server = Server::new(legacy).await;
    let transport = connect_http(&server.spec(), &NoEnvironment, terms()).unwrap();
    let running = tokio::time::timeout(Duration::from_secs(10), ().serve(transport))
        .await
        .unwrap()
        .unwrap();
    let ask = async |request: ClientRequest| {
        let handle = running
            .peer()
            .send_request_with_option(request, PeerRequestOptions::no_options())
            .await
            .unwrap();
        match handle.await_response().await.unwrap() {
            ServerResult::CustomResult(custom) => custom.0,
            other => panic!("{other:?}"),
        }
    };
    // Neither would survive the SDK's own types.
    let list = ask(ClientRequest::ListToolsRequest(ListToolsRequest::default())).await;
    assert_eq!(
        list,
        Value::String(r#"{"tools":[{"name":7}],"x":1.0}"#.to_owned())
    );
    let call = ask(ClientRequest::CallToolRequest(CallToolRequest::new(
        CallToolRequestParams::new("t"),
    )))
    .await;
    assert_eq!(call, Value::String(r#"{"content":1.0}"#.to_owned()));
    assert!(
        server
            .seen()
            .iter()
            .any(|seen| seen.contains("mcp-session-id: s1") && seen.contains("tools/call"))
    );
    running.cancel().await.unwrap();
    assert!(
        server
            .seen()
            .iter()
            .any(|seen| seen.starts_with("DELETE") && seen.contains("mcp-session-id: s1"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_keeps_ending_empty_is_opened_ever_more_slowly() {
    // Nothing at all, a comment, and an event that only names the place to go on from.
    let bodies = [&b""[..], b": hi\n\n", b"id: 1\nretry: 1\ndata:\n\n"];
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::new(move |_| {
        let turn = turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        reply("200 OK", EVENTS, bodies[turn % bodies.len()])
    })
    .await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    let url: Arc<str> = server.spec().url.as_str().into();
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let began = tokio::time::Instant::now();
        let stream = client
            .get_stream(Arc::clone(&url), None, None, None, HashMap::new())
            .await
            .unwrap();
        stream.count().await;
        pauses.push(began.elapsed().as_millis());
    }
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert!(pauses[9] >= 30_000 && pauses[9] < 31_000, "{pauses:?}");
}

const _: fn() = || {
    fn is_transport<T: rmcp::transport::Transport<RoleClient>>(_: T) {}
    let _ = |spec: HttpSpec| connect_http(&spec, &NoEnvironment, terms()).map(is_transport);
};
