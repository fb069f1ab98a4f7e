//! Handshakes, lists, and their changes.

use portcullis_router::{CallRequest, Catalog};
use portcullis_testkit::{Behaviour, CrashPoint, Shown, Tool};

use super::*;

#[tokio::test]
async fn a_legacy_client_shakes_hands_and_leaves() {
    let mut client = Client::new(&Script::new("s"), "allow mcp.*\n").await;
    let answer = client.initialize().await;
    assert_eq!(answer["id"], "init");
    let result = &answer["result"];
    assert_eq!(result["serverInfo"]["name"], "portcullis");
    assert_eq!(result["capabilities"], json!({"tools": {"listChanged": true}}));
    let pong = client.ask(&request(json!(7), "ping", &json!({}))).await;
    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    client.leave().await.unwrap();
}

#[tokio::test]
async fn a_modern_client_needs_no_session() {
    let script = Script::new("s").tool(Tool::new("t", Behaviour::Echo));
    let mut client = Client::new(&script, "allow mcp.*\n").await;
    let answer = client.ask(&modern(json!(1), "server/discover", json!({}))).await;
    let versions = answer["result"]["supportedVersions"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"));
    assert!(versions.contains(&json!(MODERN)), "{answer}");
    let answer = client.ask(&modern(json!(2), "tools/list", json!({}))).await;
    let result = &answer["result"];
    assert_eq!(result["tools"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(
        (&result["resultType"], &result["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    let params = json!({"name": client.alias("t"), "arguments": {"a": 1}});
    let answer = client.ask(&modern(json!(3), "tools/call", params)).await;
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"a":1}"#, "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete");
    client.leave().await.unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_before_the_handshake_is_no_error() {
    let client = Client::new(&Script::new("s"), "").await;
    client.leave().await.unwrap();
}

/// A client waits for the answer to each of its requests, and knows it by its id.
#[tokio::test]
async fn a_request_that_cannot_be_read_whole_is_answered_by_its_id() {
    let mut client = Client::legacy(&Script::new("s"), "allow mcp.*\n").await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let answer = client.ask(&call(41, "t", &deep)).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(41), &json!(-32600)),
        "{answer}"
    );
    assert_eq!(
        answer["error"]["message"],
        "the message is nested deeper than 127 levels"
    );
    let answer = client
        .ask(r#"{"jsonrpc":"2.0","id":42,"method":"ping","params":{},"params":{"a":1}}"#)
        .await;
    assert_eq!(answer["id"], 42, "{answer}");
    // As Python writes it.
    let answer = client.ask(&call(45, "t", r#"{"a":NaN}"#)).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(45), &json!(-32700)),
        "{answer}"
    );
    assert_eq!(
        client.ask(&request(json!(43), "ping", &json!({}))).await["id"],
        43
    );
    client.leave().await.unwrap();
}

/// What a client sends is its own: an error names what it is, and holds none of it.
#[tokio::test]
async fn a_first_message_that_opens_nothing_is_told_without_its_content() {
    let mut client = Client::new(&Script::new("s"), "allow mcp.*\n").await;
    let first = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"canary","progress":1}}"#;
    client.say(first).await;
    let told = client.leave().await.unwrap_err().to_string();
    assert!(
        told.contains("its first message is neither `initialize`"),
        "{told}"
    );
    assert!(
        !told.contains("canary") && !told.contains("Notification"),
        "{told}"
    );
}

/// Report 55: whatever a tool is called, the client sees a name that fits, and the definition word for word.
#[tokio::test]
async fn tools_are_listed_under_aliases_with_their_own_definitions() {
    let long = "x".repeat(100);
    let raw = r#"{"inputSchema":{"type":"object","n":1.10,"big":123456789012345678901234567890},"name":"odd / name","annotations":{"unknown":[1]},"_meta":{"own":"business"},"execution":{"own":"business"}}"#;
    let script = Script::new("s")
        .tool(Tool::new(&long, Behaviour::Echo))
        .tool(Tool::new("odd / name", Behaviour::Echo).raw(raw));
    let mut client = Client::legacy(&script, "allow mcp.*\n").await;
    client.say(&request(json!(1), "tools/list", &json!({}))).await;
    let line = client.answer().await;
    for kept in [
        r#"{"type":"object","n":1.10,"big":123456789012345678901234567890}"#,
        r#"{"unknown":[1]}"#,
    ] {
        assert!(line.contains(kept), "{line}");
    }
    assert!(!line.contains("business"), "{line}");
    let answer: Value = serde_json::from_str(&line).unwrap();
    let names: Vec<_> = answer["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    let mut expected = [client.alias(&long), client.alias("odd / name")];
    expected.sort_unstable();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    assert!(
        names
            .iter()
            .all(|name| name.len() <= 64 && name.starts_with("mcp__s_")),
        "{names:?}"
    );
    assert!(answer["result"].get("nextCursor").is_none());
    // The alias reaches the very tool.
    let answer = client.ask(&call(2, &client.alias(&long), r#"{"n":1}"#)).await;
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"n":1}"#);
}

#[tokio::test]
async fn a_cursor_that_was_never_given_out_is_refused() {
    let mut client = Client::legacy(&Script::new("s"), "allow mcp.*\n").await;
    for cursor in ["x", ""] {
        let answer = client
            .ask(&request(json!(1), "tools/list", &json!({"cursor": cursor})))
            .await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    assert_eq!(client.list().await, Vec::<Value>::new());
}

/// A server that offers other tools once its tool `change` was called.
fn changing() -> Script {
    Script::new("s")
        .tool(Tool::new("old", Behaviour::Echo).shown(Shown::BeforeChange))
        .tool(Tool::new("new", Behaviour::Echo).shown(Shown::AfterChange))
        .tool(Tool::new(
            "change",
            Behaviour::ListChanged {
                count: 1,
                interval_ms: 0,
            },
        ))
}

/// However early a client lists: what changes from the start on is told.
#[tokio::test]
async fn a_change_before_the_handshake_is_over_is_told() {
    let mut client = Client::new(&changing(), "allow mcp.*\n").await;
    let change = "mcp.s.change".parse().unwrap();
    client.router.call(CallRequest::new(change, "{}")).await.unwrap();
    let is_new = |catalog: &Arc<Catalog>| catalog.get(&"mcp.s.new".parse().unwrap()).is_some();
    let mut changes = client.router.catalog_changes();
    timeout(PATIENCE, changes.wait_for(is_new))
        .await
        .unwrap()
        .unwrap();
    client.initialize().await;
    let told: Value = serde_json::from_str(&client.line().await).unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
}

#[tokio::test]
async fn a_change_of_what_is_offered_is_told() {
    let mut client = Client::legacy(&changing(), "allow mcp.*\n").await;
    let (old, change) = (client.alias("old"), client.alias("change"));
    assert_eq!(client.list().await.len(), 2);
    client.ask(&call(5, &change, "{}")).await;
    if client.notifications.is_empty() {
        let told = client.line().await;
        client.notifications.push(serde_json::from_str(&told).unwrap());
    }
    assert_eq!(
        client.notifications[0]["method"],
        "notifications/tools/list_changed"
    );
    let names: Vec<_> = client
        .list()
        .await
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        names.contains(&client.alias("new")) && !names.contains(&old),
        "{names:?}"
    );
}

/// A server that comes back with the tools that it had is no change to a client.
#[tokio::test]
async fn a_server_that_comes_back_as_it_was_is_not_told() {
    let script = Script::new("s")
        .tool(Tool::new(
            "die",
            Behaviour::Crash {
                code: 1,
                point: CrashPoint::default(),
            },
        ))
        .tool(Tool::new("echo", Behaviour::Echo));
    let mut client = Client::legacy(&script, "allow mcp.*\n").await;
    let mut changes = client.router.catalog_changes();
    let pid = |catalog: &Catalog| catalog.servers().values().find_map(|server| server.pid);
    let before = pid(&client.router.catalog());
    assert!(before.is_some());
    client.ask(&call(2, &client.alias("die"), "{}")).await;
    let is_back = |catalog: &Arc<Catalog>| {
        let is_other = pid(catalog).is_some_and(|pid| Some(pid) != before);
        is_other
            && catalog
                .servers()
                .values()
                .all(|server| server.state.to_string() == "ready")
    };
    timeout(PATIENCE, changes.wait_for(is_back))
        .await
        .expect("it never came back")
        .unwrap();
    let answer = client.ask(&call(3, &client.alias("echo"), "{}")).await;
    assert_eq!(answer["id"], 3, "{answer}");
    assert_eq!(client.notifications, Vec::<Value>::new());
}

/// A client is no better than a server: what is not the protocol gets an answer or is dropped, and nothing ends.
#[tokio::test]
async fn nonsense_from_the_client_is_answered_and_survived() {
    let mut client = Client::legacy(&Script::new("s"), "allow mcp.*\n").await;
    let answer = client.ask("this is no JSON").await;
    assert_eq!(
        (&answer["error"]["code"], &answer["id"]),
        (&json!(-32700), &Value::Null),
        "{answer}"
    );
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":9,"method":"made/up"}"#).await;
    assert_eq!(
        (&answer["error"]["code"], &answer["id"]),
        (&json!(-32601), &json!(9)),
        "{answer}"
    );
    // A method that there is, with parameters that are none.
    for (method, params) in [("tools/call", json!({"name": 7})), ("tools/call", json!({}))] {
        let answer = client.ask(&request(json!(10), method, &params)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let told = answer["error"]["message"].as_str().unwrap();
        assert!(told.contains(method), "{answer}");
    }
    // Replies to nothing, and notifications of nothing.
    client.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    client
        .say(r#"{"jsonrpc":"2.0","method":"notifications/made_up"}"#)
        .await;
    assert_eq!(client.list().await, Vec::<Value>::new());
    client.leave().await.unwrap();
}

/// Who closes the end that answers come from, and goes on asking, is not served any more.
#[tokio::test]
async fn a_client_that_takes_no_answer_ends_the_gateway_with_an_error() {
    let router = hub(&Script::new("s"), "").await;
    let (mut speak, input) = duplex(64 * 1024);
    let (heard, output) = duplex(64 * 1024);
    let options = GatewayOptions::default();
    let served = tokio::spawn(portcullis_gateway::serve(
        Arc::clone(&router),
        options,
        input,
        output,
    ));
    let info = json!({"name": "hand", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    let hello = request(json!("init"), "initialize", &params);
    speak.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let mut heard = BufReader::new(heard).lines();
    timeout(PATIENCE, heard.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    drop(heard);
    let ping = request(json!(1), "ping", &json!({}));
    speak.write_all(format!("{ping}\n").as_bytes()).await.unwrap();
    // Its input stays open.
    let ended = timeout(PATIENCE, served).await.unwrap().unwrap();
    let Err(GatewayError::Output(why)) = ended else {
        panic!("{ended:?}")
    };
    assert!(!why.is_empty());
    router.shutdown().await.unwrap();
}

/// A client takes an answer for that of the request whose id it has, so no two may have one at a time.
#[tokio::test]
async fn each_request_is_answered_also_where_two_have_one_id() {
    let script = Script::new("s").tool(Tool::new("hang", Behaviour::Mute));
    let mut client = Client::legacy(&script, "allow mcp.*\n").await;
    let hang = call(7, &client.alias("hang"), "{}");
    client.say(&hang).await;
    let answer = client.ask(&request(json!(7), "ping", &json!({}))).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32600)),
        "{answer}"
    );
    let told = answer["error"]["message"].as_str().unwrap();
    assert!(told.contains("use a new one"), "{told}");
    // One that was answered is free again.
    for round in 0..2 {
        let answer = client.ask(&request(json!(8), "ping", &json!({}))).await;
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": 8, "result": {}}),
            "{round}"
        );
    }
    // One that was cancelled has no answer, and none that could be taken for it.
    let cancelled = json!({"requestId": 7});
    let line = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled});
    client.say(&line.to_string()).await;
    let answer = client.ask(&request(json!(7), "ping", &json!({}))).await;
    assert_eq!(answer["error"]["code"], json!(-32600), "{answer}");
    client.leave().await.unwrap();
}
