use super::*;
use crate::{CrashPoint, base64, pseudo_random};

/// Calls a tool of this behaviour and compares the whole result.
#[track_caller]
fn check(behaviour: Behaviour, arguments: &str, expected: Value) {
    let mut session = Session::with(behaviour);
    session.call("7", arguments);
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 7, "result": expected})
    );
    session.check_silent();
}

#[test]
fn plain_results() {
    check(Behaviour::Text("hi".into()), "{}", text_result("hi"));
    check(Behaviour::Sum, r#"{"a":2,"b":40.5,"c":"x"}"#, text_result("42.5"));
    check(Behaviour::Pid, "{}", text_result(&std::process::id().to_string()));
    check(Behaviour::Raw(r#"{"any":[]}"#.into()), "{}", json!({"any": []}));
    check(Behaviour::NoContent, "{}", json!({}));
    let failed = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    check(Behaviour::Error("no".into()), "{}", failed);
    let mut structured = text_result(r#"{"a":1}"#);
    structured["structuredContent"] = json!({"a": 1});
    check(Behaviour::Structured(json!({"a": 1})), "{}", structured);
    check(
        Behaviour::UnknownBlock,
        "{}",
        json!({"content": [
            {"type": "text", "text": "before"},
            {"type": "resource_link", "uri": "scripted://notes/1", "name": "a note"},
            {"type": "video", "uri": "scripted://film/1", "frames": 24},
            {"type": "text", "text": "after"},
        ]}),
    );
}

#[test]
fn templates_are_filled_once() {
    let template = || Behaviour::Template("{a} and {b}, {missing} {".into());
    check(
        template(),
        r#"{"a":"{b}","b":[1, 2]}"#,
        text_result("{b} and [1,2], {missing} {"),
    );
    check(template(), "7", text_result("{a} and {b}, {missing} {"));
}

#[test]
fn echo_returns_the_arguments_word_for_word() {
    let arguments =
        r#"{ "big":123456789012345678901234567890.10, "e":1E400 ,"dup":1,"dup":2,"s":"\u0041\/"}"#;
    check(Behaviour::Echo, arguments, text_result(arguments));
    let mut session = Session::with(Behaviour::Echo);
    session.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#);
    assert_eq!(session.reply()["result"], text_result("{}"));
}

#[test]
fn env_returns_the_whole_environment() {
    let mut session = Session::with(Behaviour::Env);
    session.call("1", "{}");
    let reply = session.reply();
    let text = reply["result"]["content"][0]["text"].as_str().unwrap();
    let shown: std::collections::BTreeMap<String, String> = serde_json::from_str(text).unwrap();
    assert!(shown.contains_key("CARGO_MANIFEST_DIR"), "{text}");
}

#[test]
fn binary_content_is_what_the_seed_says() {
    let data = |media_type, bytes, seed| base64(&pseudo_random(media_type, bytes, seed));
    let picture = data("image/png", 100_000, 5);
    let image = json!({"type": "image", "data": picture, "mimeType": "image/png"});
    check(Behaviour::image(100_000, 5), "{}", json!({"content": [image]}));
    let twin = json!({"content": [image], "structuredContent": {"image": {"data": picture, "mimeType": "image/png"}}});
    check(
        Behaviour::Twin {
            bytes: 100_000,
            seed: 5,
        },
        "{}",
        twin,
    );
    let audio = json!({"type": "audio", "data": data("audio/wav", 33, 6), "mimeType": "audio/wav"});
    check(
        Behaviour::Audio { bytes: 33, seed: 6 },
        "{}",
        json!({"content": [audio]}),
    );
    let media_type = "application/octet-stream";
    let blob = json!({"uri": "scripted://blob/7", "mimeType": media_type, "blob": data(media_type, 32, 7)});
    let block = json!({"type": "resource", "resource": blob});
    check(
        Behaviour::EmbeddedBlob { bytes: 32, seed: 7 },
        "{}",
        json!({"content": [block]}),
    );
}

#[track_caller]
fn check_error(name: &str, behaviour: Behaviour, code: i64, message: &str) {
    let mut session = Session::open(&Script::new("s").tool(Tool::new("t", behaviour)));
    let params = json!({"name": name});
    session.send(&json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}).to_string());
    let error = json!({"code": code, "message": message});
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": "x", "error": error})
    );
}

#[test]
fn errors_of_the_protocol() {
    check_error(
        "t",
        Behaviour::JsonRpcError {
            code: -32603,
            message: "oh".into(),
        },
        -32603,
        "oh",
    );
    check_error("other", Behaviour::Echo, -32602, "there is no tool `other`");
}

#[test]
fn a_mute_tool_never_replies() {
    let mut session = Session::with(Behaviour::Mute);
    session.call("1", "{}");
    session.check_silent();
    session.close();
    session.check_ended(ExitReason::EndOfInput);
}

#[test]
fn a_tool_can_close_the_output() {
    let mut session = Session::with(Behaviour::CloseStdout);
    session.call("1", "{}");
    session.check_output_ended();
    assert!(session.ended.try_recv().is_err(), "the server itself goes on");
    session.close();
    session.check_ended(ExitReason::EndOfInput);
}

#[track_caller]
fn check_crash(behaviour: Behaviour, said: &str) {
    let mut session = Session::with(behaviour);
    session.call("1", "{}");
    if !said.is_empty() {
        assert_eq!(String::from_utf8(session.line()).unwrap(), said);
    }
    session.check_ended(ExitReason::Scripted(9));
}

#[test]
fn a_crash_comes_before_in_or_after_the_reply() {
    // The order of a block's members depends on how the JSON library was built.
    let block = serde_json::json!({"type": "text", "text": "and that was all"});
    let whole = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[{block}]}}}}"#);
    check_crash(
        Behaviour::Crash {
            code: 9,
            point: CrashPoint::AfterReply,
        },
        &format!("{whole}\n"),
    );
    check_crash(
        Behaviour::Crash {
            code: 9,
            point: CrashPoint::MidReply,
        },
        whole.split_at(whole.len() / 2).0,
    );
    check_crash(Behaviour::crash(9), "");
    check_crash(Behaviour::delay(1, Behaviour::crash(9)), "");
}

#[test]
fn nothing_is_answered_after_a_crash() {
    let mut session = Session::with(Behaviour::crash(9));
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    session.send(&format!("{call}\n{ping}"));
    session.check_ended(ExitReason::Scripted(9));
}

#[test]
fn a_call_is_on_the_disk_before_the_server_dies() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls");
    check(
        Behaviour::record(&file, Behaviour::Text("noted".into())),
        r#"{"a": 1}"#,
        text_result("noted"),
    );
    check_crash(Behaviour::record(&file, Behaviour::crash(9)), "");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "7 {\"a\": 1}\n1 {}\n");
}

#[test]
fn log_messages_come_before_the_reply() {
    let mut session = Session::with(Behaviour::log(2));
    session.call("1", "{}");
    for _ in 0..2 {
        let message = session.reply();
        assert_eq!(
            (&message["method"], &message["id"]),
            (&json!("notifications/message"), &Value::Null)
        );
        assert_eq!(message["params"]["level"], "info");
    }
    assert_eq!(session.reply()["result"], text_result("logged"));
}
