//! Other programs: each is started in one place, shown as a line that can be pasted into a shell, and has a
//! deadline.

#![expect(
    clippy::disallowed_methods,
    reason = "chores run cargo and npm; the one-door rules are for the crates that are shipped"
)]

use std::fmt;
#[cfg(not(test))]
use std::io::Write;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::workspace::Root;

/// What cargo answers from the lock file and the sources that it has; the longest part is a first download.
const QUICK: Duration = Duration::from_secs(5 * 60);

/// How long the last of what an ended program printed may take to be read.
const REST: Duration = Duration::from_secs(5);

/// A program to run.
#[derive(Debug)]
pub(crate) struct Run {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: PathBuf,
    deadline: Duration,
}

impl Run {
    /// A program, run in the root of the checkout.
    pub(crate) fn new(root: &Root, program: &str, arguments: &[&str]) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: Vec::new(),
            folder: root.path().to_path_buf(),
            deadline: QUICK,
        }
    }

    /// Cargo, run in the root of the checkout.
    pub(crate) fn cargo(root: &Root, arguments: &[&str]) -> Self {
        Self::new(root, "cargo", arguments)
    }

    pub(crate) fn with_env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn in_folder(mut self, folder: PathBuf) -> Self {
        self.folder = folder;
        self
    }

    pub(crate) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it with our own output, and fails unless it succeeds.
    pub(crate) fn status(&self) -> Result<()> {
        say(&format!("$ {self}"));
        let mut child = self.start(Stdio::inherit())?;
        let status = self.wait(&mut child)?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }

    /// Runs it and gives what it printed; what it complained about goes to our own stderr.
    pub(crate) fn capture(&self) -> Result<String> {
        let mut child = self.start(Stdio::piped())?;
        let mut pipe = child
            .stdout
            .take()
            .with_context(|| format!("`{self}` has no output"))?;
        // Read on a thread of its own: a pipe that nobody reads would block the program.
        let (read, whole) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Whoever gave up is told nothing more.
            let _ = read.send(pipe.read_to_end(&mut bytes).map(|_| bytes));
        });
        let status = self.wait(&mut child)?;
        let bytes = whole.recv_timeout(REST).map_err(|_| {
            anyhow!(
                "`{self}` ended, but what it started still holds its output open: end that, and try again"
            )
        })?;
        let bytes = bytes.with_context(|| format!("cannot read what `{self}` printed"))?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        String::from_utf8(bytes).with_context(|| format!("`{self}` printed something that is not UTF-8"))
    }

    fn start(&self, stdout: Stdio) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(stdout);
        // `cargo run` tells a program which package it is. Passed on, that would look to some build scripts like a
        // change, and dependencies would be built again at every turn.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            let describes_us = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
            if describes_us.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&*name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.spawn().map_err(|error| match error.kind() {
            // The system has the same answer for a folder that is not there.
            io::ErrorKind::NotFound if self.folder.is_dir() => anyhow!(
                "cannot start `{}`: it is not installed, or not on the PATH",
                self.program
            ),
            _ => anyhow!(
                "cannot start `{}` in `{}`: {error}",
                self.program,
                self.folder.display()
            ),
        })
    }

    /// Waits for the end, at most until the deadline; then it is killed, with all that it started.
    fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = child
                .try_wait()
                .with_context(|| format!("cannot wait for `{self}`"))?
            {
                return Ok(status);
            }
            if started.elapsed() > self.deadline {
                kill_with_descendants(child);
                bail!(
                    "`{self}` was still running after {} s and was killed",
                    self.deadline.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(formatter, "{name}={} ", quoted(value))?;
        }
        formatter.write_str(&quoted(&self.program))?;
        self.arguments
            .iter()
            .try_for_each(|argument| write!(formatter, " {}", quoted(argument)))
    }
}

/// Prints a line. A reader that went away (`| head`) is no reason to fall over.
pub(crate) fn say(line: &str) {
    // The test harness keeps what the macro prints to itself, unless the test fails.
    #[cfg(test)]
    println!("{line}");
    #[cfg(not(test))]
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line to stderr.
pub(crate) fn complain(line: &str) {
    #[cfg(test)]
    eprintln!("{line}");
    #[cfg(not(test))]
    let _ = writeln!(io::stderr(), "{line}");
}

fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./=:,@+".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Kills a program and what it started: a test program that hangs would outlive the cargo that ran it.
fn kill_with_descendants(child: &mut Child) {
    let mut doomed = vec![child.id()];
    let parents = parents();
    let mut seen = 0;
    while let Some(&parent) = doomed.get(seen) {
        seen += 1;
        doomed.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(process, _)| *process),
        );
    }
    let _ = child.kill();
    let others: Vec<String> = doomed.iter().skip(1).map(u32::to_string).collect();
    if !others.is_empty() {
        let _ = Command::new("kill")
            .arg("-KILL")
            .args(others)
            .stdin(Stdio::null())
            .status();
    }
    let _ = child.wait();
}

/// Each running process with its parent, from `/proc`; empty where there is none.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let process: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            // `pid (name) state parent …`; the name may hold anything, also brackets and spaces.
            let (_, after_name) = stat.rsplit_once(')')?;
            let parent = after_name.split_whitespace().nth(1)?.parse().ok()?;
            Some((process, parent))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Root {
        Root::of_this_checkout().unwrap()
    }

    #[test]
    fn a_command_is_shown_so_that_a_shell_can_repeat_it() {
        let run = Run::cargo(&here(), &["clippy", "it's"]).with_env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            run.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo clippy 'it'\''s'"
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Run::new(&here(), "no-such-program-here", &[])
            .status()
            .unwrap_err();
        assert!(error.to_string().contains("`no-such-program-here`"), "{error}");
        assert!(error.to_string().contains("not installed"), "{error}");
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = here().join("no-such-folder-here");
        let run = Run::new(&here(), "sh", &["-c", "true"]).in_folder(folder);
        let error = run.status().unwrap_err().to_string();
        assert!(error.contains("no-such-folder-here"), "{error}");
        assert!(!error.contains("not installed"), "{error}");
    }

    #[test]
    fn output_is_captured_and_failure_is_an_error() {
        assert_eq!(
            Run::new(&here(), "sh", &["-c", "echo hello"]).capture().unwrap(),
            "hello\n"
        );
        let error = Run::new(&here(), "sh", &["-c", "exit 3"]).capture().unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }

    /// As a daemon does that a build tool starts.
    #[test]
    fn output_that_somebody_else_holds_open_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 60 & echo $! > child; echo hello";
        let run = Run::new(&here(), "sh", &["-c", script]).in_folder(folder.path().to_path_buf());
        let started = Instant::now();
        let error = run.within(Duration::from_secs(600)).capture().unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(30), "it was waited for");
        assert!(error.to_string().contains("holds its output open"), "{error}");
        let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
        Run::new(&here(), "kill", &["-KILL", child.trim()])
            .status()
            .unwrap();
    }

    /// Else dependencies would be built anew at every turn.
    #[test]
    fn a_program_is_not_told_which_package_we_are() {
        let told = Run::new(&here(), "sh", &["-c", "env"]).capture().unwrap();
        for ours in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(std::env::var_os(ours).is_some(), "cargo tells a test of `{ours}`");
            assert!(!told.contains(&format!("{ours}=")), "{ours}");
        }
        assert!(told.contains("PATH="), "all else it is told");
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_its_deadline_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 60 & echo $! > child; wait";
        let run = Run::new(&here(), "sh", &["-c", script]).in_folder(folder.path().to_path_buf());
        let error = run.within(Duration::from_millis(500)).capture().unwrap_err();
        assert!(error.to_string().contains("still running"), "{error}");

        // What has no parent left is taken over, and waited for, by another process: its entry may stay for a moment.
        let child: u32 = std::fs::read_to_string(folder.path().join("child"))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let runs = || {
            std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while runs() {
            assert!(Instant::now() < deadline, "the child outlived its parent");
            std::thread::yield_now();
        }
    }
}
