use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use portcullis_types::ServerId;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};

/// How long a person may take to answer.
const WAIT: Duration = Duration::from_secs(120);

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

/// Answers one elicitation: by the responder, within its time; declined where there is none, or where the request
/// is none that a person could be shown.
pub(crate) async fn elicit(
    server: &ServerId,
    responder: Option<&Arc<dyn ElicitationResponder>>,
    params: Option<ElicitRequestParams>,
) -> ElicitResult {
    let request = match params {
        Some(ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        }) => {
            let schema = serde_json::to_string(&requested_schema).unwrap_or_default();
            ElicitationRequest::Form { message, schema }
        }
        // Only https is ever shown to a person.
        Some(ElicitRequestParams::UrlElicitationParams { message, url, .. })
            if url.starts_with("https://") =>
        {
            ElicitationRequest::Url { message, url }
        }
        _ => return ElicitResult::new(ElicitationAction::Decline),
    };
    let Some(responder) = responder else {
        return ElicitResult::new(ElicitationAction::Decline);
    };
    let reply = tokio::time::timeout(WAIT, responder.respond(server.clone(), request));
    match reply.await.unwrap_or(ElicitationReply::Cancel) {
        ElicitationReply::Accept(content) => {
            let mut result = ElicitResult::new(ElicitationAction::Accept);
            result.content = content.and_then(|content| serde_json::from_str(&content).ok());
            result
        }
        ElicitationReply::Decline => ElicitResult::new(ElicitationAction::Decline),
        ElicitationReply::Cancel => ElicitResult::new(ElicitationAction::Cancel),
    }
}
