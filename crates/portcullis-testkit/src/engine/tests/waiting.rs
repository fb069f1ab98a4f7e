use super::*;
use crate::Era;

const LONG: u64 = 600_000;

fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

#[test]
fn a_slow_call_holds_up_nobody_and_ends_when_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cancelled");
    let script = Script::new("s")
        .at_eof(AtEof::Finish)
        .record_cancelled(&file)
        .tool(Tool::new(
            "t",
            Behaviour::delay(LONG, Behaviour::Text("too late".into())),
        ));
    let mut session = Session::open(&script);
    session.call("1", "{}");
    session.call(r#""two""#, "{}");
    session.check_silent();
    session.send(&cancel("1"));
    session.send(&cancel(r#""two""#));
    session.send(&cancel("404"));
    session.close();
    session.check_ended(ExitReason::EndOfInput);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "1\n\"two\"\n404\n");
}

#[test]
fn a_late_reply_comes_in_spite_of_a_cancellation() {
    let mut session = Session::with(Behaviour::LateReply {
        ms: 50,
        then: Box::new(Behaviour::Text("late".into())),
    });
    session.call("1", "{}");
    session.send(&cancel("1"));
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 1, "result": text_result("late")})
    );
}

#[test]
fn a_call_can_wait_for_its_own_cancellation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cancelled");
    let mut session = Session::with(Behaviour::UntilCancelled { file: file.clone() });
    session.call("1", "{}");
    session.call("2", "{}");
    session.send(&cancel("2"));
    session.send(&cancel("1"));
    session.close();
    session.check_ended(ExitReason::EndOfInput);
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "2"]);
}

#[test]
fn progress_goes_to_those_who_gave_a_token() {
    let then = Box::new(Behaviour::Text("done".into()));
    let mut session = Session::with(Behaviour::Progress {
        count: 2,
        interval_ms: 0,
        then,
    });
    let params = r#"{"name":"t","_meta":{"progressToken":"p"}}"#;
    session.send(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#
    ));
    for done in 1..=2 {
        let params = json!({"progressToken": "p", "progress": done, "total": 2});
        assert_eq!(
            session.reply(),
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        );
    }
    assert_eq!(session.reply()["result"], text_result("done"));
    session.call("2", "{}");
    assert_eq!(
        session.reply()["result"],
        text_result("done"),
        "without a token there is no progress"
    );
}

/// Calls a tool that asks the client, and compares the question, and the text that comes of the client's answer.
#[track_caller]
fn check_ask(behaviour: Behaviour, method: &str, params: Option<Value>, answer: &str, expected: &str) {
    let mut session = Session::with(behaviour);
    session.call("1", "{}");
    let question = session.reply();
    assert_eq!(
        (&question["id"], &question["method"]),
        (&json!("ask-0"), &json!(method))
    );
    if let Some(params) = params {
        assert_eq!(question["params"], params);
    }
    session.check_silent();
    session.send(&format!(r#"{{"jsonrpc":"2.0","id":"ask-0",{answer}}}"#));
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 1, "result": text_result(expected)})
    );
}

#[test]
fn questions_return_what_the_client_answers() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    check_ask(
        Behaviour::elicit("Who goes there?"),
        "elicitation/create",
        Some(json!({"message": "Who goes there?", "requestedSchema": schema})),
        r#""result":{ "action":"decline" }"#,
        r#"{"result":{ "action":"decline" }}"#,
    );
    let refusal = r#""error":{"code":-32601,"message":"no"}"#;
    let expected = format!("{{{refusal}}}");
    check_ask(
        Behaviour::ask_sampling(),
        "sampling/createMessage",
        None,
        refusal,
        &expected,
    );
    check_ask(
        Behaviour::ask_roots(),
        "roots/list",
        Some(json!({})),
        refusal,
        &expected,
    );
}

#[test]
fn a_client_that_does_not_answer_is_not_waited_for() {
    let ask = Behaviour::Ask {
        method: "x/y".into(),
        params: json!({}),
        wait_ms: 1,
    };
    let mut session = Session::with(ask);
    session.call("1", "{}");
    assert_eq!(session.reply()["method"], "x/y");
    let reply = session.reply();
    assert_eq!(reply["result"]["isError"], true, "{reply}");
    session.send(r#"{"jsonrpc":"2.0","id":"ask-0","result":{}}"#);
    session.check_silent();
}

#[test]
fn modern_questions_take_another_round() {
    let script = Script::new("s")
        .era(Era::Modern)
        .tool(Tool::new("t", Behaviour::elicit("Who?")));
    let mut session = Session::start(&script);
    session.send(&modern(1, "tools/call", json!({"name": "t"})));
    let reply = session.reply();
    let result = &reply["result"];
    assert_eq!(result["resultType"], "input_required", "{reply}");
    assert_eq!(
        result["inputRequests"]["answer"]["method"], "elicitation/create",
        "{reply}"
    );
    assert_eq!(
        result["inputRequests"]["answer"]["params"]["message"], "Who?",
        "{reply}"
    );
    let answers = json!({"answer": {"action": "decline"}});
    let again = json!({"name": "t", "inputResponses": answers, "requestState": result["requestState"]});
    session.send(&modern(2, "tools/call", again));
    let reply = session.reply();
    assert_eq!(
        reply["result"]["content"],
        text_result(r#"{"answer":{"action":"decline"}}"#)["content"]
    );
    assert_eq!(reply["result"]["resultType"], "complete");
}

#[test]
fn a_thousand_calls_at_once_have_a_thousand_answers() {
    let mut session = Session::with(Behaviour::delay(1, Behaviour::Echo));
    for id in 0..1_000 {
        session.call(&id.to_string(), &format!(r#"{{"n":{id}}}"#));
    }
    let mut answered: Vec<u64> = Vec::new();
    for _ in 0..1_000 {
        let reply = session.reply();
        let id = reply["id"].as_u64().unwrap();
        assert_eq!(reply["result"], text_result(&format!(r#"{{"n":{id}}}"#)));
        answered.push(id);
    }
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..1_000));
}

#[track_caller]
fn check_eof(at_eof: AtEof, behaviour: Behaviour, reply: bool, reason: ExitReason) {
    let mut session = Session::open(&Script::new("s").at_eof(at_eof).tool(Tool::new("t", behaviour)));
    session.call("1", "{}");
    session.check_silent();
    session.close();
    if reply {
        assert_eq!(session.reply()["id"], 1);
    }
    session.check_ended(reason);
}

#[test]
fn the_end_of_the_requests_does_what_is_scripted() {
    let slow = |ms| Behaviour::delay(ms, Behaviour::Text("here".into()));
    check_eof(AtEof::Exit, slow(LONG), false, ExitReason::EndOfInput);
    check_eof(AtEof::Finish, slow(300), true, ExitReason::EndOfInput);
    check_eof(
        AtEof::Finish,
        Behaviour::delay(300, Behaviour::crash(5)),
        false,
        ExitReason::Scripted(5),
    );
    check_eof(
        AtEof::Ignore,
        Behaviour::delay(300, Behaviour::crash(6)),
        false,
        ExitReason::Scripted(6),
    );
}
