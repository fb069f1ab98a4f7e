use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use portcullis_config::{ServerSpec, TransportSpec};
use portcullis_policy::ToolFacts;
use portcullis_supervisor::{ServerState, ToolList, UnlistedTool};
use portcullis_types::{Alias, CapabilityId, Hash, ServerId};
use serde::Serialize;

use crate::pins::{PinStanding, ToolPin};

/// An immutable snapshot of all that can be called. The router publishes a new one on each change; calls read it.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tools: BTreeMap<CapabilityId, Arc<CatalogTool>>,
    disabled: BTreeSet<CapabilityId>,
    aliases: HashMap<String, CapabilityId>,
    servers: BTreeMap<ServerId, ServerStatus>,
    unlisted: Vec<Unlisted>,
    reports: Vec<String>,
}

/// One tool of the catalog.
#[derive(Debug, Clone)]
pub struct CatalogTool {
    /// Its name everywhere in Portcullis.
    pub capability: CapabilityId,
    /// Its name for the model.
    pub alias: Alias,
    /// What it says of itself. Data, never instruction.
    pub description: Option<String>,
    /// The whole definition, as the server wrote it: JSON text.
    pub definition: Arc<str>,
    /// What the policies may read of it.
    pub facts: ToolFacts,
    /// Whether it is what was trusted.
    pub pin: ToolPin,
    /// The listing that it comes from.
    pub(crate) version: u64,
}

/// A tool that the configuration restricts, and that is not among those of its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unlisted {
    /// The server.
    pub server: ServerId,
    /// What it is called, and by which field.
    #[serde(flatten)]
    pub tool: UnlistedTool,
}

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.server, self.tool)
    }
}

/// Where a server stands.
#[derive(Debug, Clone, Serialize)]
pub struct ServerStatus {
    /// The state.
    pub state: ServerState,
    /// Why.
    pub reason: String,
    /// Its process, where it is a child that is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How many tools it offers.
    pub tools: usize,
    /// The newest listing that this catalog knows.
    #[serde(skip)]
    pub(crate) version: u64,
    /// Whether it has come up or failed once.
    #[serde(skip)]
    settled: bool,
}

/// Names longer than this, in bytes, are not compared: the comparison takes the product of both lengths.
const LONGEST_MEANT: usize = 128;

/// What stands before each report about a server; an id has no colon.
fn before_reports(server: &ServerId) -> String {
    format!("{server}: ")
}

impl CatalogTool {
    /// The same tool, standing otherwise.
    pub(crate) fn with_pin(&self, pin: ToolPin) -> Self {
        let mut tool = self.clone();
        tool.facts.definition_changed = pin.standing != PinStanding::Trusted;
        tool.pin = pin;
        tool
    }
}

impl Catalog {
    /// The catalog before any server has said a word.
    #[must_use]
    pub(crate) fn new<'a>(specs: impl Iterator<Item = &'a ServerSpec>) -> Self {
        let status = |spec: &ServerSpec| ServerStatus {
            state: if spec.enabled {
                ServerState::Connecting
            } else {
                ServerState::Disabled
            },
            reason: if spec.enabled {
                "starting"
            } else {
                "disabled by the configuration"
            }
            .to_owned(),
            pid: None,
            tools: 0,
            version: 0,
            settled: !spec.enabled,
        };
        Self {
            servers: specs.map(|spec| (spec.id.clone(), status(spec))).collect(),
            ..Self::default()
        }
    }

    /// The tool called `capability`.
    #[must_use]
    pub fn get(&self, capability: &CapabilityId) -> Option<&Arc<CatalogTool>> {
        self.tools.get(capability)
    }

    /// The capability behind an alias.
    #[must_use]
    pub fn resolve_alias(&self, alias: &str) -> Option<&CapabilityId> {
        self.aliases.get(alias)
    }

    /// All offered tools, by capability.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<CatalogTool>> {
        self.tools.values()
    }

    /// All servers, by id.
    #[must_use]
    pub fn servers(&self) -> &BTreeMap<ServerId, ServerStatus> {
        &self.servers
    }

    /// Which tools the configuration restricts that are not among those of their servers: nothing is restricted by these
    /// names.
    #[must_use]
    pub fn unlisted(&self) -> &[Unlisted] {
        &self.unlisted
    }

    /// What was dropped while listing, and why.
    #[must_use]
    pub fn reports(&self) -> &[String] {
        &self.reports
    }

    /// Whether the configuration disables `capability`, which its server offers.
    #[must_use]
    pub fn is_disabled(&self, capability: &CapabilityId) -> bool {
        self.disabled.contains(capability)
    }

    /// True once every server has come up or failed once. One that is on its way up again does not count: nobody
    /// waits for it but its own callers.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.servers.values().all(|status| status.settled)
    }

    pub(crate) fn unlisted_of(&self, server: &ServerId) -> impl Iterator<Item = &Unlisted> {
        self.unlisted
            .iter()
            .filter(move |unlisted| unlisted.server == *server)
    }

    /// Those about one server.
    pub(crate) fn reports_of(&self, server: &ServerId) -> impl Iterator<Item = &String> {
        let name = before_reports(server);
        self.reports
            .iter()
            .filter(move |report| report.starts_with(&name))
    }

    pub(crate) fn version_of(&self, server: &ServerId) -> u64 {
        self.servers.get(server).map_or(0, |status| status.version)
    }

    /// The offered tool of the same server whose name is nearest to `wanted`'s, if any is near.
    pub(crate) fn nearest(&self, wanted: &CapabilityId) -> Option<CapabilityId> {
        if wanted.tool().len() > LONGEST_MEANT {
            return None;
        }
        self.tools
            .keys()
            .filter(|other| other.server() == wanted.server() && other.tool().len() <= LONGEST_MEANT)
            .map(|other| (strsim::damerau_levenshtein(other.tool(), wanted.tool()), other))
            .min()
            .filter(|(distance, _)| *distance <= 1 + wanted.tool().chars().count() / 3)
            .map(|(_, other)| other.clone())
    }

    pub(crate) fn set_state(
        &mut self,
        server: &ServerId,
        state: ServerState,
        reason: String,
        pid: Option<u32>,
    ) {
        if let Some(status) = self.servers.get_mut(server) {
            // One that is tried again has failed, and whoever looks now wants to know at what.
            let failed = matches!(status.state, ServerState::BackingOff | ServerState::Parked);
            status.reason = match state {
                ServerState::Connecting if failed => format!("{reason}, after: {}", status.reason),
                _ => reason,
            };
            status.state = state;
            // Before its first attempt a server is idle.
            status.settled |= !matches!(state, ServerState::Idle | ServerState::Connecting);
            status.pid = pid;
        }
    }

    /// Lets a tool stand otherwise, where it still has the definition that the pin is about. Gives how it stood.
    pub(crate) fn set_pin(&mut self, capability: &CapabilityId, pin: ToolPin) -> Option<PinStanding> {
        let tool = self.tools.get_mut(capability)?;
        if tool.pin.hash != pin.hash || tool.pin == pin {
            return None;
        }
        let before = tool.pin.standing.clone();
        *tool = Arc::new(tool.with_pin(pin));
        Some(before)
    }

    /// Replaces the tools of one server. `pins` are in the list's order; a tool without one is not trusted.
    pub(crate) fn set_tools(&mut self, spec: &ServerSpec, version: u64, list: &ToolList, pins: &[ToolPin]) {
        self.tools.retain(|capability, _| capability.server() != &spec.id);
        self.disabled.retain(|capability| capability.server() != &spec.id);
        let transport = match spec.transport {
            TransportSpec::Stdio(_) => "stdio",
            TransportSpec::Http(_) => "http",
        };
        let unknown = ToolPin {
            hash: Hash::of(b""),
            standing: PinStanding::Unknown("it was not looked up".into()),
        };
        for (position, tool) in list.tools.iter().enumerate() {
            // A tool without a name was dropped by the listing.
            let Ok(capability) = CapabilityId::mcp(spec.id.clone(), &tool.name) else {
                continue;
            };
            if spec.disabled_tools.contains(&tool.name) {
                self.disabled.insert(capability);
                continue;
            }
            let auto_approve = !spec.disabled_auto_approve_tools.contains(&tool.name);
            let mut facts =
                ToolFacts::from_definition(capability.clone(), transport, &tool.definition, auto_approve);
            let pin = pins.get(position).unwrap_or(&unknown).clone();
            facts.definition_changed = pin.standing != PinStanding::Trusted;
            let entry = CatalogTool {
                alias: capability.alias(),
                description: tool.description.clone(),
                definition: Arc::clone(&tool.definition),
                facts,
                pin,
                version,
                capability: capability.clone(),
            };
            self.tools.insert(capability, Arc::new(entry));
        }
        let offered = self
            .tools
            .keys()
            .filter(|capability| capability.server() == &spec.id)
            .count();
        if let Some(status) = self.servers.get_mut(&spec.id) {
            status.tools = offered;
            status.version = version;
        }
        self.unlisted.retain(|unlisted| unlisted.server != spec.id);
        self.unlisted.extend(list.unlisted.iter().map(|tool| Unlisted {
            server: spec.id.clone(),
            tool: tool.clone(),
        }));
        let name = before_reports(&spec.id);
        self.reports.retain(|report| !report.starts_with(&name));
        self.reports
            .extend(list.reports.iter().map(|report| format!("{name}{report}")));
        self.rebuild_aliases();
    }

    /// Two tools of one alias: neither is offered under it, and both are reported.
    fn rebuild_aliases(&mut self) {
        let mut by_alias: BTreeMap<&str, Vec<&CapabilityId>> = BTreeMap::new();
        for tool in self.tools.values() {
            by_alias
                .entry(tool.alias.as_str())
                .or_default()
                .push(&tool.capability);
        }
        let mut aliases = HashMap::new();
        let mut clashes = Vec::new();
        for (alias, capabilities) in by_alias {
            match capabilities.as_slice() {
                [capability] => {
                    aliases.insert(alias.to_owned(), (*capability).clone());
                }
                several => {
                    let names: Vec<_> = several
                        .iter()
                        .map(|capability| format!("`{capability}`"))
                        .collect();
                    clashes.push(format!(
                        "alias `{alias}` would stand for {}; it is offered for none",
                        names.join(" and ")
                    ));
                }
            }
        }
        self.aliases = aliases;
        self.reports.retain(|report| !report.starts_with("alias `"));
        self.reports.extend(clashes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A catalog of one server, on its way up.
    fn catalog() -> (ServerId, Catalog) {
        let server: ServerId = "s".parse().unwrap();
        let status = ServerStatus {
            state: ServerState::Connecting,
            reason: "starting".to_owned(),
            pid: None,
            tools: 0,
            version: 0,
            settled: false,
        };
        let catalog = Catalog {
            servers: BTreeMap::from([(server.clone(), status)]),
            ..Catalog::default()
        };
        (server, catalog)
    }

    #[test]
    fn a_server_is_waited_for_until_it_has_come_up_or_failed_once() {
        for (last, settled) in [
            (ServerState::Ready, true),
            (ServerState::BackingOff, true),
            (ServerState::Parked, true),
            (ServerState::Stopped, true),
            (ServerState::Connecting, false),
            (ServerState::Idle, false),
        ] {
            let (server, mut catalog) = catalog();
            for state in [ServerState::Idle, ServerState::Connecting, last] {
                assert!(!catalog.is_settled());
                catalog.set_state(&server, state, String::new(), None);
            }
            assert_eq!(catalog.is_settled(), settled, "{last}");
            // Once is enough.
            catalog.set_state(&server, ServerState::Connecting, String::new(), None);
            assert_eq!(catalog.is_settled(), settled, "{last}");
        }
    }

    #[test]
    fn a_server_that_is_tried_again_still_says_what_it_failed_at() {
        let (server, mut catalog) = catalog();
        let mut check = |state, reason: &str, told: &str| {
            catalog.set_state(&server, state, reason.to_owned(), None);
            assert_eq!(catalog.servers()[&server].reason, told);
        };
        check(ServerState::Connecting, "the hub started", "the hub started");
        for failure in ["no such file", "no such folder"] {
            check(ServerState::BackingOff, failure, failure);
            let again = format!("the back-off is over, after: {failure}");
            check(ServerState::Connecting, "the back-off is over", &again);
        }
        check(
            ServerState::Ready,
            "the connection stands",
            "the connection stands",
        );
        check(ServerState::Connecting, "its tools changed", "its tools changed");
    }
}
