//! A person at a terminal answers for calls.

use std::fs;

use portcullis_e2e::{Finished, Folder, Program};
use portcullis_testkit::{Behaviour, Script, Tool};

use crate::{PORTCULLIS, configure, portcullis};

const CALL: [&str; 10] = [
    "call",
    "mcp.notes.write",
    r#"{"text":"bread"}"#,
    "--config",
    "mcp.json",
    "--policies",
    "policies",
    "--state",
    "state",
    "--format=json",
];

fn folder(rules: &str) -> Folder {
    let folder = Folder::new();
    let written = Behaviour::record(folder.path("ran"), Behaviour::Text("written".to_owned()));
    configure(
        &folder,
        &[("notes", Script::new("notes").tool(Tool::new("write", written)))],
    );
    folder.rules(rules);
    folder
}

/// Makes the call at a terminal, and types `answer` once it is asked.
#[track_caller]
fn at_a_terminal(folder: &Folder, answer: &str, code: i32) -> Finished {
    let program = Program::new(PORTCULLIS, folder).args(CALL).env("USER", "ann");
    program.run_at_terminal(&[("[N] no", answer)]).exits(code)
}

/// The same where nobody is there.
#[track_caller]
fn alone(folder: &Folder, code: i32) -> Finished {
    portcullis(folder, &CALL).run().exits(code)
}

fn runs(folder: &Folder) -> usize {
    fs::read_to_string(folder.path("ran")).map_or(0, |ran| ran.lines().count())
}

#[test]
fn once_is_once() {
    let folder = folder("default ask\n");
    let asked = at_a_terminal(&folder, "y", 0);
    assert!(
        asked
            .stderr
            .contains("mcp.notes.write wants to run with {\"text\":\"bread\"}"),
        "{}",
        asked.stderr
    );
    assert!(
        asked.stderr.contains("test.rules:1 (test.rules#L1)"),
        "{}",
        asked.stderr
    );
    assert_eq!(asked.json()["approved_by"], "person");
    alone(&folder, 5);
    assert_eq!(runs(&folder), 1);
}

#[test]
fn whatever_is_no_yes_is_a_no() {
    let folder = folder("default ask\n");
    for answer in ["", "n", "maybe", "\u{4}"] {
        at_a_terminal(&folder, answer, 4);
    }
    assert_eq!(runs(&folder), 0);
}

#[test]
fn for_an_hour_the_very_same_call_runs_unasked() {
    let folder = folder("default ask\n");
    let asked = at_a_terminal(&folder, "h", 0);
    assert!(
        asked.stderr.contains("[h] this very call for 60 min"),
        "{}",
        asked.stderr
    );
    assert_eq!(alone(&folder, 0).json()["approved_by"], "stored-approval");
    let approvals = |arguments: &[&str], code| {
        let command = [
            &["approvals"],
            arguments,
            &["--state", "state", "--format", "json"],
        ]
        .concat();
        portcullis(&folder, &command).run().exits(code)
    };
    let listed = approvals(&["list"], 0).json();
    assert_eq!(
        (&listed[0]["capability"], &listed[0]["by"]),
        (&"mcp.notes.write".into(), &"ann".into())
    );
    let id = listed[0]["id"].to_string();
    let other: Vec<_> = CALL.iter().map(|word| word.replace("bread", "cheese")).collect();
    let other: Vec<_> = other.iter().map(String::as_str).collect();
    portcullis(&folder, &other).run().exits(5);
    approvals(&["revoke", &id], 0);
    approvals(&["revoke", &id], 1);
    alone(&folder, 5);
    assert_eq!(runs(&folder), 2);
}

#[test]
fn always_writes_a_policy_that_people_can_read_and_check() {
    let folder = folder("default ask\n");
    let asked = at_a_terminal(&folder, "a", 0);
    assert!(
        asked
            .stderr
            .contains("[a] always, whatever the arguments, written to policies/always-notes-write-"),
        "{}",
        asked.stderr
    );
    let printed = alone(&folder, 0).json();
    assert_eq!(printed["decision"]["answer"], "allow", "{printed}");
    let id = printed["decision"]["policies"][0]["id"].as_str().unwrap();
    let text = fs::read_to_string(folder.path(&format!("policies/{id}.cedar"))).unwrap();
    assert!(text.contains("Always allowed by ann at 20"), "{text}");
    portcullis(&folder, &["policy", "fmt", "--check", "policies"])
        .run()
        .exits(0);
    // Deleting the file takes it back: nothing of it is hidden elsewhere.
    fs::remove_file(folder.path(&format!("policies/{id}.cedar"))).unwrap();
    alone(&folder, 5);
}

#[test]
fn what_cannot_hold_is_not_offered() {
    for (rules, offered) in [
        (
            "default ask\nask mcp.notes.*\n",
            "[y] this once, [h] this very call for 60 min, [N] no",
        ),
        ("always ask mcp.notes.*\n", "[y] this once, [N] no"),
    ] {
        let folder = folder(rules);
        let asked = at_a_terminal(&folder, "always", 4);
        assert!(asked.stderr.contains(offered), "{}", asked.stderr);
        assert_eq!(fs::read_dir(folder.path("policies")).unwrap().count(), 1);
    }
}
