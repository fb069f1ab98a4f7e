//! What must hold of the wire decoder on any bytes.

use portcullis_wire::{Decoder, Frame, Id, Limits};
use serde_json::value::RawValue;

/// Limits that a fuzzer's input can reach.
const TIGHT: Limits = Limits {
    max_line_bytes: 64,
    max_depth: 4,
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
            Frame::Unusable { reason, .. } => {
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
