//! Reports from people who run MCP clients, each with the whole kind of fault around it.

use portcullis_config::{Code, Document, Normalized, Options, Protocol, Severity, TransportSpec, normalize};

use crate::machine::Machine;

fn json(text: &str) -> Normalized {
    normalize(
        &[Document::new("a.json", text)],
        &Options::default(),
        &Machine::default(),
    )
}

fn errors(normalized: &Normalized) -> Vec<(Code, Option<&str>)> {
    let errors = normalized
        .diagnostics
        .iter()
        .filter(|found| found.severity == Severity::Error);
    errors
        .map(|found| (found.code, found.server.as_deref()))
        .collect()
}

#[test]
fn report_1_a_url_without_a_type_is_http() {
    for field in ["url", "serverUrl", "httpUrl"] {
        let normalized = json(&format!(
            r#"{{"mcpServers":{{"a":{{"{field}":"https://example.com/mcp"}}}}}}"#
        ));
        assert_eq!(normalized.diagnostics, [], "{field}");
        let [spec] = normalized.specs.as_slice() else {
            panic!("{field}: one server")
        };
        assert!(
            matches!(&spec.transport, TransportSpec::Http(http) if http.url.as_str() == "https://example.com/mcp")
        );
        assert_eq!(spec.protocol, Protocol::Auto);
    }
}

#[test]
fn report_1_no_entry_is_passed_over_in_silence() {
    for entry in [
        "{}",
        "null",
        "[]",
        "\"x\"",
        "17",
        r#"{"type":"http"}"#,
        r#"{"uri":"https://example.com"}"#,
        r#"{"url":null}"#,
    ] {
        let normalized = json(&format!(r#"{{"mcpServers":{{"a":{entry}}}}}"#));
        assert_eq!(normalized.specs, [], "{entry}");
        assert!(
            errors(&normalized).iter().all(|(_, server)| *server == Some("a")),
            "{entry}"
        );
        assert!(normalized.has_errors(), "{entry}");
    }
}

#[test]
fn report_2_every_spelling_of_http_is_http() {
    for kind in [
        "http",
        "streamable-http",
        "streamable_http",
        "streamableHttp",
        "HTTP",
        "StreamableHTTP",
    ] {
        for field in ["type", "transport", "transportType"] {
            let normalized = json(&format!(
                r#"{{"mcpServers":{{"a":{{"{field}":"{kind}","url":"https://example.com"}}}}}}"#
            ));
            assert_eq!(normalized.diagnostics, [], "{field} {kind}");
            assert!(
                matches!(normalized.specs[0].transport, TransportSpec::Http(_)),
                "{field} {kind}"
            );
        }
    }
}

#[test]
fn report_2_an_unknown_type_disables_that_entry_only() {
    for (kind, code) in [
        ("sse", Code::SseRefused),
        ("SSE", Code::SseRefused),
        ("ws", Code::UnknownTransport),
        ("", Code::UnknownTransport),
    ] {
        let normalized = json(&format!(
            r#"{{"mcpServers":{{"a":{{"type":"{kind}","url":"https://example.com"}},"b":{{"url":"https://example.com"}}}}}}"#
        ));
        assert_eq!(errors(&normalized), [(code, Some("a"))], "{kind}");
        let ids: Vec<_> = normalized.specs.iter().map(|spec| spec.id.as_str()).collect();
        assert_eq!(ids, ["b"], "{kind}");
    }
}

#[test]
fn report_4_an_unset_reference_disables_that_server_and_names_the_field() {
    for reference in [
        "${X}",
        "${env:X}",
        "${input:x}",
        "${workspaceFolder}",
        "${file:/no/such}",
        "${keyring:a/b}",
        "a${X}b",
    ] {
        for (field, entry) in [
            (
                "headers.H",
                r#"{"url":"https://example.com","headers":{"H":"REF"}}"#,
            ),
            ("args (item 2)", r#"{"command":"node","args":["a","REF"]}"#),
            ("env.E", r#"{"command":"node","env":{"E":"REF"}}"#),
            ("cwd", r#"{"command":"node","cwd":"/a/REF"}"#),
            ("command", r#"{"command":"/a/REF"}"#),
            ("url", r#"{"url":"https://example.com/REF"}"#),
        ] {
            let entry = entry.replace("REF", reference);
            let normalized = json(&format!(
                r#"{{"mcpServers":{{"bad":{entry},"good":{{"command":"node"}}}}}}"#
            ));
            let errors = errors(&normalized);
            assert!(
                !errors.is_empty() && errors.iter().all(|(_, server)| *server == Some("bad")),
                "{entry}: {errors:?}"
            );
            assert_eq!(normalized.specs.len(), 1, "{entry}");
            let named = format!("`{field}`");
            let of_field = normalized
                .diagnostics
                .iter()
                .any(|found| found.severity == Severity::Error && found.message.contains(&named));
            assert!(of_field, "{entry}: {:?}", normalized.diagnostics);
        }
    }
}

#[test]
fn report_4_every_unset_reference_of_a_server_is_named_at_once() {
    let normalized =
        json(r#"{"mcpServers":{"a":{"command":"node","args":["${A} ${B}"],"env":{"E":"${C}"}}}}"#);
    let messages: String = normalized
        .diagnostics
        .iter()
        .map(|found| found.message.clone() + "\n")
        .collect();
    for name in ["`A`", "`B`", "`C`"] {
        assert!(messages.contains(name), "{messages}");
    }
}

#[test]
fn report_7_a_disabled_server_is_listed_as_such_however_it_is_said() {
    for said in [
        r#""disabled":true"#,
        r#""enabled":false"#,
        r#""disabled":true,"enabled":true"#,
        r#""disabled":false,"enabled":false"#,
    ] {
        for command in ["node", "nowhere-to-be-found", "/no/such/program"] {
            let normalized = json(&format!(
                r#"{{"mcpServers":{{"a":{{"command":"{command}",{said},"env":{{"A":"${{X}}"}}}}}}}}"#
            ));
            assert!(!normalized.has_errors(), "{said} {command}");
            assert!(!normalized.specs[0].enabled, "{said} {command}");
        }
    }
}

/// Goose has two places for it: whichever keeps the server from running counts.
#[test]
fn report_7_a_server_that_is_disabled_in_one_of_two_places_is_disabled() {
    for (outer, inner, enabled) in [
        ("true", "true", true),
        ("true", "false", false),
        ("false", "true", false),
    ] {
        let text = format!(
            "extensions: {{a: {{enabled: {outer}, config: {{type: stdio, cmd: /usr/bin/node, enabled: {inner}}}}}}}"
        );
        let normalized = normalize(
            &[Document::new("a.yaml", text)],
            &Options::default(),
            &Machine::default(),
        );
        assert_eq!(normalized.specs[0].enabled, enabled, "{outer} {inner}");
    }
}

#[test]
fn report_7_a_server_whose_switch_cannot_be_read_does_not_run() {
    for said in [
        r#""disabled":"true""#,
        r#""disabled":1"#,
        r#""enabled":"no""#,
        r#""enabled":null"#,
        r#""disabled":false,"disabled":true"#,
    ] {
        let normalized = json(&format!(
            r#"{{"mcpServers":{{"a":{{"command":"node",{said}}}}}}}"#
        ));
        assert_eq!(normalized.specs, [], "{said}");
        assert!(normalized.has_errors(), "{said}");
    }
}

#[test]
fn report_56_the_same_server_in_two_documents_is_reported_and_started_once() {
    let first = Document::new(
        "one.json",
        r#"{"mcpServers":{"a":{"command":"node","args":["x"]}}}"#,
    );
    let second = Document::new(
        "two.yaml",
        "mcp:\n  servers:\n    - name: a\n      command: /usr/bin/node\n      args: [x]\n",
    );
    for documents in [[first.clone(), second.clone()], [second, first]] {
        let normalized = normalize(&documents, &Options::default(), &Machine::default());
        assert_eq!(normalized.specs.len(), 1);
        assert_eq!(normalized.specs[0].origin.file, documents[0].name);
        let [found] = normalized.diagnostics.as_slice() else {
            panic!("one finding")
        };
        assert_eq!(
            (found.severity, found.code),
            (Severity::Warning, Code::SameServer)
        );
        assert_eq!(found.file, documents[1].name);
        assert!(
            found.message.contains(&format!("`{}`, line", documents[0].name)),
            "{}",
            found.message
        );
    }
}

#[test]
fn report_56_the_same_server_under_another_name_in_two_documents_is_started_once() {
    let document = |file: &str, server: &str| Document::new(file, format!("{{\"mcpServers\":{{{server}}}}}"));
    for (one, two) in [
        (
            r#""files":{"command":"node","args":["x"],"env":{"A":"1"}}"#,
            r#""my-files":{"command":"/usr/bin/node","args":["x"],"env":{"A":"1"},"timeout":9}"#,
        ),
        (
            r#""docs":{"url":"https://docs.example.com/mcp"}"#,
            r#""Documentation":{"type":"http","url":"https://DOCS.example.com:443/mcp","description":"d"}"#,
        ),
    ] {
        let documents = [document("one.json", one), document("two.json", two)];
        let normalized = normalize(&documents, &Options::default(), &Machine::default());
        let [spec] = normalized.specs.as_slice() else {
            panic!("one server: {:?}", normalized.specs)
        };
        assert_eq!(spec.origin.file, "one.json");
        let [found] = normalized.diagnostics.as_slice() else {
            panic!("one finding: {:?}", normalized.diagnostics)
        };
        assert_eq!(
            (found.severity, found.code, found.file.as_str()),
            (Severity::Warning, Code::SameServer, "two.json")
        );
        for named in [spec.display_name.as_str(), "`one.json`, line 1", "started once"] {
            assert!(found.message.contains(named), "{}", found.message);
        }
    }
    // Another argument, variable or path is another server; one that is disabled starts nothing.
    for (one, two) in [
        (
            r#""a":{"command":"node","args":["x"]}"#,
            r#""b":{"command":"node","args":["y"]}"#,
        ),
        (
            r#""a":{"command":"node","env":{"A":"1"}}"#,
            r#""b":{"command":"node"}"#,
        ),
        (
            r#""a":{"url":"https://x.example/a"}"#,
            r#""b":{"url":"https://x.example/b"}"#,
        ),
        (
            r#""a":{"command":"node","disabled":true}"#,
            r#""b":{"command":"node"}"#,
        ),
        (
            r#""a":{"command":"node"}"#,
            r#""b":{"command":"node","disabled":true}"#,
        ),
    ] {
        let documents = [document("one.json", one), document("two.json", two)];
        let normalized = normalize(&documents, &Options::default(), &Machine::default());
        assert_eq!(
            (normalized.specs.len(), normalized.diagnostics),
            (2, vec![]),
            "{one} {two}"
        );
    }
}

#[test]
fn report_56_two_servers_that_only_share_their_id_are_an_error_with_both_places() {
    let first = Document::new("one.json", "\n{\"mcpServers\":{\"a\":{\"command\":\"node\"}}}");
    let second = Document::new("two.json", "\n\n{\"mcpServers\":{\"a\":{\"command\":\"npx\"}}}");
    let normalized = normalize(&[first, second], &Options::default(), &Machine::default());
    assert_eq!(errors(&normalized), [(Code::DuplicateServer, Some("a"))]);
    let found = &normalized.diagnostics[0];
    assert!(
        found.message.contains("in `one.json`, line 2 and here (line 3)"),
        "{}",
        found.message
    );
    assert_eq!((found.file.as_str(), found.line), ("two.json", 3));
    assert_eq!(normalized.specs.len(), 1);
    assert_eq!(normalized.specs[0].origin.file, "one.json");
}
