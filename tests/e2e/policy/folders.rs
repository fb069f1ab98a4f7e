//! Folders that are sealed, tampered with, or hold what no folder of policies should.

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use portcullis_e2e::Folder;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{CEDAR, RULES, check, check_some, good, policy, text};

fn seal(folder: &Folder) {
    policy(folder, &["seal", "policies"]).exits(0);
}

#[test]
fn a_sealed_folder_holds_what_was_reviewed() {
    let folder = good();
    check(&folder, &["--sealed"], &["policies.seal:1 seal"]);
    let sealed = policy(&folder, &["seal", "policies"]).exits(0).stdout;
    assert_eq!(sealed, "policies.seal: written\n");
    for options in [&[][..], &["--sealed"]] {
        check(&folder, options, &[]);
    }
    assert_eq!(
        policy(&folder, &["seal", "policies"]).exits(0).stdout,
        "",
        "as it is"
    );

    folder.write("policies/team.rules", format!("{RULES}# later\n"));
    for options in [&[][..], &["--sealed"]] {
        check(&folder, options, &["team.rules:1 seal"]);
    }
    seal(&folder);
    folder.write("policies/new.rules", "# nothing\n");
    fs::remove_file(folder.path("policies/files.cedar")).unwrap();
    let told = check_some(&folder, "files.cedar:1 seal");
    assert_eq!(text(&told["problems"][1]["file"]), "new.rules", "{told}");
}

#[test]
fn what_is_no_seal_is_refused() {
    let folder = good();
    for (content, told) in [
        ("", "policies.seal:1: the seal cannot be read"),
        (r#"{"version": 9, "files": {}}"#, "its version is 9, not 1"),
    ] {
        folder.write("policies/policies.seal", content);
        let finished = policy(&folder, &["check", "policies"]).exits(3);
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
}

#[test]
fn what_does_not_load_is_not_sealed() {
    let folder = good();
    folder.write("policies/team.rules", "alow mcp.*\n");
    let finished = policy(&folder, &["seal", "policies"]).exits(3);
    assert!(
        finished
            .stderr
            .contains("team.rules:1: `alow mcp.*` is not a rule"),
        "{}",
        finished.stderr
    );
    assert!(!folder.path("policies/policies.seal").exists());
}

/// What is left still parses, and forbids less: the seal sees it, and without one the cases do.
#[test]
fn a_file_that_was_cut_between_two_policies_is_noticed() {
    let second = "\n@id(\"mail\")\n@description(\"Mail is not sent.\")\nforbid (\n  principal,\n  action in [Mcp::Action::\"call\", Mcp::Action::\"unattended\"],\n  resource == Mcp::Tool::\"mcp.mail.send\"\n);\n";
    let folder = good();
    folder.write("policies/files.cedar", format!("{CEDAR}{second}"));
    let case = "mcp.mail.send, tier: full_access, expect: deny, policies: [mail]}";
    let cases = super::CASES.replace(
        "mcp.mail.send, tier: full_access, expect: ask, approver: person_only}",
        case,
    );
    folder.write("policies/cases/team.yaml", cases);
    folder.write(
        "policies/team.rules",
        RULES.replace("always ask mcp.mail.send\n", ""),
    );
    policy(&folder, &["rules", "policies"]).exits(0);
    seal(&folder);
    check(&folder, &["--sealed"], &[]);

    folder.write("policies/files.cedar", CEDAR);
    let report = check_some(&folder, "files.cedar:1 seal");
    let kinds: Vec<_> = report["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| text(&problem["kind"]))
        .collect();
    assert_eq!(kinds, ["seal", "case", "case"], "{report:#}");
}

#[test]
fn wrong_command_lines_are_2_and_missing_folders_3() {
    let folder = Folder::new();
    for arguments in [
        &["check"][..],
        &["fmt"],
        &["seal"],
        &["rules"],
        &["policies"],
        &["check", "policies", "--format", "xml"],
        &["explain", "mcp.a.b"],
        &["explain", "mcp.a", "--preset", "read-only"],
        &["explain", "mcp.a.b", "--preset", "nothing"],
        &[
            "explain",
            "mcp.a.b",
            "--preset",
            "read-only",
            "--policies",
            "policies",
        ],
        &["explain", "mcp.a.b", "--preset", "read-only", "--tier", "root"],
    ] {
        let finished = policy(&folder, arguments).exits(2);
        assert!(
            !finished.stderr.is_empty() && finished.stdout.is_empty(),
            "{arguments:?}"
        );
    }
    fs::create_dir(folder.path("empty")).unwrap();
    for (missing, told) in [
        ("missing", "cannot read `missing`"),
        ("empty", "there is no policy in `empty`"),
    ] {
        for command in ["check", "fmt", "seal", "rules"] {
            let finished = policy(&folder, &[command, missing]).exits(3);
            assert!(finished.stderr.contains(told), "{command}: {}", finished.stderr);
        }
    }
}

/// Adds to a folder what should not be in it.
type Layout = fn(&Folder);

#[test]
fn what_is_no_plain_text_is_refused_by_every_command() {
    let make: [(&str, Layout); 6] = [
        ("its text is not UTF-8", |folder| {
            folder.write("policies/x.rules", b"allow mcp.\xff");
        }),
        ("its name is not UTF-8", |folder| {
            let name = std::ffi::OsStr::from_bytes(b"policies/x\xff.rules");
            fs::write(folder.root().join(name), "").unwrap();
        }),
        ("its name holds a control character", |folder| {
            folder.write("policies/x\u{1b}[2J.rules", "");
        }),
        ("it is over 4 MiB", |folder| {
            folder.write("policies/x.cedar", vec![b'\n'; 4 * 1024 * 1024 + 1]);
        }),
        ("it is no plain file", |folder| {
            mknodat(
                CWD,
                folder.path("policies/x.rules"),
                FileType::Fifo,
                Mode::RUSR,
                0,
            )
            .unwrap();
        }),
        ("No such file", |folder| {
            symlink("nowhere", folder.path("policies/x.rules")).unwrap();
        }),
    ];
    for (told, make) in make {
        let folder = good();
        make(&folder);
        for command in ["check", "fmt", "seal", "rules"] {
            let finished = policy(&folder, &[command, "policies"]).exits(3);
            assert!(finished.stderr.contains(told), "{command}: {}", finished.stderr);
            assert!(!finished.stderr.contains('\u{1b}'), "{}", finished.stderr);
        }
        let explain = ["explain", "mcp.files.read", "--policies", "policies"];
        let finished = policy(&folder, &explain).exits(3);
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
}

/// What stands beside the policies is read with the same care.
#[test]
fn cases_and_compiled_text_must_be_plain_too() {
    for place in [
        "policies/cases/x.yaml",
        "policies/compiled/x.cedar",
        "policies/policies.seal",
    ] {
        let folder = good();
        mknodat(CWD, folder.path(place), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let finished = policy(&folder, &["check", "policies"]).exits(3);
        assert!(
            finished.stderr.contains("it is no plain file"),
            "{place}: {}",
            finished.stderr
        );
    }
}

#[test]
fn a_link_counts_as_what_it_leads_to_and_is_not_written_over() {
    let folder = good();
    folder.write("shared.rules", "deny   mcp.web.*\n");
    symlink(folder.path("shared.rules"), folder.path("policies/shared.rules")).unwrap();
    let denied = policy(&folder, &["explain", "mcp.web.get", "--policies", "policies"]).exits(4);
    assert!(
        denied.stdout.contains("decided by shared.rules:1"),
        "{}",
        denied.stdout
    );
    let finished = policy(&folder, &["fmt", "policies"]).exits(1);
    assert!(
        finished
            .stderr
            .contains("is no plain file, and is not written over"),
        "{}",
        finished.stderr
    );
    assert_eq!(
        fs::read_to_string(folder.path("shared.rules")).unwrap(),
        "deny   mcp.web.*\n"
    );

    let folder = good();
    fs::remove_dir_all(folder.path("policies/compiled")).unwrap();
    folder.write("policies/compiled", "in the way");
    policy(&folder, &["rules", "policies"]).exits(1);
}

/// The name of a file is part of its rules' ids, whatever stands in it.
#[test]
fn hostile_names_stay_names() {
    let folder = good();
    let name = "x\"); permit (principal, action, resource); //.rules";
    folder.write(
        &format!("policies/{}", name.replace('/', ":")),
        "deny mcp.web.get\n",
    );
    let denied = policy(
        &folder,
        &[
            "explain",
            "mcp.web.get",
            "--policies",
            "policies",
            "--format",
            "json",
        ],
    );
    let denied = denied.exits(4).json();
    assert_eq!(
        denied["policies"][0]["id"],
        format!("{}#L1", name.replace('/', ":")),
        "{denied}"
    );
    policy(&folder, &["rules", "policies"]).exits(0);
    let compiled = folder.path(&format!("policies/compiled/{}.cedar", name.replace('/', ":")));
    let compiled = fs::read_to_string(compiled).unwrap();
    assert_eq!(compiled.matches("forbid").count(), 1, "{compiled}");
}

#[test]
fn a_catalog_that_is_none_is_refused_with_its_reason() {
    let folder = good();
    let refused = |catalog: &str, told: &str| {
        let finished = policy(&folder, &["check", "policies", "--catalog", catalog]).exits(3);
        assert!(
            finished.stderr.contains(catalog) && finished.stderr.contains(told),
            "{}",
            finished.stderr
        );
    };
    folder.write("names.json", r#"["mcp.files.read", "files.read"]"#);
    refused("names.json", "`files.read` is not a capability id");
    folder.write("tools.json", r#"{"tools": [{"capability": "read"}]}"#);
    refused("tools.json", "`read` is not a capability id");
    folder.write("cut.json", r#"["mcp.files.read""#);
    refused("cut.json", "EOF while parsing a list at line 1");
    folder.write("number.json", "7");
    refused("number.json", "is no catalog");
    // It has no end.
    refused("/dev/zero", "it is over 64 MiB");
}
