use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::{
    io::AsyncWrite,
    sync::{Notify, oneshot},
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
/// How much goes out in one write, in bytes: a Linux pipe's whole capacity.
const BATCH_BYTES: usize = 64 * 1024;

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

type Outcome = Result<(), TransportError>;

/// How a message fared: known already, or told later. The sender of what is told later is dropped where the writer is
/// gone.
pub(super) enum Written {
    Already,
    Later(oneshot::Receiver<Outcome>),
}

/// The way into the writer. It never waits, since whoever sends cannot; beyond its bound the connection ends.
pub(super) struct WriterQueue {
    writer: Arc<Mutex<Writer>>,
    more: Arc<Notify>,
    closed: CancellationToken,
}

/// The server's input, and what waits to be written to it.
struct Writer {
    /// Gone once the connection is closed.
    output: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    batch: Vec<u8>,
}

struct Queued {
    outgoing: Outgoing,
    /// How much of it was accepted.
    written: usize,
    /// Whether its ticket is being written, or there is none.
    begun: bool,
    done: Option<oneshot::Sender<Outcome>>,
}

impl WriterQueue {
    /// Takes a message. Where `eager` and nothing else waits, it is written right here, as far as the pipe takes it:
    /// that spares it the way to another task. Else it goes out with whatever else waits by then.
    pub(super) fn push(&self, outgoing: Outgoing, eager: bool) -> Written {
        let (done, written) = oneshot::channel();
        let mut writer = lock(&self.writer);
        if writer.output.is_none() {
            return Written::Later(written);
        }
        let bytes = outgoing.weight();
        if writer.queued_bytes + bytes > MAX_QUEUED_BYTES {
            tracing::warn!("a server does not read its input; its connection ends");
            self.closed.cancel();
            return Written::Later(written);
        }
        let first = writer.queue.is_empty();
        writer.queued_bytes += bytes;
        writer.queue.push_back(Queued {
            outgoing,
            written: 0,
            begun: false,
            done: Some(done),
        });
        if eager && first && !self.closed.is_cancelled() {
            // What the pipe does not take, the task does; it hears of the pipe when it asks for itself.
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(Ok(())) = writer.poll_drain(&mut context) {
                return Written::Already;
            }
        }
        drop(writer);
        self.more.notify_one();
        Written::Later(written)
    }
}

/// Starts the task that owns the server's input. It ends, and so closes that input, once `closed` is cancelled.
pub(super) fn start(
    output: impl AsyncWrite + Send + Unpin + 'static,
    closed: CancellationToken,
) -> (WriterQueue, JoinHandle<()>) {
    let writer = Arc::new(Mutex::new(Writer {
        output: Some(Box::new(output)),
        queue: VecDeque::new(),
        queued_bytes: 0,
        batch: Vec::new(),
    }));
    let more = Arc::new(Notify::new());
    let queue = WriterQueue {
        writer: Arc::clone(&writer),
        more: Arc::clone(&more),
        closed: closed.clone(),
    };
    let task = tokio::spawn(async move {
        let _end = End(Arc::clone(&writer));
        let write_on = async {
            loop {
                more.notified().await;
                let drained = std::future::poll_fn(|context| lock(&writer).poll_drain(context));
                if drained.await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = write_on => closed.cancel(),
            () = closed.cancelled() => {}
        }
    });
    (queue, task)
}

/// Closes the server's input and drops what waits, however the task ends.
struct End(Arc<Mutex<Writer>>);

impl Drop for End {
    fn drop(&mut self) {
        let mut writer = lock(&self.0);
        writer.output = None;
        writer.queue = VecDeque::new();
    }
}

impl Writer {
    /// Writes until nothing waits, in batches. Each message's ticket hears of its first byte at once: the offset
    /// decides between `not sent` and `outcome unknown`, never an error code.
    // INVARIANT: between two polls no ticket is being written of which nothing was accepted, so each of these may
    // still be withdrawn.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            self.gather();
            let Some(output) = self.output.as_mut() else {
                return Poll::Ready(Err(TransportError::Closed));
            };
            let mut output = Pin::new(output);
            if self.batch.is_empty() {
                return output.poll_flush(context).map_err(failed);
            }
            let step = output.as_mut().poll_write(context, &self.batch);
            let accepted = match &step {
                Poll::Ready(Ok(count)) => *count,
                _ => 0,
            };
            self.account(accepted);
            let error = match step {
                Poll::Ready(Ok(1..)) => continue,
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => TransportError::Closed,
                Poll::Ready(Err(error)) => failed(error),
            };
            if let Some(done) = self.queue.front_mut().and_then(|first| first.done.take()) {
                let _ = done.send(Err(error.clone()));
            }
            return Poll::Ready(Err(error));
        }
    }

    /// Begins the messages that go into the next write, and puts their bytes together. Those that were withdrawn are
    /// taken out.
    fn gather(&mut self) {
        self.batch.clear();
        let mut at = 0;
        while let Some(queued) = self.queue.get_mut(at) {
            let ticket = queued.outgoing.ticket.as_ref();
            if !queued.begun && ticket.is_some_and(|ticket| !ticket.begin()) {
                if let Some(queued) = self.queue.remove(at) {
                    self.finish(queued, Err(TransportError::Withdrawn));
                }
                continue;
            }
            queued.begun = true;
            let rest = queued.outgoing.bytes.get(queued.written..).unwrap_or_default();
            let room = BATCH_BYTES - self.batch.len();
            self.batch
                .extend_from_slice(rest.get(..room.min(rest.len())).unwrap_or_default());
            if rest.len() >= room {
                break;
            }
            at += 1;
        }
    }

    /// Tells the messages of the last write how much of it was accepted.
    fn account(&mut self, mut accepted: usize) {
        while let Some(queued) = self.queue.front_mut()
            && accepted > 0
        {
            if queued.written == 0
                && let Some(ticket) = &queued.outgoing.ticket
            {
                ticket.sent();
            }
            let rest = queued.outgoing.bytes.len() - queued.written;
            let taken = rest.min(accepted);
            queued.written += taken;
            accepted -= taken;
            if taken < rest {
                break;
            }
            if let Some(queued) = self.queue.pop_front() {
                self.finish(queued, Ok(()));
            }
        }
        for queued in &mut self.queue {
            if !queued.begun {
                break;
            }
            if queued.written == 0 {
                queued.begun = false;
                if let Some(ticket) = &queued.outgoing.ticket {
                    ticket.not_sent();
                }
            }
        }
    }

    fn finish(&mut self, queued: Queued, outcome: Outcome) {
        self.queued_bytes = self.queued_bytes.saturating_sub(queued.outgoing.weight());
        if let Some(done) = queued.done {
            let _ = done.send(outcome);
        }
    }
}

fn failed(error: io::Error) -> TransportError {
    TransportError::Write(Arc::new(error))
}

fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    // What panics while it holds the lock is the pipe's own code, and then the connection is of no more use.
    writer.lock().unwrap_or_else(PoisonError::into_inner)
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
            drop(queue.push(Outgoing::new(vec![b'x'; 1024 * 1024], None), false));
            pushed += 1;
        }
        assert!(pushed > 64, "what the router admits must fit: {pushed}");
        // The writer ends, and what waited is dropped with it.
        task.await.unwrap();
        let Written::Later(never) = queue.push(Outgoing::new(Vec::new(), None), true) else {
            panic!("nobody writes any more");
        };
        assert!(never.await.is_err());
    }

    /// Keeps what each write gave it.
    struct Kept(Arc<Mutex<Vec<usize>>>);

    impl AsyncWrite for Kept {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.lock().unwrap().push(bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn one_message_goes_out_at_once_and_many_go_together() {
        let writes = Arc::default();
        let (queue, _task) = start(Kept(Arc::clone(&writes)), CancellationToken::new());
        let one = queue.push(Outgoing::new(vec![b'x'; 9], None), true);
        assert!(matches!(one, Written::Already));
        let many: Vec<_> = (0..5)
            .map(|_| queue.push(Outgoing::new(vec![b'x'; 9], None), false))
            .collect();
        for written in many {
            let Written::Later(written) = written else {
                panic!("others wait")
            };
            written.await.unwrap().unwrap();
        }
        assert_eq!(*writes.lock().unwrap(), [10, 50]);
        // No write is larger than the pipe, and nothing is lost at the seams.
        let large = queue.push(Outgoing::new(vec![b'x'; 2 * BATCH_BYTES], None), true);
        assert!(matches!(large, Written::Already));
        assert_eq!(writes.lock().unwrap()[2..], [BATCH_BYTES, BATCH_BYTES, 1]);
    }
}
