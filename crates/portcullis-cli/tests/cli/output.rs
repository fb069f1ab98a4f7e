//! What becomes of a result that cannot be printed or is not whole, and of what is printed of others.

use std::{fs::File, path::Path, process::Stdio};

use super::{Ended, ended, program};

/// Runs the program with its standard output there.
fn run(arguments: &[&str], stdout: impl Into<Stdio>) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("mcp.json"),
        r#"{"mcpServers": {"a": {"command": "/bin/sh"}}}"#,
    )
    .unwrap();
    ended(program(arguments).current_dir(&folder).stdout(stdout))
}

fn run_in(folder: &Path, arguments: &[&str]) -> Ended {
    ended(program(arguments).current_dir(folder))
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
        let Ended { code, told, .. } = run(command, full);
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
        let Ended { code, told, .. } = run(command, writer);
        let expected = if command[0] == "policy" { 5 } else { 0 };
        assert_eq!(code, Some(expected), "{command:?}: {told}");
        assert!(!told.contains("error"), "{command:?}: {told}");
    }
}

#[test]
fn what_the_command_line_holds_cannot_steer_the_terminal() {
    let hostile = ["check", "--format", "a\u{1b}]0;b\u{7}\u{202e}", "mcp.json"];
    let Ended { code, told, .. } = run(&hostile, Stdio::piped());
    assert_eq!(code, Some(2));
    assert!(
        told.contains(r"a\u{1b}]0;b\u{7}\u{202e}") && !told.contains(['\u{1b}', '\u{7}']),
        "{told:?}"
    );
}

#[test]
fn a_log_that_cannot_be_had_as_it_is_asked_for_is_told() {
    let mut command = program(&["policy", "explain", "mcp.a.b", "--preset", "read-only"]);
    let Ended { code, told, .. } = ended(command.env("PORTCULLIS_LOG", "portcullis=loud"));
    assert!(told.contains("PORTCULLIS_LOG is no filter"), "{told}");
    assert_eq!(code, Some(4), "{told}");
}

/// What `init` wrote before it failed is in the way of the next `init`, so it is told.
#[test]
fn what_init_wrote_before_it_failed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    // A folder in which nobody can create a file, not even root.
    std::os::unix::fs::symlink("/proc", folder.path().join("policies/compiled")).unwrap();
    for format in ["text", "json"] {
        let Ended { code, printed, told } = run_in(folder.path(), &["init", "--format", format]);
        assert_eq!(code, Some(1), "{told}");
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
        let arguments = ["policy", "rules", "policies", "--format", format];
        let Ended { code, printed, told } = run_in(folder.path(), &arguments);
        assert_eq!(code, Some(1), "{told}");
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

/// What holds for all servers, and could not be read, is not in what is printed.
#[test]
fn an_import_that_is_not_whole_is_not_done() {
    let folder = tempfile::tempdir().unwrap();
    for (text, expected) in [
        ("mcp: {servers: [], policies: p, tier: plan}", 0),
        ("mcp: {servers: [], policies: p, tier: plam}", 3),
        ("mcp: {servers: [], agents: [bot]}", 3),
        ("mcp: {servers: [], allowedHosts: ['no host']}", 3),
        ("mcp: {servers: [{name: a, command: node, args: 7}]}", 3),
        // Carried over, though this machine cannot start it.
        ("mcp: {servers: [{name: a, command: /no/such/program}]}", 0),
        (
            "mcp: {servers: [{name: a, url: 'https://a.example'}], allowedHosts: [a.example], rootCertificates: [/no/such.pem]}",
            0,
        ),
        // A client's own settings cost no server, whatever stands in them.
        ("theme: a\ntheme: b\ncontext_servers: {a: {command: node}}", 0),
        ("theme: {a: b, a: c}\ncontext_servers: {a: {command: node}}", 0),
        ("context_servers: {a: {command: node}}\ncontext_servers: {}", 3),
        ("context_servers: {a: {command: node, args: [], args: [b]}}", 3),
    ] {
        std::fs::write(folder.path().join("mcp.yaml"), text).unwrap();
        for format in ["text", "json"] {
            let Ended { code, told, .. } = run_in(folder.path(), &["import", "mcp.yaml", "--format", format]);
            assert_eq!(code, Some(expected), "{text}: {told}");
        }
    }
}
