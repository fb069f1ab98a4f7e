//! `portcullis policy explain`, and that calls tell the same.

use portcullis_e2e::Folder;
use portcullis_testkit::{Behaviour, Script, Tool};
use serde_json::{Value, json};

use super::{RULES, good, policy};
use crate::{configure, portcullis};

/// Explains in both formats; the text says all that the JSON says of policies.
#[track_caller]
fn explain(folder: &Folder, arguments: &[&str], code: i32) -> Value {
    let all = [&["explain"], arguments, &["--policies", "policies"]].concat();
    let json = policy(folder, &[all.as_slice(), &["--format", "json"]].concat())
        .exits(code)
        .json();
    let text = policy(folder, &all).exits(code).stdout;
    for policy in json["policies"].as_array().unwrap() {
        let place = format!(
            "{}:{} ({})",
            policy["file"].as_str().unwrap(),
            policy["line"],
            policy["id"].as_str().unwrap()
        );
        assert!(text.contains(&place), "{place}\nis not in\n{text}");
    }
    assert!(text.contains(json["code"].as_str().unwrap()), "{text}");
    json
}

#[test]
fn each_answer_has_its_exit_code_and_its_reasons() {
    let folder = good();
    let allowed = explain(&folder, &["mcp.files.read", r#"{"path":"/srv/a"}"#], 0);
    assert_eq!(
        (&allowed["answer"], &allowed["code"]),
        (&json!("allow"), &json!("permitted")),
        "{allowed}"
    );
    let denied = explain(&folder, &["mcp.files.read", r#"{"path":"/etc/a"}"#], 4);
    assert_eq!(
        denied["policies"][0],
        json!({"id": "etc", "file": "files.cedar", "line": 1, "description": "Nothing below /etc is read."})
    );
    let asked = explain(&folder, &["mcp.web.get"], 5);
    assert_eq!(
        (&asked["code"], &asked["approver"]),
        (&json!("ask.policy"), &json!("person_or_hook")),
        "{asked}"
    );
    assert!(
        asked["missing"].as_str().unwrap().contains("full_access"),
        "{asked}"
    );
    explain(&folder, &["mcp.web.get", "--tier", "full_access"], 0);
    let always = explain(&folder, &["mcp.mail.send", "--tier", "full_access"], 5);
    assert_eq!(always["approver"], "person_only", "{always}");
    let floor = explain(&folder, &["mcp.files.read", "--auto-approve-off"], 5);
    assert_eq!(floor["code"], "ask.floor", "{floor}");
    let changed = explain(&folder, &["mcp.files.read", "--definition-changed"], 5);
    assert_eq!(changed["code"], "ask.definition-changed", "{changed}");
    folder.write(
        "tool.json",
        r#"{"name":"read","_meta":{"anthropic/requiresUserInteraction":true}}"#,
    );
    let interactive = explain(&folder, &["mcp.files.read", "--definition", "tool.json"], 5);
    assert_eq!(interactive["code"], "ask.floor", "{interactive}");
    let broken = explain(&folder, &["mcp.files.read", "{"], 4);
    assert_eq!(broken["code"], "deny.arguments-invalid", "{broken}");
}

#[test]
fn a_deny_by_default_names_the_policy_that_came_nearest() {
    let folder = Folder::new();
    folder.write(
        "policies/a.rules",
        "allow mcp.files.read when arg.path == \"/srv\"\nallow mcp.git.*\n",
    );
    let denied = explain(
        &folder,
        &[
            "mcp.files.read",
            "{}",
            "--as",
            "ci",
            "--profile",
            "night",
            "--tier",
            "plan",
        ],
        4,
    );
    assert_eq!(denied["code"], "deny.default", "{denied}");
    assert_eq!(denied["nearest"]["policy"]["id"], "a.rules#L1", "{denied}");
    assert_eq!(
        denied["nearest"]["unmet"],
        json!(["`context.args.hasTag(\"path\")` does not hold"]),
        "{denied}"
    );
    assert_eq!(
        (&denied["agent"], &denied["profile"], &denied["tier"]),
        (&json!("ci"), &json!("night"), &json!("plan"))
    );
}

#[test]
fn a_preset_can_be_explained_without_a_folder() {
    let folder = Folder::new();
    let arguments = [
        "explain",
        "mcp.a.b",
        "--preset",
        "ask-by-default",
        "--format",
        "json",
    ];
    let asked = policy(&folder, &arguments).exits(5).json();
    assert_eq!(
        asked["policies"][0]["file"], "built-in/presets/ask-by-default.rules",
        "{asked}"
    );
    let denied = policy(&folder, &["explain", "mcp.a.b", "--preset", "deny-by-default"]).exits(4);
    assert!(denied.stdout.contains("deny.default"), "{}", denied.stdout);
}

/// What cannot be read must not pass for a tool that says nothing of itself.
#[test]
fn a_definition_that_is_none_is_refused() {
    let folder = Folder::new();
    folder.write("broken.json", "{\"name\": ");
    folder.write("list.json", "[]");
    let refused = |definition: &str, told: &str| {
        let arguments = [
            "explain",
            "mcp.a.b",
            "--preset",
            "read-only",
            "--definition",
            definition,
        ];
        let finished = policy(&folder, &arguments).exits(3);
        assert!(
            finished.stderr.contains(definition) && finished.stderr.contains(told),
            "{}",
            finished.stderr
        );
        assert_eq!(finished.stdout, "");
    };
    refused("broken.json", "is no tool's definition");
    refused("list.json", "is no tool's definition");
    refused("missing.json", "cannot be read");
    // It has no end.
    refused("/dev/zero", "it is over 64 MiB");
}

#[test]
fn what_is_not_as_it_was_sealed_is_not_explained() {
    let folder = good();
    policy(&folder, &["seal", "policies"]).exits(0);
    explain(&folder, &["mcp.web.get"], 5);
    folder.write("policies/team.rules", RULES.replace("deny", "allow"));
    let refused = policy(&folder, &["explain", "mcp.web.get", "--policies", "policies"]).exits(3);
    assert!(
        refused
            .stderr
            .contains("team.rules:1: this file is not the one that was sealed"),
        "{}",
        refused.stderr
    );
}

/// One structure in all three places: what is explained, what the caller of a call gets, and what the gateway replies
/// is made of it too.
#[test]
fn a_call_that_is_refused_tells_what_explain_tells() {
    let folder = good();
    let server = |name, tool| {
        let says = Behaviour::Text("it ran".to_owned());
        (name, Script::new(name).tool(Tool::new(tool, says)))
    };
    configure(&folder, &[server("files", "delete_all"), server("web", "get")]);
    for (capability, code) in [("mcp.files.delete_all", 4), ("mcp.web.get", 5)] {
        let mut explained = explain(&folder, &[capability, "{}"], code);
        let called = portcullis(&folder, &["call", capability, "{}", "--format", "json"])
            .with("--config", "mcp.json")
            .with("--policies", "policies")
            .run()
            .exits(code)
            .json();
        // Found among all policies, which is too much for each call.
        if explained["nearest"]["policy"]["id"] == "team.rules#L2" {
            explained.as_object_mut().unwrap().remove("nearest");
        }
        assert_eq!(called["error"]["decision"], explained, "{called:#}");
    }
}
