use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{DEADLINE, Folder};

/// The program, ready to be run in a folder. Its environment holds `PATH`, and a `HOME` inside of that folder.
#[derive(Debug)]
pub struct Program {
    command: Command,
}

/// How a run of the program ended.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; none where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program while it runs. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
    stdin: Option<Input>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    /// What was read of standard error.
    told: String,
    ended: Receiver<ExitStatus>,
    /// Standard error that nobody reads.
    unread: Option<ChildStderr>,
}

/// Where a test writes what the program reads.
pub(crate) struct Input(pub(crate) Box<dyn Write + Send>);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Input")
    }
}

impl Program {
    pub fn new(path: &str, folder: &Folder) -> Self {
        let mut command = Command::new(path);
        command
            .current_dir(folder.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.root())
            .env("NO_COLOR", "1");
        Self { command }
    }

    pub fn args<S: AsRef<std::ffi::OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Adds an option with a path as its value.
    pub fn with(mut self, option: &str, path: impl AsRef<Path>) -> Self {
        self.command.arg(option).arg(path.as_ref());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end, with nobody at its standard input.
    pub fn run(mut self) -> Finished {
        self.command.stdin(Stdio::null());
        self.spawn().finish()
    }

    /// Runs it to its end as at a terminal, where one sees both outputs as one, in their order: all is in `stdout`.
    pub fn run_merged(mut self) -> Finished {
        let (mut output, input) = std::io::pipe().unwrap();
        self.command
            .stdin(Stdio::null())
            .stdout(input.try_clone().unwrap())
            .stderr(input);
        let mut child = self.command.spawn().expect("the program can be started");
        // The command holds the pipe's writing end, so its end would never come.
        drop(self.command);
        let pid = Pid::from_child(&child);
        let (all, ended) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            output
                .read_to_string(&mut text)
                .expect("the program prints UTF-8");
            all.send((text, child.wait().unwrap()))
        });
        let Ok((stdout, status)) = ended.recv_timeout(DEADLINE) else {
            let _ = kill_process(pid, Signal::KILL);
            panic!("the program did not end in {DEADLINE:?}");
        };
        Finished {
            code: status.code(),
            stdout,
            stderr: String::new(),
        }
    }

    /// Starts it, with this test at its standard input.
    pub fn start(mut self) -> Running {
        self.command.stdin(Stdio::piped());
        self.spawn()
    }

    pub(crate) fn into_command(self) -> Command {
        self.command
    }

    /// The same, and nobody ever reads what it says on standard error, which stays open.
    #[track_caller]
    pub fn start_unread(mut self) -> Running {
        self.command.stdin(Stdio::piped());
        let (mut child, stdin) = self.into_child();
        let unread = child.stderr.take();
        let mut running = Running::watch(child, stdin, io::empty());
        running.unread = unread;
        running
    }

    fn spawn(self) -> Running {
        let (mut child, stdin) = self.into_child();
        let stderr = child.stderr.take().unwrap();
        Running::watch(child, stdin, stderr)
    }

    fn into_child(mut self) -> (Child, Option<Input>) {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the program can be started");
        let stdin = child.stdin.take().map(|stdin| Input(Box::new(stdin)));
        (child, stdin)
    }
}

impl Finished {
    /// Asserts the exit code; a failure shows all output.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "the exit code\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Standard output as one value of JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.stdout))
    }

    /// Standard output as a value of JSON on each line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let line = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"))
        };
        self.stdout.lines().map(line).collect()
    }
}

impl Running {
    pub(crate) fn watch(mut child: Child, stdin: Option<Input>, stderr: impl Read + Send + 'static) -> Self {
        let pid = Pid::from_child(&child);
        let stdout = child.stdout.take().unwrap();
        let (line, lines) = channel();
        thread::spawn(move || {
            for text in BufReader::new(stdout).lines() {
                if line.send(text.expect("the program prints UTF-8")).is_err() {
                    return;
                }
            }
        });
        let (note, errors) = channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(stderr);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                if note.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let (status, ended) = channel();
        thread::spawn(move || status.send(child.wait().unwrap()));
        Self {
            pid,
            stdin,
            lines,
            errors,
            told: String::new(),
            ended,
            unread: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub fn write_line(&mut self, line: &str) {
        let Input(stdin) = self.stdin.as_mut().expect("standard input is open");
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// The next line of standard output; none at its end.
    #[track_caller]
    pub fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program printed nothing in {DEADLINE:?}"),
        }
    }

    /// Waits until standard error says `text`.
    #[track_caller]
    pub fn until_told(&mut self, text: &str) {
        while !self.told.contains(text) {
            match self.errors.recv_timeout(DEADLINE) {
                Ok(line) => self.told.push_str(&line),
                Err(_) => panic!("the program never said `{text}`: {}", self.told),
            }
        }
    }

    pub fn terminate(&self) {
        kill_process(self.pid, Signal::TERM).unwrap();
    }

    /// Closes standard input and waits for the end.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        drop(self.stdin.take());
        let status = self
            .ended
            .recv_timeout(DEADLINE)
            .unwrap_or_else(|_| panic!("the program did not end in {DEADLINE:?}"));
        let mut stdout = String::new();
        while let Some(line) = self.line() {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        Finished {
            code: status.code().or_else(|| status.signal().map(|signal| -signal)),
            stdout,
            stderr: self.rest_told(),
        }
    }
}

impl Running {
    #[track_caller]
    fn rest_told(&mut self) -> String {
        loop {
            match self.errors.recv_timeout(DEADLINE) {
                Ok(line) => self.told.push_str(&line),
                Err(RecvTimeoutError::Disconnected) => return std::mem::take(&mut self.told),
                Err(RecvTimeoutError::Timeout) => panic!("something holds standard error open"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Once it was waited for, its number may be another's.
        if self.ended.try_recv() == Err(TryRecvError::Empty) {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}
