use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// A blake3 content address: 32 bytes, printed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }

    /// The hash whose 32 bytes are given.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Hash {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let lower = text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match blake3::Hash::from_hex(text) {
            Ok(hash) if lower => Ok(Self(*hash.as_bytes())),
            _ => Err(ParseError::Hash(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Hash {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// How a blob is named in results and events: `blob:blake3:<64 hex>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobRef(pub Hash);

impl BlobRef {
    const PREFIX: &'static str = "blob:blake3:";
}

impl FromStr for BlobRef {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.strip_prefix(Self::PREFIX)
            .and_then(|hex| hex.parse().ok())
            .map(Self)
            .ok_or_else(|| ParseError::BlobRef(text.to_owned()))
    }
}

impl TryFrom<String> for BlobRef {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<BlobRef> for String {
    fn from(blob: BlobRef) -> Self {
        blob.to_string()
    }
}

impl fmt::Display for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_round_trips_and_near_misses_are_refused() {
        let blob = BlobRef(Hash::of(b"portcullis"));
        assert_eq!(blob.to_string().parse::<BlobRef>().unwrap(), blob);
        let hex = Hash::of(b"portcullis").to_string();
        for bad in [
            hex.clone(),
            format!("blob:sha256:{hex}"),
            format!("blob:blake3:{}", hex.to_uppercase()),
            format!("blob:blake3:{hex}0"),
        ] {
            assert!(bad.parse::<BlobRef>().is_err(), "{bad}");
        }
    }
}
