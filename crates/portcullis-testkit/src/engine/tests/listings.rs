use super::*;
use crate::{Era, ListReply, Page, Paging, Shown};

fn three() -> Script {
    let tool = |name| Tool::new(name, Behaviour::Echo).raw(&format!("\"{name}\""));
    Script::new("s").tool(tool("a")).tool(tool("b")).tool(tool("c"))
}

/// Asks for the page at a cursor and compares the result.
#[track_caller]
fn check(session: &mut Session, cursor: Option<&str>, expected: Value) {
    let params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
    session.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": params}).to_string());
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 3, "result": expected})
    );
}

#[track_caller]
fn check_no_page(session: &mut Session, cursor: &str) {
    let params = json!({"cursor": cursor});
    session.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": params}).to_string());
    let message = format!("there is no page at the cursor `{cursor}`");
    assert_eq!(
        session.reply()["error"],
        json!({"code": -32602, "message": message})
    );
}

#[test]
fn a_tool_is_listed_with_all_its_members() {
    let tool = Tool::new("t", Behaviour::Echo)
        .title("T")
        .describe("d")
        .takes(&[("x", "string", "an x")])
        .output_schema(json!({"type": "object"}))
        .annotations(json!({"readOnlyHint": "yes"}))
        .meta(json!({"k": 1}));
    let schema = json!({"type": "object", "required": ["x"],
        "properties": {"x": {"type": "string", "description": "an x"}}});
    let listed = json!({"name": "t", "title": "T", "description": "d", "inputSchema": schema,
        "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": "yes"}, "_meta": {"k": 1}});
    let plain = json!({"name": "u", "inputSchema": {"type": "object"}});
    let script = Script::new("s").tool(tool).tool(Tool::new("u", Behaviour::Echo));
    check(
        &mut Session::open(&script),
        None,
        json!({"tools": [listed, plain]}),
    );
}

#[test]
fn malformed_entries_are_listed_word_for_word() {
    let script = Script::new("s")
        .tool(Tool::new("a", Behaviour::Echo).raw(r#"{"name": null}"#))
        .tool(Tool::new("b", Behaviour::Echo).raw("{broken"));
    let mut session = Session::open(&script);
    session.send(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#);
    let expected = "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"tools\":[{\"name\": null},{broken]}}\n";
    assert_eq!(String::from_utf8(session.line()).unwrap(), expected);
}

#[test]
fn the_whole_list_has_one_page() {
    let mut session = Session::open(&three());
    check(&mut session, None, json!({"tools": ["a", "b", "c"]}));
    check_no_page(&mut session, "more");
}

#[test]
fn pages_of_a_size_follow_one_another() {
    let mut session = Session::open(&three().paging(Paging::Size(2)));
    check(
        &mut session,
        None,
        json!({"tools": ["a", "b"], "nextCursor": "at-2"}),
    );
    check(&mut session, Some("at-2"), json!({"tools": ["c"]}));
    check_no_page(&mut session, "at-9");
    check_no_page(&mut session, "");
    let mut session = Session::open(&three().paging(Paging::Size(3)));
    check(&mut session, None, json!({"tools": ["a", "b", "c"]}));
}

#[test]
fn scripted_pages_can_go_round() {
    let page = |at: Option<&str>, tools: &[usize], next: &str| Page {
        at: at.map(str::to_owned),
        tools: tools.to_vec(),
        next: Some(next.to_owned()),
    };
    let pages = vec![
        page(None, &[0], ""),
        page(Some(""), &[1], "x"),
        page(Some("x"), &[2, 0], ""),
    ];
    let mut session = Session::open(&three().paging(Paging::Pages(pages)));
    check(&mut session, None, json!({"tools": ["a"], "nextCursor": ""}));
    check(&mut session, Some(""), json!({"tools": ["b"], "nextCursor": "x"}));
    check(
        &mut session,
        Some("x"),
        json!({"tools": ["c", "a"], "nextCursor": ""}),
    );
    check_no_page(&mut session, "y");
}

#[test]
fn an_endless_list_has_always_a_new_cursor() {
    let mut session = Session::open(&three().paging(Paging::Endless));
    check(
        &mut session,
        None,
        json!({"tools": ["a", "b", "c"], "nextCursor": "page-1"}),
    );
    check(
        &mut session,
        Some("page-1"),
        json!({"tools": [], "nextCursor": "page-2"}),
    );
    check(
        &mut session,
        Some("page-99"),
        json!({"tools": [], "nextCursor": "page-100"}),
    );
}

#[test]
fn the_list_is_answered_as_scripted() {
    check(
        &mut Session::open(&three().list_reply(ListReply::AfterMs(1))),
        None,
        json!({"tools": ["a", "b", "c"]}),
    );
    check(
        &mut Session::open(&three().list_reply(ListReply::Raw("7".into()))),
        None,
        json!(7),
    );
    let request = r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#;
    let mut session = Session::open(&three().list_reply(ListReply::Silence));
    session.send(request);
    session.check_silent();
    let error = ListReply::Error {
        code: -32603,
        message: "no list".into(),
    };
    let mut session = Session::open(&three().list_reply(error));
    session.send(request);
    assert_eq!(
        session.reply()["error"],
        json!({"code": -32603, "message": "no list"})
    );
}

#[test]
fn modern_lists_say_how_long_they_hold() {
    let mut session = Session::start(&three().era(Era::Modern).paging(Paging::Size(2)));
    session.send(&modern(3, "tools/list", json!({})));
    let meta = json!({"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"}});
    let result = json!({"tools": ["a", "b"], "nextCursor": "at-2", "resultType": "complete", "ttlMs": 0,
        "cacheScope": "private", "_meta": meta});
    assert_eq!(
        session.reply(),
        json!({"jsonrpc": "2.0", "id": 3, "result": result})
    );
}

/// A server whose tools change once `t` is called.
fn changing(count: u64) -> Script {
    let tool = |name: &str, text: &str, shown| {
        Tool::new(name, Behaviour::Text(text.into()))
            .raw(text)
            .shown(shown)
    };
    Script::new("s")
        .tool(
            Tool::new(
                "t",
                Behaviour::ListChanged {
                    count,
                    interval_ms: 0,
                },
            )
            .raw("0"),
        )
        .tool(tool("v", "1", Shown::BeforeChange))
        .tool(tool("v", "2", Shown::AfterChange))
        .tool(tool("w", "3", Shown::AfterChange))
}

#[test]
fn tools_change_before_the_last_notification() {
    let mut session = Session::open(&changing(3));
    check(&mut session, None, json!({"tools": [0, 1]}));
    session.call("1", "{}");
    for _ in 0..3 {
        assert_eq!(session.line(), format!("{LIST_CHANGED}\n").into_bytes());
    }
    assert_eq!(session.reply()["result"], text_result("sent 3 notifications"));
    check(&mut session, None, json!({"tools": [0, 2, 3]}));
    session.send(r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"v"}}"#);
    assert_eq!(
        session.reply()["result"],
        text_result("2"),
        "the call follows the list"
    );
}

#[test]
fn modern_clients_hear_of_changes_where_they_listen() {
    let mut session = Session::start(&changing(1).era(Era::Modern));
    let listen = |id, wanted| modern(id, "subscriptions/listen", json!({"notifications": wanted}));
    let call = modern(9, "tools/call", json!({"name": "t"}));
    let subscribed = |id: u32, method: &str, mut params: Value| {
        params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
        json!({"jsonrpc": "2.0", "method": method, "params": params})
    };
    let acknowledged = "notifications/subscriptions/acknowledged";
    session.send(&listen(
        1,
        json!({"toolsListChanged": true, "promptsListChanged": true}),
    ));
    assert_eq!(
        session.reply(),
        subscribed(
            1,
            acknowledged,
            json!({"notifications": {"toolsListChanged": true}})
        )
    );
    session.send(&listen(2, json!({"promptsListChanged": true})));
    assert_eq!(
        session.reply(),
        subscribed(2, acknowledged, json!({"notifications": {}}))
    );

    session.send(&call);
    assert_eq!(
        session.reply(),
        subscribed(1, "notifications/tools/list_changed", json!({}))
    );
    assert_eq!(session.reply()["id"], 9);

    session.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    session.send(&call);
    assert_eq!(session.reply()["id"], 9, "nobody listens any more");
}

#[test]
fn a_list_that_fails_once_the_tools_have_changed() {
    let error = ListReply::ErrorAfterChange {
        code: -32603,
        message: "no list any more".into(),
    };
    let mut session = Session::open(&changing(1).list_reply(error));
    check(&mut session, None, json!({"tools": [0, 1]}));
    session.call("1", "{}");
    assert_eq!(session.line(), format!("{LIST_CHANGED}\n").into_bytes());
    session.reply();
    session.send(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#);
    assert_eq!(
        session.reply()["error"],
        json!({"code": -32603, "message": "no list any more"})
    );
}

#[test]
fn a_server_that_ends_in_its_listing() {
    let list = r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#;
    let mut session = Session::open(&three().list_reply(ListReply::Exit { code: 5 }));
    session.send(list);
    session.check_output_ended();
    session.check_ended(ExitReason::Scripted(5));

    let mut session = Session::open(&three().list_reply(ListReply::ThenExit { code: 6 }));
    session.send(list);
    assert_eq!(session.reply()["id"], json!(3));
    session.check_output_ended();
    session.check_ended(ExitReason::Scripted(6));
}
