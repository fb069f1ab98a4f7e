use crate::{Id, Unusable};

/// What came out of the stream: a message, what could be salvaged of one, or noise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A request of the peer.
    Request {
        /// Its id; the answer carries it back.
        id: Id,
        /// Its method.
        method: String,
        /// The whole message as JSON text, that serde_json can parse: as sent, or written anew from its members
        /// where `jsonrpc` was missing or wrong or the id was written as `7.0`.
        message: Box<str>,
    },
    /// A request of the peer that cannot be read whole. To be answered with an error: whoever sent it waits.
    BadRequest {
        /// Its id; the answer carries it back. It is the peer's own, and blames no call of ours.
        id: Id,
        /// What is wrong.
        reason: Unusable,
    },
    /// A notification of the peer.
    Notification {
        /// Its method.
        method: String,
        /// The whole message as JSON text; see [`Frame::Request`].
        message: Box<str>,
    },
    /// The answer to a request of ours.
    Response {
        /// The request's id.
        id: Id,
        /// The raw JSON text of `result`, byte for byte as sent. Valid JSON by its grammar; it may still hold what a
        /// reader of values refuses: `1e999`, a lone surrogate, a key that stands twice.
        result: Box<str>,
    },
    /// The peer answers a request of ours with an error.
    Error {
        /// The request's id; none where the peer could not read it (null or absent, JSON-RPC 2.0, section 5).
        id: Option<Id>,
        /// The error.
        error: WireError,
    },
    /// A reply that cannot be used. The call of that id fails with the reason; without an id it may be blamed on
    /// a call only where exactly one waits.
    Unusable {
        /// The id, where one could be read.
        id: Option<Id>,
        /// What was wrong.
        reason: Unusable,
    },
    /// Not JSON-RPC: a banner, a log line. To be logged and dropped, never answered.
    Noise {
        /// The start of the line, at most 256 characters, safe to print.
        text: String,
    },
    /// A line passed the limit. The decoder is dead: it gives no further frame and keeps no bytes.
    Overlong {
        /// The limit, in bytes.
        limit: usize,
    },
}

/// The `error` member of a reply (JSON-RPC 2.0, section 5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError {
    /// The code; also where the peer wrote it as `-32601.0` or `"-32601"`.
    pub code: i64,
    /// The message; its raw JSON text where it is no string, empty where it is absent.
    pub message: String,
    /// The raw JSON text of `data`, byte for byte as sent.
    pub data: Option<Box<str>>,
}
