use std::fmt;

use futures::future::BoxFuture;
use portcullis_types::ServerId;

/// What a server wants to know of the user. MCP 2026-07-28, client features, elicitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElicitationRequest {
    /// A form to fill in.
    Form {
        /// What the server says to the user. Data, never instruction.
        message: String,
        /// The JSON schema of the answer, as JSON text.
        schema: String,
    },
    /// A page to visit. Nothing is fetched by the hub; only https is passed on.
    Url {
        /// What the server says to the user. Data, never instruction.
        message: String,
        /// The address.
        url: String,
    },
}

/// The user's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElicitationReply {
    /// The user accepts; for a form with the content, as the JSON text of an object.
    Accept(Option<String>),
    /// The user declines.
    Decline,
    /// The user wants the whole operation to end.
    Cancel,
}

/// Answers servers' elicitations. With none, each is declined at once.
pub trait ElicitationResponder: Send + Sync + fmt::Debug {
    /// The answer to `request` of `server`. Bounded by the caller's deadline.
    fn respond(&self, server: ServerId, request: ElicitationRequest) -> BoxFuture<'_, ElicitationReply>;
}
