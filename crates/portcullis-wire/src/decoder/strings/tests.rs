use proptest::prelude::*;

use crate::{
    Decoder, Frame, Id, Limits, LongStrings, MAX_LONG_STRINGS, MAX_TAKEN_BYTES, Unusable, marker, marker_tag,
};

/// Keeps all that it is given, and holds who gives it to the order that was promised.
#[derive(Debug, Default)]
struct Taker {
    open: Option<Vec<u8>>,
    whole: Vec<String>,
    abandoned: usize,
    lines: usize,
    begun: usize,
}

impl LongStrings for Taker {
    fn begin(&mut self) -> u128 {
        assert!(self.open.replace(Vec::new()).is_none(), "two at once");
        self.begun += 1;
        // Which of the whole ones it will be.
        self.whole.len() as u128
    }

    fn chunk(&mut self, raw: &[u8]) {
        self.open.as_mut().unwrap().extend_from_slice(raw);
    }

    fn end(&mut self) {
        let raw = String::from_utf8(self.open.take().unwrap()).unwrap();
        self.whole.push(raw);
    }

    fn abandon(&mut self) {
        self.open.take().unwrap();
        self.abandoned += 1;
    }

    fn line(&mut self) {
        assert!(self.open.is_none() && self.begun > 0);
        self.lines += 1;
    }
}

fn limits(max_string_bytes: usize) -> Limits {
    Limits {
        max_string_bytes,
        ..Limits::default()
    }
}

fn take(stream: &[u8], limits: Limits, chunk: usize) -> (Vec<Frame>, Taker) {
    take_of(stream, limits, chunk, MAX_TAKEN_BYTES)
}

/// The same, where no more than so much may leave a line.
fn take_of(stream: &[u8], limits: Limits, chunk: usize, max_taken_bytes: u64) -> (Vec<Frame>, Taker) {
    let mut decoder = Decoder::taking(limits, Taker::default());
    decoder.strings.as_mut().unwrap().max_taken_bytes = max_taken_bytes;
    let mut frames = Vec::new();
    for chunk in stream.chunks(chunk.max(1)) {
        decoder.feed(chunk);
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    decoder.finish();
    frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    (frames, std::mem::take(decoder.taker()))
}

/// The frames and the whole strings of a stream: the same in reads of 1, 7 and 4,096 bytes and in one.
#[track_caller]
fn taken(stream: &[u8], limits: Limits) -> (Vec<Frame>, Vec<String>) {
    taken_of(stream, limits, MAX_TAKEN_BYTES)
}

/// The same, where no more than so much may leave a line.
#[track_caller]
fn taken_of(stream: &[u8], limits: Limits, max_taken_bytes: u64) -> (Vec<Frame>, Vec<String>) {
    let (frames, taker) = take_of(stream, limits, stream.len(), max_taken_bytes);
    assert_eq!(taker.begun, taker.whole.len() + taker.abandoned);
    for chunk in [1, 7, 4096] {
        let (again, other) = take_of(stream, limits, chunk, max_taken_bytes);
        assert_eq!(again, frames, "in chunks of {chunk}");
        assert_eq!(other.whole, taker.whole, "in chunks of {chunk}");
        assert_eq!(
            (other.abandoned, other.lines),
            (taker.abandoned, taker.lines),
            "in chunks of {chunk}"
        );
    }
    (frames, taker.whole)
}

/// `json` with its strings back.
fn put_back(json: &str, strings: &[String]) -> String {
    let mut text = json.to_owned();
    for (tag, string) in strings.iter().enumerate() {
        text = text.replace(&format!("\"{}\"", marker(tag as u128)), &format!("\"{string}\""));
    }
    text
}

#[test]
fn a_long_string_leaves_its_line_and_a_short_one_stays() {
    let long = "x".repeat(11);
    let line = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"0123456789","b":["{long}"]}}}}"#);
    for before in ["", " \t", "\u{feff}"] {
        let (frames, strings) = taken(format!("{before}{line}").as_bytes(), limits(10));
        let result = format!(r#"{{"a":"0123456789","b":["{}"]}}"#, marker(0)).into();
        assert_eq!(
            frames,
            [Frame::Response {
                id: Id::Number(7),
                result
            }]
        );
        assert_eq!(strings, [long.as_str()], "{before:?}");
    }
}

/// What `text` is to the taker where it stands in a result, the id last.
#[track_caller]
fn check(text: &str) {
    let line = format!("{{\"result\":{{\"t\":\"{text}\"}},\"jsonrpc\":\"2.0\",\"id\":7}}\n");
    let (frames, strings) = taken(line.as_bytes(), limits(16));
    let [Frame::Response { id, result }] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!((id, strings.as_slice()), (&Id::Number(7), &[text.to_owned()][..]));
    assert_eq!(put_back(result, &strings), format!("{{\"t\":\"{text}\"}}"));
}

#[test]
fn a_string_is_passed_on_as_it_was_written() {
    for text in [
        r"aGVs\/bG8\u002BaGVsbG8\u003D",
        r#"quotes \" and \\ and \\\" and {[:,]}"#,
        r"\ud83d\ude00 written and 😀 straight ééééé",
        r"half a pair \ud83d stays what it is",
        r"\b\f\n\r\t\u0000 \uFFFF\uabcd",
        "日本語日本語日本語日本語",
        "portcullis-string-00000000000000000000000000000000",
    ] {
        check(text);
    }
}

/// The decoder that takes nothing says what is right.
#[track_caller]
fn check_wrong(stream: &[u8], shown: fn(&Frame) -> bool) {
    let (frames, strings) = taken(stream, limits(16));
    assert!(strings.is_empty(), "{strings:?}");
    assert!(frames.iter().any(shown), "{frames:?}");
    let (plain, _) = take(stream, limits(usize::MAX), stream.len());
    let kind = |frame: &Frame| match frame {
        Frame::Unusable { id, reason } => format!("{id:?} {}", reason.code()),
        other => format!("{:?}", std::mem::discriminant(other)),
    };
    let kinds = |frames: &[Frame]| frames.iter().map(kind).collect::<Vec<_>>();
    assert_eq!(kinds(&frames), kinds(&plain));
}

#[test]
fn what_is_wrong_with_a_long_string_is_still_found() {
    let reply = |text: &[u8]| {
        let head = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[\"0123456789abcdefghijkl";
        [&head[..], text, b" and more of it\"]}\n"].concat()
    };
    let unusable = |frame: &Frame| {
        matches!(
            frame,
            Frame::Unusable {
                id: Some(Id::Number(7)),
                ..
            }
        )
    };
    for text in [
        &b"\x01"[..],
        b"\xff",
        b"\xc3(",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\\x",
        b"\\\xff",
        b"\\u12g4",
        b"\\u12\\\"34",
        b"\\\x01",
        // Wrong in two ways: what is no UTF-8 is said first, wherever it stands.
        b"\\u\x80002B",
        b"\\\xf0\x9f",
        b"\\x and later \xff",
        b"\x01 and later \xe2\x82(",
        // The character that breaks an escape may be a good one.
        "\\u12\u{e9}".as_bytes(),
        "\\\u{1f600}".as_bytes(),
    ] {
        check_wrong(&reply(text), unusable);
    }
    // Cut by its closing quote.
    check_wrong(
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[\"0123456789abcdefghijkl\xc3\"]}",
        unusable,
    );
    check_wrong(
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[\"0123456789abcdefghijkl\\u12\"]}",
        unusable,
    );
}

#[test]
fn a_raw_newline_ends_every_string() {
    let broken = |frame: &Frame| {
        let reason = Unusable::BrokenOff;
        *frame
            == Frame::Unusable {
                id: Some(Id::Number(7)),
                reason,
            }
    };
    check_wrong(
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[\"0123456789abcdefghijklmno\np\"]}\n",
        broken,
    );
    check_wrong(
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[\"0123456789abcdefghijklmno",
        broken,
    );
}

#[test]
fn an_odd_quote_in_a_log_line_swallows_nothing() {
    let reply = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"t\":\"0123456789abcdefghijkl\"}}\n";
    for log in [
        "loaded 12\" of tape\n",
        "{\"level\": \"it's 12\" of tape, and some more of it\n",
        "[INFO] a quote \" that nobody ever closes again\n",
        "{\\\" escaped outside of any string, and so no escape\n",
        "\n\n\u{feff}   \"\n",
    ] {
        let (frames, strings) = taken(&[log.as_bytes(), reply].concat(), limits(16));
        assert_eq!(strings, ["0123456789abcdefghijkl"], "{log}");
        let last = frames.last();
        assert!(
            matches!(
                last,
                Some(Frame::Response {
                    id: Id::Number(7),
                    ..
                })
            ),
            "{log}: {last:?}"
        );
    }
}

/// A marker that a peer writes is text: its tag is none that was given out.
#[test]
fn a_marker_that_the_peer_wrote_comes_through_to_the_letter() {
    let forged = marker(0xf00d).to_string();
    let long = "x".repeat(60);
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[\"{forged}\",\"{long}\"]}}\n");
    let (frames, strings) = taken(line.as_bytes(), limits(55));
    assert_eq!(strings, [long]);
    let result = format!("[\"{forged}\",\"{}\"]", marker(0)).into();
    assert_eq!(
        frames,
        [Frame::Response {
            id: Id::Number(7),
            result
        }]
    );
    assert_eq!(marker_tag(&forged), Some(0xf00d));
}

#[test]
fn the_limit_of_a_line_counts_what_stays() {
    let limits = Limits {
        max_line_bytes: 200,
        max_string_bytes: 64,
        ..Limits::default()
    };
    let line = |strings: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[{strings}]}}\n");
    let (frames, strings) = taken(line(&format!("\"{}\"", "x".repeat(100_000))).as_bytes(), limits);
    assert_eq!(strings.len(), 1);
    assert!(matches!(frames[..], [Frame::Response { .. }]), "{frames:?}");
    let short = format!("\"{}\",", "x".repeat(60)).repeat(4) + "1";
    let (frames, _) = taken(line(&short).as_bytes(), limits);
    assert_eq!(frames, [Frame::Overlong { limit: 200 }]);

    // Before it is known to be a long one, it does not count.
    let nearly = Limits {
        max_line_bytes: 95,
        ..limits
    };
    let (frames, strings) = taken(line(&format!("\"{}\"", "x".repeat(65))).as_bytes(), nearly);
    assert_eq!(strings.len(), 1);
    assert!(matches!(frames[..], [Frame::Response { .. }]), "{frames:?}");
    let short = line(&format!("\"{}\"", "x".repeat(64)));
    for ended in [short.as_str(), short.trim_end_matches("\"]}\n")] {
        let (frames, _) = taken(ended.as_bytes(), nearly);
        assert_eq!(frames, [Frame::Overlong { limit: 95 }], "{ended}");
    }

    // Where a string may be longer than its line none leaves it, whether it comes at once or in pieces.
    for (max_string_bytes, leave) in [(95, 1), (96, 0)] {
        let as_long = Limits {
            max_string_bytes,
            ..nearly
        };
        let (frames, strings) = taken(line(&format!("\"{}\"", "x".repeat(110))).as_bytes(), as_long);
        assert_eq!(strings.len(), leave, "{max_string_bytes}");
        let is_overlong = frames == [Frame::Overlong { limit: 95 }];
        assert_eq!(is_overlong, leave == 0, "{max_string_bytes}: {frames:?}");
    }

    // Nothing is kept of a string that is cut off in the middle of a character.
    let cut = format!("{{{}\"{}\u{e9}", " ".repeat(201), "x".repeat(65));
    let mut decoder = Decoder::taking(limits, Taker::default());
    decoder.feed(&cut.as_bytes()[..cut.len() - 1]);
    assert_eq!(decoder.next_frame(), Some(Frame::Overlong { limit: 200 }));
    assert_eq!((decoder.taker().abandoned, decoder.lines.capacity()), (1, 0));
}

/// Report 17: whatever never ends fails the server, also where it leaves the line; what came before is kept.
#[test]
fn a_string_that_never_ends_kills_the_decoder() {
    let before = "{\"jsonrpc\":\"2.0\",\"id\":6,\"result\":\"0123456789abcdefghijkl\"}\n";
    let (x, half) = ("x".repeat(100), "x".repeat(50));
    for (strings, bad) in [
        (format!("\"{x}\""), false),
        (format!("\"{half}\",\"{half}\""), false),
        (format!("\"{half}\\q{half}\""), true),
    ] {
        let line = format!("{before}{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[{strings}]}}\n{before}");
        let (frames, _) = taken_of(line.as_bytes(), limits(16), 102);
        assert_eq!(matches!(frames[1], Frame::Unusable { .. }), bad, "{frames:?}");
        assert!(matches!(frames[2], Frame::Response { .. }), "{frames:?}");
        let (frames, whole) = taken_of(line.as_bytes(), limits(16), 99);
        assert!(matches!(frames[0], Frame::Response { .. }), "{frames:?}");
        assert_eq!(frames[1..], [Frame::Overlong { limit: 99 }]);
        assert_eq!(whole.first().map(String::as_str), Some("0123456789abcdefghijkl"));
    }
}

#[test]
fn no_more_than_so_many_strings_leave_one_line() {
    let many = MAX_LONG_STRINGS + 3;
    let list = vec![format!("\"{}\"", "x".repeat(20)); many].join(",");
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[{list}]}}\n");
    let (frames, strings) = taken(line.repeat(2).as_bytes(), limits(16));
    assert_eq!(strings.len(), 2 * MAX_LONG_STRINGS);
    let [Frame::Response { result, .. }, Frame::Response { .. }] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(put_back(result, &strings), format!("[{list}]"));

    // One that does not leave ends with its line's limit.
    let limits = Limits {
        max_line_bytes: 10_000,
        ..limits(16)
    };
    let mut decoder = Decoder::taking(limits, Taker::default());
    decoder.feed(format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[{list},\"").as_bytes());
    let fed = std::iter::repeat_n([b'x'; 100], 100);
    let frame = fed.map(|chunk| {
        decoder.feed(&chunk);
        decoder.next_frame()
    });
    assert_eq!(
        frame.flatten().collect::<Vec<_>>(),
        [Frame::Overlong { limit: 10_000 }]
    );
}

#[test]
fn memory_does_not_grow_with_a_string() {
    #[derive(Debug, Default)]
    struct Count(usize);
    impl LongStrings for Count {
        fn begin(&mut self) -> u128 {
            7
        }
        fn chunk(&mut self, raw: &[u8]) {
            self.0 += raw.len();
        }
        fn end(&mut self) {}
        fn abandon(&mut self) {}
        fn line(&mut self) {}
    }
    let mut decoder = Decoder::taking(Limits::default(), Count::default());
    decoder.feed(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[\"");
    for _ in 0..2_000 {
        decoder.feed(&[b'x'; 65_536]);
        assert_eq!(decoder.next_frame(), None);
    }
    assert!(
        decoder.lines.capacity() <= 256 << 10,
        "{}",
        decoder.lines.capacity()
    );
    decoder.feed(b"\"]}\n");
    assert!(matches!(decoder.next_frame(), Some(Frame::Response { .. })));
    assert_eq!(decoder.taker().0, 2_000 * 65_536);

    // Nor does one that begins where its line is as long as it may be, before it leaves.
    let limits = Limits {
        max_line_bytes: 1 << 20,
        ..Limits::default()
    };
    let mut decoder = Decoder::taking(limits, Count::default());
    decoder.feed(b"{");
    decoder.feed(&vec![b' '; (1 << 20) - 2]);
    decoder.feed(b"\"");
    for _ in 0..15 {
        decoder.feed(&[b'x'; 4_096]);
        assert_eq!(decoder.next_frame(), None);
        let capacity = decoder.lines.capacity();
        assert!(capacity <= (1 << 20) + (64 << 10) + 4_096, "{capacity}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[A-Za-z0-9+/]{0,30}",
        1 => Just(r"\/".to_owned()),
        1 => Just(r"\u002B".to_owned()),
        1 => Just(r"\ud83d\ude00".to_owned()),
        1 => Just(r#"\""#.to_owned()),
        1 => Just(r"\\".to_owned()),
        1 => Just("😀é".to_owned()),
        1 => Just("{[:,]}".to_owned()),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Replies and noise with strings of all lengths; some of them damaged.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let line = (any_text(), any_text(), any_text(), 0_u8..5).prop_map(|(a, b, c, form)| match form {
        0 => format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"{a}\":\"{b}\",\"c\":[\"{c}\"]}}}}"),
        1 => format!("{{\"result\":[\"{a}\",\"{b}\"],\"x\":\"{c}\",\"jsonrpc\":\"2.0\",\"id\":8}}"),
        2 => format!(
            "[{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":1,\"message\":\"{a}\",\"data\":\"{b}\"}}}}]"
        ),
        3 => format!("{{\"level\":\"{a}\",\"{b}\": \"{c}"),
        _ => format!("{a}\"{b}"),
    });
    (line, any::<proptest::sample::Index>(), 0_u8..10, any::<u8>()).prop_map(|(line, at, how, byte)| {
        let mut line = line.into_bytes();
        let at = at.index(line.len() + 1);
        match how {
            0 => line.truncate(at),
            1 => line.insert(at, byte),
            2 => line.insert(at, b'\n'),
            _ => {}
        }
        line
    })
}

proptest! {
    #[test]
    fn how_the_stream_is_cut_makes_no_difference(
        lines in proptest::collection::vec(any_line(), 0..6),
        max_string_bytes in 0_usize..40,
    ) {
        taken(&lines.join(&b'\n'), limits(max_string_bytes));
    }

    /// Nor where a line is as long as it may be: a string that is not long yet may still become it.
    #[test]
    fn how_a_line_near_its_limit_is_cut_makes_no_difference(
        lengths in proptest::collection::vec(0_usize..120, 1..5),
        max_line_bytes in 90_usize..300,
        // Longer than the marker that takes its place.
        max_string_bytes in 51_usize..100,
    ) {
        let strings: Vec<_> = lengths.iter().map(|length| format!("\"{}\"", "x".repeat(*length))).collect();
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[{}]}}\n", strings.join(","));
        let limits = Limits { max_line_bytes, ..limits(max_string_bytes) };
        let (whole, _) = take(line.as_bytes(), limits, line.len());
        for chunk in [1, 7, 64] {
            prop_assert_eq!(&take(line.as_bytes(), limits, chunk).0, &whole);
        }
    }

    /// With the strings back in their places, a result is what it is where nothing is taken, and each frame of the
    /// same kind. The names of the protocol are shorter than any limit.
    #[test]
    fn taking_strings_loses_nothing(
        lines in proptest::collection::vec(any_line(), 0..6),
        max_string_bytes in 7_usize..40,
    ) {
        let stream = lines.join(&b'\n');
        let (frames, strings) = taken(&stream, limits(max_string_bytes));
        let (plain, _) = take(&stream, limits(usize::MAX), 7);
        prop_assert_eq!(frames.len(), plain.len());
        for (frame, plain) in frames.iter().zip(&plain) {
            match (frame, plain) {
                (Frame::Response { id, result }, Frame::Response { id: other, result: whole }) => {
                    prop_assert_eq!(id, other);
                    prop_assert_eq!(put_back(result, &strings), whole.to_string());
                }
                (Frame::Unusable { id, reason }, Frame::Unusable { id: other, reason: why }) => {
                    prop_assert_eq!(id, other);
                    prop_assert_eq!(reason.code(), why.code());
                }
                _ => prop_assert_eq!(std::mem::discriminant(frame), std::mem::discriminant(plain)),
            }
        }
    }
}
