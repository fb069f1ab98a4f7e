//! What is pinned of a tool's definition, in one form whatever the order and spacing in which it was sent.

use std::{collections::HashSet, fmt};

use portcullis_types::Hash;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// The parts of a definition that a person or a policy goes by (MCP 2026-07-28, server/tools, `Tool`).
const PINNED: [&str; 6] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];
/// The one key of `_meta` that the floor goes by: a server that stops demanding a person is a change too.
const FLOOR: &str = "anthropic/requiresUserInteraction";
/// How the names begin by which the JSON library means something of its own: it reads the text in such a member as JSON,
/// whatever stands in it twice.
const LIBRARYS_OWN: &str = "$serde_json::private::";
/// Any decimal number of so many digits is told from any other by its double.
const EXACT_DIGITS: usize = 15;
/// The largest integer up to which each is a double of its own.
const EXACT_INTEGER: u64 = 9_007_199_254_740_991;

/// The pinned parts of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) hash: Hash,
    pub(crate) text: String,
}

impl Pinned {
    /// Canonical JSON (RFC 8785) of the pinned parts. That form is lossy for what is no I-JSON (RFC 7493): of two
    /// members of one name it keeps one, and numbers beyond a double's precision run together. Such a definition is
    /// taken as it came, so that no change in it can hide. So is one with a member that the JSON library would not take
    /// for what it is.
    pub(crate) fn of(definition: &str) -> Self {
        let text = canonical(definition).unwrap_or_else(|| definition.to_owned());
        Self {
            hash: Hash::of(text.as_bytes()),
            text,
        }
    }
}

fn canonical(definition: &str) -> Option<String> {
    serde_json::from_str::<Unique>(definition).ok()?;
    if !numbers(definition).all(is_exact) {
        return None;
    }
    let Ok(Value::Object(mut members)) = serde_json::from_str(definition) else {
        return None;
    };
    let floor = match members.remove("_meta") {
        None | Some(Value::Null) => None,
        Some(Value::Object(mut meta)) => meta
            .remove(FLOOR)
            .map(|floor| Value::Object(Map::from_iter([(FLOOR.to_owned(), floor)]))),
        // It demands a person too, see `ToolFacts`.
        malformed => malformed,
    };
    members.retain(|name, _| PINNED.contains(&name.as_str()));
    if let Some(floor) = floor {
        members.insert("_meta".to_owned(), floor);
    }
    serde_json_canonicalizer::to_string(&Value::Object(members)).ok()
}

/// The numbers of a JSON text, as they are written.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
            rest = rest.get(at..)?;
            if let Some(string) = rest.strip_prefix('"') {
                rest = after_string(string)?;
                continue;
            }
            let end = rest
                .find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E')))
                .unwrap_or(rest.len());
            let (number, after) = rest.split_at_checked(end)?;
            rest = after;
            return Some(number);
        }
    })
}

/// What follows the string whose opening quote was taken off.
fn after_string(mut rest: &str) -> Option<&str> {
    loop {
        let at = rest.find(['"', '\\'])?;
        let (marked, after) = rest.get(at..)?.split_at_checked(1)?;
        if marked == "\"" {
            return Some(after);
        }
        let mut escaped = after.chars();
        escaped.next()?;
        rest = escaped.as_str();
    }
}

/// Whether no other number has the same double.
fn is_exact(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let significant = digits.trim_start_matches('0').len();
    let small_integer = number
        .trim_start_matches('-')
        .parse::<u64>()
        .is_ok_and(|n| n <= EXACT_INTEGER);
    let moderate = exponent.parse::<i32>().is_ok_and(|n| n.unsigned_abs() <= 200);
    small_integer || (significant <= EXACT_DIGITS && digits.len() <= 40 && moderate)
}

/// JSON in which no object has two members of one name, nor one that the JSON library takes for its own.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without a name that stands twice")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
        while items.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            members.next_value::<Unique>()?;
            if name.starts_with(LIBRARYS_OWN) {
                return Err(serde::de::Error::custom("a name has a meaning of its own"));
            }
            if !names.insert(name) {
                return Err(serde::de::Error::custom("a name stands twice"));
            }
        }
        Ok(Unique)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the two texts are one definition.
    #[track_caller]
    fn check(one: &str, other: &str, same: bool) {
        let (one, other) = (Pinned::of(one), Pinned::of(other));
        assert_eq!(one.hash == other.hash, same, "{one:?}\n{other:?}");
    }

    const FIRST: &str = r#"{"name":"x","description":"reads","inputSchema":{"type":"object","required":["a","b"],"maximum":1.50}}"#;

    /// Report 46: what changes asks again, and order alone is no change.
    #[test]
    fn a_change_shows_and_order_does_not() {
        check(
            FIRST,
            r#"{ "inputSchema":{"maximum":1.5,"required":["a","b"],"type":"object"}, "_meta":{"n":2}, "description":"r\u0065ads","name":"x"}"#,
            true,
        );
        for change in [
            (r#""reads""#, r#""deletes""#),
            (r#""reads""#, r#""read\u200bs""#),
            (r#"["a","b"]"#, r#"["b","a"]"#),
            ("1.50", "1.51"),
            (r#""x","#, r#""x","title":"X","#),
            (r#""x","#, r#""x","annotations":{"readOnlyHint":true},"#),
            (r#""x","#, r#""x","outputSchema":{},"#),
            (
                r#""x","#,
                r#""x","_meta":{"anthropic/requiresUserInteraction":true},"#,
            ),
            // Malformed, so that a person is asked.
            (r#""x","#, r#""x","_meta":[],"#),
            (r#""x","#, r#""x","_meta":"none","#),
        ] {
            check(FIRST, &FIRST.replace(change.0, change.1), false);
        }
        check(
            FIRST,
            &FIRST.replace(r#""x","#, r#""x","icons":[],"_meta":{"v":1},"#),
            true,
        );
    }

    /// The form itself: RFC 8785, sections 3.2.2 and 3.2.3.
    #[test]
    fn the_form_is_the_standards() {
        let text = r#"{"name":"x","inputSchema":{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3,"\r":4,"1":4.50,"e":1e2,"m":9007199254740991,"s":"\u000f\n</é"}}"#;
        assert_eq!(
            Pinned::of(text).text,
            "{\"inputSchema\":{\"\\r\":4,\"1\":4.5,\"e\":100,\"m\":9007199254740991,\"s\":\"\\u000f\\n</é\",\"€\":3,\"😀\":2,\"\u{fb33}\":1},\"name\":\"x\"}"
        );
    }

    /// What the canonical form would hide.
    #[test]
    fn no_change_hides_in_what_is_no_i_json() {
        for (one, other) in [
            (
                r#"{"name":"x","description":"good","description":"y"}"#,
                r#"{"name":"x","description":"evil","description":"y"}"#,
            ),
            (
                r#"{"name":"x","inputSchema":{"a":{"d":1,"d":2}}}"#,
                r#"{"name":"x","inputSchema":{"a":{"d":3,"d":2}}}"#,
            ),
            (
                r#"{"name":"x","inputSchema":{"m":9007199254740993}}"#,
                r#"{"name":"x","inputSchema":{"m":9007199254740992}}"#,
            ),
            (
                r#"{"name":"x","inputSchema":{"m":0.12345678901234567}}"#,
                r#"{"name":"x","inputSchema":{"m":0.12345678901234568}}"#,
            ),
            (
                r#"{"name":"x","inputSchema":{"m":1e-400}}"#,
                r#"{"name":"x","inputSchema":{"m":2e-400}}"#,
            ),
            (
                r#"{"name":"x","inputSchema":["\"",12345678901234567890]}"#,
                r#"{"name":"x","inputSchema":["\"",12345678901234567891]}"#,
            ),
            (
                r#"{"name":"x","description":"\ud800"}"#,
                r#"{"name":"x","description":"\ud801"}"#,
            ),
            // What the JSON library would take for the text in it.
            (
                r#"{"name":"x","inputSchema":{"type":"object"}}"#,
                r#"{"name":"x","inputSchema":{"$serde_json::private::RawValue":"{\"type\":\"object\"}"}}"#,
            ),
            (
                r#"{"name":"x","inputSchema":{"a":{"\u0024serde_json::private::RawValue":"{\"b\":\"evil\",\"b\":1}"}}}"#,
                r#"{"name":"x","inputSchema":{"a":{"\u0024serde_json::private::RawValue":"{\"b\":\"good\",\"b\":1}"}}}"#,
            ),
            ("[1]", "[2]"),
            ("not json", "not json either"),
        ] {
            check(one, other, false);
            check(one, one, true);
        }
    }
}
