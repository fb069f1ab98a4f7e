//! Calls through the gateway.

use portcullis_testkit::{Behaviour, Tool};

use super::*;

#[tokio::test]
async fn arguments_and_results_pass_word_for_word() {
    let raw = r#"{"content":[{"type":"video","n":1.10}],"structuredContent":{"big":123456789012345678901234567890},"extra":[1],"resultType":"complete"}"#;
    let script = Script::new("s")
        .tool(Tool::new("echo", Behaviour::Echo))
        .tool(Tool::new("raw", Behaviour::Raw(raw.into())));
    let mut client = Client::legacy(&script, "allow mcp.*\n").await;
    let arguments = r#"{"n":1.10,"big":123456789012345678901234567890, "s":"\u00e9"}"#;
    let answer = client.ask(&call(2, &client.alias("echo"), arguments)).await;
    assert_eq!(answer["result"]["content"][0]["text"], arguments, "{answer}");

    client.say(&call(3, &client.alias("raw"), "{}")).await;
    let line = client.answer().await;
    for part in [
        r#"{"type":"video","n":1.10}"#,
        r#"{"big":123456789012345678901234567890}"#,
        r#""id":3"#,
    ] {
        assert!(line.contains(part), "{line}");
    }
    // Not a word of the newer era to a client of the older one.
    assert!(!line.contains("resultType"), "{line}");
    // The capability's own name leads to the same tool.
    let answer = client.ask(&call(4, "mcp.s.echo", "{}")).await;
    assert_eq!(answer["result"]["content"][0]["text"], "{}");
}

/// Report 52: the model reads that a call was refused, and why; the reason is there as data too.
#[tokio::test]
async fn a_refusal_is_a_result_with_its_reason() {
    let script = ["denied", "asked"].iter().fold(Script::new("s"), |script, tool| {
        script.tool(Tool::new(tool, Behaviour::Echo))
    });
    let mut client = Client::legacy(&script, "default deny\nask mcp.s.asked\n").await;
    for (tool, code, said) in [
        ("denied", "denied", "denied: `mcp.s.denied`"),
        ("asked", "needs-approval", "team.rules:2"),
    ] {
        let answer = client.ask(&call(2, &client.alias(tool), "{}")).await;
        let result = &answer["result"];
        assert_eq!(result["isError"], true, "{answer}");
        assert!(
            result["content"][0]["text"].as_str().unwrap().contains(said),
            "{answer}"
        );
        assert_eq!(result["_meta"]["portcullis/error"]["code"], code);
    }
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_an_error_of_the_protocol() {
    let mut client = Client::legacy(&Script::new("s"), "allow mcp.*\n").await;
    for name in [
        "mcp__s_0000000000__t__0000000000",
        "mcp.s.t",
        "mcp.other.t",
        "nonsense",
        "",
    ] {
        let answer = client.ask(&call(2, name, "{}")).await;
        assert_eq!(answer["error"]["code"], -32602, "{name}: {answer}");
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains(&format!("`{name}`")),
            "{answer}"
        );
    }
}

/// A cancelled call ends at its server, and the client goes on.
#[tokio::test]
async fn a_cancellation_reaches_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("until");
    let script = Script::new("s")
        .tool(Tool::new(
            "wait",
            Behaviour::UntilCancelled { file: file.clone() },
        ))
        .tool(Tool::new("echo", Behaviour::Echo));
    let mut client = Client::legacy(&script, "allow mcp.*\n").await;
    let mut events = client.router.events();
    let mut hear = async |wanted: &str| {
        loop {
            let record = timeout(PATIENCE, events.next())
                .await
                .expect("no such event")
                .unwrap();
            let event = serde_json::to_value(&*record).unwrap();
            if event["event"] == wanted {
                return event;
            }
        }
    };
    client.say(&call(2, &client.alias("wait"), "{}")).await;
    hear("tool.call").await;
    client
        .say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#)
        .await;
    assert_eq!(hear("tool.result").await["outcome"], "cancelled");
    // This call follows the cancellation on the same pipe, so its answer shows that the server has had both.
    let answer = client.ask(&call(3, &client.alias("echo"), "{}")).await;
    assert_eq!(answer["id"], 3, "a cancelled call gets no answer: {answer}");
    let told = async {
        while std::fs::read_to_string(&file).unwrap_or_default().lines().count() != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, told).await.expect("the server was never told");
}

/// Calls do not wait for one another: the quick ones are answered while the slow one runs.
#[tokio::test]
async fn a_slow_call_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::new("s")
        .tool(Tool::new(
            "wait",
            Behaviour::UntilCancelled {
                file: folder.path().join("until"),
            },
        ))
        .tool(Tool::new("echo", Behaviour::Echo));
    let mut client = Client::legacy(&script, "allow mcp.*\n").await;
    client.say(&call(100, &client.alias("wait"), "{}")).await;
    for id in 0..50 {
        client
            .say(&call(id, &client.alias("echo"), &format!(r#"{{"n":{id}}}"#)))
            .await;
    }
    let mut ids = Vec::new();
    for _ in 0..50 {
        let answer: Value = serde_json::from_str(&client.answer().await).unwrap();
        let id = answer["id"].as_u64().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], format!(r#"{{"n":{id}}}"#));
        ids.push(id);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..50).collect::<Vec<_>>());
    // A client that leaves in the middle of a call ends it.
    client.leave().await.unwrap();
}
