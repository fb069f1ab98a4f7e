//! What a scripted server is and does: data, with a builder.

mod bad_reply;
mod behaviour;
mod handshake;
mod limits;
mod listing;
mod process;

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;

pub use bad_reply::BadReply;
pub use behaviour::{Behaviour, CrashPoint};
pub use handshake::{Discover, Era, Handshake, Noise, Noises};
pub use listing::{ListReply, Listing, Page, Paging, Shown, Tool};
pub use process::{AtEof, Descendant, Detach, Process, UnlessFile};

pub(crate) use limits::{LONGEST_WAIT, MAX_LINE_BYTES};

/// A scripted server. What is left out behaves as a well-kept server does.
///
/// ```
/// use portcullis_testkit::{Behaviour, Handshake, Script, Tool};
///
/// let script = Script::from_json(
///     r#"{"name": "slow", "handshake": {"after_ms": 50}, "tools": [{"name": "echo", "behaviour": "echo"}]}"#,
/// )?;
/// let built = Script::new("slow").handshake(Handshake::AfterMs(50)).tool(Tool::new("echo", Behaviour::Echo));
/// assert_eq!(script, built);
///
/// let error = Script::from_json(r#"{"handshake": "never"}"#).unwrap_err();
/// assert!(error.to_string().contains("unknown variant `never`"), "{error}");
/// # Ok::<(), portcullis_testkit::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a script: an object in braces")]
pub struct Script {
    /// The server's name, as it introduces itself.
    pub name: String,
    /// The server's version, as it introduces itself.
    pub version: String,
    /// Instructions for the model, given with the handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Which revisions of the protocol the server speaks.
    #[serde(skip_serializing_if = "is_default")]
    pub era: Era,
    /// The revisions offered by `initialize`, the newest first. One that is asked for and not here is answered with
    /// the first.
    pub versions: Vec<String>,
    /// The capabilities to declare; tools with `listChanged` where nothing is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Value>,
    /// What becomes of `initialize`, and of a `server/discover` that [`Script::discover`] leaves alone.
    #[serde(skip_serializing_if = "is_default")]
    pub handshake: Handshake,
    /// What becomes of `server/discover`.
    #[serde(skip_serializing_if = "is_default")]
    pub discover: Discover,
    /// What is printed unasked, and when.
    #[serde(skip_serializing_if = "is_default")]
    pub noise: Noises,
    /// What the process does besides serving; only [`serve_stdio`](crate::serve_stdio) heeds it.
    #[serde(skip_serializing_if = "is_default")]
    pub process: Process,
    /// What the end of the requests does.
    #[serde(skip_serializing_if = "is_default")]
    pub at_eof: AtEof,
    /// How `tools/list` is answered.
    #[serde(skip_serializing_if = "is_default")]
    pub listing: Listing,
    /// The tools, in the order of the list.
    #[serde(skip_serializing_if = "is_default")]
    pub tools: Vec<Tool>,
    /// Other methods and the raw JSON of the `result` that each is answered with, for example `prompts/list`.
    #[serde(skip_serializing_if = "is_default")]
    pub methods: BTreeMap<String, String>,
    /// Each message that arrives is appended to this file, as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_file: Option<PathBuf>,
    /// The raw `requestId` of each `notifications/cancelled` that arrives is appended to this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_file: Option<PathBuf>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            name: "scripted".to_owned(),
            version: "1.0.0".to_owned(),
            instructions: None,
            era: Era::default(),
            versions: ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
                .map(str::to_owned)
                .to_vec(),
            capabilities: None,
            handshake: Handshake::default(),
            discover: Discover::default(),
            noise: Noises::default(),
            process: Process::default(),
            at_eof: AtEof::default(),
            listing: Listing::default(),
            tools: Vec::new(),
            methods: BTreeMap::new(),
            received_file: None,
            cancelled_file: None,
        }
    }
}

impl Script {
    /// A well-kept server of this name, without tools.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Reads a script from JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] with the place and what is wrong there, and whatever [`Script::check`] finds.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        // The parser would take an array for the fields in their order.
        if text.trim_start().starts_with('[') {
            let what = "an array is no script, which is an object in braces".to_owned();
            return Err(Error::Unreadable {
                line: 1,
                column: 1,
                what,
            });
        }
        let script: Self = serde_json::from_str(text).map_err(|error| Error::Unreadable {
            line: error.line(),
            column: error.column(),
            what: without_place(&error.to_string()),
        })?;
        script.check()?;
        Ok(script)
    }

    /// The script as JSON on one line, which [`Script::from_json`] reads back.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A script holds text, numbers and JSON values only; of those, serialisation can fail for a path that is
        // not Unicode, and such a path cannot be written in JSON at all.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Checks that every wait, size and count is within its limit and that the raw texts are what they must be.
    ///
    /// # Errors
    ///
    /// [`Error::TooMuch`] or [`Error::Invalid`], naming the field.
    pub fn check(&self) -> Result<(), Error> {
        limits::check(self)
    }

    /// Sets which revisions of the protocol the server speaks.
    #[must_use]
    pub fn era(self, era: Era) -> Self {
        Self { era, ..self }
    }

    /// Sets what becomes of the handshake.
    #[must_use]
    pub fn handshake(self, handshake: Handshake) -> Self {
        Self { handshake, ..self }
    }

    /// Sets what becomes of `server/discover`.
    #[must_use]
    pub fn discover(self, discover: Discover) -> Self {
        Self { discover, ..self }
    }

    /// Sets what is printed unasked.
    #[must_use]
    pub fn noise(self, noise: Noises) -> Self {
        Self { noise, ..self }
    }

    /// Sets what the process does besides serving.
    #[must_use]
    pub fn process(self, process: Process) -> Self {
        Self { process, ..self }
    }

    /// Sets what the end of the requests does.
    #[must_use]
    pub fn at_eof(self, at_eof: AtEof) -> Self {
        Self { at_eof, ..self }
    }

    /// Sets how the pages of `tools/list` are cut.
    #[must_use]
    pub fn paging(mut self, paging: Paging) -> Self {
        self.listing.paging = paging;
        self
    }

    /// Sets what becomes of `tools/list`.
    #[must_use]
    pub fn list_reply(mut self, reply: ListReply) -> Self {
        self.listing.reply = reply;
        self
    }

    /// Adds a tool at the end of the list.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Answers another method with this raw JSON as its `result`.
    #[must_use]
    pub fn method(mut self, method: &str, result: &str) -> Self {
        self.methods.insert(method.to_owned(), result.to_owned());
        self
    }

    /// Appends each message that arrives to a file.
    #[must_use]
    pub fn record_received(self, file: impl Into<PathBuf>) -> Self {
        Self {
            received_file: Some(file.into()),
            ..self
        }
    }

    /// Appends the request id of each `notifications/cancelled` to a file.
    #[must_use]
    pub fn record_cancelled(self, file: impl Into<PathBuf>) -> Self {
        Self {
            cancelled_file: Some(file.into()),
            ..self
        }
    }
}

/// Whether a field may be left out of the JSON.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The parser's message without the place at its end, which the error carries in fields of its own.
fn without_place(message: &str) -> String {
    message
        .rsplit_once(" at line ")
        .map_or(message, |(what, _)| what)
        .to_owned()
}

#[cfg(test)]
mod tests;
