//! The program, as a user runs it.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests that run the program, play the one who damages a blob, and panic where something is wrong"
)]

mod blobs;
#[cfg(target_os = "linux")]
mod output;

use std::process::{Command, Stdio};

/// How the program ended, what it printed, and what it said beside that.
struct Ended {
    code: Option<i32>,
    printed: String,
    told: String,
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.args(arguments);
    command
}

/// Runs it to its end. Nobody types, and what it says is looked at.
fn ended(command: &mut Command) -> Ended {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    Ended {
        code: output.status.code(),
        printed: String::from_utf8(output.stdout).unwrap(),
        told: String::from_utf8(output.stderr).unwrap(),
    }
}
