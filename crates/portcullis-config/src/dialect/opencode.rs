//! opencode: `{"mcp": {name: {"type": "local", "command": […]} or {"type": "remote", "url": …}}}`, and its second
//! version, which has the servers under `mcp.servers`.

use super::{common, mcp_servers::schema};
use crate::{
    Code,
    draft::{Declared, Draft, DraftDocument, Names},
    fields::Fields,
    source::{Sink, quote},
    value::{Member, Node, Object, Spanned},
};

pub(super) fn read(root: &Object, mcp: &Member, sink: &mut Sink<'_>) -> Option<DraftDocument> {
    let mut top = Fields::new(root, "an opencode document");
    top.take("mcp");
    schema(&mut top);
    top.finish_settings(sink);
    let mut servers = mcp;
    if let Node::Object(object) = &mcp.value.node
        && let Some(second) = object.get("servers")
        && !matches!(&second.value.node, Node::Object(server) if server.get("type").is_some_and(|kind| kind.value.scalar().is_some()))
    {
        let mut fields = Fields::new(object, "`mcp`").under("mcp.");
        fields.take("servers");
        fields.unsupported("timeout", "give a server its own `timeout`", sink);
        fields.finish(sink);
        servers = second;
    }
    Some(common::document(common::by_name(servers, "`mcp`", sink, server)?))
}

fn server(
    name: &Spanned<String>,
    fields: &mut Fields<'_>,
    member: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let names = Names {
        command: None,
        args: None,
        env: Some("environment"),
        env_file: None,
        ..Names::COMMON
    };
    let mut draft = Draft::read(name.clone(), &names, fields, &member.value, sink);
    draft.command_list("command", fields, sink);
    draft.declared = kind(fields, sink);
    timeout(&mut draft, fields, sink);
    common::logins(&["oauth"], fields, sink);
    Some(draft)
}

/// One number for all, or an object of several.
fn timeout(draft: &mut Draft, fields: &mut Fields<'_>, sink: &mut Sink<'_>) {
    let member = fields.take("timeout");
    let Some(Node::Object(object)) = member.map(|member| &member.value.node) else {
        common::timeout_in(1, draft, fields, sink);
        return;
    };
    let mut each = Fields::new(object, "`timeout`").under("timeout.");
    let max = crate::draft::MAX_MILLISECONDS;
    draft.timeouts.connect = each.number("startup", max, sink);
    draft.timeouts.list = each.number("catalog", max, sink);
    draft.timeouts.call = each.number("execution", max, sink);
    for (name, to) in [
        ("startup", "timeouts.connectMs"),
        ("catalog", "timeouts.listMs"),
        ("execution", "timeouts.callMs"),
    ] {
        each.carried(name, to);
    }
    each.finish(sink);
    fields.carried("timeout", "timeouts");
}

fn kind(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Option<Declared> {
    let text = fields.text("type", sink)?;
    let (declared, to) = match text.value.as_str() {
        "local" => (Declared::Stdio, "command"),
        "remote" => (Declared::Http, "url"),
        other => {
            let message = format!("`type` is {}, which is no transport that is known", quote(other));
            sink.error(
                Code::UnknownTransport,
                text.span,
                message,
                "write `local` or `remote`",
            );
            return None;
        }
    };
    fields.converted("type", to, "the transport follows from `command` or `url`");
    Some(declared)
}
