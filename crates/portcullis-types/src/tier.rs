use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// How freely an agent may act in this session; the policies read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Ask where the policies say ask.
    #[default]
    RequestApproval,
    /// As `request_approval` for MCP tools; a host's own tools may tell it apart.
    AllowEdits,
    /// As `request_approval` for MCP tools; a host's own tools may tell it apart.
    Plan,
    /// Whatever may be called at all runs unattended, but for the floor and `always ask`.
    FullAccess,
}

impl Tier {
    /// All tiers, in the schema's order.
    pub const ALL: [Self; 4] = [
        Self::RequestApproval,
        Self::AllowEdits,
        Self::Plan,
        Self::FullAccess,
    ];

    /// The tier as the policies write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestApproval => "request_approval",
            Self::AllowEdits => "allow_edits",
            Self::Plan => "plan",
            Self::FullAccess => "full_access",
        }
    }
}

impl FromStr for Tier {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::ALL
            .into_iter()
            .find(|tier| tier.as_str() == text)
            .ok_or_else(|| ParseError::Tier(text.to_owned()))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who asks: an agent, or the profile that agents belong to. `default` where the host names none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for AgentId {
    fn default() -> Self {
        Self("default".into())
    }
}

impl FromStr for AgentId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fits = (1..=128).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'@' | b'-'));
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::AgentId(text.to_owned()))
        }
    }
}

impl TryFrom<String> for AgentId {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<AgentId> for String {
    fn from(id: AgentId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
