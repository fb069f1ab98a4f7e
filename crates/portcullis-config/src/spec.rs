use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use portcullis_types::{EgressRule, Hash, ServerId};
use url::Url;

use crate::Template;

/// One MCP server, whatever dialect it was written in: all that the supervisor needs to start or reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// Unique in a hub.
    pub id: ServerId,
    /// The name as the document has it.
    pub display_name: String,
    /// What the document says of it, for people.
    pub description: Option<String>,
    /// How it is started or reached.
    pub transport: TransportSpec,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Which era of the protocol it speaks.
    pub protocol: Protocol,
    /// False where the document disables it: it is listed, and never started.
    pub enabled: bool,
    /// Raw names of tools that are not offered; a call of one is refused as disabled.
    pub disabled_tools: BTreeSet<String>,
    /// Raw names of tools that always ask (the floor).
    pub disabled_auto_approve_tools: BTreeSet<String>,
    /// Where it was written.
    pub origin: Origin,
}

/// How a server is started or reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportSpec {
    /// A child process, spoken to on its standard input and output.
    Stdio(StdioSpec),
    /// A streamable HTTP endpoint.
    Http(HttpSpec),
}

/// A child process. Its environment is the stated base, then `inherit_env`, then `env`; nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioSpec {
    /// An absolute path.
    pub program: PathBuf,
    /// Arguments; references are resolved at spawn.
    pub args: Vec<Template>,
    /// Variables set for it.
    pub env: BTreeMap<String, Template>,
    /// Names of variables that are taken over from the hub's environment.
    pub inherit_env: BTreeSet<String>,
    /// Its working directory; the hub's own where none is given.
    pub cwd: Option<PathBuf>,
}

/// A streamable HTTP endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSpec {
    /// `http` or `https`.
    pub url: Url,
    /// Headers sent with each request; references are resolved when the connection is made.
    pub headers: BTreeMap<String, Template>,
    /// Where it may connect. The guarded client refuses everything else.
    pub egress: Vec<EgressRule>,
}

/// Deadlines of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From spawn to the end of the handshake.
    pub connect: Duration,
    /// For all pages of a list together.
    pub list: Duration,
    /// For a call without progress; progress renews it.
    pub call: Duration,
    /// For a call, however much it progresses.
    pub call_max: Duration,
}

impl Timeouts {
    /// The default of a server that says nothing: 30 s, and ten times that as a call's cap.
    pub const DEFAULT: Duration = Duration::from_secs(30);

    /// Connect, list and call share `each`; a call's cap is ten times that.
    #[must_use]
    pub fn uniform(each: Duration) -> Self {
        Self {
            connect: each,
            list: each,
            call: each,
            call_max: each.saturating_mul(10),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::uniform(Self::DEFAULT)
    }
}

/// Which era of the protocol a server is spoken to in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// `server/discover` first, `initialize` on a fresh connection where that fails; remembered.
    #[default]
    Auto,
    /// Revision 2026-07-28 only: stateless, `server/discover`.
    Modern,
    /// Revision 2025-11-25 or older: `initialize`.
    Initialize,
}

/// Where a server was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The document's name, as the caller gave it.
    pub file: String,
    /// The entry's first line, counted from 1; 0 where a host gave it in code.
    pub line: usize,
}

impl ServerSpec {
    /// blake3 over the canonical form of all that matters to a running server. Two specs with one fingerprint
    /// need no restart. Where it was written and what is said for people do not count.
    #[must_use]
    pub fn fingerprint(&self) -> Hash {
        let mut hasher = blake3::Hasher::new();
        let mut field = |name: &str, value: &str| {
            // Lengths keep two fields from running into each other.
            hasher.update(format!("{name}:{}:{value};", value.len()).as_bytes());
        };
        field("id", self.id.as_str());
        match &self.transport {
            TransportSpec::Stdio(stdio) => {
                field("program", &stdio.program.to_string_lossy());
                stdio.args.iter().for_each(|arg| field("arg", arg.source()));
                stdio.env.iter().for_each(|(name, value)| {
                    field("env-name", name);
                    field("env-value", value.source());
                });
                stdio.inherit_env.iter().for_each(|name| field("inherit", name));
                field(
                    "cwd",
                    &stdio
                        .cwd
                        .as_ref()
                        .map(|cwd| cwd.to_string_lossy().into_owned())
                        .unwrap_or_default(),
                );
            }
            TransportSpec::Http(http) => {
                field("url", http.url.as_str());
                http.headers.iter().for_each(|(name, value)| {
                    field("header-name", name);
                    field("header-value", value.source());
                });
                http.egress
                    .iter()
                    .for_each(|rule| field("egress", &rule.to_string()));
            }
        }
        field("timeouts", &format!("{:?}", self.timeouts));
        field("protocol", &format!("{:?}", self.protocol));
        field("enabled", &self.enabled.to_string());
        self.disabled_tools
            .iter()
            .for_each(|tool| field("disabled-tool", tool));
        self.disabled_auto_approve_tools
            .iter()
            .for_each(|tool| field("disabled-auto-approve", tool));
        Hash::from_bytes(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ServerSpec {
        ServerSpec {
            id: "a".parse().unwrap(),
            display_name: "a".to_owned(),
            description: None,
            transport: TransportSpec::Stdio(StdioSpec {
                program: "/bin/x".into(),
                args: vec![Template::parse("one"), Template::parse("two")],
                env: BTreeMap::from([("A".to_owned(), Template::parse("1"))]),
                inherit_env: BTreeSet::from(["B".to_owned()]),
                cwd: None,
            }),
            timeouts: Timeouts::default(),
            protocol: Protocol::Auto,
            enabled: true,
            disabled_tools: BTreeSet::new(),
            disabled_auto_approve_tools: BTreeSet::new(),
            origin: Origin::default(),
        }
    }

    #[test]
    fn whatever_matters_to_a_running_server_changes_its_fingerprint() {
        let stdio = |change: fn(&mut StdioSpec)| {
            let mut spec = spec();
            if let TransportSpec::Stdio(stdio) = &mut spec.transport {
                change(stdio);
            }
            spec
        };
        let with = |change: fn(&mut ServerSpec)| {
            let mut spec = spec();
            change(&mut spec);
            spec
        };
        let all = [
            spec(),
            stdio(|s| s.program = "/bin/y".into()),
            stdio(|s| s.args = vec![Template::parse("onetwo")]),
            stdio(|s| s.args.reverse()),
            stdio(|s| s.env = BTreeMap::from([("A".to_owned(), Template::parse("2"))])),
            stdio(|s| s.inherit_env = BTreeSet::from(["C".to_owned()])),
            stdio(|s| s.cwd = Some("/".into())),
            with(|s| s.id = "b".parse().unwrap()),
            with(|s| s.timeouts.call_max = Duration::from_secs(1)),
            with(|s| s.protocol = Protocol::Modern),
            with(|s| s.enabled = false),
            with(|s| s.disabled_tools = BTreeSet::from(["t".to_owned()])),
            with(|s| s.disabled_auto_approve_tools = BTreeSet::from(["t".to_owned()])),
        ];
        let distinct: BTreeSet<_> = all.iter().map(ServerSpec::fingerprint).collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn what_is_for_people_does_not_change_the_fingerprint() {
        let mut moved = spec();
        moved.origin = Origin {
            file: "x".to_owned(),
            line: 7,
        };
        moved.description = Some("d".to_owned());
        moved.display_name = "A".to_owned();
        assert_eq!(moved.fingerprint(), spec().fingerprint());
    }
}
