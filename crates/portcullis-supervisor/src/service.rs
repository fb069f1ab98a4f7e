//! The hub's client side, as the SDK sees it.
//!
//! It implements `Service<RoleClient>` itself: what it does not know it answers with -32601, so nothing here needs
//! to name a method that the protocol has deprecated.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use portcullis_types::ServerId;
use portcullis_wire::Unusable;
use rmcp::{
    RoleClient, Service,
    model::{
        ClientCapabilities, ClientConfig, ClientResult, ElicitResult, ElicitationAction,
        ElicitationCapability, ErrorCode, ErrorData, Implementation, ProgressToken, ProtocolVersion,
        ServerNotification, ServerRequest,
    },
    service::{NotificationContext, RequestContext},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    asking::{Asking, Holds},
    ticket::Ticket,
};

/// Whether anybody heeds a notification. A flood of others ends where it is read, before it costs the SDK a task each.
pub(crate) fn is_heeded(method: &str) -> bool {
    [
        "notifications/progress",
        "notifications/tools/list_changed",
        "notifications/cancelled",
        "notifications/subscriptions/acknowledged",
    ]
    .contains(&method)
}

/// One connection's client side.
pub(crate) struct ClientService {
    pub(crate) server: ServerId,
    pub(crate) asking: Arc<Asking>,
    pub(crate) progress: Arc<ProgressTable>,
    pub(crate) tools_changed: Arc<Notify>,
    /// Cancelled where the connection is over.
    pub(crate) closed: CancellationToken,
}

impl Service<RoleClient> for ClientService {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            ServerRequest::ElicitRequest(request) => {
                let params = Some(request.params);
                let result = tokio::select! {
                    result = self.asking.ask(&self.server, params, Holds::Any) => result,
                    // The server takes its question back, or is gone: nobody waits for the answer, and who is asked
                    // hears that by the end of the future.
                    () = context.ct.cancelled() => ElicitResult::new(ElicitationAction::Cancel),
                    () = self.closed.cancelled() => ElicitResult::new(ElicitationAction::Cancel),
                };
                Ok(ClientResult::ElicitResult(result))
            }
            // An elicitation whose schema the SDK cannot hold is still an elicitation, and nobody can answer it.
            ServerRequest::CustomRequest(request) if request.method == "elicitation/create" => Ok(
                ClientResult::ElicitResult(ElicitResult::new(ElicitationAction::Decline)),
            ),
            ServerRequest::CustomRequest(request) => Err(method_not_found(&request.method)),
            _ => Err(method_not_found("this method")),
        }
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        match notification {
            ServerNotification::ToolListChangedNotification(_) => self.tools_changed.notify_one(),
            ServerNotification::ProgressNotification(progress) => {
                self.progress.renew(&progress.params.progress_token);
            }
            _ => {}
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        // Declared only where somebody can answer; a server that asks all the same is declined.
        capabilities.elicitation = self.asking.is_answered().then(ElicitationCapability::default);
        let mut info = ClientConfig::new(
            capabilities,
            Implementation::new("portcullis", env!("CARGO_PKG_VERSION")),
        );
        info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        info
    }
}

fn method_not_found(method: &str) -> ErrorData {
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("`{}` is not offered by this client", shown(method)),
        None,
    )
}

/// The answer to a request of the server's that the SDK's types cannot hold.
pub(crate) fn unreadable(method: &str, error: &dyn fmt::Display) -> ErrorData {
    let text = format!(
        "`{}` does not parse: {}",
        shown(method),
        shown(&error.to_string())
    );
    ErrorData::new(ErrorCode::INVALID_PARAMS, text, None)
}

/// The answer to a request of the server's that cannot be read whole.
pub(crate) fn invalid(reason: &Unusable) -> ErrorData {
    let code = match reason.is_parse_error() {
        true => ErrorCode::PARSE_ERROR,
        false => ErrorCode::INVALID_REQUEST,
    };
    ErrorData::new(code, shown(&reason.to_string()), None)
}

/// Text of the server's as an answer to it says it: it is not kept and sent back whole, however long it is.
fn shown(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}

/// Which calls a progress notification renews.
#[derive(Debug, Default)]
pub(crate) struct ProgressTable(Mutex<HashMap<ProgressToken, Arc<Ticket>>>);

impl ProgressTable {
    /// Has the call of `ticket` hear of progress under `token` until the guard is dropped.
    pub(crate) fn watch(&self, token: ProgressToken, ticket: &Arc<Ticket>) -> ProgressWatch<'_> {
        self.lock().insert(token.clone(), Arc::clone(ticket));
        ProgressWatch { table: self, token }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn renew(&self, token: &ProgressToken) {
        if let Some(ticket) = self.lock().get(token) {
            ticket.progressed();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ProgressToken, Arc<Ticket>>> {
        // No code panics while it holds the lock, and a map is valid at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call's watch for progress.
pub(crate) struct ProgressWatch<'a> {
    table: &'a ProgressTable,
    token: ProgressToken,
}

impl Drop for ProgressWatch<'_> {
    fn drop(&mut self) {
        self.table.lock().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_asks_for_is_not_sent_back_whole() {
        let long = "x\n".repeat(1 << 20);
        for answer in [method_not_found(&long), unreadable(&long, &long)] {
            assert!(answer.message.len() < 1_000, "{}", answer.message.len());
            assert!(answer.message.contains("`x\\nx"), "{}", answer.message);
        }
        let near = long.clone();
        let why = "expected value".to_owned();
        let answer = invalid(&Unusable::NotJson { at: 7, why, near });
        assert_eq!(answer.code, ErrorCode::PARSE_ERROR);
        assert!(
            answer.message.len() < 1_000 && answer.message.contains(r"`x\nx"),
            "{answer:?}"
        );
        let answer = invalid(&Unusable::TooDeep { limit: 127 });
        assert_eq!(answer.code, ErrorCode::INVALID_REQUEST);
    }
}
