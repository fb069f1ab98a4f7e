//! The shapes that documents have, one module each. A dialect reads the tree into drafts and judges nothing.

use crate::{
    Code,
    draft::{DraftDocument, report_duplicates},
    source::Sink,
    value::{Node, Object, Span, Value},
};

mod mcp_servers;
mod portcullis;

/// What the known shapes look like, for the help of whoever has none of them.
pub(crate) const SHAPES: &str = "write `mcp: {servers: [{name: …, command: …}]}` (Portcullis' own, YAML or JSON), \
                                 or `{\"mcpServers\": {\"name\": {\"command\": …}}}` (desktop clients)";

/// Reads a document by the shape that it has.
pub(crate) fn read(root: &Value, sink: &mut Sink<'_>) -> Option<DraftDocument> {
    report_duplicates(root, sink);
    let Node::Object(object) = &root.node else {
        let message = format!(
            "the document is {}, and none of the shapes that are known",
            root.kind()
        );
        sink.error(Code::UnknownShape, head(root.span), message, SHAPES);
        return None;
    };
    match (object.get("mcp"), object.get("mcpServers")) {
        (Some(own), None) => portcullis::read(object, own, sink),
        (None, Some(servers)) => mcp_servers::read(object, servers, sink),
        (Some(_), Some(servers)) => {
            let message = "the document has both `mcp` and `mcpServers`";
            let help = "keep one of the two, or write two documents";
            sink.error(Code::UnknownShape, servers.key.span, message, help);
            None
        }
        (None, None) => {
            sink.error(Code::UnknownShape, head(root.span), unknown(object), SHAPES);
            None
        }
    }
}

fn unknown(object: &Object) -> String {
    let keys: Vec<_> = object
        .members
        .iter()
        .take(5)
        .map(|member| crate::source::quote(&member.key.value))
        .collect();
    match keys.as_slice() {
        [] => "the document is an empty object, so it configures nothing".to_owned(),
        keys => format!(
            "the document is of no shape that is known: at its top it has {}",
            keys.join(", ")
        ),
    }
}

/// The first character: to underline a whole document says nothing.
fn head(span: Span) -> Span {
    Span {
        start: span.start,
        end: (span.start + 1).min(span.end),
    }
}
