use super::*;
use crate::BadReply;

/// Calls a tool with this reply and compares the bytes, line ends included; then the session must still work.
#[track_caller]
fn check(kind: BadReply, expected: impl AsRef<[u8]>) {
    let mut session = Session::with(Behaviour::BadReply(kind));
    session.call("7", "{}");
    let expected = expected.as_ref();
    let mut sent = Vec::new();
    while sent.len() < expected.len() {
        sent.extend(session.line());
    }
    assert_eq!(String::from_utf8_lossy(&sent), String::from_utf8_lossy(expected));
    assert_eq!(sent, expected, "to the byte");
    session.check_silent();
}

fn good(id: &str, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#)
}

fn with_number(number: &str) -> String {
    let result = format!(r#"{{"content":[],"structuredContent":{{"number":{number}}}}}"#);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{result}}}\n")
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

#[test]
fn values_that_json_does_not_have() {
    check(BadReply::NotANumber, with_number("NaN"));
    check(BadReply::HugeNumber, with_number("1e999"));
    check(BadReply::Nesting(3), with_number("[[[1]]]"));
    check(
        BadReply::Nesting(100_000),
        with_number(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000))),
    );
    check(BadReply::LoneSurrogate, line(&good("7", r"\ud800")));
    let (before, after) = good("7", "|")
        .split_once('|')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    check(
        BadReply::BadUtf8,
        [before.as_bytes(), b"\xff\xfe", after.as_bytes(), b"\n"].concat(),
    );
}

#[test]
fn envelopes_that_are_not_json_rpc() {
    let good = good("7", "fine");
    check(BadReply::Batch, line(&format!("[{good}]")));
    check(
        BadReply::NoJsonrpc,
        line(&good.replace("\"jsonrpc\":\"2.0\",", "")),
    );
    check(
        BadReply::StringErrorCode,
        line(r#"{"jsonrpc":"2.0","id":7,"error":{"code":"E42","message":"no"}}"#),
    );
    check(
        BadReply::ResultAndError,
        line(r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":-32000,"message":"no"}}"#),
    );
    check(
        BadReply::NeitherResultNorError,
        line(r#"{"jsonrpc":"2.0","id":7}"#),
    );
    check(
        BadReply::ResultNoObject,
        line(r#"{"jsonrpc":"2.0","id":7,"result":42}"#),
    );
}

#[test]
fn ids_of_nobody() {
    check(BadReply::WrongIdType, line(&good(r#""7""#, "fine")));
    check(BadReply::UnknownId, line(&good("987654321", "fine")));
    check(BadReply::NullId, line(&good("null", "fine")));
    check(BadReply::NoId, line(&good("7", "fine").replace("\"id\":7,", "")));
    let mut session = Session::with(Behaviour::BadReply(BadReply::WrongIdType));
    session.call(r#""seven""#, "{}");
    assert_eq!(session.reply()["id"], json!(["seven"]));
}

#[test]
fn lines_that_are_not_one_message() {
    let good = good("7", "fine");
    check(BadReply::NotJson, line("the answer is 42"));
    check(BadReply::Truncated, line(good.split_at(good.len() / 2).0));
    check(BadReply::Twice, line(&format!("{good}\n{good}")));
    check(BadReply::EmbeddedNewline, line(&good.replace("fine", "fi\nne")));
    check(BadReply::TwoOnALine, line(&format!("{good}{LIST_CHANGED}")));
    check(BadReply::BomAndCrLf, line(&format!("\u{feff}{good}\r")));
}

#[test]
fn an_endless_line_has_its_length_and_no_end() {
    let mut session = Session::with(Behaviour::BadReply(BadReply::EndlessLine(300_000)));
    session.call("7", "{}");
    session.close();
    let sent = session.line();
    assert_eq!(sent.len(), 300_000);
    assert!(!sent.contains(&b'\n') && sent.starts_with(br#"{"jsonrpc":"2.0","id":7,"result":"#));
    session.check_ended(ExitReason::EndOfInput);
}
