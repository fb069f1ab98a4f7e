//! Runs of base64 in text, also where that text is JSON and some of its characters are escapes.
//!
//! Writers of JSON escape some of what base64 is made of: `\/` (PHP), `\u002B` (.NET), `\u003d` (others). What is JSON
//! within JSON within JSON has more backslashes before the same letters, so their number does not matter.

use std::{borrow::Cow, ops::Range};

use super::base64;

/// The most characters of padding.
const MAX_PADDING: usize = 2;

/// A run of base64 characters with its padding.
#[derive(Debug)]
pub(super) struct Run {
    /// Where in the text it stands, in bytes.
    pub(super) range: Range<usize>,
    is_escaped: bool,
}

impl Run {
    /// What it stands for in `text`, which it is of.
    pub(super) fn of<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let written = text.get(self.range.clone()).unwrap_or_default();
        if self.is_escaped {
            unescaped(written)
        } else {
            written.into()
        }
    }
}

/// The longest runs in `text` that take `min_bytes` of it.
pub(super) fn runs(text: &str, min_bytes: usize) -> impl Iterator<Item = Run> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let may_begin = |byte: &u8| base64::is_alphabet(*byte) || *byte == b'\\';
            let start = at + bytes.get(at..)?.iter().position(may_begin)?;
            let body = body(bytes, start);
            if body == start {
                // Its letters are no base64: `\n` before a run is no `n` of it.
                at = Escape::at(bytes, start)?.end;
                continue;
            }
            at = padding(bytes, body);
            if at - start >= min_bytes {
                let is_escaped = bytes.get(start..at).is_some_and(|run| run.contains(&b'\\'));
                return Some(Run {
                    range: start..at,
                    is_escaped,
                });
            }
        }
    })
}

/// `text` without its escapes, but for those of what no URL and no base64 has.
pub(super) fn unescaped(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut plain, mut done) = (String::new(), 0);
    let mut at = 0;
    while let Some(ahead) = bytes.get(at..).and_then(|ahead| memchr::memchr(b'\\', ahead)) {
        at += ahead;
        let Some(escape) = Escape::at(bytes, at) else {
            break;
        };
        if escape.byte.is_ascii_graphic() {
            plain.push_str(text.get(done..at).unwrap_or_default());
            plain.push(escape.byte.into());
            done = escape.end;
        }
        at = escape.end;
    }
    if done == 0 {
        return text.into();
    }
    plain.push_str(text.get(done..).unwrap_or_default());
    plain.into()
}

/// Where the letters and digits end that begin at `start`.
fn body(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    loop {
        let ahead = bytes.get(at..).unwrap_or_default();
        let is_other = |byte: &u8| !base64::is_alphabet(*byte);
        at += ahead.iter().position(is_other).unwrap_or(ahead.len());
        match Escape::at(bytes, at) {
            Some(escape) if base64::is_alphabet(escape.byte) => at = escape.end,
            _ => return at,
        }
    }
}

/// Where the padding ends that begins at `start`.
fn padding(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    for _ in 0..MAX_PADDING {
        at = match (bytes.get(at), Escape::at(bytes, at)) {
            (Some(b'='), _) => at + 1,
            (_, Some(escape)) if escape.byte == b'=' => escape.end,
            _ => break,
        };
    }
    at
}

/// An escape of JSON: backslashes and what belongs to them.
struct Escape {
    /// What it stands for; 0 for whatever is neither base64 nor of a URL.
    byte: u8,
    /// Where it ends.
    end: usize,
}

impl Escape {
    /// The one that begins at `at`. Nothing of it begins another one, so that a text is looked through in one go.
    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let ahead = bytes.get(at..)?;
        let backslashes = ahead.iter().take_while(|byte| **byte == b'\\').count();
        if backslashes == 0 {
            return None;
        }
        let (byte, length) = match ahead.get(backslashes..).unwrap_or_default() {
            [b'/', ..] => (b'/', 1),
            [b'b' | b'f' | b'n' | b'r' | b't', ..] => (0, 1),
            [b'u', digits @ ..] => match digits.first_chunk().and_then(code) {
                Some(code) => (u8::try_from(code).unwrap_or_default(), 5),
                None => (0, 0),
            },
            _ => (0, 0),
        };
        Some(Self {
            byte,
            end: at + backslashes + length,
        })
    }
}

/// The number that four hexadecimal digits are.
fn code(digits: &[u8; 4]) -> Option<u16> {
    digits.iter().try_fold(0, |code, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(code << 4 | u16::try_from(digit).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> = runs(text, 4).map(|run| run.of(text)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn runs_have_their_padding_and_no_more() {
        check("", &[]);
        check("abc abcd", &["abcd"]);
        check("abcd=== AB+/==", &["abcd==", "AB+/=="]);
        check("abcd=efgh é-abcd_", &["abcd=", "efgh", "abcd"]);
    }

    #[test]
    fn escapes_are_what_they_stand_for() {
        check(r"ab\/cd \u0041BC\u002b\u003D=", &["ab/cd", "ABC+=="]);
        check(r"\/9j\\\/4A\u00e9abcd", &["/9j/4A", "abcd"]);
        check(r"\nabcd\u0022abcd\\tabcd\", &["abcd", "abcd", "abcd"]);
        // None of these is an escape.
        check(r"\users\xabcd\u12\u+041", &["users", "xabcd", "u+041"]);
        check(r"abcd\u003d\u003D\u003D", &["abcd=="]);
    }

    #[test]
    fn what_is_no_escape_of_a_url_stays() {
        assert_eq!(unescaped(r"image\/svg\u002Bxml;a\u003Db"), "image/svg+xml;a=b");
        assert_eq!(unescaped(r"a\nb\u0000c\q\/d\\"), r"a\nb\u0000c\q/d\\");
        assert!(matches!(unescaped(r"a\nb"), Cow::Borrowed(r"a\nb")));
    }
}
