//! Messages out of a body or out of an event's data, with their long strings on the way to who takes them.

use std::{borrow::Cow, sync::Arc, time::Duration};

use portcullis_wire::{Decoder, Frame, Id, Limits, MAX_LONG_STRINGS, MAX_MESSAGES_PER_LINE};
use thiserror::Error;
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    counters::WireCounters,
    strings::{LongString, StringSpool},
    transport::{Strings, Wanted, claim},
};

/// The most that one body or one event's data may have, in bytes, what leaves them included: what a body may have once
/// it is decompressed.
const MOST_BYTES: u64 = 256 << 20;

/// How much is read before what it holds of long strings is handed over, in bytes.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// How long a piece of a long string may wait to be written before its message is given up.
const SPOOL_WAIT: Duration = Duration::from_secs(30);

/// A message, and the strings that left it.
pub(crate) type Message = (Frame, Vec<LongString>);

/// Reads one body after the other.
pub(crate) struct Messages {
    decoder: Decoder<Strings>,
    limits: Limits,
    lines: OnOneLine,
    ended: Vec<Message>,
    body: Body,
    counters: Arc<WireCounters>,
}

/// What is known of the body at hand. It is one line as a rule, and a line has its bounds; but a quote that is never
/// closed leaves the newlines behind it where they are, and then each line of the body would have them anew.
#[derive(Default)]
struct Body {
    /// How much of it has come, in bytes.
    came: u64,
    /// How much its messages keep, in bytes.
    kept: usize,
    /// How many long strings left it.
    strings: usize,
    overlong: bool,
}

/// Why a body is not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Refused {
    #[error("the server sent a message that is larger than allowed")]
    TooLarge,
    #[error("the store for long strings hangs")]
    Hangs,
}

impl Messages {
    /// For bodies of which at most `most_bytes` stay in memory. Long strings leave them where there is a `spool`;
    /// `room` is what all those of one connection share on their way to it.
    pub(crate) fn new(
        most_bytes: usize,
        spool: Option<&Arc<dyn StringSpool>>,
        room: &Arc<Semaphore>,
    ) -> Self {
        let limits = Limits {
            max_line_bytes: most_bytes,
            max_string_bytes: spool.map_or(usize::MAX, |_| Limits::default().max_string_bytes),
            ..Limits::default()
        };
        let strings = Strings::sharing(spool.cloned(), Arc::clone(room));
        Self {
            decoder: Decoder::taking(limits, strings),
            limits,
            lines: OnOneLine::default(),
            ended: Vec::new(),
            body: Body::default(),
            counters: Arc::default(),
        }
    }

    /// Counts what is dropped there.
    pub(crate) fn counting(mut self, counters: Arc<WireCounters>) -> Self {
        self.counters = counters;
        self
    }

    /// Whose long strings are for the spool only while somebody waits for a reply.
    pub(crate) fn wanted(mut self, wanted: Wanted) -> Self {
        let strings = std::mem::replace(self.decoder.taker(), Strings::new(None));
        *self.decoder.taker() = strings.wanted(wanted);
        self
    }

    /// Takes more of a body. What it holds of long strings is to be [handed over](Self::hand_over) before the next.
    pub(crate) fn feed(&mut self, data: &[u8]) -> Result<(), Refused> {
        self.body.came = self.body.came.saturating_add(data.len() as u64);
        self.decoder.feed(&self.lines.flat(data));
        self.take_frames();
        self.body.strings += self.decoder.taker().begun();
        match self.body.is_too_large() {
            true => Err(Refused::TooLarge),
            false => Ok(()),
        }
    }

    /// The same of a piece of any size, handed over as it is read.
    pub(crate) async fn read(&mut self, data: &[u8]) -> Result<(), Refused> {
        for piece in data.chunks(PIECE_BYTES) {
            self.feed(piece)?;
            self.hand_over().await?;
        }
        Ok(())
    }

    /// The body is over: what was in it. The strings of it are whole once all is handed over.
    pub(crate) fn finish(&mut self) -> Vec<Message> {
        self.decoder.finish();
        self.take_frames();
        let unused = Strings::new(None);
        let strings = std::mem::replace(self.decoder.taker(), unused);
        self.decoder = Decoder::taking(self.limits, strings);
        self.lines = OnOneLine::default();
        self.body = Body::default();
        std::mem::take(&mut self.ended)
    }

    /// Gives who takes long strings what was read of them.
    pub(crate) async fn hand_over(&mut self) -> Result<(), Refused> {
        let strings = self.decoder.taker();
        if !strings.are_waiting() {
            return Ok(());
        }
        timeout(SPOOL_WAIT, strings.hand_over())
            .await
            .map_err(|_| Refused::Hangs)
    }

    fn take_frames(&mut self) {
        while let Some(frame) = self.decoder.next_frame() {
            match frame {
                Frame::Noise { text } => {
                    self.counters.noise();
                    tracing::debug!(bytes = text.len(), "dropped data that are not JSON-RPC");
                }
                _ if self.body.overlong => {}
                frame if self.ended.len() < MAX_MESSAGES_PER_LINE => {
                    self.body.kept = self.body.kept.saturating_add(kept_bytes(&frame));
                    let limit = self.limits.max_line_bytes;
                    let frame = match self.body.kept > limit {
                        true => Frame::Overlong { limit },
                        false => frame,
                    };
                    self.body.overlong = matches!(frame, Frame::Overlong { .. });
                    let strings = claim(&frame, self.decoder.taker());
                    self.ended.push((frame, strings));
                }
                _ => tracing::debug!("dropped a message beyond those that one body may have"),
            }
        }
        self.decoder.taker().forget();
    }
}

impl Body {
    fn is_too_large(&self) -> bool {
        self.overlong || self.came > MOST_BYTES || self.strings > MAX_LONG_STRINGS
    }
}

/// How much text a frame keeps, in bytes.
fn kept_bytes(frame: &Frame) -> usize {
    let of = |id: &Id| match id {
        Id::String(text) => text.len(),
        Id::Number(_) => 0,
    };
    match frame {
        Frame::Request { id, method, message } => of(id) + method.len() + message.len(),
        Frame::BadRequest { id, .. } => of(id),
        Frame::Notification { method, message } => method.len() + message.len(),
        Frame::Response { id, result } => of(id) + result.len(),
        Frame::Error { id, error } => {
            id.as_ref().map_or(0, of) + error.message.len() + error.data.as_deref().map_or(0, str::len)
        }
        Frame::Unusable { id, .. } => id.as_ref().map_or(0, of),
        Frame::Noise { text } => text.len(),
        Frame::Overlong { .. } => 0,
    }
}

/// A message may stand on several lines here, as it may not on stdio: newlines between tokens become spaces. One inside
/// a string is an error in JSON, and stays for the wire layer to report.
#[derive(Debug, Default)]
pub(crate) struct OnOneLine {
    in_string: bool,
    escaped: bool,
}

impl OnOneLine {
    /// More of a body, cut anywhere.
    pub(crate) fn flat<'d>(&mut self, data: &'d [u8]) -> Cow<'d, [u8]> {
        let mut flat = Cow::Borrowed(data);
        let mut at = 0;
        while let Some(ahead) = data.get(at..).filter(|ahead| !ahead.is_empty()) {
            if std::mem::take(&mut self.escaped) {
                at += 1;
                continue;
            }
            let found = match self.in_string {
                true => memchr::memchr2(b'"', b'\\', ahead),
                false => memchr::memchr3(b'"', b'\n', b'\r', ahead),
            };
            let Some(found) = found else { break };
            at += found;
            match ahead.get(found) {
                Some(b'"') => self.in_string = !self.in_string,
                Some(b'\\') => self.escaped = true,
                _ => {
                    if let Some(byte) = flat.to_mut().get_mut(at) {
                        *byte = b' ';
                    }
                }
            }
            at += 1;
        }
        flat
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strings::memory::Shelf;

    /// Newlines between tokens go, those inside of strings stay, however the body is cut.
    #[test]
    fn a_body_is_one_line_but_for_its_broken_strings() {
        let body = b"{\n \"a\\\"\n\":\r\n[\"\\\\\",\n\"b\"]\\\n}\n";
        let expected = b"{  \"a\\\"\n\":  [\"\\\\\", \"b\"]\\ } ";
        for size in [1, 2, 3, body.len()] {
            let mut lines = OnOneLine::default();
            let flat: Vec<u8> = body
                .chunks(size)
                .flat_map(|piece| lines.flat(piece).into_owned())
                .collect();
            assert_eq!(
                flat.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{size}"
            );
        }
    }

    /// What is no message takes no memory, however much of it there is, and of messages there are so many.
    #[tokio::test]
    async fn a_body_of_many_lines_does_not_multiply() {
        let mut messages = Messages::new(64 << 20, None, &Arc::new(Semaphore::new(1)));
        for _ in 0..100 {
            messages.read(&b"\"\n".repeat(10_000)).await.unwrap();
        }
        assert!(messages.finish().is_empty());
        let broken = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\n";
        messages.read(&broken.repeat(5_000)).await.unwrap();
        assert_eq!(messages.finish().len(), MAX_MESSAGES_PER_LINE);
    }

    /// A quote that is never closed parts a body into lines. What they keep together is bounded as that of one line is,
    /// for each body anew.
    #[tokio::test]
    async fn messages_behind_a_lone_quote_share_what_one_may_have() {
        let message = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{}\"}}\n",
            "x".repeat(600)
        );
        let mut messages = Messages::new(1_000, None, &Arc::new(Semaphore::new(1)));
        for _ in 0..3 {
            messages.read(format!("\"\n{message}").as_bytes()).await.unwrap();
            assert!(matches!(
                messages.finish().as_slice(),
                [(Frame::Response { .. }, _)]
            ));
        }
        let refused = messages
            .read(format!("\"\n{}", message.repeat(4)).as_bytes())
            .await;
        assert_eq!(refused, Err(Refused::TooLarge));
        assert!(matches!(
            messages.finish().as_slice(),
            [(Frame::Response { .. }, _), (Frame::Overlong { limit: 1_000 }, _)]
        ));
    }

    /// So do their long strings.
    #[tokio::test]
    async fn no_more_strings_leave_a_body_than_leave_a_line() {
        let spool: Arc<dyn StringSpool> = Arc::<Shelf>::default();
        let message = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{}\"}}\n",
            "x".repeat(70_000)
        );
        let mut messages = Messages::new(64 << 20, Some(&spool), &Strings::room());
        let body = |count: usize| format!("\"\n{}", message.repeat(count));
        for _ in 0..2 {
            messages.read(body(MAX_LONG_STRINGS).as_bytes()).await.unwrap();
            assert_eq!(messages.finish().len(), MAX_LONG_STRINGS);
        }
        let refused = messages.read(body(MAX_LONG_STRINGS + 1).as_bytes()).await;
        assert_eq!(refused, Err(Refused::TooLarge));
    }

    /// What leaves a body counts as well.
    #[tokio::test]
    async fn a_body_has_so_many_bytes_at_most() {
        let mut messages = Messages::new(64 << 20, None, &Arc::new(Semaphore::new(1)));
        for (piece, refused) in [("[1]", false), ("[10]", true), ("[1]", false)] {
            // As if the rest of it had been read.
            messages.body.came = MOST_BYTES - 3;
            let read = messages.read(piece.as_bytes()).await;
            assert_eq!(read.err(), refused.then_some(Refused::TooLarge), "{piece}");
            messages.finish();
            assert_eq!(messages.body.came, 0);
        }
    }
}
