use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::TransportError;
use crate::ticket::Ticket;

/// The most that may wait to be written to one server, in bytes: the router's 64 calls with arguments of 1 MiB each,
/// and as much again. A server that asks for ever and reads nothing would otherwise fill the hub's memory.
const MAX_QUEUED_BYTES: usize = 128 * 1024 * 1024;
/// What a message takes besides its bytes, about: many small ones must not go uncounted.
const MESSAGE_BYTES: usize = 1024;

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

    /// What it takes while it waits, about, in bytes.
    fn weight(&self) -> usize {
        self.bytes.len() + MESSAGE_BYTES
    }
}

type Written = oneshot::Receiver<Result<(), TransportError>>;

/// The way into the writer. It never waits, since whoever sends cannot; beyond its bound the connection ends.
pub(super) struct WriterQueue {
    messages: mpsc::UnboundedSender<(Outgoing, oneshot::Sender<Result<(), TransportError>>)>,
    queued: Arc<AtomicUsize>,
    closed: CancellationToken,
}

impl WriterQueue {
    /// Queues a message; the receiver tells when it was written, or is dropped where the writer is gone.
    pub(super) fn push(&self, outgoing: Outgoing) -> Written {
        let (done, written) = oneshot::channel();
        let bytes = outgoing.weight();
        if self.queued.fetch_add(bytes, Ordering::AcqRel) + bytes > MAX_QUEUED_BYTES {
            tracing::warn!("a server does not read its input; its connection ends");
            self.closed.cancel();
            return written;
        }
        let _ = self.messages.send((outgoing, done));
        written
    }
}

/// Starts the task that owns the server's input. It ends, and so closes that input, once `closed` is cancelled.
pub(super) fn start(
    mut output: impl AsyncWrite + Send + Unpin + 'static,
    closed: CancellationToken,
) -> (WriterQueue, JoinHandle<()>) {
    let (sender, mut messages) = mpsc::unbounded_channel::<(Outgoing, oneshot::Sender<_>)>();
    let queued = Arc::new(AtomicUsize::new(0));
    let queue = WriterQueue {
        messages: sender,
        queued: Arc::clone(&queued),
        closed: closed.clone(),
    };
    let task = tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                next = messages.recv() => next,
                () = closed.cancelled() => None,
            };
            let Some((outgoing, done)) = next else { break };
            queued.fetch_sub(outgoing.weight(), Ordering::AcqRel);
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
    (queue, task)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that asks for ever and reads nothing would fill the memory with answers.
    #[tokio::test]
    async fn a_peer_that_reads_nothing_ends_the_connection_before_memory_does() {
        let (stuck, _nobody_reads) = tokio::io::duplex(1);
        let closed = CancellationToken::new();
        let (queue, task) = start(stuck, closed.clone());
        let mut pushed = 0;
        while !closed.is_cancelled() {
            assert!(pushed < 200, "the queue has no bound");
            drop(queue.push(Outgoing::new(vec![b'x'; 1024 * 1024], None)));
            pushed += 1;
        }
        assert!(pushed > 64, "what the router admits must fit: {pushed}");
        // The writer ends, and what waited is dropped with it.
        task.await.unwrap();
        assert!(queue.push(Outgoing::new(Vec::new(), None)).await.is_err());
    }
}
