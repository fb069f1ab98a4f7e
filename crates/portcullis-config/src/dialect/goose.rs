//! Goose' YAML: `extensions: {name: {type: stdio, cmd, args, envs, env_keys} or {type: streamable_http, uri}}`.

use super::common;
use crate::{
    Code,
    draft::{Declared, Draft, DraftDocument, Names},
    fields::Fields,
    source::{Sink, quote},
    value::{Member, Object, Spanned},
};

pub(super) fn read(root: &Object, extensions: &Member, sink: &mut Sink<'_>) -> Option<DraftDocument> {
    let mut top = Fields::new(root, "a Goose document");
    top.take("extensions");
    top.finish_settings(sink);
    Some(common::document(common::by_name(
        extensions,
        "`extensions`",
        sink,
        server,
    )?))
}

fn server(
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
    Some(draft)
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
