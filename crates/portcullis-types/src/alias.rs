use std::fmt;

use serde::Serialize;

/// What the model calls a tool: `mcp__<server-slug>_<digest>__<tool-slug>__<digest>`, at most 64 bytes of
/// `[A-Za-z0-9_-]`.
///
/// It depends on the raw names alone, so it is stable across runs and start orders. It cannot be parsed back:
/// a catalog maps it to its [`CapabilityId`](crate::CapabilityId).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Alias(String);

impl Alias {
    /// The longest alias, in bytes: what the strictest model APIs accept for a tool name.
    pub const MAX_BYTES: usize = 64;

    pub(crate) fn of(server: &str, tool: &str) -> Self {
        Self(format!(
            "mcp__{}_{}__{}__{}",
            slug(server, 12),
            digest(server),
            slug(tool, 22),
            digest(tool)
        ))
    }

    /// The alias as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `name` with every character outside `[A-Za-z0-9-]` as `_`, cut to `max` characters. For people to read: what
/// tells two names apart is the [`digest`].
pub(crate) fn slug(name: &str, max: usize) -> String {
    name.chars()
        .take(max)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect()
}

/// Ten characters of Crockford's base32, in lower case: the first 50 bits of blake3 over the raw name.
pub(crate) fn digest(name: &str) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let hash = blake3::hash(name.as_bytes());
    let mut bits: u64 = 0;
    for byte in hash.as_bytes().iter().take(8) {
        bits = (bits << 8) | u64::from(*byte);
    }
    (0..10)
        .filter_map(|i| ALPHABET.get(((bits >> (59 - 5 * i)) & 31) as usize))
        .map(|byte| char::from(*byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_digest_is_crockford_base32_over_blake3() {
        // blake3("") starts af1349b9f5f9a1a6: 10101 11100 01001 10100 10011 01110 01111 10101 11111 00110.
        assert_eq!(digest(""), "nw9mkefnz6");
    }

    #[test]
    fn names_that_a_lossy_cleaning_would_join_stay_apart() {
        let pairs = [
            ("acme", "_status"),
            ("acme_", "status"),
            ("acme", "-status"),
            ("acme", "status"),
            ("ACME", "status"),
        ];
        let aliases: HashSet<_> = pairs
            .iter()
            .map(|(server, tool)| Alias::of(server, tool))
            .collect();
        assert_eq!(aliases.len(), pairs.len());
    }

    proptest! {
        #[test]
        fn an_alias_always_fits_a_model_api(server in ".{0,80}", tool in ".{0,200}") {
            let alias = Alias::of(&server, &tool);
            prop_assert!(alias.as_str().len() <= Alias::MAX_BYTES);
            prop_assert!(alias.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
        }
    }
}
