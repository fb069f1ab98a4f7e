use std::fmt;

use serde::Serialize;

/// The id of a request: a number or a string (MCP, revision 2026-07-28, base protocol, requests).
///
/// Never null, and a number with a fraction is none; `7.0` is 7.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Id {
    /// A whole number.
    Number(i64),
    /// A string, kept as the peer wrote it, also where it spells a number.
    String(String),
}

impl Id {
    /// The number that this id is or spells: some servers answer `"7"` to a request of id 7, and a transport that
    /// hands out numbers only may take one for the other. `None` where the text is not how the number prints.
    #[must_use]
    pub fn as_number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::String(text) => text
                .parse()
                .ok()
                .filter(|number: &i64| number.to_string() == *text),
        }
    }
}

impl From<i64> for Id {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// The id as JSON text: a string stands in quotes.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::String(text) => f.write_str(&serde_json::to_string(text).map_err(|_| fmt::Error)?),
        }
    }
}

/// What the `id` member of a message turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IdValue {
    Usable(Id),
    Null,
    /// Neither a string nor a whole number that an `i64` holds.
    Bad,
}

impl IdValue {
    /// Reads the raw JSON text of an `id`; also text that is only nearly JSON, out of a broken line.
    pub(crate) fn read(raw: &str) -> Self {
        match raw.bytes().next() {
            Some(b'"') => serde_json::from_str(raw).map_or(Self::Bad, |text| Self::Usable(Id::String(text))),
            Some(b'-' | b'0'..=b'9') => {
                whole_number(raw).map_or(Self::Bad, |number| Self::Usable(Id::Number(number)))
            }
            _ if raw == "null" => Self::Null,
            _ => Self::Bad,
        }
    }

    pub(crate) fn usable(&self) -> Option<&Id> {
        match self {
            Self::Usable(id) => Some(id),
            Self::Null | Self::Bad => None,
        }
    }
}

/// The whole number that `text` writes, also as `7.0` or `7e0`, as long as a double holds it exactly.
pub(crate) fn whole_number(text: &str) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    text.parse().ok().or_else(|| {
        let float: f64 = text.parse().ok()?;
        // A long fraction can round to a whole number; no id of ours is written that long.
        (text.len() <= 16 && float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_where_nothing_is_lost() {
        let number = |n| IdValue::Usable(Id::Number(n));
        let string = |s: &str| IdValue::Usable(Id::String(s.to_owned()));
        for (raw, value) in [
            ("7", number(7)),
            ("-7", number(-7)),
            ("0", number(0)),
            ("7.0", number(7)),
            ("70e-1", number(7)),
            ("9223372036854775807", number(i64::MAX)),
            ("9223372036854775808", IdValue::Bad),
            ("1e999", IdValue::Bad),
            ("7.5", IdValue::Bad),
            ("7.00000000000000000000001", IdValue::Bad),
            ("-inf", IdValue::Bad),
            ("\"7\"", string("7")),
            ("\"\"", string("")),
            (r#""a\n\u00e9""#, string("a\né")),
            (r#""\ud800""#, IdValue::Bad),
            ("null", IdValue::Null),
            ("true", IdValue::Bad),
            ("[7]", IdValue::Bad),
            ("", IdValue::Bad),
        ] {
            assert_eq!(IdValue::read(raw), value, "{raw}");
        }
    }

    #[test]
    fn a_string_stands_for_a_number_only_as_the_number_prints() {
        for (text, number) in [
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("07", None),
            ("+7", None),
            ("7.0", None),
            ("", None),
        ] {
            assert_eq!(Id::String(text.to_owned()).as_number(), number, "{text}");
        }
        assert_eq!(Id::Number(7).as_number(), Some(7));
    }
}
