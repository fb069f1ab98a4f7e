use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::is_default;

/// What the end of the requests does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtEof {
    /// The server ends at once, with code 0; calls that still run are dropped.
    #[default]
    Exit,
    /// The server ends when the calls that still run have ended.
    Finish,
    /// The server stays, until it is killed or ten minutes are over.
    Ignore,
}

/// What the process does besides serving. The program and [`serve_stdio`](crate::serve_stdio) heed it; a server
/// played inside another process does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object about the process")]
pub struct Process {
    /// The process id is appended to this file, as a line of its own, before anything else: its lines count the
    /// starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid_file: Option<PathBuf>,
    /// The process ends at once where a file is missing: a server that is down until the file is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_unless: Option<UnlessFile>,
    /// SIGTERM is ignored.
    #[serde(skip_serializing_if = "is_default")]
    pub ignore_term: bool,
    /// Other processes that this one leaves behind.
    #[serde(skip_serializing_if = "is_default")]
    pub descendants: Vec<Descendant>,
    /// That many bytes go to stderr before anything is read, in lines of 64 bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub stderr_bytes: u64,
}

/// See [`Process::exit_unless`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `file` and `code`")]
pub struct UnlessFile {
    /// The file that must be there.
    pub file: PathBuf,
    /// Exit code where it is not.
    pub code: u8,
}

/// A process that a server starts and leaves alone; it sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a descendant: an object with `seconds`")]
pub struct Descendant {
    /// How long it sleeps.
    pub seconds: u64,
    /// How far it goes away from its parent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub detach: Detach,
    /// It ignores SIGTERM.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_term: bool,
    /// It holds the server's output open, so that whoever reads there sees no end while it lives.
    #[serde(default, skip_serializing_if = "is_default")]
    pub holds_stdout: bool,
    /// Its process id is appended to this file, as a line of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_file: Option<PathBuf>,
}

/// How far a descendant goes away from its parent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detach {
    /// It stays in the server's process group.
    #[default]
    No,
    /// It has a process group of its own.
    Group,
    /// It has a session of its own (by the `setsid` program, which must be installed).
    Session,
}
