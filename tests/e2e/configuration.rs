//! `import`, `init` and `check` as processes: what one prints, the other reads.

use portcullis_e2e::Folder;
use serde_json::{Value, json};

use crate::portcullis;

/// A document of each dialect, by its file and dialect: a program with a variable, and an endpoint where the
/// dialect knows one.
fn documents() -> Vec<(&'static str, &'static str, String)> {
    let sh = r#""command": "/bin/sh", "args": ["-c", "true"]"#;
    vec![
        (
            "own.yaml",
            "portcullis",
            "mcp:\n  allowedHosts: [docs.example.com]\n  servers:\n    - name: local\n      command: /bin/sh\n      args: [-c, \"true\"]\n      env: {MODE: read}\n    - name: docs\n      url: https://docs.example.com/mcp\n".to_owned(),
        ),
        (
            "code.json",
            "code",
            r#"[{"id": "local", "command": ["/bin/sh", "-c", "true"], "environment": {"MODE": "read"}, "timeout": 5000}]"#.to_owned(),
        ),
        (
            "claude.json",
            "mcp-servers",
            format!(r#"{{"mcpServers": {{"My Local": {{{sh}, "env": {{"MODE": "read"}}, "autoApprove": ["x"]}}, "docs": {{"url": "https://docs.example.com/mcp"}}}}}}"#),
        ),
        (
            "vscode.json",
            "vscode",
            format!(r#"{{"inputs": [{{"id": "mode", "type": "promptString", "default": "read"}}], "servers": {{"local": {{"type": "stdio", {sh}, "env": {{"MODE": "${{input:mode}}"}}}}}}}}"#),
        ),
        (
            "zed.json",
            "zed",
            format!(r#"{{"theme": "dark", "context_servers": {{"local": {{"source": "custom", {sh}, "env": {{"MODE": "read"}}}}}}}}"#),
        ),
        (
            "codex.toml",
            "codex",
            "model = \"m\"\n[mcp_servers.local]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"true\"]\nstartup_timeout_sec = 20\nenv = { MODE = \"read\" }\n".to_owned(),
        ),
        (
            "gemini.json",
            "gemini",
            format!(r#"{{"mcpServers": {{"local": {{{sh}, "cwd": "$HOME", "trust": true}}, "docs": {{"httpUrl": "https://docs.example.com/mcp", "timeout": 9000}}}}}}"#),
        ),
        (
            "opencode.json",
            "opencode",
            r#"{"mcp": {"local": {"type": "local", "command": ["/bin/sh", "-c", "true"], "environment": {"HOME_IS": "{env:HOME}"}}, "docs": {"type": "remote", "url": "https://docs.example.com/mcp", "enabled": false}}}"#.to_owned(),
        ),
        (
            "goose.yaml",
            "goose",
            "extensions:\n  local: {type: stdio, enabled: true, cmd: /bin/sh, args: [-c, \"true\"], envs: {MODE: read}, timeout: 30}\n  docs: {enabled: true, config: {type: streamable_http, uri: \"https://docs.example.com/mcp\"}}\n".to_owned(),
        ),
        (
            "settings.json",
            "assets",
            format!(r#"{{"version": 3, "assets": {{"mcpServers": {{"local": {{{sh}, "description": "says nothing", "disabledTools": ["rm"]}}}}}}}}"#),
        ),
    ]
}

/// What `check` says of a file's servers, without where they stand.
fn servers(folder: &Folder, file: &str) -> Vec<Value> {
    let printed = portcullis(folder, &["check", file, "--format", "json"])
        .run()
        .exits(0)
        .json();
    let mut servers = printed["servers"].as_array().unwrap().clone();
    for server in &mut servers {
        for place in ["file", "line", "fields"] {
            server.as_object_mut().unwrap().remove(place);
        }
    }
    assert!(!servers.is_empty(), "{file}: {printed}");
    servers
}

fn body(config: &str) -> &str {
    config.split_once('\n').unwrap().1
}

#[test]
fn what_import_prints_is_read_as_the_same_servers() {
    let folder = Folder::new();
    for (file, dialect, text) in documents() {
        folder.write(file, text);
        let printed = portcullis(&folder, &["import", file]).run().exits(0);
        assert!(
            printed
                .stdout
                .starts_with(&format!("# Imported from {file} ({dialect}).")),
            "{}",
            printed.stdout
        );
        assert!(
            printed.stderr.contains("line 1") || printed.stderr.contains("line 2"),
            "{}",
            printed.stderr
        );
        folder.write("imported.yaml", &printed.stdout);
        assert_eq!(
            servers(&folder, "imported.yaml"),
            servers(&folder, file),
            "{file}\n{}",
            printed.stdout
        );

        let report = portcullis(&folder, &["import", file, "--from", dialect, "--format", "json"])
            .run()
            .exits(0)
            .json();
        assert_eq!(
            (&report["dialect"], report["config"].as_str()),
            (&json!(dialect), Some(printed.stdout.as_str()))
        );
        assert!(
            report["fields"].as_array().is_some_and(|fields| fields.len() > 2),
            "{report}"
        );
        let reaches = report["egress"]["docs"] == json!(["https://docs.example.com:443/"]);
        assert_eq!(reaches, printed.stdout.contains("docs.example.com"), "{report}");

        let again = portcullis(&folder, &["import", "imported.yaml"]).run().exits(0);
        assert_eq!(body(&again.stdout), body(&printed.stdout), "{file}");
    }
}

#[test]
fn import_ends_as_it_went() {
    let folder = Folder::new();
    folder.write(
        "half.json",
        r#"{"mcpServers": {"good": {"command": "/bin/sh"}, "bad": {"command": 7}}}"#,
    );
    let half = portcullis(&folder, &["import", "half.json"]).run().exits(3);
    assert!(
        half.stdout.contains("- name: good") && !half.stdout.contains("bad"),
        "{}",
        half.stdout
    );
    assert!(
        half.stderr.contains("left out: bad") && half.stderr.contains("error[wrong-type]"),
        "{}",
        half.stderr
    );

    folder.write("other.json", r#"{"servers": 1}"#);
    let other = portcullis(&folder, &["import", "other.json"]).run().exits(3);
    assert_eq!(other.stdout, "");
    assert!(other.stderr.contains("error[unknown-shape]"), "{}", other.stderr);
    portcullis(&folder, &["import", "missing.json"]).run().exits(3);
    let dialect = portcullis(&folder, &["import", "half.json", "--from", "emacs"])
        .run()
        .exits(2);
    assert!(
        dialect.stderr.contains("`emacs` is no dialect"),
        "{}",
        dialect.stderr
    );
}

#[test]
fn what_init_writes_is_good_as_it_is_and_is_never_overwritten() {
    let folder = Folder::new();
    let told = portcullis(&folder, &["init"]).run().exits(0);
    for file in [
        "portcullis.yaml",
        "portcullis.schema.json",
        "policies/tools.rules",
    ] {
        assert!(
            folder.path(file).is_file() && told.stdout.contains(file),
            "{file}: {}",
            told.stdout
        );
    }
    let schema: Value =
        serde_json::from_slice(&std::fs::read(folder.path("portcullis.schema.json")).unwrap()).unwrap();
    assert!(schema["properties"]["mcp"].is_object(), "{schema}");
    let checked = portcullis(&folder, &["check", "portcullis.yaml", "--format", "json"])
        .run()
        .exits(0)
        .json();
    assert_eq!(checked, json!({"servers": [], "diagnostics": []}));
    // As the workflow of docs/policies.md has it.
    for command in [["policy", "fmt"], ["policy", "rules"]] {
        portcullis(&folder, &command)
            .args(["--check", "policies"])
            .run()
            .exits(0);
    }
    portcullis(&folder, &["policy", "check", "policies"])
        .run()
        .exits(0);
    let none = portcullis(&folder, &["tools", "--config", "portcullis.yaml"])
        .run()
        .exits(3);
    assert!(
        none.stderr.contains("write one under `servers`"),
        "{}",
        none.stderr
    );

    // With a server in it, the policies beside it decide: what no rule speaks of asks, and nobody is there to ask.
    let text = std::fs::read_to_string(folder.path("portcullis.yaml")).unwrap();
    let script = portcullis_testkit::Script::new("s").tool(portcullis_testkit::Tool::new(
        "read",
        portcullis_testkit::Behaviour::Text("r".to_owned()),
    ));
    let server = json!([{"name": "s", "command": crate::SCRIPTED, "args": ["--script", script.to_json()]}]);
    folder.write(
        "portcullis.yaml",
        text.replace("servers: []", &format!("servers: {server}")),
    );
    portcullis(&folder, &["call", "mcp.s.read", "--config", "portcullis.yaml"])
        .run()
        .exits(5);

    let edited = std::fs::read_to_string(folder.path("portcullis.yaml")).unwrap();
    let again = portcullis(&folder, &["init"]).run().exits(1);
    assert!(again.stderr.contains("tools.rules"), "{}", again.stderr);
    assert_eq!(
        std::fs::read_to_string(folder.path("portcullis.yaml")).unwrap(),
        edited
    );
    let nowhere = portcullis(&folder, &["init", "nowhere"]).run().exits(1);
    assert!(
        nowhere.stderr.contains("No such file or directory"),
        "{}",
        nowhere.stderr
    );

    // What it says next is true from where it was started.
    folder.write("inner/keep", "");
    let inner = portcullis(&folder, &["init", "inner"]).run().exits(0);
    assert!(
        inner.stderr.contains("`portcullis check inner/portcullis.yaml`"),
        "{}",
        inner.stderr
    );
    folder.write("other/keep", "");
    let printed = portcullis(&folder, &["init", "other", "--format", "json"])
        .run()
        .exits(0)
        .json();
    assert_eq!(printed["written"][3], "other/portcullis.yaml", "{printed}");
}
