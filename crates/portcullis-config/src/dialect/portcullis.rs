//! Portcullis' own format: everything under `mcp`, servers as a list, what they may reach stated.

use std::collections::BTreeMap;

use portcullis_types::{AgentId, EgressRule};

use super::mcp_servers::schema;
use crate::{
    Code, Isolation, Profile, Protocol,
    draft::{Draft, DraftDocument, HubDraft, MAX_MILLISECONDS, Names, egress_rules},
    fields::Fields,
    network::NetworkDraft,
    results::{self, ResultsDraft},
    source::{Sink, quote},
    unread::Unread,
    value::{Member, Node, Object, Span, Spanned, Value},
};

/// Fields of the hub that hold for the servers of all documents, and that no other client has. Where one is lost, more
/// may be let through than was meant.
pub(crate) const OF_ALL_DOCUMENTS: &[&str] = &["policies", "tier", "agents", "results", "blobs"];

/// Fields of the hub that restrict. One that is lost lets more through than was meant, for all servers.
const HUB_RESTRICTS: &[&[&str]] = &[
    OF_ALL_DOCUMENTS,
    &["profile", "limits", "disabledTools", "disabledAutoApproveTools"],
    results::NAMES,
    LIMITS,
];

/// The same of a server.
const SERVER_RESTRICTS: &[&[&str]] = &[
    &[
        "disabled",
        "enabled",
        "disabledTools",
        "disabledAutoApproveTools",
        "limits",
    ],
    // Other clients have these.
    &["excludeTools", "includeTools", "allowedTools"],
    LIMITS,
];

/// Fields of the hub that say how calls are decided, for the servers of all documents.
const DECIDES: &[&str] = &["policies", "tier", "agents"];

const LIMITS: &[&str] = &[
    "callsInFlight",
    "callsWaiting",
    "tools",
    "memoryBytes",
    "openFiles",
    "processes",
    "cpuSeconds",
    "fileBytes",
];

pub(super) fn read(root: &Object, own: &Member, sink: &mut Sink<'_>) -> Option<DraftDocument> {
    let mut top = Fields::new(root, "a Portcullis document").guarding(HUB_RESTRICTS);
    top.take("mcp");
    schema(&mut top);
    let lost_beside = is_refused(top, sink);
    let Some(fields) = Fields::of(&own.value, "`mcp`", sink) else {
        // What was to stand in it may stand beside it.
        sink.unread = Unread::ALL;
        return None;
    };
    let mut fields = fields.under("mcp.").guarding(HUB_RESTRICTS);
    let profile = profile(&mut fields, sink);
    // One that is none allows nothing: whoever needs it is told so, and the others do without.
    let allowed_hosts = egress_rules("allowedHosts", &mut fields, sink);
    let before = sink.errors();
    let mut hub = hub(allowed_hosts, &mut fields, sink);
    let servers = fields.take("servers");
    let twice = root.duplicates.iter().any(|twice| twice.key.value == "mcp");
    let of_all = |name: &str| name != "servers";
    hub.broken = sink.errors() > before || twice || fields.object().says_twice(of_all);
    let object = fields.object();
    let has = |name: &&str| object.get(name).is_some();
    let lost = is_refused(fields, sink) || lost_beside;
    let servers = servers_of(own, servers, sink);
    // A profile that could not be read may have been the strict one: nothing of the document is used then.
    let used = servers.zip(profile).filter(|_| !hub.results.broken && !lost);
    // The limits hold for the servers of other documents too, and of a key that stands twice one is left out.
    let is_any_lost = lost || twice;
    let is_half = used.is_none() || hub.broken;
    sink.unread = Unread {
        limits: is_any_lost || hub.results.broken || (hub.results.stated && used.is_none()),
        deciding: is_any_lost || (is_half && DECIDES.iter().any(has)),
        agents: is_any_lost || (is_half && has(&"agents")),
        tier: is_any_lost || (is_half && has(&"tier")),
    };
    let (servers, profile) = used?;
    Some(DraftDocument {
        servers,
        hub,
        profile,
        ..DraftDocument::default()
    })
}

/// Whether a member that nobody asked for may have restricted something.
fn is_refused(fields: Fields<'_>, sink: &mut Sink<'_>) -> bool {
    let before = sink.errors();
    fields.finish(sink);
    sink.errors() > before
}

fn servers_of(own: &Member, servers: Option<&Member>, sink: &mut Sink<'_>) -> Option<Vec<Draft>> {
    let Some(servers) = servers else {
        let help = "add `servers: []`, and each server as an item of it";
        sink.error(Code::MissingField, own.key.span, "`mcp` has no `servers`", help);
        return None;
    };
    match &servers.value.node {
        Node::List(items) => Some(items.iter().filter_map(|item| server(item, sink)).collect()),
        Node::Null => Some(Vec::new()),
        _ => {
            let message = format!("`servers` is {}, and a list is wanted", servers.value.kind());
            let help = "write each server as an item of a list, with its name in `name`";
            sink.error(Code::WrongType, servers.value.span, message, help);
            None
        }
    }
}

fn profile(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Option<Profile> {
    if fields.take("profile").is_none() {
        return Some(Profile::default());
    }
    let text = fields.text("profile", sink)?;
    match text.value.as_str() {
        "desktop" => Some(Profile::Desktop),
        "strict" => Some(Profile::Strict),
        other => {
            let message = format!("`profile` is {}", quote(other));
            sink.error(Code::BadValue, text.span, message, "write `desktop` or `strict`");
            None
        }
    }
}

fn hub(allowed_hosts: Vec<Spanned<EgressRule>>, fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> HubDraft {
    let timeout = fields.number("timeoutMs", MAX_MILLISECONDS, sink);
    let policies = fields.text("policies", sink);
    let tier = fields
        .text("tier", sink)
        .and_then(|text| match text.value.parse() {
            Ok(value) => Some(Spanned {
                value,
                span: text.span,
            }),
            Err(_) => {
                let message = format!("`tier` is {}", quote(&text.value));
                let help = "write `request_approval`, `allow_edits`, `plan` or `full_access`";
                sink.error(Code::BadValue, text.span, message, help);
                None
            }
        });
    HubDraft {
        broken: false,
        allowed_hosts,
        timeout,
        policies,
        tier,
        agents: agents(fields, sink),
        network: NetworkDraft::read(fields, sink),
        results: ResultsDraft::read(fields, sink),
    }
}

/// `agents: {name: profile}`: who belongs to which group of agents that policies speak of.
fn agents(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Option<Spanned<BTreeMap<AgentId, AgentId>>> {
    let span = fields.take("agents")?.key.span;
    let mut agents = BTreeMap::new();
    for pair in fields.pairs("agents", sink) {
        let profile = pair.value.value.parse::<AgentId>();
        for (text, parsed) in [
            (&pair.name, pair.name.value.parse::<AgentId>()),
            (&pair.value, profile.clone()),
        ] {
            if parsed.is_err() {
                let message = format!("{} is no name of an agent or a profile", quote(&text.value));
                let help = "use 1 to 128 characters of A-Z, a-z, 0-9, `.`, `_`, `@` and `-`";
                sink.error(Code::BadValue, text.span, message, help);
            }
        }
        if let (Ok(agent), Ok(profile)) = (pair.name.value.parse(), profile) {
            agents.insert(agent, profile);
        }
    }
    Some(Spanned { value: agents, span })
}

fn server(item: &Value, sink: &mut Sink<'_>) -> Option<Draft> {
    let errors_before = sink.errors();
    sink.enter(None);
    let mut fields = Fields::of(item, "a server", sink)?.guarding(SERVER_RESTRICTS);
    let missing = fields.take("name").is_none();
    let name = fields.text("name", sink);
    let name = name.unwrap_or(Spanned {
        value: String::new(),
        span: item.span,
    });
    sink.enter(Some(&name));
    let names = Names {
        inherit_env: Some("inheritEnv"),
        ..Names::COMMON
    };
    let mut draft = Draft::read(name, &names, &mut fields, item, sink);
    draft.egress = egress_rules("egress", &mut fields, sink);
    draft.network = NetworkDraft::read(&mut fields, sink);
    draft.protocol = protocol(&mut fields, sink);
    timeouts(&mut draft, &mut fields, sink);
    draft.isolation = isolation(&mut fields, sink);
    limits(&mut draft, &mut fields, sink);
    if missing {
        let first = Span {
            start: item.span.start,
            end: item.span.start,
        };
        sink.error(
            Code::MissingField,
            first,
            "a server has no `name`",
            "add `name:`, unique in the hub",
        );
    }
    fields.finish(sink);
    let draft = draft.finish(errors_before, sink);
    sink.enter(None);
    Some(draft)
}

fn protocol(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Protocol {
    let Some(text) = fields.text("protocol", sink) else {
        return Protocol::Auto;
    };
    match text.value.as_str() {
        "auto" => Protocol::Auto,
        "2026-07-28" => Protocol::Modern,
        "initialize" => Protocol::Initialize,
        other => {
            let message = format!("`protocol` is {}", quote(other));
            sink.error(
                Code::BadValue,
                text.span,
                message,
                "write `auto`, `2026-07-28` or `initialize`",
            );
            Protocol::Auto
        }
    }
}

fn timeouts(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    let Some(member) = fields.take("timeouts") else {
        return;
    };
    let Some(each) = Fields::of(&member.value, "`timeouts`", sink) else {
        return;
    };
    let mut each = each.under("timeouts.");
    draft.timeouts.connect = each.number("connectMs", MAX_MILLISECONDS, sink);
    draft.timeouts.list = each.number("listMs", MAX_MILLISECONDS, sink);
    draft.timeouts.call = each.number("callMs", MAX_MILLISECONDS, sink);
    draft.timeouts.call_max = each.number("callMaxMs", MAX_MILLISECONDS, sink);
    each.finish(sink);
}

fn isolation(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Isolation {
    let Some(text) = fields.text("isolation", sink) else {
        return Isolation::default();
    };
    match text.value.as_str() {
        "shared" => Isolation::Shared,
        "per_session" => {
            sink.warning(
                Code::IgnoredField,
                text.span,
                "`isolation: per_session` has no effect yet: a hub has one connection to each server"
                    .to_owned(),
                "write `shared`, or give whoever must not share it a hub of their own",
            );
            Isolation::PerSession
        }
        other => {
            let message = format!("`isolation` is {}", quote(other));
            sink.error(
                Code::BadValue,
                text.span,
                message,
                "write `shared` or `per_session`",
            );
            Isolation::default()
        }
    }
}

fn limits(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    const MAX: u64 = 1_000_000;
    let Some(member) = fields.take("limits") else {
        return;
    };
    let Some(each) = Fields::of(&member.value, "`limits`", sink) else {
        return;
    };
    let mut each = each.under("limits.").of_limits();
    draft.limits.calls_in_flight = each.number("callsInFlight", MAX, sink);
    draft.limits.calls_waiting = each.number("callsWaiting", MAX, sink);
    draft.limits.tools = each.number("tools", MAX, sink);
    draft.limits.memory_bytes = each.number("memoryBytes", u64::MAX, sink);
    draft.limits.open_files = each.number("openFiles", MAX, sink);
    draft.limits.processes = each.number("processes", MAX, sink);
    draft.limits.cpu_seconds = each.number("cpuSeconds", u64::MAX, sink);
    draft.limits.file_bytes = each.number("fileBytes", u64::MAX, sink);
    each.finish(sink);
}
