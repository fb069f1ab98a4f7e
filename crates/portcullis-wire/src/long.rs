use std::fmt;

/// How a marker begins. What follows are the 32 hexadecimal digits of its tag.
const MARKER: &str = "portcullis-string-";

/// The most strings that leave one line. Those beyond stay in it, and count toward its limit.
pub const MAX_LONG_STRINGS: usize = 64;

/// The most that may leave one line as long strings, in bytes of their raw JSON text. A string without an end is a line
/// without an end too, only that its bytes lie elsewhere.
pub const MAX_TAKEN_BYTES: u64 = 16 << 30;

/// What becomes of the strings of a line that are longer than [`Limits::max_string_bytes`]. They leave the line
/// while it arrives, and a [`marker`] stands in the place of each.
///
/// The calls come in the order of the stream: `begin`, any number of `chunk`, then `end` or `abandon`; and `line`
/// once the line ended out of which strings were taken. The frames of that line come out of the decoder afterwards.
///
/// [`Limits::max_string_bytes`]: crate::Limits::max_string_bytes
pub trait LongStrings {
    /// A string passed the limit. Gives the tag of its marker, which must be one that the peer cannot guess and that
    /// no other marker has: only then is a marker that the peer wrote itself no more than text.
    fn begin(&mut self) -> u128;

    /// More of the string's raw JSON text between its quotes, cut anywhere. Up to here it is UTF-8 without control
    /// characters, and its escapes are whole or may still become so.
    fn chunk(&mut self, raw: &[u8]);

    /// Its closing quote came: what was given is all of it.
    fn end(&mut self);

    /// It never gets its closing quote, or is no JSON string: what was given of it means nothing. What is wrong with
    /// it stays in the line, whose frames say so.
    fn abandon(&mut self);

    /// The line ended.
    fn line(&mut self);
}

/// For decoders that leave long strings where they are.
impl LongStrings for () {
    fn begin(&mut self) -> u128 {
        0
    }

    fn chunk(&mut self, _: &[u8]) {}

    fn end(&mut self) {}

    fn abandon(&mut self) {}

    fn line(&mut self) {}
}

/// The text that stands in the line for the string with that tag, as a JSON string of its own (without its quotes).
#[must_use]
pub fn marker(tag: u128) -> impl fmt::Display {
    Marker(tag)
}

/// The tag of the marker that `text` is, from its first to its last character; `None` for every other text. Whether
/// such a string was taken is for its taker to know.
#[must_use]
pub fn marker_tag(text: &str) -> Option<u128> {
    let digits = text.strip_prefix(MARKER)?;
    let canonical = digits.len() == 32
        && digits
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(digits, 16).ok().filter(|_| canonical)
}

struct Marker(u128);

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARKER}{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_told_by_all_of_its_text() {
        let tag = 0xfe_u128 << 100 | 7;
        let text = marker(tag).to_string();
        assert_eq!(marker_tag(&text), Some(tag));
        for other in [
            text.to_uppercase(),
            format!(" {text}"),
            format!("{text}0"),
            text.replace("00", "+0"),
            MARKER.to_owned(),
            String::new(),
        ] {
            assert_eq!(marker_tag(&other), None, "{other}");
        }
    }
}
