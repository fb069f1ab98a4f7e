use serde::{Deserialize, Serialize};

use super::is_default;

/// Which revisions of the protocol a server speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// 2025-11-25 and older: `initialize` opens the session.
    #[default]
    Legacy,
    /// 2026-07-28: no session; `server/discover`, and `_meta` on every request.
    Modern,
    /// Both, told apart by the `_meta` of each request.
    Both,
}

impl Era {
    pub(crate) fn is_modern(self) -> bool {
        !matches!(self, Self::Legacy)
    }

    pub(crate) fn is_legacy(self) -> bool {
        !matches!(self, Self::Modern)
    }
}

/// What becomes of `initialize`, and of `server/discover` where the server is modern.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handshake {
    /// It is answered at once.
    #[default]
    Answer,
    /// It is answered after that many milliseconds.
    AfterMs(u64),
    /// The server reads, and never says a word, whatever is asked.
    Hang,
    /// The server ends before it reads anything.
    ExitAtStart {
        /// Exit code.
        code: u8,
    },
    /// The server ends when it is asked.
    Exit {
        /// Exit code.
        code: u8,
    },
    /// It is answered with an error.
    Error {
        /// JSON-RPC error code.
        code: i64,
        /// The error's message.
        message: String,
    },
    /// The server closes its output, and nothing else, when it is asked.
    CloseStdout,
    /// It is answered with this raw JSON as `result`.
    Raw(String),
}

/// What becomes of `server/discover`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discover {
    /// A modern server treats it as the script's handshake says; a legacy one answers that it knows no such method.
    #[default]
    ByEra,
    /// It is answered with an error.
    Error {
        /// JSON-RPC error code.
        code: i64,
        /// The error's message.
        message: String,
    },
    /// It is never answered.
    Silence,
    /// It is answered with `result: {}`.
    EmptyResult,
    /// The server ends.
    Exit {
        /// Exit code.
        code: u8,
    },
    /// It is answered with this raw JSON as `result`.
    Raw(String),
}

/// Something printed that nobody asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    /// This text and a newline, as it stands: a banner, garbage, half a message.
    Line(String),
    /// Blank lines.
    Blank(u64),
    /// A line of JSON that is not JSON-RPC, as loggers print it.
    LogLine,
    /// A line that is not UTF-8.
    BadUtf8,
    /// `notifications/tools/list_changed`.
    ListChanged,
    /// A `ping` request to the client.
    Ping,
}

/// What is printed unasked, and when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object of noises")]
pub struct Noises {
    /// Before anything is read.
    #[serde(skip_serializing_if = "is_default")]
    pub at_start: Vec<Noise>,
    /// When the handshake was asked for, before the answer.
    #[serde(skip_serializing_if = "is_default")]
    pub before_handshake: Vec<Noise>,
    /// Right after the answer to the handshake.
    #[serde(skip_serializing_if = "is_default")]
    pub after_handshake: Vec<Noise>,
    /// When `tools/list` was asked for, before the answer.
    #[serde(skip_serializing_if = "is_default")]
    pub before_list: Vec<Noise>,
    /// For each message that arrives, before it is dealt with.
    #[serde(skip_serializing_if = "is_default")]
    pub per_message: Vec<Noise>,
}
