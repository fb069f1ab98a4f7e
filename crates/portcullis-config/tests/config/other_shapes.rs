//! What holds for the servers of all documents, in documents that have the shape of another client's.

use portcullis_config::{Code, Dialect, Document, Normalized, Options, normalize};

use crate::machine::Machine;

fn beside_another(document: Document) -> Normalized {
    let other = Document::new("z.yaml", "mcp: {servers: [], tier: full_access}");
    normalize(&[document, other], &Options::default(), &Machine::default())
}

/// Nothing of such a document is used, and no hub is started beside it.
#[track_caller]
fn check_refused(file: &str, text: &str) {
    let normalized = beside_another(Document::new(file, text));
    assert!(normalized.specs.is_empty(), "{text}");
    let found = &normalized.diagnostics[0];
    assert_eq!(found.code, Code::UnknownField, "{text}: {found}");
    assert!(
        found.message.contains("holds for the servers of all documents"),
        "{found}"
    );
    assert!(normalized.has_errors(), "{text}");
    let settings = normalized.settings;
    assert!(settings.limits_unread && settings.agents_unread, "{text}");
    assert!(settings.tier_unread && settings.tier.is_none(), "{text}");
}

/// Each of these documents would start a server, were it taken for the other client's.
#[test]
fn what_holds_for_all_documents_is_not_dropped_with_another_clients_shape() {
    for (file, text) in [
        // opencode's servers by name, under `mcp`.
        (
            "a.json",
            r#"{"mcp": {"agents": {"bot": "night"}, "policies": "p", "fs": {"type": "local", "command": ["/usr/bin/node"]}}}"#,
        ),
        (
            "a.json",
            r#"{"mcp": {"fs": {"type": "local", "command": ["/usr/bin/node"]}, "agents": {"command": "night"}}}"#,
        ),
        (
            "a.json",
            r#"{"mcp": {"fs": {"type": "local", "command": ["/usr/bin/node"]}, "tier": "plan"}}"#,
        ),
        // An editor's `mcp.json`.
        (
            "a.json",
            r#"{"servers": {"a": {"command": "/usr/bin/node"}}, "agents": {"bot": "night"}}"#,
        ),
        (
            "a.json",
            r#"{"servers": {"a": {"command": "/usr/bin/node"}}, "tier": "plan"}"#,
        ),
        (
            "a.yaml",
            "servers: {a: {command: /usr/bin/node}}\nblobs: {quotaBytes: 9}",
        ),
        // The definitions that a host hands over.
        (
            "a.yaml",
            "servers: [{id: a, command: [/usr/bin/node]}]\nagents: {bot: night}",
        ),
        (
            "a.yaml",
            "servers: [{id: a, command: [/usr/bin/node]}]\ntier: plan",
        ),
        ("a.yaml", "id: a\ncommand: [/usr/bin/node]\npolicies: p"),
        // Beside `mcp`, where editors and opencode have their other settings.
        (
            "a.json",
            r#"{"mcp": {"servers": {"a": {"command": "/usr/bin/node"}}}, "agents": {"bot": "night"}, "tier": "plan"}"#,
        ),
        (
            "a.json",
            r#"{"mcp": {"servers": {"a": {"command": "/usr/bin/node"}}}, "agents": {"bot": "night"}}"#,
        ),
        (
            "a.json",
            r#"{"mcp": {"a": {"type": "local", "command": ["/usr/bin/node"]}}, "t\u0069er": "plan"}"#,
        ),
        // Gemini CLI's lists.
        (
            "a.json",
            r#"{"mcpServers": {"a": {"command": "/usr/bin/node"}}, "mcp": {"allowed": ["a"], "agents": {"bot": "night"}}}"#,
        ),
        (
            "a.json",
            r#"{"mcpServers": {"a": {"command": "/usr/bin/node"}}, "mcp": {"allowed": ["a"]}, "policies": "p"}"#,
        ),
    ] {
        check_refused(file, text);
    }
    // Of a key that stands twice one is lost, and may have had them.
    let text = r#"{"mcp": {"a": {"type": "local", "command": ["/usr/bin/node"]}}, "mcp": {"tier": "plan"}}"#;
    let normalized = beside_another(Document::new("a.json", text));
    assert!(normalized.specs.is_empty() && normalized.has_errors());
    assert!(normalized.settings.tier_unread && normalized.settings.limits_unread);
}

/// Where the others have all their settings, and where they have none but servers.
#[test]
fn what_holds_for_all_documents_is_not_dropped_at_the_top_of_another_clients_document() {
    for (file, text) in [
        (
            "a.json",
            r#"{"mcpServers": {"a": {"command": "/usr/bin/node"}}, "tier": "plan"}"#,
        ),
        (
            "a.json",
            r#"{"mcpServers": {"a": {"command": "/usr/bin/node"}}, "agents": {"bot": "night"}}"#,
        ),
        (
            "a.json",
            r#"{"name": "p", "version": "1", "mcpServers": {"a": {"command": "/usr/bin/node"}}, "policies": "p"}"#,
        ),
        (
            "a.json",
            r#"{"mcpServers": {"a": {"httpUrl": "https://a.example/"}}, "agents": {"bot": "night"}}"#,
        ),
        (
            "a.json",
            r#"{"context_servers": {"a": {"command": "/usr/bin/node"}}, "policies": "p"}"#,
        ),
        (
            "a.toml",
            "tier = \"plan\"\n[mcp_servers.a]\ncommand = \"/usr/bin/node\"\n",
        ),
        (
            "a.yaml",
            "extensions: {a: {type: stdio, cmd: /usr/bin/node}}\nresults: {maxReplyBytes: 9}",
        ),
    ] {
        check_refused(file, text);
    }
}

/// What could be a server by its members is none where nothing else of the document is opencode's.
#[test]
fn limits_are_not_taken_for_a_server() {
    let text = r#"{"mcp": {"servers": {"a": {"command": "/usr/bin/node"}}, "results": {"enabled": true, "maxReplyBytes": 9}}}"#;
    let read = beside_another(Document::new("a.json", text));
    assert!(read.specs.is_empty() && read.settings.limits_unread, "{read:?}");
}

/// Qwen Code says there how its agents are shown, beside what Gemini CLI has.
#[test]
fn agents_of_qwen_code_are_no_profiles() {
    let servers = r#""mcpServers": {"a": {"command": "/usr/bin/node"}}"#;
    for (agents, are_profiles) in [
        (
            r#"{"displayMode": "in-process", "arena": {"maxRoundsPerAgent": 5}}"#,
            false,
        ),
        (r#"{"mode": "in-process"}"#, true),
    ] {
        let text = format!(r#"{{{servers}, "agents": {agents}}}"#);
        let read = beside_another(Document::new("settings.json", text));
        assert_eq!(read.specs.is_empty(), are_profiles, "{agents}: {read:?}");
        assert_eq!(read.settings.agents_unread, are_profiles, "{agents}");
    }
}

/// What the clients themselves have under these names, and what the host says is theirs.
#[test]
fn documents_of_other_clients_stay_readable() {
    let local = r#"{"type": "local", "command": ["/usr/bin/node"]}"#;
    for (document, servers) in [
        // Servers may be called anything.
        (
            Document::new(
                "a.json",
                format!(r#"{{"mcp": {{"agents": {local}, "policies": {local}}}}}"#),
            ),
            2,
        ),
        (
            Document::new(
                "a.json",
                format!(
                    r#"{{"mcp": {{"a": {local}, "results": {{"type": "remote", "url": "https://a.example/"}}}}}}"#
                ),
            ),
            2,
        ),
        (
            Document::new("a.json", r#"{"servers": {"tier": {"command": "/usr/bin/node"}}}"#),
            1,
        ),
        // opencode's own agents, and those of Gemini CLI.
        (
            Document::new(
                "a.json",
                format!(
                    r#"{{"mcp": {{"servers": {{"a": {local}}}}}, "agents": {{"build": {{"model": "x/y"}}}}}}"#
                ),
            ),
            1,
        ),
        (
            Document::new(
                "a.json",
                r#"{"mcpServers": {"a": {"command": "/usr/bin/node"}}, "mcp": {"allowed": ["a"]}, "agents": {"overrides": {}}}"#,
            ),
            1,
        ),
        // A plugin's manifest.
        (
            Document::new(
                "a.json",
                r#"{"name": "p", "version": "1", "agents": "./agents", "mcpServers": {"a": {"command": "/usr/bin/node"}}}"#,
            ),
            1,
        ),
        // Codex' own agents, and a document of somebody's that holds more than one of a client.
        (
            Document::new(
                "a.toml",
                "[agents]\nmax_threads = 3\nmodel = \"x\"\n[mcp_servers.a]\ncommand = \"/usr/bin/node\"\n",
            ),
            1,
        ),
        (
            Document::new(
                "a.json",
                r#"{"tier": "gold", "policies": [], "assets": {"mcpServers": {"a": {"command": "/usr/bin/node"}}}}"#,
            ),
            1,
        ),
        // Named by the host.
        (
            Document::new(
                "a.json",
                format!(r#"{{"mcp": {{"a": {local}}}, "tier": "gold"}}"#),
            )
            .in_dialect(Dialect::Opencode),
            1,
        ),
    ] {
        let text = String::from_utf8_lossy(&document.bytes).into_owned();
        let normalized = beside_another(document);
        assert_eq!(
            normalized.specs.len(),
            servers,
            "{text}: {:?}",
            normalized.diagnostics
        );
        let settings = normalized.settings;
        assert!(!settings.limits_unread && !settings.agents_unread, "{text}");
        assert!(settings.tier.is_some() && !settings.tier_unread, "{text}");
    }
}
