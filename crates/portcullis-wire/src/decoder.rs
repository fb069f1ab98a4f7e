use std::collections::VecDeque;

use crate::{Frame, LongStrings, long::MAX_TAKEN_BYTES};

mod envelope;
mod line;
mod lines;
mod message;
mod nesting;
mod salvage;
mod strings;

pub use line::MAX_MESSAGES_PER_LINE;

use line::LineDecoder;
use lines::{LineBuffer, Next};
use strings::StringFilter;

/// What a peer may send at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest line, in bytes, its newline not counted: 64 MiB by default.
    pub max_line_bytes: usize,
    /// The deepest nesting of a message, in levels, the envelope counted: 128 by default, so that serde_json reads
    /// every result with its own limit of 127. A request or notification, which is read whole, may have at most 127.
    pub max_depth: usize,
    /// The longest string that stays in its line where long ones are taken, in bytes of its raw JSON text between the
    /// quotes: 64 KiB by default. [`Decoder::taking`] alone looks at it. Where it is above `max_line_bytes` no string
    /// leaves its line: one that is longer than the line may be makes it a line that is too long.
    pub max_string_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_line_bytes: 64 << 20,
            max_depth: 128,
            max_string_bytes: 64 << 10,
        }
    }
}

/// Takes a stream apart into frames. How the stream is cut into chunks makes no difference to them.
///
/// A decoder made with [`taking`](Self::taking) gives strings that are too long for a line to a taker of the type `S`
/// as they arrive; one made with [`new`](Self::new) leaves them where they are.
#[derive(Debug)]
pub struct Decoder<S = ()> {
    limits: Limits,
    lines: LineBuffer,
    strings: Option<StringFilter>,
    taker: S,
    decoder: LineDecoder,
    /// Frames of the last line that were not taken yet.
    // INVARIANT: at most 2 × (`MAX_MESSAGES_PER_LINE` + 1) frames: a line is decoded only when this is empty.
    pending: VecDeque<Frame>,
    stream: Stream,
}

/// How far the stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Open,
    /// The end was seen: a last line needs no newline.
    Ended,
    // INVARIANT: the buffer is empty, for ever.
    Dead,
}

impl Decoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            strings: None,
            ..Self::taking(limits, ())
        }
    }
}

impl<S: LongStrings> Decoder<S> {
    /// A decoder at the start of a stream that gives long strings to `taker`.
    #[must_use]
    pub fn taking(limits: Limits, taker: S) -> Self {
        // Nothing of a line is looked at before it is longer than one string may be. Whether it is found to be over its
        // own limit before that would be a matter of where the chunks end.
        let max_string_bytes = match limits.max_string_bytes > limits.max_line_bytes {
            true => usize::MAX,
            false => limits.max_string_bytes,
        };
        Self {
            limits,
            lines: LineBuffer::new(limits.max_line_bytes),
            strings: Some(StringFilter::new(max_string_bytes)),
            taker,
            decoder: LineDecoder::new(limits.max_depth),
            pending: VecDeque::new(),
            stream: Stream::Open,
        }
    }

    /// Takes the next bytes of the stream. Take the frames, until there is none, before feeding again: what is
    /// kept is then at most one unfinished line.
    pub fn feed(&mut self, chunk: &[u8]) {
        if self.stream != Stream::Open {
            return;
        }
        match &mut self.strings {
            Some(strings) => strings.feed(chunk, &mut self.lines, &mut self.taker),
            None => self.lines.extend(chunk),
        }
    }

    /// Who takes the long strings.
    pub fn taker(&mut self) -> &mut S {
        &mut self.taker
    }

    /// Says that the stream is over: what stands after the last newline is a line as well.
    pub fn finish(&mut self) {
        if self.stream == Stream::Open {
            self.stream = Stream::Ended;
            self.end_strings();
        }
    }

    /// The next frame; `None` where more bytes are needed, or no more can come.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.pending.pop_front() {
                return Some(frame);
            }
            match self.lines.next(self.stream == Stream::Ended) {
                Next::Line(line) => self.decoder.line(line, &mut self.pending),
                Next::Nothing => return None,
                Next::Overlong => return Some(self.dies(self.limits.max_line_bytes)),
                Next::TookTooMuch => {
                    let limit = self
                        .strings
                        .as_ref()
                        .map_or(MAX_TAKEN_BYTES, StringFilter::max_taken_bytes);
                    return Some(self.dies(usize::try_from(limit).unwrap_or(usize::MAX)));
                }
            }
        }
    }

    fn dies(&mut self, limit: usize) -> Frame {
        self.stream = Stream::Dead;
        // What is wrong with a string that is cut off would go to the line.
        self.end_strings();
        self.lines.release();
        Frame::Overlong { limit }
    }

    fn end_strings(&mut self) {
        if let Some(strings) = &mut self.strings {
            strings.end_line(&mut self.lines, &mut self.taker);
        }
    }
}

#[cfg(test)]
mod tests;
