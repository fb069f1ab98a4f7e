//! What becomes of a result that cannot be printed or is not whole, and of what is printed of others.

#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests that run the program, and panic where something is wrong"
)]

use std::{
    fs::File,
    process::{Command, Output, Stdio},
};

/// Runs the program with its standard output there; what it says is looked at.
fn run(arguments: &[&str], stdout: impl Into<Stdio>) -> Output {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("mcp.json"),
        r#"{"mcpServers": {"a": {"command": "/bin/sh"}}}"#,
    )
    .unwrap();
    Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .output()
        .unwrap()
}

const COMMANDS: [&[&str]; 5] = [
    &["check", "mcp.json"],
    &["check", "mcp.json", "--format", "json"],
    &["import", "mcp.json"],
    &["policy", "explain", "mcp.a.b", "--preset", "ask-by-default"],
    &["--help"],
];

#[test]
fn a_result_that_is_lost_is_not_done() {
    for command in COMMANDS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = run(command, full);
        let told = String::from_utf8(output.stderr).unwrap();
        let code = output.status.code();
        // An answer that is no plain yes keeps its code.
        let expected = if command[0] == "policy" { 5 } else { 1 };
        assert_eq!(code, Some(expected), "{command:?}: {told}");
        let says = told.contains("standard output cannot be written") && told.contains("No space left");
        assert!(says, "{command:?}: {told}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    for command in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = run(command, writer);
        let told = String::from_utf8(output.stderr).unwrap();
        let expected = if command[0] == "policy" { 5 } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "{command:?}: {told}");
        assert!(!told.contains("error"), "{command:?}: {told}");
    }
}

#[test]
fn what_the_command_line_holds_cannot_steer_the_terminal() {
    let output = run(
        &["check", "--format", "a\u{1b}]0;b\u{7}\u{202e}", "mcp.json"],
        Stdio::piped(),
    );
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains(r"a\u{1b}]0;b\u{7}\u{202e}") && !told.contains(['\u{1b}', '\u{7}']),
        "{told:?}"
    );
}

#[test]
fn a_log_that_cannot_be_had_as_it_is_asked_for_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["policy", "explain", "mcp.a.b", "--preset", "read-only"])
        .env("PORTCULLIS_LOG", "portcullis=loud")
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("PORTCULLIS_LOG is no filter"), "{told}");
    assert_eq!(output.status.code(), Some(4), "{told}");
}

/// What `init` wrote before it failed is in the way of the next `init`, so it is told.
#[test]
fn what_init_wrote_before_it_failed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    // A folder in which nobody can create a file, not even root.
    std::os::unix::fs::symlink("/proc", folder.path().join("policies/compiled")).unwrap();
    for format in ["text", "json"] {
        let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["init", "--format", format])
            .current_dir(&folder)
            .output()
            .unwrap();
        let (printed, told) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("policies/compiled/tools.rules.cedar"), "{told}");
        assert!(!told.contains("next:"), "{told}");
        let written = folder.path().join("policies/tools.rules");
        assert!(
            written.exists() && printed.contains("policies/tools.rules"),
            "{printed}"
        );
        assert!(!printed.contains("portcullis.yaml"), "{printed}");
        std::fs::remove_file(written).unwrap();
    }
}

/// So is what `policy rules` wrote: it may be in force already.
#[test]
fn what_was_written_of_policies_before_one_failed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies");
    // A folder, where a file is to be written.
    std::fs::create_dir_all(policies.join("compiled/b.rules.cedar")).unwrap();
    for name in ["a", "b"] {
        std::fs::write(policies.join(name).with_extension("rules"), "allow mcp.s.t\n").unwrap();
    }
    for format in ["text", "json"] {
        let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["policy", "rules", "policies", "--format", format])
            .current_dir(&folder)
            .output()
            .unwrap();
        let (printed, told) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("compiled/b.rules.cedar"), "{told}");
        let written = policies.join("compiled/a.rules.cedar");
        assert!(
            written.exists() && printed.contains("compiled/a.rules.cedar") && printed.contains("written"),
            "{printed}"
        );
        assert!(!printed.contains("compiled/b.rules.cedar"), "{printed}");
        std::fs::remove_file(written).unwrap();
    }
}
