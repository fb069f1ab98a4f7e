//! `{"mcpServers": {name: {…}}}`, as Claude Desktop, Claude Code, Cursor, Cline and Windsurf write it; Gemini CLI's
//! form of it; and a settings document that holds it under `assets`.

use std::collections::HashSet;

use super::common;
use crate::{
    Code, Dialect,
    draft::{Declared, Draft, DraftDocument, Names},
    fields::Fields,
    source::{Sink, quote},
    value::{Member, Node, Object, Spanned},
};

pub(super) fn read(
    root: &Object,
    servers: &Member,
    dialect: Dialect,
    sink: &mut Sink<'_>,
) -> Option<DraftDocument> {
    let mut top = Fields::new(root, "an `mcpServers` document");
    top.take("mcpServers");
    schema(&mut top);
    let plugin = plugin(root);
    let mut broken = false;
    let read_servers = match dialect {
        Dialect::Gemini => {
            let before = sink.errors();
            let lists = allowed(&mut top, sink);
            let is_list = |name: &str| name == "mcp" || GEMINI_FIRST_VERSION.contains(&name);
            broken = sink.errors() > before || root.says_twice(is_list);
            top.finish_settings(sink);
            let mut servers = common::by_name(servers, "`mcpServers`", sink, gemini)?;
            for draft in &mut servers {
                draft.enabled &= lists.let_run(&draft.name.value);
            }
            servers
        }
        _ => {
            let projects = top.take("projects");
            if let Some(projects) = projects {
                top.dropped(
                    "projects",
                    "the servers of single projects are read one project at a time",
                );
                let message = "the servers of single projects are not read from here";
                let help = "give the project's own file, or its `mcpServers` as a document of its own";
                sink.warning(Code::UnsupportedField, projects.key.span, message, help);
            }
            // A plugin's manifest and the user's own file of Claude Code hold more than servers.
            if plugin.is_some() || projects.is_some() {
                top.finish_settings(sink);
            } else {
                top.finish(sink);
            }
            common::by_name(servers, "`mcpServers`", sink, desktop)?
        }
    };
    let mut document = DraftDocument {
        plugin,
        ..common::document(read_servers)
    };
    document.hub.broken = broken;
    Some(document)
}

pub(super) fn read_assets(root: &Object, assets: &Member, sink: &mut Sink<'_>) -> Option<DraftDocument> {
    let mut top = Fields::new(root, "a settings document");
    top.take("assets");
    schema(&mut top);
    top.finish_settings(sink);
    let mut fields = Fields::of(&assets.value, "`assets`", sink)?.under("assets.");
    let servers = fields.take("mcpServers");
    fields.finish_settings(sink);
    let Some(servers) = servers else {
        let help = "write the servers as `assets: {mcpServers: {name: {…}}}`";
        sink.error(
            Code::MissingField,
            assets.key.span,
            "`assets` has no `mcpServers`",
            help,
        );
        return None;
    };
    Some(common::document(common::by_name(
        servers,
        "`mcpServers`",
        sink,
        desktop,
    )?))
}

/// A plugin's manifest names the plugin beside its servers.
fn plugin(root: &Object) -> Option<String> {
    let text = |key: &str| match &root.get(key)?.value.node {
        Node::Text(text) => Some(text.clone()),
        _ => None,
    };
    text("version")?;
    text("name")
}

/// Where an editor finds the description of the format: nothing for servers.
pub(super) fn schema(top: &mut Fields<'_>) {
    top.take("$schema");
    top.dropped("$schema", "it is for editors, and says nothing of servers");
}

fn desktop(
    name: &Spanned<String>,
    fields: &mut Fields<'_>,
    member: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let mut draft = Draft::read(name.clone(), &Names::COMMON, fields, &member.value, sink);
    draft.declared = common::declared(fields, sink);
    common::other_urls(&["serverUrl", "httpUrl"], &mut draft, fields, sink);
    common::timeout_seconds(&mut draft, fields, sink);
    common::timeout_of_either_unit(&mut draft, fields, sink);
    common::approvals(&["autoApprove", "alwaysAllow", "trust"], &draft, fields, sink);
    common::only_tools(&["enabledTools"], &draft, fields, sink);
    common::logins(&["oauth", "headersHelper", "auth"], fields, sink);
    Some(draft)
}

/// `url` is HTTP+SSE in Gemini CLI's documentation, and `httpUrl` streamable HTTP; a `type` says it better.
fn gemini(
    name: &Spanned<String>,
    fields: &mut Fields<'_>,
    member: &Member,
    sink: &mut Sink<'_>,
) -> Option<Draft> {
    let names = Names {
        disabled_tools: Some("excludeTools"),
        ..Names::COMMON
    };
    let mut draft = Draft::read(name.clone(), &names, fields, &member.value, sink);
    draft.declared = common::declared(fields, sink);
    if draft.has_url && draft.declared != Some(Declared::Http) {
        let span = draft.url.as_ref().map_or(name.span, |url| url.span);
        let message =
            "`url` means HTTP+SSE to Gemini CLI, which is not spoken here: it is taken as streamable HTTP";
        let help = "write `httpUrl`, if the server has a streamable HTTP endpoint there";
        fields.converted("url", "url", "taken as streamable HTTP");
        sink.warning(Code::IgnoredField, span, message, help);
    }
    common::other_urls(&["httpUrl", "serverUrl"], &mut draft, fields, sink);
    let also = fields.texts("disabledTools", sink);
    draft
        .disabled_tools
        .extend(also.into_iter().map(|tool| tool.value));
    common::timeout_seconds(&mut draft, fields, sink);
    if draft.timeouts.each.is_none() {
        common::timeout_in(1, &mut draft, fields, sink);
    }
    common::approvals(&["trust", "autoApprove", "alwaysAllow"], &draft, fields, sink);
    common::only_tools(&["includeTools"], &draft, fields, sink);
    common::logins(
        &[
            "oauth",
            "authProviderType",
            "targetAudience",
            "targetServiceAccount",
        ],
        fields,
        sink,
    );
    Some(draft)
}

/// `mcp: {allowed, excluded}` of Gemini CLI: which of the servers run.
const KEPT_OUT: &[&[&str]] = &[&["allowed", "excluded"]];

/// What the first version of its settings has for these two, at the top.
pub(super) const GEMINI_FIRST_VERSION: [&str; 2] = ["allowMCPServers", "excludeMCPServers"];

/// Which servers run: those that each of some lists allows, without those that one excludes.
#[derive(Default)]
struct Lists {
    allowed: Vec<HashSet<String>>,
    excluded: HashSet<String>,
}

impl Lists {
    fn let_run(&self, name: &str) -> bool {
        !self.excluded.contains(name) && self.allowed.iter().all(|list| list.contains(name))
    }

    /// Reads two of them; `may_be_none` where an empty list of those that are allowed allows none.
    fn read(
        &mut self,
        [allowed, excluded]: [&'static str; 2],
        may_be_none: bool,
        fields: &mut Fields<'_>,
        sink: &mut Sink<'_>,
    ) {
        let is_there = fields.object().get(allowed).is_some();
        let names = kept_out(allowed, fields, sink);
        if !names.is_empty() || is_there && may_be_none {
            self.allowed.push(names);
        }
        self.excluded.extend(kept_out(excluded, fields, sink));
    }
}

fn allowed(top: &mut Fields<'_>, sink: &mut Sink<'_>) -> Lists {
    let mut lists = Lists::default();
    lists.read(GEMINI_FIRST_VERSION, true, top, sink);
    let settings = top.take("mcp").map(|member| &member.value);
    if let Some(fields) = settings.and_then(|value| Fields::of(value, "`mcp`", sink)) {
        let mut fields = fields.under("mcp.").guarding(KEPT_OUT);
        lists.read(["allowed", "excluded"], false, &mut fields, sink);
        fields.unsupported(
            "serverCommand",
            "it starts one server for the client itself",
            sink,
        );
        fields.finish(sink);
    }
    lists
}

/// The names in one of these lists.
fn kept_out(list: &'static str, fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> HashSet<String> {
    fields.converted(list, "enabled", "a server that it keeps out is disabled");
    let names = fields.texts(list, sink);
    for name in names.iter().filter(|name| name.value.trim().is_empty()) {
        let message = format!("{} is no server's name", quote(&name.value));
        sink.warning(Code::BadValue, name.span, message, "take it out");
    }
    names.into_iter().map(|name| name.value).collect()
}
