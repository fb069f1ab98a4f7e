//! Visual Studio Code: `{"servers": {…}, "inputs": […]}`, in older settings under `mcp`.
//!
//! An `${input:id}` is asked of the person there. Here it is the variable `INPUT_ID`, with the input's default as
//! its own, if it has one.

use std::collections::BTreeMap;

use super::{common, head, mcp_servers::schema, placeholders};
use crate::{
    Code,
    draft::{Draft, DraftDocument, Names},
    fields::Fields,
    source::Sink,
    value::{Member, Node, Object, Span, Spanned},
};

pub(super) fn read(root: &Object, whole: Span, sink: &mut Sink<'_>) -> Option<DraftDocument> {
    let mut top = Fields::new(root, "a Visual Studio Code document");
    schema(&mut top);
    let (servers, inputs) = match top.take("mcp") {
        Some(mcp) if root.get("servers").is_none() => {
            let mut fields = Fields::of(&mcp.value, "`mcp`", sink)?.under("mcp.");
            let taken = (fields.take("servers"), fields.take("inputs"));
            fields.dropped("inputs", "each input that is used has become a variable");
            fields.finish(sink);
            top.finish_settings(sink);
            taken
        }
        _ => {
            let taken = (top.take("servers"), top.take("inputs"));
            top.dropped("inputs", "each input that is used has become a variable");
            top.finish(sink);
            taken
        }
    };
    let Some(servers) = servers else {
        let help = "add `\"servers\": {}`, and each server as a member of it";
        sink.error(
            Code::MissingField,
            head(whole),
            "the document has no `servers`",
            help,
        );
        return None;
    };
    let inputs = inputs.map(|inputs| defaults(inputs, sink)).unwrap_or_default();
    let mut drafts = common::by_name(servers, "`servers`", sink, server)?;
    for draft in &mut drafts {
        sink.enter(Some(&draft.name));
        placeholders::inputs(draft, &inputs, sink);
    }
    sink.enter(None);
    Some(common::document(drafts))
}

fn server(
    name: &Spanned<String>,
    fields: &mut Fields<'_>,
    member: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let mut draft = Draft::read(name.clone(), &Names::COMMON, fields, &member.value, sink);
    draft.declared = common::declared(fields, sink);
    common::timeout_seconds(&mut draft, fields, sink);
    common::timeout_of_either_unit(&mut draft, fields, sink);
    common::approvals(&["autoApprove", "alwaysAllow"], &draft, fields, sink);
    common::logins(&["oauth"], fields, sink);
    for (name, why) in [
        ("gallery", "it says which gallery the editor took the server from"),
        (
            "version",
            "it says which version the editor took from its gallery",
        ),
        ("dev", "it restarts the server while it is being written"),
        ("sandbox", "the editor's sandbox is its own"),
        ("sandboxEnabled", "the editor's sandbox is its own"),
    ] {
        fields.unsupported(name, why, sink);
    }
    Some(draft)
}

/// The default of each input by its id; `None` for one that has none.
fn defaults(inputs: &Member, sink: &mut Sink<'_>) -> BTreeMap<String, Option<String>> {
    let Node::List(items) = &inputs.value.node else {
        let message = format!("`inputs` is {}, and a list is wanted", inputs.value.kind());
        let help = "write a list of `{\"type\": \"promptString\", \"id\": \"name\"}`";
        sink.error(Code::WrongType, inputs.value.span, message, help);
        return BTreeMap::new();
    };
    let mut defaults = BTreeMap::new();
    for item in items {
        let Node::Object(object) = &item.node else {
            continue;
        };
        let text = |key: &str| object.get(key).and_then(|member| member.value.scalar());
        if let Some(id) = text("id") {
            let default = text("default").filter(|default| !default.is_empty());
            defaults.insert(id.to_owned(), default.map(str::to_owned));
        } else {
            let help = "add `id`, the name that `${input:…}` has for it";
            sink.warning(Code::MissingField, item.span, "an input has no `id`", help);
        }
    }
    defaults
}
