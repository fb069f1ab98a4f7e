//! Requests in, exact frames out, over pipes in memory.

mod bad_replies;
mod behaviours;
mod handshakes;
mod listings;
mod waiting;

use std::{
    io::{BufRead, BufReader, PipeWriter, Write, pipe},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::*;
use crate::{Behaviour, Tool};

/// Nothing that works takes so long; what does not work fails the test instead of hanging it.
const DEADLINE: Duration = Duration::from_secs(20);

/// A server under test and its client's end of the pipes.
pub(super) struct Session {
    requests: Option<PipeWriter>,
    replies: Receiver<Vec<u8>>,
    ended: Receiver<Result<ExitReason, Error>>,
}

impl Session {
    pub(super) fn start(script: &Script) -> Self {
        let (input, requests) = pipe().unwrap();
        let (output, served) = pipe().unwrap();
        let (tell, ended) = channel();
        let script = script.clone();
        thread::spawn(move || tell.send(serve(&script, input, served)));
        let (line, replies) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut bytes = Vec::new();
                if output.read_until(b'\n', &mut bytes).unwrap() == 0 || line.send(bytes).is_err() {
                    return;
                }
            }
        });
        Self {
            requests: Some(requests),
            replies,
            ended,
        }
    }

    /// A session that is through the legacy handshake.
    pub(super) fn open(script: &Script) -> Self {
        let mut session = Self::start(script);
        session.send(&initialize("2025-11-25"));
        session.reply();
        session.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        session
    }

    /// A session with a server that has one tool, `t`.
    pub(super) fn with(behaviour: Behaviour) -> Self {
        Self::open(
            &Script::new("s")
                .at_eof(AtEof::Finish)
                .tool(Tool::new("t", behaviour)),
        )
    }

    pub(super) fn send(&mut self, line: &str) {
        let requests = self.requests.as_mut().expect("the requests are still open");
        requests.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Calls the tool `t`.
    pub(super) fn call(&mut self, id: &str, arguments: &str) {
        let params = format!(r#"{{"name":"t","arguments":{arguments}}}"#);
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#
        ));
    }

    /// The next line, with its end.
    #[track_caller]
    pub(super) fn line(&self) -> Vec<u8> {
        self.replies.recv_timeout(DEADLINE).expect("a line in time")
    }

    #[track_caller]
    pub(super) fn reply(&self) -> Value {
        let line = self.line();
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
    }

    /// Checks that nothing is on its way: the next thing said is the answer to a ping that is sent now.
    #[track_caller]
    pub(super) fn check_silent(&mut self) {
        self.send(r#"{"jsonrpc":"2.0","id":"still there?","method":"ping"}"#);
        assert_eq!(
            self.reply(),
            json!({"jsonrpc": "2.0", "id": "still there?", "result": {}})
        );
    }

    /// Ends the requests.
    pub(super) fn close(&mut self) {
        self.requests = None;
    }

    /// Waits for the end of the output, and checks that nothing more was said.
    #[track_caller]
    pub(super) fn check_output_ended(&self) {
        let end = self.replies.recv_timeout(DEADLINE);
        assert_eq!(end, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }

    /// Waits for the server's end.
    #[track_caller]
    pub(super) fn check_ended(&self, reason: ExitReason) {
        assert_eq!(
            self.ended
                .recv_timeout(DEADLINE)
                .expect("an end in time")
                .unwrap(),
            reason
        );
        self.check_output_ended();
    }
}

pub(super) fn initialize(version: &str) -> String {
    let params =
        json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

/// A request of revision 2026-07-28.
pub(super) fn modern(id: u32, method: &str, mut params: Value) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params.as_object_mut().unwrap().insert("_meta".to_owned(), meta);
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

pub(super) fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

#[test]
fn what_is_no_message_is_refused_and_the_session_goes_on() {
    let mut session = Session::with(Behaviour::Echo);
    session.send("");
    session.send("{broken");
    let reply = session.reply();
    assert_eq!(
        (&reply["id"], &reply["error"]["code"]),
        (&Value::Null, &json!(-32700)),
        "{reply}"
    );
    session.send(r#"[{"jsonrpc":"2.0","id":9,"method":"ping"}]"#);
    assert_eq!(
        session.reply()["error"]["message"],
        "not a JSON-RPC message: an array"
    );
    session.send(r#"{"jsonrpc":"2.0","id":9,"method":"prompts/list"}"#);
    let error = json!({"code": -32601, "message": "there is no method `prompts/list`"});
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 9, "error": error})
    );
    session.send(r#"{"jsonrpc":"2.0","id":"of nobody","result":{}}"#);
    session.check_silent();
    session.close();
    session.check_ended(ExitReason::EndOfInput);
}

#[test]
fn scripted_methods_are_answered_word_for_word() {
    let mut session = Session::open(&Script::new("s").method("prompts/list", r#"{"prompts":[],"n":1e400}"#));
    session.send(r#"{"jsonrpc":"2.0","id":9,"method":"prompts/list"}"#);
    let expected = "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"prompts\":[],\"n\":1e400}}\n";
    assert_eq!(String::from_utf8(session.line()).unwrap(), expected);
}

#[test]
fn each_message_that_arrives_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("received");
    let mut session = Session::start(&Script::new("s").record_received(&file));
    session.send(r#"{"jsonrpc":"2.0",  "id":5,"method":"ping"}"#);
    session.reply();
    session.send(r#"{"broken"#);
    session.reply();
    let received = std::fs::read_to_string(file).unwrap();
    assert_eq!(
        received,
        "{\"jsonrpc\":\"2.0\",  \"id\":5,\"method\":\"ping\"}\n{\"broken\n"
    );
}

#[test]
fn a_script_out_of_bounds_is_not_played() {
    let script = Script::new("s").tool(Tool::new("t", Behaviour::delay(600_001, Behaviour::Echo)));
    let error = serve(&script, std::io::empty(), std::io::sink()).unwrap_err();
    assert!(matches!(error, Error::TooMuch { .. }), "{error}");
}

#[test]
fn a_reader_that_went_away_does_not_stop_the_server() {
    let (output, served) = pipe().unwrap();
    drop(output);
    let requests = format!("{}\n{}\n", initialize("2025-11-25"), initialize("2025-11-25"));
    let reason = serve(&Script::new("s"), std::io::Cursor::new(requests), served).unwrap();
    assert_eq!(reason, ExitReason::EndOfInput);
}
