//! What every dialect has in common: a server as it was written, each part with its place, not yet judged.

use std::collections::BTreeSet;

use portcullis_types::{EgressRule, Tier};

use crate::{
    Code, Profile, Protocol,
    fields::{Fields, Pair, place},
    source::Sink,
    value::{Node, Span, Spanned, Value, duplicate_message},
};

/// The longest timeout that any field takes: a day.
pub(crate) const MAX_MILLISECONDS: u64 = 86_400_000;

/// A document as its dialect read it.
#[derive(Default)]
pub(crate) struct DraftDocument {
    pub(crate) servers: Vec<Draft>,
    pub(crate) hub: HubDraft,
    pub(crate) profile: Profile,
    pub(crate) egress: EgressSource,
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
    pub(crate) allowed_hosts: Vec<Spanned<EgressRule>>,
    pub(crate) timeout: Option<Spanned<u64>>,
    pub(crate) policies: Option<Spanned<String>>,
    pub(crate) tier: Option<Spanned<Tier>>,
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
    pub(crate) cwd: Option<Spanned<String>>,
    pub(crate) url: Option<Spanned<String>>,
    pub(crate) has_url: bool,
    pub(crate) headers: Vec<Pair>,
    pub(crate) egress: Vec<Spanned<EgressRule>>,
    pub(crate) timeouts: TimeoutsDraft,
    pub(crate) protocol: Protocol,
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

impl Draft {
    /// Reads what all dialects call by the same names. Whatever only some have, they read themselves; then they
    /// call [`Draft::finish`].
    pub(crate) fn read(
        name: Spanned<String>,
        fields: &mut Fields<'_>,
        value: &Value,
        sink: &mut Sink<'_>,
    ) -> Self {
        let mut duplicates = Vec::new();
        value.duplicates(&mut duplicates);
        let (stdio_fields, http_fields) = match &value.node {
            Node::Object(object) => {
                let find = |names: &[&'static str]| {
                    names
                        .iter()
                        .filter_map(|name| Some((*name, place(object, name)?)))
                        .collect()
                };
                (
                    find(&["args", "env", "inheritEnv", "cwd"]),
                    find(&["headers", "egress"]),
                )
            }
            _ => (Vec::new(), Vec::new()),
        };
        Self {
            name,
            broken: !duplicates.is_empty(),
            description: fields.text("description", sink).map(|text| text.value),
            declared: None,
            has_command: fields.take("command").is_some(),
            command: fields.text("command", sink),
            args: fields.texts("args", sink),
            env: fields.pairs("env", sink),
            inherit_env: Vec::new(),
            cwd: fields.text("cwd", sink),
            has_url: fields.take("url").is_some(),
            url: fields.text("url", sink),
            headers: fields.pairs("headers", sink),
            egress: Vec::new(),
            timeouts: TimeoutsDraft {
                each: fields.number("timeoutMs", MAX_MILLISECONDS, sink),
                long_running: fields.boolean("longRunning", sink).is_some_and(|flag| flag.value),
                ..TimeoutsDraft::default()
            },
            protocol: Protocol::default(),
            enabled: enabled(fields, sink),
            disabled_tools: names(fields.texts("disabledTools", sink)),
            disabled_auto_approve_tools: names(fields.texts("disabledAutoApproveTools", sink)),
            stdio_fields,
            http_fields,
        }
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
    for text in fields.texts(name, sink) {
        match text.value.parse() {
            Ok(value) => rules.push(Spanned {
                value,
                span: text.span,
            }),
            Err(error) => {
                let message = format!("`{name}`: {error}");
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

fn names(texts: Vec<Spanned<String>>) -> BTreeSet<String> {
    texts.into_iter().map(|text| text.value).collect()
}
