//! `portcullis serve --stdio`, with a client of a few lines that speaks raw JSON-RPC.

use std::collections::BTreeMap;

use portcullis_e2e::{Client, Folder, check_gone, is_gone, pids};
use portcullis_testkit::{Behaviour, Process, Script, Tool};
use serde_json::Value;

use crate::{configure, portcullis};

/// A hub of two servers, and the aliases that the client is shown, by capability.
fn connect(folder: &Folder) -> (Client, BTreeMap<String, String>) {
    let big = r#"{"content":[{"type":"text","text":"big"}],"structuredContent":{"n":123456789012345678901234567890,"f":1.10},"_meta":{"inner":1}}"#;
    let process = || Process {
        pid_file: Some(folder.path("pids")),
        ..Process::default()
    };
    let exact = Script::new("exact")
        .process(process())
        .tool(Tool::new("echo", Behaviour::Echo).describe("Echoes."))
        .tool(Tool::new("big", Behaviour::Raw(big.to_owned())))
        .tool(Tool::new("delete", Behaviour::Text("gone".to_owned())));
    let other = Script::new("other")
        .process(process())
        .tool(Tool::new("echo", Behaviour::Text("the other".to_owned())))
        .tool(Tool::new("ask", Behaviour::Text("asked".to_owned())))
        .tool(Tool::new("fail", Behaviour::Error("it failed".to_owned())));
    configure(folder, &[("exact", exact), ("other", other)]);
    folder.rules("default deny\nallow mcp.*\nask mcp.other.ask\ndeny mcp.exact.delete\n");
    let hub = ["--config", "mcp.json", "--policies", "policies"];
    let listed = portcullis(folder, &["tools", "--format", "json"])
        .args(hub)
        .run()
        .exits(0)
        .json();
    let aliases = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            let text = |field: &str| tool[field].as_str().unwrap().to_owned();
            (text("capability"), text("alias"))
        })
        .collect();
    (
        Client::connect(portcullis(folder, &["serve", "--stdio"]).args(hub)),
        aliases,
    )
}

#[track_caller]
fn result(reply: &str) -> Value {
    let mut reply: Value = serde_json::from_str(reply).unwrap();
    assert!(reply.get("error").is_none(), "{reply}");
    reply["result"].take()
}

#[track_caller]
fn error(reply: &str) -> Value {
    let mut reply: Value = serde_json::from_str(reply).unwrap();
    assert!(reply.get("result").is_none(), "{reply}");
    reply["error"].take()
}

#[test]
fn all_servers_are_one_server_with_aliases_as_names() {
    let folder = Folder::new();
    let (mut client, aliases) = connect(&folder);
    let listed = result(&client.request("tools/list", "{}"));
    let mut names: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    let mut expected: Vec<_> = aliases.values().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(names, expected, "{listed}");
    let again = result(&client.request("tools/list", "{}"));
    assert_eq!(again, listed, "the order is a fixed one");

    let reply = result(&client.call(&aliases["mcp.exact.echo"], r#"{"a":1}"#));
    assert_eq!(reply["content"][0]["text"], r#"{"a":1}"#, "{reply}");
    let reply = result(&client.call(&aliases["mcp.other.echo"], "{}"));
    assert_eq!(
        reply["content"][0]["text"], "the other",
        "one name, two servers: {reply}"
    );
    client.leave().exits(0);
}

#[test]
fn numbers_pass_word_for_word_in_both_directions() {
    let folder = Folder::new();
    let (mut client, aliases) = connect(&folder);
    let arguments = r#"{"n":98765432109876543210.10, "e":1E5,"u":"\u00e9"}"#;
    let reply = result(&client.call(&aliases["mcp.exact.echo"], arguments));
    assert_eq!(reply["content"][0]["text"], arguments, "{reply}");
    let reply = client.call(&aliases["mcp.exact.big"], "{}");
    assert!(
        reply.contains(r#"{"n":123456789012345678901234567890,"f":1.10}"#),
        "{reply}"
    );
    assert!(
        !reply.contains("inner"),
        "the server's `_meta` stays behind: {reply}"
    );
    client.leave().exits(0);
}

#[test]
fn a_refused_call_is_an_error_that_says_why() {
    let folder = Folder::new();
    let (mut client, aliases) = connect(&folder);
    for (capability, code, line) in [
        ("mcp.exact.delete", "denied", 4),
        ("mcp.other.ask", "needs-approval", 3),
    ] {
        let reply = result(&client.call(&aliases[capability], "{}"));
        assert_eq!(reply["isError"], true, "{reply}");
        let text = reply["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(&format!("test.rules:{line}")), "{text}");
        let reason = &reply["_meta"]["portcullis/error"];
        assert_eq!(reason["code"], code, "{reply}");
        assert_eq!(reason["decision"]["policies"][0]["line"], line, "{reply}");
    }
    let reply = result(&client.call(&aliases["mcp.other.fail"], "{}"));
    assert_eq!(reply["isError"], true, "{reply}");
    assert_eq!(reply["content"][0]["text"], "it failed", "{reply}");
    client.leave().exits(0);
}

/// Some clients never read it, and a pipe that is full stops whoever writes into it.
#[test]
fn a_client_that_reads_no_standard_error_is_served_to_the_end() {
    let folder = Folder::new();
    let script = Script::new("chatty").tool(Tool::new("echo", Behaviour::Echo));
    configure(&folder, &[("chatty", script)]);
    folder.rules("default deny\nallow mcp.*\n");
    let serve = portcullis(
        &folder,
        &[
            "serve",
            "--stdio",
            "--wait",
            "20",
            "--config",
            "mcp.json",
            "--policies",
            "policies",
        ],
    );
    let mut client = Client::connect_unread(serve.env("PORTCULLIS_LOG", "portcullis=debug"));
    let listed = result(&client.request("tools/list", "{}"));
    let name = listed["tools"][0]["name"].as_str().unwrap();
    // Each is several events, of a few hundred bytes: many times what a pipe holds.
    for number in 0..500 {
        let reply = result(&client.call(name, &format!(r#"{{"n":{number}}}"#)));
        assert_eq!(
            reply["content"][0]["text"],
            format!(r#"{{"n":{number}}}"#),
            "{reply}"
        );
    }
    client.leave().exits(0);
}

/// Whoever is at the other end of standard input is the client, and may be the agent itself: it is asked nothing, and
/// no line of its own is an answer. Some clients give their servers a terminal.
#[test]
fn a_client_at_a_terminal_is_no_person() {
    let folder = Folder::new();
    let (client, aliases) = connect(&folder);
    client.leave().exits(0);
    let hub = ["--config", "mcp.json", "--policies", "policies"];
    let serve = portcullis(&folder, &["serve", "--stdio"]).args(hub);
    let mut client = Client::connect_at_terminal(serve);
    let reply = result(&client.call(&aliases["mcp.other.ask"], "{}"));
    assert_eq!(
        reply["_meta"]["portcullis/error"]["code"], "needs-approval",
        "{reply}"
    );
    let told = client.hang_up().exits(0).stderr;
    assert!(!told.contains("Let it run?"), "{told}");
}

#[test]
fn what_nobody_offers_is_an_error_of_the_protocol() {
    let folder = Folder::new();
    let (mut client, aliases) = connect(&folder);
    for name in [
        "mcp__exact_0000000000__echo__0000000000",
        "echo",
        "mcp.exact.nothing",
        "mcp.nobody.echo",
        "",
    ] {
        let error = error(&client.call(name, "{}"));
        assert_eq!(error["code"], -32_602, "{name}: {error}");
    }
    let unknown_method = error(&client.request("tools/dance", "{}"));
    assert_eq!(unknown_method["code"], -32_601, "{unknown_method}");
    // After all of that it still works.
    result(&client.call(&aliases["mcp.other.echo"], "{}"));
    client.leave().exits(0);
}

#[test]
fn a_client_that_leaves_ends_the_program_and_its_servers() {
    let folder = Folder::new();
    let (mut client, _) = connect(&folder);
    result(&client.request("tools/list", "{}"));
    let running: Vec<_> = pids(&folder.path("pids"));
    assert!(running.len() >= 4, "two servers, for `tools` and for `serve`");
    assert!(
        running.iter().any(|pid| !is_gone(*pid)),
        "those of `serve` are up"
    );
    let finished = client.leave().exits(0);
    let left = finished.json_lines();
    let spoken = left
        .iter()
        .all(|message| message["jsonrpc"] == "2.0" && message["id"].is_null());
    assert!(
        spoken,
        "nothing but the protocol, and no reply too many: {left:?}"
    );
    check_gone(&running);
}

/// The client has standard output, and shows its user nothing of what a server's state is.
#[test]
fn a_server_that_fails_is_told_on_standard_error() {
    let folder = Folder::new();
    let script = Script::new("frail").tool(Tool::new("die", Behaviour::crash(3)));
    configure(&folder, &[("frail", script)]);
    folder.rules("allow mcp.*\n");
    let serve = portcullis(&folder, &["serve", "--stdio", "--wait", "20"]);
    let serve = serve.args(["--config", "mcp.json", "--policies", "policies"]);
    let mut client = Client::connect(serve.env("PORTCULLIS_LOG", "portcullis=debug"));
    let listed = result(&client.request("tools/list", "{}"));
    let name = listed["tools"][0]["name"].as_str().unwrap().to_owned();
    let reply = result(&client.call(&name, "{}"));
    assert_eq!(reply["isError"], true, "{reply}");
    client.running_mut().until_told("frail: backing_off, ");
    client.running_mut().until_told(r#""event":"tool.result""#);
    let told = client.leave().exits(0).stderr;
    assert!(!told.contains("rmcp"), "{told}");
}
