use std::{fmt, str::FromStr};

use portcullis_types::BlobRef;

use crate::BlobError;

/// What keeps a blob from being collected: a name, the blob, and until when.
///
/// One name may keep many blobs and one blob may have many names: what belongs to one conversation shares a name
/// ([`TagName::session`]) and is let go at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// Under which name it is kept.
    pub name: TagName,
    /// What is kept.
    pub blob: BlobRef,
    /// From when on it no longer keeps it, in milliseconds since the Unix epoch; `None` for as long as it is there.
    pub expires_ms: Option<i64>,
}

impl Tag {
    /// Whether it still keeps its blob.
    #[must_use]
    pub fn is_live(&self, now_ms: i64) -> bool {
        self.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    }
}

/// The name of a [`Tag`]: 1 to 128 ASCII letters, digits and `.`, `_`, `-`, `:`, `@`, the first a letter or digit.
///
/// ```
/// use portcullis_blobs::TagName;
///
/// let name: TagName = "release-notes:2026".parse()?;
/// assert_eq!(name.as_str(), "release-notes:2026");
/// assert!("../escape".parse::<TagName>().is_err());
/// # Ok::<(), portcullis_blobs::BlobError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagName(String);

/// The longest name, in bytes: with a blob's 64 digits it stays below what file systems take.
const MAX_NAME_BYTES: usize = 128;

impl TagName {
    /// The name that all blobs of the session `id` share: `session:ID`.
    ///
    /// # Errors
    ///
    /// [`BlobError::BadTagName`] where `id` holds what a name may not, or nothing: whatever has no id would share one
    /// name, and be let go together.
    pub fn session(id: &str) -> Result<Self, BlobError> {
        let name = format!("session:{id}");
        if id.is_empty() {
            return Err(BlobError::BadTagName(name));
        }
        name.parse()
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TagName {
    type Err = BlobError;

    fn from_str(text: &str) -> Result<Self, BlobError> {
        let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let is_plain = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-:@".contains(&b));
        if starts_well && is_plain && text.len() <= MAX_NAME_BYTES {
            Ok(Self(text.to_owned()))
        } else {
            Err(BlobError::BadTagName(text.escape_debug().to_string()))
        }
    }
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        let check = |text: &str, ok: bool| assert_eq!(text.parse::<TagName>().is_ok(), ok, "{text}");
        check("a", true);
        check("Session:01-x_y.z@host", true);
        check(&"n".repeat(128), true);
        check(&"n".repeat(129), false);
        for bad in ["", ".", "..", "-x", "a/b", "a b", "a\0", "é", "a\n"] {
            check(bad, false);
        }
        assert_eq!(TagName::session("7").unwrap().to_string(), "session:7");
        assert!(TagName::session("../7").is_err());
        assert!(TagName::session("").is_err());
    }
}
