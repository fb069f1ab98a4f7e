//! What holds for the servers of all documents, in a document that has another client's shape.
//!
//! Only Portcullis' own format has such fields. A document that has one was written for Portcullis by somebody who missed
//! its shape: to read the servers and drop the field would let more through than was meant.

use super::portcullis::OF_ALL_DOCUMENTS;
use crate::{
    Code, Dialect,
    source::{Sink, quote},
    unread::Unread,
    value::{Member, Node, Object, Value},
};

/// Refuses a document of that shape where it has such a field, or has `mcp` twice, of which one is lost.
pub(super) fn is_refused(root: &Object, dialect: Dialect, sink: &mut Sink<'_>) -> bool {
    if dialect == Dialect::Portcullis {
        return false;
    }
    let Some(member) = misplaced(root, dialect) else {
        let is_lost = root.duplicates.iter().any(|twice| twice.key.value == "mcp");
        if is_lost {
            sink.unread = Unread::ALL;
        }
        return is_lost;
    };
    sink.unread = Unread::ALL;
    let name = quote(&member.key.value);
    let message = format!(
        "{name} holds for the servers of all documents, and this one has the shape of another format (`{dialect}`), which \
         has no such field"
    );
    let help = "write it under `mcp` of a document of Portcullis' own, beside `servers: []`, or take it out";
    sink.error(Code::UnknownField, member.key.span, message, help);
    true
}

/// The first of such fields in an object, as far as it is not the name of a server, where the object may be opencode's.
pub(super) fn find(mcp: &Object, may_be_opencode: bool) -> Option<&Member> {
    let is_server = |member: &Member| may_be_opencode && is_server_of_opencode(&member.value);
    let mut members = mcp.members.iter();
    members.find(|member| is_of_all(member) && !is_server(member))
}

fn misplaced(root: &Object, dialect: Dialect) -> Option<&Member> {
    let mcp = root.get("mcp").map(|mcp| &mcp.value.node);
    let inside = match mcp {
        Some(Node::Object(object)) => find(object, true),
        _ => None,
    };
    let is_elses = |member: &Member| match dialect {
        // Whoever keeps a client's servers under `assets` may have any words beside it.
        Dialect::Assets => true,
        // These hold nothing but servers.
        Dialect::VsCode | Dialect::Code if mcp.is_none() => false,
        _ => is_setting_of_client(member, dialect),
    };
    let mut beside = root.members.iter();
    inside.or_else(|| beside.find(|member| is_of_all(member) && !is_elses(member)))
}

fn is_of_all(member: &Member) -> bool {
    OF_ALL_DOCUMENTS.contains(&member.key.value.as_str())
}

fn is_server_of_opencode(value: &Value) -> bool {
    let Node::Object(server) = &value.node else {
        return false;
    };
    let node = |key: &str| server.get(key).map(|member| &member.value.node);
    matches!(node("type"), Some(Node::Text(kind)) if matches!(kind.as_str(), "local" | "remote"))
        || matches!(node("command"), Some(Node::List(_)))
        || matches!(node("url"), Some(Node::Text(url)) if url.contains("://"))
        || matches!(node("enabled"), Some(Node::Bool { .. }))
}

/// opencode, Gemini CLI and Codex describe agents of their own at the top of their settings, the first two each by an
/// object, and Qwen Code how its own are shown; profiles are texts. None of the clients has one of the other names there.
fn is_setting_of_client(member: &Member, dialect: Dialect) -> bool {
    let is_profiles = match &member.value.node {
        Node::Object(agents) => {
            let is_of_qwen = agents.get("displayMode").is_some();
            let mut agents = agents.members.iter();
            !is_of_qwen && agents.any(|agent| matches!(agent.value.node, Node::Text(_)))
        }
        _ => false,
    };
    member.key.value == "agents" && (dialect == Dialect::Codex || !is_profiles)
}
