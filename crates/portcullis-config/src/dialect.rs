//! The shapes that documents have, one module each. A dialect reads the tree into drafts and judges nothing.

use std::{fmt, str::FromStr};

use serde::Serialize;

use crate::{
    Code, Options,
    draft::{DraftDocument, report_duplicates},
    fields::Fields,
    source::{Sink, quote},
    unread::Unread,
    value::{Member, Node, Notation, Object, Span, Value},
};

mod code;
mod codex;
mod common;
mod for_all;
mod goose;
mod mcp_servers;
mod opencode;
mod placeholders;
pub(crate) mod portcullis;
mod vscode;
mod zed;

/// What the known shapes look like, for the help of whoever has none of them.
pub(crate) const SHAPES: &str = "write `mcp: {servers: [{name: …, command: …}]}` (Portcullis' own, YAML, TOML or JSON), \
                                 or `{\"mcpServers\": {\"name\": {\"command\": …}}}` (desktop clients)";

macro_rules! dialects {
    ($($variant:ident $name:literal [$($alias:literal),*] $about:literal,)*) => {
        /// Whose shape a document has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Dialect {
            $(#[doc = concat!($about, ".")] $variant,)*
        }

        impl Dialect {
            /// All dialects.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name, as [`FromStr`] reads it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it is, for people.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about,)*
                }
            }
        }

        impl FromStr for Dialect {
            type Err = UnknownDialect;

            fn from_str(text: &str) -> Result<Self, UnknownDialect> {
                match text {
                    $($name $(| $alias)* => Ok(Self::$variant),)*
                    _ => Err(UnknownDialect(text.to_owned())),
                }
            }
        }
    };
}

dialects! {
    Portcullis "portcullis" [] "Portcullis' own format",
    Code "code" [] "the definitions that a host hands over: a list of servers with `id` and `command: […]`",
    McpServers "mcp-servers" ["claude-desktop", "claude-code", "cursor", "cline", "windsurf"] "`mcpServers`, as Claude Desktop, Claude Code, Cursor, Cline and Windsurf have it",
    VsCode "vscode" ["vs-code"] "Visual Studio Code: `servers` and `inputs`",
    Zed "zed" [] "Zed's settings: `context_servers`",
    Codex "codex" [] "Codex' TOML: `mcp_servers`",
    Gemini "gemini" ["gemini-cli"] "Gemini CLI's settings: `mcpServers` with `httpUrl`",
    Opencode "opencode" [] "opencode: `mcp` with `type: local` or `remote`",
    Goose "goose" [] "Goose: `extensions`",
    Assets "assets" [] "a settings document that holds `assets.mcpServers`",
}

/// A word that names no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no dialect: use {names}", names = names())]
pub struct UnknownDialect(pub String);

fn names() -> String {
    let names: Vec<_> = Dialect::ALL
        .iter()
        .map(|dialect| format!("`{}`", dialect.as_str()))
        .collect();
    names.join(", ")
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whose shape a document has: the one that is named, or else what its keys tell. An error where they do not.
pub(crate) fn of(root: &Value, named: Option<Dialect>, sink: &mut Sink<'_>) -> Option<Dialect> {
    report_duplicates(root, sink);
    named.or_else(|| detect(root, sink))
}

/// Reads a document of that dialect.
pub(crate) fn read(
    root: &Value,
    dialect: Dialect,
    options: &Options,
    sink: &mut Sink<'_>,
) -> Option<DraftDocument> {
    let object = match &root.node {
        Node::Object(object) => object,
        _ if dialect == Dialect::Code => return code::read(root, sink),
        _ => {
            if dialect == Dialect::Portcullis {
                sink.unread = Unread::ALL;
            }
            sink.error(Code::UnknownShape, head(root.span), unknown(root), SHAPES);
            return None;
        }
    };
    let mut read = match dialect {
        Dialect::Portcullis => match need(object, "mcp", root.span, dialect, sink) {
            Some(own) => portcullis::read(object, own, sink),
            None => {
                // It may stand there under another name.
                sink.unread = Unread::ALL;
                None
            }
        },
        Dialect::Code => code::read(root, sink),
        Dialect::McpServers | Dialect::Gemini => {
            let servers = need(object, "mcpServers", root.span, dialect, sink)?;
            mcp_servers::read(object, servers, dialect, sink)
        }
        Dialect::Assets => {
            mcp_servers::read_assets(object, need(object, "assets", root.span, dialect, sink)?, sink)
        }
        Dialect::VsCode => vscode::read(object, root.span, sink),
        Dialect::Zed => {
            let names = ["context_servers", "`context_servers`", "a Zed document"];
            settings(object, names, root.span, dialect, zed::server, sink)
        }
        Dialect::Codex => {
            let names = ["mcp_servers", "`mcp_servers`", "a Codex document"];
            settings(object, names, root.span, dialect, codex::server, sink)
        }
        Dialect::Opencode => opencode::read(object, need(object, "mcp", root.span, dialect, sink)?, sink),
        Dialect::Goose => {
            let names = ["extensions", "`extensions`", "a Goose document"];
            settings(object, names, root.span, dialect, goose::server, sink)
        }
    }?;
    placeholders::translate(dialect, &mut read, options, sink);
    Some(read)
}

/// Whose shape it is, or an error.
fn detect(root: &Value, sink: &mut Sink<'_>) -> Option<Dialect> {
    let object = match &root.node {
        Node::Object(object) => object,
        Node::List(items) if !items.is_empty() && items.iter().all(|item| has(item, "id")) => {
            return Some(Dialect::Code);
        }
        _ => {
            sink.error(Code::UnknownShape, head(root.span), unknown(root), SHAPES);
            return None;
        }
    };
    let json = Notation::of(sink.source()) == Notation::Json;
    let shapes = shapes(object, json);
    match shapes.as_slice() {
        [(dialect, _)] => (!for_all::is_refused(object, *dialect, sink)).then_some(*dialect),
        [] => {
            sink.error(Code::UnknownShape, head(root.span), unknown(root), SHAPES);
            None
        }
        [(_, first), .., (_, last)] => {
            let message = format!(
                "the document has both {} and {}",
                quote(&first.key.value),
                quote(&last.key.value)
            );
            let help = "keep one of the two, write two documents, or name the dialect with `--from`";
            sink.error(Code::UnknownShape, last.key.span, message, help);
            None
        }
    }
}

/// Every dialect whose servers stand in the object, with the member that shows it.
fn shapes(object: &Object, json: bool) -> Vec<(Dialect, &Member)> {
    let mut shapes = Vec::new();
    if let Some(mcp) = object.get("mcp") {
        shapes.extend(shape_of_mcp(mcp, object, json).map(|dialect| (dialect, mcp)));
    }
    if let Some(servers) = object.get("mcpServers") {
        let gemini = any_server(
            &servers.value,
            &["httpUrl", "trust", "includeTools", "excludeTools"],
        ) || object.get("mcp").is_some_and(|mcp| of_gemini(&mcp.value))
            || mcp_servers::GEMINI_FIRST_VERSION
                .iter()
                .any(|list| object.get(list).is_some());
        let dialect = if gemini {
            Dialect::Gemini
        } else {
            Dialect::McpServers
        };
        shapes.push((dialect, servers));
    }
    if let Some(assets) = object
        .get("assets")
        .filter(|assets| has(&assets.value, "mcpServers"))
    {
        shapes.push((Dialect::Assets, assets));
    }
    for (key, dialect) in [("context_servers", Dialect::Zed), ("mcp_servers", Dialect::Codex)] {
        shapes.extend(object.get(key).map(|member| (dialect, member)));
    }
    if let Some(extensions) = object.get("extensions")
        && (any_server(&extensions.value, &["cmd", "uri", "type", "config"]) || is_empty(&extensions.value))
    {
        shapes.push((Dialect::Goose, extensions));
    }
    if let Some(servers) = object.get("servers") {
        match &servers.value.node {
            Node::List(items) if !items.is_empty() && items.iter().all(|item| has(item, "id")) => {
                shapes.push((Dialect::Code, servers));
            }
            Node::Object(_) => shapes.push((Dialect::VsCode, servers)),
            _ => {}
        }
    }
    let code = object
        .get("id")
        .filter(|_| object.get("command").is_some() || object.get("url").is_some());
    shapes.extend(code.map(|id| (Dialect::Code, id)));
    shapes
}

/// `mcp` is written by four: by us, by VS Code's older settings, by opencode, and by Gemini CLI beside its servers.
fn shape_of_mcp(mcp: &Member, root: &Object, json: bool) -> Option<Dialect> {
    let Node::Object(object) = &mcp.value.node else {
        return Some(Dialect::Portcullis);
    };
    if let Some(servers) = object.get("servers") {
        return match &servers.value.node {
            // That must not be lost for a list that was forgotten.
            _ if for_all::find(object, of_opencode(&mcp.value)).is_some() => Some(Dialect::Portcullis),
            Node::Object(_) if of_opencode(&servers.value) => Some(Dialect::Opencode),
            // In YAML the list was forgotten; the editor's settings are JSON.
            Node::Object(_) if json => Some(Dialect::VsCode),
            _ => Some(Dialect::Portcullis),
        };
    }
    if of_opencode(&mcp.value) {
        return Some(Dialect::Opencode);
    }
    let beside = root.get("mcpServers").is_some() && of_gemini(&mcp.value);
    (!beside).then_some(Dialect::Portcullis)
}

fn of_gemini(mcp: &Value) -> bool {
    ["allowed", "excluded", "serverCommand"]
        .iter()
        .any(|key| has(mcp, key))
}

fn of_opencode(servers: &Value) -> bool {
    let Node::Object(object) = &servers.node else {
        return false;
    };
    object.members.iter().any(|member| {
        let Node::Object(server) = &member.value.node else {
            return false;
        };
        let kind = server.get("type").and_then(|kind| kind.value.scalar());
        matches!(kind, Some("local" | "remote"))
    })
}

fn any_server(servers: &Value, keys: &[&str]) -> bool {
    match &servers.node {
        Node::Object(object) => object
            .members
            .iter()
            .any(|member| keys.iter().any(|key| has(&member.value, key))),
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    matches!(&value.node, Node::Object(object) if object.members.is_empty())
}

fn has(value: &Value, key: &str) -> bool {
    matches!(&value.node, Node::Object(object) if object.get(key).is_some())
}

/// Reads a client's settings that hold the servers by name under one key; all else at the top is the client's.
fn settings(
    object: &Object,
    [key, quoted, whose]: [&'static str; 3],
    whole: Span,
    dialect: Dialect,
    server: common::ReadServer,
    sink: &mut Sink<'_>,
) -> Option<DraftDocument> {
    let servers = need(object, key, whole, dialect, sink)?;
    let mut top = Fields::new(object, whose);
    top.take(key);
    top.finish_settings(sink);
    Some(common::document(common::by_name(servers, quoted, sink, server)?))
}

fn need<'t>(
    object: &'t Object,
    key: &str,
    whole: Span,
    dialect: Dialect,
    sink: &mut Sink<'_>,
) -> Option<&'t Member> {
    let found = object.get(key);
    if found.is_none() {
        let message = format!("the document has no `{key}`, where `{dialect}` has its servers");
        let help = "check the file, or leave `--from` out to have the dialect told from the shape";
        sink.error(Code::UnknownShape, head(whole), message, help);
    }
    found
}

fn unknown(root: &Value) -> String {
    let Node::Object(object) = &root.node else {
        return format!(
            "the document is {}, and none of the shapes that are known",
            root.kind()
        );
    };
    let keys: Vec<_> = object
        .members
        .iter()
        .take(5)
        .map(|member| quote(&member.key.value))
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
