use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{ParseError, alias};

/// The id of a configured server, unique in a hub: `^[a-z][a-z0-9-]{0,63}$`.
///
/// It has no dot, so a [`CapabilityId`](crate::CapabilityId) splits in one way only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerId(Arc<str>);

impl ServerId {
    /// The longest id, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// The id for the name that an imported document gives: the name itself where it fits, else a slug of at
    /// most 52 characters and ten of base32 over the name, so that two names hardly ever meet.
    #[must_use]
    pub fn from_display_name(name: &str) -> Self {
        if let Ok(id) = name.parse() {
            return id;
        }
        let slug = alias::slug(name, 52).to_ascii_lowercase().replace('_', "-");
        let slug = slug.trim_matches('-');
        // A letter must stand first; `s` for server is as good as any.
        let lead = if slug.starts_with(|c: char| c.is_ascii_lowercase()) {
            ""
        } else {
            "s"
        };
        let slug: String = format!("{lead}{slug}").chars().take(52).collect();
        Self(format!("{}-{}", slug.trim_end_matches('-'), alias::digest(name)).into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fits = text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.len() <= Self::MAX_BYTES
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::ServerId(text.to_owned()))
        }
    }
}

impl TryFrom<String> for ServerId {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<ServerId> for String {
    fn from(id: ServerId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_fit_are_the_id_and_others_get_a_digest() {
        assert_eq!(ServerId::from_display_name("github").as_str(), "github");
        let spaced = ServerId::from_display_name("My Server");
        assert!(spaced.as_str().starts_with("my-server-"), "{spaced}");
        assert_ne!(
            spaced,
            ServerId::from_display_name("my server"),
            "the digest is over the name as it is"
        );
        assert!(
            ServerId::from_display_name("9lives")
                .as_str()
                .starts_with("s9lives-")
        );
        assert!(ServerId::from_display_name("日本").as_str().starts_with('s'));
    }

    #[test]
    fn what_is_no_id_is_refused_with_the_rule() {
        for bad in [
            "",
            "Github",
            "a.b",
            "a_b",
            "1a",
            "-a",
            "a b",
            &"a".repeat(65),
            "ä",
        ] {
            let error = bad.parse::<ServerId>().unwrap_err();
            assert!(error.to_string().contains("a-z, 0-9 and `-`"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_name_becomes_a_legal_id_and_stays_one(name in ".*") {
            let id = ServerId::from_display_name(&name);
            prop_assert_eq!(id.as_str().parse::<ServerId>().unwrap(), id.clone());
            prop_assert_eq!(ServerId::from_display_name(id.as_str()), id);
        }
    }
}
