//! Plays a script: one thread reads, the caller's thread answers, and each call that takes its time has a thread of
//! its own. Whole lines leave through one mutex.

mod bad_reply;
mod call;
mod content;
mod lifecycle;
mod listing;
mod message;
mod rendezvous;
mod sink;

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    process::ExitCode,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use crate::{
    AtEof, Error, Handshake, Noise, Script,
    script::{LONGEST_WAIT, MAX_LINE_BYTES},
};
pub(crate) use call::flood_stderr;
use message::{Incoming, Request, error_frame};
use rendezvous::Rendezvous;
use sink::Sink;

/// Why a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// The requests came to their end.
    EndOfInput,
    /// The script says so, with this exit code.
    Scripted(u8),
    /// A server that ignores the end of its requests has been left alone for ten minutes.
    OutOfPatience,
}

impl ExitReason {
    /// The exit code of a process that ends for this reason.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Scripted(code) => code,
            Self::EndOfInput | Self::OutOfPatience => 0,
        }
    }
}

impl From<ExitReason> for ExitCode {
    fn from(reason: ExitReason) -> Self {
        Self::from(reason.code())
    }
}

/// Plays a script: reads requests as lines of JSON from `input` and writes replies to `output` (MCP, section
/// "stdio"), until the script or the end of the input ends it. `output` is dropped at the end, and earlier where the
/// script closes it. [`Script::process`] is not heeded here.
///
/// # Errors
///
/// What [`Script::check`] finds, [`Error::Input`] where reading fails, and [`Error::LongLine`] for a request over
/// 256 MiB. Output that nobody reads any more is no error: what is written there is lost.
pub fn serve(
    script: &Script,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<ExitReason, Error> {
    script.check()?;
    let (events, inbox) = sync_channel(QUEUE);
    let engine = Arc::new(Engine {
        script: script.clone(),
        sink: Sink::new(output),
        state: Mutex::default(),
        quiet: Condvar::new(),
        asked: AtomicU64::new(0),
        events: events.clone(),
    });
    let reason = engine.play(input, events, &inbox);
    engine.sink.close();
    engine.release();
    reason
}

/// How many lines wait to be dealt with before the reader stops reading.
const QUEUE: usize = 256;
/// The most calls that take their time at once.
const MAX_CALLS: usize = 4_096;
/// The stack of a call's thread; it holds no more than a few frames.
const STACK_BYTES: usize = 256 * 1024;

/// What the main loop waits for.
enum Event {
    Line(Vec<u8>),
    Eof,
    Broken(Error),
    Exit(u8),
}

/// Whether the server goes on.
enum Flow {
    Go,
    Exit(u8),
}

struct Engine {
    script: Script,
    sink: Sink,
    state: Mutex<State>,
    /// Told when a call ends.
    quiet: Condvar,
    /// Counts the requests sent to the client, for their ids.
    asked: AtomicU64,
    events: SyncSender<Event>,
}

#[derive(Default)]
struct State {
    /// `initialize` was answered.
    initialized: bool,
    /// The tools have changed.
    changed: bool,
    /// The raw ids of the open `subscriptions/listen` requests that want to hear of changed tools.
    listeners: Vec<String>,
    /// How many calls have a thread.
    running: usize,
    /// Calls that can be cancelled, by raw id.
    calls: HashMap<String, Arc<Rendezvous<()>>>,
    /// Requests of ours that wait for the client's answer, by raw id.
    asks: HashMap<String, Arc<Rendezvous<String>>>,
}

impl Engine {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn play(
        self: &Arc<Self>,
        input: impl Read + Send + 'static,
        events: SyncSender<Event>,
        inbox: &Receiver<Event>,
    ) -> Result<ExitReason, Error> {
        self.make_noise(&self.script.noise.at_start);
        if let Handshake::ExitAtStart { code } = self.script.handshake {
            return Ok(ExitReason::Scripted(code));
        }
        thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || read_lines(BufReader::new(input), &events))
            .map_err(|source| Error::SetUp {
                what: "start a thread",
                source,
            })?;
        loop {
            match inbox.recv() {
                Ok(Event::Line(line)) => {
                    if let Flow::Exit(code) = self.on_line(&line) {
                        return Ok(ExitReason::Scripted(code));
                    }
                }
                Ok(Event::Exit(code)) => return Ok(ExitReason::Scripted(code)),
                Ok(Event::Broken(error)) => return Err(error),
                // The engine itself holds a sender, so that the channel ends no earlier than the input.
                Ok(Event::Eof) | Err(_) => return Ok(self.at_eof(inbox)),
            }
        }
    }

    /// Ends the waiting of calls whose replies nobody will read.
    fn release(&self) {
        let mut state = self.state();
        state.calls.drain().for_each(|(_, call)| call.meet(()));
        state.asks.drain().for_each(|(_, ask)| ask.meet("{}".to_owned()));
    }

    /// After the end of the input only calls that are still running have anything to say.
    fn at_eof(&self, inbox: &Receiver<Event>) -> ExitReason {
        let ended = match self.script.at_eof {
            AtEof::Exit => return ExitReason::EndOfInput,
            AtEof::Ignore => inbox.recv_timeout(LONGEST_WAIT).ok(),
            AtEof::Finish => {
                let running = |state: &mut State| state.running > 0;
                drop(self.quiet.wait_timeout_while(self.state(), LONGEST_WAIT, running));
                inbox.try_recv().ok()
            }
        };
        match (ended, self.script.at_eof) {
            (Some(Event::Exit(code)), _) => ExitReason::Scripted(code),
            (_, AtEof::Ignore) => ExitReason::OutOfPatience,
            _ => ExitReason::EndOfInput,
        }
    }

    fn on_line(self: &Arc<Self>, line: &[u8]) -> Flow {
        if line.trim_ascii().is_empty() {
            return Flow::Go;
        }
        if let Some(file) = &self.script.received_file {
            self.trace(file, String::from_utf8_lossy(line).trim());
        }
        self.make_noise(&self.script.noise.per_message);
        let message = match Incoming::parse(line) {
            Ok(message) => message,
            Err(fault) => {
                let message = format!("not a JSON-RPC message: {fault}");
                self.sink.line(error_frame("null", PARSE_ERROR, &message, None));
                return Flow::Go;
            }
        };
        match (message.method.as_deref(), message.id) {
            (Some(method), Some(id)) => self.on_request(&Request::new(id.get(), method, message.params)),
            (Some(method), None) => {
                self.on_notification(method, &message);
                Flow::Go
            }
            (None, Some(id)) => {
                let answer = message.answer();
                if let Some(ask) = self.state().asks.remove(id.get()) {
                    ask.meet(answer);
                }
                Flow::Go
            }
            (None, None) => Flow::Go,
        }
    }

    fn on_request(self: &Arc<Self>, request: &Request<'_>) -> Flow {
        let script = &self.script;
        match request.method {
            "server/discover" => return self.on_discover(request),
            "initialize" => return self.on_initialize(request),
            _ if matches!(script.handshake, Handshake::Hang) => return Flow::Go,
            "ping" if script.era.is_legacy() => {
                self.reply(request.id, "{}");
                return Flow::Go;
            }
            _ => {}
        }
        if let Err(refusal) = self.admit(request) {
            self.sink.line(refusal);
            return Flow::Go;
        }
        match request.method {
            "tools/list" => return self.on_list(request),
            "tools/call" => return self.on_call(request),
            "subscriptions/listen" if self.is_modern(request) => self.on_listen(request),
            method => match script.methods.get(method) {
                Some(result) => self.reply(request.id, result),
                None => self.no_such_method(request),
            },
        }
        Flow::Go
    }

    fn on_notification(&self, method: &str, message: &Incoming<'_>) {
        if method != "notifications/cancelled" {
            return;
        }
        let Some(id) = message.request_id() else { return };
        if let Some(file) = &self.script.cancelled_file {
            self.trace(file, id);
        }
        let mut state = self.state();
        state.listeners.retain(|listener| listener != id);
        if let Some(call) = state.calls.remove(id) {
            call.meet(());
        }
    }

    /// Runs `work` on a thread of its own.
    fn spawn(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) -> Flow + Send + 'static) -> Result<(), Busy> {
        {
            let mut state = self.state();
            if state.running >= MAX_CALLS {
                return Err(Busy);
            }
            state.running = state.running.saturating_add(1);
        }
        let engine = Arc::clone(self);
        let call = move || {
            let running = Running(Arc::clone(&engine));
            if let Flow::Exit(code) = work(&engine) {
                // The main loop may be gone already: then the server has ended anyway.
                let _ = engine.events.send(Event::Exit(code));
            }
            drop(running);
        };
        match thread::Builder::new()
            .name("call".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(call)
        {
            Ok(_detached) => Ok(()),
            Err(_) => {
                drop(Running(Arc::clone(self)));
                Err(Busy)
            }
        }
    }

    fn make_noise(&self, noises: &[Noise]) {
        for noise in noises {
            match noise {
                Noise::Line(text) => self.sink.line(text.clone()),
                Noise::Blank(count) => (0..*count).for_each(|_| self.sink.line("")),
                Noise::LogLine => self
                    .sink
                    .line(r#"{"level":"info","message":"a line that is not for you"}"#),
                Noise::BadUtf8 => self.sink.line(b"\xff\xfe is not text".to_vec()),
                Noise::ListChanged => self.sink.line(LIST_CHANGED),
                Noise::Ping => {
                    let id = self.next_id();
                    self.sink
                        .line(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
                }
            }
        }
    }

    /// The raw id of the next request to the client; a string, which no client can take for one of its own numbers.
    fn next_id(&self) -> String {
        format!(r#""ask-{}""#, self.asked.fetch_add(1, Ordering::Relaxed))
    }

    fn reply(&self, id: &str, result: &str) {
        self.sink.line(message::result_frame(id, result));
    }

    fn no_such_method(&self, request: &Request<'_>) {
        let message = format!("there is no method `{}`", request.method);
        self.sink
            .line(error_frame(request.id, NO_SUCH_METHOD, &message, None));
    }

    /// Leaves a trace in a file. A trace that cannot be written is told on stderr: the test that waits for it fails.
    fn trace(&self, file: &std::path::Path, line: &str) {
        if let Err(error) = crate::files::append_line(file, line) {
            // Nothing better can be done where stderr is closed too.
            let _ = writeln!(io::stderr(), "error: {error}");
        }
    }
}

const LIST_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

// JSON-RPC 2.0, section 5.1, and the codes that MCP adds.
const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const NO_SUCH_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const UNSUPPORTED_VERSION: i64 = -32022;
const BUSY: i64 = -32000;

/// Too many calls take their time already.
struct Busy;

/// Takes a call off the count, however its thread ends.
struct Running(Arc<Engine>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.running = state.running.saturating_sub(1);
        self.0.quiet.notify_all();
    }
}

fn read_lines(mut input: impl BufRead, events: &SyncSender<Event>) {
    loop {
        let mut line = Vec::new();
        let event = match input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => Event::Eof,
            Ok(length) if length as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') => {
                Event::Broken(Error::LongLine {
                    limit_bytes: MAX_LINE_BYTES,
                })
            }
            Ok(_) => Event::Line(line),
            Err(source) => Event::Broken(Error::Input(source)),
        };
        let last = !matches!(event, Event::Line(_));
        // Where nobody listens any more, the server has ended.
        if events.send(event).is_err() || last {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
