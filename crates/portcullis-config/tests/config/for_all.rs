//! What a document says for all its servers, and for the hub.

use std::time::Duration;

use portcullis_config::{
    BlobDurability, Code, Dialect, Document, NoEnvironment, Normalized, Options, OversizeReplies, import,
    normalize,
};

use crate::machine::Machine;

fn run(name: &str, text: &str, options: &Options) -> Normalized {
    normalize(&[Document::new(name, text)], options, &Machine::default())
}

fn codes(normalized: &Normalized) -> Vec<Code> {
    normalized.diagnostics.iter().map(|found| found.code).collect()
}

#[test]
fn hub_wide_settings_come_from_the_first_document_that_has_them() {
    let one = Document::new("one.yaml", "mcp:\n  servers: []\n  tier: plan\n");
    let two = Document::new(
        "two.yaml",
        "mcp:\n  servers: []\n  tier: full_access\n  policies: p\n",
    );
    let normalized = normalize(&[one, two], &Options::default(), &NoEnvironment);
    assert_eq!(codes(&normalized), [Code::SettingConflict]);
    let tier = normalized.settings.tier.unwrap();
    assert_eq!(
        (tier.value.as_str(), tier.origin.file.as_str(), tier.origin.line),
        ("plan", "one.yaml", 3)
    );
    assert_eq!(normalized.settings.policies.unwrap().value.to_str(), Some("p"));
}

const HUB: &str = "mcp:\n  results: {maxReplyBytes: 100000, oversize: reject, dataUrlMinBytes: 64}\n  blobs:\n    \
                   durability: none\n    quotaBytes: 1000000\n    maxBlobBytes: 500000\n    retentionSeconds: 60\n    \
                   sessionSeconds: 90\n  servers: [{name: a, command: /usr/bin/node}]\n";

#[test]
fn results_and_their_store_are_settings_of_the_hub_in_either_profile() {
    for profile in ["desktop", "strict"] {
        let text = HUB.replacen("mcp:\n", &format!("mcp:\n  profile: {profile}\n"), 1);
        let normalized = run("a.yaml", &text, &Options::default());
        assert_eq!(normalized.diagnostics, []);
        let (results, blobs) = (normalized.settings.results, normalized.settings.blobs);
        assert_eq!(results.max_reply_bytes.unwrap().value, 100_000);
        assert_eq!(results.oversize.unwrap().value, OversizeReplies::Reject);
        assert_eq!(results.data_url_min_bytes.unwrap().value, 64);
        assert_eq!(blobs.durability.unwrap().value, BlobDurability::None);
        let quota = blobs.quota_bytes.unwrap();
        assert_eq!((quota.value, quota.origin.line), (1_000_000, 6));
        assert_eq!(blobs.max_blob_bytes.unwrap().value, 500_000);
        assert_eq!(blobs.retention.unwrap().value, Duration::from_secs(60));
        assert_eq!(blobs.session.unwrap().value, Duration::from_secs(90));
    }
    let nothing = run("a.yaml", "mcp: {servers: []}\n", &Options::default());
    assert_eq!(nothing.settings.results, Default::default());
    assert_eq!(nothing.settings.blobs, Default::default());
}

/// What could not be read may have been a limit: without it more would be let through than was meant.
#[test]
fn of_a_document_whose_limits_cannot_be_read_nothing_is_used() {
    for (good, bad, code, told) in [
        (
            "quotaBytes: 1000000",
            "quotaBytes: 1 GB",
            Code::WrongType,
            "whole number",
        ),
        (
            "quotaBytes: 1000000",
            "quotaBytes: 0",
            Code::BadValue,
            "from 1 to 18446744073709551615",
        ),
        (
            "quotaBytes: 1000000",
            "quotaBytes: -5",
            Code::BadValue,
            "from 1 to",
        ),
        (
            "maxReplyBytes: 100000",
            "maxReplyBytes: 67108865",
            Code::BadValue,
            "1 to 67108864",
        ),
        (
            "oversize: reject",
            "oversize: cut",
            Code::BadValue,
            "`spill` or `reject`",
        ),
        (
            "durability: none",
            "durability: always",
            Code::BadValue,
            "`fsync`, `group` or `none`",
        ),
        (
            "retentionSeconds: 60",
            "retentionSeconds: 7d",
            Code::WrongType,
            "whole number",
        ),
        (
            "retentionSeconds: 60",
            "retentionSeconds: 315360001",
            Code::BadValue,
            "315360000",
        ),
        (
            "sessionSeconds: 90",
            "quotaBytes: 5",
            Code::DuplicateKey,
            "keep one",
        ),
        (
            "sessionSeconds: 90",
            "sessionSeconds: 90\n  blobs: {quotaBytes: 5}",
            Code::DuplicateKey,
            "keep one",
        ),
        (
            "results: {maxReplyBytes: 100000, oversize: reject, dataUrlMinBytes: 64}",
            "results: 5",
            Code::WrongType,
            "",
        ),
    ] {
        let normalized = run("a.yaml", &HUB.replace(good, bad), &Options::default());
        let [found] = &normalized.diagnostics[..] else {
            panic!("{bad}: {:?}", normalized.diagnostics)
        };
        assert_eq!(found.code, code, "{bad}");
        assert!(found.help.contains(told), "{bad}: {}", found.help);
        assert!(normalized.specs.is_empty(), "{bad}");
        assert_eq!(normalized.settings.blobs, Default::default(), "{bad}");
        assert!(normalized.settings.limits_unread, "{bad}");
    }
}

/// A document may have more members that are none than anybody looks at: one of them may be a limit.
#[test]
fn what_nobody_looked_at_may_have_been_a_limit() {
    let document = |unknown: usize| {
        let members: String = (0..unknown).map(|n| format!("  zzzzzzzzzzzz{n}: 1\n")).collect();
        format!("mcp:\n  servers: []\n{members}")
    };
    for (unknown, unread) in [(100, false), (3_000, true)] {
        let normalized = run("a.yaml", &document(unknown), &Options::default());
        assert_eq!(normalized.has_errors(), unread, "{unknown}");
        let settings = normalized.settings;
        assert_eq!(
            (settings.limits_unread, settings.tier_unread),
            (unread, unread),
            "{unknown}"
        );
    }
}

/// They hold for the whole hub, so whoever starts the servers of another document must know that they are missing.
#[test]
fn limits_that_got_lost_with_their_document_are_told_beside_another() {
    let other = Document::new(
        "two.yaml",
        "mcp: {servers: [{name: b, command: /usr/bin/node}]}\n",
    );
    let check = |text: &str, limits_unread: bool, retention_unclear: bool| {
        for first in [true, false] {
            let mut documents = [Document::new("one.yaml", text), other.clone()];
            if !first {
                documents.reverse();
            }
            let normalized = normalize(&documents, &Options::default(), &Machine::default());
            let settings = normalized.settings;
            assert_eq!(
                (settings.limits_unread, settings.retention_unclear),
                (limits_unread, retention_unclear),
                "{text}"
            );
            assert!(!normalized.specs.is_empty(), "{text}");
        }
    };
    check(&HUB.replace("1000000", "1 GB"), true, true);
    check(
        &HUB.replace("  servers:", "  profile: strikt\n  servers:"),
        true,
        true,
    );
    check(
        &HUB.replace("[{name: a, command: /usr/bin/node}]", "5"),
        true,
        true,
    );
    check(&HUB.replace("servers:", "serverz:"), true, true);
    check(&format!("{HUB}mcp: {{servers: []}}\n"), true, true);
    // Its indentation got lost, its brackets are of the wrong kind.
    check("mcp:\nservers: []\nblobs: {quotaBytes: 9}\n", true, true);
    check("mcp:\n- servers: []\n- blobs: {quotaBytes: 9}\n", true, true);
    check(
        r#"{"mcp": {"servers": {"a": {"command": "/x"}}, "blobs": {"quotaBytes": 9}}}"#,
        true,
        true,
    );
    // Misspelt, or in the wrong place.
    for (good, bad) in [
        ("quotaBytes", "quotaByte"),
        ("results:", "reslts:"),
        ("blobs:", "Blob:"),
        ("  blobs:", "  quota_bytes: 9\n  blobs:"),
        ("  servers:", "  limits: {tools: 1}\n  servers:"),
        ("  servers:", "  profil: strict\n  servers:"),
        ("mcp:", "maxReplyBytes: 9\nmcp:"),
    ] {
        check(&HUB.replacen(good, bad, 1), true, true);
    }
    // Nothing is known of it, and it may have had some.
    for text in [
        "mcp: {servers: [",
        "[mcp.blobs]\nquotaBytes = ",
        r#"{"mcp": {"servers": []}, "mcpServers": {}}"#,
        "mpc: {servers: [], blobs: {quotaBytes: 9}}",
        "\u{feff}\r\n",
        "mcp: [[[[",
    ] {
        check(text, true, true);
    }
    check(&"x".repeat(5 << 20), false, true);
    check(&format!("mcp: {}", "x".repeat(5 << 20)), true, true);
    // Another client's, by all that can be told, and those have none; what is collected cannot be brought back, though.
    for text in [
        r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "mcp-remote", "@acme/mcp"]}"#,
        r#"{"mcpServer": {"a": {"command": "npx"}}}"#,
        "{}",
        "# none yet\n",
        "mcp: {servers: [], profile: strikt}",
    ] {
        check(text, false, true);
    }
    // What is wrong with a server, or is of this machine, is no limit.
    check(HUB, false, false);
    check(&HUB.replace("/usr/bin/node", "/usr/bin/none"), false, false);
    check(&HUB.replace("command: /usr/bin/node", "command: 5"), false, false);
}

/// What a document says for all its servers holds for each of them: without it none of them starts.
#[test]
fn servers_do_not_start_without_what_was_said_for_all_of_them() {
    const GOOD: &str = "  policies: p\n  tier: full_access\n  agents: {ci: robots}\n  timeoutMs: 5000\n  \
                        allowedHosts: [a.example, proxy.example]\n  proxy: https://proxy.example\n";
    let document = |settings: &str| {
        let servers = "  servers: [{name: a, command: /usr/bin/node}, {name: b, url: https://a.example/}]\n";
        Document::new("one.yaml", format!("mcp:\n{settings}{servers}"))
    };
    let other = |settings: &str| {
        let server = "{name: c, command: /usr/bin/node, args: [c]}";
        Document::new("two.yaml", format!("mcp: {{servers: [{server}]{settings}}}\n"))
    };
    let read = |documents: &[Document]| normalize(documents, &Options::default(), &Machine::default());
    let good = read(&[document(GOOD), other("")]);
    assert!(
        !good.has_errors() && good.specs.len() == 3,
        "{:?}",
        good.diagnostics
    );
    for (good, bad) in [
        ("policies: p", "policies: [p]"),
        ("policies: p", "policies: p\n  policies: q"),
        ("tier: full_access", "tier: plam"),
        ("tier: full_access", "tier: plan\n  tier: full_access"),
        ("{ci: robots}", "{ci: \"\"}"),
        ("{ci: robots}", "{ci: robots, ci: people}"),
        ("{ci: robots}", "robots"),
        ("timeoutMs: 5000", "timeoutMs: 0"),
        ("timeoutMs: 5000", "profile: strict\n  timeoutMs: 1"),
        (
            "timeoutMs: 5000",
            "timeoutMs: 5000\n  profile: strict\n  x: 1\n  timeoutMs: 1",
        ),
        ("proxy: https://proxy.example", "proxy: [https://proxy.example]"),
        (
            "proxy: https://proxy.example",
            "proxy: {url: https://proxy.example, url: https://a.example}",
        ),
        (
            "proxy: https://proxy.example",
            "proxy: {uri: https://proxy.example}",
        ),
        ("proxy: https", "rootCertificates: 5\n  proxy: https"),
    ] {
        let text = GOOD.replace(good, bad);
        assert_ne!(text, GOOD);
        let normalized = read(&[document(&text), other("")]);
        assert!(normalized.has_errors(), "{bad}");
        let started: Vec<_> = normalized.specs.iter().map(|spec| spec.id.as_str()).collect();
        assert_eq!(started, ["c"], "{bad}");
        let settings = normalized.settings;
        assert!(!settings.limits_unread, "{bad}");
        // Half of what decides on calls is none of it.
        assert_eq!(
            (settings.policies, settings.tier, settings.agents),
            Default::default(),
            "{bad}"
        );
    }
}

/// The lists by which Gemini CLI keeps servers out, and the proxy of the code form.
#[test]
fn what_other_dialects_say_for_all_servers_holds_for_each_of_them_too() {
    let gemini = |settings: &str| {
        let text = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"/usr/bin/node\"}}}}{settings}}}");
        Document::new("settings.json", text).in_dialect(Dialect::Gemini)
    };
    let code = |settings: &str| {
        let server = "{\"id\": \"a\", \"command\": [\"/usr/bin/node\"]}";
        let text = format!("{{\"servers\": [{server}]{settings}}}");
        Document::new("code.json", text).in_dialect(Dialect::Code)
    };
    for (document, starts) in [
        (gemini(""), true),
        (gemini(r#", "mcp": {"excluded": ["b"]}"#), true),
        (gemini(r#", "mcp": {"excluded": "b"}"#), false),
        (gemini(r#", "mcp": {"excluded": [["b"]]}"#), false),
        (gemini(r#", "mcp": {"allowed": ["a"], "allowed": ["b"]}"#), false),
        (gemini(r#", "mcp": {"exclude": ["b"]}"#), false),
        (gemini(r#", "mcp": ["b"]"#), false),
        (gemini(r#", "mcp": {}, "mcp": {"excluded": ["b"]}"#), false),
        // As its first version has them.
        (gemini(r#", "excludeMCPServers": ["b"]"#), true),
        (gemini(r#", "excludeMCPServers": "b""#), false),
        (
            gemini(r#", "allowMCPServers": ["a"], "allowMCPServers": ["b"]"#),
            false,
        ),
        (code(""), true),
        (code(r#", "proxy": "none""#), true),
        (code(r#", "proxy": ["https://proxy.example"]"#), false),
        (
            code(r#", "proxy": "none", "proxy": "https://proxy.example""#),
            false,
        ),
    ] {
        let normalized = normalize(
            std::slice::from_ref(&document),
            &Options::default(),
            &Machine::default(),
        );
        let text = String::from_utf8_lossy(&document.bytes).into_owned();
        assert_eq!(
            normalized.has_errors(),
            !starts,
            "{text}: {:?}",
            normalized.diagnostics
        );
        assert_eq!(normalized.specs.len(), usize::from(starts), "{text}");
    }
}

/// An empty list of its first version allows none, and of two lists each keeps servers out.
#[test]
fn a_server_runs_that_each_list_of_gemini_cli_allows() {
    for (settings, runs) in [
        (r#""allowMCPServers": []"#, ""),
        (r#""mcp": {"allowed": []}"#, "ab"),
        (r#""allowMCPServers": ["a"]"#, "a"),
        (r#""allowMCPServers": ["a"], "mcp": {"allowed": ["b"]}"#, ""),
        (r#""allowMCPServers": ["a"], "mcp": {"allowed": ["b", "a"]}"#, "a"),
        (r#""allowMCPServers": ["a"], "mcp": {"allowed": []}"#, "a"),
        (r#""allowMCPServers": [], "mcp": {"allowed": ["a"]}"#, ""),
        (r#""allowMCPServers": ["a"], "excludeMCPServers": ["a"]"#, ""),
        (r#""excludeMCPServers": ["a"], "mcp": {"excluded": ["b"]}"#, ""),
        (r#""excludeMCPServers": [], "mcp": {"excluded": ["b"]}"#, "a"),
    ] {
        let server = |path: &str| format!(r#"{{"command": "/usr/bin/{path}"}}"#);
        let text = format!(
            r#"{{"mcpServers": {{"a": {}, "b": {}}}, {settings}}}"#,
            server("node"),
            server("npx")
        );
        let document = Document::new("settings.json", text).in_dialect(Dialect::Gemini);
        let normalized = normalize(&[document], &Options::default(), &Machine::default());
        let enabled = normalized.specs.iter().filter(|spec| spec.enabled);
        let enabled: String = enabled.map(|spec| spec.id.as_str()).collect();
        assert_eq!(enabled, runs, "{settings}: {:?}", normalized.diagnostics);
    }
}

/// A key that stands twice costs what is read, and of a client's own settings nothing is.
#[test]
fn what_stands_twice_in_a_clients_own_settings_is_no_error() {
    let server = r#""a": {"command": "/usr/bin/node"}"#;
    for (text, is_error) in [
        (
            format!(r#"{{"theme": "x", "theme": "y", "context_servers": {{{server}}}}}"#),
            false,
        ),
        (
            format!(r#"{{"theme": {{"x": [{{"y": 1, "y": 2}}]}}, "context_servers": {{{server}}}}}"#),
            false,
        ),
        (
            format!(r#"{{"context_servers": {{{server}}}, "context_servers": {{}}}}"#),
            true,
        ),
        (format!(r#"{{"context_servers": {{{server}, "a": {{}}}}}}"#), true),
        // It may hold for the servers of all documents.
        (
            format!(
                r#"{{"agents": {{"a": {{}}}}, "agents": {{"bot": "night"}}, "context_servers": {{{server}}}}}"#
            ),
            true,
        ),
        (
            format!(r#"{{"agents": {{"a": {{}}, "a": "night"}}, "context_servers": {{{server}}}}}"#),
            true,
        ),
    ] {
        let normalized = run("settings.json", &text, &Options::default());
        assert!(codes(&normalized).contains(&Code::DuplicateKey), "{text}");
        assert_eq!(
            normalized.has_errors(),
            is_error,
            "{text}: {:?}",
            normalized.diagnostics
        );
    }
}

/// The first document that says it counts. Where that cannot be read, what a later one says might allow more.
#[test]
fn what_decides_on_calls_is_not_taken_from_behind_a_document_that_cannot_be_read() {
    let later = ", policies: q, tier: full_access, agents: {ci: people}";
    for (first, taken) in [
        ("mcp: {servers: [], tier: plam}", false),
        ("mcp: {servers: [], policies: 5}", false),
        ("mcp: {servers: [], agents: 5}", false),
        ("mcp: {servers: [], tier: plan, profile: strikt}", false),
        ("mcp: {servers: 5, tier: plan}", false),
        ("mcp: {servers: [], agent: {ci: robots}}", false),
        ("mcp: {servers: [], teir: plan}", false),
        ("mcp: {servers: [], polices: strict}", false),
        ("mcp: {servers: [], policy: strict}", false),
        ("mcp: {servers: [], polcies: strict, tier: plan}", false),
        ("mcp: {servers: [], policise: strict}", false),
        // In the wrong place, and under a name that is none.
        ("mcp: {servers: []}\ntier: plan", false),
        ("mpc: {servers: [], policies: strict}", false),
        ("mcp: {servers: [], tier: plan", false),
        ("mcp: [tier: plan]", false),
        ("mcp: {servers: []}\nmcp: {servers: [], tier: plan}", false),
        // It says nothing of them.
        ("mcp: {servers: [], timeoutMs: 0}", true),
        ("mcp: {servers: [], results: {oversize: 5}}", true),
        ("mcp: {servers: [{name: a}]}", true),
        ("{\"mcpServers\": {", true),
    ] {
        let second = format!("mcp: {{servers: [{{name: c, command: /usr/bin/node}}]{later}}}\n");
        let documents = [
            Document::new("one.yaml", first),
            Document::new("two.yaml", second),
        ];
        let normalized = normalize(&documents, &Options::default(), &Machine::default());
        assert_eq!(normalized.specs.len(), 1, "{first}");
        let settings = normalized.settings;
        for is_taken in [
            settings.policies.is_some(),
            settings.tier.is_some(),
            settings.agents.is_some(),
        ] {
            assert_eq!(is_taken, taken, "{first}");
        }
        let told = normalized
            .diagnostics
            .iter()
            .filter(|found| found.code == Code::SettingConflict);
        assert_eq!(told.count(), if taken { 0 } else { 3 }, "{first}");
    }
}

#[test]
fn two_retentions_leave_open_which_is_meant() {
    let hub = |seconds: u64| format!("mcp: {{servers: [], blobs: {{retentionSeconds: {seconds}}}}}\n");
    for (second, is_unclear) in [(60, false), (61, true)] {
        let documents = [
            Document::new("one.yaml", hub(60)),
            Document::new("two.yaml", hub(second)),
        ];
        let normalized = normalize(&documents, &Options::default(), &Machine::default());
        assert_eq!(normalized.settings.retention_unclear, is_unclear, "{second}");
        let messages: Vec<_> = normalized
            .diagnostics
            .iter()
            .map(|found| &found.message)
            .collect();
        let told = |message: &&String| message.ends_with("so nothing is collected by either");
        assert_eq!(messages.len(), usize::from(is_unclear), "{messages:?}");
        assert!(messages.iter().all(told), "{messages:?}");
    }
}

#[test]
fn an_import_keeps_what_is_said_of_results() {
    let document = Document::new("a.yaml", HUB);
    let imported = import(&document, &Options::default(), &Machine::default());
    let values = |text: &str| {
        let settings = run("a.yaml", text, &Options::default()).settings;
        let (results, blobs) = (settings.results, settings.blobs);
        (
            results.max_reply_bytes.map(|set| set.value),
            results.oversize.map(|set| set.value),
            results.data_url_min_bytes.map(|set| set.value),
            blobs.durability.map(|set| set.value),
            blobs.quota_bytes.map(|set| set.value),
            blobs.max_blob_bytes.map(|set| set.value),
            (
                blobs.retention.map(|set| set.value),
                blobs.session.map(|set| set.value),
            ),
        )
    };
    assert_eq!(values(&imported.config), values(HUB), "{}", imported.config);
}

#[test]
fn a_misspelt_limit_is_found_and_one_that_cannot_hold_is_told() {
    let misspelt = HUB
        .replace("quotaBytes", "quotaByte")
        .replace("oversize", "oversized");
    let normalized = run("a.yaml", &misspelt, &Options::default());
    assert_eq!(codes(&normalized), [Code::UnknownField; 2]);
    assert!(normalized.specs.is_empty() && normalized.has_errors());
    let helps: Vec<_> = normalized
        .diagnostics
        .iter()
        .map(|found| found.help.as_str())
        .collect();
    assert_eq!(helps, ["did you mean `oversize`?", "did you mean `quotaBytes`?"]);
    let normalized = run("a.yaml", &HUB.replace("500000", "2000000"), &Options::default());
    assert_eq!(codes(&normalized), [Code::IgnoredField]);
    assert!(!normalized.has_errors());
    // Of two documents the first counts, field by field.
    let second = HUB
        .replace("1000000", "9")
        .replace("/usr/bin/node", "/usr/bin/npx");
    let documents = [
        Document::new("one.yaml", "mcp: {servers: [], blobs: {quotaBytes: 7}}\n"),
        Document::new(
            "two.yaml",
            second.replace("maxBlobBytes: 500000", "maxBlobBytes: 8"),
        ),
    ];
    let normalized = normalize(&documents, &Options::default(), &Machine::default());
    assert_eq!(codes(&normalized), [Code::SettingConflict]);
    assert!(
        normalized.diagnostics[0]
            .message
            .contains("`blobs.quotaBytes` has another value")
    );
    let blobs = normalized.settings.blobs;
    assert_eq!(
        (
            blobs.quota_bytes.unwrap().value,
            blobs.max_blob_bytes.unwrap().value
        ),
        (7, 8)
    );
}
