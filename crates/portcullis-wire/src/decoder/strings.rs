//! Takes long strings out of a line while it arrives, looking at nothing of lines that are short enough.

use super::lines::LineBuffer;
use crate::long::{LongStrings, MAX_LONG_STRINGS, MAX_TAKEN_BYTES, marker};

mod check;

use check::{Check, Fault, Step};

/// Stands between the stream and the lines.
#[derive(Debug)]
pub(super) struct StringFilter {
    max_string_bytes: usize,
    max_taken_bytes: u64,
    at: At,
    /// How many strings left the line at hand.
    taken: usize,
    /// How much they had, in bytes.
    taken_bytes: u64,
}

/// Where in its line the stream is.
#[derive(Debug)]
enum At {
    /// In a line that has no more bytes than one string may have: its first `begun` bytes lie in the buffer, and
    /// nothing of it was looked at.
    Short { begun: usize },
    /// Outside of strings.
    Plain,
    /// In a string of which `kept` bytes lie at the end of the buffer or are about to.
    String { kept: usize, escaped: bool },
    /// In a string that leaves the line.
    Long(Check),
    /// In one that was found to be no JSON. What is left of it is dropped.
    Bad(Fault),
    /// In a line that is no JSON from its start.
    Other,
    /// Too much left the line. Nothing more is read.
    TookTooMuch,
}

impl StringFilter {
    pub(super) fn new(max_string_bytes: usize) -> Self {
        Self {
            max_string_bytes,
            max_taken_bytes: MAX_TAKEN_BYTES,
            at: At::Short { begun: 0 },
            taken: 0,
            taken_bytes: 0,
        }
    }

    pub(super) fn max_taken_bytes(&self) -> u64 {
        self.max_taken_bytes
    }

    /// Passes a chunk on to `lines`, and the long strings in it to `sink`.
    pub(super) fn feed(&mut self, chunk: &[u8], lines: &mut LineBuffer, sink: &mut impl LongStrings) {
        self.chunk(chunk, lines, sink);
        // Whether a string is a long one must not be a matter of where the chunk ends.
        lines.leave_open(match self.at {
            At::String { kept, .. } if self.taken < MAX_LONG_STRINGS => kept,
            _ => 0,
        });
    }

    fn chunk(&mut self, chunk: &[u8], lines: &mut LineBuffer, sink: &mut impl LongStrings) {
        let mut rest = chunk;
        loop {
            if let At::Short { begun } = &mut self.at
                && begun.saturating_add(rest.len()) <= self.max_string_bytes
            {
                *begun = match memchr::memrchr(b'\n', rest) {
                    Some(newline) => rest.len() - newline - 1,
                    None => *begun + rest.len(),
                };
                return lines.extend(rest);
            }
            let newline = memchr::memchr(b'\n', rest);
            let (segment, after) = rest.split_at(newline.unwrap_or(rest.len()));
            self.segment(segment, lines, sink);
            if matches!(self.at, At::TookTooMuch) {
                return;
            }
            let Some((newline, after)) = after.split_first() else {
                return;
            };
            self.end_line(lines, sink);
            lines.extend(std::slice::from_ref(newline));
            rest = after;
        }
    }

    /// The line at hand ends here, by a newline or because nothing more comes.
    pub(super) fn end_line(&mut self, lines: &mut LineBuffer, sink: &mut impl LongStrings) {
        match &mut self.at {
            At::Long(check) => {
                check.cut_off(lines);
                sink.abandon();
            }
            At::Bad(fault) => fault.cut_off(lines),
            _ => {}
        }
        if self.taken > 0 {
            sink.line();
        }
        lines.leave_open(0);
        self.at = At::Short { begun: 0 };
        self.taken = 0;
        self.taken_bytes = 0;
    }

    /// A part of a line.
    fn segment(&mut self, segment: &[u8], lines: &mut LineBuffer, sink: &mut impl LongStrings) {
        if let At::Short { begun } = &mut self.at {
            let count = *begun;
            *begun = count.saturating_add(segment.len());
            if *begun <= self.max_string_bytes {
                return lines.extend(segment);
            }
            let begun = lines.cut(count);
            let start = begun.iter().chain(segment).take(self.max_string_bytes + 1);
            self.at = At::start(start.copied());
            self.pass(&begun, lines, sink);
        }
        self.pass(segment, lines, sink);
    }

    /// A part of a line that is longer than a string may be.
    fn pass(&mut self, bytes: &[u8], lines: &mut LineBuffer, sink: &mut impl LongStrings) {
        let (mut at, mut stay) = (0, 0);
        while let Some(ahead) = bytes.get(at..).filter(|ahead| !ahead.is_empty()) {
            match &mut self.at {
                At::Short { .. } | At::Other => at = bytes.len(),
                At::TookTooMuch => return,
                At::Plain => match memchr::memchr(b'"', ahead) {
                    None => at = bytes.len(),
                    Some(quote) => {
                        at += quote + 1;
                        self.at = At::String {
                            kept: 0,
                            escaped: false,
                        };
                    }
                },
                At::String { kept, escaped } => {
                    let before = *escaped;
                    let (count, closed) = to_quote(ahead, escaped);
                    if kept.saturating_add(count) > self.max_string_bytes && self.taken < MAX_LONG_STRINGS {
                        *escaped = before;
                        let kept = *kept;
                        lines.extend(bytes.get(stay..at).unwrap_or_default());
                        stay = at;
                        self.begin(&lines.cut(kept), lines, sink);
                    } else {
                        *kept += count;
                        at += count;
                        if closed {
                            at += 1;
                            self.at = At::Plain;
                        }
                    }
                }
                At::Long(check) => {
                    let step = check.read(ahead);
                    at += self.step(ahead, step, lines, sink);
                    stay = at;
                    // The closing quote stays.
                    at += usize::from(matches!(self.at, At::Plain));
                }
                At::Bad(fault) => {
                    let (count, closed) = fault.pass(ahead, lines);
                    at += count;
                    stay = at;
                    if !self.may_leave(count, lines) {
                        return;
                    }
                    if closed {
                        at += 1;
                        self.at = At::Plain;
                    }
                }
            }
        }
        lines.extend(bytes.get(stay..).unwrap_or_default());
    }

    /// A string leaves the line, `head` of it first.
    fn begin(&mut self, head: &[u8], lines: &mut LineBuffer, sink: &mut impl LongStrings) {
        self.taken += 1;
        let marker = marker(sink.begin()).to_string();
        lines.extend(marker.as_bytes());
        let mut check = Check::default();
        let step = check.read(head);
        self.at = At::Long(check);
        let used = self.step(head, step, lines, sink);
        if let At::Bad(fault) = &mut self.at {
            // No quote ends it there, or it would have ended before.
            fault.pass(head.get(used..).unwrap_or_default(), lines);
        }
    }

    /// What was found in `bytes` of a long string; gives how many of them are done with.
    fn step(
        &mut self,
        bytes: &[u8],
        step: Step,
        lines: &mut LineBuffer,
        sink: &mut impl LongStrings,
    ) -> usize {
        let leaving = match &step {
            Step::More => bytes.len(),
            Step::Closed { at } => *at,
            Step::Bad { resume, .. } => *resume,
        };
        if !self.may_leave(leaving, lines) {
            sink.abandon();
            return bytes.len();
        }
        match step {
            Step::More => {
                sink.chunk(bytes);
                bytes.len()
            }
            Step::Closed { at } => {
                sink.chunk(bytes.get(..at).unwrap_or_default());
                sink.end();
                self.at = At::Plain;
                at
            }
            Step::Bad { fault, resume } => {
                sink.abandon();
                self.at = At::Bad(fault);
                resume
            }
        }
    }

    /// Whether so many bytes more may leave the line, which has an end otherwise: a server that never ends a string is
    /// as broken as one that never ends a line.
    fn may_leave(&mut self, count: usize, lines: &mut LineBuffer) -> bool {
        self.taken_bytes = self.taken_bytes.saturating_add(count as u64);
        let may = self.taken_bytes <= self.max_taken_bytes;
        if !may {
            self.at = At::TookTooMuch;
            lines.take_too_much();
        }
        may
    }
}

impl At {
    /// Whether a line that begins so may be JSON.
    fn start(bytes: impl Iterator<Item = u8>) -> Self {
        let mut bytes = bytes.peekable();
        for mark in *b"\xef\xbb\xbf" {
            // A part of a byte order mark is none, and no JSON either.
            bytes.next_if_eq(&mark);
        }
        match bytes.find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{' | b'[') => Self::Plain,
            // All white space so far: a line of that is nothing, and what may come after so much of it is not JSON.
            _ => Self::Other,
        }
    }
}

/// How many bytes stand before the quote that ends the string at hand, and whether it was found.
fn to_quote(bytes: &[u8], escaped: &mut bool) -> (usize, bool) {
    let mut at = usize::from(std::mem::take(escaped));
    while let Some(found) = bytes
        .get(at..)
        .and_then(|ahead| memchr::memchr2(b'"', b'\\', ahead))
    {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return (at, true);
        }
        at += 2;
    }
    // An escape at the very end leaves its other half to the next part.
    *escaped = at > bytes.len();
    (bytes.len(), false)
}

#[cfg(test)]
mod tests;
