use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::BadReply;

/// What a call of a tool does. Times are in milliseconds, at most ten minutes each; sizes are at most 256 MiB.
///
/// A call that waits ends without a reply when the client cancels it, as the specification asks (MCP, section
/// "Cancellation"), unless the variant says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Behaviour {
    /// This text.
    Text(String),
    /// This text, where `{x}` stands for the argument `x`.
    Template(String),
    /// The sum of all arguments that are numbers.
    Sum,
    /// The arguments' own text, byte for byte as it arrived.
    Echo,
    /// The server's whole environment, as the text of a JSON object.
    Env,
    /// The server's process id.
    Pid,
    /// This raw JSON as `result`.
    Raw(String),
    /// Structured content, and the same as text.
    Structured(Value),
    /// A picture of pseudo-random bytes, see [`pseudo_random`](crate::pseudo_random).
    Image {
        /// Its size before it is encoded.
        bytes: u64,
        /// The seed of its bytes.
        #[serde(default)]
        seed: u64,
        /// Its media type.
        #[serde(default = "png")]
        media_type: String,
    },
    /// A sound of pseudo-random bytes, as `audio/wav`.
    Audio {
        /// Its size before it is encoded.
        bytes: u64,
        /// The seed of its bytes.
        #[serde(default)]
        seed: u64,
    },
    /// An embedded resource with a blob of pseudo-random bytes, as `application/octet-stream`.
    EmbeddedBlob {
        /// Its size before it is encoded.
        bytes: u64,
        /// The seed of its bytes.
        #[serde(default)]
        seed: u64,
    },
    /// A picture in `content` and the very same base64 once more in `structuredContent.image.data`.
    Twin {
        /// Its size before it is encoded.
        bytes: u64,
        /// The seed of its bytes.
        #[serde(default)]
        seed: u64,
    },
    /// Text, a link to a resource, a block of the unknown type `video`, and text again.
    UnknownBlock,
    /// A result without `content`.
    NoContent,
    /// A result with `isError: true` and this text.
    Error(String),
    /// A JSON-RPC error.
    JsonRpcError {
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
    },
    /// Waits, then goes on.
    Delay {
        /// How long.
        ms: u64,
        /// What comes then.
        then: Box<Self>,
    },
    /// Waits, then goes on, and replies even if the call was cancelled meanwhile.
    LateReply {
        /// How long.
        ms: u64,
        /// What comes then.
        then: Box<Self>,
    },
    /// Never replies.
    Mute,
    /// Waits for its own cancellation, appends the call's id to the file and does not reply. A call that is never
    /// cancelled is answered with an error after the ten minutes.
    UntilCancelled {
        /// The file.
        file: PathBuf,
    },
    /// Sends `notifications/progress` to a client that gave a token, then goes on.
    Progress {
        /// How many.
        count: u64,
        /// The wait before each.
        interval_ms: u64,
        /// What comes then.
        then: Box<Self>,
    },
    /// Writes that many bytes to stderr, in lines of 64 bytes, then goes on.
    Stderr {
        /// How many bytes.
        bytes: u64,
        /// What comes then.
        then: Box<Self>,
    },
    /// Appends the call's id, a space and the raw arguments to the file, waits until the disk has it, then goes on.
    Record {
        /// The file.
        file: PathBuf,
        /// What comes then.
        then: Box<Self>,
    },
    /// The server ends.
    Crash {
        /// Exit code.
        code: u8,
        /// When.
        #[serde(default)]
        point: CrashPoint,
    },
    /// The server closes its output and lives on.
    CloseStdout,
    /// A reply that is not as it should be.
    BadReply(BadReply),
    /// Asks the client's user (MCP, section "Elicitation") and returns the raw answer as text: by a request
    /// `elicitation/create` in a legacy session, by an `input_required` result in a modern request.
    Elicit {
        /// What the user reads.
        message: String,
        /// The schema of the answer.
        schema: Value,
    },
    /// Sends any request to the client and returns the raw answer as text; as [`Behaviour::Elicit`] in either era.
    Ask {
        /// The request's method.
        method: String,
        /// Its parameters.
        params: Value,
        /// How long to wait for the answer, in a legacy session.
        wait_ms: u64,
    },
    /// Sends any notification to the client, so many times, then goes on.
    Notify {
        /// The notification's method.
        method: String,
        /// Its parameters.
        params: Value,
        /// How many.
        count: u64,
        /// What comes then.
        then: Box<Self>,
    },
    /// Sends `notifications/tools/list_changed`. Before the last one the tools change, see
    /// [`Shown`](super::Shown).
    ListChanged {
        /// How many.
        count: u64,
        /// The wait before each but the first.
        #[serde(default)]
        interval_ms: u64,
    },
}

impl Behaviour {
    /// Waits, then goes on.
    #[must_use]
    pub fn delay(ms: u64, then: Self) -> Self {
        Self::Delay {
            ms,
            then: Box::new(then),
        }
    }

    /// A picture of that many pseudo-random bytes, as `image/png`.
    #[must_use]
    pub fn image(bytes: u64, seed: u64) -> Self {
        Self::Image {
            bytes,
            seed,
            media_type: png(),
        }
    }

    /// Appends the call to a file, then goes on.
    #[must_use]
    pub fn record(file: impl Into<PathBuf>, then: Self) -> Self {
        Self::Record {
            file: file.into(),
            then: Box::new(then),
        }
    }

    /// The server ends with this code before it replies.
    #[must_use]
    pub fn crash(code: u8) -> Self {
        Self::Crash {
            code,
            point: CrashPoint::BeforeReply,
        }
    }

    /// Asks the client's user for a name.
    #[must_use]
    pub fn elicit(message: &str) -> Self {
        let schema =
            json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
        Self::Elicit {
            message: message.to_owned(),
            schema,
        }
    }

    /// Sends the deprecated request for a model's answer (SEP-2577), which a hub must not serve.
    #[must_use]
    pub fn ask_sampling() -> Self {
        let message = json!({"role": "user", "content": {"type": "text", "text": "Say something."}});
        Self::ask(
            "sampling/createMessage",
            json!({"messages": [message], "maxTokens": 16}),
        )
    }

    /// Sends the deprecated request for the client's folders (SEP-2577), which a hub must not serve.
    #[must_use]
    pub fn ask_roots() -> Self {
        Self::ask("roots/list", json!({}))
    }

    /// Sends so many of the deprecated log messages (SEP-2577), which a hub must drop, then answers with a text.
    #[must_use]
    pub fn log(count: u64) -> Self {
        Self::Notify {
            method: "notifications/message".to_owned(),
            params: json!({"level": "info", "logger": "scripted", "data": "a log message"}),
            count,
            then: Box::new(Self::Text("logged".to_owned())),
        }
    }

    /// Whether a call takes its time, so that it needs a thread of its own.
    pub(crate) fn is_slow(&self) -> bool {
        match self {
            Self::Delay { .. }
            | Self::LateReply { .. }
            | Self::UntilCancelled { .. }
            | Self::Progress { .. }
            | Self::Elicit { .. }
            | Self::Ask { .. }
            | Self::ListChanged { .. } => true,
            Self::Stderr { then, .. } | Self::Record { then, .. } | Self::Notify { then, .. } => {
                then.is_slow()
            }
            _ => false,
        }
    }

    fn ask(method: &str, params: Value) -> Self {
        Self::Ask {
            method: method.to_owned(),
            params,
            wait_ms: 30_000,
        }
    }
}

/// When a server ends that ends during a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashPoint {
    /// Before any of the reply is sent.
    #[default]
    BeforeReply,
    /// When half of the reply's line is sent.
    MidReply,
    /// When the reply is sent.
    AfterReply,
}

fn png() -> String {
    "image/png".to_owned()
}
