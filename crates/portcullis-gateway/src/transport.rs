//! The transport to the client, below the SDK: arguments are kept as they came, raw results go out as they are.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use portcullis_wire::{Decoder, Frame, Id, Limits};
use rmcp::{
    RoleServer,
    model::{
        ClientJsonRpcMessage, ClientNotification, ErrorCode, ErrorData, GetExtensions, JsonRpcMessage,
        RequestId, ServerJsonRpcMessage, ServerResult,
    },
    transport::Transport,
};
use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Mutex, watch},
    time::timeout,
};

/// How long closing the output may take, and how far apart a client that leaves closes its two ends.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// How many cancelled requests are remembered: the SDK may yet come to their ends.
const CANCELLED: usize = 1_024;
/// How much is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// A call's arguments as the client wrote them, in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct RawArguments(pub(crate) Arc<str>);

/// Newline-delimited JSON-RPC towards one client.
pub(crate) struct GatewayTransport<R, W> {
    input: R,
    chunk: Vec<u8>,
    decoder: Decoder,
    inbound: VecDeque<ClientJsonRpcMessage>,
    /// The requests that have no answer yet.
    open: HashSet<RequestId>,
    /// Those that will have none, the last ones.
    cancelled: VecDeque<RequestId>,
    ended: bool,
    output: Output<W>,
    /// Why the output took a message no more.
    broken: watch::Receiver<Option<String>>,
    /// The same, where it ended the connection.
    lost: Arc<OnceLock<String>>,
}

/// Where messages to the client go.
struct Output<W> {
    to: Arc<Mutex<W>>,
    broken: watch::Sender<Option<String>>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin> GatewayTransport<R, W> {
    pub(crate) fn new(input: R, output: W) -> Self {
        let (tell, broken) = watch::channel(None);
        Self {
            input,
            chunk: Vec::with_capacity(READ_BYTES),
            decoder: Decoder::new(Limits::default()),
            inbound: VecDeque::new(),
            open: HashSet::new(),
            cancelled: VecDeque::new(),
            ended: false,
            output: Output {
                to: Arc::new(Mutex::new(output)),
                broken: tell,
            },
            broken,
            lost: Arc::default(),
        }
    }

    /// Where it stands, once all is over, that the client could be told nothing any more before it had left.
    pub(crate) fn lost(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.lost)
    }

    /// Takes a frame in; gives the answer to one that is refused here.
    fn accept(&mut self, frame: Frame) -> Option<ServerJsonRpcMessage> {
        match frame {
            Frame::Request { id, method, message } => match request(&method, &message) {
                Ok(message) => {
                    if !self.take_in(&id) {
                        let why = "another request has this id; use a new one for each";
                        return Some(refused(Some(id), ErrorCode::INVALID_REQUEST, why));
                    }
                    self.inbound.push_back(message);
                }
                Err(error) => return Some(refused(Some(id), ErrorCode::INVALID_REQUEST, &error.to_string())),
            },
            Frame::BadRequest { id, reason } => {
                let code = match reason.is_parse_error() {
                    true => ErrorCode::PARSE_ERROR,
                    false => ErrorCode::INVALID_REQUEST,
                };
                return Some(refused(Some(id), code, &reason.to_string()));
            }
            Frame::Notification { message, .. } => match serde_json::from_str(&message) {
                Ok(message) => {
                    self.note_cancelled(&message);
                    self.inbound.push_back(message);
                }
                Err(error) => tracing::debug!(%error, "dropped a notification that does not parse"),
            },
            // The hub asks its clients nothing yet, so no reply is awaited.
            Frame::Response { .. } | Frame::Error { .. } => {}
            Frame::Unusable { id, reason } => {
                return Some(refused(id, ErrorCode::PARSE_ERROR, &reason.to_string()));
            }
            Frame::Noise { text } => {
                return Some(refused(
                    None,
                    ErrorCode::PARSE_ERROR,
                    &format!("this is no JSON-RPC message: {text}"),
                ));
            }
            Frame::Overlong { limit } => {
                self.ended = true;
                return Some(refused(
                    None,
                    ErrorCode::INVALID_REQUEST,
                    &format!("a line is over {limit} bytes"),
                ));
            }
        }
        None
    }

    /// Takes a request in by its id; false where another has it. The SDK knows a request by nothing else, and of two would answer one (MCP 2026-07-28,
    /// base protocol, requests: an id is used once).
    fn take_in(&mut self, id: &Id) -> bool {
        let id = request_id(id.clone());
        !self.cancelled.contains(&id) && self.open.insert(id)
    }

    /// What is cancelled is not answered.
    fn note_cancelled(&mut self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Notification(message) = message
            && let ClientNotification::CancelledNotification(cancelled) = &message.notification
            && let Some(id) = &cancelled.params.request_id
            && let Some(id) = self.open.take(id)
        {
            self.cancelled.truncate(CANCELLED - 1);
            self.cancelled.push_front(id);
        }
    }
}

impl<R, W> Transport<RoleServer> for GatewayTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if let Some(id) = answered {
            self.open.remove(id);
        }
        self.output.clone().write(message)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if let Some(message) = self.inbound.pop_front() {
                return Some(message);
            }
            if self.ended {
                return None;
            }
            // Cancel safe: what was read is in the decoder before the next wait.
            let read = tokio::select! {
                read = self.input.read_buf(&mut self.chunk) => read,
                // Who cannot be answered need not be listened to.
                why = broken(&mut self.broken) => {
                    // One that has left takes no answer either, and nothing is lost. Cancelled here, all of this comes again.
                    let left = timeout(CLOSE_WAIT, self.input.read_buf(&mut self.chunk)).await;
                    self.ended = true;
                    if !matches!(left, Ok(Ok(0) | Err(_))) {
                        let _ = self.lost.set(why);
                    }
                    continue;
                }
            };
            match read {
                Ok(0) | Err(_) => {
                    self.decoder.finish();
                    self.ended = true;
                }
                Ok(_) => self.decoder.feed(&self.chunk),
            }
            self.chunk.clear();
            while let Some(frame) = self.decoder.next_frame() {
                if let Some(answer) = self.accept(frame) {
                    // A task of its own: waiting here could lose what was read.
                    tokio::spawn(self.output.clone().write(answer));
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        let output = Arc::clone(&self.output.to);
        // A client that reads no more may hold a write up for ever, and the output with it.
        let closed = timeout(CLOSE_WAIT, async move { output.lock().await.shutdown().await });
        closed
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// A request. The arguments of a call do not pass the SDK, which would round numbers and refuse some: they are taken
/// out of the message and travel beside it as they were written.
fn request(method: &str, message: &str) -> serde_json::Result<ClientJsonRpcMessage> {
    type Members = BTreeMap<String, Box<RawValue>>;
    let mut members: Members = serde_json::from_str(message)?;
    let Some(params) = members.get("params").filter(|_| method == "tools/call") else {
        return serde_json::from_str(message);
    };
    let mut params: Members = serde_json::from_str(params.get())?;
    let arguments = params.remove("arguments");
    members.insert("params".to_owned(), to_raw_value(&params)?);
    let mut parsed: ClientJsonRpcMessage = serde_json::from_str(&serde_json::to_string(&members)?)?;
    if let (Some(arguments), JsonRpcMessage::Request(request)) = (arguments, &mut parsed) {
        request
            .request
            .extensions_mut()
            .insert(RawArguments(arguments.get().into()));
    }
    Ok(parsed)
}

fn refused(id: Option<Id>, code: ErrorCode, why: &str) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::new(code, why.to_owned(), None), id.map(request_id))
}

fn request_id(id: Id) -> RequestId {
    match id {
        Id::Number(number) => RequestId::Number(number),
        Id::String(text) => RequestId::String(text.into()),
    }
}

/// Why the output takes no more messages, once it does not.
async fn broken(why: &mut watch::Receiver<Option<String>>) -> String {
    let found = why.wait_for(Option::is_some).await;
    let found = found.ok().and_then(|why| why.clone());
    match found {
        Some(why) => why,
        // Nobody can write any more, so nothing is lost.
        None => std::future::pending().await,
    }
}

impl<W: AsyncWrite + Unpin> Output<W> {
    /// Writes one whole line. A result that is raw text is written as it is.
    async fn write(self, message: ServerJsonRpcMessage) -> io::Result<()> {
        let mut line = encode(&message)?;
        line.push(b'\n');
        let written = self.write_line(&line).await;
        if let Err(error) = &written {
            self.broken.send_replace(Some(error.to_string()));
        }
        written
    }

    async fn write_line(&self, line: &[u8]) -> io::Result<()> {
        let mut output = self.to.lock().await;
        output.write_all(line).await?;
        output.flush().await
    }
}

impl<W> Clone for Output<W> {
    fn clone(&self) -> Self {
        Self {
            to: Arc::clone(&self.to),
            broken: self.broken.clone(),
        }
    }
}

fn encode(message: &ServerJsonRpcMessage) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Response<'a> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        result: &'a RawValue,
    }
    if let JsonRpcMessage::Response(response) = message
        && let ServerResult::CustomResult(custom) = &response.result
        && let Value::String(raw) = &custom.0
    {
        let result: &RawValue = serde_json::from_str(raw)?;
        return serde_json::to_vec(&Response {
            jsonrpc: "2.0",
            id: &response.id,
            result,
        });
    }
    serde_json::to_vec(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_answered_and_ends_the_session() {
        let mut transport = GatewayTransport::new(tokio::io::empty(), tokio::io::sink());
        let answer = transport.accept(Frame::Overlong { limit: 7 });
        let told = serde_json::to_string(&answer).unwrap();
        assert!(told.contains("a line is over 7 bytes"), "{told}");
        assert!(transport.ended);
    }

    /// It may hold a write up, and with it the output, for as long as it likes.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_no_more_does_not_hold_up_the_end() {
        let (_unread, output) = tokio::io::duplex(1);
        let mut transport = GatewayTransport::new(tokio::io::empty(), output);
        let answer = refused(None, ErrorCode::PARSE_ERROR, "no");
        let stuck = tokio::spawn(transport.send(answer));
        tokio::task::yield_now().await;
        assert!(transport.output.to.try_lock().is_err(), "the write waits");
        let ended = timeout(2 * CLOSE_WAIT, transport.close()).await;
        assert_eq!(ended.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        stuck.abort();
    }

    #[test]
    fn arguments_are_kept_word_for_word() {
        let arguments = r#"{"n":1.10, "big":123456789012345678901234567890, "huge":1e400}"#;
        // However the client writes the method.
        for method in ["tools/call", r"tools\/call", r"tools/c\u0061ll"] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"x","arguments":{arguments}}}}}"#
            );
            let mut decoder = Decoder::new(Limits::default());
            decoder.feed(line.as_bytes());
            decoder.feed(b"\n");
            let Some(Frame::Request { method, message, .. }) = decoder.next_frame() else {
                panic!("it is a request")
            };
            let Ok(JsonRpcMessage::Request(request)) = request(&method, &message) else {
                panic!("it is a request")
            };
            let RawArguments(raw) = request.request.extensions().get().unwrap();
            assert_eq!(raw.as_ref(), arguments, "{line}");
        }
    }
}
