//! The arguments of a call as the tags of an entity.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    fmt::Write as _,
};

use portcullis_types::ReasonCode;
use serde::de::IgnoredAny;

/// How much of a path is shown, in characters.
const SHOWN_PATH: usize = 200;
/// The longest arguments, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// The deepest nesting; the arguments object itself is the first level.
const MAX_DEPTH: usize = 64;
/// The most that the tags may hold together, in bytes. A path repeats the keys above it, so a long key over a long
/// array would grow with the square of the arguments.
const MAX_TAG_BYTES: usize = 16 * MAX_BYTES;

/// Why arguments cannot be decided on: a code, and a sentence for the caller.
pub(crate) type Refusal = (ReasonCode, String);

/// Tags: the path of each and its text.
pub(crate) type Tags = Vec<(String, String)>;

/// Which tags are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TagKeys {
    /// Those of these keys.
    These(BTreeSet<String>),
    /// All.
    All,
}

impl TagKeys {
    pub(crate) const NONE: Self = Self::These(BTreeSet::new());

    /// Those wanted by either.
    pub(crate) fn extend(&mut self, other: &Self) {
        match (self, other) {
            (Self::All, _) => {}
            (Self::These(keys), Self::These(more)) => keys.extend(more.iter().cloned()),
            (this, Self::All) => *this = Self::All,
        }
    }

    fn has(&self, key: &str) -> bool {
        match self {
            Self::These(keys) => keys.contains(key),
            Self::All => true,
        }
    }
}

/// The tags of `text`, the JSON text of an object: each leaf under its path, and each leaf and container's type
/// under its path and `#type`. No two places in the arguments have the same path.
///
/// What is refused does not depend on which tags are `wanted`.
pub(crate) fn tags(text: &str, wanted: &TagKeys) -> Result<Tags, Refusal> {
    if text.len() > MAX_BYTES {
        let told = format!(
            "the arguments have {} bytes, over the limit of {MAX_BYTES}",
            text.len()
        );
        return Err((ReasonCode::DenyArgumentsTooLarge, told));
    }
    // The grammar is checked by the library; the walk below only has to find its way in valid JSON.
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| invalid(&error.to_string()))?;
    let mut walk = Walk {
        text,
        wanted,
        at: 0,
        path: String::new(),
        tags: Vec::new(),
        tag_bytes: 0,
    };
    walk.skip_blanks();
    if walk.peek() != Some(b'{') {
        return Err(invalid("a JSON object is expected"));
    }
    walk.value(1)?;
    Ok(walk.tags)
}

fn invalid(why: &str) -> Refusal {
    (
        ReasonCode::DenyArgumentsInvalid,
        format!("the arguments are not a JSON object: {why}"),
    )
}

/// Writes a key at the end of a path: quoted where it would read as something else, because it is empty or holds a
/// character of the paths' own.
pub(crate) fn push_key(path: &mut String, key: &str) {
    if key.is_empty() || key.contains(['.', '[', ']', '#']) {
        path.push_str(&format!("[{}]", serde_json::Value::from(key)));
    } else {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
    }
}

struct Walk<'a> {
    text: &'a str,
    wanted: &'a TagKeys,
    at: usize,
    path: String,
    tags: Tags,
    tag_bytes: usize,
}

impl<'a> Walk<'a> {
    fn value(&mut self, depth: usize) -> Result<(), Refusal> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let text = self.string()?;
                self.leaf(&text, "string")
            }
            _ => {
                let text = self.word()?;
                let kind = match text {
                    "true" | "false" => "boolean",
                    "null" => "null",
                    _ => "number",
                };
                self.leaf(text, kind)
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), Refusal> {
        self.enter("object", depth)?;
        let outer = self.path.len();
        let mut keys = HashSet::new();
        while self.is_not_at(b'}') {
            let key = self.string()?;
            self.skip_blanks();
            self.expect(b':')?;
            push_key(&mut self.path, &key);
            if !keys.insert(key) {
                // It goes into decisions and so into events: the model wrote it, and it may be long.
                let shown: String = self
                    .path
                    .chars()
                    .take(SHOWN_PATH)
                    .flat_map(char::escape_debug)
                    .collect();
                let told = format!("the key `{shown}` stands twice");
                return Err((ReasonCode::DenyArgumentsDuplicateKey, told));
            }
            self.value(depth + 1)?;
            self.path.truncate(outer);
        }
        self.expect(b'}')
    }

    fn array(&mut self, depth: usize) -> Result<(), Refusal> {
        self.enter("array", depth)?;
        let outer = self.path.len();
        let mut index = 0_usize;
        while self.is_not_at(b']') {
            // Writing to a text cannot fail.
            _ = write!(self.path, "[{index}]");
            self.value(depth + 1)?;
            self.path.truncate(outer);
            index += 1;
        }
        self.expect(b']')
    }

    fn enter(&mut self, kind: &str, depth: usize) -> Result<(), Refusal> {
        if depth > MAX_DEPTH {
            let told = format!("the arguments are nested deeper than {MAX_DEPTH}");
            return Err((ReasonCode::DenyArgumentsTooDeep, told));
        }
        self.at += 1;
        self.kind(kind)
    }

    fn leaf(&mut self, text: &str, kind: &str) -> Result<(), Refusal> {
        self.kind(kind)?;
        self.tag(text)
    }

    /// The tag of the type of what stands at the path.
    fn kind(&mut self, kind: &str) -> Result<(), Refusal> {
        let length = self.path.len();
        self.path.push_str("#type");
        let tagged = self.tag(kind);
        self.path.truncate(length);
        tagged
    }

    fn tag(&mut self, text: &str) -> Result<(), Refusal> {
        self.tag_bytes += self.path.len() + text.len();
        if self.tag_bytes > MAX_TAG_BYTES {
            let told = format!("the paths of the arguments take more than {MAX_TAG_BYTES} bytes together");
            return Err((ReasonCode::DenyArgumentsTooLarge, told));
        }
        if self.wanted.has(&self.path) {
            self.tags.push((self.path.clone(), text.to_owned()));
        }
        Ok(())
    }

    /// The string that starts here, unescaped. A lone surrogate has no text, so it refuses.
    fn string(&mut self) -> Result<Cow<'a, str>, Refusal> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        });
        let raw = end
            .and_then(|end| rest.get(..end + 2))
            .ok_or_else(|| invalid("a string does not end"))?;
        self.at += raw.len();
        if let Some(plain) = raw.get(1..raw.len() - 1).filter(|plain| !plain.contains('\\')) {
            return Ok(Cow::Borrowed(plain));
        }
        serde_json::from_str(raw).map_err(|error| invalid(&error.to_string()))
    }

    /// The number or literal that starts here, as it was received.
    fn word(&mut self) -> Result<&'a str, Refusal> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest
            .find([',', ']', '}', ' ', '\t', '\n', '\r'])
            .unwrap_or(rest.len());
        match rest.get(..end) {
            Some(word) if !word.is_empty() => {
                self.at += end;
                Ok(word)
            }
            _ => Err(invalid("a value is missing")),
        }
    }

    /// Skips to the next item of a container; false at its end.
    fn is_not_at(&mut self, end: u8) -> bool {
        self.skip_blanks();
        if self.peek() == Some(b',') {
            self.at += 1;
            self.skip_blanks();
        }
        self.peek().is_some_and(|byte| byte != end)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Refusal> {
        if self.peek() != Some(wanted) {
            return Err(invalid("it ends too soon"));
        }
        self.at += 1;
        self.skip_blanks();
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn tags(text: &str) -> Result<Vec<(String, String)>, Refusal> {
        super::tags(text, &TagKeys::All)
    }

    /// The tags without those of types, as `path=text`.
    fn check(text: &str, expected: &[&str]) {
        let tags = tags(text).unwrap();
        let leaves: Vec<_> = tags
            .iter()
            .filter(|(path, _)| !path.ends_with("#type"))
            .map(|(path, text)| format!("{path}={text}"))
            .collect();
        assert_eq!(leaves, expected, "{text}");
    }

    fn check_refused(text: &str, code: ReasonCode, told: &str) {
        let (actual, message) = tags(text).unwrap_err();
        assert_eq!(actual, code, "{message}");
        assert!(message.contains(told), "{message}");
    }

    #[test]
    fn leaves_have_paths_and_numbers_keep_their_text() {
        check("{}", &[]);
        check(
            r#" { "a" : { "b" : [ 1.50 , "x" ] } , "c" : null } "#,
            &["a.b[0]=1.50", "a.b[1]=x", "c=null"],
        );
        check(
            r#"{"n":[12345678901234567890123,1e999,-0,0.10,1E+2],"t":true,"f":false}"#,
            &[
                "n[0]=12345678901234567890123",
                "n[1]=1e999",
                "n[2]=-0",
                "n[3]=0.10",
                "n[4]=1E+2",
                "t=true",
                "f=false",
            ],
        );
        check(
            r#"{"s":"a\"b\\\"\u00e9\n","q\\":"\\"}"#,
            &["s=a\"b\\\"é\n", "q\\=\\"],
        );
        check(
            r#"{"__entity":{"type":"Mcp::Tier","id":"full_access"}}"#,
            &["__entity.type=Mcp::Tier", "__entity.id=full_access"],
        );
    }

    #[test]
    fn keys_that_would_read_as_a_path_are_quoted() {
        check(r#"{"a.b":1,"a":{"b":2}}"#, &[r#"["a.b"]=1"#, "a.b=2"]);
        check(
            r#"{"x":{"":1,"[0]":2,"a#type":3,"\"]":4}}"#,
            &[r#"x[""]=1"#, r#"x["[0]"]=2"#, r#"x["a#type"]=3"#, r#"x["\"]"]=4"#],
        );
    }

    #[test]
    fn every_leaf_and_container_has_its_type() {
        let tags: std::collections::HashMap<_, _> = tags(r#"{"o":{},"a":[],"s":"","n":1,"b":true,"z":null}"#)
            .unwrap()
            .into_iter()
            .collect();
        for (path, kind) in [
            ("", "object"),
            ("o", "object"),
            ("a", "array"),
            ("s", "string"),
            ("n", "number"),
            ("b", "boolean"),
            ("z", "null"),
        ] {
            assert_eq!(
                tags.get(&format!("{path}#type")).map(String::as_str),
                Some(kind),
                "{path}"
            );
        }
        assert_eq!(tags.len(), 7 + 4);
    }

    #[test]
    fn what_cannot_be_decided_on_is_refused_with_its_code() {
        for text in [
            "",
            "null",
            "[]",
            "\"x\"",
            "{",
            r#"{"a":NaN}"#,
            r#"{"a":1}x"#,
            r#"{"a":"\ud800"}"#,
            r#"{a:1}"#,
            r#"{"a":1,}"#,
        ] {
            check_refused(text, ReasonCode::DenyArgumentsInvalid, "not a JSON object");
        }
        check_refused(r#"{"a":1,"a":1}"#, ReasonCode::DenyArgumentsDuplicateKey, "`a`");
        check_refused(
            r#"{"x":[{"a":1,"\u0061":2}]}"#,
            ReasonCode::DenyArgumentsDuplicateKey,
            "`x[0].a`",
        );
        let padded = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8));
        assert!(tags(&padded(MAX_BYTES)).is_ok());
        check_refused(
            &padded(MAX_BYTES + 1),
            ReasonCode::DenyArgumentsTooLarge,
            "1048577 bytes",
        );
        let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(tags(&nested(MAX_DEPTH)).is_ok());
        check_refused(&nested(MAX_DEPTH + 1), ReasonCode::DenyArgumentsTooDeep, "64");
        check_refused(
            &nested(MAX_BYTES / 2 - 10),
            ReasonCode::DenyArgumentsTooDeep,
            "64",
        );
    }

    #[test]
    fn a_long_key_over_a_long_array_does_not_grow_with_the_square() {
        let text = format!(r#"{{"{}":[{}0]}}"#, "k".repeat(500_000), "0,".repeat(250_000));
        check_refused(&text, ReasonCode::DenyArgumentsTooLarge, "paths");
    }

    fn json_values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[\"\\\\a.\\[\\]#é]{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map("[\"\\\\ab01.\\[\\]#]{0,4}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn places(value: &Value) -> usize {
        match value {
            Value::Object(map) => 1 + map.values().map(places).sum::<usize>(),
            Value::Array(items) => 1 + items.iter().map(places).sum::<usize>(),
            _ => 2,
        }
    }

    proptest! {
        #[test]
        fn no_two_places_share_a_path(value in json_values(), pretty in any::<bool>()) {
            let value = json!({ "a": value });
            let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            let tags = tags(&text).unwrap();
            let paths: BTreeSet<_> = tags.iter().map(|(path, _)| path).collect();
            prop_assert_eq!(paths.len(), tags.len(), "{:?}", tags);
            prop_assert_eq!(tags.len(), places(&value));
        }

        #[test]
        fn no_text_panics(text in "[{}\\[\\]\",:0a\\\\ ]{0,20}") {
            let _ = tags(&text);
        }
    }
}
