//! The code form: what a host hands over. Always judged by the strict profile.

use super::common;
use crate::{
    Code, Profile,
    draft::{Draft, DraftDocument, HubDraft, Names, egress_rules},
    fields::Fields,
    network::NetworkDraft,
    source::Sink,
    value::{Node, Span, Spanned, Value},
};

/// Reads a list of servers, one server alone, or `{servers: […]}`.
pub(super) fn read(root: &Value, sink: &mut Sink<'_>) -> Option<DraftDocument> {
    let items = match &root.node {
        Node::List(items) => items.as_slice(),
        Node::Object(object) if object.get("servers").is_some() => {
            let mut top = Fields::new(object, "a list of definitions");
            let servers = top.take("servers");
            let hosts = egress_rules("allowedHosts", &mut top, sink);
            let before = sink.errors();
            let network = NetworkDraft::read(&mut top, sink);
            let twice = object.says_twice(|name| matches!(name, "proxy" | "rootCertificates"));
            let broken = twice || sink.errors() > before;
            top.finish(sink);
            let Some(Node::List(items)) = servers.map(|member| &member.value.node) else {
                let help = "write each server as an item of a list, with its id in `id`";
                sink.error(Code::WrongType, root.span, "`servers` is no list", help);
                return None;
            };
            return Some(document(
                items,
                HubDraft {
                    broken,
                    allowed_hosts: hosts,
                    network,
                    ..HubDraft::default()
                },
                sink,
            ));
        }
        Node::Object(_) => std::slice::from_ref(root),
        _ => {
            let message = format!("a definition is an object, and this is {}", root.kind());
            sink.error(
                Code::WrongType,
                root.span,
                message,
                "write `{id: …, command: […]}`",
            );
            return None;
        }
    };
    Some(document(items, HubDraft::default(), sink))
}

fn document(items: &[Value], hub: HubDraft, sink: &mut Sink<'_>) -> DraftDocument {
    DraftDocument {
        servers: items.iter().filter_map(|item| server(item, sink)).collect(),
        hub,
        profile: Profile::Strict,
        ..DraftDocument::default()
    }
}

fn server(item: &Value, sink: &mut Sink<'_>) -> Option<Draft> {
    let errors_before = sink.errors();
    sink.enter(None);
    let mut fields = Fields::of(item, "a server", sink)?.guarding(common::RESTRICTS);
    let missing = fields.take("id").is_none();
    let id = fields.text("id", sink);
    fields.carried("id", "name");
    let id = id.unwrap_or(Spanned {
        value: String::new(),
        span: item.span,
    });
    sink.enter(Some(&id));
    let names = Names {
        command: None,
        args: None,
        env: Some("environment"),
        env_file: None,
        inherit_env: Some("inheritEnvironment"),
        timeout_ms: Some("timeout"),
        ..Names::COMMON
    };
    let mut draft = Draft::read(id, &names, &mut fields, item, sink);
    fields.carried("timeout", "timeoutMs");
    draft.command_list("command", &mut fields, sink);
    draft.egress = egress_rules("egress", &mut fields, sink);
    draft.network = NetworkDraft::read(&mut fields, sink);
    draft.declared = common::declared(&mut fields, sink);
    if missing {
        let first = Span {
            start: item.span.start,
            end: item.span.start,
        };
        let help = "add `id`: 1 to 64 characters of a-z, 0-9 and `-`, a letter first";
        sink.error(Code::MissingField, first, "a server has no `id`", help);
    }
    fields.finish(sink);
    let draft = draft.finish(errors_before, sink);
    sink.enter(None);
    Some(draft)
}
