//! What several dialects read in one way.

use portcullis_types::ServerId;

use crate::{
    Code, Fate,
    draft::{Declared, Draft, DraftDocument, EgressSource, MAX_MILLISECONDS},
    fields::{Fields, tell_all},
    source::{Sink, quote},
    value::{Member, Node, Spanned},
};

/// Some clients mean seconds by `timeout` (their limit is an hour), others milliseconds.
const LONGEST_IN_SECONDS: u64 = 3_600;

/// What a client's document comes to: desktop rules, and egress from each server's own url.
pub(super) fn document(servers: Vec<Draft>) -> DraftDocument {
    DraftDocument {
        servers,
        egress: EgressSource::Derived,
        ..DraftDocument::default()
    }
}

/// The fields of servers by which one client or another keeps tools or servers out. What is nearly one of them may have
/// been meant to, so a server is not used without it.
pub(super) const RESTRICTS: &[&[&str]] = &[&[
    "disabled",
    "enabled",
    "disabledTools",
    "disabledAutoApproveTools",
    "disabled_tools",
    "enabledTools",
    "enabled_tools",
    "excludeTools",
    "includeTools",
    "allowedTools",
    "available_tools",
]];

/// How a dialect reads one server; `None` where it is left out.
pub(super) type ReadServer = fn(&Spanned<String>, &mut Fields<'_>, &Member, &mut Sink<'_>) -> Option<Draft>;

/// Reads an object of servers by name, each with `read`; `None` where it is no object.
pub(super) fn by_name(
    servers: &Member,
    of: &'static str,
    sink: &mut Sink<'_>,
    read: ReadServer,
) -> Option<Vec<Draft>> {
    let object = Fields::of(&servers.value, of, sink)?.object();
    let mut drafts = Vec::with_capacity(object.members.len());
    for member in &object.members {
        let errors_before = sink.errors();
        sink.enter(Some(&member.key));
        let fields = Fields::of(&member.value, "a server", sink);
        match fields.map(|fields| fields.guarding(RESTRICTS)) {
            Some(mut fields) => match read(&member.key, &mut fields, member, sink) {
                Some(draft) => {
                    fields.finish(sink);
                    drafts.push(draft.finish(errors_before, sink));
                }
                None => left_out(member, sink),
            },
            None => left_out(member, sink),
        }
        sink.enter(None);
    }
    Some(drafts)
}

/// Says of all that is in a member that there is no server for it.
fn left_out(member: &Member, sink: &mut Sink<'_>) {
    if !sink.is_tracing() {
        return;
    }
    let fate = Fate::dropped("the server is left out: see what is said of it");
    match &member.value.node {
        Node::Object(object) => {
            for field in &object.members {
                sink.field(&field.key.value, field.key.span, fate.clone());
                tell_all(&field.key.value, &field.value, &fate, sink);
            }
        }
        _ => sink.field(&member.key.value, member.key.span, fate),
    }
}

/// `type`, which some write as `transport` or `transportType`, in any of its spellings.
pub(super) fn declared(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Option<Declared> {
    let mut found = None;
    for name in ["type", "transport", "transportType"] {
        let Some(text) = fields.text(name, sink) else {
            continue;
        };
        let plain = text.value.to_ascii_lowercase().replace(['-', '_'], "");
        let (this, to) = match plain.as_str() {
            "stdio" => (Declared::Stdio, "command"),
            "http" | "streamablehttp" => (Declared::Http, "url"),
            "sse" => {
                sse(&text, sink);
                continue;
            }
            _ => {
                let message = format!(
                    "`{name}` is {}, which is no transport that is known",
                    quote(&text.value)
                );
                let help =
                    "write `stdio` or `http` (also `streamable-http`, `streamable_http`, `streamableHttp`)";
                sink.error(Code::UnknownTransport, text.span, message, help);
                continue;
            }
        };
        fields.converted(name, to, "the transport follows from `command` or `url`");
        if found.is_some_and(|before| before != this) {
            let message = format!("`{name}` names another transport than a field before it");
            sink.error(Code::TwoTransports, text.span, message, "keep `type` alone");
        }
        found = Some(this);
    }
    found
}

pub(super) fn sse(text: &Spanned<String>, sink: &mut Sink<'_>) {
    let message =
        "`sse` (HTTP+SSE) was replaced in MCP revision 2025-03-26, is deprecated, and is not spoken here";
    let help = "use the server's streamable HTTP endpoint (often `/mcp`) and `\"type\": \"http\"`";
    sink.error(Code::SseRefused, text.span, message, help);
}

/// Other names of `url`; a second url is an error.
pub(super) fn other_urls(
    names: &[&'static str],
    draft: &mut Draft,
    fields: &mut Fields<'_>,
    sink: &mut Sink<'_>,
) {
    for name in names {
        let Some(member) = fields.take(name) else { continue };
        if draft.has_url {
            let message = format!("`{name}` is a second url of one server");
            sink.error(Code::BadUrl, member.key.span, message, "keep `url` alone");
        }
        draft.has_url = true;
        draft.url = fields.text(name, sink).or(draft.url.take());
        fields.carried(name, "url");
    }
}

/// Lists of tools that a client runs unasked, and the like: the policy decides that, and nothing else.
pub(super) fn approvals(names: &[&'static str], draft: &Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    for name in names {
        if let Some(approve) = fields.take(name) {
            fields.dropped(name, "what runs unattended is decided by policy alone");
            let message = format!("`{name}` is not obeyed: what runs unattended is decided by policy alone");
            let help = format!(
                "take it out, and write a policy rule: `allow mcp.{}.<tool>`",
                ServerId::from_display_name(&draft.name.value)
            );
            sink.warning(Code::IgnoredField, approve.key.span, message, help);
        }
    }
}

/// Lists of the only tools that a client offers: the policy decides that as well, and denies what it does not name.
pub(super) fn only_tools(
    names: &[&'static str],
    draft: &Draft,
    fields: &mut Fields<'_>,
    sink: &mut Sink<'_>,
) {
    for name in names {
        if let Some(only) = fields.take(name) {
            fields.dropped(
                name,
                "which tools may be called is decided by policy, tool by tool",
            );
            let message =
                format!("`{name}` does not keep the other tools out: policy decides which may be called");
            let help = format!(
                "write a policy rule for each tool of the list: `allow mcp.{}.<tool>`",
                ServerId::from_display_name(&draft.name.value)
            );
            sink.warning(Code::UnsupportedField, only.key.span, message, help);
        }
    }
}

/// The same for a client whose empty list means all tools.
pub(super) fn only_tools_unless_empty(
    name: &'static str,
    draft: &Draft,
    fields: &mut Fields<'_>,
    sink: &mut Sink<'_>,
) {
    match fields.take(name).map(|member| &member.value.node) {
        Some(Node::List(items)) if items.is_empty() => {
            fields.dropped(name, "an empty list keeps no tool out")
        }
        Some(_) => only_tools(&[name], draft, fields, sink),
        None => {}
    }
}

/// Fields that say how a client logs in to a server.
pub(super) fn logins(names: &[&'static str], fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    for name in names {
        fields.unsupported(
            name,
            "the login that it describes is the client's own; give the token in `headers`, by reference",
            sink,
        );
    }
}

/// `timeoutSeconds`, which says its unit.
pub(super) fn timeout_seconds(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    if let Some(timeout) = fields.seconds("timeoutSeconds", MAX_MILLISECONDS, sink) {
        fields.converted(
            "timeoutSeconds",
            "timeoutMs",
            "seconds are written as milliseconds",
        );
        draft.timeouts.each = Some(timeout);
    }
}

/// `timeout` sets all deadlines alike. Up to 3,600 it is read as seconds, above as milliseconds.
pub(super) fn timeout_of_either_unit(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    let Some(timeout) = fields.number("timeout", MAX_MILLISECONDS, sink) else {
        return;
    };
    if let Some(other) = &draft.timeouts.each {
        let line = sink.source().line(other.span);
        let message = format!("`timeout` is not used: line {line} gives it with its unit");
        fields.dropped("timeout", format!("line {line} gives it with its unit"));
        sink.warning(Code::IgnoredField, timeout.span, message, "take it out");
        return;
    }
    let in_seconds = timeout.value <= LONGEST_IN_SECONDS;
    if in_seconds && timeout.value >= 1_000 {
        let message = format!(
            "`timeout` is taken as {} seconds; some clients mean milliseconds",
            timeout.value
        );
        sink.warning(
            Code::BadValue,
            timeout.span,
            message,
            "write `timeoutSeconds` or `timeoutMs`",
        );
    }
    let value = if in_seconds {
        fields.converted("timeout", "timeoutMs", "taken as seconds");
        timeout.value * 1_000
    } else {
        fields.converted("timeout", "timeoutMs", "taken as milliseconds");
        timeout.value
    };
    draft.timeouts.each = Some(Spanned {
        value,
        span: timeout.span,
    });
}

/// `timeout` in a unit that the dialect's documentation states.
pub(super) fn timeout_in(unit_ms: u64, draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    let Some(member) = fields.take("timeout") else {
        return;
    };
    if matches!(member.value.node, Node::Null) {
        return;
    }
    if let Some(timeout) = fields.number("timeout", MAX_MILLISECONDS / unit_ms, sink) {
        let unit = if unit_ms == 1 {
            "taken as milliseconds"
        } else {
            "taken as seconds"
        };
        fields.converted("timeout", "timeoutMs", unit);
        draft.timeouts.each = Some(Spanned {
            value: timeout.value * unit_ms,
            span: timeout.span,
        });
    }
}
