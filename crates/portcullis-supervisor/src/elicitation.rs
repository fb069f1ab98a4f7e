use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use portcullis_types::ServerId;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use url::Url;

/// How long a person may take to answer.
pub(crate) const WAIT: Duration = Duration::from_secs(120);

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
    /// The answer to `request` of `server`. After 120 s, or when the call that asked is over, the future is dropped,
    /// and the server is told that the user cancelled.
    fn respond(&self, server: ServerId, request: ElicitationRequest) -> BoxFuture<'_, ElicitationReply>;
}

/// Answers one elicitation by the responder; declined where the request is none that a person could be shown.
pub(crate) async fn elicit(
    server: &ServerId,
    responder: &Arc<dyn ElicitationResponder>,
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
        Some(ElicitRequestParams::UrlElicitationParams { message, url, .. }) => match shown(&url) {
            Some(url) => ElicitationRequest::Url { message, url },
            None => return ElicitResult::new(ElicitationAction::Decline),
        },
        _ => return ElicitResult::new(ElicitationAction::Decline),
    };
    match responder.respond(server.clone(), request).await {
        ElicitationReply::Accept(content) => match content.as_deref().map(serde_json::from_str).transpose() {
            Ok(content) => {
                let mut result = ElicitResult::new(ElicitationAction::Accept);
                result.content = content;
                result
            }
            // What the host hands over is no JSON: better no answer than an empty one.
            Err(_) => ElicitResult::new(ElicitationAction::Cancel),
        },
        ElicitationReply::Decline => ElicitResult::new(ElicitationAction::Decline),
        ElicitationReply::Cancel => ElicitResult::new(ElicitationAction::Cancel),
    }
}

/// The address as a browser reads it. Only https is ever shown to a person, and nothing before an `@` that could pass
/// for the host.
fn shown(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let plain = url.username().is_empty() && url.password().is_none();
    (url.scheme() == "https" && url.host_str().is_some() && plain).then(|| url.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_https_addresses_are_shown_and_as_a_browser_reads_them() {
        assert_eq!(
            shown("https://evil.example\\@good.example/").as_deref(),
            Some("https://evil.example/@good.example/")
        );
        for url in [
            "http://a.example/",
            "https://good.example@evil.example/",
            "javascript:alert(1)",
            "https://",
            "x",
        ] {
            assert_eq!(shown(url), None, "{url}");
        }
    }
}
