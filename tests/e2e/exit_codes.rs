//! Every exit code of the program, and what wrong use is told.

use portcullis_e2e::{Folder, mcp_servers, pair, scripted};
use portcullis_testkit::{Behaviour, Handshake, Script, Tool};
use serde_json::json;

use crate::{SCRIPTED, portcullis};

fn folder() -> Folder {
    let folder = Folder::new();
    let script = Script::new("any")
        .tool(Tool::new("good", Behaviour::Text("fine".to_owned())))
        .tool(Tool::new("asked", Behaviour::Text("fine".to_owned())))
        .tool(Tool::new("denied", Behaviour::Text("fine".to_owned())))
        .tool(Tool::new("bad", Behaviour::Error("no".to_owned())))
        .tool(Tool::new("mute", Behaviour::Mute));
    let any = pair(scripted(SCRIPTED, &script), "timeouts", json!({"callMs": 300}));
    let own = json!({"mcp": {"servers": [pair(any, "name", json!("any"))]}});
    folder.write("hub.json", own.to_string());
    folder.write("not-a-folder", "");
    folder.write("broken.json", r#"{"mcpServers": {"a": {"command": 7}}}"#);
    folder.write("wrong/a.rules", "perhaps mcp.any.*\n");
    folder.rules("default deny\nallow mcp.any.*\nask mcp.any.asked\ndeny mcp.any.denied\n");
    folder
}

const HUB: [&str; 4] = ["--config", "hub.json", "--policies", "policies"];

#[track_caller]
fn check(arguments: &[&str], code: i32, says: &str) {
    let finished = portcullis(&folder(), arguments).run().exits(code);
    let all = format!("{}{}", finished.stdout, finished.stderr);
    assert!(all.contains(says), "{all}");
    assert!(!all.contains("panicked"), "{all}");
}

#[track_caller]
fn check_call(tool: &str, code: i32, says: &str) {
    check(&[["call", tool].as_slice(), &HUB].concat(), code, says);
}

#[test]
fn done_is_0() {
    check_call("mcp.any.good", 0, "fine");
    check(&["--help"], 0, "Exit codes");
    check(&["--version"], 0, "portcullis");
}

#[test]
fn failed_is_1() {
    let blobs = ["call", "mcp.any.good", "--blobs", "not-a-folder"];
    check(&[blobs.as_slice(), &HUB].concat(), 1, "blob store");
    // What the system says is told, and what cannot be looked at is not said to be missing.
    let nowhere = ["call", "mcp.any.good", "--blobs", "/proc/nowhere/blobs"];
    check(
        &[nowhere.as_slice(), &HUB].concat(),
        1,
        "No such file or directory (os error 2)",
    );
    check(
        &["pins", "list", "--state", "not-a-folder/state"],
        1,
        "Not a directory",
    );
    check(
        &["blobs", "ls", "--blobs", "not-a-folder/blobs"],
        2,
        "it is not a folder",
    );
}

#[test]
fn usage_is_2() {
    check(&[], 2, "Usage");
    check(&["raise"], 2, "raise");
    check(&["tools"], 2, "--config");
    check(&["serve", "--config", "hub.json"], 2, "--stdio");
    check(
        &["tools", "--config", "hub.json", "--preset", "yes-to-all"],
        2,
        "yes-to-all",
    );
    check(
        &["tools", "--config", "hub.json", "--tier", "godlike"],
        2,
        "godlike",
    );
    check(
        &[
            "tools",
            "--config",
            "hub.json",
            "--policies",
            "policies",
            "--preset",
            "ask-by-default",
        ],
        2,
        "--preset",
    );
    check(&["demo-server", "goodbye"], 2, "goodbye");
    let call = |what: &[&str]| check(&[["call"].as_slice(), what, &HUB].concat(), 2, what[0]);
    call(&["mcp.any.goood"]);
    call(&["good"]);
    call(&["mcp.any"]);
    check(
        &[["call", "mcp.any.good", "[1]"].as_slice(), &HUB].concat(),
        2,
        "JSON object",
    );
    check(
        &[["call", "mcp.any.good", "{'a': 1}"].as_slice(), &HUB].concat(),
        2,
        "JSON object",
    );
    check_call("mcp.any.goood", 2, "did you mean `mcp.any.good`?");
    check_call(
        "mcp.nobody.good",
        2,
        "no server `nobody` is configured, or what configures it cannot be used; there are: any",
    );
}

#[test]
fn bad_config_or_policy_is_3() {
    check(&["check", "broken.json"], 3, "broken.json:1:");
    check(&["check", "missing.json"], 3, "missing.json");
    check(&["tools", "--config", "broken.json"], 3, "broken.json:1:");
    check(&["tools", "--config", "missing.json"], 3, "missing.json");
    check(
        &["tools", "--config", "hub.json", "--policies", "wrong"],
        3,
        "wrong/a.rules:1",
    );
    check(
        &["tools", "--config", "hub.json", "--policies", "missing"],
        3,
        "missing",
    );
    check(
        &["tools", "--config", "hub.json", "--policies", "."],
        3,
        "no policy",
    );
}

#[test]
fn denied_is_4_and_needs_approval_5() {
    check_call("mcp.any.denied", 4, "denied");
    check_call("mcp.any.asked", 5, "needs approval");
    // A key that stands twice could mean one thing to the policies and another to the server.
    let twice = ["call", "mcp.any.good", r#"{"a": 1, "a": 2}"#];
    check(&[twice.as_slice(), &HUB].concat(), 4, "twice");
}

#[test]
fn upstream_failed_is_6() {
    check_call("mcp.any.bad", 6, "no");
    let folder = Folder::new();
    let broken = scripted(
        SCRIPTED,
        &Script::new("broken").handshake(Handshake::Exit { code: 3 }),
    );
    folder.write("mcp.json", mcp_servers([("broken", broken)]));
    let finished = portcullis(&folder, &["tools", "--config", "mcp.json"])
        .run()
        .exits(6);
    assert!(finished.stderr.contains("broken: "), "{}", finished.stderr);
}

#[test]
fn timed_out_is_7() {
    check_call("mcp.any.mute", 7, "timed out after 0.3 s");
}
