//! What a document says of permissions: the tier, and who belongs to which profile.

use portcullis_config::{Code, Document, NoEnvironment, Normalized, Options, normalize};

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
        ([good, "mcp: {servers: [], tier: none_such}"], false),
        ([good, good], false),
    ] {
        assert_eq!(of(&documents).settings.agents_unread, unread, "{documents:?}");
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
