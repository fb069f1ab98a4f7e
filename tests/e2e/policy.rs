//! `portcullis policy …`, each command as a process over a folder as people have it.

mod explain;
mod folders;
mod workflow;

use std::fs;

use portcullis_e2e::{Finished, Folder};
use serde_json::{Value, json};

use crate::portcullis;

const RULES: &str = "default ask\nallow mcp.files.*\nalways ask mcp.mail.send\ndeny mcp.*.delete_*\n";
const CEDAR: &str = "@id(\"etc\")\n@description(\"Nothing below /etc is read.\")\nforbid (\n  principal,\n  action in [Mcp::Action::\"call\", Mcp::Action::\"unattended\"],\n  resource == Mcp::Tool::\"mcp.files.read\"\n)\nwhen\n{ context.args.hasTag(\"path\") && context.args.getTag(\"path\") like \"/etc/*\" };\n";
const CASES: &str = r#"tools:
  - tool: mcp.files.read
  - tool: mcp.files.delete_all
  - tool: mcp.mail.send
  - tool: mcp.web.get
cases:
  - {tool: mcp.files.read, expect: allow}
  - {tool: mcp.files.read, arguments: '{"path":"/etc/passwd"}', expect: deny, policies: [etc]}
  - {tool: mcp.files.delete_all, tier: every, expect: deny, code: deny.policy}
  - {tool: mcp.mail.send, tier: full_access, expect: ask, approver: person_only}
  - {tool: mcp.web.get, expect: ask}
"#;

/// A folder of policies in which nothing is wrong, in `policies`.
fn good() -> Folder {
    let folder = Folder::new();
    folder.write("policies/team.rules", RULES);
    folder.write("policies/files.cedar", CEDAR);
    folder.write("policies/cases/team.yaml", CASES);
    policy(&folder, &["rules", "policies"]).exits(0);
    folder
}

/// `portcullis policy` with these arguments.
fn policy(folder: &Folder, arguments: &[&str]) -> Finished {
    portcullis(folder, &[&["policy"], arguments].concat()).run()
}

/// What `policy check` finds in `policies`, as `file:line kind`. Both formats agree about it.
#[track_caller]
fn check(folder: &Folder, options: &[&str], expected: &[&str]) -> Value {
    let code = if expected.is_empty() { 0 } else { 3 };
    let all = [&["check", "policies"], options].concat();
    let report = policy(folder, &[all.as_slice(), &["--format", "json"]].concat())
        .exits(code)
        .json();
    let problems = report["problems"].as_array().unwrap();
    let told: Vec<_> = problems
        .iter()
        .map(|problem| {
            format!(
                "{}:{} {}",
                text(&problem["file"]),
                problem["line"],
                text(&problem["kind"])
            )
        })
        .collect();
    assert_eq!(told, expected, "{report:#}");
    let printed = policy(folder, &all).exits(code).stdout;
    for problem in problems {
        let line = format!(
            "{}:{}: [{}] {}",
            text(&problem["file"]),
            problem["line"],
            text(&problem["kind"]),
            text(&problem["message"])
        );
        assert!(printed.contains(&line), "{line}\nis not in\n{printed}");
    }
    report
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn a_good_folder_passes_and_says_what_was_compared() {
    let folder = good();
    let report = check(&folder, &[], &[]);
    assert_eq!(
        report,
        json!({"decisions": 8, "exercised": 5, "untested_by_intent": 0, "problems": []})
    );
    let printed = policy(&folder, &["check", "policies"]).exits(0).stdout;
    assert_eq!(
        printed,
        "8 decisions compared, 5 policies exercised, 0 untested by intent, 0 problems\n"
    );
}

/// What forbids, in a file that nobody reads, forbids nothing; and a table in one proves nothing.
#[test]
fn what_is_nearly_a_policy_or_a_table_and_is_not_read_is_named() {
    let folder = good();
    for name in [
        "policies/extra.RULES",
        "policies/extra.rule",
        "policies/extra.rules.txt",
        "policies/sub/more.cedar",
        "policies/cases/more.yml",
        "policies/cases/sub/more.yaml",
    ] {
        folder.write(name, "deny mcp.*\n");
    }
    // Nobody takes these for any.
    for name in [
        "README.md",
        "cases/README.md",
        "cases/tools.json",
        "cases/old/notes.txt",
        ".old.rule",
        "tools.json",
        "pictures/plan.png",
    ] {
        folder.write(&format!("policies/{name}"), "x");
    }
    let expected = [
        "extra.RULES:1 not-read",
        "extra.rule:1 not-read",
        "extra.rules.txt:1 not-read",
        "sub:1 not-read",
        "cases/more.yml:1 not-read",
        "cases/sub:1 not-read",
    ];
    check(&folder, &[], &expected);
}

#[test]
fn what_does_not_load_is_told_with_its_line_and_what_to_do() {
    for (file, content, expected, told) in [
        (
            "x.cedar",
            "@id(\"x\") @description(\"d\") @advice(\"y\")\npermit (principal, action == Mcp::Action::\"call\", resource);",
            "x.cedar:1 policy",
            "unknown annotation `@advice`",
        ),
        (
            "x.cedar",
            "// A comment.\n@description(\"d\")\npermit (principal, action == Mcp::Action::\"call\", resource);",
            "x.cedar:2 policy",
            "this policy has no `@id`",
        ),
        (
            "x.cedar",
            "@id(\"x\")\npermit (principal, action == Mcp::Action::\"call\", resource);",
            "x.cedar:1 policy",
            "this policy has no `@description`",
        ),
        (
            "x.cedar",
            "@id(\"etc\") @description(\"d\")\npermit (principal, action == Mcp::Action::\"call\", resource);",
            "x.cedar:1 policy",
            "the id `etc` is taken by the policy at files.cedar:1",
        ),
        (
            "x.cedar",
            "@id(\"x\") @description(\"d\")\npermit (principal, action == Mcp::Action::\"call\", resource)\nwhen { resource.nmae == \"x\" };",
            "x.cedar:3 policy",
            "nmae",
        ),
        (
            "x.cedar",
            "@id(\"x\") @description(\"d\")\npermit (principal, action ==",
            "x.cedar:2 policy",
            "unexpected end of input",
        ),
        (
            "x.rules",
            "ask mcp.a.*\nalow mcp.b.*",
            "x.rules:2 policy",
            "`alow mcp.b.*` is not a rule",
        ),
        (
            "x.rules",
            "deny mcp.git*",
            "x.rules:1 policy",
            "`mcp.git*` is not a pattern of tools",
        ),
        (
            "x.rules",
            "ask mcp.a.*\ndefault deny",
            "x.rules:2 policy",
            "the default was set already at team.rules:1",
        ),
        (
            "x.rules",
            "deny mcp.a.x\u{202e}*",
            "x.rules:1 policy",
            "invisible character U+202E",
        ),
    ] {
        let folder = good();
        folder.write(&format!("policies/{file}"), content);
        let report = check_some(&folder, expected);
        let message = text(&report["problems"][0]["message"]);
        assert!(message.contains(told), "{told}: {message}");
    }
}

/// As [`check`], where one fault may be told more than once.
#[track_caller]
fn check_some(folder: &Folder, first: &str) -> Value {
    let report = policy(folder, &["check", "policies", "--format", "json"])
        .exits(3)
        .json();
    let problem = &report["problems"][0];
    let told = format!(
        "{}:{} {}",
        text(&problem["file"]),
        problem["line"],
        text(&problem["kind"])
    );
    assert_eq!(told, first, "{report:#}");
    report
}

#[test]
fn what_may_not_be_meant_fails_the_check() {
    let folder = good();
    folder.write(
        "policies/team.rules",
        format!("{RULES}allow mcp.git*.x # untested: new\n"),
    );
    policy(&folder, &["rules", "policies"]).exits(0);
    check(&folder, &[], &["team.rules:5 server-wildcard"]);
}

#[test]
fn a_catalog_shows_what_means_nothing_in_it() {
    let folder = good();
    folder.write(
        "ids.json",
        r#"["mcp.files.read", "mcp.files.delete_all", "mcp.web.get"]"#,
    );
    check(
        &folder,
        &["--catalog", "ids.json"],
        &["team.rules:3 unknown-server"],
    );
    folder.write(
        "listing.json",
        r#"{"tools": [{"capability": "mcp.mail.send"}, {"capability": "mcp.mail.delete_x"}]}"#,
    );
    check(
        &folder,
        &["--catalog", "listing.json"],
        &["files.cedar:1 unknown-tool", "team.rules:2 unknown-server"],
    );
    folder.write("wrong.json", "{}");
    for (file, told) in [
        ("wrong.json", "is no catalog"),
        ("missing.json", "cannot be read"),
    ] {
        let finished = policy(&folder, &["check", "policies", "--catalog", file]).exits(3);
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
}

#[test]
fn a_case_that_does_not_come_out_fails_the_check_at_its_line() {
    let folder = good();
    folder.write(
        "policies/cases/team.yaml",
        CASES.replace("mcp.web.get, expect: ask", "mcp.web.get, expect: allow"),
    );
    let report = check(&folder, &[], &["cases/team.yaml:11 case"]);
    let message = text(&report["problems"][0]["message"]);
    assert!(message.starts_with("expected allow, but it is ask"), "{message}");
    folder.write("policies/cases/team.yaml", "cases: [");
    check_some(&folder, "cases/team.yaml:2 case");
}

#[test]
fn a_policy_that_no_case_exercises_fails_the_check_unless_it_is_marked() {
    let folder = good();
    fs::remove_dir_all(folder.path("policies/cases")).unwrap();
    check(
        &folder,
        &[],
        &[
            "files.cedar:1 untested",
            "team.rules:1 untested",
            "team.rules:2 untested",
            "team.rules:3 untested",
            "team.rules:4 untested",
        ],
    );
    folder.write("policies/cases/team.yaml", CASES);
    let with = |rules: &str| {
        folder.write("policies/team.rules", rules);
        policy(&folder, &["rules", "policies"]).exits(0);
    };
    with(&format!("{RULES}ask mcp.later.*\n"));
    check(&folder, &[], &["team.rules:5 untested"]);
    with(&format!(
        "{RULES}ask mcp.later.*  # untested: it comes next week\n"
    ));
    assert_eq!(check(&folder, &[], &[])["untested_by_intent"], 1);
    with(&RULES.replace("default ask\n", "default ask  # untested: nobody asks\n"));
    let report = check(&folder, &[], &["team.rules:1 untested"]);
    let message = text(&report["problems"][0]["message"]);
    assert!(
        message.contains("is marked as untested, and a case exercises it"),
        "{message}"
    );
}

#[test]
fn rules_are_compiled_into_text_that_is_held_to_them() {
    let folder = good();
    let compiled = fs::read_to_string(folder.path("policies/compiled/team.rules.cedar")).unwrap();
    assert!(
        compiled.starts_with("// What team.rules means. Written by `portcullis policy rules`.\n"),
        "{compiled}"
    );
    assert!(compiled.contains("@id(\"team.rules#L4\")"), "{compiled}");
    policy(&folder, &["rules", "policies", "--check"]).exits(0);

    folder.write(
        "policies/compiled/team.rules.cedar",
        compiled.replace("delete_", "remove_"),
    );
    check(&folder, &[], &["compiled/team.rules.cedar:1 compiled"]);
    let checked = policy(&folder, &["rules", "policies", "--check", "--format", "json"]).exits(3);
    assert_eq!(
        checked.json(),
        json!({"files": [{"file": "compiled/team.rules.cedar", "state": "would be written anew"}]})
    );
    let written = policy(&folder, &["rules", "policies"]).exits(0).stdout;
    assert_eq!(written, "compiled/team.rules.cedar: written\n");
    check(&folder, &[], &[]);

    fs::remove_file(folder.path("policies/compiled/team.rules.cedar")).unwrap();
    folder.write("policies/compiled/gone.rules.cedar", compiled);
    check(
        &folder,
        &[],
        &[
            "compiled/team.rules.cedar:1 compiled",
            "compiled/gone.rules.cedar:1 compiled",
        ],
    );
}

#[test]
fn files_are_laid_out_in_the_one_way_to_write_them() {
    let folder = good();
    let untidy = "# all\ndefault   ask\nallow mcp.files.*.*   #  ours\n";
    folder.write("policies/team.rules", untidy);
    let checked = policy(&folder, &["fmt", "policies", "--check"]).exits(3).stdout;
    assert_eq!(checked, "team.rules: would be written anew\n");
    let read = || fs::read_to_string(folder.path("policies/team.rules")).unwrap();
    assert_eq!(read(), untidy, "`--check` writes nothing");
    let written = policy(&folder, &["fmt", "policies", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(
        written,
        json!({"files": [
            {"file": "files.cedar", "state": "unchanged"},
            {"file": "team.rules", "state": "written"},
        ]})
    );
    let tidy = read();
    assert!(tidy.starts_with("# all\ndefault ask\nallow mcp.files."), "{tidy}");
    let again = policy(&folder, &["fmt", "policies"]).exits(0);
    assert_eq!((again.stdout.as_str(), read()), ("", tidy), "twice is as once");

    folder.write("policies/team.rules", "alow mcp.*");
    let refused = policy(&folder, &["fmt", "policies"]).exits(3);
    assert!(
        refused
            .stderr
            .contains("team.rules:1: `alow mcp.*` is not a rule"),
        "{}",
        refused.stderr
    );
    assert_eq!(read(), "alow mcp.*");
}
