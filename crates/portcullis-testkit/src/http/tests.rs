use std::{
    io::{BufRead, Read},
    time::Duration,
};

use super::*;
use crate::{Behaviour, Tool};

/// A client that speaks as plainly as can be: one request a connection.
struct Client(SocketAddr);

impl Client {
    fn send(&self, method: &str, session: &str, body: &str) -> TcpStream {
        #[expect(clippy::disallowed_methods, reason = "a test of a server on loopback")]
        let mut stream = TcpStream::connect(self.0).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let session = if session.is_empty() {
            String::new()
        } else {
            format!("Mcp-Session-Id: {session}\r\n")
        };
        let length = body.len();
        write!(
            stream,
            "{method} /mcp HTTP/1.1\r\nconnection: close\r\n{session}content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// The whole answer, head and body.
    fn ask(&self, method: &str, session: &str, body: &str) -> String {
        let mut answer = String::new();
        let _ = self.send(method, session, body).read_to_string(&mut answer);
        answer
    }

    fn initialize(&self) -> String {
        let answer = self.ask(
            "POST",
            "",
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
        );
        let mut lines = answer.lines();
        let id = lines.find_map(|line| line.strip_prefix("mcp-session-id: "));
        id.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

fn call(id: u32, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

fn script() -> Script {
    Script::new("s")
        .tool(Tool::new("greet", Behaviour::Text("Hello!".to_owned())))
        .tool(Tool::new(
            "slow",
            Behaviour::delay(300, Behaviour::Text("At last".to_owned())),
        ))
        .tool(Tool::new(
            "change",
            Behaviour::ListChanged {
                count: 2,
                interval_ms: 1,
            },
        ))
        .tool(Tool::new(
            "garbage",
            Behaviour::BadReply(crate::BadReply::NotANumber),
        ))
        .tool(Tool::new("crash", Behaviour::crash(3)))
}

#[test]
fn replies_come_as_events_or_as_one_body() {
    for (replies, kind) in [
        (HttpReplies::Events, "text/event-stream"),
        (HttpReplies::Json, "application/json"),
    ] {
        let server = HttpServer::start(&script(), replies).unwrap();
        let client = Client(server.address());
        let session = client.initialize();
        let answer = client.ask("POST", &session, &call(2, "greet"));
        assert!(answer.contains(kind) && answer.contains("Hello!"), "{answer}");
        let told = client.ask(
            "POST",
            &session,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        assert!(told.starts_with("HTTP/1.1 202"), "{told}");
        // Two at once: each gets its own.
        let slow = client.send("POST", &session, &call(3, "slow"));
        let quick = client.ask("POST", &session, &call(4, "greet"));
        assert!(quick.contains("Hello!") && !quick.contains("At last"), "{quick}");
        let slow = io::read_to_string(slow).unwrap();
        assert!(slow.contains("At last"), "{slow}");
        // What is no reply is still the answer to the only one who waits.
        let garbage = client.ask("POST", &session, &call(5, "garbage"));
        assert!(garbage.contains("NaN"), "{garbage}");
    }
}

#[test]
fn what_the_server_says_meanwhile_comes_before_the_reply_or_to_who_listens() {
    let server = HttpServer::start(&script(), HttpReplies::Events).unwrap();
    let client = Client(server.address());
    let session = client.initialize();
    let answer = client.ask("POST", &session, &call(2, "change"));
    assert_eq!(answer.matches("list_changed").count(), 2, "{answer}");

    let server = HttpServer::start(&script(), HttpReplies::Json).unwrap();
    let client = Client(server.address());
    let session = client.initialize();
    // Nobody listens yet: it is kept for whoever does.
    client.ask("POST", &session, &call(2, "change"));
    let mut listening = BufReader::new(client.send("GET", &session, ""));
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        listening.read_line(&mut line).unwrap();
    }
    let answer = client.ask("POST", &session, &call(3, "greet"));
    assert!(answer.contains("Hello!"), "{answer}");
    client.ask("POST", &session, &call(4, "change"));
    drop(server);
    let mut rest = String::new();
    // The stream breaks off with the server, and not by the time that the client waits.
    let ended = listening.read_to_string(&mut rest);
    assert!(
        ended.map_err(|error| error.kind()) != Err(io::ErrorKind::WouldBlock),
        "it stands although the server is gone"
    );
    assert_eq!(rest.matches("list_changed").count(), 4, "{rest}");
}

#[test]
fn a_session_that_ended_is_not_known_and_others_are() {
    let server = HttpServer::start(&script(), HttpReplies::Events).unwrap();
    let client = Client(server.address());
    let (one, other) = (client.initialize(), client.initialize());
    assert_ne!(one, other);
    let broken = client.ask("POST", &one, &call(2, "crash"));
    assert!(!broken.ends_with("0\r\n\r\n"), "it breaks off: {broken}");
    assert!(
        client
            .ask("POST", &one, &call(3, "greet"))
            .starts_with("HTTP/1.1 404")
    );
    assert!(client.ask("POST", &other, &call(3, "greet")).contains("Hello!"));
    let mut listening = client.send("GET", &other, "");
    assert!(client.ask("DELETE", &other, "").starts_with("HTTP/1.1 204"));
    // Who listens to it hears its end.
    let ended = listening.read_to_string(&mut String::new());
    assert!(ended.map_err(|error| error.kind()) != Err(io::ErrorKind::WouldBlock));
    assert!(
        client
            .ask("POST", &other, &call(4, "greet"))
            .starts_with("HTTP/1.1 404")
    );
    for (method, body, status) in [
        ("POST", "{", "400"),
        ("PUT", "", "405"),
        ("GET", "", "405"),
        ("DELETE", "", "404"),
    ] {
        let answer = client.ask(method, "", body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{method}: {answer}"
        );
    }
}
