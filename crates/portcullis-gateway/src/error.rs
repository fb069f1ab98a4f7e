use rmcp::service::ServerInitializeError;
use thiserror::Error;

/// Why the gateway ended otherwise than by its client's leave.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// The client did not shake hands.
    #[error("the client did not complete the handshake: {}", told(.0))]
    Handshake(Box<ServerInitializeError>),
    /// What is to go to the client could not be written, while it had not left.
    #[error("the client cannot be answered: {0}")]
    Output(String),
    /// The task that serves failed.
    #[error("serving failed: {0}")]
    Task(String),
}

/// What went wrong, without what the client sent.
fn told(error: &ServerInitializeError) -> String {
    match error {
        ServerInitializeError::ExpectedInitializeRequest(_) => {
            "its first message is neither `initialize` nor a request of a revision that needs none".to_owned()
        }
        ServerInitializeError::UnexpectedInitializeResponse(_) => {
            "its `initialize` cannot be answered".to_owned()
        }
        ServerInitializeError::InitializeFailed(error) => error.message.to_string(),
        other => other.to_string(),
    }
}
