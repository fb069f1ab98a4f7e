//! What must hold of the wire decoder on any bytes.

use portcullis_wire::{Decoder, Frame, Id, Limits, LongStrings, marker};
use serde_json::value::RawValue;

/// Limits that a fuzzer's input can reach.
const TIGHT: Limits = Limits {
    max_line_bytes: 64,
    max_depth: 4,
    max_string_bytes: 8,
};

/// Checks all laws on `data`, the output of a server.
pub(crate) fn check(data: &[u8]) {
    for limits in [Limits::default(), TIGHT] {
        let whole = decode(data, limits, data.len());
        for chunk in [1, 7, 64, 4096] {
            assert_eq!(
                decode(data, limits, chunk),
                whole,
                "the cut into chunks of {chunk} makes a difference"
            );
        }
        check_frames(&whole, data, limits);
    }
    check_recovery(data);
    check_strings(data);
}

fn decode(data: &[u8], limits: Limits, chunk: usize) -> Vec<Frame> {
    let mut decoder = Decoder::new(limits);
    let mut frames = Vec::new();
    for chunk in data.chunks(chunk.max(1)) {
        decoder.feed(chunk);
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    decoder.finish();
    frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    decoder.feed(b"{}\n");
    assert_eq!(decoder.next_frame(), None, "a stream that is over gives nothing");
    frames
}

fn check_frames(frames: &[Frame], data: &[u8], limits: Limits) {
    let overlong = frames
        .iter()
        .position(|frame| matches!(frame, Frame::Overlong { .. }));
    assert!(
        overlong.is_none_or(|at| at + 1 == frames.len()),
        "frames came out of a dead decoder"
    );
    for frame in frames {
        match frame {
            Frame::Response { result, .. } => {
                check_raw(result, limits.max_depth);
                assert!(holds(data, result.as_bytes()), "the result is not as it was sent");
            }
            Frame::Request { message, method, .. } | Frame::Notification { message, method } => {
                check_raw(message, limits.max_depth);
                assert!(
                    message.contains("\"2.0\"") && message.contains("method"),
                    "{method}: {message}"
                );
            }
            Frame::Error { error, .. } => {
                if let Some(data) = &error.data {
                    check_raw(data, limits.max_depth);
                }
            }
            Frame::Unusable { reason, .. } | Frame::BadRequest { reason, .. } => {
                let text = reason.to_string();
                check_printable(&text, 400);
                assert!(!text.is_empty() && !reason.code().is_empty());
            }
            Frame::Noise { text } => check_printable(text, 256),
            Frame::Overlong { limit } => assert_eq!(*limit, limits.max_line_bytes),
        }
    }
}

/// Raw text is one JSON value, and no deeper than the limit: what serde_json refuses to read is never its depth.
fn check_raw(text: &str, max_depth: usize) {
    let raw: Result<&RawValue, _> = serde_json::from_str(text);
    assert!(
        raw.is_ok_and(|raw| raw.get() == text),
        "not one JSON value: {text}"
    );
    assert!(depth(text) <= max_depth, "too deep: {text}");
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        assert!(!error.to_string().contains("recursion"), "{error}: {text}");
    }
}

fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut string, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            b'{' | b'[' if !string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !string => depth -= 1,
            _ => {}
        }
    }
    deepest
}

fn check_printable(text: &str, max_chars: usize) {
    assert!(text.chars().count() <= max_chars, "too long: {text}");
    assert!(
        !text.chars().any(char::is_control),
        "a control character: {text:?}"
    );
}

fn holds(data: &[u8], part: &[u8]) -> bool {
    data.windows(part.len().max(1)).any(|window| window == part)
}

/// Whatever a server printed, its next good reply is understood.
fn check_recovery(data: &[u8]) {
    let stream = [
        data,
        b"\n{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{\"n\":1.10}}\n",
    ]
    .concat();
    let good = Frame::Response {
        id: Id::Number(77),
        result: "{\"n\":1.10}".into(),
    };
    assert_eq!(decode(&stream, Limits::default(), 4096).last(), Some(&good));
}

/// Takes strings as they pass.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taker {
    open: Option<Vec<u8>>,
    whole: Vec<String>,
    lines: usize,
}

impl LongStrings for Taker {
    fn begin(&mut self) -> u128 {
        assert_eq!(self.open.replace(Vec::new()), None, "two strings at once");
        self.whole.len() as u128
    }

    fn chunk(&mut self, raw: &[u8]) {
        self.open
            .as_mut()
            .expect("a chunk of no string")
            .extend_from_slice(raw);
    }

    fn end(&mut self) {
        let raw = self.open.take().expect("the end of no string");
        self.whole
            .push(String::from_utf8(raw).expect("a string that is not UTF-8"));
    }

    fn abandon(&mut self) {
        assert!(self.open.take().is_some(), "no string to abandon");
    }

    fn line(&mut self) {
        assert_eq!(self.open, None, "a line that ends within a string");
        self.lines += 1;
    }
}

/// Taking long strings changes nothing but where they are: each result is the same once they are back.
fn check_strings(data: &[u8]) {
    // With a marker of the peer's own in it, nothing can be put back by its text alone.
    if holds(data, b"portcullis-string-") {
        return;
    }
    for max_string_bytes in [0, 8, 64] {
        let limits = Limits {
            max_string_bytes,
            ..Limits::default()
        };
        let (frames, taker) = take(data, limits, data.len());
        for chunk in [1, 7, 64, 4096] {
            let (again, other) = take(data, limits, chunk);
            assert_eq!(again, frames, "the cut into chunks of {chunk} makes a difference");
            assert_eq!(
                other, taker,
                "the cut into chunks of {chunk} makes a difference to strings"
            );
        }
        for chunk in [1, 7, 64, data.len()] {
            // Where a line is too long, too; what was taken of later lines by then is of no matter.
            let tight = Limits {
                max_line_bytes: 64 + 2 * max_string_bytes,
                ..limits
            };
            assert_eq!(
                take(data, tight, chunk).0,
                take(data, tight, 4096).0,
                "the cut into chunks of {chunk} makes a difference to a line that is too long"
            );
        }
        for frame in &frames {
            if let Frame::Response { result, .. } = frame {
                check_raw(result, limits.max_depth);
            }
        }
        // What the protocol itself reads must be shorter than the limit, also where all of it is escaped.
        let doubled = |frame: &Frame| matches!(frame, Frame::Unusable { reason, .. } if reason.code() == "duplicate_member");
        if max_string_bytes == 64 && !frames.iter().any(doubled) {
            let plain = decode(data, Limits::default(), 4096);
            assert_eq!(results(&frames, &taker.whole), results(&plain, &[]));
        }
    }
}

/// The results that came with an id which no limit reaches, their strings put back.
fn results(frames: &[Frame], strings: &[String]) -> Vec<(Id, String)> {
    let result = |frame: &Frame| match frame {
        Frame::Response { id, result } if id.to_string().len() < 10 => {
            Some((id.clone(), put_back(result, strings)))
        }
        _ => None,
    };
    frames.iter().filter_map(result).collect()
}

fn take(data: &[u8], limits: Limits, chunk: usize) -> (Vec<Frame>, Taker) {
    let mut decoder = Decoder::taking(limits, Taker::default());
    let mut frames = Vec::new();
    for chunk in data.chunks(chunk.max(1)) {
        decoder.feed(chunk);
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    decoder.finish();
    frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    let taker = std::mem::take(decoder.taker());
    (frames, taker)
}

fn put_back(json: &str, strings: &[String]) -> String {
    let mut text = json.to_owned();
    for (tag, string) in strings.iter().enumerate() {
        text = text.replace(&format!("\"{}\"", marker(tag as u128)), &format!("\"{string}\""));
    }
    text
}
