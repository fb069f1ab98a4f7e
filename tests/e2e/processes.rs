//! Servers' processes: who is started, and that nobody is left.

use portcullis_e2e::{
    Client, Folder, Program, check_gone, mcp_servers, pair, pids, scripted, wait_until_gone,
};
use portcullis_testkit::{AtEof, Behaviour, Descendant, Detach, Handshake, Process, Script, Tool};
use serde_json::json;

use crate::{SCRIPTED, configure, portcullis};

const HUB: [&str; 4] = ["--config", "mcp.json", "--policies", "policies"];

/// Servers of every temper, each leaving its process ids in the file `pids`.
fn tempers(folder: &Folder) -> Vec<(&'static str, Script)> {
    let process = || Process {
        pid_file: Some(folder.path("pids")),
        ..Process::default()
    };
    let well = Tool::new("hello", Behaviour::Text("hello".to_owned()));
    let descendant = Descendant {
        seconds: 300,
        detach: Detach::No,
        ignore_term: true,
        holds_stdout: false,
        pid_file: Some(folder.path("pids")),
    };
    vec![
        ("well", Script::new("well").process(process()).tool(well.clone())),
        (
            "stuck",
            Script::new("stuck").process(process()).handshake(Handshake::Hang),
        ),
        (
            "stubborn",
            Script::new("stubborn")
                .process(Process {
                    ignore_term: true,
                    ..process()
                })
                .at_eof(AtEof::Ignore)
                .tool(well.clone()),
        ),
        (
            "parent",
            Script::new("parent")
                .process(Process {
                    descendants: vec![descendant],
                    ..process()
                })
                .tool(well),
        ),
    ]
}

/// Five processes were started, and none is left.
#[track_caller]
fn check_all_gone(folder: &Folder) {
    let pids = pids(&folder.path("pids"));
    assert!(pids.len() >= 5, "four servers and a descendant: {pids:?}");
    check_gone(&pids);
}

fn prepare(folder: &Folder) {
    configure(folder, &tempers(folder));
    folder.rules("default deny\nallow mcp.*\n");
}

#[test]
fn no_process_outlives_a_call() {
    let folder = Folder::new();
    prepare(&folder);
    // The call of the server that came up last; by then the others' processes have been started.
    let finished = portcullis(&folder, &["call", "mcp.parent.hello"])
        .args(HUB)
        .run()
        .exits(0);
    assert_eq!(finished.stdout, "hello\n");
    check_gone(&pids(&folder.path("pids")));
}

#[test]
fn no_process_outlives_a_served_client_that_leaves() {
    let folder = Folder::new();
    prepare(&folder);
    let client = serve_until_all_are_up(&folder);
    let finished = client.leave();
    check_all_gone(&folder);
    finished.exits(0);
}

#[test]
fn no_process_outlives_a_terminated_program() {
    let folder = Folder::new();
    prepare(&folder);
    let client = serve_until_all_are_up(&folder);
    client.running().terminate();
    let pid = client.running().pid();
    wait_until_gone(pid);
    check_all_gone(&folder);
    let finished = client.leave().exits(1);
    assert!(finished.stderr.contains("interrupted"), "{}", finished.stderr);
}

fn serve_until_all_are_up(folder: &Folder) -> Client {
    let mut client = Client::connect(portcullis(folder, &["serve", "--stdio"]).args(HUB));
    for server in ["well", "stubborn", "parent"] {
        let reply = client.call(&format!("mcp.{server}.hello"), "{}");
        assert!(reply.contains(r#""text":"hello""#), "{reply}");
    }
    client
}

/// Field report 7.
#[test]
fn a_disabled_server_is_never_started() {
    for (field, value) in [("disabled", true), ("enabled", false)] {
        let folder = Folder::new();
        let process = |file: &str| Process {
            pid_file: Some(folder.path(file)),
            ..Process::default()
        };
        let hello = Tool::new("hello", Behaviour::Text("hello".to_owned()));
        let off = Script::new("off").process(process("off")).tool(hello.clone());
        let on = Script::new("on").process(process("on")).tool(hello);
        let servers = [
            ("off", pair(scripted(SCRIPTED, &off), field, json!(value))),
            ("on", scripted(SCRIPTED, &on)),
        ];
        folder.write("mcp.json", mcp_servers(servers));
        folder.rules("default deny\nallow mcp.*\n");
        let listed = portcullis(&folder, &["tools", "--format", "json"])
            .args(HUB)
            .run()
            .exits(0)
            .json();
        assert_eq!(listed["servers"]["off"]["state"], "disabled", "{listed}");
        assert_eq!(listed["tools"].as_array().unwrap().len(), 1, "{listed}");
        let refused = portcullis(&folder, &["call", "mcp.off.hello"]).args(HUB).run();
        let refused = refused.exits(6);
        assert!(
            refused.stderr.contains("the server is disabled"),
            "{}",
            refused.stderr
        );
        assert!(!folder.path("off").exists(), "it was started");
        assert!(!pids(&folder.path("on")).is_empty(), "the other one was");
    }
}

#[test]
fn a_disabled_tool_is_not_offered_and_its_call_says_so() {
    let folder = Folder::new();
    let tool = |name: &str| {
        Tool::new(
            name,
            Behaviour::record(folder.path(name), Behaviour::Text("ran".to_owned())),
        )
    };
    let script = Script::new("one").tool(tool("on")).tool(tool("off"));
    let definition = pair(scripted(SCRIPTED, &script), "disabledTools", json!(["off"]));
    folder.write("mcp.json", mcp_servers([("one", definition)]));
    folder.rules("default deny\nallow mcp.*\n");
    let listed = portcullis(&folder, &["tools", "--format", "json"])
        .args(HUB)
        .run()
        .exits(0)
        .json();
    assert_eq!(listed["tools"].as_array().unwrap().len(), 1, "{listed}");
    let finished = portcullis(&folder, &["call", "mcp.one.off", "--format", "json"])
        .args(HUB)
        .run()
        .exits(4);
    assert_eq!(finished.json()["error"]["code"], "disabled");
    assert!(!folder.path("off").exists());
}

/// A name that is misspelt restricts nothing, and whoever wrote it hears so.
#[test]
fn a_restricted_tool_that_is_none_is_told() {
    let folder = Folder::new();
    let script = Script::new("one").tool(Tool::new("delete_file", Behaviour::Text("gone".to_owned())));
    let definition = pair(
        scripted(SCRIPTED, &script),
        "disabledTools",
        json!(["delete-file"]),
    );
    let definition = pair(definition, "disabledAutoApproveTools", json!(["delete_all"]));
    folder.write("mcp.json", mcp_servers([("one", definition)]));
    folder.rules("default deny\n");
    let listed = portcullis(&folder, &["tools"]).args(HUB).run().exits(0);
    let mut client = Client::connect(portcullis(&folder, &["serve", "--stdio", "--wait", "20"]).args(HUB));
    client.request("tools/list", "{}");
    let served = client.leave().exits(0);
    for (field, name, meant) in [
        ("disabledTools", "delete-file", "; is `delete_file` meant?"),
        ("disabledAutoApproveTools", "delete_all", ""),
    ] {
        let told = format!(
            "one: `{field}` names `{name}`, which is not among the tools that were taken from the server: nothing is \
             restricted by it{meant}\n"
        );
        assert!(
            listed.stderr.contains(&format!("note: {told}")),
            "{}",
            listed.stderr
        );
        assert_eq!(served.stderr.matches(&told).count(), 1, "{}", served.stderr);
    }
}

/// Field report 16, and the environment of a server that writes more than a pipe holds.
#[test]
fn a_server_that_floods_its_standard_error_is_not_held_up() {
    let folder = Folder::new();
    let flood = Behaviour::Stderr {
        bytes: 1 << 20,
        then: Box::new(Behaviour::Text("dry".to_owned())),
    };
    configure(
        &folder,
        &[("wet", Script::new("wet").tool(Tool::new("flood", flood)))],
    );
    folder.rules("default deny\nallow mcp.*\n");
    let program: Program = portcullis(&folder, &["call", "mcp.wet.flood"]).args(HUB);
    assert_eq!(program.run().exits(0).stdout, "dry\n");
}
