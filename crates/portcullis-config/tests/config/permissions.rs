//! What a document says of permissions: the tier, and who belongs to which profile.

use portcullis_config::{Code, Dialect, Document, NoEnvironment, Normalized, Options, normalize};

fn of(documents: &[&str]) -> Normalized {
    let named = documents.iter().enumerate();
    let documents: Vec<_> = named
        .map(|(number, text)| Document::new(format!("{number}.yaml"), *text))
        .collect();
    normalize(&documents, &Options::default(), &NoEnvironment)
}

fn codes(normalized: &Normalized) -> Vec<Code> {
    normalized.diagnostics.iter().map(|found| found.code).collect()
}

/// Without its profile an agent would not be held to what policies forbid that.
#[test]
fn agents_that_cannot_be_read_are_told_apart_from_none() {
    for (agents, unread) in [
        ("{bot: night}", false),
        ("{}", false),
        ("{bot: 'ni ght'}", true),
        ("{'b/t': night}", true),
        ("{bot: [night]}", true),
        ("[bot]", true),
        ("{bot: night, bot: day}", true),
        ("{bot: night}\n  agents: {}", true),
    ] {
        let text = format!("mcp:\n  servers: []\n  agents: {agents}\n");
        let normalized = of(&[&text]);
        assert_eq!(normalized.settings.agents_unread, unread, "{agents}");
        assert_eq!(codes(&normalized).is_empty(), !unread, "{agents}");
    }
    // What stands beside them, or in a document before theirs, may cost them their place.
    let good = "mcp: {servers: [], agents: {bot: night}}";
    for (documents, unread) in [
        (
            ["mcp: {servers: [], tier: none_such, agents: {bot: night}}", good],
            true,
        ),
        (["mcp: {servers: [], tier: none_such}", good], true),
        (
            ["mcp: {servers: [], agent: {bot: night}}", "mcp: {servers: []}"],
            true,
        ),
        (
            ["mcp: {servers: [], agents: {bot: night}", "mcp: {servers: []}"],
            true,
        ),
        (
            [
                "mcp: {servers: []}\nmcp: {agents: {bot: night}}",
                "mcp: {servers: []}",
            ],
            true,
        ),
        (
            ["mcp: {servers: [], tier: none_such}", "mcp: {servers: []}"],
            false,
        ),
        // A strict document's timeout is held to limits.
        (
            [
                "mcp: {servers: [], profile: strict, timeoutMs: 1, agents: {bot: night}}",
                "mcp: {servers: []}",
            ],
            true,
        ),
        // Nothing of it is known but its words.
        (
            ["mpc: {servers: [], agents: {bot: night}}", "mcp: {servers: []}"],
            true,
        ),
        // Of two maps neither is all of it.
        ([good, "mcp: {servers: [], agents: {alice: dev}}"], true),
        ([good, "mcp: {servers: [], tier: none_such}"], false),
        ([good, good], false),
    ] {
        assert_eq!(of(&documents).settings.agents_unread, unread, "{documents:?}");
    }
}

/// What policies forbid in a tier must not be allowed since that got lost.
#[test]
fn a_tier_that_got_lost_is_told_apart_from_none() {
    let plan = "mcp: {servers: [], tier: plan}";
    for (documents, unread) in [
        (["mcp: {servers: []}", plan], false),
        (["mcp: {servers: [], tier: plam}", plan], true),
        (["mcp: {servers: [], tier: [plan]}", plan], true),
        (["mcp: {servers: [], tier: plan, tier: allow_edits}", plan], true),
        // What stands beside it, or in a document before its own, may cost it its place.
        (
            ["mcp: {servers: [], tier: plan, agents: 5}", "mcp: {servers: []}"],
            true,
        ),
        (["mcp: {servers: 5, tier: plan}", "mcp: {servers: []}"], true),
        (
            [
                "mcp: {servers: [], tier: plan, profile: strict, timeoutMs: 1}",
                "mcp: {servers: []}",
            ],
            true,
        ),
        (["mcp: {servers: [], policies: 5}", plan], true),
        (["mcp: {servers: [], policies: 5}", "mcp: {servers: []}"], false),
        // Misspelt, in the wrong place, or in what is not read at all.
        (["mcp: {servers: [], teir: plan}", "mcp: {servers: []}"], true),
        (["mcp: {servers: []}\ntier: plan", "mcp: {servers: []}"], true),
        (["mcp: {servers: [], tier: plan", "mcp: {servers: []}"], true),
        (
            ["mcp: {servers: []}\nmcp: {tier: plan}", "mcp: {servers: []}"],
            true,
        ),
        // The first counts, so it costs nothing that another is lost.
        ([plan, "mcp: {servers: [], tier: plam}"], false),
        ([plan, "mcp: {servers: [], tier: allow_edits"], false),
        ([plan, "mcp: {servers: [], tier: allow_edits}"], false),
    ] {
        let settings = of(&documents).settings;
        assert_eq!(settings.tier_unread, unread, "{documents:?}");
        assert!(!unread || settings.tier.is_none(), "{documents:?}");
    }
}

/// Neither a text that cannot be read nor one of a shape that is none says that there were no agents.
#[test]
fn agents_of_a_document_that_is_not_read_are_not_none() {
    let large = format!(
        "mcp: {{servers: [], agents: {{bot: night}}}}\n# {}",
        "x".repeat(5 << 20)
    );
    let named = |text: &str, dialect| Document::new("a.yaml", text).in_dialect(dialect);
    for (document, unread) in [
        (Document::new("a.yaml", large.as_str()), true),
        (
            Document::new("a.yaml", b"mcp: {agents: {bot: \xff}}".as_slice()),
            true,
        ),
        // As it was called one of Portcullis' own, it need have no word of theirs.
        (named("{", Dialect::Portcullis), true),
        (named(&large, Dialect::VsCode), false),
        (named("{", Dialect::VsCode), false),
        (Document::new("a.yaml", "{"), false),
    ] {
        let documents = [document, Document::new("b.yaml", "mcp: {servers: []}")];
        let settings = normalize(&documents, &Options::default(), &NoEnvironment).settings;
        let [document, _] = &documents;
        let head = String::from_utf8_lossy(&document.bytes[..document.bytes.len().min(40)]);
        assert_eq!(settings.agents_unread, unread, "{head} {:?}", document.dialect);
    }
}

/// Servers by name are Visual Studio Code's or opencode's, but not where something beside them holds for all documents.
#[test]
fn what_holds_for_all_documents_is_not_dropped_for_a_list_that_was_forgotten() {
    for server in [
        r#"{"command": "/bin/x"}"#,
        r#"{"type": "local", "command": ["/bin/x"]}"#,
    ] {
        for beside in [
            r#""agents": {"bot": "night"}"#,
            r#""tier": "plan""#,
            r#""policies": "p""#,
            r#""results": {"oversize": "reject"}"#,
            r#""blobs": {"quotaBytes": 9}"#,
        ] {
            let text = format!(r#"{{"mcp": {{"servers": {{"a": {server}}}, {beside}}}}}"#);
            let documents = [
                Document::new("a.json", text.as_str()),
                Document::new("b.yaml", "mcp: {servers: [], tier: full_access}"),
            ];
            let normalized = normalize(&documents, &Options::default(), &NoEnvironment);
            assert!(normalized.has_errors() && normalized.specs.is_empty(), "{text}");
            let settings = normalized.settings;
            assert_eq!(
                settings.limits_unread,
                text.contains("results") || text.contains("blobs"),
                "{text}"
            );
            assert_eq!(settings.agents_unread, text.contains("agents"), "{text}");
            assert_eq!(settings.tier.is_some(), settings.limits_unread, "{text}");
        }
    }
}

/// One document among several may be somebody else's: what it does to all of them is said.
#[test]
fn a_tier_that_lifts_all_questions_is_said_where_it_counts() {
    let tier = |file: &str, tier: &str| Document::new(file, format!("mcp:\n  servers: []\n  tier: {tier}\n"));
    for (documents, expected) in [
        ([tier("a.yaml", "plan"), tier("b.yaml", "plan")], vec![]),
        (
            [tier("a.yaml", "full_access"), tier("b.yaml", "full_access")],
            vec![Code::AsksLifted],
        ),
        (
            [
                Document::new("a.yaml", "mcp:\n  servers: []\n"),
                tier("b.yaml", "full_access"),
            ],
            vec![Code::AsksLifted],
        ),
        (
            [tier("a.yaml", "plan"), tier("b.yaml", "full_access")],
            vec![Code::SettingConflict],
        ),
    ] {
        let normalized = normalize(&documents, &Options::default(), &NoEnvironment);
        assert_eq!(codes(&normalized), expected);
    }
}
