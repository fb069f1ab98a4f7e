//! Goose' YAML: `extensions: {name: {type: stdio, cmd, args, envs, env_keys} or {type: streamable_http, uri}}`. All but
//! `enabled` and `name` may stand one deeper, under `config`.

use super::common;
use crate::{
    Code,
    draft::{Declared, Draft, Names},
    fields::Fields,
    source::{Sink, quote},
    value::{Member, Spanned},
};

pub(super) fn server(
    name: &Spanned<String>,
    fields: &mut Fields<'_>,
    member: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let nested = ["type", "cmd", "uri"]
        .iter()
        .all(|field| fields.object().get(field).is_none());
    match fields.object().get("config").filter(|_| nested) {
        Some(config) => beneath(name, fields, config, sink),
        None => extension(name, fields, member, sink),
    }
}

/// An entry whose fields stand under `config`.
fn beneath(
    name: &Spanned<String>,
    outer: &mut Fields<'_>,
    config: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let errors_before = sink.errors();
    outer.take("config");
    let enabled = outer.boolean("enabled", sink);
    labels(outer);
    // Without a readable object there nothing is said of the server.
    let Some(inner) = Fields::of(&config.value, "`config`", sink) else {
        outer.dropped("config", "it is no object");
        return None;
    };
    let mut inner = inner.under("config.").lifted().guarding(common::RESTRICTS);
    let mut draft = extension(name, &mut inner, config, sink)?;
    inner.finish(sink);
    outer.converted("config", "command, args, env", "its parts stand beside the name");
    draft.enabled &= enabled.is_none_or(|flag| flag.value);
    draft.broken |= sink.errors() > errors_before;
    Some(draft)
}

/// The fields of an entry, wherever they stand.
fn extension(
    name: &Spanned<String>,
    fields: &mut Fields<'_>,
    member: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let kind = fields.text("type", sink);
    if let Some(kind) = &kind
        && matches!(
            kind.value.as_str(),
            "builtin" | "platform" | "frontend" | "inline_python"
        )
    {
        let message = format!(
            "the extension {} is part of Goose itself ({}), and no server that another could start",
            quote(&name.value),
            quote(&kind.value)
        );
        let help = "nothing to do: it is left out";
        sink.warning(Code::UnsupportedField, kind.span, message, help);
        return None;
    }
    let names = Names {
        command: Some("cmd"),
        env: Some("envs"),
        env_file: None,
        inherit_env: Some("env_keys"),
        url: Some("uri"),
        timeout_ms: None,
        ..Names::COMMON
    };
    let mut draft = Draft::read(name.clone(), &names, fields, &member.value, sink);
    common::other_urls(&["url"], &mut draft, fields, sink);
    draft.declared = kind.and_then(|kind| declared(&kind, fields, sink));
    common::timeout_in(1_000, &mut draft, fields, sink);
    common::only_tools_unless_empty("available_tools", &draft, fields, sink);
    labels(fields);
    Some(draft)
}

/// What says something for people, or of where Goose has the extension from.
fn labels(fields: &mut Fields<'_>) {
    for (field, why) in [
        ("name", "the server is called by the key that it stands under"),
        (
            "display_name",
            "the server is called by the key that it stands under",
        ),
        ("bundled", "it says where Goose took the extension from"),
        (
            "socket",
            "servers are reached over the network, not over a local socket",
        ),
    ] {
        if fields.take(field).is_some() {
            fields.dropped(field, why);
        }
    }
}

fn declared(kind: &Spanned<String>, fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Option<Declared> {
    let (declared, to) = match kind.value.as_str() {
        "stdio" => (Declared::Stdio, "command"),
        "streamable_http" | "streamablehttp" | "http" => (Declared::Http, "url"),
        "sse" => {
            common::sse(kind, sink);
            return None;
        }
        other => {
            let message = format!("`type` is {}, which is no transport that is known", quote(other));
            let help = "write `stdio` or `streamable_http`";
            sink.error(Code::UnknownTransport, kind.span, message, help);
            return None;
        }
    };
    fields.converted("type", to, "the transport follows from `command` or `url`");
    Some(declared)
}
