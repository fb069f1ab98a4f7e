//! Violations that are planted, each caught at its line and column; and code that must not be mistaken for one.

use super::*;
use crate::planted::Planted;

/// A violation in a file of its own inside a small tree: the guard must point at what follows each `§`, and at
/// nothing else.
#[track_caller]
fn caught(name: &str, marked: &str) {
    let mut expected = Vec::new();
    for (line, number) in marked.lines().zip(1..) {
        let column = line.chars().position(|character| character == '§');
        assert!(line.matches('§').count() < 2, "{name}: one mark a line");
        expected.extend(column.map(|before| (number, before + 1)));
    }
    assert!(!expected.is_empty(), "{name}: nothing is marked");
    let path = "crates/portcullis-x/src/planted.rs";
    let text = marked.replace('§', "");
    let tree = Planted::new(&[
        (path, &text),
        ("crates/portcullis-x/src/lib.rs", "//! Fine.\nmod planted;\n"),
    ]);
    let root = tree.root();
    let findings: Vec<Finding> = check_files(&root, &root.rust_files().unwrap());
    let found: Vec<(usize, usize)> = findings
        .iter()
        .map(|finding| (finding.line, finding.column))
        .collect();
    assert_eq!(found, expected, "{name}: {findings:#?}");
    assert!(
        findings.iter().all(|finding| finding.path == path),
        "{name}: {findings:#?}"
    );
    assert!(run(&root).is_err(), "{name}: the command must fail");
}

#[track_caller]
fn clean(name: &str, text: &str) {
    let tree = Planted::new(&[("crates/portcullis-x/src/lib.rs", text)]);
    let root = tree.root();
    let findings: Vec<Finding> = check_files(&root, &root.rust_files().unwrap());
    assert!(findings.is_empty(), "{name}: {findings:#?}");
    assert!(run(&root).is_ok(), "{name}: the command must pass");
}

#[test]
fn names_of_rmcp_are_caught() {
    for (name, text) in [
        ("import", "use rmcp::model::§CreateMessageRequestParams;"),
        (
            "renamed import",
            "use rmcp::model::{Tool, §LoggingLevel as Level};",
        ),
        ("rmcp's root, imported", "use rmcp::model::{§Root, Tool};"),
        ("rmcp's root, by path", "fn f(root: &rmcp::model::§Root) {}"),
        (
            "pattern",
            "fn f(r: R) { if let ServerRequest::§ListRootsRequest(_) = r {} }",
        ),
        (
            "variant without more",
            "fn f(r: R) { matches!(r, InputRequest::§ListRoots(_)); }",
        ),
        ("type", "type A = rmcp::model::§SamplingMessage;"),
        ("turbofish", "fn f() { g::<§SetLevelRequest>() }"),
        ("notification", "fn f(n: §RootsListChangedNotification) {}"),
        ("log notification", "fn f(n: §LoggingMessageNotificationParam) {}"),
        (
            "capability type",
            "fn f() { let _ = §RootsCapabilities::default(); }",
        ),
        (
            "macro argument",
            "fn f() { assert!(matches!(x, ClientResult::§CreateMessageResult(_))); }",
        ),
        (
            "definition of a macro",
            "macro_rules! m { () => { rmcp::model::§SamplingCapability {} } }",
        ),
        (
            "attribute",
            "#[derive(Clone)]\n#[handles(§CreateMessageRequest)]\nstruct S;",
        ),
        (
            "on a later line",
            "//! Doc.\n\nfn f() {}\n\nfn g() {\n    peer.§create_message(params);\n}",
        ),
    ] {
        caught(name, text);
    }
}

#[test]
fn methods_are_caught() {
    for method in [
        "create_message",
        "list_roots",
        "set_level",
        "on_logging_message",
        "on_roots_list_changed",
    ] {
        caught(method, &format!("impl H {{ fn §{method}(&self) {{}} }}"));
    }
    for method in [
        "enable_sampling",
        "enable_roots",
        "enable_logging",
        "notify_roots_list_changed",
        "set_log_level",
    ] {
        caught(method, &format!("fn f() {{ b().§{method}(); }}"));
    }
    for (name, text) in [
        ("raw identifier", "fn f() { peer.§r#list_roots(); }"),
        ("metadata", "fn f() { context.meta.§log_level(); }"),
    ] {
        caught(name, text);
    }
}

#[test]
fn method_strings_are_caught() {
    for method in [
        "sampling/createMessage",
        "roots/list",
        "notifications/roots/list_changed",
        "logging/setLevel",
        "notifications/message",
        "io.modelcontextprotocol/logLevel",
    ] {
        caught(method, &format!("const M: &str = §\"{method}\";"));
    }
    for (name, text) in [
        (
            "raw string with JSON",
            "const M: &str = §r#\"{\"method\":\"roots/list\"}\"#;",
        ),
        (
            "escaped JSON",
            "const M: &str = §\"{\\\"method\\\":\\\"roots/list\\\"}\";",
        ),
        (
            "JSON with an escaped slash",
            "const M: &str = §r#\"roots\\/list\"#;",
        ),
        ("bytes", "const M: &[u8] = §b\"logging/setLevel\";"),
        ("C string", "const M: &CStr = §c\"logging/setLevel\";"),
        (
            "match arm",
            "fn f(m: &str) { match m { §\"roots/list\" => 1, _ => 2 } }",
        ),
        ("json!", "fn f() { json!({ \"method\": §\"roots/list\" }) }"),
        (
            "json! deep inside",
            "fn f() { json!({\"a\": [1, {\"b\": [§\"roots/list\"]}]}) }",
        ),
        ("format!", "fn f() { format!(§\"{}roots/list\", 1) }"),
        ("concat!", "fn f() { concat!(§\"sampling/\", \"createMessage\") }"),
        (
            "serde attribute",
            "#[serde(rename = §\"logging/setLevel\")]\nstruct S;",
        ),
    ] {
        caught(name, text);
    }
}

#[test]
fn capabilities_are_caught() {
    for (name, text) in [
        ("literal", "fn f() { ClientCapabilities { §roots: None } }"),
        (
            "pattern",
            "fn f(c: C) { let ClientCapabilities { §sampling, .. } = c; }",
        ),
        (
            "assignment",
            "fn f() { let mut c = ClientCapabilities::default(); c.§roots = Some(x); }",
        ),
        (
            "parameter",
            "fn f(c: &mut ClientCapabilities) {\n    c.§sampling = None;\n}",
        ),
        (
            "server's",
            "fn f(c: &ServerCapabilities) -> bool { c.§logging.is_some() }",
        ),
        (
            "other name",
            "use rmcp::model::ClientCapabilities as C;\nfn f(c: C) { c.§roots; }",
        ),
        (
            "alias",
            "type C = ClientCapabilities;\nfn f() { C { §sampling: None } }",
        ),
        (
            "field of ours",
            "fn f(s: &S) { s.client.§roots; }\nstruct S { client: ClientCapabilities }",
        ),
        ("chain", "fn f(i: &Info) { i.capabilities.clone().§sampling; }"),
        (
            "inside a macro",
            "fn f(i: &Info) { assert!(i.capabilities.§roots.is_none()); }",
        ),
        (
            "inside json!",
            "fn f(i: &Info) { json!({ \"a\": i.capabilities.§roots }); }",
        ),
        ("struct of ours", "struct PeerCapabilities { §logging: bool }"),
        (
            "json!",
            "fn f() { json!({ \"capabilities\": { \"elicitation\": {}, §\"sampling\": {} } }) }",
        ),
        ("variable", "fn f() { let caps = json!({ §\"roots\": {} }); }"),
        (
            "field value",
            "fn f() { Init { capabilities: json!({ §\"roots\": {} }) } }",
        ),
        ("insert", "fn f() { capabilities.insert(§\"sampling\", x); }"),
        (
            "inserted object",
            "fn f() { p.insert(\"capabilities\", json!({ §\"roots\": {} })); }",
        ),
        ("index", "fn f() { p[\"capabilities\"][§\"sampling\"] = x; }"),
        (
            "function",
            "fn client_capabilities() -> Value { json!({ §\"roots\": {} }) }",
        ),
        (
            "text",
            "const T: &str = §r#\"{\"capabilities\":{\"tools\":{},\"logging\":{}}}\"#;",
        ),
        (
            "text to be formatted",
            "fn f() { format!(§\"{{\\\"capabilities\\\":{{\\\"roots\\\":{{}}}}}}\") }",
        ),
        (
            "text that is cut",
            "const T: &str = §r#\"{\"clientCapabilities\": {\"sampling\" : {\"#;",
        ),
    ] {
        caught(name, text);
    }
}

#[test]
fn code_out_of_sight_is_caught() {
    for (name, text) in [
        ("included code", "§include!(\"code.txt\");"),
        (
            "included in a function",
            "fn f() { let x = §include!(concat!(env!(\"OUT_DIR\"), \"/x.rs\")); }",
        ),
        ("module elsewhere", "#[§path = \"code.txt\"]\nmod code;"),
        ("module of the machine", "#[§path = \"/srv/x.rs\"]\nmod code;"),
        (
            "module that is built",
            "#[§path = \"../../target/x.rs\"]\nmod code;",
        ),
    ] {
        caught(name, text);
    }
    clean(
        "texts",
        "#[path = \"other.rs\"]\nmod code;\nconst T: &str = include_str!(\"t.txt\");",
    );
}

#[test]
fn links_do_not_hide_code() {
    let tree = Planted::new(&[("notes/code.txt", "fn f() { peer.list_roots(); }")]);
    let root = tree.root();
    std::os::unix::fs::symlink("notes/code.txt", root.join("linked.rs")).unwrap();
    assert_eq!(check_files(&root, &root.rust_files().unwrap()).len(), 1);
    std::os::unix::fs::symlink("notes", root.join("folder")).unwrap();
    assert!(root.rust_files().unwrap_err().to_string().contains("link"));
}

#[test]
fn words_are_not_caught() {
    for (name, text) in [
        (
            "comments",
            "//! sampling/createMessage, roots/list.\n/// `ClientCapabilities { roots }`, notifications/message\nfn f() {} // LoggingLevel::Debug\n",
        ),
        (
            "comments in a macro",
            "macro_rules! m { () => { /// roots/list\n fn f() {} } }",
        ),
        (
            "reasons",
            "#[expect(dead_code, reason = \"roots/list is refused\")]\nfn f() {}",
        ),
        (
            "TLS",
            "fn f() { let mut roots = RootCertStore::empty(); roots.roots.len(); tls.roots.extend(x); Config { roots } }",
        ),
        (
            "tracing",
            "mod logging; fn f() { logging::init(); config.logging.level = x; tracing_subscriber::fmt().with_max_level(l); span.log_level(); }",
        ),
        (
            "sampling of ours",
            "struct Sampler { sampling: f64 } fn f() { s.sampling = 0.5; SamplingRate::new(); Samplings(1); ModelHinting::new(); SetLevels(2); }",
        ),
        (
            "roots of a tree",
            "fn roots() -> Vec<Root> { graph.roots(); json!({ \"roots\": [1], \"logging\": true, \"sampling\": 2 }) }",
        ),
        (
            "capability ids",
            "fn f(capability: CapabilityId) { capability.roots; Capability { roots: 1 } }",
        ),
        (
            "longer paths",
            "const P: &[&str] = &[\"/etc/roots/list\", \"roots/list.d/x\", \"roots/listing\", \"my-roots/list\", \"notifications/messages\", \"notifications/message-x\"];",
        ),
        (
            "other capabilities",
            "const T: &str = r#\"{\"capabilities\":{\"tools\":{}},\"roots\":1, \"logging\":{}}\"#; fn f() { json!({\"capabilities\":{\"tools\":{}}, \"roots\": {}}) }",
        ),
        (
            "elicitation",
            "fn f() { let c = ClientCapabilities::default(); c.elicitation = Some(x); let m = \"elicitation/create\"; }",
        ),
    ] {
        clean(name, text);
    }
}

#[test]
fn the_test_server_may_send_strings_but_name_no_items() {
    let strings =
        "fn f() { json!({\"method\": \"sampling/createMessage\", \"capabilities\": {\"roots\": {}}}); }";
    assert_eq!(check_text("crates/portcullis-testkit/src/script.rs", strings), []);
    assert_eq!(
        check_text("crates/portcullis-testkit-extra/src/lib.rs", strings).len(),
        2
    );
    let names = "fn f() { peer.create_message(x); let c: ClientCapabilities = x; c.roots; }";
    assert_eq!(
        check_text("crates/portcullis-testkit/src/script.rs", names).len(),
        2
    );
}

#[test]
fn each_folder_is_looked_at_but_for_what_is_built() {
    let bad = "fn f() { peer.list_roots(); }";
    let ours = [
        "crates/a/tests/t.rs",
        "crates/a/examples/e.rs",
        "crates/a/build.rs",
        "bench/src/w.rs",
        "fuzz/fuzz_targets/w.rs",
        "tests/src/target/x.rs",
        "xtask/src/main.rs",
    ];
    let built = [
        "target/debug/x.rs",
        "bench/target/x.rs",
        "fuzz/target/x.rs",
        "other/out/x.rs",
        "tests/node_modules/x.rs",
    ];
    let mut files: Vec<(&str, &str)> = ours.iter().chain(&built).map(|path| (*path, bad)).collect();
    files.push(("other/CACHEDIR.TAG", ""));
    let tree = Planted::new(&files);
    let root = tree.root();
    let mut found: Vec<String> = check_files(&root, &root.rust_files().unwrap())
        .into_iter()
        .map(|finding| finding.path)
        .collect();
    found.sort();
    let mut expected = ours.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_file_that_is_not_rust_fails() {
    let findings = check_text("crates/a/src/lib.rs", "fn f() {}\nfn g( {}\n");
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].line, 2);
    assert!(findings[0].what.contains("not valid Rust"), "{findings:#?}");

    let tree = Planted::new(&[("crates/a/src/lib.rs", "fn f( {}")]);
    assert!(run(&tree.root()).is_err());
}

#[test]
fn our_own_code_is_clean() {
    run(&Root::of_this_checkout().unwrap()).unwrap();
}
