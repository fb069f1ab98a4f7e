//! `demo`, `check` and `tools`, in both formats.

use portcullis_e2e::{Folder, check_gone};
use portcullis_testkit::{Behaviour, Handshake, Script, Tool};
use serde_json::{Value, json};

use crate::{SCRIPTED, configure, portcullis};

#[test]
fn the_demo_goes_as_it_tells_and_leaves_nobody_behind() {
    let finished = portcullis(&Folder::new(), &["demo", "--format", "json"])
        .run()
        .exits(0);
    let events = finished.json_lines();
    let steps: Vec<_> = events
        .iter()
        .filter(|event| event["event"] == "demo.step")
        .collect();
    assert!(steps.iter().all(|step| step["ok"] == true), "{steps:?}");
    let names: Vec<_> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    let expected = [
        "servers",
        "catalog",
        "allowed",
        "asked",
        "denied",
        "picture",
        "outcome-unknown",
        "undisturbed",
        "restarted",
        "stopped",
        "gone",
    ];
    assert_eq!(names, expected);

    let has = |event: &str, more: &dyn Fn(&Value) -> bool| {
        let found = events
            .iter()
            .any(|record| record["event"] == event && more(record));
        assert!(found, "no such `{event}` in\n{}", finished.stdout);
    };
    has("permission", &|record| record["decision"]["answer"] == "deny");
    has("approval", &|record| {
        record["answer"] == "approved" && record["by"] == "person"
    });
    has("tool.call", &|record| {
        record["capability"] == "mcp.pictures.render"
    });
    has("tool.result", &|record| {
        record["blobs"][0]["sizeBytes"] == 5 * 1024 * 1024
    });
    has("tool.result", &|record| record["outcome"] == "outcome-unknown");
    has("server.state", &|record| {
        record["server"] == "crashy" && record["to"] == "backing_off"
    });
    let seqs: Vec<_> = events
        .iter()
        .filter_map(|record| record["seq"].as_u64())
        .collect();
    assert!(seqs.is_sorted() && seqs.len() > 20, "{seqs:?}");
    let pids = events.iter().filter_map(|record| record["pid"].as_u64());
    let pids: Vec<_> = pids.map(|pid| u32::try_from(pid).unwrap()).collect();
    assert!(pids.len() >= 4, "three servers, and one of them twice: {pids:?}");
    check_gone(&pids);
}

#[test]
fn the_demo_is_a_story_for_people() {
    let finished = portcullis(&Folder::new(), &["demo"]).run().exits(0);
    let marks = finished.stdout.matches("  ✓ ").count();
    assert_eq!(
        (marks, finished.stdout.matches('✗').count()),
        (11, 0),
        "{}",
        finished.stdout
    );
    for told in [
        "denied by demo.rules:6",
        "outcome unknown",
        "image/png of 5242880 bytes",
        "approved by a person",
    ] {
        assert!(finished.stdout.contains(told), "{told}: {}", finished.stdout);
    }
    assert!(
        !finished.stdout.contains('\u{1b}'),
        "no colour where there is no terminal"
    );
}

const GOOD: &str = r#"mcp:
  allowedHosts: ["https://mcp.example.com"]
  servers:
    - name: local
      command: PROGRAM
      args: ["--script", "{}"]
      env: {COLOUR: green}
    - name: remote
      url: https://mcp.example.com/mcp
    - name: resting
      command: PROGRAM
      disabled: true
"#;

#[test]
fn check_prints_what_a_good_file_comes_to() {
    let folder = Folder::new();
    folder.write("hub.yaml", GOOD.replace("PROGRAM", SCRIPTED));
    let printed = portcullis(&folder, &["check", "hub.yaml", "--format", "json"])
        .run()
        .exits(0)
        .json();
    assert_eq!(printed["diagnostics"], json!([]), "{printed}");
    let [local, remote, resting] = printed["servers"].as_array().unwrap().as_slice() else {
        panic!("three servers: {printed}");
    };
    assert_eq!(
        (&local["id"], &local["line"]),
        (&json!("local"), &json!(4)),
        "{local}"
    );
    assert_eq!(local["env"], json!(["COLOUR"]), "names, never values: {local}");
    assert_eq!(remote["transport"], "http", "{remote}");
    assert_eq!(resting["enabled"], false, "{resting}");
    assert!(!printed.to_string().contains("green"), "{printed}");

    let text = portcullis(&folder, &["check", "hub.yaml"]).run().exits(0).stdout;
    assert!(
        text.contains("local: stdio") && text.contains("[hub.yaml:4]"),
        "{text}"
    );
    assert!(text.contains("resting (disabled): stdio"), "{text}");
    assert!(
        text.contains("remote: http https://mcp.example.com/mcp"),
        "{text}"
    );
}

#[test]
fn check_names_everything_that_is_wrong_with_its_place() {
    let folder = Folder::new();
    let bad = r#"{"mcpServers": {
  "no-transport": {"args": ["x"]},
  "old": {"type": "sse", "url": "https://example.com/sse"},
  "odd": {"type": "carrier-pigeon", "command": "sh"},
  "unset": {"command": "sh", "args": ["${env:SURELY_NOT_SET}"]},
  "fine": {"command": "sh"}
}}"#;
    folder.write("mcp.json", bad);
    let printed = portcullis(&folder, &["check", "mcp.json", "--format", "json"])
        .run()
        .exits(3)
        .json();
    let errors: Vec<_> = printed["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|found| found["severity"] == "error")
        .map(|found| (found["code"].as_str().unwrap(), found["line"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("no-transport", 2),
        ("sse-refused", 3),
        ("unknown-transport", 4),
        ("unset-reference", 5),
    ];
    assert_eq!(errors, expected, "{printed}");
    let enabled: Vec<_> = printed["servers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|server| server["enabled"] == true)
        .map(|server| &server["id"])
        .collect();
    assert_eq!(
        enabled,
        ["fine"],
        "a bad entry takes itself out and no other: {printed}"
    );

    let text = portcullis(&folder, &["check", "mcp.json"]).run().exits(3);
    for (code, line) in expected {
        assert!(
            text.stderr.contains(&format!("mcp.json:{line}:"))
                && text.stderr.contains(&format!("error[{code}]")),
            "{}",
            text.stderr
        );
    }
    assert!(text.stdout.contains("fine: stdio"), "{}", text.stdout);
}

/// Field report 1.
#[test]
fn a_server_with_a_url_and_no_type_is_an_http_server() {
    let folder = Folder::new();
    folder.write(
        "mcp.json",
        r#"{"mcpServers": {"a": {"url": "https://mcp.example.com/mcp"}}}"#,
    );
    let printed = portcullis(&folder, &["check", "mcp.json", "--format", "json"])
        .run()
        .exits(0)
        .json();
    assert_eq!(printed["servers"][0]["transport"], "http", "{printed}");
    assert_eq!(
        printed["servers"][0]["url"], "https://mcp.example.com/mcp",
        "{printed}"
    );
}

/// Field report 39, at the command line: one that never answers is named, and the others are listed.
#[test]
fn tools_lists_what_is_offered_and_names_who_did_not_come_up() {
    let folder = Folder::new();
    let fine = |text: &str| Behaviour::Text(text.to_owned());
    let well = Script::new("well")
        .tool(Tool::new("read", fine("r")).describe("Reads.\nAt length."))
        .tool(Tool::new("drop", fine("d")).describe("Drops \u{1b}[31mall\u{202e}."));
    let own = json!({"mcp": {"timeoutMs": 2_000, "servers": [
        {"name": "well", "command": SCRIPTED, "args": ["--script", well.to_json()]},
        {"name": "stuck", "command": SCRIPTED,
         "args": ["--script", Script::new("stuck").handshake(Handshake::Hang).to_json()]},
    ]}});
    folder.write("hub.json", own.to_string());
    folder.rules("default deny\nask mcp.well.read\n");
    let hub = ["--config", "hub.json", "--policies", "policies"];
    let printed = portcullis(&folder, &["tools", "--format", "json"])
        .args(hub)
        .run()
        .exits(0)
        .json();
    assert_eq!(printed["servers"]["well"]["state"], "ready", "{printed}");
    assert_ne!(printed["servers"]["stuck"]["state"], "ready", "{printed}");
    let outlooks: Vec<_> = printed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            (
                tool["capability"].as_str().unwrap(),
                tool["outlook"]["answer"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        outlooks,
        [("mcp.well.drop", "deny"), ("mcp.well.read", "ask")],
        "{printed}"
    );

    let text = portcullis(&folder, &["tools"]).args(hub).run().exits(0);
    assert!(
        text.stdout.contains("ask   mcp.well.read  Reads.\n"),
        "{}",
        text.stdout
    );
    assert!(
        text.stdout.contains(r"Drops \u{1b}[31mall\u{202e}."),
        "{}",
        text.stdout
    );
    assert!(text.stderr.contains("stuck: "), "{}", text.stderr);
}

#[test]
fn a_file_with_one_good_server_is_used_and_the_bad_one_named() {
    let folder = Folder::new();
    let well = Script::new("well").tool(Tool::new("read", Behaviour::Text("r".to_owned())));
    configure(&folder, &[("well", well)]);
    folder.write(
        "more.json",
        r#"{"mcpServers": {"bad": {"command": "/no/such/program"}}}"#,
    );
    let finished = portcullis(&folder, &["tools", "--config", "mcp.json", "more.json"])
        .run()
        .exits(0);
    assert!(finished.stdout.contains("mcp.well.read"), "{}", finished.stdout);
    assert!(
        finished.stderr.contains("more.json:1:") && finished.stderr.contains("/no/such/program"),
        "{}",
        finished.stderr
    );
}

/// The warden tells which step failed; without one the supervisor's own tests look.
#[test]
fn a_server_whose_folder_or_interpreter_is_gone_is_not_said_to_be_missing() {
    let folder = Folder::new();
    let script = folder.write("moved-venv", "#!/nowhere/bin/python3\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let own = json!({"mcp": {"servers": [
        {"name": "homeless", "command": "/bin/sh", "cwd": "/nowhere/to/be"},
        {"name": "orphan", "command": script},
    ]}});
    folder.write("hub.json", own.to_string());
    let told = portcullis(&folder, &["tools", "--config", "hub.json"])
        .run()
        .exits(6)
        .stderr;
    for expected in [
        "cannot start `/bin/sh`: its working directory `/nowhere/to/be` cannot be entered: No such file",
        "the file is there, but what its first line names, `/nowhere/bin/python3`, is not",
    ] {
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_run_that_will_forget_what_it_trusted_says_so() {
    let folder = Folder::new();
    let well = Script::new("well").tool(Tool::new("read", Behaviour::Text("r".to_owned())));
    configure(&folder, &[("well", well)]);
    // A relative folder is none: it would lie wherever the program was started.
    for home in ["", "relative"] {
        let run = || portcullis(&folder, &["tools", "--config", "mcp.json"]).env("HOME", home);
        let told = run().run().exits(0).stderr;
        assert!(
            told.contains("trusted anew in every run") && told.contains("--state"),
            "{told}"
        );
        assert!(!folder.path("relative").exists());
        let told = run().with("--state", folder.path("state")).run().exits(0).stderr;
        assert!(!told.contains("trusted anew"), "{told}");
    }
}
