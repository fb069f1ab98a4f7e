//! `portcullis call` against scripted servers: decisions, results, names.

use std::fs;

use portcullis_e2e::{Folder, pair, scripted};
use portcullis_testkit::{Behaviour, Script, Tool, pseudo_random};
use serde_json::{Value, json};

use crate::{SCRIPTED, configure, portcullis};

/// A server whose every call leaves a line in the file `ran`.
fn notes(folder: &Folder) -> Script {
    let says = |text: &str| Behaviour::record(folder.path("ran"), Behaviour::Text(text.to_owned()));
    Script::new("notes")
        .tool(Tool::new("read", says("bread, cheese")))
        .tool(Tool::new("write", says("written")))
        .tool(Tool::new("delete_all", says("gone")))
}

const RULES: &str =
    "# Notes.\ndefault deny\nallow mcp.notes.read\nask mcp.notes.write\n\ndeny mcp.notes.delete_*\n";

#[track_caller]
fn check(capability: &str, exit_code: i32, code: &str, answer: &str, line: u64, part: &str) {
    let folder = Folder::new();
    configure(&folder, &[("notes", notes(&folder))]);
    folder.rules(RULES);
    let call = [
        "call",
        capability,
        "{}",
        "--config",
        "mcp.json",
        "--policies",
        "policies",
    ];
    let finished = portcullis(&folder, &call)
        .args(["--format", "json"])
        .run()
        .exits(exit_code);
    let printed = finished.json();
    let decision = if exit_code == 0 {
        assert_eq!(printed["is_error"], false, "{printed}");
        &printed["decision"]
    } else {
        assert_eq!(printed["error"]["code"], code, "{printed}");
        &printed["error"]["decision"]
    };
    assert_eq!(decision["answer"], answer, "{printed}");
    let policy = &decision["policies"][0];
    assert_eq!(policy["file"], "test.rules", "{printed}");
    assert_eq!(policy["line"], line, "{printed}");
    assert_eq!(policy["id"], format!("test.rules#L{line}{part}"), "{printed}");
    let line_of_rule = RULES.lines().nth(usize::try_from(line).unwrap() - 1).unwrap();
    assert_eq!(policy["description"], line_of_rule, "{printed}");
    assert_eq!(
        folder.path("ran").exists(),
        exit_code == 0,
        "what is not allowed never reaches the server"
    );

    let told = portcullis(&folder, &call).run().exits(exit_code);
    if exit_code != 0 {
        assert_eq!(told.stdout, "", "errors are no results");
        assert!(
            told.stderr.contains(&format!("test.rules:{line}")),
            "{}",
            told.stderr
        );
    }
}

#[test]
fn an_allowed_call_says_which_policy_allowed_it() {
    check("mcp.notes.read", 0, "", "allow", 3, "");
}

#[test]
fn a_denied_call_says_which_policy_denied_it() {
    check("mcp.notes.delete_all", 4, "denied", "deny", 6, "");
}

#[test]
fn a_call_that_nobody_is_there_to_approve_says_who_wants_it_approved() {
    // One rule, several policies: this one lets a person allow it.
    check("mcp.notes.write", 5, "needs-approval", "ask", 4, ".person");
}

#[test]
fn without_policies_all_is_denied_and_the_program_names_the_way_out() {
    let folder = Folder::new();
    configure(&folder, &[("notes", notes(&folder))]);
    let finished = portcullis(&folder, &["call", "mcp.notes.read", "--config", "mcp.json"])
        .run()
        .exits(4);
    assert!(
        finished.stderr.contains("--preset ask-by-default"),
        "{}",
        finished.stderr
    );
    assert!(
        finished.stderr.contains("no policies are loaded"),
        "{}",
        finished.stderr
    );
    let call = [
        "call",
        "mcp.notes.read",
        "--config",
        "mcp.json",
        "--preset",
        "ask-by-default",
    ];
    let finished = portcullis(&folder, &call)
        .args(["--format", "json"])
        .run()
        .exits(5);
    assert_eq!(finished.json()["error"]["decision"]["code"], "ask.policy");
    // In the tier that asks for nothing, what would be asked runs.
    portcullis(&folder, &call)
        .args(["--tier", "full_access"])
        .run()
        .exits(0);
}

/// What a configuration says of who belongs to which profile is what policies about profiles go by.
#[test]
fn an_agent_is_held_to_what_policies_say_of_its_profile() {
    let folder = Folder::new();
    let script = Script::new("notes").tool(Tool::new("read", Behaviour::Text("bread".to_owned())));
    let server = pair(scripted(SCRIPTED, &script), "name", "notes".into());
    let config = json!({"mcp": {"agents": {"bot": "night"}, "policies": "policies", "servers": [server]}});
    folder.write("hub.json", config.to_string());
    folder.rules("allow mcp.notes.*\n");
    folder.write(
        "policies/night.cedar",
        "@id(\"night\") @description(\"Not at night.\")\nforbid (principal in Mcp::Profile::\"night\", action == \
         Mcp::Action::\"call\", resource);\n",
    );
    let call = [
        "call",
        "mcp.notes.read",
        "--config",
        "hub.json",
        "--format",
        "json",
    ];
    for (agent, code) in [("other", 0), ("Bot", 0), ("bot", 4)] {
        let finished = portcullis(&folder, &call).args(["--as", agent]).run().exits(code);
        // One that has none because its name is not quite right would not notice.
        let told = format!("`{agent}` (--as) is none of the configuration's `agents` (`bot`)");
        assert_eq!(
            finished.stderr.contains(&told),
            agent != "bot",
            "{}",
            finished.stderr
        );
        assert!(
            !finished.stderr.contains("no policy names"),
            "{}",
            finished.stderr
        );
    }
    // Whoever does not say who it is has not got its name wrong.
    let finished = portcullis(&folder, &call).run().exits(0);
    assert!(!finished.stderr.contains("agents"), "{}", finished.stderr);
    // The policy's own name may be the one that is wrong.
    let config = json!({"mcp": {"agents": {"bot": "nigth"}, "policies": "policies", "servers": [server]}});
    folder.write("hub.json", config.to_string());
    let finished = portcullis(&folder, &call).args(["--as", "bot"]).run().exits(0);
    let told = "no policy names `nigth`, which agents of the configuration belong to; policies name `night`";
    assert!(finished.stderr.contains(told), "{}", finished.stderr);
}

#[test]
fn binary_content_goes_to_the_store_and_a_reference_takes_its_place() {
    let folder = Folder::new();
    let script = Script::new("pictures")
        .tool(Tool::new("image", Behaviour::image(300_000, 7)))
        .tool(Tool::new(
            "audio",
            Behaviour::Audio {
                bytes: 100_000,
                seed: 8,
            },
        ))
        .tool(Tool::new(
            "blob",
            Behaviour::EmbeddedBlob {
                bytes: 100_000,
                seed: 9,
            },
        ))
        .tool(Tool::new(
            "twin",
            Behaviour::Twin {
                bytes: 100_000,
                seed: 10,
            },
        ));
    configure(&folder, &[("pictures", script)]);
    let policies = folder.rules("default deny\nallow mcp.*\n");
    for (tool, media_type, bytes, seed) in [
        ("image", "image/png", 300_000, 7),
        ("audio", "audio/wav", 100_000, 8),
        ("blob", "application/octet-stream", 100_000, 9),
        ("twin", "image/png", 100_000, 10),
    ] {
        let finished = portcullis(
            &folder,
            &["call", &format!("mcp.pictures.{tool}"), "--config", "mcp.json"],
        )
        .with("--policies", &policies)
        .with("--blobs", folder.path("blobs"))
        .args(["--format", "json"])
        .run()
        .exits(0);
        assert!(
            finished.stdout.len() < 2_000,
            "{} bytes of output",
            finished.stdout.len()
        );
        let printed = finished.json();
        let [blob] = printed["blobs"].as_array().unwrap().as_slice() else {
            panic!("one blob, also where it stands twice: {printed}");
        };
        assert_eq!(blob["sizeBytes"], bytes, "{printed}");
        assert_eq!(blob["mediaType"], media_type, "{printed}");
        let reference = blob["blob"].as_str().unwrap();
        let hash = reference.strip_prefix("blob:blake3:").unwrap();
        let stored = folder.path("blobs/blake3").join(&hash[..2]).join(hash);
        let expected = pseudo_random(media_type, bytes, seed);
        assert!(
            fs::read(&stored).unwrap() == expected,
            "{tool}: the bytes are the server's"
        );
        let times = printed["result"].to_string().matches(reference).count();
        assert_eq!(times, if tool == "twin" { 2 } else { 1 }, "{printed}");
    }
}

/// Field report 55.
#[test]
fn a_tool_name_over_64_characters_has_an_alias_that_fits_and_both_reach_it() {
    let folder = Folder::new();
    let name = format!("{}/with every.thing: ünusual*", "long_".repeat(30));
    let script = Script::new("wordy").tool(Tool::new(&name, Behaviour::Text("reached".to_owned())));
    configure(&folder, &[("wordy", script)]);
    folder.rules("default deny\nallow mcp.wordy.*\n");
    let hub = ["--config", "mcp.json", "--policies", "policies"];
    let listed = portcullis(&folder, &["tools", "--format", "json"])
        .args(hub)
        .run()
        .exits(0)
        .json();
    let tool = &listed["tools"][0];
    let capability = format!("mcp.wordy.{name}");
    assert_eq!(tool["capability"], capability, "{listed}");
    let alias = tool["alias"].as_str().unwrap();
    assert!(alias.len() <= 64, "{alias}");
    assert!(
        alias
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)),
        "{alias}"
    );
    for called in [alias, capability.as_str()] {
        let finished = portcullis(&folder, &["call", called]).args(hub).run().exits(0);
        assert_eq!(finished.stdout, "reached\n", "{called}");
    }
}

#[test]
fn arguments_and_results_pass_word_for_word() {
    let folder = Folder::new();
    let result =
        r#"{"content":[],"structuredContent":{"big":123456789012345678901234567890,"f":1.10,"e":1E5}}"#;
    let script = Script::new("exact")
        .tool(Tool::new("echo", Behaviour::Echo))
        .tool(Tool::new("number", Behaviour::Raw(result.to_owned())));
    configure(&folder, &[("exact", script)]);
    folder.rules("default deny\nallow mcp.*\n");
    let hub = ["--config", "mcp.json", "--policies", "policies"];
    let arguments = r#"{"n":98765432109876543210.10, "deep":[{"x":1e400}]}"#;
    let finished = portcullis(&folder, &["call", "mcp.exact.echo", arguments])
        .args(hub)
        .run()
        .exits(0);
    assert_eq!(finished.stdout, format!("{arguments}\n"));
    let finished = portcullis(&folder, &["call", "mcp.exact.number", "--format", "json"])
        .args(hub)
        .run()
        .exits(0);
    assert!(finished.stdout.contains(result), "{}", finished.stdout);
}

/// Field report 47.
#[test]
fn a_server_that_asks_the_user_is_declined_at_once() {
    let folder = Folder::new();
    let script = Script::new("curious").tool(Tool::new("who", Behaviour::elicit("Who are you?")));
    configure(&folder, &[("curious", script)]);
    folder.rules("default deny\nallow mcp.*\nallow elicit mcp.*\n");
    let finished = portcullis(&folder, &["call", "mcp.curious.who", "--format", "json"])
        .args(["--config", "mcp.json", "--policies", "policies"])
        .run()
        .exits(0);
    let printed = finished.json();
    let answer: Value =
        serde_json::from_str(printed["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    let declined = answer["action"] == "decline" || answer["result"]["action"] == "decline";
    assert!(declined, "{answer}");
    assert!(
        printed["duration_ms"].as_u64().unwrap() < 10_000,
        "at once, not after somebody's deadline"
    );
}

#[test]
fn a_tool_that_fails_is_told_as_it_says_it() {
    let folder = Folder::new();
    let script = Script::new("sad")
        .tool(Tool::new("no", Behaviour::Error("the bridge is out".to_owned())))
        .tool(Tool::new(
            "rpc",
            Behaviour::JsonRpcError {
                code: -32_050,
                message: "no oil".to_owned(),
            },
        ));
    configure(&folder, &[("sad", script)]);
    folder.rules("default deny\nallow mcp.*\n");
    let hub = ["--config", "mcp.json", "--policies", "policies"];
    let finished = portcullis(&folder, &["call", "mcp.sad.no"])
        .args(hub)
        .run()
        .exits(6);
    assert_eq!(finished.stdout, "the bridge is out\n");
    let finished = portcullis(&folder, &["call", "mcp.sad.rpc", "--format", "json"])
        .args(hub)
        .run()
        .exits(6);
    let error = &finished.json()["error"];
    assert_eq!(error["code"], "upstream-error");
    assert!(
        error["message"].as_str().unwrap().contains("-32050: no oil"),
        "{error}"
    );
}
