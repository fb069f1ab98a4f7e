//! JSON taken apart no further than needed, so that what is not changed keeps its very text.

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The members of an object, in order, duplicates included.
#[derive(Debug)]
pub(super) struct Members<'a>(Vec<Member<'a>>);

/// One member, its name and value as they were written.
#[derive(Debug)]
pub(super) struct Member<'a> {
    /// The name with its quotes and escapes.
    pub(super) raw_name: &'a str,
    name: Option<Cow<'a, str>>,
    pub(super) value: &'a RawValue,
}

impl Member<'_> {
    /// The name as text; `None` for one that no text can have (half a surrogate pair).
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl<'a> Members<'a> {
    /// The value of the last member of that name.
    pub(super) fn last(&self, name: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .rev()
            .find(|member| member.name() == Some(name))
            .map(|member| member.value)
    }

    /// The text of the last member of that name, if it is a string.
    pub(super) fn last_text(&self, name: &str) -> Option<Cow<'a, str>> {
        unquote(self.last(name)?.get())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member<'a>> {
        self.0.iter()
    }
}

/// How many members an object may have that is taken apart: many more than any of the protocol's, and few enough that
/// what is kept of each is little beside the text of a large result.
const MAX_MEMBERS: usize = 65_536;

/// The members of `raw`, if it is an object, and no larger than any that is meant.
pub(super) fn members(raw: &str) -> Option<Members<'_>> {
    let mut members = Vec::new();
    let is_whole = each_member(raw, |member| {
        let has_room = members.len() < MAX_MEMBERS;
        if has_room {
            members.push(member);
        }
        has_room
    });
    is_whole.then_some(Members(members))
}

/// The value of the last member of that name in `raw`, if it is an object, however large.
pub(super) fn last<'a>(raw: &'a str, name: &str) -> Option<&'a RawValue> {
    let mut last = None;
    each_member(raw, |member| {
        if member.name() == Some(name) {
            last = Some(member.value);
        }
        true
    });
    last
}

/// Gives the members of `raw` one after the other and keeps none, until `each` says no. Whether `raw` is an object and
/// all of it was given.
pub(super) fn each_member<'a>(raw: &'a str, each: impl FnMut(Member<'a>) -> bool) -> bool {
    struct InOrder<F>(F);
    impl<'de, F: FnMut(Member<'de>) -> bool> Visitor<'de> for InOrder<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                let member = Member {
                    raw_name: name.get(),
                    name: unquote(name.get()),
                    value,
                };
                if !(self.0)(member) {
                    return Err(A::Error::custom("no more members are wanted"));
                }
            }
            Ok(())
        }
    }
    // Most of what is none is told at once.
    if !raw.trim_start().starts_with('{') {
        return false;
    }
    let mut json = serde_json::Deserializer::from_str(raw);
    json.deserialize_map(InOrder(each)).is_ok() && json.end().is_ok()
}

/// Where in `raw`, which must be valid, the elements stand, if it is a list. One after the other: a server may send
/// tens of millions of them, each of a byte or two.
pub(super) fn elements(raw: &str) -> Option<impl Iterator<Item = Range<usize>>> {
    let end = raw.starts_with('[').then(|| raw.rfind(']'))??;
    let mut at = 1;
    Some(std::iter::from_fn(move || {
        let ahead = raw.get(at..end)?;
        let start = at + ahead.find(|c: char| !c.is_ascii_whitespace())?;
        let value_end = value_end(raw, start)?.min(end);
        let comma = raw.get(value_end..end)?.find(',');
        at = comma.map_or(end, |comma| value_end + comma + 1);
        Some(start..value_end)
    }))
}

/// The text of a JSON string; `None` if it is none, or holds half a surrogate pair.
pub(super) fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    /// Borrows where there is no escape, which plain `Cow` does not.
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(raw).ok().map(|Text(text)| text)
}

/// `text` as a JSON string.
pub(super) fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A string in a piece of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StringToken<'a> {
    /// Where its first quote is, in bytes.
    pub(super) start: usize,
    /// The string with its quotes and escapes.
    pub(super) raw: &'a str,
    /// Whether it is the name of a member.
    pub(super) is_name: bool,
}

/// All strings of `json`, which must be valid, in order. Uses no stack, however deep it nests.
pub(super) fn strings(json: &str) -> impl Iterator<Item = StringToken<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + json.get(at..)?.find('"')?;
        let token = string_at(json, start)?;
        at = start + token.raw.len();
        Some(token)
    })
}

/// What a piece of JSON is made of, as far as it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// An object or a list begins.
    Open {
        is_object: bool,
    },
    String(StringToken<'a>),
    /// The object or list that began last ends.
    Close,
}

/// All strings of `json`, which must be valid, and where objects and lists begin and end, in order. Uses no stack, however
/// deep it nests.
pub(super) fn tokens(json: &str) -> impl Iterator<Item = Token<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let is_token = |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']');
        let start = at + json.as_bytes().get(at..)?.iter().position(is_token)?;
        at = start + 1;
        Some(match json.as_bytes().get(start)? {
            b'"' => {
                let token = string_at(json, start)?;
                at = start + token.raw.len();
                Token::String(token)
            }
            b'}' | b']' => Token::Close,
            opening => Token::Open {
                is_object: *opening == b'{',
            },
        })
    })
}

fn string_at(json: &str, start: usize) -> Option<StringToken<'_>> {
    let end = string_end(json, start + 1)?;
    Some(StringToken {
        start,
        raw: json.get(start..end)?,
        is_name: json.get(end..)?.trim_start().starts_with(':'),
    })
}

/// Writes an object member by member.
#[derive(Debug)]
pub(super) struct ObjectWriter(String);

impl ObjectWriter {
    pub(super) fn new() -> Self {
        Self("{".to_owned())
    }

    /// A member whose value is JSON.
    pub(super) fn member(&mut self, name: &str, json: &str) {
        self.raw_member(&text(name), json);
    }

    /// A member whose value is a text.
    pub(super) fn text_member(&mut self, name: &str, value: &str) {
        self.member(name, &text(value));
    }

    /// A member whose name has its quotes already.
    pub(super) fn raw_member(&mut self, raw_name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(raw_name);
        self.0.push(':');
        self.0.push_str(json);
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// The end of the value whose first character is at `start`.
fn value_end(json: &str, start: usize) -> Option<usize> {
    let bytes = json.as_bytes();
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => at = string_end(json, at + 1)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ => {
                let is_end = |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']' | b',');
                at += 1 + bytes.get(at + 1..)?.iter().position(is_end)?;
            }
        }
        if depth == 0 {
            let value = json.get(start..at)?;
            return Some(start + value.trim_ascii_end().len());
        }
    }
}

/// The end of the string whose first character is at `from`: the byte after the quote that closes it.
fn string_end(json: &str, from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let quote = at + json.get(at..)?.find('"')?;
        let escapes = json
            .as_bytes()
            .get(from..quote)?
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\')
            .count();
        at = quote + 1;
        if escapes % 2 == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_whatever_is_in_them() {
        let json = r#"{"a" : "x\"y", "b\\":["", "\\", {"\\\"":1e999}], "c": "é\u00e9:"}"#;
        let found: Vec<_> = strings(json).map(|token| (token.raw, token.is_name)).collect();
        let expected = [
            (r#""a""#, true),
            (r#""x\"y""#, false),
            (r#""b\\""#, true),
            (r#""""#, false),
            (r#""\\""#, false),
            (r#""\\\"""#, true),
            (r#""c""#, true),
            (r#""é\u00e9:""#, false),
        ];
        assert_eq!(found, expected);
        assert!(strings(json).all(|token| json.get(token.start..).unwrap().starts_with(token.raw)));
    }

    #[test]
    fn tokens_are_the_strings_and_what_they_stand_in() {
        let json = r#"{"a[" :[1, "}\"]", [], {}], "b":null}"#;
        let shown: Vec<_> = tokens(json)
            .map(|token| match token {
                Token::Open { is_object: true } => "{",
                Token::Open { is_object: false } => "[",
                Token::String(string) => string.raw,
                Token::Close => "end",
            })
            .collect();
        let expected = [
            "{",
            "\"a[\"",
            "[",
            r#""}\"]""#,
            "[",
            "end",
            "{",
            "end",
            "end",
            "\"b\"",
            "end",
        ];
        assert_eq!(shown, expected);
        let found = tokens(json).filter_map(|token| match token {
            Token::String(string) => Some(string),
            _ => None,
        });
        assert!(strings(json).eq(found));
    }

    #[test]
    fn members_keep_their_text_and_their_order() {
        let raw = r#"{"n":1.50e+2, "\u0061" : [ 1 ] ,"n":2,"\ud800":null}"#;
        let raw: &RawValue = serde_json::from_str(raw).unwrap();
        let members = members(raw.get()).unwrap();
        let seen: Vec<_> = members
            .iter()
            .map(|m| (m.raw_name, m.name(), m.value.get()))
            .collect();
        let expected = [
            ("\"n\"", Some("n"), "1.50e+2"),
            ("\"\\u0061\"", Some("a"), "[ 1 ]"),
            ("\"n\"", Some("n"), "2"),
            ("\"\\ud800\"", None, "null"),
        ];
        assert_eq!(seen, expected);
        assert_eq!(members.last("n").unwrap().get(), "2");
    }

    #[test]
    fn an_object_larger_than_any_that_is_meant_is_not_taken_apart() {
        let object = |members: usize| format!("{{{}\"\":0}}", "\"\":0,".repeat(members - 1));
        assert_eq!(members(&object(MAX_MEMBERS)).unwrap().iter().count(), MAX_MEMBERS);
        let larger = object(MAX_MEMBERS + 1);
        assert!(members(&larger).is_none());
        assert_eq!(last(&larger, "").map(RawValue::get), Some("0"));
        assert!(last(&larger, "other").is_none());
    }

    #[test]
    fn elements_are_what_a_reader_of_json_finds() {
        for list in [
            "[]",
            "[ ]",
            "[1]",
            "[1,2]",
            r#"[ -1.5e3 , true,null ,"a,]\"[" , [], {} ]"#,
            r#"[[1,[2,"]"]],{"a":[{"b":"}"}],"c":",",  "d":[1,2]},"", "\\"]"#,
            "[\n{\"a\":1}\r\n,\t[[[[]]]]\n]",
        ] {
            let expected: Vec<&RawValue> = serde_json::from_str(list).unwrap();
            let expected: Vec<_> = expected.into_iter().map(RawValue::get).collect();
            let found: Vec<_> = elements(list).unwrap().filter_map(|at| list.get(at)).collect();
            assert_eq!(found, expected, "{list}");
        }
        for other in ["{}", "\"[]\"", "1", "null"] {
            assert!(elements(other).is_none());
        }
    }

    #[test]
    fn a_plain_string_is_borrowed() {
        assert!(matches!(unquote("\"plain\""), Some(Cow::Borrowed("plain"))));
        assert_eq!(unquote(r#""a\/b""#).as_deref(), Some("a/b"));
        assert_eq!(unquote("12"), None);
    }
}
