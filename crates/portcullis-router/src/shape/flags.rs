//! Characters that a reader does not see, or sees out of order. They are counted, never removed.

use std::{borrow::Cow, collections::HashSet, fmt};

use portcullis_blobs::BlobRef;
use serde::{Deserialize, Deserializer, Serialize, de::Visitor};

use super::{BlobInfo, json};

/// What a reader should know before trusting the text of a result. The counts are of characters, in names and
/// values alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShapeFlags {
    /// Control characters, but for tab, line feed and carriage return. Escape is one of them.
    pub control: usize,
    /// Characters that change the direction of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069).
    pub bidi: usize,
    /// Tag characters (U+E0000 to U+E007F): invisible letters.
    pub tags: usize,
    /// Other characters without a form of their own: zero-width spaces and joiners of words, soft hyphens, fillers
    /// and supplementary variation selectors. What emoji need is not counted.
    pub invisible: usize,
    /// Halves of surrogate pairs, which are no text. The strings that hold them stay as they came.
    pub lone_surrogates: usize,
    /// Blocks that should be binary and whose base64 is missing or invalid. They stay, and are read as text.
    pub undecoded: usize,
    /// Binary blocks whose base64 was not canonical, or stood in a data URL, and was read all the same.
    pub lenient_base64: usize,
    /// Binary parts beyond the 1,024 of one result that go to the store, binary blocks and resources of over 65,536
    /// members, and texts beyond the 64 MiB of one result that are looked through for data URLs. They stay as they
    /// came, but for a block's `_meta`.
    pub left_inline: usize,
    /// References to blobs that the server wrote itself. They name what it cannot have stored.
    pub foreign_references: usize,
    /// Whether the result had not the form that the protocol demands, and was given it.
    pub repaired: bool,
    /// Whether `content`, `structuredContent` or `isError` occurred twice; the last one stands.
    pub duplicate_keys: bool,
}

impl ShapeFlags {
    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        *self == Self::default()
    }

    /// Counts what is in the strings of `json`, which may refer to `blobs`.
    pub(super) fn look_at(&mut self, json: &str, blobs: &[BlobInfo]) {
        let ours = ours(blobs);
        for token in json::strings(json) {
            self.string(token.raw, &ours);
        }
    }

    /// What is in one JSON string, its quotes included.
    fn string(&mut self, raw: &str, ours: &HashSet<BlobRef>) {
        // Of ASCII only the delete character stands in JSON without an escape and is one of those that count.
        let is_plain = raw.is_ascii() && memchr::memchr2(b'\\', 0x7F, raw.as_bytes()).is_none();
        if is_plain && !raw.contains(PREFIX) {
            return;
        }
        let text = loose_text(raw);
        for c in text.chars() {
            self.count(c);
        }
        for (at, _) in text.match_indices(PREFIX) {
            let reference = text
                .get(at..)
                .and_then(|rest| rest.get(..PREFIX.len() + HASH_DIGITS));
            let blob = reference.and_then(|reference| reference.parse::<BlobRef>().ok());
            self.foreign_references += usize::from(blob.is_some_and(|blob| !ours.contains(&blob)));
        }
    }

    fn count(&mut self, c: char) {
        match c {
            '\t' | '\n' | '\r' => {}
            '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => {
                self.bidi += 1;
            }
            '\u{E0000}'..='\u{E007F}' => self.tags += 1,
            LONE_SURROGATE => self.lone_surrogates += 1,
            c if c.is_control() => self.control += 1,
            // Joiners shape what is seen, in emoji and in some scripts.
            '\u{200C}' | '\u{200D}' => {}
            c if portcullis_types::is_hidden(c) => self.invisible += 1,
            _ => {}
        }
    }
}

/// Whether a reader does not see `c`, or sees it out of order: what the [`ShapeFlags`] of a result count. Blanks that
/// are seen are not.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    let mut flags = ShapeFlags::default();
    flags.count(c);
    !flags.is_clear()
}

/// Counts what is in a string that does not lie in memory.
pub(super) struct InPieces<'f> {
    flags: &'f mut ShapeFlags,
    ours: HashSet<BlobRef>,
    /// A quote, and what was not looked at yet.
    held: Vec<u8>,
}

impl<'f> InPieces<'f> {
    pub(super) fn new(flags: &'f mut ShapeFlags, blobs: &[BlobInfo]) -> Self {
        Self {
            flags,
            ours: ours(blobs),
            held: vec![b'"'],
        }
    }

    /// More of the string's raw text, cut anywhere.
    pub(super) fn piece(&mut self, raw: &[u8]) {
        self.held.extend_from_slice(raw);
        let cut = part(&self.held);
        let rest = self.held.split_off(cut);
        self.look();
        self.held.extend_from_slice(&rest);
    }

    /// Nothing more comes.
    pub(super) fn end(mut self) {
        self.look();
    }

    fn look(&mut self) {
        self.held.push(b'"');
        self.flags
            .string(&String::from_utf8_lossy(&self.held), &self.ours);
        self.held.truncate(1);
    }
}

/// How much of a string's raw text may be looked at apart from what follows: whole characters and escapes, no half of a
/// pair, and not the beginning of a reference, unless that were one among very many letters and digits.
fn part(raw: &[u8]) -> usize {
    const NEAR_BYTES: usize = 1_024;
    let (mut at, mut whole, mut before_other) = (1, 1, 1);
    while let Some(byte) = raw.get(at) {
        let length = match byte {
            b'\\' if raw.get(at + 1) == Some(&b'u') => 6,
            b'\\' => 2,
            0xC0..0xE0 => 2,
            0xE0..0xF0 => 3,
            0xF0.. => 4,
            _ => 1,
        };
        let Some(unit) = raw.get(at..at + length) else {
            break;
        };
        if !byte.is_ascii_alphanumeric() && !matches!(byte, b':' | b'\\') {
            before_other = at;
        }
        let start = at;
        at += length;
        let is_first_half = matches!(
            unit,
            [
                b'\\',
                b'u',
                b'd' | b'D',
                b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B',
                ..,
            ]
        );
        // Only what comes next can be its second half: a first half before another one is alone.
        whole = if is_first_half { start } else { at };
    }
    if raw.len() - before_other <= NEAR_BYTES {
        before_other
    } else {
        whole
    }
}

fn ours(blobs: &[BlobInfo]) -> HashSet<BlobRef> {
    blobs.iter().map(|info| info.blob).collect()
}

const PREFIX: &str = "blob:blake3:";
const HASH_DIGITS: usize = 64;

/// What stands for half a surrogate pair while characters are counted. No text of today uses it.
const LONE_SURROGATE: char = '\u{10FFFF}';

/// The text of a JSON string, each half of a surrogate pair replaced, so that none hides what is around it.
fn loose_text(raw: &str) -> Cow<'_, str> {
    if let Some(text) = json::unquote(raw) {
        return text;
    }
    let Ok(Wtf8(bytes)) = serde_json::from_str(raw) else {
        return Cow::Borrowed(raw);
    };
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        // A surrogate's three bytes are invalid one by one; its first byte is never anything else.
        text.extend(
            chunk
                .invalid()
                .iter()
                .filter(|byte| **byte == 0xED)
                .map(|_| LONE_SURROGATE),
        );
    }
    Cow::Owned(text)
}

/// The bytes of a JSON string, with halves of surrogate pairs encoded as if they were characters.
struct Wtf8(Vec<u8>);

impl<'de> Deserialize<'de> for Wtf8 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsBytes;
        impl Visitor<'_> for AsBytes {
            type Value = Wtf8;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Wtf8, E> {
                Ok(Wtf8(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(AsBytes)
    }
}

#[cfg(test)]
mod tests {
    use portcullis_blobs::Hash;

    use super::*;

    fn check(json: &str, expected: ShapeFlags) {
        let mut flags = ShapeFlags::default();
        flags.look_at(json, &[]);
        assert_eq!(flags, expected, "{json}");
    }

    #[test]
    fn hidden_characters_are_counted_written_out_or_escaped() {
        let none = ShapeFlags::default();
        check(
            r#"{"a":"plain\ttext\r\n","b":["é","日本語","👩\u200d👩\u200d👧 ❤\ufe0f"]}"#,
            none,
        );
        check(r#"["\u001b[31mred\u0007"]"#, ShapeFlags { control: 2, ..none });
        check("[\"\u{7f}\u{85}\"]", ShapeFlags { control: 2, ..none });
        check("[\"\u{7f}\"]", ShapeFlags { control: 1, ..none });
        check("{\"\u{202e}gpj\":\"\\u2066\"}", ShapeFlags { bidi: 2, ..none });
        check(
            "[\"hi\u{e0041}\", \"\\udb40\\udc42\"]",
            ShapeFlags { tags: 2, ..none },
        );
        check(
            "[\"a\u{200b}b\\ufeff\u{e0100}\"]",
            ShapeFlags { invisible: 3, ..none },
        );
    }

    /// However the pieces of it are cut.
    #[test]
    fn a_string_in_pieces_has_what_it_has_as_a_whole() {
        let reference = BlobRef(Hash::of(b"of another")).to_string();
        for text in [
            r#"\u001b[31mred\u0007 \\u001b \\\u001b \" \/ \ud800 \udb40\udc41 é \udfff"#.to_owned(),
            "\u{202e}gpj \\u2066 hi\u{e0041}\u{200b}\u{feff}日本\u{7f}".to_owned(),
            format!(
                "see {reference}, {reference}{} or {}",
                "0".repeat(2_000),
                reference.replacen(':', "\\u003a", 1)
            ),
            r"\u001b".repeat(3_000) + r"\udb40\udc41".repeat(3_000).as_str(),
            String::new(),
        ] {
            let mut whole = ShapeFlags::default();
            whole.look_at(&format!("[\"{text}\"]"), &[]);
            for size in [1, 2, 7, 61, 4_096, 1 << 20] {
                let mut flags = ShapeFlags::default();
                let mut looking = InPieces::new(&mut flags, &[]);
                text.as_bytes()
                    .chunks(size)
                    .for_each(|piece| looking.piece(piece));
                looking.end();
                assert_eq!(flags, whole, "{size}: {}", text.get(..60).unwrap_or(&text));
            }
        }
    }

    /// Whatever a server sends, little of it is held back.
    #[test]
    fn what_is_held_of_a_string_in_pieces_stays_small() {
        for unit in [
            r"\ud800",
            r"\ud83d\ude00",
            "x",
            ":",
            r"\\",
            "\u{10ffff}",
            "blob:blake3:0",
        ] {
            let mut flags = ShapeFlags::default();
            let mut looking = InPieces::new(&mut flags, &[]);
            for piece in unit.repeat(20_000).as_bytes().chunks(4_096) {
                looking.piece(piece);
                assert!(looking.held.len() < 2_048, "`{unit}`: {}", looking.held.len());
            }
        }
    }

    #[test]
    fn half_a_surrogate_pair_hides_nothing() {
        let flags = ShapeFlags {
            lone_surrogates: 2,
            control: 1,
            tags: 1,
            ..ShapeFlags::default()
        };
        check(r#"["\ud800 \u001b \udb40\udc41 é \udfff"]"#, flags);
    }

    #[test]
    fn a_reference_that_is_not_ours_is_counted_however_it_is_written() {
        let reference = BlobRef(Hash::of(b"of another")).to_string();
        let flags = ShapeFlags {
            foreign_references: 1,
            ..ShapeFlags::default()
        };
        check(&format!("[\"see {reference}.\"]"), flags);
        check(&format!("[\"{}\"]", reference.replacen(':', "\\u003a", 1)), flags);
        check("[\"blob:blake3:é\", \"blob:blake3:00\"]", ShapeFlags::default());
    }
}
