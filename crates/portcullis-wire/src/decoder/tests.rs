use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::{Id, Unusable, WireError};

fn frames(limits: Limits, chunks: &[&[u8]]) -> (Vec<Frame>, Decoder) {
    let mut decoder = Decoder::new(limits);
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.feed(chunk);
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    (frames, decoder)
}

#[test]
fn a_line_over_the_limit_kills_the_decoder_and_frees_its_memory() {
    let limits = Limits {
        max_line_bytes: 8,
        ..Limits::default()
    };
    for chunks in [
        &[&b"12345678\n123456789\nok\n"[..]][..],
        &[b"12345678\n1234", b"56789", b"0", b"\nok\n"],
    ] {
        let (frames, mut decoder) = frames(limits, chunks);
        let noise = Frame::Noise {
            text: "12345678".to_owned(),
        };
        assert_eq!(frames, [noise, Frame::Overlong { limit: 8 }]);
        decoder.feed(&[b'x'; 1000]);
        decoder.finish();
        assert_eq!(decoder.next_frame(), None);
        assert_eq!(decoder.lines.capacity(), 0);
    }
}

#[test]
fn a_line_that_never_ends_keeps_no_more_than_the_limit_and_a_chunk() {
    let limits = Limits {
        max_line_bytes: 1 << 20,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(limits);
    let mut last = None;
    for _ in 0..1000 {
        decoder.feed(&[b'x'; 4096]);
        last = decoder.next_frame().or(last);
        assert!(decoder.lines.capacity() <= (1 << 20) + 4096);
    }
    assert_eq!(last, Some(Frame::Overlong { limit: 1 << 20 }));
}

#[test]
fn the_last_line_needs_no_newline_once_the_stream_is_over() {
    let (before, mut decoder) = frames(Limits::default(), &[b"bye"]);
    assert_eq!(before, []);
    decoder.finish();
    assert_eq!(
        decoder.next_frame(),
        Some(Frame::Noise {
            text: "bye".to_owned()
        })
    );
    assert_eq!(decoder.next_frame(), None);
}

fn decode(stream: &[u8], chunk: usize) -> Vec<Frame> {
    let mut decoder = Decoder::new(Limits::default());
    let mut frames = Vec::new();
    for chunk in stream.chunks(chunk.max(1)) {
        decoder.feed(chunk);
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    decoder.finish();
    frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    frames
}

/// What the stream gives, one line a frame; the same in reads of 1, 7 and 4096 bytes.
#[track_caller]
fn check(stream: impl AsRef<[u8]>, expected: &[&str]) {
    let stream = stream.as_ref();
    for chunk in [1, 7, 4096] {
        let shown: Vec<_> = decode(stream, chunk).iter().map(show).collect();
        assert_eq!(
            shown,
            expected,
            "{} in chunks of {chunk}",
            String::from_utf8_lossy(stream)
        );
    }
}

fn show(frame: &Frame) -> String {
    let named = |id: &Option<Id>| id.as_ref().map_or("none".to_owned(), ToString::to_string);
    match frame {
        Frame::Request { id, method, message } => format!("request {id} {method} {message}"),
        Frame::BadRequest { id, reason } => format!("bad request {id} {}: {reason}", reason.code()),
        Frame::Notification { method, message } => format!("notification {method} {message}"),
        Frame::Response { id, result } => format!("response {id} {result}"),
        Frame::Error {
            id,
            error: WireError { code, message, data },
        } => {
            format!(
                "error {} {code} `{message}` {}",
                named(id),
                data.as_deref().unwrap_or("-")
            )
        }
        Frame::Unusable { id, reason } => format!("unusable {} {}: {reason}", named(id), reason.code()),
        Frame::Noise { text } => format!("noise `{text}`"),
        Frame::Overlong { limit } => format!("overlong {limit}"),
    }
}

#[test]
fn report_15_log_lines_in_json_are_noise() {
    for line in [
        r#"{"level":"info"}"#,
        r#"{"level":"error","id":7,"error":"boom","msg":"call 7 failed"}"#,
        r#"{"level":"info","id":7,"result":"ok"}"#,
        r#"{"id":null,"error":"boom"}"#,
        r#"{"method":"GET","path":"/"}"#,
        r#"{"method":"GET"}"#,
        r#"{"jsonrpc":"2.0"}"#,
        r#"[1,2,3]"#,
        r#"[7] {"jsonrpc":"2.0","id":7,"result":{}}"#,
        r#"[INFO] {"jsonrpc":"2.0","id":7,"result":{}}"#,
        r#"sent {"jsonrpc":"2.0","id":7,"result":{}}"#,
        r#""quoted""#,
        "{}",
        "[]",
        "{ starting",
        "42",
    ] {
        check(format!("{line}\n"), &[&format!("noise `{line}`")]);
    }
}

fn unusable_id(frame: &Frame) -> Option<Id> {
    match frame {
        Frame::Unusable { id, .. } => id.clone(),
        other => panic!("{other:?}"),
    }
}

/// [`check`] of lines that give one frame each.
#[track_caller]
fn check_lines(cases: &[(&[u8], &str)]) {
    for (line, expected) in cases {
        check([line, &b"\n"[..]].concat(), &[expected]);
    }
}

#[test]
fn report_18_replies_that_are_not_json_or_nearly_not() {
    check_lines(&[
        (
            &br#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#[..],
            "unusable 7 not_json: the message is not JSON: expected value at byte 38, near `NaN}}`",
        ),
        (
            br#"{"result":{"x":NaN},"jsonrpc":"2.0","id":7}"#,
            "unusable 7 not_json: the message is not JSON: expected value at byte 15, near `NaN},\"jsonrpc\":\"2.0\",\"id\":7}`",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"result":{"x":1e999}}"#,
            r#"response 7 {"x":1e999}"#,
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"result":{"x":"\ud800"}}"#,
            r#"response 7 {"x":"\ud800"}"#,
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"result":{"\ud800":1},"\udc00":2}"#,
            r#"response 7 {"\ud800":1}"#,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}",
            "unusable 7 bad_utf8: the message is not UTF-8: byte 34 is wrong",
        ),
        (
            b"{\"result\":\"\xc3\x28\",\"jsonrpc\":\"2.0\",\"id\":\"a\"}",
            "unusable \"a\" bad_utf8: the message is not UTF-8: byte 11 is wrong",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,result:{}}"#,
            "unusable 7 not_json: the message is not JSON: key must be a string at byte 24, near `result:{}}`",
        ),
        (
            br#"{'jsonrpc': '2.0', 'result': {'it': None}, 'id': 7}"#,
            "unusable 7 not_json: the message is not JSON: key must be a string at byte 1, near `'jsonrpc': '2.0', 'result': {'it': None}, 'id':…`",
        ),
        (
            br#"{"result":{"text":"say "hi" or "ho"d"},"jsonrpc":"2.0","id":7}"#,
            "unusable 7 not_json: the message is not JSON: expected `,` or `}` at byte 24, near `hi\" or \"ho\"d\"},\"jsonrpc\":\"2.0\",\"id\":7}`",
        ),
    ]);
}

#[test]
fn report_18_ids_of_every_kind() {
    check_lines(&[
        (&br#"{"jsonrpc":"2.0","id":7.0,"result":{}}"#[..], "response 7 {}"),
        (
            br#"{"jsonrpc":"2.0","id":7.5,"result":{}}"#,
            "unusable none bad_id: the `id` of the reply is `7.5`, neither a string nor a whole number of 64 bits",
        ),
        (
            br#"{"jsonrpc":"2.0","id":99999999999999999999,"result":{}}"#,
            "unusable none bad_id: the `id` of the reply is `99999999999999999999`, neither a string nor a whole number of 64 bits",
        ),
        (
            br#"{"jsonrpc":"2.0","id":true,"error":{"code":1,"message":"a"}}"#,
            "unusable none bad_id: the `id` of the reply is `true`, neither a string nor a whole number of 64 bits",
        ),
        (
            br#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            "unusable none null_id: the `id` of the reply is null",
        ),
        (
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}"#,
            "error none -32700 `parse` -",
        ),
        (
            br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse"}}"#,
            "error none -32700 `parse` -",
        ),
        (
            br#"{"jsonrpc":"2.0","result":{}}"#,
            "unusable none no_id: the reply has no `id`",
        ),
        (br#"{"jsonrpc":"2.0","id":"7","result":{}}"#, "response \"7\" {}"),
        (
            br#"{"jsonrpc":"2.0","id":7,"id":8,"result":{}}"#,
            "unusable none duplicate_member: `id` stands twice in the message, with two values",
        ),
    ]);
}

#[test]
fn report_18_replies_of_a_wrong_shape() {
    check_lines(&[
        (&br#"{"id":7,"result":{}}"#[..], "response 7 {}"),
        (br#"{"jsonrpc":"1.0","id":7,"result":{}}"#, "response 7 {}"),
        (
            br#"{"jsonrpc":"2.0","id":7,"error":{"code":"ENOENT","message":"gone"}}"#,
            "unusable 7 bad_error_code: the error `code` of the reply is `\"ENOENT\"`, not a whole number; its message is `gone`",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"error":{"code":"-32601","message":"gone"}}"#,
            "error 7 -32601 `gone` -",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601.0,"message":"gone","data":1.10}}"#,
            "error 7 -32601 `gone` 1.10",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"error":{"message":"gone"}}"#,
            "unusable 7 bad_error_code: the `error` of the reply has no `code`; its message is `gone`",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"error":"gone"}"#,
            "unusable 7 bad_error: the `error` of the reply is `\"gone\"`, not an object",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"error":[1,"gone"]}"#,
            "unusable 7 bad_error: the `error` of the reply is `[1,\"gone\"]`, not an object",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"a"}}"#,
            "unusable 7 result_and_error: the reply has both `result` and `error`",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#,
            "response 7 {}",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"result":null,"error":{"code":1,"message":"a"}}"#,
            "error 7 1 `a` -",
        ),
        (br#"{"jsonrpc":"2.0","id":7,"result":null}"#, "response 7 null"),
        (
            br#"{"jsonrpc":"2.0","id":7}"#,
            "unusable 7 no_result_nor_error: the reply has neither `result` nor `error`",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"result":1,"result":2}"#,
            "unusable 7 duplicate_member: `result` stands twice in the message, with two values",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"a/b","result":2}"#,
            "unusable 7 method_in_reply: the reply has a `method`, as only a request may",
        ),
    ]);
}

#[test]
fn report_18_a_reply_that_is_nested_too_deep() {
    let (open, close) = ("[".repeat(200), "]".repeat(200));
    let line = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{open}{close}}}"#);
    check(
        line,
        &["unusable 7 too_deep: the message is nested deeper than 128 levels"],
    );
}

#[test]
fn report_18_a_raw_newline_in_a_reply_still_finds_its_call() {
    const BROKEN: &str = "broken_off: the reply is broken off at the end of its line: a raw newline stands in it, or the rest never came";
    let unusable = |id: &str| format!("unusable {id} {BROKEN}");
    check(
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"a\nb\"}}\n",
        &[&unusable("7"), "noise `b\"}}`"],
    );
    // Where the id comes last, the first line cannot name it; the second does.
    check(
        "{\"result\":{\"text\":\"a\n{b\"},\"jsonrpc\":\"2.0\",\"id\":7}\n{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":1}\n",
        &[
            "noise `{\"result\":{\"text\":\"a`",
            &unusable("7"),
            "response 8 1",
        ],
    );
    check(
        "{\"jsonrpc\":\"2.0\",\"result\":[\"a\nb\"],\"id\":71}\n",
        &[&unusable("none"), &unusable("71")],
    );
    // Told once, where no id comes at all.
    check(
        "{\"jsonrpc\":\"2.0\",\"result\":\"a\nb\"}\n",
        &[&unusable("none"), "noise `b\"}`"],
    );
    // Cut within the id: 7 is not 71.
    check("{\"jsonrpc\":\"2.0\",\"result\":1,\"id\":7", &[&unusable("none")]);
    check(
        "{\"jsonrpc\":\"2.0\",\"result\":1,\"id\":7\n1}\n",
        &[&unusable("none"), "noise `1}`"],
    );
    // One reply, written over several lines.
    check(
        "{\n \"result\": {\n  \"list\": [\n   {\"a\": 1},\n   {\n   }\n  ]\n },\n \"jsonrpc\": \"2.0\",\n \"id\": 7\n}\n",
        &[
            "noise `{`",
            "noise `\"result\": {`",
            "noise `\"list\": [`",
            "noise `{\"a\": 1},`",
            "noise `{`",
            "noise `}`",
            "noise `]`",
            "noise `},`",
            "noise `\"jsonrpc\": \"2.0\",`",
            "noise `\"id\": 7`",
            &unusable("7"),
        ],
    );
    // A request of the server is nobody's reply.
    check(
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\n\"params\":{}}\n",
        &[
            "noise `{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",`",
            "noise `\"params\":{}}`",
        ],
    );
    // A log entry over several lines is none either.
    check(
        "{\n\"level\": \"error\",\n\"id\": 7,\n\"error\": \"x\"\n}\n",
        &[
            "noise `{`",
            "noise `\"level\": \"error\",`",
            "noise `\"id\": 7,`",
            "noise `\"error\": \"x\"`",
            "noise `}`",
        ],
    );
}

#[test]
fn report_18_a_broken_reply_is_never_blamed_on_a_call_that_it_may_not_be_for() {
    for line in [
        // Cut: the id at the end is not the message's own.
        r#"{"jsonrpc":"2.0","result":{"a":1,"x":{"id":9}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":NaN,"id":8}"#,
        r#"{"jsonrpc":"2.0","id":7.5,"result":NaN}"#,
        r#"{"jsonrpc":"2.0","result":{"id":9,"x":NaN}}"#,
    ] {
        let frames = decode(line.as_bytes(), 7);
        assert!(
            matches!(frames[..], [Frame::Unusable { id: None, .. }]),
            "{frames:?}"
        );
    }
}

#[test]
fn report_18_batches_and_messages_without_a_newline_are_taken_apart() {
    check(
        r#"[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2,"error":{"code":3,"message":"m"}},[],{"jsonrpc":"2.0","id":3}]"#,
        &[
            "response 1 1",
            "error 2 3 `m` -",
            "noise `[]`",
            "unusable 3 no_result_nor_error: the reply has neither `result` nor `error`",
        ],
    );
    let not_json = "not_json: the message is not JSON: expected value at byte 34, near `NaN},{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":2}]`";
    check(
        r#"[{"jsonrpc":"2.0","id":1,"result":NaN},{"jsonrpc":"2.0","id":2,"result":2}]"#,
        &[
            &format!("unusable 1 {not_json}"),
            &format!("unusable 2 {not_json}"),
        ],
    );
    // The id at the end is another one's.
    let two = r#"[{"jsonrpc":"2.0","result":NaN},{"jsonrpc":"2.0","result":2,"id":2}"#;
    let ids: Vec<_> = decode(two.as_bytes(), 7).iter().map(unusable_id).collect();
    assert_eq!(ids, [None, Some(Id::Number(2))]);
    check(
        r#"{"jsonrpc":"2.0","id":1,"result":1}{"jsonrpc":"2.0","id":2,"result":2} }"#,
        &["response 1 1", "response 2 2", "noise `}`"],
    );
    let member = r#"{"jsonrpc":"2.0","id":1,"result":1}"#;
    let limit =
        "unusable none too_many_messages: the line holds more than 1024 messages; the rest of it was dropped";
    let batch = |count: usize| format!("[{}{member}]", format!("{member},").repeat(count - 1));
    for line in [
        batch(5000),
        member.repeat(5000),
        // In however many batches they come, and whatever stands behind them.
        batch(1000).repeat(3),
        batch(1024) + member + "}",
        batch(5000) + "[7]" + &batch(1024) + "[" + &batch(7),
        batch(1000) + &batch(1000).replace("1}", "NaN}"),
    ] {
        let frames = decode(line.as_bytes(), 4096);
        assert_eq!(frames.len(), MAX_MESSAGES_PER_LINE + 1);
        assert_eq!(show(&frames[MAX_MESSAGES_PER_LINE]), limit);
    }
}

#[test]
fn report_19_banner_blank_lines_and_early_messages() {
    check(
        "\u{feff}Welcome \u{1b}[1mto it\r\n\r\n   \n\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\r\n\
         \t{\"jsonrpc\": \"2.0\", \"id\": \"p\", \"method\": \"ping\"}\n{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{ \"a\" : 1 }}",
        &[
            "noise `Welcome \\u{1b}[1mto it`",
            r#"notification notifications/tools/list_changed {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
            r#"request "p" ping {"jsonrpc": "2.0", "id": "p", "method": "ping"}"#,
            r#"response 0 { "a" : 1 }"#,
        ],
    );
}

#[test]
fn requests_come_out_as_their_reader_wants_them() {
    for (line, expected) in [
        (
            r#"{"method":"ping","id":3}"#,
            r#"request 3 ping {"jsonrpc":"2.0","id":3,"method":"ping"}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"ping","id":3.0,"params":{"n":1.10}}"#,
            r#"request 3 ping {"jsonrpc":"2.0","id":3,"method":"ping","params":{"n":1.10}}"#,
        ),
        (
            r#"{"jsonrpc":2.0,"method":"a/b"}"#,
            r#"notification a/b {"jsonrpc":"2.0","method":"a/b"}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"notifications/x"}"#,
            r#"notification notifications/x {"jsonrpc":"2.0","method":"notifications/x"}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"noise `{"jsonrpc":"2.0","id":null,"method":"ping"}`"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":7}"#,
            r#"noise `{"jsonrpc":"2.0","method":7}`"#,
        ),
    ] {
        check(line, &[expected]);
    }
}

/// Whoever sent it waits for an answer; a notification is not answered, and with two ids there is none to answer.
#[test]
fn a_request_that_cannot_be_read_whole_is_answered() {
    let deep = |head: &str, levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"jsonrpc":"2.0",{head}"method":"a/b","params":{open}{close}}}"#)
    };
    check(
        deep(r#""id":7,"#, 127),
        &["bad request 7 too_deep: the message is nested deeper than 127 levels"],
    );
    for (members, member) in [
        (r#""id":7,"method":"a/b","params":{},"params":{"a":1}"#, "params"),
        (r#""method":"a/b","method":"c/d","id":7"#, "method"),
    ] {
        check(
            format!(r#"{{"jsonrpc":"2.0",{members}}}"#),
            &[&format!(
                "bad request 7 duplicate_member: `{member}` stands twice in the message, with two values"
            )],
        );
    }
    for (line, told) in [
        (
            &br#"{"jsonrpc":"2.0","id":7,"method":"a/b","params":{"x":NaN}}"#[..],
            "not_json: the message is not JSON: expected value at byte 53, near `NaN}}`",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"method\":\"a/b\",\"params\":{\"x\":\"\xff\"},\"id\":7}",
            "bad_utf8: the message is not UTF-8: byte 47 is wrong",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":5}"#,
            "bad_method: the `method` of the request is `5`, not a string",
        ),
    ] {
        check(line, &[&format!("bad request 7 {told}")]);
    }
    check(
        r#"{"jsonrpc":"2.0","id":7,"id":8,"result":1,"result":2}"#,
        &["unusable none duplicate_member: `id` stands twice in the message, with two values"],
    );
    // What a program prints of what it has in hand is a log, in whatever language, and is never answered.
    for line in [
        "{'jsonrpc': '2.0', 'id': 7, 'method': 'tools/call', 'params': {'name': 't'}}",
        "{ jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: 't' } }",
        r#"{"jsonrpc" => "2.0", "id" => 7, "method" => "tools/call"}"#,
    ] {
        assert!(
            matches!(decode(line.as_bytes(), 7)[..], [Frame::Noise { .. }]),
            "{line}"
        );
    }
    for line in [
        deep("", 127),
        r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"a/b"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"a/b","params":1,"params":2}"#.to_owned(),
    ] {
        assert!(
            matches!(decode(line.as_bytes(), 7)[..], [Frame::Noise { .. }]),
            "{line}"
        );
    }
    // One level less is a request as any other.
    assert!(matches!(
        decode(deep(r#""id":7,"#, 126).as_bytes(), 7)[..],
        [Frame::Request { .. }]
    ));
}

#[test]
fn names_are_read_as_strictly_as_values() {
    check(
        "{\"jsonrpc\":\"2.0\",\"i\u{1c}d\":1,\"id\":7,\"result\":{}}",
        &[
            "unusable 7 not_json: the message is not JSON: control character (\\u0000-\\u001F) found while parsing a string at byte 18, near `i\\u{1c}d\":1,\"id\":7,\"result\":{}}`",
        ],
    );
    check(
        r#"{"\u006asonrpc":"2.0","\u0069d":7,"resul\u0074":{}}"#,
        &["response 7 {}"],
    );
}

#[test]
fn the_limit_of_nesting_leaves_only_what_serde_json_reads() {
    let message = |head: &str, levels: usize| {
        format!(
            "{{\"jsonrpc\":\"2.0\",{head}:{}{}}}",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    let [Frame::Response { result, .. }] = &decode(message("\"id\":7,\"result\"", 127).as_bytes(), 7)[..]
    else {
        panic!()
    };
    serde_json::from_str::<serde_json::Value>(result).unwrap();
    let [
        Frame::Unusable {
            reason: Unusable::TooDeep { limit: 128 },
            ..
        },
    ] = &decode(message("\"id\":7,\"result\"", 128).as_bytes(), 7)[..]
    else {
        panic!()
    };
    let [Frame::Notification { message: text, .. }] =
        &decode(message("\"method\":\"a\",\"params\"", 126).as_bytes(), 7)[..]
    else {
        panic!()
    };
    serde_json::from_str::<serde_json::Value>(text).unwrap();
    let [Frame::Noise { .. }] = &decode(message("\"method\":\"a\",\"params\"", 127).as_bytes(), 7)[..] else {
        panic!()
    };
    // A depth that would exhaust any stack.
    let [Frame::Unusable { .. }] = &decode(message("\"id\":7,\"result\"", 2_000_000).as_bytes(), 4096)[..]
    else {
        panic!()
    };
}

#[test]
fn what_lines_give() {
    let mut shown = String::new();
    for line in include_str!("../../test_data/lines.txt").lines() {
        writeln!(shown, "{line}").unwrap();
        for frame in decode(line.as_bytes(), 4096) {
            writeln!(shown, "    {}", show(&frame)).unwrap();
        }
    }
    insta::assert_snapshot!(shown);
}

/// Lines of every kind, whole and broken.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let corpus: Vec<Vec<u8>> = include_str!("../../test_data/lines.txt")
        .lines()
        .map(|line| line.as_bytes().to_vec())
        .collect();
    let line = prop_oneof![
        6 => proptest::sample::select(corpus),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => "[{}\\[\\]\",:0-9a-z\\\\ ]{0,40}".prop_map(String::into_bytes),
    ];
    (line, any::<proptest::sample::Index>(), 0_u8..8, any::<u8>()).prop_map(|(mut line, at, how, byte)| {
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
        lines in proptest::collection::vec(any_line(), 0..8),
        cuts in proptest::collection::vec(1_usize..64, 0..50),
    ) {
        let stream = lines.join(&b'\n');
        let whole = decode(&stream, stream.len());
        for chunk in [1, 7, 4096] {
            prop_assert_eq!(&decode(&stream, chunk), &whole);
        }
        let mut decoder = Decoder::new(Limits::default());
        let mut frames = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts {
            let (chunk, after) = rest.split_at(cut.min(rest.len()));
            rest = after;
            decoder.feed(chunk);
            frames.extend(std::iter::from_fn(|| decoder.next_frame()));
        }
        decoder.feed(rest);
        decoder.finish();
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
        prop_assert_eq!(frames, whole);
    }

    #[test]
    fn a_good_reply_passes_word_for_word_whatever_went_before(
        before in proptest::collection::vec(any_line(), 0..8),
        id: i64,
        result in "-?[1-9][0-9]{0,40}(\\.[0-9]{1,40})?",
    ) {
        let mut stream = before.join(&b'\n');
        stream.extend(format!("\n{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"n\":{result},\"m\":[]}}}}").bytes());
        let last = Frame::Response { id: Id::Number(id), result: format!("{{\"n\":{result},\"m\":[]}}").into() };
        prop_assert_eq!(decode(&stream, 7).pop(), Some(last));
    }

    /// Wherever a reply is damaged, no other call is blamed for it.
    #[test]
    fn a_damaged_reply_is_blamed_on_its_own_call_or_none(at in 0_usize..200, how in 0_u8..3, byte in any::<u8>(), last: bool) {
        let head = r#"{"jsonrpc":"2.0","id":71,"result":{"id":5,"content":[{"type":"text","text":"{\"id\":6}"}]}}"#;
        let tail = r#"{"result":{"id":5,"content":[{"type":"text","text":"{\"id\":6}"}]},"jsonrpc":"2.0","id":71}"#;
        let mut line = (if last { tail } else { head }).as_bytes().to_vec();
        let at = at % line.len();
        match how {
            0 => line.truncate(at),
            1 => line.insert(at, b'\n'),
            // A byte that would make another id of it, or another name, is not to be told from one that was meant.
            _ if line[at].is_ascii_alphanumeric() || byte.is_ascii_alphanumeric() || b"-+.".contains(&byte) => {}
            _ => line[at] = byte,
        }
        for frame in decode(&line, 7) {
            let (Frame::Response { id, .. } | Frame::Unusable { id: Some(id), .. }) = frame else { continue };
            prop_assert_eq!(id, Id::Number(71));
        }
    }
}
