use super::*;
use crate::{Discover, Era, Noises};

fn introduction(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "s", "version": "1.0.0"},
    })
}

#[track_caller]
fn check_version(asked: &str, answered: &str) {
    let mut session = Session::start(&Script::new("s"));
    session.send(&initialize(asked));
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 0, "result": introduction(answered)})
    );
}

#[test]
fn initialize_echoes_a_version_that_is_spoken() {
    check_version("2025-11-25", "2025-11-25");
    check_version("2024-11-05", "2024-11-05");
    check_version("2026-07-28", "2025-11-25");
    check_version("", "2025-11-25");
}

#[test]
fn introductions_can_be_scripted() {
    let mut script = Script::new("s");
    script.capabilities = Some(json!({"prompts": {}}));
    script.instructions = Some("Be brief.".to_owned());
    let mut session = Session::start(&script);
    session.send(&initialize("2025-11-25"));
    let result = &session.reply()["result"];
    assert_eq!(result["capabilities"], json!({"prompts": {}}));
    assert_eq!(result["instructions"], "Be brief.");
}

/// Sends `server/discover` and compares the whole reply without its envelope.
#[track_caller]
fn check_discover(era: Era, discover: Discover, expected: Value) {
    let mut session = Session::start(&Script::new("s").era(era).discover(discover));
    session.send(&modern(1, "server/discover", json!({})));
    let mut expected = expected;
    expected["jsonrpc"] = "2.0".into();
    expected["id"] = 1.into();
    assert_eq!(session.reply(), expected);
}

fn discovery(versions: &[&str]) -> Value {
    json!({"result": {
        "resultType": "complete",
        "supportedVersions": versions,
        "capabilities": {"tools": {"listChanged": true}},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"}},
    }})
}

#[test]
fn discover_is_answered_as_scripted() {
    let unknown = json!({"error": {"code": -32601, "message": "there is no method `server/discover`"}});
    check_discover(Era::Legacy, Discover::ByEra, unknown);
    check_discover(Era::Modern, Discover::ByEra, discovery(&["2026-07-28"]));
    let both = [
        "2026-07-28",
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05",
    ];
    check_discover(Era::Both, Discover::ByEra, discovery(&both));
    check_discover(Era::Legacy, Discover::EmptyResult, json!({"result": {}}));
    check_discover(Era::Modern, Discover::Raw("[1]".into()), json!({"result": [1]}));
    let error = Discover::Error {
        code: -32022,
        message: "not yet".into(),
    };
    check_discover(
        Era::Both,
        error,
        json!({"error": {"code": -32022, "message": "not yet"}}),
    );
}

#[test]
fn discover_can_be_met_with_silence_or_the_end() {
    let mut session = Session::start(&Script::new("s").discover(Discover::Silence));
    session.send(&modern(1, "server/discover", json!({})));
    session.check_silent();

    let mut session = Session::start(&Script::new("s").discover(Discover::Exit { code: 7 }));
    session.send(&modern(1, "server/discover", json!({})));
    session.check_ended(ExitReason::Scripted(7));
}

#[test]
fn modern_requests_need_no_session_but_their_meta() {
    let script = Script::new("s")
        .era(Era::Modern)
        .tool(Tool::new("t", Behaviour::Text("hi".into())));
    let mut session = Session::start(&script);
    session.send(&modern(1, "tools/call", json!({"name": "t"})));
    let mut result = text_result("hi");
    result["resultType"] = "complete".into();
    result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"}});
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 1, "result": result})
    );

    session.call("2", "{}");
    let message = "`_meta` lacks `io.modelcontextprotocol/protocolVersion`";
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 2, "error": {"code": -32602, "message": message}})
    );

    session.send(&modern(3, "tools/list", json!({})).replace("2026-07-28", "2031-01-01"));
    let error = &session.reply()["error"];
    assert_eq!(error["code"], -32022);
    assert_eq!(
        error["data"],
        json!({"requested": "2031-01-01", "supported": ["2026-07-28"]})
    );

    session.send(&initialize("2025-11-25"));
    assert_eq!(session.reply()["error"]["code"], -32601);
}

#[test]
fn legacy_requests_need_a_session() {
    let mut session = Session::start(
        &Script::new("s")
            .era(Era::Both)
            .tool(Tool::new("t", Behaviour::Echo)),
    );
    session.call("1", "{}");
    let message = "`tools/call` came before `initialize` was answered";
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": message}})
    );
    session.send(&initialize("2025-11-25"));
    session.reply();
    session.call("2", r#"{"a":1}"#);
    assert_eq!(
        session.reply()["result"],
        text_result(r#"{"a":1}"#),
        "a legacy result has no modern members"
    );
}

#[track_caller]
fn check_handshake(handshake: Handshake, expected: Value) {
    let mut session = Session::start(&Script::new("s").handshake(handshake));
    session.send(&initialize("2025-11-25"));
    let reply = session.reply();
    assert_eq!(
        (
            &reply["id"],
            &reply[expected.as_object().unwrap().keys().next().unwrap()]
        ),
        (&json!(0), {
            let (_, value) = expected.as_object().unwrap().iter().next().unwrap();
            value
        })
    );
}

#[test]
fn the_handshake_is_answered_as_scripted() {
    check_handshake(
        Handshake::AfterMs(1),
        json!({"result": introduction("2025-11-25")}),
    );
    check_handshake(
        Handshake::Raw(r#"{"odd":true}"#.into()),
        json!({"result": {"odd": true}}),
    );
    let error = Handshake::Error {
        code: -32603,
        message: "out of order".into(),
    };
    check_handshake(
        error,
        json!({"error": {"code": -32603, "message": "out of order"}}),
    );
}

#[track_caller]
fn check_end(handshake: Handshake, reason: ExitReason) {
    let mut session = Session::start(&Script::new("s").era(Era::Both).handshake(handshake));
    session.send(&modern(1, "server/discover", json!({})));
    session.close();
    session.check_ended(reason);
}

#[test]
fn the_handshake_can_be_the_end() {
    check_end(Handshake::Exit { code: 3 }, ExitReason::Scripted(3));
    // Nothing is said, not even to a ping, and the end of the requests is still the end of the server.
    check_end(Handshake::Hang, ExitReason::EndOfInput);

    let session = Session::start(&Script::new("s").handshake(Handshake::ExitAtStart { code: 4 }));
    session.check_ended(ExitReason::Scripted(4));
}

#[test]
fn a_server_that_hangs_says_nothing_at_all() {
    let mut session = Session::start(&Script::new("s").handshake(Handshake::Hang));
    session.send(&initialize("2025-11-25"));
    session.send(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    session.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    session.close();
    session.check_ended(ExitReason::EndOfInput);
}

#[test]
fn only_the_output_can_be_closed() {
    let mut session = Session::start(&Script::new("s").handshake(Handshake::CloseStdout));
    session.send(&initialize("2025-11-25"));
    session.check_output_ended();
    assert!(session.ended.try_recv().is_err(), "the server itself goes on");
    session.close();
    session.check_ended(ExitReason::EndOfInput);
}

#[test]
fn noise_comes_where_it_is_scripted() {
    let noise = Noises {
        at_start: vec![
            Noise::Line("** banner **".into()),
            Noise::Blank(2),
            Noise::BadUtf8,
        ],
        before_handshake: vec![Noise::ListChanged, Noise::Ping],
        after_handshake: vec![Noise::Line("ready".into())],
        before_list: vec![Noise::ListChanged],
        per_message: vec![Noise::LogLine],
    };
    let mut session = Session::start(&Script::new("s").noise(noise));
    let expect = |session: &Session, line: &[u8]| {
        assert_eq!(
            String::from_utf8_lossy(&session.line()),
            String::from_utf8_lossy(&[line, b"\n"].concat())
        );
    };
    for line in [&b"** banner **"[..], b"", b"", b"\xff\xfe is not text"] {
        expect(&session, line);
    }
    let log = br#"{"level":"info","message":"a line that is not for you"}"#;
    session.send(&initialize("2025-11-25"));
    expect(&session, log);
    expect(&session, LIST_CHANGED.as_bytes());
    expect(&session, br#"{"jsonrpc":"2.0","id":"ask-0","method":"ping"}"#);
    assert_eq!(session.reply()["id"], 0);
    expect(&session, b"ready");
    session.send(r#"{"jsonrpc":"2.0","id":"ask-0","result":{}}"#);
    expect(&session, log);
    session.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    expect(&session, log);
    expect(&session, LIST_CHANGED.as_bytes());
    assert_eq!(session.reply()["result"], json!({"tools": []}));
}
