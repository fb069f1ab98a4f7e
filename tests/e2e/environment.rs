//! What a server's process gets to see.

use portcullis_e2e::{Folder, mcp_servers, pair, scripted};
use portcullis_testkit::{Behaviour, Script, Tool};
use serde_json::{Value, json};

use crate::{SCRIPTED, portcullis};

/// Field report 10.
#[track_caller]
fn check(env: Option<Value>, expected: &[(&str, &str)]) {
    let folder = Folder::new();
    let script = Script::new("nosy").tool(Tool::new("env", Behaviour::Env));
    let mut definition = scripted(SCRIPTED, &script);
    if let Some(env) = env {
        definition = pair(definition, "env", env);
    }
    folder.write("mcp.json", mcp_servers([("nosy", definition)]));
    folder.rules("default deny\nallow mcp.*\n");
    let finished = portcullis(&folder, &["call", "mcp.nosy.env", "--config", "mcp.json"])
        .args(["--policies", "policies"])
        .env("CANARY", "yellow")
        .env("AWS_SECRET_ACCESS_KEY", "yellow")
        .env("LANG", "C.UTF-8")
        .run()
        .exits(0);
    assert!(!finished.stdout.contains("yellow"), "{}", finished.stdout);
    let seen = finished.json();
    assert!(seen["PATH"].is_string(), "the base is there: {seen}");
    assert_eq!(seen["HOME"], folder.root().to_str().unwrap(), "{seen}");
    assert_eq!(seen["LANG"], "C.UTF-8", "{seen}");
    for (name, value) in expected {
        assert_eq!(seen[name], *value, "{seen}");
    }
    // Nothing but the base and what the entry says.
    let base = ["PATH", "HOME", "LANG"];
    let foreign: Vec<_> = seen
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| !base.contains(&name.as_str()) && !expected.iter().any(|(own, _)| own == name))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn the_programs_own_variables_stay_with_it() {
    check(None, &[]);
}

#[test]
fn an_env_section_adds_what_it_says_and_nothing_else() {
    check(Some(json!({"OWN": "green"})), &[("OWN", "green")]);
    check(Some(json!({})), &[]);
}
