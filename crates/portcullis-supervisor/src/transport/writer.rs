use std::sync::Arc;

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::TransportError;
use crate::ticket::Ticket;

/// One whole message on its way to the server.
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    ticket: Option<Arc<Ticket>>,
}

impl Outgoing {
    /// `bytes` is a message without its newline.
    pub(super) fn new(mut bytes: Vec<u8>, ticket: Option<Arc<Ticket>>) -> Self {
        bytes.push(b'\n');
        Self { bytes, ticket }
    }
}

type Written = oneshot::Receiver<Result<(), TransportError>>;

/// The way into the writer. Unbounded: the router admits a bounded number of calls to each server.
pub(super) struct WriterQueue(mpsc::UnboundedSender<(Outgoing, oneshot::Sender<Result<(), TransportError>>)>);

impl WriterQueue {
    /// Queues a message; the receiver tells when it was written, or is dropped where the writer is gone.
    pub(super) fn push(&self, outgoing: Outgoing) -> Written {
        let (done, written) = oneshot::channel();
        let _ = self.0.send((outgoing, done));
        written
    }
}

/// Starts the task that owns the server's input. It ends, and so closes that input, once `closed` is cancelled.
pub(super) fn start(
    mut output: impl AsyncWrite + Send + Unpin + 'static,
    closed: CancellationToken,
) -> (WriterQueue, JoinHandle<()>) {
    let (queue, mut messages) = mpsc::unbounded_channel::<(Outgoing, oneshot::Sender<_>)>();
    let task = tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                next = messages.recv() => next,
                () = closed.cancelled() => None,
            };
            let Some((outgoing, done)) = next else { break };
            if outgoing.ticket.as_ref().is_some_and(|ticket| !ticket.begin()) {
                let _ = done.send(Err(TransportError::Withdrawn));
                continue;
            }
            let result = write(&mut output, &outgoing, &closed).await;
            let failed = result.is_err();
            let _ = done.send(result);
            if failed {
                closed.cancel();
                break;
            }
        }
    });
    (WriterQueue(queue), task)
}

/// Writes one message, and tells its ticket as soon as the first byte was accepted: the offset decides between
/// `not sent` and `outcome unknown`, never an error code.
async fn write(
    output: &mut (impl AsyncWrite + Unpin),
    outgoing: &Outgoing,
    closed: &CancellationToken,
) -> Result<(), TransportError> {
    let mut rest: &[u8] = &outgoing.bytes;
    let mut accepted = false;
    let result = loop {
        if rest.is_empty() {
            break Ok(());
        }
        let step = tokio::select! {
            step = output.write(rest) => step,
            () = closed.cancelled() => break Err(TransportError::Closed),
        };
        match step {
            Ok(0) => break Err(TransportError::Closed),
            Ok(count) => {
                if !accepted && let Some(ticket) = &outgoing.ticket {
                    ticket.sent();
                }
                accepted = true;
                rest = rest.get(count..).unwrap_or_default();
            }
            Err(error) => break Err(TransportError::Write(Arc::new(error))),
        }
    };
    if !accepted && let Some(ticket) = &outgoing.ticket {
        ticket.not_sent();
    }
    match result {
        Ok(()) => tokio::select! {
            flushed = output.flush() => flushed.map_err(|error| TransportError::Write(Arc::new(error))),
            // A flush that never ends must not hold up the end of the connection.
            () = closed.cancelled() => Err(TransportError::Closed),
        },
        failed => failed,
    }
}
