//! The texts of `policies/` that are compiled in.

use std::str::FromStr;

use crate::{PolicyFile, PolicyProblem};

/// The schema that every policy and every request is validated against, as Cedar schema text.
pub const SCHEMA: &str = include_str!("../../../policies/schema.cedarschema");

/// The name that the schema has in errors.
pub(crate) const SCHEMA_NAME: &str = "built-in/schema.cedarschema";

/// The folder that the embedded files have in errors and reasons.
pub(crate) const FOLDER: &str = "built-in/";

/// Policies for those who have not written any yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// `deny-by-default`: nothing may be called.
    DenyByDefault,
    /// `ask-by-default`: every call is asked for.
    AskByDefault,
    /// `read-only`: every call is asked for, and what does not claim to be read-only may not be called at all.
    ReadOnly,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::DenyByDefault, Self::AskByDefault, Self::ReadOnly];

    /// The preset's name, as `--preset` takes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DenyByDefault => "deny-by-default",
            Self::AskByDefault => "ask-by-default",
            Self::ReadOnly => "read-only",
        }
    }

    /// The preset's text: a start for policies of one's own.
    #[must_use]
    pub fn file(self) -> PolicyFile {
        let (ending, text) = match self {
            Self::DenyByDefault => (
                "rules",
                include_str!("../../../policies/presets/deny-by-default.rules"),
            ),
            Self::AskByDefault => (
                "rules",
                include_str!("../../../policies/presets/ask-by-default.rules"),
            ),
            Self::ReadOnly => ("cedar", include_str!("../../../policies/presets/read-only.cedar")),
        };
        PolicyFile {
            name: format!("{FOLDER}presets/{}.{ending}", self.as_str()),
            text: text.to_owned(),
        }
    }
}

impl FromStr for Preset {
    type Err = PolicyProblem;

    fn from_str(text: &str) -> Result<Self, PolicyProblem> {
        Self::ALL
            .into_iter()
            .find(|preset| preset.as_str() == text)
            .ok_or_else(|| PolicyProblem::Preset(text.to_owned()))
    }
}

/// The policies that are always loaded: the floor and the tiers.
pub(crate) fn always_loaded() -> [PolicyFile; 2] {
    [
        (
            "built-in/floor.cedar",
            include_str!("../../../policies/floor.cedar"),
        ),
        (
            "built-in/tiers.cedar",
            include_str!("../../../policies/tiers.cedar"),
        ),
    ]
    .map(|(name, text)| PolicyFile {
        name: name.to_owned(),
        text: text.to_owned(),
    })
}
