//! Rules that hold across documents, profiles and options.

use std::path::Path;

use portcullis_config::{
    Code, Diagnostic, Dialect, Document, HttpSpec, NoEnvironment, Normalized, Options, ProcessLimits,
    Profile, ServerSpec, StdioSpec, TransportSpec, import, normalize,
};

use crate::machine::Machine;

fn run(name: &str, text: &str, options: &Options) -> Normalized {
    normalize(&[Document::new(name, text)], options, &Machine::default())
}

fn codes(normalized: &Normalized) -> Vec<Code> {
    normalized.diagnostics.iter().map(|found| found.code).collect()
}

#[test]
fn a_document_may_tighten_the_profile_and_never_loosen_it() {
    let strict = Options {
        profile: Profile::Strict,
        ..Options::default()
    };
    for (said, options, absolute_only) in [
        ("", Options::default(), false),
        ("profile: desktop", Options::default(), false),
        ("profile: strict", Options::default(), true),
        ("profile: desktop", strict.clone(), true),
        ("", strict.clone(), true),
    ] {
        let text = format!("mcp:\n  {said}\n  servers: [{{name: a, command: node}}]\n");
        let refused = codes(&run("a.yaml", &text, &options)).contains(&Code::ProgramNotAbsolute);
        assert_eq!(refused, absolute_only, "{said}");
    }
    let desktop_document = run("a.json", r#"{"mcpServers":{"a":{"command":"node"}}}"#, &strict);
    assert_eq!(codes(&desktop_document), [Code::ProgramNotAbsolute]);
    for unreadable in [
        "profile: lax",
        "profile: 1",
        "profile: desktop\n  profile: strict",
    ] {
        let text = format!("mcp:\n  {unreadable}\n  servers: [{{name: a, command: node}}]\n");
        let normalized = run("a.yaml", &text, &Options::default());
        assert!(
            normalized.has_errors() && normalized.specs.is_empty(),
            "{unreadable}"
        );
    }
}

#[test]
fn timeouts_follow_from_the_nearest_that_is_given() {
    for (hub, server, expected) in [
        ("", "", [30_000, 30_000, 30_000, 300_000]),
        ("timeoutMs: 5000", "", [5_000, 5_000, 5_000, 50_000]),
        (
            "timeoutMs: 5000",
            "timeoutMs: 7000",
            [7_000, 7_000, 7_000, 70_000],
        ),
        ("", "timeouts: {callMs: 9000}", [30_000, 30_000, 9_000, 90_000]),
        ("", "longRunning: true", [30_000, 30_000, 30_000, 3_600_000]),
        (
            "",
            "longRunning: true\n      timeoutMs: 7200000",
            [7_200_000, 7_200_000, 7_200_000, 7_200_000],
        ),
        ("profile: strict", "", [60_000, 60_000, 60_000, 600_000]),
        (
            "",
            "longRunning: true\n      timeouts: {callMaxMs: 40000}",
            [30_000, 30_000, 30_000, 40_000],
        ),
    ] {
        let text = format!(
            "mcp:\n  {hub}\n  servers:\n    - name: a\n      command: /usr/bin/node\n      {server}\n"
        );
        let normalized = run("a.yaml", &text, &Options::default());
        assert_eq!(normalized.diagnostics, [], "{text}");
        let t = normalized.specs[0].timeouts;
        let each = [t.connect, t.list, t.call, t.call_max].map(|deadline| deadline.as_millis());
        assert_eq!(each, expected, "{text}");
    }
}

#[test]
fn a_desktop_url_opens_its_own_scheme_host_and_port_and_nothing_else() {
    for (url, rule) in [
        ("https://Example.COM./deep/path?x=1", "https://example.com:443/"),
        ("http://localhost:3000/mcp", "http://localhost:3000/"),
        ("http://[::1]:9/", "http://[::1]:9/"),
        (
            "https://xn--nxasmq6b.example:8443",
            "https://xn--nxasmq6b.example:8443/",
        ),
    ] {
        let normalized = run(
            "a.json",
            &format!(r#"{{"mcpServers":{{"a":{{"url":"{url}"}}}}}}"#),
            &Options::default(),
        );
        let TransportSpec::Http(http) = &normalized.specs[0].transport else {
            panic!("{url}")
        };
        let rules: Vec<_> = http.egress.iter().map(ToString::to_string).collect();
        assert_eq!(rules, [rule]);
    }
}

#[test]
fn an_own_url_needs_a_line_and_following_the_help_is_enough() {
    for url in [
        "https://example.com/mcp",
        "http://127.0.0.1:8080/mcp",
        "https://[2001:db8::1]:8443/",
        "https://a.b.example:444",
    ] {
        let server = format!("  servers: [{{name: a, url: \"{url}\"}}]\n");
        let refused = run("a.yaml", &format!("mcp:\n{server}"), &Options::default());
        assert_eq!(codes(&refused), [Code::HostNotAllowed], "{url}");
        let line = refused.diagnostics[0].help.split('`').nth(1).unwrap();
        let mended = run(
            "a.yaml",
            &format!("mcp:\n  allowedHosts:\n    {line}\n{server}"),
            &Options::default(),
        );
        assert_eq!(mended.diagnostics, [], "{url}: {line}");
        assert_eq!(mended.specs.len(), 1);
    }
}

#[test]
fn json_and_yaml_of_one_meaning_give_the_same_servers() {
    let json = r#"{"mcp":{"servers":[{"name":"a","command":"node","args":["1","x"],"env":{"N":5}}]}}"#;
    let yaml = "mcp:\n  servers:\n  - name: a\n    command: node\n    args: ['1', x]\n    env:\n      N: 5\n";
    // Without an extension the first character tells.
    let (json, yaml) = (
        run("config", json, &Options::default()),
        run("config", yaml, &Options::default()),
    );
    assert_eq!(json.diagnostics, yaml.diagnostics);
    assert_eq!(json.specs[0].fingerprint(), yaml.specs[0].fingerprint());
}

#[test]
fn limits_are_options() {
    let three = r#"{"mcpServers":{"a":{"command":"node"},"b":{"command":"npx"},"c":{"command":"uvx"}}}"#;
    let few = Options {
        max_servers: Some(2),
        ..Options::default()
    };
    let normalized = run("a.json", three, &few);
    assert_eq!(
        (codes(&normalized), normalized.specs.len()),
        (vec![Code::TooManyServers], 2)
    );
    let small = Options {
        max_document_bytes: three.len() - 1,
        ..Options::default()
    };
    assert_eq!(codes(&run("a.json", three, &small)), [Code::TooLarge]);
    let exact = Options {
        max_document_bytes: three.len(),
        ..Options::default()
    };
    assert_eq!(codes(&run("a.json", three, &exact)), []);
    for (name, text) in [
        ("a.json", r#"{"mcpServers":{"a":{"command":"node"}}}"#),
        ("a.yaml", "mcpServers: {a: {command: node}}"),
    ] {
        for (max_depth, fits) in [(2, false), (3, true)] {
            let shallow = Options {
                max_depth,
                ..Options::default()
            };
            assert_eq!(
                codes(&run(name, text, &shallow)).is_empty(),
                fits,
                "{name} {max_depth}"
            );
        }
    }
}

#[test]
fn more_servers_than_a_strict_call_takes_are_counted_over_all_documents() {
    let document = |from: usize| {
        let servers: String = (from..from + 5)
            .map(|i| format!("    - {{name: s{i}, command: /usr/bin/node, args: [{i}]}}\n"))
            .collect();
        Document::new(
            format!("{from}.yaml"),
            format!("mcp:\n  profile: strict\n  servers:\n{servers}"),
        )
    };
    let normalized = normalize(
        &[document(0), document(10)],
        &Options::default(),
        &Machine::default(),
    );
    assert_eq!(normalized.specs.len(), Options::STRICT_MAX_SERVERS);
    assert_eq!(codes(&normalized), [Code::TooManyServers, Code::TooManyServers]);
}

#[test]
fn findings_stand_in_the_order_of_the_documents_and_of_their_text() {
    let text = r#"{"zzz":1,"mcpServers":{"b":{"command":"nope","aaa":1},"a":{}},"yyy":2}"#;
    let documents = [Document::new("z.json", text), Document::new("a.json", text)];
    let normalized = normalize(&documents, &Options::default(), &Machine::default());
    let places: Vec<_> = normalized
        .diagnostics
        .iter()
        .map(|found| (found.file != "z.json", found.span.offset_bytes))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(places.len(), 10);
}

#[test]
fn whoever_refers_to_a_keyring_is_told_whether_there_is_one_at_all() {
    let text = r#"{"mcpServers":{"a":{"command":"/usr/bin/node","env":{"T":"${keyring:nothing/here}"}}}}"#;
    let document = [Document::new("a.json", text)];
    for (environment, said) in [
        (
            &Machine::default() as &dyn portcullis_config::Environment,
            "which is not there, or cannot be read",
        ),
        (&NoEnvironment, "this program was built without a keyring"),
    ] {
        let normalized = normalize(&document, &Options::default(), environment);
        let found = normalized
            .diagnostics
            .iter()
            .find(|found| found.code == Code::UnsetReference);
        let message = &found.unwrap().message;
        assert!(
            message.contains("`env.T` needs the keyring's entry `nothing/here`"),
            "{message}"
        );
        assert!(message.contains(said), "{message}");
    }
}

/// Each server's url is held against all of a list of rules, so that has a bound.
#[test]
fn a_list_of_rules_has_so_many_and_no_more() {
    for (count, fits) in [(256, true), (257, false)] {
        let rules: Vec<_> = (0..count).map(|n| format!("h{n}.example")).collect();
        let text = format!("mcp: {{servers: [], allowedHosts: [{}]}}", rules.join(", "));
        let normalized = run("a.yaml", &text, &Options::default());
        assert_eq!(codes(&normalized).is_empty(), fits, "{count}");
    }
}

/// A file of variables sets so many and no more.
#[test]
fn a_file_of_variables_that_sets_too_many_is_refused() {
    for (count, fits) in [(512, true), (513, false)] {
        let text: String = (0..count).map(|n| format!("V{n}=1\n")).collect();
        let machine = Machine {
            files: vec![("/many.env", text.leak())],
            ..Machine::default()
        };
        let text = "mcp: {servers: [{name: a, command: node, envFile: /many.env}]}";
        let normalized = normalize(&[Document::new("a.yaml", text)], &Options::default(), &machine);
        assert_eq!(normalized.specs.len(), usize::from(fits), "{count}");
        assert_eq!(codes(&normalized).is_empty(), fits, "{count}");
    }
}

/// What follows a program's path may be more of the path, and only the machine knows.
#[test]
fn a_path_with_options_behind_it_is_a_whole_command_line_unless_it_is_there() {
    let machine = Machine {
        programs: vec!["/opt/my -old tools/run"],
        variables: vec![("OPT", "/opt")],
        ..Machine::default()
    };
    for (command, whole_line) in [
        ("/opt/my -old tools/run", false),
        ("${OPT}/my -old tools/run", false),
        ("${OPT}/my -new tools/run", true),
        ("${NOT_SET}/my -old tools/run", true),
        ("/opt/my A=b tools/run", true),
        ("/opt/my https://a.example", true),
        ("/opt/my X-Api-Key:b", true),
        ("/opt/my -new tools/run", true),
        ("/opt/my tools/run --key x", true),
        ("/opt/my - tools/run", false),
        ("/opt/my tools/run", false),
        ("npx run", true),
        ("npx", false),
    ] {
        let text = format!("mcp: {{servers: [{{name: a, command: '{command}'}}]}}");
        let normalized = normalize(&[Document::new("a.yaml", text)], &Options::default(), &machine);
        let is_told = |found: &Diagnostic| found.message.contains("whole command line");
        assert_eq!(
            normalized.diagnostics.iter().any(is_told),
            whole_line,
            "{command}"
        );
        let is_there = matches!(command, "/opt/my -old tools/run" | "${OPT}/my -old tools/run");
        assert_eq!(normalized.specs.len(), usize::from(is_there), "{command}");
    }
}

/// More of a path is shown, for it says which file was looked for; what may be an argument is not.
#[test]
fn what_follows_a_programs_first_word_is_shown_only_as_a_path() {
    for (command, shown) in [
        ("/opt/My Tools/run", "`/opt/My Tools/run`"),
        ("/opt/My Tools/node@20/run", "`/opt/My …`"),
        ("/opt/node@20/run", "`/opt/node@20/run`"),
        ("/opt/run ab/cd?e=f", "`/opt/run …`"),
        ("/opt/run /A=b/c", "`/opt/run …`"),
        ("/opt/run tools", "`/opt/run …`"),
        ("npx a/b", "`npx …`"),
        ("https://a.example/sse?token=hunter2", "`https://a.example/sse…`"),
        ("TOKEN=hunter2", "`TOKEN…`"),
        ("ghp_hunter2hunter2", "`…`"),
        ("nope", "`nope`"),
        ("/opt/gone ", "`/opt/gone `"),
        ("npx ", "`npx `"),
        (r"\\?\C:\Program Files\run", r"`\\?\C:\Program Files\run`"),
    ] {
        let text = format!("mcp: {{servers: [{{name: a, command: '{command}'}}]}}");
        let normalized = run("a.yaml", &text, &Options::default());
        let told = format!("the program {shown} is ");
        let message = &normalized.diagnostics[0].message;
        assert!(message.starts_with(&told), "{command}: {message}");
    }
}

/// What a server's process may use is read, written again by an import, and part of what a reload compares.
#[test]
fn limits_of_a_process_are_read() {
    let text = |limits: &str| format!("mcp:\n  servers:\n    - {{name: a, command: node{limits}}}\n");
    let read = |limits: &str| {
        let document = Document::new("p.yaml", text(limits));
        let normalized = normalize(&[document], &Options::default(), &Machine::default());
        normalized.specs.into_iter().next().unwrap()
    };
    let limits =
        ", limits: {memoryBytes: 8589934592, openFiles: 64, processes: 32, cpuSeconds: 10, fileBytes: 1}";
    let limited = read(limits);
    let expected = ProcessLimits {
        memory_bytes: Some(8_589_934_592),
        open_files: Some(64),
        processes: Some(32),
        cpu_seconds: Some(10),
        file_bytes: Some(1),
    };
    assert_eq!(limited.limits.process, expected);
    let document = Document::new("p.yaml", text(limits));
    let config = import(&document, &Options::default(), &Machine::default()).config;
    let again = normalize(
        &[Document::new("i.yaml", config)],
        &Options::default(),
        &Machine::default(),
    );
    assert_eq!(again.specs[0].limits, limited.limits);
    let unlimited = read("");
    assert_eq!(unlimited.limits.process, ProcessLimits::default());
    assert_ne!(limited.fingerprint(), unlimited.fingerprint());
}

/// What the rules say of one definition that a host hands over in code: all is well, or one finding.
type CodeForm = (String, Option<Code>);

fn code_options() -> Options {
    let mut options = Options::default();
    options
        .allowed_inherited_env_keys
        .extend(["GITHUB_TOKEN".to_owned(), "SURELY_UNSET".to_owned()]);
    options
}

#[track_caller]
fn check_code_form(cases: impl IntoIterator<Item = CodeForm>) {
    let options = code_options();
    for (definition, refused) in cases {
        let document = Document::new("a.json", format!("[{definition}]")).in_dialect(Dialect::Code);
        let normalized = normalize(&[document], &options, &Machine::default());
        match refused {
            None => {
                assert_eq!(normalized.diagnostics, [], "{definition}");
                assert_eq!(normalized.specs[0].profile, Profile::Strict, "{definition}");
            }
            Some(code) => {
                assert!(
                    codes(&normalized).contains(&code),
                    "{definition}: {:?}",
                    normalized.diagnostics
                );
                let warned = code == Code::UnknownField;
                assert_eq!(normalized.specs.len(), usize::from(warned), "{definition}");
            }
        }
    }
}

fn named(id: &str) -> String {
    format!(r#"{{"id":"{id}","command":["/usr/bin/node"]}}"#)
}

#[test]
fn the_code_form_holds_its_rules_of_ids_and_commands() {
    check_code_form([
        (named("a"), None),
        (named("a-1"), None),
        (named(&"a".repeat(64)), None),
        (named(&"a".repeat(65)), Some(Code::BadValue)),
        (named("A"), Some(Code::BadValue)),
        (named("1a"), Some(Code::BadValue)),
        (named("a_b"), Some(Code::BadValue)),
        (named(""), Some(Code::BadValue)),
        (
            r#"{"command":["/usr/bin/node"]}"#.to_owned(),
            Some(Code::MissingField),
        ),
        (
            r#"{"id":"a","command":["/usr/bin/node","x",""]}"#.to_owned(),
            None,
        ),
        (
            r#"{"id":"a","command":["node"]}"#.to_owned(),
            Some(Code::ProgramNotAbsolute),
        ),
        (
            r#"{"id":"a","command":["./node"]}"#.to_owned(),
            Some(Code::ProgramNotAbsolute),
        ),
        (
            r#"{"id":"a","command":["/no/such"]}"#.to_owned(),
            Some(Code::ProgramNotFound),
        ),
        (r#"{"id":"a","command":[]}"#.to_owned(), Some(Code::BadValue)),
        (
            r#"{"id":"a","command":"/usr/bin/node"}"#.to_owned(),
            Some(Code::WrongType),
        ),
    ]);
}

#[test]
fn the_code_form_holds_its_rules_of_variables_and_times() {
    let with = |fields: &str| format!(r#"{{"id":"a","command":["/usr/bin/node"]{fields}}}"#);
    check_code_form([
        (
            with(r#","environment":{"MODE":"x","KEYBOARD_LAYOUT":"de"}"#),
            None,
        ),
        (
            with(r#","environment":{"API_KEY":"x"}"#),
            Some(Code::CapabilityInEnv),
        ),
        (
            with(r#","environment":{"my_password":"x"}"#),
            Some(Code::CapabilityInEnv),
        ),
        (
            with(r#","environment":{"GITHUB_TOKEN":"x"}"#),
            Some(Code::CapabilityInEnv),
        ),
        (with(r#","environment":{"1A":"x"}"#), Some(Code::BadValue)),
        (with(r#","environment":{"A-B":"x"}"#), Some(Code::BadValue)),
        (with(r#","environment":{"A=B":"x"}"#), Some(Code::BadValue)),
        (with(r#","environment":{"":"x"}"#), Some(Code::BadValue)),
        (
            with(r#","envFile":"/home/ada/vars.env""#),
            Some(Code::UnknownField),
        ),
        (with(r#","inheritEnvironment":["GITHUB_TOKEN"]"#), None),
        (
            with(r#","inheritEnvironment":["HOME"]"#),
            Some(Code::InheritNotAllowed),
        ),
        (with(r#","inheritEnvironment":["A-B"]"#), Some(Code::BadValue)),
        (
            with(r#","inheritEnvironment":["SURELY_UNSET"]"#),
            Some(Code::UnsetReference),
        ),
        (with(r#","timeout":1000"#), None),
        (with(r#","timeout":300000"#), None),
        (with(r#","timeout":999"#), Some(Code::BadValue)),
        (with(r#","timeout":300001"#), Some(Code::BadValue)),
        (with(r#","timeout":"5000""#), Some(Code::WrongType)),
    ]);
}

#[test]
fn the_code_form_has_its_defaults_and_its_number_of_servers() {
    let options = code_options();
    let default = run("a.json", &format!("[{}]", named("a")), &options);
    let t = default.specs[0].timeouts;
    assert_eq!([t.connect, t.list, t.call].map(|t| t.as_millis()), [60_000; 3]);
    assert_eq!(default.specs[0].limits.tools, 256);

    let many = |count: usize| {
        let all: Vec<_> = (0..count)
            .map(|n| format!(r#"{{"id":"s{n}","command":["/usr/bin/node","{n}"]}}"#))
            .collect();
        run("a.json", &format!("[{}]", all.join(",")), &options)
    };
    assert_eq!((many(8).specs.len(), codes(&many(8))), (8, vec![]));
    assert_eq!(
        (many(9).specs.len(), codes(&many(9))),
        (8, vec![Code::TooManyServers])
    );
    let twice = run("a.json", &format!("[{},{}]", named("a"), named("a")), &options);
    assert_eq!(
        (twice.specs.len(), codes(&twice)),
        (1, vec![Code::DuplicateServer])
    );
}

/// It costs that server; a name that is like none of them is only told.
#[test]
fn a_server_does_not_start_without_what_was_to_restrict_it() {
    for (field, starts) in [
        ("disable: true", false),
        ("Enabled: false", false),
        ("disabled_tools: [rm]", false),
        ("limit: {tools: 1}", false),
        ("excludeTools: [rm]", false),
        ("allowed_tools: [ls]", false),
        ("limits: {memory: 5}", false),
        ("memoryBytes: 5", false),
        ("icon: a.png", true),
        ("comand: node", true),
        ("timeouts: {connectMS: 5}", true),
    ] {
        let text = format!(
            "mcp: {{servers: [{{name: a, command: /usr/bin/node, {field}}}, {{name: b, command: /usr/bin/node, args: [b]}}]}}\n"
        );
        let normalized = run("a.yaml", &text, &Options::default());
        assert_eq!(codes(&normalized), [Code::UnknownField], "{field}");
        assert_eq!(normalized.has_errors(), !starts, "{field}");
        assert_eq!(normalized.specs.len(), 1 + usize::from(starts), "{field}");
        assert!(!normalized.settings.limits_unread, "{field}");
    }
}

/// The same in other clients' documents, whichever client has the field.
#[test]
fn a_clients_server_does_not_start_without_what_was_to_restrict_it() {
    for (file, before, after, field, starts) in [
        (
            "mcp.json",
            "{\"mcpServers\": {\"a\": {",
            "}}}",
            r#""disabledTool": ["rm"]"#,
            false,
        ),
        (
            "mcp.json",
            "{\"mcpServers\": {\"a\": {",
            "}}}",
            r#""Disabled": true"#,
            false,
        ),
        (
            "mcp.json",
            "{\"mcpServers\": {\"a\": {",
            "}}}",
            r#""excludeTool": ["rm"]"#,
            false,
        ),
        (
            "mcp.json",
            "{\"mcpServers\": {\"a\": {",
            "}}}",
            r#""note": "x""#,
            true,
        ),
        (
            "mcp.json",
            "{\"servers\": {\"a\": {\"type\": \"stdio\", ",
            "}}}",
            r#""disabledTool": ["rm"]"#,
            false,
        ),
        (
            "config.toml",
            "[mcp_servers.a]\n",
            "\n",
            r#"disabled_tool = ["rm"]"#,
            false,
        ),
    ] {
        let command = if file.ends_with("toml") {
            "command = \"/usr/bin/node\"\n"
        } else {
            "\"command\": \"/usr/bin/node\", "
        };
        let text = format!("{before}{command}{field}{after}");
        let normalized = run(file, &text, &Options::default());
        assert_eq!(codes(&normalized), [Code::UnknownField], "{text}");
        assert_eq!(normalized.has_errors(), !starts, "{text}");
        assert_eq!(normalized.specs.len(), usize::from(starts), "{text}");
    }
}

/// Wherever a definition stands, and whoever hands it over.
#[test]
fn a_definition_of_goose_or_of_a_host_is_not_used_without_what_was_to_restrict_it() {
    let goose = |field: &str| {
        format!("extensions: {{a: {{enabled: true, config: {{type: stdio, cmd: /usr/bin/node{field}}}}}}}")
    };
    let host = |field: &str| format!(r#"[{{"id": "a", "command": ["/usr/bin/node"]{field}}}]"#);
    for (text, options, field) in [
        (goose("\0"), Options::default(), ", available_tool: [ls]"),
        (host("\0"), code_options(), r#", "disabledTool": ["rm"]"#),
        (
            host("\0"),
            code_options(),
            r#", "disabledAutoApproveTool": ["rm"]"#,
        ),
    ] {
        let file = if text.starts_with('[') { "a.json" } else { "a.yaml" };
        let without = run(file, &text.replace('\0', ""), &options);
        assert_eq!(without.specs.len(), 1, "{:?}", without.diagnostics);
        let with = run(file, &text.replace('\0', field), &options);
        assert_eq!(codes(&with), [Code::UnknownField], "{field}");
        assert!(with.specs.is_empty() && with.has_errors(), "{field}");
    }
}

/// However much else there is that nobody knows.
#[test]
fn many_fields_of_ones_own_are_only_told() {
    let server = |number: u32| {
        format!(
            "{{name: s{number}, command: /usr/bin/node, args: [\"{number}\"], icon: a, note: b, x-id: c}}"
        )
    };
    let servers: Vec<_> = (0..200).map(server).collect();
    let text = format!("mcp: {{servers: [{}]}}\n", servers.join(", "));
    let normalized = run("a.yaml", &text, &Options::default());
    assert!(!normalized.has_errors());
    assert_eq!(normalized.specs.len(), 200);
}

/// What a host gives in code is what a document gives that says as little.
#[test]
fn a_server_that_says_no_more_is_the_same_in_code() {
    for (fields, transport) in [
        (
            "url: https://example.com/mcp, egress: [https://example.com]",
            TransportSpec::from(HttpSpec::new(
                "https://example.com/mcp".parse().unwrap(),
                vec!["https://example.com".parse().unwrap()],
            )),
        ),
        (
            "command: /usr/bin/node, args: [b]",
            StdioSpec::new("/usr/bin/node", ["b"]).into(),
        ),
    ] {
        let text = format!("mcp: {{servers: [{{name: a, {fields}}}]}}\n");
        let normalized = run("a.yaml", &text, &Options::default());
        let [spec] = &normalized.specs[..] else {
            panic!("{:?}", normalized.diagnostics)
        };
        let origin = spec.origin.clone();
        let given = ServerSpec {
            origin,
            ..ServerSpec::new("a".parse().unwrap(), transport)
        };
        assert_eq!(*spec, given);
        assert_eq!(spec.fingerprint(), given.fingerprint());
    }
}

#[test]
fn a_program_is_looked_up_in_the_path_that_a_file_of_variables_gives() {
    let mut machine = Machine::default();
    machine.files.push(("/own.env", "PATH=/opt/tools/bin\n"));
    let text = "mcp: {servers: [{name: a, command: tool, envFile: /own.env}, {name: b, command: node, envFile: /own.env}]}\n";
    let normalized = normalize(&[Document::new("a.yaml", text)], &Options::default(), &machine);
    let [TransportSpec::Stdio(found)] = &normalized
        .specs
        .iter()
        .map(|spec| spec.transport.clone())
        .collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", normalized.diagnostics)
    };
    assert_eq!(found.program, Path::new("/opt/tools/bin/tool"));
    let [missing] = &normalized.diagnostics[..] else {
        panic!("{:?}", normalized.diagnostics)
    };
    assert_eq!(missing.code, Code::ProgramNotFound);
    assert!(missing.message.contains("`envFile`"), "{}", missing.message);
}
