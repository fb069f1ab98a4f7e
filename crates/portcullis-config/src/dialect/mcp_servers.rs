//! `{"mcpServers": {name: {…}}}`, as Claude Desktop, Claude Code, Cursor, Cline and Windsurf write it.

use crate::{
    Code, Profile,
    draft::{Declared, Draft, DraftDocument, EgressSource, HubDraft, MAX_MILLISECONDS},
    fields::Fields,
    source::{Sink, quote},
    value::{Member, Object, Spanned},
};

/// Some clients mean seconds by `timeout` (their limit is an hour), others milliseconds.
const LONGEST_IN_SECONDS: u64 = 3_600;

pub(super) fn read(root: &Object, servers: &Member, sink: &mut Sink<'_>) -> Option<DraftDocument> {
    let mut top = Fields::new(root, "an `mcpServers` document");
    top.take("mcpServers");
    top.take("$schema");
    top.finish(sink);
    Fields::of(&servers.value, "`mcpServers`", sink)?;
    let crate::value::Node::Object(object) = &servers.value.node else {
        return None;
    };
    let servers = object
        .members
        .iter()
        .filter_map(|member| server(member, sink))
        .collect();
    Some(DraftDocument {
        servers,
        hub: HubDraft::default(),
        profile: Profile::Desktop,
        egress: EgressSource::Derived,
    })
}

fn server(member: &Member, sink: &mut Sink<'_>) -> Option<Draft> {
    let errors_before = sink.errors();
    sink.enter(Some(&member.key.value));
    let Some(mut fields) = Fields::of(&member.value, "a server", sink) else {
        sink.enter(None);
        return None;
    };
    let mut draft = Draft::read(member.key.clone(), &mut fields, &member.value, sink);
    draft.declared = declared(&mut fields, sink);
    other_urls(&mut draft, &mut fields, sink);
    timeout(&mut draft, &mut fields, sink);
    for name in ["autoApprove", "alwaysAllow"] {
        if let Some(approve) = fields.take(name) {
            let message = format!("`{name}` is not obeyed: what runs unattended is decided by policy alone");
            let help = format!(
                "take it out, and write a policy rule: `allow mcp.{}.<tool>`",
                id_of(&member.key)
            );
            sink.warning(Code::IgnoredField, approve.key.span, message, help);
        }
    }
    fields.unsupported("envFile", "variables are taken from `env` alone", sink);
    fields.finish(sink);
    let draft = draft.finish(errors_before, sink);
    sink.enter(None);
    Some(draft)
}

fn id_of(name: &Spanned<String>) -> portcullis_types::ServerId {
    portcullis_types::ServerId::from_display_name(&name.value)
}

/// `type`, which some write as `transport` or `transportType`, in any of its spellings.
fn declared(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Option<Declared> {
    let mut found = None;
    for name in ["type", "transport", "transportType"] {
        let Some(text) = fields.text(name, sink) else {
            continue;
        };
        let plain = text.value.to_ascii_lowercase().replace(['-', '_'], "");
        let this = match plain.as_str() {
            "stdio" => Declared::Stdio,
            "http" | "streamablehttp" => Declared::Http,
            "sse" => {
                let message = "`sse` (HTTP+SSE) was replaced in MCP revision 2025-03-26, is deprecated, and is not spoken here";
                let help =
                    "use the server's streamable HTTP endpoint (often `/mcp`) and `\"type\": \"http\"`";
                sink.error(Code::SseRefused, text.span, message, help);
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
        if found.is_some_and(|before| before != this) {
            let message = format!("`{name}` names another transport than a field before it");
            sink.error(Code::TwoTransports, text.span, message, "keep `type` alone");
        }
        found = Some(this);
    }
    found
}

/// Windsurf writes `serverUrl`, others `httpUrl`.
fn other_urls(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    for name in ["serverUrl", "httpUrl"] {
        let Some(member) = fields.take(name) else { continue };
        if draft.has_url {
            let message = format!("`{name}` is a second url of one server");
            sink.error(Code::BadUrl, member.key.span, message, "keep `url` alone");
        }
        draft.has_url = true;
        draft.url = fields.text(name, sink).or(draft.url.take());
    }
}

/// `timeout` sets all deadlines alike. Up to 3,600 it is read as seconds, above as milliseconds.
fn timeout(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    if let Some(seconds) = fields.number("timeoutSeconds", MAX_MILLISECONDS / 1_000, sink) {
        draft.timeouts.each = Some(Spanned {
            value: seconds.value * 1_000,
            span: seconds.span,
        });
    }
    let Some(timeout) = fields.number("timeout", MAX_MILLISECONDS, sink) else {
        return;
    };
    if let Some(other) = &draft.timeouts.each {
        let line = sink.source().line(other.span);
        let message = format!("`timeout` is not used: line {line} gives it with its unit");
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
        timeout.value * 1_000
    } else {
        timeout.value
    };
    draft.timeouts.each = Some(Spanned {
        value,
        span: timeout.span,
    });
}
