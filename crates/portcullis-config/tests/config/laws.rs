//! What holds for every input, hostile ones included.

use std::{path::Path, time::Duration};

use portcullis_config::{
    Code, Document, Excerpts, NoEnvironment, Options, Profile, TransportSpec, import, normalize,
};
use proptest::prelude::*;

use crate::machine::Machine;

#[path = "../../../../fuzz/bodies/hostile.rs"]
mod hostile;

/// The body of the fuzz target: reads the bytes in every way there is and holds what comes out to its contract.
fn never_panics(bytes: &[u8]) {
    for name in ["a.json", "a.yaml", "a"] {
        for profile in [Profile::Desktop, Profile::Strict] {
            let options = Options {
                profile,
                ..Options::default()
            };
            let document = Document::new(name, bytes);
            let normalized = normalize(&[document], &options, &NoEnvironment);
            for found in &normalized.diagnostics {
                assert!(found.line >= 1 && found.column >= 1, "{found}");
                assert!(
                    found.span.offset_bytes + found.span.length_bytes <= bytes.len(),
                    "{found}: {:?}",
                    found.span
                );
                assert!(!found.message.is_empty() && !found.help.is_empty(), "{found}");
            }
            for spec in &normalized.specs {
                if let (TransportSpec::Stdio(stdio), true) = (&spec.transport, spec.enabled) {
                    assert!(stdio.program.is_absolute(), "{spec:?}");
                }
                assert!(
                    spec.timeouts.call <= spec.timeouts.call_max && !spec.timeouts.connect.is_zero(),
                    "{spec:?}"
                );
            }
            assert!(
                !normalized.specs.is_empty() || !normalized.diagnostics.is_empty() || mentions_servers(bytes),
                "silence"
            );
        }
    }
}

/// A document with an empty list of servers is the one that has nothing to say and nothing to complain of.
fn mentions_servers(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    ["mcp", "servers", "Servers", "extensions"]
        .iter()
        .any(|word| text.contains(word))
        || text.contains("\\u")
        || text.contains("\\x")
}

#[test]
fn the_fuzz_corpus_and_the_test_data_never_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("test_data"), root.join("../../fuzz/corpus")];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                never_panics(&std::fs::read(&path).unwrap());
                count += 1;
            }
        }
    }
    assert!(count > 80, "{count}");
}

/// Texts that cost a careless reader far more than their length. The deadline is no measurement (the benchmark holds
/// each of them to its bound): what is looked for here would take minutes, or never end.
#[test]
fn documents_made_to_be_slow_are_read_to_their_end() {
    let (done, finished) = std::sync::mpsc::channel();
    for (name, text) in hostile::documents(24 * 1024) {
        let done = done.clone();
        std::thread::spawn(move || {
            said_of(name, text);
            let _ = done.send(());
        });
        assert!(
            finished.recv_timeout(Duration::from_secs(30)).is_ok(),
            "{name} takes too long, or panics"
        );
    }
}

/// One long name, key or value under which many findings stand would make a report far larger than the document.
#[test]
fn what_is_said_of_a_document_grows_no_faster_than_the_document() {
    const FACTOR: usize = 200;
    for (name, text) in hostile::documents(12 * 1024) {
        let bytes = text.len();
        let said = said_of(name, text);
        assert!(said <= FACTOR * bytes, "{name}: {said} bytes of {bytes}");
    }
}

/// How many bytes `check` and `import` have to say.
fn said_of(name: &str, text: String) -> usize {
    let document = Document::new(name, text);
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let normalized = normalize(std::slice::from_ref(&document), &options, &Machine::default());
    let excerpts = Excerpts::new(&document, &options);
    let shown = normalized
        .diagnostics
        .iter()
        .map(|found| excerpts.render(found, false).len());
    let imported = import(&document, &options, &Machine::default());
    shown.sum::<usize>()
        + json_length(&normalized.diagnostics)
        + json_length(&normalized.fields)
        + json_length(&imported.fields)
        + json_length(&imported.to_set)
        + imported.config.len()
}

fn json_length(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).unwrap().len()
}

fn yaml_like() -> impl Strategy<Value = String> {
    let words = [
        "mcp:",
        "servers:",
        "mcpServers:",
        "- ",
        "name: a",
        "command: node",
        "url: https://example.com",
        "\n",
        "  ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        ": ",
        "\"",
        "'",
        "&a ",
        "*a",
        "!t ",
        "|",
        ">",
        "#",
        "---",
        "...",
        "%",
        "\t",
        "ä",
        "\u{feff}",
        "args:",
        "env:",
        "${X}",
        "true",
        "1",
        "?",
        "\r\n",
        "profile: strict",
        "timeouts:",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        never_panics(&bytes);
    }

    #[test]
    fn texts_never_panic(text in ".{0,200}") {
        never_panics(text.as_bytes());
    }

    #[test]
    fn what_looks_like_a_document_never_panics(text in yaml_like()) {
        never_panics(text.as_bytes());
    }

    #[test]
    fn unknown_fields_are_always_reported(key in "[a-zA-Z_][a-zA-Z0-9_ .-]{0,30}") {
        let known = [
            "name", "description", "command", "args", "env", "cwd", "url", "headers", "timeoutMs", "longRunning", "disabled",
            "enabled", "disabledTools", "disabledAutoApproveTools", "inheritEnv", "egress", "protocol", "timeouts", "isolation",
            "limits", "type", "transport", "transportType", "serverUrl", "httpUrl", "autoApprove", "alwaysAllow", "envFile",
            "timeout", "timeoutSeconds", "mcp", "mcpServers", "$schema", "servers", "allowedHosts", "policies", "tier",
            "profile", "agents", "results", "blobs",
        ];
        prop_assume!(!known.contains(&key.as_str()));
        for text in [
            format!(r#"{{"mcpServers":{{"a":{{"command":"node","{key}":1}}}}}}"#),
            format!(r#"{{"mcpServers":{{"a":{{"command":"node"}}}},"{key}":{{"b":[]}}}}"#),
            format!(r#"{{"mcp":{{"servers":[{{"name":"a","command":"node","{key}":null}}]}}}}"#),
            format!(r#"{{"mcp":{{"servers":[{{"name":"a","command":"node","timeouts":{{"{key}":1}}}}]}}}}"#),
            format!(r#"{{"mcp":{{"servers":[{{"name":"a","command":"node"}}],"{key}":"x"}}}}"#),
            format!(r#"{{"mcp":{{"servers":[{{"name":"a","command":"node"}}]}},"{key}":true}}"#),
        ] {
            for name in ["a.json", "a.yaml"] {
                let normalized = normalize(&[Document::new(name, text.as_str())], &Options::default(), &Machine::default());
                let [found] = normalized.diagnostics.as_slice() else { panic!("{text}: {:?}", normalized.diagnostics) };
                prop_assert_eq!(found.code, Code::UnknownField);
                let named = format!("`{key}`");
                prop_assert!(found.message.contains(&named));
                prop_assert_eq!(normalized.specs.len(), 1);
            }
        }
    }

    #[test]
    fn the_order_of_servers_changes_nothing_but_their_order(names in prop::collection::btree_set("[a-z]{1,8}", 1..8)) {
        let text = |names: &[&String]| {
            let servers: Vec<_> = names.iter().map(|name| format!(r#""{name}":{{"command":"node","args":["{name}"]}}"#)).collect();
            format!(r#"{{"mcpServers":{{{}}}}}"#, servers.join(","))
        };
        let fingerprints = |text: String| {
            let normalized = normalize(&[Document::new("a.json", text)], &Options::default(), &Machine::default());
            let mut all: Vec<_> = normalized.specs.iter().map(|spec| spec.fingerprint()).collect();
            all.sort();
            all
        };
        let forward: Vec<_> = names.iter().collect();
        let backward: Vec<_> = names.iter().rev().collect();
        prop_assert_eq!(fingerprints(text(&forward)), fingerprints(text(&backward)));
    }
}
