//! The stdio transport below the SDK's [`Transport`], over any reader and writer.
//!
//! Framing is `portcullis-wire`'s. What the SDK would lose or stumble over ends here: results of `tools/call` and
//! `tools/list` go up as raw text, noise is dropped, a reply that cannot be used fails its own call, and at the
//! end of the stream every pending call fails at once.

mod inbound;
mod pending;
mod restore;
mod strings;
mod writer;

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use futures::future::BoxFuture;
use portcullis_wire::{Decoder, Limits};
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    task::{JoinHandle, consume_budget},
    time::{Instant, timeout_at},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub(crate) use restore::{Restored, claim, restore};
pub(crate) use strings::{Strings, Wanted};

use crate::{
    counters::WireCounters, encode::encode_message, pace::Pace, stderr::StderrRing, strings::StringSpool,
    ticket::Ticket,
};
use pending::{Pending, PendingRequest};
use writer::{Outgoing, WriterQueue, Written};

/// How a connection ended whose server closed its output.
pub(crate) const OUTPUT_CLOSED: &str = "the server closed its output";

/// How much is read from the pipe at once, in bytes: a Linux pipe's whole capacity.
const READ_BYTES: usize = 64 * 1024;

/// With so many requests waiting for their replies, one that comes is written at once; with more, many go together.
const EAGER: usize = 4;

/// How long a piece of a long string may wait to be written before the connection is given up.
const SPOOL_WAIT: Duration = Duration::from_secs(30);

/// A call's arguments as the caller gave them, in the request's extensions: what was decided upon is what is
/// sent, byte for byte.
#[derive(Debug, Clone)]
pub(crate) struct RawArguments(pub(crate) Arc<str>);

/// Why a message could not be sent.
#[derive(Debug, Clone, Error)]
pub(crate) enum TransportError {
    #[error("the connection is closed")]
    Closed,
    #[error("the call was withdrawn before it was written")]
    Withdrawn,
    #[error("the message cannot be written as JSON: {0}")]
    Encode(Arc<serde_json::Error>),
    #[error("writing failed: {0}")]
    Write(Arc<std::io::Error>),
}

/// See the module's text.
pub(crate) struct StdioTransport<R> {
    reader: R,
    decoder: Decoder<Strings>,
    chunk: BytesMut,
    inbound: VecDeque<ServerJsonRpcMessage>,
    /// Messages that are no call's result and get their long strings back.
    restoring: VecDeque<BoxFuture<'static, Restored>>,
    /// Until when what waits for the thread of long strings may wait, however often the waiting is begun again.
    spool_until: Option<Instant>,
    pending: Arc<Pending>,
    /// How long the reply to what is no call may be waited for, where that was said.
    patience: Option<Duration>,
    outbound: WriterQueue,
    writer: JoinHandle<()>,
    /// What knows the values that the server was given: no line of the log shows them.
    stderr: StderrRing,
    counters: Arc<WireCounters>,
    closed: CancellationToken,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    pace: Pace,
    phase: Phase,
}

enum Phase {
    Open,
    /// The stream has ended, for this reason; the writer is on its way out.
    Ending(String),
    Ended,
}

impl<R: AsyncRead + Send + Unpin + 'static> StdioTransport<R> {
    /// `closed` is cancelled by whoever first sees the end of the connection, this transport included.
    pub(crate) fn new(
        reader: R,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        counters: Arc<WireCounters>,
        closed: CancellationToken,
    ) -> Self {
        let (outbound, writer) = writer::start(writer, closed.clone());
        Self {
            reader,
            decoder: Decoder::taking(Limits::default(), Strings::new(None)),
            chunk: BytesMut::with_capacity(READ_BYTES),
            inbound: VecDeque::new(),
            restoring: VecDeque::new(),
            spool_until: None,
            pending: Arc::default(),
            patience: None,
            outbound,
            writer,
            stderr: StderrRing::default(),
            counters,
            closing: Box::pin(closed.clone().cancelled_owned()),
            closed,
            pace: Pace::default(),
            phase: Phase::Open,
        }
    }

    /// Gives the long strings of results to `spool`. Without one, a result that holds some fails its call.
    pub(crate) fn with_spool(mut self, spool: Option<Arc<dyn StringSpool>>) -> Self {
        let pending = Arc::clone(&self.pending);
        *self.decoder.taker() = Strings::new(spool).wanted(Wanted::when(move || pending.awaits()));
        self
    }

    /// Keeps what `stderr` knows to be secret out of the log.
    pub(crate) fn with_secrets_of(mut self, stderr: StderrRing) -> Self {
        self.stderr = stderr;
        self
    }

    /// Takes nobody to wait for longer than this for the reply to what is no call: that nobody does any more is not always
    /// said.
    pub(crate) fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Remembers a request's method, or forgets a cancelled one, and turns the message into bytes.
    fn prepare(&self, message: &ClientJsonRpcMessage) -> Result<Outgoing, TransportError> {
        let bytes = encode_message(message).map_err(|error| TransportError::Encode(Arc::new(error)))?;
        let mut ticket = None;
        match message {
            JsonRpcMessage::Request(request) => {
                let raw_result = match &request.request {
                    ClientRequest::CallToolRequest(call) => {
                        ticket = call.extensions.get::<Arc<Ticket>>().cloned();
                        true
                    }
                    ClientRequest::ListToolsRequest(_) => true,
                    _ => false,
                };
                // A subscription's answer comes at its end: it waits beside every call.
                let answers = !matches!(request.request, ClientRequest::SubscriptionsListenRequest(_));
                self.pending.insert(
                    request.id.clone(),
                    PendingRequest {
                        raw_result,
                        answers,
                        ticket: ticket.clone(),
                        until: match &ticket {
                            Some(ticket) => ticket.over_at(),
                            None => self
                                .patience
                                .and_then(|patience| Instant::now().checked_add(patience)),
                        },
                    },
                );
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // Its reply, should one come, is late: dropped and counted as unclaimed.
                    self.pending.remove(id);
                }
            }
            _ => {}
        }
        Ok(Outgoing::new(bytes, ticket))
    }

    /// The next message, as long as it needs none of what [`step`](Self::step) does; else none.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<ServerJsonRpcMessage>> {
        loop {
            // Nothing is taken before this: one server's flood gives the others their turn.
            ready!(pin!(consume_budget()).poll(context));
            // First, so that nobody waits for pieces of a string that wait here.
            if self.decoder.taker().are_waiting() {
                return Poll::Ready(None);
            }
            if let Some(message) = self.inbound.pop_front() {
                return Poll::Ready(Some(message));
            }
            if !self.restoring.is_empty() || !matches!(self.phase, Phase::Open) {
                return Poll::Ready(None);
            }
            ready!(self.poll_read(context));
        }
    }

    /// One step of reading. Nothing is taken from the pipe that is not in the decoder afterwards.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // A connection that is being closed is read at once.
        if self.pace.poll(context).is_pending() {
            ready!(self.closing.as_mut().poll(context));
        }
        match pin!(self.reader.read_buf(&mut self.chunk)).poll(context) {
            Poll::Ready(read) => self.take(read),
            Poll::Pending => ready!(self.closing.as_mut().poll(context)),
        }
        // What lies in the pipe when the connection is closed is read before it ends, and no more than that: who
        // holds the pipe may never stop writing.
        if self.closed.is_cancelled() && matches!(self.phase, Phase::Open) {
            self.phase = Phase::Ending("the connection was closed".to_owned());
        }
        Poll::Ready(())
    }

    /// Takes what was read into the chunk.
    fn take(&mut self, read: io::Result<usize>) {
        match read {
            Ok(0) => {
                // First of all: whoever hears from the last half line how a call ended finds no connection here.
                self.closed.cancel();
                self.decoder.finish();
                self.phase = Phase::Ending(OUTPUT_CLOSED.to_owned());
            }
            Ok(_) => self.decoder.feed(&self.chunk),
            Err(error) => self.phase = Phase::Ending(format!("reading failed: {error}")),
        }
        let size_bytes = self.chunk.len();
        // Of a line with nothing in it no frame comes.
        let ends_line = memchr::memchr(b'\n', &self.chunk).is_some();
        self.chunk.clear();
        while let Some(frame) = self.decoder.next_frame() {
            if let Some(frame) = self.without_strings(frame) {
                self.accept(frame);
            }
        }
        self.decoder.taker().forget();
        self.pace.read(size_bytes, ends_line);
    }

    /// One step of what few messages need: waiting for the thread of long strings, getting strings back, the end.
    /// False where nothing more can come. Cancel safe.
    async fn step(&mut self) -> bool {
        if self.decoder.taker().are_waiting() {
            self.spool().await;
        } else if let Some(next) = self.restoring.front_mut() {
            let restored = next.await;
            self.restoring.pop_front();
            self.accept_restored(restored);
        } else {
            match &self.phase {
                Phase::Open => {}
                Phase::Ending(reason) => {
                    let reason = reason.clone();
                    self.closed.cancel();
                    let _ = (&mut self.writer).await;
                    self.fail_all(&reason);
                    self.phase = Phase::Ended;
                }
                Phase::Ended => return false,
            }
        }
        true
    }

    /// Gives the thread of long strings what was read of them. Cancel safe.
    async fn spool(&mut self) {
        let until = *self
            .spool_until
            .get_or_insert_with(|| Instant::now() + SPOOL_WAIT);
        let handed_over = timeout_at(until, self.decoder.taker().hand_over()).await;
        self.spool_until = None;
        if handed_over.is_err() {
            self.phase = Phase::Ending("the store for long strings hangs".to_owned());
            *self.decoder.taker() = Strings::new(None);
        }
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Transport<RoleClient> for StdioTransport<R> {
    type Error = TransportError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        // Queued here, not in the future: the order of the calls of `send` is the order on the wire.
        let eager = self.pending.len() <= EAGER;
        let written = self
            .prepare(&message)
            .map(|outgoing| self.outbound.push(outgoing, eager));
        let request = match message {
            JsonRpcMessage::Request(request) => Some(request.id),
            _ => None,
        };
        let pending = Arc::clone(&self.pending);
        async move {
            let result = match written? {
                Written::Already => return Ok(()),
                Written::Later(written) => written.await.unwrap_or(Err(TransportError::Closed)),
            };
            if let (Err(_), Some(id)) = (&result, request) {
                pending.remove(&id);
            }
            result
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            // The SDK makes and drops this future at each of its own events, of which a call has several. So it holds
            // next to nothing, and what few messages need is made only for them.
            if let Some(message) = poll_fn(|context| self.poll_next(context)).await {
                return Some(message);
            }
            if !Box::pin(self.step()).await {
                return None;
            }
        }
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        self.closed.cancel();
        Ok(())
    }
}

impl<R> Drop for StdioTransport<R> {
    fn drop(&mut self) {
        // The writer owns the server's standard input: it must close even if nobody called `close`.
        self.closed.cancel();
    }
}

#[cfg(test)]
mod tests;
