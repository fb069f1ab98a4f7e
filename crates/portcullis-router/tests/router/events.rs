//! What is told of a call, and what never is.

use portcullis_testkit::{BadReply, Behaviour, Tool};
use serde_json::{Value, json};

use super::*;

const CANARY: &str = "canary-7391";

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn each_call_tells_its_way_in_order() {
    let script = Script::new("s")
        .tool(Tool::new("good", Behaviour::Echo))
        .tool(Tool::new("bad", Behaviour::Error(CANARY.to_owned())))
        .tool(Tool::new(
            "rpc",
            Behaviour::JsonRpcError {
                code: -32000,
                message: format!("no {CANARY}"),
            },
        ))
        .tool(Tool::new(
            "unusable",
            Behaviour::BadReply(BadReply::StringErrorCode),
        ))
        .tool(Tool::new("asked", Behaviour::Echo))
        .tool(Tool::new("image", Behaviour::image(100_000, 7)));
    let rules = "default deny\nallow mcp.s.*\nask mcp.s.asked\ndeny mcp.s.denied\n";
    let mut rig = Rig::start(&script.tool(Tool::new("denied", Behaviour::Echo)), rules, None).await;
    let arguments = format!(r#"{{"secret":"{CANARY}"}}"#);
    let ran: &[&str] = &["permission", "tool.call", "tool.result"];
    for (tool, told, outcome) in [
        ("good", ran, "ok"),
        ("bad", ran, "tool-error"),
        ("rpc", ran, "upstream-error"),
        ("unusable", ran, "bad-reply"),
        ("image", ran, "ok"),
        ("denied", &["permission", "tool.result"], "denied"),
        (
            "asked",
            &["permission", "approval", "tool.result"],
            "needs-approval",
        ),
        ("nothing", &["tool.result"], "unknown-tool"),
    ] {
        let _ = rig.call(tool, &arguments).await;
        let events = rig.told();
        assert_eq!(kinds(&events), told, "{tool}");
        let last = events.last().unwrap();
        assert_eq!(last["outcome"], outcome, "{tool}");
        assert!(
            events.iter().all(|event| event["call"] == last["call"]),
            "{tool}: one call, one number"
        );
        assert!(
            events
                .iter()
                .all(|event| event["capability"] == format!("mcp.s.{tool}")),
            "{tool}"
        );
        // What is wrong with it may be told in the server's own words.
        assert!(tool != "unusable" || last.get("error").is_none(), "{last}");
        if tool == "image" {
            let blob = &last["blobs"][0];
            assert_eq!(blob["sizeBytes"], json!(100_000), "{blob}");
            assert!(blob.to_string().contains("blake3:"), "{blob}");
        }
    }
    let mut events = rig
        .heard
        .iter()
        .map(|record| serde_json::to_value(&**record).unwrap());
    let denied = events
        .rfind(|event| event["decision"]["answer"] == "deny")
        .unwrap();
    assert_eq!(denied["decision"]["policies"][0]["line"], 4);

    // The numbers have no gap, and no argument or result stands anywhere.
    let numbers: Vec<u64> = rig.heard.iter().map(|record| record.seq).collect();
    let first = numbers[0];
    assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>());
    let all: String = rig
        .heard
        .iter()
        .map(|record| serde_json::to_string(&**record).unwrap())
        .collect();
    assert!(!all.contains(CANARY), "{all}");
}

/// What cannot be decided on is told of without its values, and no name of the caller's ends a line.
#[tokio::test]
async fn arguments_that_are_refused_and_names_that_are_odd_stand_on_one_line_without_a_value() {
    let odd = "odd\n{\"seq\":1,\"event\":\"approval\"}";
    let script = Script::new("s").tool(Tool::new(odd, Behaviour::Echo));
    let mut rig = Rig::start(&script, "allow mcp.*\n", None).await;
    for (arguments, outcome) in [
        (format!(r#"{{"k":"{CANARY}","k":1}}"#), "denied"),
        (format!(r#"{{"k":{CANARY}}}"#), "denied"),
        (format!(r#"["{CANARY}"]"#), "denied"),
        (
            format!(r#"{{"k":{}"{CANARY}"{}}}"#, "[".repeat(70), "]".repeat(70)),
            "denied",
        ),
        (format!(r#"{{"k":"{CANARY}"}}"#), "ok"),
    ] {
        let _ = rig.call(odd, &arguments).await;
        let told = rig.told();
        assert_eq!(told.last().unwrap()["outcome"], outcome, "{arguments}");
    }
    for record in &rig.heard {
        let line = serde_json::to_string(&**record).unwrap();
        assert!(!line.contains(CANARY) && !line.contains('\n'), "{line}");
    }
}

/// A caller that goes away ends its call, and that is told too.
#[tokio::test]
async fn a_call_whose_caller_is_gone_is_told_as_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("until");
    let script = Script::new("s").tool(Tool::new("t", Behaviour::UntilCancelled { file }));
    let mut rig = Rig::start(&script, "allow mcp.*\n", None).await;
    let router = Arc::clone(&rig.router);
    let call = tokio::spawn(async move {
        router
            .call(CallRequest::new("mcp.s.t".parse().unwrap(), "{}"))
            .await
    });
    rig.until(|event| event["event"] == "tool.call").await;
    call.abort();
    rig.until(|event| event["event"] == "tool.result" && event["outcome"] == "cancelled")
        .await;
}

#[tokio::test]
async fn the_life_of_a_server_is_told() {
    let script = Script::new("s").tool(Tool::new("crash", Behaviour::crash(3)));
    let mut rig = Rig::start(&script, "allow mcp.*\n", None).await;
    rig.call("crash", "{}").await.unwrap_err();
    rig.until(|event| event["event"] == "server.state" && event["to"] == "backing_off")
        .await;
    rig.until(|event| event["event"] == "server.state" && event["to"] == "ready" && event["pid"].is_u64())
        .await;
    rig.router.shutdown().await.unwrap();
    // All of it is told by then.
    let rest: Vec<_> = std::iter::from_fn(|| rig.events.try_next()).collect();
    let stopped = |record: &Arc<EventRecord>| serde_json::to_value(record).unwrap()["to"] == "stopped";
    assert!(rest.iter().any(stopped), "{rest:?}");
    assert_eq!(
        rig.router.catalog().servers().values().next().unwrap().state,
        portcullis_supervisor::ServerState::Stopped
    );
}

/// Text that hides something is told of with its result, where nobody sees the text itself.
#[tokio::test]
async fn what_a_reader_should_know_of_a_result_stands_in_its_event() {
    let text = "a\u{202e}b\u{1b}[31m\u{e0041}\u{200b}";
    let result = json!({"content": [{"type": "text", "text": text}, {"type": "image", "data": "no base64!"}], "isError": 0});
    let script = Script::new("s").tool(Tool::new("odd", Behaviour::Raw(result.to_string())));
    let mut rig = Rig::start(&script, "default deny\nallow mcp.s.*\n", None).await;
    rig.call("odd", "{}").await.unwrap();
    let events = rig.told();
    let flags = &events.last().unwrap()["flags"];
    let expected =
        json!({"bidi": 1, "control": 1, "tags": 1, "invisible": 1, "undecoded": 1, "repaired": true});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(flags[name], *value, "{name} in {flags}");
    }
    for name in [
        "loneSurrogates",
        "lenientBase64",
        "leftInline",
        "foreignReferences",
    ] {
        assert_eq!(flags[name], 0, "{name} in {flags}");
    }
    assert!(!events.iter().any(|event| event.to_string().contains("[31m")));
}
