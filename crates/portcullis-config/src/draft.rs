//! What every dialect has in common: a server as it was written, each part with its place, not yet judged.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::{AgentId, EgressRule, Tier};

use crate::{
    Code, Isolation, Profile, Protocol,
    fields::{Fields, Pair, place},
    network::NetworkDraft,
    results::ResultsDraft,
    source::Sink,
    value::{Node, Span, Spanned, Value, duplicate_message},
};

/// The longest timeout that any field takes: a day.
pub(crate) const MAX_MILLISECONDS: u64 = 86_400_000;

/// The most egress rules in one list: each server's url is held against all of them.
const MAX_RULES: usize = 256;

/// A document as its dialect read it.
#[derive(Default)]
pub(crate) struct DraftDocument {
    pub(crate) servers: Vec<Draft>,
    pub(crate) hub: HubDraft,
    pub(crate) profile: Profile,
    pub(crate) egress: EgressSource,
    /// The plugin that declares the servers, where the document is a plugin's manifest.
    pub(crate) plugin: Option<String>,
}

/// Where the egress rules of HTTP servers come from.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EgressSource {
    /// From what the document allows; a url that it does not cover is an error.
    #[default]
    Listed,
    /// From each server's own url: that scheme, host and port.
    Derived,
}

/// What a document says for all its servers, and for the hub.
#[derive(Default)]
pub(crate) struct HubDraft {
    /// Whether something that holds for all its servers could not be read, so that none of them is to be started.
    pub(crate) broken: bool,
    pub(crate) allowed_hosts: Vec<Spanned<EgressRule>>,
    pub(crate) timeout: Option<Spanned<u64>>,
    pub(crate) policies: Option<Spanned<String>>,
    pub(crate) tier: Option<Spanned<Tier>>,
    pub(crate) agents: Option<Spanned<BTreeMap<AgentId, AgentId>>>,
    /// The way to all HTTP servers.
    pub(crate) network: NetworkDraft,
    pub(crate) results: ResultsDraft,
}

pub(crate) struct Draft {
    pub(crate) name: Spanned<String>,
    /// Whether something in it could not be read: it is judged all the same, for the sake of further errors.
    pub(crate) broken: bool,
    pub(crate) description: Option<String>,
    pub(crate) declared: Option<Declared>,
    pub(crate) command: Option<Spanned<String>>,
    pub(crate) has_command: bool,
    pub(crate) args: Vec<Spanned<String>>,
    pub(crate) env: Vec<Pair>,
    pub(crate) inherit_env: Vec<Spanned<String>>,
    pub(crate) env_file: Option<Spanned<String>>,
    pub(crate) cwd: Option<Spanned<String>>,
    pub(crate) url: Option<Spanned<String>>,
    pub(crate) has_url: bool,
    pub(crate) headers: Vec<Pair>,
    pub(crate) egress: Vec<Spanned<EgressRule>>,
    /// The way to this one.
    pub(crate) network: NetworkDraft,
    pub(crate) timeouts: TimeoutsDraft,
    pub(crate) protocol: Protocol,
    pub(crate) isolation: Isolation,
    pub(crate) limits: LimitsDraft,
    pub(crate) enabled: bool,
    pub(crate) disabled_tools: BTreeSet<String>,
    pub(crate) disabled_auto_approve_tools: BTreeSet<String>,
    /// Fields that say something only of a child process, and those only of an endpoint.
    pub(crate) stdio_fields: Vec<(&'static str, Span)>,
    pub(crate) http_fields: Vec<(&'static str, Span)>,
}

/// The transport that a document names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared {
    Stdio,
    Http,
}

/// In milliseconds.
#[derive(Default)]
pub(crate) struct TimeoutsDraft {
    pub(crate) each: Option<Spanned<u64>>,
    pub(crate) connect: Option<Spanned<u64>>,
    pub(crate) list: Option<Spanned<u64>>,
    pub(crate) call: Option<Spanned<u64>>,
    pub(crate) call_max: Option<Spanned<u64>>,
    pub(crate) long_running: bool,
}

#[derive(Default)]
pub(crate) struct LimitsDraft {
    pub(crate) calls_in_flight: Option<Spanned<u64>>,
    pub(crate) calls_waiting: Option<Spanned<u64>>,
    pub(crate) tools: Option<Spanned<u64>>,
    pub(crate) memory_bytes: Option<Spanned<u64>>,
    pub(crate) open_files: Option<Spanned<u64>>,
    pub(crate) processes: Option<Spanned<u64>>,
    pub(crate) cpu_seconds: Option<Spanned<u64>>,
    pub(crate) file_bytes: Option<Spanned<u64>>,
}

/// What a dialect calls the fields that all of them have in some way; `None` where it has no such field, or one
/// that it reads itself.
pub(crate) struct Names {
    pub(crate) description: Option<&'static str>,
    pub(crate) command: Option<&'static str>,
    pub(crate) args: Option<&'static str>,
    pub(crate) env: Option<&'static str>,
    pub(crate) env_file: Option<&'static str>,
    pub(crate) inherit_env: Option<&'static str>,
    pub(crate) cwd: Option<&'static str>,
    pub(crate) url: Option<&'static str>,
    pub(crate) headers: Option<&'static str>,
    pub(crate) timeout_ms: Option<&'static str>,
    pub(crate) disabled_tools: Option<&'static str>,
}

impl Names {
    pub(crate) const COMMON: Self = Self {
        description: Some("description"),
        command: Some("command"),
        args: Some("args"),
        env: Some("env"),
        env_file: Some("envFile"),
        inherit_env: None,
        cwd: Some("cwd"),
        url: Some("url"),
        headers: Some("headers"),
        timeout_ms: Some("timeoutMs"),
        disabled_tools: Some("disabledTools"),
    };
}

impl Draft {
    /// Reads what all dialects call by the same names. Whatever only some have, they read themselves; then they
    /// call [`Draft::finish`].
    pub(crate) fn read(
        name: Spanned<String>,
        names: &Names,
        fields: &mut Fields<'_>,
        value: &Value,
        sink: &mut Sink<'_>,
    ) -> Self {
        let mut duplicates = Vec::new();
        value.duplicates(&mut duplicates);
        let (stdio_fields, http_fields) = match &value.node {
            Node::Object(object) => {
                let find = |names: &[Option<&'static str>]| {
                    names
                        .iter()
                        .flatten()
                        .filter_map(|name| Some((*name, place(object, name)?)))
                        .collect()
                };
                (
                    find(&[
                        names.args,
                        names.env,
                        names.env_file,
                        names.inherit_env,
                        names.cwd,
                    ]),
                    find(&[
                        names.headers,
                        Some("egress"),
                        Some("proxy"),
                        Some("rootCertificates"),
                    ]),
                )
            }
            _ => (Vec::new(), Vec::new()),
        };
        let has = |name: Option<&'static str>, fields: &mut Fields<'_>| {
            name.is_some_and(|name| fields.take(name).is_some())
        };
        Self {
            name,
            broken: !duplicates.is_empty(),
            description: text(names.description, "description", fields, sink).map(|text| text.value),
            declared: None,
            has_command: has(names.command, fields),
            command: text(names.command, "command", fields, sink),
            args: texts(names.args, "args", fields, sink),
            env: pairs(names.env, "env", fields, sink),
            env_file: text(names.env_file, "envFile", fields, sink),
            inherit_env: texts(names.inherit_env, "inheritEnv", fields, sink),
            cwd: text(names.cwd, "cwd", fields, sink),
            has_url: has(names.url, fields),
            url: text(names.url, "url", fields, sink),
            headers: pairs(names.headers, "headers", fields, sink),
            egress: Vec::new(),
            network: NetworkDraft::default(),
            timeouts: TimeoutsDraft {
                each: names
                    .timeout_ms
                    .and_then(|name| fields.number(name, MAX_MILLISECONDS, sink)),
                long_running: fields.boolean("longRunning", sink).is_some_and(|flag| flag.value),
                ..TimeoutsDraft::default()
            },
            protocol: Protocol::default(),
            isolation: Isolation::default(),
            limits: LimitsDraft::default(),
            enabled: enabled(fields, sink),
            disabled_tools: unique(texts(names.disabled_tools, "disabledTools", fields, sink)),
            disabled_auto_approve_tools: unique(fields.texts("disabledAutoApproveTools", sink)),
            stdio_fields,
            http_fields,
        }
    }

    /// Takes a program and its arguments from one list, as some dialects write them.
    pub(crate) fn command_list(&mut self, name: &'static str, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
        let Some(member) = fields.take(name) else { return };
        self.has_command = true;
        if matches!(member.value.node, Node::Text(_)) {
            let message =
                format!("`{name}` is a text, and a list of the program and its arguments is wanted");
            let help = "write a list: `[\"program\", \"argument\"]`; no shell splits a text";
            sink.error(Code::WrongType, member.value.span, message, help);
            return;
        }
        let mut texts = fields.texts(name, sink);
        if texts.is_empty() {
            if matches!(&member.value.node, Node::List(items) if items.is_empty()) {
                let message = format!("`{name}` is an empty list");
                sink.error(
                    Code::BadValue,
                    member.value.span,
                    message,
                    "name the program first, then its arguments",
                );
            }
            return;
        }
        let args = texts.split_off(1);
        self.command = texts.pop();
        self.args = args;
        fields.converted(
            name,
            "command, args",
            "the first of the list is the program, the rest are its arguments",
        );
    }

    /// Notes whether anything went wrong since `errors_before`.
    pub(crate) fn finish(mut self, errors_before: usize, sink: &Sink<'_>) -> Self {
        self.broken |= sink.errors() > errors_before;
        self
    }
}

/// A list of egress rules; those that are none are reported.
pub(crate) fn egress_rules(
    name: &'static str,
    fields: &mut Fields<'_>,
    sink: &mut Sink<'_>,
) -> Vec<Spanned<EgressRule>> {
    let mut rules = Vec::new();
    for (text, count) in fields.texts(name, sink).into_iter().zip(1..) {
        if count > MAX_RULES {
            let message = format!("`{name}` has more than {MAX_RULES} rules");
            let help = "write one rule for many hosts: `*.example.com`";
            sink.error(Code::BadValue, text.span, message, help);
            break;
        }
        match text.value.parse() {
            Ok(value) => rules.push(Spanned {
                value,
                span: text.span,
            }),
            Err(error) => {
                // What stands before an `@` may be a password.
                let message = match text.value.contains('@') {
                    true => format!("an item of `{name}` holds a user or a password, and rules have none"),
                    false => format!("`{name}`: {error}"),
                };
                sink.error(
                    Code::BadValue,
                    text.span,
                    message,
                    "for example `example.com` or `http://127.0.0.1:8080`",
                );
            }
        }
    }
    rules
}

/// Reports each key of the document that stands twice, once.
pub(crate) fn report_duplicates(root: &Value, sink: &mut Sink<'_>) {
    let mut duplicates = Vec::new();
    root.duplicates(&mut duplicates);
    for duplicate in duplicates {
        let message = duplicate_message(duplicate, sink.source());
        sink.error(
            Code::DuplicateKey,
            duplicate.key.span,
            message,
            "keep one of the two",
        );
    }
}

/// The document's word on whether the server runs. Where it says both, the one that keeps it from running counts.
fn enabled(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> bool {
    let disabled = fields.boolean("disabled", sink);
    let enabled = fields.boolean("enabled", sink);
    if let (Some(disabled), Some(enabled)) = (&disabled, &enabled)
        && disabled.value == enabled.value
    {
        let message = "`disabled` and `enabled` contradict each other: the server stays disabled";
        sink.warning(Code::IgnoredField, enabled.span, message, "keep one of the two");
    }
    !disabled.is_some_and(|flag| flag.value) && enabled.is_none_or(|flag| flag.value)
}

fn text(
    name: Option<&'static str>,
    to: &str,
    fields: &mut Fields<'_>,
    sink: &mut Sink<'_>,
) -> Option<Spanned<String>> {
    let name = name?;
    if name != to {
        fields.carried(name, to);
    }
    fields.text(name, sink)
}

fn texts(
    name: Option<&'static str>,
    to: &str,
    fields: &mut Fields<'_>,
    sink: &mut Sink<'_>,
) -> Vec<Spanned<String>> {
    let Some(name) = name else { return Vec::new() };
    if name != to {
        fields.carried(name, to);
    }
    fields.texts(name, sink)
}

fn pairs(name: Option<&'static str>, to: &str, fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Vec<Pair> {
    let Some(name) = name else { return Vec::new() };
    if name != to {
        fields.carried(name, to);
    }
    fields.pairs_as(name, to, sink)
}

fn unique(texts: Vec<Spanned<String>>) -> BTreeSet<String> {
    texts.into_iter().map(|text| text.value).collect()
}
