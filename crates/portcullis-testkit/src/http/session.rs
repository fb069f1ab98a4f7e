use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{Receiver, SendError, Sender, channel},
    },
    thread,
};

use super::message::JsonRpc;
use crate::{Error, Script, engine::serve};

/// How many lines wait for a client that has no stream open, and how many ids are remembered.
const QUEUE: usize = 1_024;

/// One run of the script: what it prints goes to the streams that clients hold open.
pub(super) struct Session {
    input: Mutex<Option<PipeWriter>>,
    streams: Mutex<Streams>,
}

/// A line that the script printed; the last one of its stream is the reply.
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    pub(super) last: bool,
}

#[derive(Default)]
struct Streams {
    over: bool,
    open: Vec<Stream>,
    /// What was said while there was no stream for it: the next one has it first.
    unheard: VecDeque<Vec<u8>>,
    /// The raw ids that were answered last. What answers one of them once more is nobody else's reply.
    answered: VecDeque<String>,
}

struct Stream {
    /// The raw id of the request that the stream answers; none for one that only listens.
    answers: Option<String>,
    /// Whether what is no reply can go there too: a single JSON body has no room for it.
    hears: bool,
    /// As many as the script says, which has its bounds: a reply that found no room would be lost.
    lines: Sender<Line>,
}

impl Session {
    pub(super) fn start(script: &Script) -> Result<Arc<Self>, Error> {
        let failed = |source| Error::SetUp {
            what: "start a session",
            source,
        };
        let (requests, input) = io::pipe().map_err(failed)?;
        let (output, replies) = io::pipe().map_err(failed)?;
        let session = Arc::new(Self {
            input: Mutex::new(Some(input)),
            streams: Mutex::default(),
        });
        let script = script.clone();
        thread::Builder::new()
            .name("session".to_owned())
            // What ends it ends its output, and that is what is looked at.
            .spawn(move || serve(&script, requests, replies))
            .map_err(failed)?;
        let weak = Arc::downgrade(&session);
        thread::Builder::new()
            .name("session".to_owned())
            .spawn(move || route(output, &weak))
            .map_err(failed)?;
        Ok(session)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.streams().over
    }

    /// Hands a message to the script.
    pub(super) fn tell(&self, message: &[u8]) -> io::Result<()> {
        let mut line: Vec<u8> = message
            .iter()
            .map(|byte| {
                if matches!(byte, b'\n' | b'\r') {
                    b' '
                } else {
                    *byte
                }
            })
            .collect();
        line.push(b'\n');
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        match input.as_mut() {
            Some(input) => input.write_all(&line),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// The lines for the request of this raw id, or for one that only listens; `hears` says whether what is said
    /// meanwhile may come there too. They end where the session does.
    pub(super) fn listen(&self, answers: Option<&str>, hears: bool) -> Receiver<Line> {
        let (lines, receiver) = channel();
        let mut streams = self.streams();
        if hears {
            for bytes in streams.unheard.drain(..) {
                let _ = lines.send(Line { bytes, last: false });
            }
        }
        if !streams.over {
            streams.open.push(Stream {
                answers: answers.map(str::to_owned),
                hears,
                lines,
            });
        }
        receiver
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // No code panics while it holds the lock.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, bytes: Vec<u8>) {
        let mut streams = self.streams();
        let message = serde_json::from_slice::<JsonRpc>(&bytes).ok();
        let id = message
            .as_ref()
            .and_then(|message| message.id.as_ref().filter(|_| message.method.is_none()))
            .map(|id| id.get().to_owned());
        let answered = streams.position(|answers| answers.is_some() && answers == id.as_deref());
        if let Some(at) = answered {
            streams.answer(at, bytes);
            return;
        }
        // What is no message, or a reply to nobody: the only one who waits for a reply gets it for one.
        let again = id.is_some_and(|id| streams.answered.contains(&id));
        let is_reply = !again && message.is_none_or(|message| message.method.is_none());
        let waiting = streams
            .open
            .iter()
            .filter(|stream| stream.answers.is_some())
            .count();
        if is_reply && waiting == 1 {
            if let Some(at) = streams.position(|answers| answers.is_some()) {
                streams.answer(at, bytes);
            }
            return;
        }
        let mut line = Line { bytes, last: false };
        while let Some(at) = streams.open.iter().rposition(|stream| stream.hears) {
            match streams.open.get(at).map(|stream| stream.lines.send(line)) {
                // Its client is gone.
                Some(Err(SendError(unsent))) => {
                    streams.open.remove(at);
                    line = unsent;
                }
                _ => return,
            }
        }
        if streams.unheard.len() < QUEUE {
            streams.unheard.push_back(line.bytes);
        }
    }

    /// Ends its streams, those that only listen too, and the script's input.
    pub(super) fn end(&self) {
        {
            let mut streams = self.streams();
            streams.over = true;
            streams.open.clear();
        }
        // After that: who writes there may wait for the script, and the script for what reads its output.
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Streams {
    /// Gives the stream its last line.
    fn answer(&mut self, at: usize, bytes: Vec<u8>) {
        let stream = self.open.remove(at);
        if self.answered.len() == QUEUE {
            self.answered.pop_front();
        }
        self.answered.extend(stream.answers);
        // A client that is gone does not miss it.
        let _ = stream.lines.send(Line { bytes, last: true });
    }

    fn position(&self, is: impl Fn(Option<&str>) -> bool) -> Option<usize> {
        self.open.iter().position(|stream| is(stream.answers.as_deref()))
    }
}

/// Passes on what the script prints, until it ends or nobody holds the session any more.
fn route(output: PipeReader, session: &Weak<Session>) {
    for line in BufReader::new(output).split(b'\n') {
        let (Ok(line), Some(session)) = (line, session.upgrade()) else {
            break;
        };
        // Blank lines are nothing on an event stream.
        if !line.trim_ascii().is_empty() {
            session.line(line);
        }
    }
    if let Some(session) = session.upgrade() {
        session.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It comes once more when the next request waits already, alone: that one's stream goes on to its own reply.
    #[test]
    fn a_reply_that_comes_twice_is_nobody_elses() {
        let session = Session::start(&Script::new("s")).unwrap();
        let reply = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into_bytes();
        let first = session.listen(Some("1"), true);
        session.line(reply(1));
        let second = session.listen(Some("2"), true);
        session.line(reply(1));
        session.line(reply(2));
        session.end();
        let heard = |lines: Receiver<Line>| {
            let all: Vec<_> = lines.iter().map(|line| (line.bytes, line.last)).collect();
            all
        };
        assert_eq!(heard(first), [(reply(1), true)]);
        assert_eq!(heard(second), [(reply(1), false), (reply(2), true)]);
    }

    /// The script says more than its client reads meanwhile.
    #[test]
    fn a_reply_comes_after_however_much_was_said_before_it() {
        let session = Session::start(&Script::new("s")).unwrap();
        let said = 3 * QUEUE;
        let lines = session.listen(Some("1"), true);
        for _ in 0..said {
            session.line(br#"{"jsonrpc":"2.0","method":"notifications/message"}"#.to_vec());
        }
        session.line(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_vec());
        session.end();
        let heard: Vec<_> = lines.iter().map(|line| line.last).collect();
        assert_eq!(heard.len(), said + 1);
        assert_eq!(heard.last(), Some(&true));
    }
}
