use std::{collections::VecDeque, mem};

use serde::Deserialize;
use serde_json::{Deserializer, error::Category};

use super::{
    envelope::{Batch, Envelope},
    message,
    salvage::{Scanner, trailing_id},
};
use crate::{
    Frame, Unusable,
    excerpt::{NOISE_CHARS, REASON_CHARS, excerpt},
};

/// The most messages that are taken out of one line, be it a batch or messages that were written without a newline.
pub const MAX_MESSAGES_PER_LINE: usize = 1024;

/// Room for more frames than this is given back once they are taken.
const MAX_KEPT_FRAMES: usize = 16;

/// Turns lines into frames.
#[derive(Debug)]
pub(super) struct LineDecoder {
    max_depth: usize,
    /// A message that an earlier line began and did not end.
    fragment: Option<Fragment>,
    /// Room for the frames of a line, empty between two of them: nearly every line has one.
    room: Vec<Frame>,
}

#[derive(Debug)]
struct Fragment {
    scanner: Scanner,
    /// Whether a reply without an id was reported.
    reported: bool,
}

/// What one line gave by itself.
#[derive(Default)]
struct Reading {
    frames: Vec<Frame>,
    /// How many of the frames are more than noise.
    // INVARIANT: at most `MAX_MESSAGES_PER_LINE` + 1: the last one says then that there were more.
    messages: usize,
    fragment: Option<Fragment>,
}

impl LineDecoder {
    pub(super) fn new(max_depth: usize) -> Self {
        Self {
            max_depth,
            fragment: None,
            room: Vec::new(),
        }
    }

    /// Decodes one line. A line that is no message by itself may belong to one that an earlier line began.
    pub(super) fn line(&mut self, line: &[u8], out: &mut VecDeque<Frame>) {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return;
        }
        let mut reading = self.read(line);
        if reading.messages > 0 {
            self.fragment = reading.fragment;
            out.extend(reading.frames.drain(..));
            self.keep_room(reading.frames);
        } else if let Some(fragment) = self.fragment.take() {
            out.push_back(self.resume(fragment, line));
        } else {
            self.fragment = reading.fragment;
            out.push_back(noise(line));
        }
    }

    /// Keeps the room of an ordinary line for the next one.
    fn keep_room(&mut self, room: Vec<Frame>) {
        if room.capacity() <= MAX_KEPT_FRAMES {
            self.room = room;
        }
    }

    fn read(&mut self, line: &[u8]) -> Reading {
        let mut reading = Reading {
            frames: mem::take(&mut self.room),
            ..Reading::default()
        };
        if !matches!(line.first(), Some(b'{' | b'[')) {
            return reading;
        }
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(error) => {
                reading.broken(
                    line,
                    Unusable::BadUtf8 {
                        at: error.valid_up_to(),
                    },
                );
                return reading;
            }
        };
        let mut rest = text;
        for _ in 0..MAX_MESSAGES_PER_LINE {
            match self.read_value(rest, &mut reading) {
                Ok(0) => return reading,
                Ok(used) => rest = rest.get(used..).unwrap_or_default().trim_ascii_start(),
                Err(error) => {
                    reading.broken(rest.as_bytes(), not_json(text, rest, &error));
                    return reading;
                }
            }
        }
        if !rest.is_empty() && reading.messages > 0 {
            reading.too_many();
        }
        reading
    }

    /// Reads one value off the start of `rest` and says how many bytes it took: 0 where there is nothing to read.
    fn read_value(&self, rest: &str, reading: &mut Reading) -> Result<usize, serde_json::Error> {
        match rest.bytes().next() {
            None => Ok(0),
            Some(b'{') => {
                let (envelope, used) = parse(rest)?;
                reading.object(&envelope, rest.get(..used).unwrap_or_default(), self.max_depth);
                Ok(used)
            }
            Some(b'[') => {
                let (batch, used): (Batch<'_>, usize) = parse(rest)?;
                for member in batch.members {
                    match serde_json::from_str(member.get()) {
                        Ok(envelope) if member.get().starts_with('{') => {
                            reading.object(&envelope, member.get(), self.max_depth);
                        }
                        _ => reading.noise(member.get().as_bytes()),
                    }
                }
                if batch.more && reading.messages > 0 {
                    reading.too_many();
                }
                // `[7] {…}` is a log line that quotes a message: after an array that is none, nothing is.
                Ok(if reading.messages > 0 { used } else { 0 })
            }
            Some(_) => {
                reading.noise(rest.as_bytes());
                Ok(0)
            }
        }
    }

    /// Goes on with a message that an earlier line began, in search of its id.
    fn resume(&mut self, mut fragment: Fragment, line: &[u8]) -> Frame {
        fragment.scanner.read(b"\n");
        fragment.scanner.read(line);
        let open = fragment.scanner.is_open();
        let found = fragment.scanner.found().next().cloned().unwrap_or_default();
        let id = found.id();
        if found.is_reply(true) && (id.is_some() || !(open || fragment.reported)) {
            return Frame::Unusable {
                id,
                reason: Unusable::BrokenOff,
            };
        }
        if open {
            self.fragment = Some(fragment);
        }
        noise(line)
    }
}

impl Reading {
    fn message(&mut self, frame: Frame) {
        if self.messages >= MAX_MESSAGES_PER_LINE {
            return self.too_many();
        }
        self.messages += 1;
        self.frames.push(frame);
    }

    fn object(&mut self, envelope: &Envelope<'_>, text: &str, max_depth: usize) {
        match message::classify(envelope, text, max_depth) {
            Some(frame) => self.message(frame),
            None => self.noise(text.as_bytes()),
        }
    }

    /// Noise beside messages: of several in a row, the first is enough.
    fn noise(&mut self, bytes: &[u8]) {
        let is_lost = self.messages > MAX_MESSAGES_PER_LINE;
        if !is_lost && !matches!(self.frames.last(), Some(Frame::Noise { .. })) {
            self.frames.push(noise(bytes));
        }
    }

    /// What is left of the line is lost. That is told once.
    fn too_many(&mut self) {
        if self.messages <= MAX_MESSAGES_PER_LINE {
            self.messages = MAX_MESSAGES_PER_LINE + 1;
            let reason = Unusable::TooManyMessages {
                limit: MAX_MESSAGES_PER_LINE,
            };
            self.frames.push(Frame::Unusable { id: None, reason });
        }
    }

    /// What can be salvaged of `bytes`, which do not parse.
    fn broken(&mut self, bytes: &[u8], reason: Unusable) {
        let first = bytes.first().copied().unwrap_or_default();
        let mut scanner = Scanner::new(first);
        scanner.read(bytes);
        let broken_off = reason == Unusable::BrokenOff;
        let mut reported = false;
        let mut named = false;
        for found in scanner.found() {
            // Where the line ended early, the rest may come on the next one and hold another id.
            if let Some(id) = found.id().filter(|_| found.is_request() && !broken_off) {
                (reported, named) = (true, true);
                let reason = reason.clone();
                self.message(Frame::BadRequest { id, reason });
            }
            if !found.is_reply(broken_off) {
                continue;
            }
            let lost_its_way = found.lacks_id() && !broken_off && first == b'{';
            let id = found
                .id()
                .or_else(|| if lost_its_way { trailing_id(bytes) } else { None });
            reported = true;
            named |= id.is_some();
            self.message(Frame::Unusable {
                id,
                reason: reason.clone(),
            });
        }
        if !reported {
            self.noise(bytes);
        }
        if !named && first == b'{' && scanner.is_open() {
            self.fragment = Some(Fragment { scanner, reported });
        }
    }
}

/// Parses one value off the start of `text` and says how many bytes it took.
fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<(T, usize), serde_json::Error> {
    let mut values = Deserializer::from_str(text).into_iter();
    match values.next() {
        Some(value) => Ok((value?, values.byte_offset())),
        None => serde_json::from_str(text).map(|value| (value, text.len())),
    }
}

fn not_json(text: &str, rest: &str, error: &serde_json::Error) -> Unusable {
    if error.classify() == Category::Eof {
        return Unusable::BrokenOff;
    }
    let at = text.len() - rest.len() + error.column().saturating_sub(1);
    let why = error.to_string();
    let why = why.split(" at line ").next().unwrap_or_default().to_owned();
    let near = excerpt(text.as_bytes().get(at..).unwrap_or_default(), REASON_CHARS);
    Unusable::NotJson { at, why, near }
}

fn noise(bytes: &[u8]) -> Frame {
    Frame::Noise {
        text: excerpt(bytes, NOISE_CHARS),
    }
}
