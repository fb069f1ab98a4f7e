//! Replies that are not as they should be, as bytes with their line ends.

use crate::BadReply;

use super::message::result_frame;

/// The bytes of a bad reply to the call with this raw id.
pub(super) fn bytes(kind: BadReply, id: &str) -> Vec<u8> {
    let good = good(id);
    let (first_half, _) = good.split_at_checked(good.len() / 2).unwrap_or_default();
    let text = match kind {
        BadReply::BadUtf8 => {
            let (before, after) = good.split_once("fine").unwrap_or_default();
            return [before.as_bytes(), b"\xff\xfe", after.as_bytes(), b"\n"].concat();
        }
        BadReply::EndlessLine(bytes) => {
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            let mut line = good.split_once("fine").unwrap_or_default().0.as_bytes().to_vec();
            line.resize(length, b'x');
            return line;
        }
        BadReply::NotANumber => with_number(id, "NaN"),
        BadReply::HugeNumber => with_number(id, "1e999"),
        BadReply::LoneSurrogate => good.replace("fine", r"\ud800"),
        BadReply::Nesting(depth) => {
            let depth = usize::try_from(depth).unwrap_or(usize::MAX);
            with_number(id, &format!("{}1{}", "[".repeat(depth), "]".repeat(depth)))
        }
        BadReply::Batch => format!("[{good}]"),
        BadReply::NoJsonrpc => good.replace(r#""jsonrpc":"2.0","#, ""),
        BadReply::StringErrorCode => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":"E42","message":"no"}}}}"#)
        }
        BadReply::ResultAndError => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}},"error":{{"code":-32000,"message":"no"}}}}"#)
        }
        BadReply::NeitherResultNorError => format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#),
        BadReply::WrongIdType if id.starts_with('"') => self::good(&format!("[{id}]")),
        BadReply::WrongIdType => self::good(&format!(r#""{id}""#)),
        BadReply::UnknownId => self::good("987654321"),
        BadReply::NullId => self::good("null"),
        BadReply::NoId => good.replace(&format!(r#""id":{id},"#), ""),
        BadReply::ResultNoObject => result_frame(id, "42"),
        BadReply::NotJson => "the answer is 42".to_owned(),
        BadReply::Truncated => first_half.to_owned(),
        BadReply::Twice => format!("{good}\n{good}"),
        BadReply::EmbeddedNewline => good.replace("fine", "fi\nne"),
        BadReply::TwoOnALine => format!("{good}{}", super::LIST_CHANGED),
        BadReply::BomAndCrLf => format!("\u{feff}{good}\r"),
    };
    format!("{text}\n").into_bytes()
}

fn good(id: &str) -> String {
    result_frame(id, r#"{"content":[{"type":"text","text":"fine"}]}"#)
}

fn with_number(id: &str, number: &str) -> String {
    result_frame(
        id,
        &format!(r#"{{"content":[],"structuredContent":{{"number":{number}}}}}"#),
    )
}
