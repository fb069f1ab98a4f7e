//! The program `portcullis-scripted-server`, as a hub starts it.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the helpers of a test fail as its test functions do"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use portcullis_testkit::{
    AtEof, Behaviour, Descendant, Detach, Handshake, Process, Script, Tool, UnlessFile, demo, pseudo_random,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Nothing that works takes so long.
const DEADLINE: Duration = Duration::from_secs(20);

/// A running server, killed when it goes out of scope.
struct Server {
    pid: Pid,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    ended: Receiver<ExitStatus>,
}

impl Server {
    fn start(script: &Script) -> Self {
        Self::run(&["--script", &script.to_json()])
    }

    fn run(arguments: &[&str]) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the test is the hub here")]
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis-scripted-server"));
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .env_clear()
            .env("CANARY", "yellow")
            .env("PATH", "/usr/bin:/bin")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let (line, lines) = channel();
        thread::spawn(move || {
            for text in BufReader::new(stdout).lines() {
                if line.send(text.unwrap()).is_err() {
                    return;
                }
            }
        });
        let (all, errors) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            all.send(text)
        });
        let (status, ended) = channel();
        thread::spawn(move || status.send(child.wait().unwrap()));
        Self {
            pid,
            stdin,
            lines,
            errors,
            ended,
        }
    }

    /// A server of this script that is through the handshake.
    fn open(script: &Script) -> Self {
        let mut server = Self::start(script);
        server.send(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
        );
        assert!(server.line().contains(r#""protocolVersion":"2025-11-25""#));
        server
    }

    fn send(&mut self, line: &str) {
        self.stdin
            .as_mut()
            .unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    fn call(&mut self, tool: &str, arguments: &str) {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#
        ));
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line in time")
    }

    /// Calls a tool and returns the text that it replies with.
    #[track_caller]
    fn text(&mut self, tool: &str, arguments: &str) -> String {
        self.call(tool, arguments);
        let reply: serde_json::Value = serde_json::from_str(&self.line()).unwrap();
        reply
            .pointer("/result/content/0/text")
            .and_then(serde_json::Value::as_str)
            .unwrap_or_else(|| panic!("{reply}"))
            .to_owned()
    }

    #[track_caller]
    fn status(&self) -> ExitStatus {
        self.ended.recv_timeout(DEADLINE).expect("an end in time")
    }

    #[track_caller]
    fn check_output_ended(&self) {
        assert_eq!(
            self.lines.recv_timeout(DEADLINE),
            Err(RecvTimeoutError::Disconnected)
        );
    }

    #[track_caller]
    fn check_lives(&self) {
        assert!(self.ended.try_recv().is_err(), "the server lives");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already in most tests; its number is not used again while this test holds no other child.
        if self
            .ended
            .try_recv()
            .is_err_and(|error| error == std::sync::mpsc::TryRecvError::Empty)
        {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

#[track_caller]
fn check_usage(arguments: &[&str], expected: &str) {
    let server = Server::run(arguments);
    assert_eq!(server.status().code(), Some(2));
    let errors = server.errors.recv_timeout(DEADLINE).unwrap();
    assert!(errors.starts_with(expected), "{errors}");
    server.check_output_ended();
}

#[test]
fn bad_arguments_are_explained() {
    check_usage(
        &[],
        "error: no script was given\n\nusage: portcullis-scripted-server --script JSON",
    );
    check_usage(&["--script"], "error: `--script` needs a value\n\nusage:");
    check_usage(
        &["--scirpt", "{}"],
        "error: cannot make sense of `--scirpt` there\n\nusage:",
    );
    check_usage(
        &["--script", "{"],
        "error: the script cannot be read at line 1, column 1: EOF",
    );
    check_usage(
        &["--script-file", "/nowhere/x.json"],
        "error: cannot read the script file `/nowhere/x.json`: No such",
    );
    let pid_file = r#"{"process": {"pid_file": "/nowhere/pid"}}"#;
    let expected = "error: cannot write to `/nowhere/pid`; give the script a path in a folder that exists and is \
                    writable: No such file";
    check_usage(&["--script", pid_file], expected);
}

#[test]
fn help_is_printed() {
    let server = Server::run(&["--help"]);
    assert!(server.line().starts_with("usage: portcullis-scripted-server"));
    assert_eq!(server.status().code(), Some(0));
}

#[test]
fn a_script_from_a_file_is_played_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.json");
    let script = Script::new("s")
        .tool(Tool::new("echo", Behaviour::Echo))
        .tool(Tool::new("env", Behaviour::Env));
    #[expect(
        clippy::disallowed_methods,
        reason = "the test writes the script that it hands over"
    )]
    fs::write(&file, script.to_json()).unwrap();
    let mut server = Server::run(&["--script-file", file.to_str().unwrap()]);
    server
        .send(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#);
    server.line();
    assert_eq!(server.text("echo", r#"{"n":1.50}"#), r#"{"n":1.50}"#);
    let environment: serde_json::Value = serde_json::from_str(&server.text("env", "{}")).unwrap();
    assert_eq!(
        environment,
        serde_json::json!({"CANARY": "yellow", "PATH": "/usr/bin:/bin"})
    );
    server.stdin = None;
    server.check_output_ended();
    assert_eq!(server.status().code(), Some(0));
    assert_eq!(server.errors.recv_timeout(DEADLINE).unwrap(), "");
}

#[test]
fn a_crash_is_the_end_of_the_process() {
    let mut server = Server::open(&demo::script("crashy").unwrap());
    assert_eq!(server.text("alive", "{}"), "alive and well");
    server.call("die", "{}");
    server.check_output_ended();
    assert_eq!(server.status().code(), Some(70));
}

#[test]
fn the_output_can_close_while_the_process_lives() {
    let mut server = Server::open(&Script::new("s").tool(Tool::new("t", Behaviour::CloseStdout)));
    server.call("t", "{}");
    server.check_output_ended();
    server.check_lives();
    server.stdin = None;
    assert_eq!(server.status().code(), Some(0));
}

#[test]
fn term_ends_a_server_unless_it_is_ignored() {
    let pid = Tool::new("pid", Behaviour::Pid);
    let server = Server::open(&Script::new("s").tool(pid.clone()));
    kill_process(server.pid, Signal::TERM).unwrap();
    assert_eq!(server.status().signal(), Some(Signal::TERM.as_raw()));

    let deaf = Process {
        ignore_term: true,
        ..Process::default()
    };
    let mut server = Server::open(&Script::new("s").tool(pid).process(deaf));
    kill_process(server.pid, Signal::TERM).unwrap();
    assert_eq!(server.text("pid", "{}"), server.pid.as_raw_nonzero().to_string());
    server.stdin = None;
    assert_eq!(server.status().code(), Some(0));
}

#[test]
fn a_server_can_ignore_the_end_of_its_requests() {
    let slow = Behaviour::delay(200, Behaviour::Text("still here".into()));
    let mut server = Server::open(&Script::new("s").at_eof(AtEof::Ignore).tool(Tool::new("t", slow)));
    server.call("t", "{}");
    server.stdin = None;
    assert!(server.line().contains("still here"));
    server.check_lives();
}

#[test]
fn starts_are_counted_and_can_fail_until_a_file_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (pids, gate) = (folder.path().join("pids"), folder.path().join("gate"));
    let process = Process {
        pid_file: Some(pids.clone()),
        exit_unless: Some(UnlessFile {
            file: gate.clone(),
            code: 11,
        }),
        ..Process::default()
    };
    let script = Script::new("s").process(process);
    let first = Server::start(&script);
    assert_eq!(first.status().code(), Some(11));
    #[expect(clippy::disallowed_methods, reason = "the test opens the gate")]
    fs::write(gate, "").unwrap();
    let second = Server::open(&script);
    let expected = format!(
        "{}\n{}\n",
        first.pid.as_raw_nonzero(),
        second.pid.as_raw_nonzero()
    );
    assert_eq!(fs::read_to_string(pids).unwrap(), expected);
}

/// Starts a server with a descendant, ends the server, and checks that the descendant is left.
#[track_caller]
fn check_descendant(folder: &Path, detach: Detach, holds_stdout: bool) {
    let file = folder.join(format!("{detach:?}"));
    let pid_file = Some(file.clone());
    let descendant = Descendant {
        seconds: 60,
        detach,
        ignore_term: false,
        holds_stdout,
        pid_file,
    };
    let process = Process {
        descendants: vec![descendant],
        ..Process::default()
    };
    let mut server = Server::open(&Script::new("s").process(process));
    server.stdin = None;
    assert_eq!(server.status().code(), Some(0));
    let pid = fs::read_to_string(file)
        .unwrap()
        .trim()
        .parse()
        .ok()
        .and_then(Pid::from_raw)
        .unwrap();
    test_kill_process(pid).expect("the descendant outlives the server");
    if !holds_stdout {
        server.check_output_ended();
        kill_process(pid, Signal::KILL).unwrap();
    } else {
        assert_eq!(
            server.lines.recv_timeout(Duration::from_millis(50)),
            Err(RecvTimeoutError::Timeout)
        );
        kill_process(pid, Signal::KILL).unwrap();
        server.check_output_ended();
    }
}

#[test]
fn descendants_are_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    check_descendant(folder.path(), Detach::No, true);
    check_descendant(folder.path(), Detach::Group, false);
    check_descendant(folder.path(), Detach::Session, false);
}

#[test]
fn stderr_is_flooded_before_the_reply() {
    let then = Box::new(Behaviour::Text("after".into()));
    let process = Process {
        stderr_bytes: 100_000,
        ..Process::default()
    };
    let flood = Tool::new(
        "t",
        Behaviour::Stderr {
            bytes: 1_048_576,
            then,
        },
    );
    let mut server = Server::open(&Script::new("s").process(process).tool(flood));
    assert_eq!(server.text("t", "{}"), "after");
    server.stdin = None;
    let errors = server.errors.recv_timeout(DEADLINE).unwrap();
    assert_eq!(errors.len(), 1_148_576);
    assert_eq!(errors.lines().next().map(str::len), Some(63), "64 with its end");
}

#[test]
fn the_demo_servers_do_what_they_are_for() {
    let mut hello = Server::open(&demo::script("hello").unwrap());
    assert_eq!(
        hello.text("greet", r#"{"name":"Ada"}"#),
        "Hello, Ada! The gate is up."
    );
    assert_eq!(hello.text("add", r#"{"a":2,"b":3}"#), "5");
    assert_eq!(hello.text("pid", "{}"), hello.pid.as_raw_nonzero().to_string());

    let mut notes = Server::open(&demo::script("notes").unwrap());
    assert_eq!(
        notes.text("read_note", r#"{"title":"siege"}"#),
        "siege: bread, cheese, boiling oil"
    );
    assert_eq!(
        notes.text("delete_note", r#"{"title":"siege"}"#),
        "the note “siege” is gone"
    );

    let mut pictures = Server::open(&demo::script("pictures").unwrap());
    pictures.call("render", "{}");
    let reply = pictures.line();
    let picture = pseudo_random("image/png", 5 * 1024 * 1024, demo::PICTURE_SEED);
    assert!(
        reply.contains(&portcullis_testkit::base64(&picture)),
        "{} bytes",
        reply.len()
    );

    let mut stuck = Server::start(&demo::script("stuck").unwrap());
    stuck.send(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#);
    stuck.stdin = None;
    stuck.check_output_ended();
    assert_eq!(stuck.status().code(), Some(0));
}

#[test]
fn a_server_can_end_before_it_reads() {
    let server = Server::start(&Script::new("s").handshake(Handshake::ExitAtStart { code: 1 }));
    assert_eq!(server.status().code(), Some(1));
    server.check_output_ended();
}
