use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::Transport,
};
use tokio_util::sync::CancellationToken;

use crate::http::Complaint;

/// The most that answers to one server's requests may take while they are on their way, in bytes, and what each takes
/// besides its text.
const MAX_ANSWERS_BYTES: usize = 4 * 1024 * 1024;
const ANSWER_BYTES: usize = 4 * 1024;

/// A transport that says when it has ended, and ends when that is said elsewhere: over HTTP the SDK's own does
/// neither. Its end is what ends the session at the server.
///
/// It also counts the answers to the server's own requests that are on their way. The SDK has a task for each, and a
/// server that asks on and on and takes no answer would fill the memory with them.
pub(super) struct Watched<T> {
    inner: T,
    closed: CancellationToken,
    complaint: Complaint,
    /// What the answers that are on their way take, about, in bytes.
    answering: Arc<AtomicUsize>,
}

impl<T> Watched<T> {
    /// `complaint` hears why the connection ended, where that was seen here.
    pub(super) fn new(inner: T, closed: CancellationToken, complaint: Complaint) -> Self {
        Self {
            inner,
            closed,
            complaint,
            answering: Arc::default(),
        }
    }

    /// Counts `message` for as long as what is given lives, where it is an answer; with too many, the connection ends.
    fn count(&self, message: &ClientJsonRpcMessage) -> Option<Answer> {
        let (id, text) = match message {
            JsonRpcMessage::Response(response) => (Some(&response.id), 0),
            JsonRpcMessage::Error(error) => (error.id.as_ref(), error.error.message.len()),
            _ => return None,
        };
        let id = match id {
            Some(RequestId::String(id)) => id.len(),
            _ => 0,
        };
        let bytes = ANSWER_BYTES.saturating_add(id).saturating_add(text);
        let before = self.answering.fetch_add(bytes, Ordering::AcqRel);
        let answer = Answer(Arc::clone(&self.answering), bytes);
        if before.saturating_add(bytes) > MAX_ANSWERS_BYTES && !self.closed.is_cancelled() {
            let why = "the server asks on and on, and does not take the answers";
            self.complaint.end(&self.closed, why);
        }
        Some(answer)
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answer = self.count(&message);
        let sending = self.inner.send(message);
        async move {
            let sent = sending.await;
            drop(answer);
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let message = tokio::select! {
            message = self.inner.receive() => message,
            () = self.closed.cancelled() => None,
        };
        if message.is_none() {
            self.closed.cancel();
        }
        message
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.closed.cancel();
        self.inner.close().await
    }
}

/// An answer that is on its way, and what it takes.
struct Answer(Arc<AtomicUsize>, usize);

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::AcqRel);
    }
}
