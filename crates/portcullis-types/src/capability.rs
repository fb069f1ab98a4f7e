use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Alias, ParseError, ServerId};

/// Where a capability comes from: MCP servers are one source of tools, a host's own tools another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An MCP server: `mcp.<server>.<tool>`.
    Mcp,
    /// The host that embeds the hub: `host.<group>.<name>`.
    Host,
}

impl Source {
    /// The first part of the id.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Host => "host",
        }
    }
}

/// What a tool is called everywhere in Portcullis: `mcp.<server>.<tool>`.
///
/// Split at the first two dots: a server id has none, and a tool name may hold dots, slashes, spaces, stars and
/// any Unicode. Identity is the raw (server, tool) pair, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapabilityId {
    source: Source,
    server: ServerId,
    tool: Arc<str>,
}

impl CapabilityId {
    /// The capability `tool` of the MCP server `server`. The tool's name is kept as it is.
    ///
    /// # Errors
    /// [`ParseError::CapabilityId`] where `tool` is empty: the text could not be read back.
    pub fn mcp(server: ServerId, tool: &str) -> Result<Self, ParseError> {
        Self::new(Source::Mcp, server, tool)
    }

    /// The capability `tool` of `server` (or of a host's group), from `source`.
    ///
    /// # Errors
    /// [`ParseError::CapabilityId`] where `tool` is empty.
    pub fn new(source: Source, server: ServerId, tool: &str) -> Result<Self, ParseError> {
        if tool.is_empty() {
            return Err(ParseError::CapabilityId(format!("{}.{server}.", source.as_str())));
        }
        Ok(Self {
            source,
            server,
            tool: tool.into(),
        })
    }

    /// Where the capability comes from.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The server, or a host's group.
    #[must_use]
    pub fn server(&self) -> &ServerId {
        &self.server
    }

    /// The tool's name, as the server gave it.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The name for the model; see [`Alias`].
    #[must_use]
    pub fn alias(&self) -> Alias {
        Alias::of(self.server.as_str(), &self.tool)
    }
}

impl FromStr for CapabilityId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = || ParseError::CapabilityId(text.to_owned());
        let mut parts = text.splitn(3, '.');
        let source = match parts.next() {
            Some("mcp") => Source::Mcp,
            Some("host") => Source::Host,
            _ => return Err(refuse()),
        };
        let server = parts
            .next()
            .and_then(|part| part.parse().ok())
            .ok_or_else(refuse)?;
        let tool = parts.next().filter(|tool| !tool.is_empty()).ok_or_else(refuse)?;
        Ok(Self {
            source,
            server,
            tool: tool.into(),
        })
    }
}

impl TryFrom<String> for CapabilityId {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<CapabilityId> for String {
    fn from(id: CapabilityId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for CapabilityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.source.as_str(), self.server, self.tool)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_capability_is_refused_with_the_form() {
        for bad in [
            "",
            "mcp",
            "mcp.a",
            "mcp.a.",
            "mcp..b",
            "mcp.A.b",
            "xyz.a.b",
            "mcp.a b.c",
        ] {
            let error = bad.parse::<CapabilityId>().unwrap_err();
            assert!(error.to_string().contains("mcp.<server>.<tool>"), "{error}");
        }
    }

    #[test]
    fn hosts_and_servers_of_one_name_stay_apart() {
        let mcp: CapabilityId = "mcp.github.x".parse().unwrap();
        let host: CapabilityId = "host.github.x".parse().unwrap();
        assert_ne!(mcp, host);
    }

    proptest! {
        #[test]
        fn ids_round_trip(server in "[a-z][a-z0-9-]{0,63}", tool in "(?s).{1,120}") {
            let id = CapabilityId::mcp(server.parse().unwrap(), &tool).unwrap();
            let back: CapabilityId = id.to_string().parse().unwrap();
            prop_assert_eq!(&back, &id);
            prop_assert_eq!(back.tool(), tool);
            prop_assert_eq!(back.server().as_str(), server);
        }
    }
}
