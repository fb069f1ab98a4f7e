//! The inside of a JSON string, as base64 (RFC 4648, section 4) for as long as it is canonical.

use std::mem;

use base64_simd::STANDARD;

use super::{SpoolFault, content::Content};
use crate::shape::data_url_header;

/// Characters that make up one group of base64.
const GROUP: usize = 4;

/// Decodes piece by piece. The pieces may be cut anywhere, also within an escape.
#[derive(Debug, Default)]
pub(super) struct Base64 {
    /// The characters of a group that is not whole.
    // INVARIANT: fewer than 4, and between two pieces nothing else of the text is held back but `escape`.
    group: Vec<u8>,
    /// An escape that is not whole.
    escape: Vec<u8>,
    /// Padding came, after which nothing may.
    padded: bool,
}

/// From here on it is no canonical base64.
#[derive(Debug)]
pub(super) struct NotBase64 {
    /// Raw text that came before and was not decoded.
    pub(super) held: Vec<u8>,
    /// Where in the piece at hand the text goes on.
    pub(super) rest: usize,
}

impl Base64 {
    /// Decodes `raw` into `content`.
    pub(super) fn put(
        &mut self,
        raw: &[u8],
        content: &mut Content,
    ) -> Result<Result<(), NotBase64>, SpoolFault> {
        let mut at = 0;
        while let Some(ahead) = raw.get(at..).filter(|ahead| !ahead.is_empty()) {
            if self.escape.is_empty() {
                let run = memchr::memchr(b'\\', ahead).unwrap_or(ahead.len());
                let plain = ahead.get(..run).unwrap_or_default();
                let used = content.append(|into| self.decode(plain, into))?;
                at += used;
                if used < run {
                    return Ok(Err(self.not(at)));
                }
            }
            if let Some(byte) = raw.get(at) {
                self.escape.push(*byte);
                at += 1;
                match unescape(&self.escape) {
                    Unescaped::NotYet => {}
                    Unescaped::Is(plain) => {
                        let decoded = content.append(|into| self.decode(&[plain], into))?;
                        if decoded == 0 {
                            return Ok(Err(self.not(at)));
                        }
                        self.escape.clear();
                    }
                    Unescaped::IsOther => return Ok(Err(self.not(at))),
                }
            }
        }
        Ok(Ok(()))
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self) -> Result<(), NotBase64> {
        if self.group.is_empty() && self.escape.is_empty() {
            Ok(())
        } else {
            Err(self.not(0))
        }
    }

    /// Decodes characters that are no escapes, and says how many of them are done with: fewer where the next is wrong,
    /// and then nothing of what is left was taken.
    fn decode(&mut self, plain: &[u8], into: &mut Vec<u8>) -> usize {
        if plain.is_empty() || self.padded {
            return 0;
        }
        let mut used = 0;
        let mut rest = plain;
        if !self.group.is_empty() {
            let (more, after) = rest.split_at(rest.len().min(GROUP - self.group.len()));
            let before = self.group.len();
            self.group.extend_from_slice(more);
            if self.group.len() == GROUP {
                if STANDARD.decode_append(&self.group, into).is_err() {
                    self.group.truncate(before);
                    return 0;
                }
                self.padded = self.group.ends_with(b"=");
                self.group.clear();
            }
            used = more.len();
            rest = after;
            if rest.is_empty() || self.padded {
                return used;
            }
        }
        let (groups, after) = rest.split_at(rest.len() / GROUP * GROUP);
        if !groups.is_empty() {
            if STANDARD.decode_append(groups, into).is_err() {
                return used;
            }
            self.padded = groups.ends_with(b"=");
        }
        used += groups.len();
        if self.padded && !after.is_empty() {
            return used;
        }
        self.group.extend_from_slice(after);
        used + after.len()
    }

    fn not(&mut self, rest: usize) -> NotBase64 {
        let mut held = mem::take(&mut self.group);
        held.append(&mut self.escape);
        NotBase64 { held, rest }
    }
}

enum Unescaped {
    NotYet,
    /// A character that may be of base64.
    Is(u8),
    IsOther,
}

/// What an escape stands for, which the wire has found to be one.
fn unescape(escape: &[u8]) -> Unescaped {
    let byte = match escape {
        [_] => return Unescaped::NotYet,
        [_, b'/'] => b'/',
        [_, b'u', digits @ ..] if digits.len() < 4 => return Unescaped::NotYet,
        [_, b'u', digits @ ..] => {
            let code = std::str::from_utf8(digits).ok();
            let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            code.unwrap_or_default()
        }
        _ => return Unescaped::IsOther,
    };
    if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=') {
        Unescaped::Is(byte)
    } else {
        Unescaped::IsOther
    }
}

/// Whether the raw text begins as a base64 data URL (RFC 2397): how long that beginning is, its comma included, and
/// the media type in it.
pub(super) fn data_url(start: &[u8]) -> Option<(usize, Option<String>)> {
    let length = memchr::memchr(b',', start)? + 1;
    let raw = std::str::from_utf8(start.get(..length)?).ok()?;
    let text: String = serde_json::from_str(&format!("\"{raw}\"")).ok()?;
    Some((length, data_url_header(&text)?))
}
