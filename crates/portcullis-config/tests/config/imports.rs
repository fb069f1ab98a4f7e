//! What an import prints means what the document means, and says what became of all of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use portcullis_config::{
    Document, Environment, Excerpts, Fate, Imported, Normalized, Options, ServerSpec, Sources, Template,
    TransportSpec, import, normalize,
};
use proptest::prelude::*;
use secrecy::{ExposeSecret, SecretString};

use crate::machine::Machine;

/// A machine on which what an import asks for has been set.
struct After<'a> {
    set: BTreeMap<String, String>,
    machine: &'a Machine,
}

impl Sources for After<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.set
            .get(name)
            .cloned()
            .or_else(|| self.machine.variable(name))
    }

    fn file(&self, path: &str) -> Option<String> {
        self.machine.file(path)
    }

    fn has_keyring(&self) -> bool {
        self.machine.has_keyring()
    }

    fn keyring(&self, service: &str, account: &str) -> Option<SecretString> {
        self.machine.keyring(service, account)
    }
}

impl Environment for After<'_> {
    fn is_executable(&self, path: &Path) -> bool {
        self.machine.is_executable(path)
    }
}

fn options() -> Options {
    let mut options = Options {
        workspace_folder: Some("/w/app".into()),
        ..Options::default()
    };
    options
        .allowed_inherited_env_keys
        .insert("FILES_TOKEN".to_owned());
    options
}

fn all_documents() -> Vec<Document> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("test_data")];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        Document::new(name, std::fs::read(path).unwrap())
    };
    files.into_iter().map(read).collect()
}

/// All that a running server is given, each value resolved.
fn resolved(spec: &ServerSpec, sources: &dyn Sources) -> String {
    let value = |template: &Template| match template.resolve(sources) {
        Ok(value) => value.expose_secret().to_owned(),
        Err(error) => error.to_string(),
    };
    let transport = match &spec.transport {
        TransportSpec::Stdio(stdio) => format!(
            "{:?} {:?} {:?} {:?} {:?}",
            stdio.program,
            stdio.args.iter().map(value).collect::<Vec<_>>(),
            stdio
                .env
                .iter()
                .map(|(name, text)| (name, value(text)))
                .collect::<Vec<_>>(),
            stdio.inherit_env,
            stdio.cwd
        ),
        TransportSpec::Http(http) => format!(
            "{} {:?} {:?} {:?} {:?}",
            http.url,
            http.headers
                .iter()
                .map(|(name, text)| (name, value(text)))
                .collect::<Vec<_>>(),
            http.egress,
            http.proxy.as_ref().map(|proxy| (
                proxy.url.as_str(),
                proxy.username.as_ref().map(value),
                proxy.password.as_ref().map(value)
            )),
            http.root_certificates
        ),
    };
    format!(
        "{} {:?} {:?} {transport} {:?} {:?} {} {:?} {:?} {:?} {:?} {:?}",
        spec.id,
        spec.display_name,
        spec.description,
        spec.timeouts,
        spec.protocol,
        spec.enabled,
        spec.disabled_tools,
        spec.disabled_auto_approve_tools,
        spec.isolation,
        spec.limits,
        spec.profile
    )
}

fn all_resolved(normalized: &Normalized, sources: &dyn Sources) -> Vec<String> {
    normalized
        .specs
        .iter()
        .map(|spec| resolved(spec, sources))
        .collect()
}

fn as_document(imported: &Imported) -> Document {
    Document::new("imported.yaml", imported.config.as_str())
}

/// Imports a document, checks the laws, and gives the import back.
fn check(document: &Document, values: &[(&str, &str)]) -> Imported {
    let (options, machine) = (options(), Machine::default());
    let imported = import(document, &options, &machine);
    let before = normalize(std::slice::from_ref(document), &options, &machine);
    assert_eq!(imported.diagnostics, before.diagnostics);
    if imported.dialect.is_none() {
        assert!(imported.config.is_empty() && before.has_errors());
        return imported;
    }
    let set = imported.to_set.iter().map(|set| {
        let found = values
            .iter()
            .find(|(field, _)| format!("{} {}", set.server, set.field) == *field);
        (
            set.variable.clone(),
            found.map_or("canary", |(_, value)| value).to_owned(),
        )
    });
    let after = After {
        set: set.collect(),
        machine: &machine,
    };
    let again = normalize(&[as_document(&imported)], &options, &after);
    let named: BTreeSet<_> = again.specs.iter().map(|spec| spec.id.clone()).collect();
    let missing: Vec<_> = before
        .specs
        .iter()
        .filter(|spec| !named.contains(&spec.id))
        .collect();
    assert!(
        missing.is_empty(),
        "{}\n{:?}\n{:#?}",
        imported.config,
        missing,
        again.diagnostics
    );
    assert_eq!(
        all_resolved(&again, &after),
        all_resolved(&before, &machine),
        "{}: {}",
        document.name,
        imported.config
    );
    if imported.to_set.is_empty() {
        let prints = |normalized: &Normalized| {
            normalized
                .specs
                .iter()
                .map(ServerSpec::fingerprint)
                .collect::<Vec<_>>()
        };
        assert_eq!(prints(&again), prints(&before), "{}", imported.config);
    }
    let twice = import(&as_document(&imported), &options, &after);
    let body = |config: &str| config.lines().skip(1).collect::<Vec<_>>().join("\n");
    assert_eq!(body(&twice.config), body(&imported.config));
    assert_eq!(twice.to_set, [], "{}", imported.config);
    let lost = twice
        .fields
        .iter()
        .find(|field| matches!(field.fate, Fate::Dropped { .. }));
    assert_eq!(lost, None, "{}", imported.config);
    imported
}

/// Everything that an import or a check could print.
fn everything(document: &Document, imported: &Imported) -> String {
    let excerpts = Excerpts::new(document, &options());
    let mut text = format!("{imported:?} {excerpts:?} {}", imported.config);
    for found in &imported.diagnostics {
        text += &found.to_string();
        text += &excerpts.render(found, false);
        text += &excerpts.render(found, true);
        text += &serde_json::to_string(found).unwrap();
    }
    text += &serde_json::to_string(&imported.fields).unwrap();
    text += &serde_json::to_string(&imported.to_set).unwrap();
    let traced = Options {
        trace: true,
        ..options()
    };
    text += &format!(
        "{:?}",
        normalize(std::slice::from_ref(document), &traced, &Machine::default())
    );
    text
}

#[test]
fn every_document_imports_to_what_it_means() {
    let documents = all_documents();
    assert!(documents.len() > 150, "{}", documents.len());
    for document in documents {
        let url = [("h url", "https://h.example.com/mcp?apiKey=canary")];
        let imported = check(&document, &url);
        let text = everything(&document, &imported);
        assert!(!text.contains("canary"), "{}: {text}", document.name);
    }
}

const CANARY: &str = "CANARY0123456789abcdefXYZ";

/// Secrets in every place that one can stand in, in each notation.
fn planted() -> Vec<Document> {
    let json = r#"{
  "mcpServers": {
    "env": { "command": "node", "env": { "API_TOKEN": "CANARY", "DATABASE_URL": "postgres://app:CANARY@db.example/x", "PLAIN": "CANARY", "AT": "${file:/run/secrets/docs}" } },
    "args": { "command": "node", "args": ["--api-key", "CANARY", "--token=CANARY", "Authorization: Bearer CANARY", "TOKEN=CANARY", "CANARY", "postgres://u:CANARY@h/d", "--header", "X-Api-Key: CANARY", "https://x.example/?key=CANARY", "--x={\"a\":\"CANARY\"}"] },
    "line": { "command": "npx server --key CANARY" },
    "list": { "command": ["node", "--key", "CANARY"] },
    "headers": { "url": "https://a.example/mcp", "headers": { "Authorization": "Bearer CANARY", "X-Api-Key": "CANARY", "X-Other": "CANARY" } },
    "userinfo": { "url": "https://ada:CANARY@a.example/mcp" },
    "query": { "url": "https://a.example/mcp?api_key=CANARY" },
    "path": { "url": "https://a.example/s/CANARY/mcp" },
    "bad-url": { "url": "https//CANARY" },
    "control": { "command": "node", "env": { "TOKEN": "CANARY\u0000" }, "args": ["CANARY\u0000"] },
    "header-break": { "url": "https://a.example/", "headers": { "Authorization": "CANARY\n" } },
    "types": { "command": "node", "env": { "TOKEN": ["CANARY"] }, "args": "CANARY", "headers": "CANARY" },
    "unknown": { "command": "node", "password": "CANARY", "auth": { "clientSecret": "CANARY" }, "tokens": ["CANARY"] },
    "unset": { "command": "node", "args": ["CANARY ${NOT_THERE}"], "env": { "KEY": "${NOT_THERE:-CANARY}" } },
    "twice": { "command": "node", "env": { "TOKEN": "CANARY", "TOKEN": "CANARY2" } },
    "cwd": { "command": "node", "cwd": "${DOCS_TOKEN}/x" },
    "program": { "command": "${DOCS_TOKEN}" },
    "file": { "command": "node", "envFile": "/home/ada/vars.env", "env": { "K": "${keyring:docs/ada}" } }
  }
}"#;
    let yaml = "# old: CANARY\nmcp:\n  servers:\n    - name: a # CANARY\n      command: node\n      comand: CANARY\n      env:\n        TOKEN: CANARY\n        PLAIN: CANARY\n      args: [--token, CANARY]\n    - {name: b, url: \"https://u:CANARY@b.example\", headers: {Authorization: Bearer CANARY}}\n    - name: c\n      url: https://c.example/?token=CANARY\n      colour: CANARY\n      egress: [\"https://u:CANARY@c.example\"]\n    - {name: d, url: \"https://d.example\", proxy: \"http://u:CANARY@p.example:3128\"}\n    - {name: e, url: \"https://e.example\", proxy: {url: \"http://p.example:3128\", username: ada, password: CANARY, passwort: CANARY}}\n  proxy: {url: \"http://p.example:3128\", username: ada, password: CANARY}\n";
    let toml = "# CANARY\n[mcp_servers.a]\ncommand = \"node\" # CANARY\nargs = [\"--token\", \"CANARY\"]\nenv = { TOKEN = \"CANARY\", PLAIN = 'CANARY' }\nwhat = \"CANARY\"\n[mcp_servers.b]\nurl = \"https://b.example\"\nbearer_token = \"CANARY\"\nbearer_token_env_var = \"CANARY-\"\nhttp_headers = { Authorization = \"CANARY\" }\ntool_timeout_sec = \"CANARY\"\n";
    [("a.json", json), ("a.yaml", yaml), ("a.toml", toml)]
        .map(|(name, text)| Document::new(name, text.replace("CANARY", CANARY)))
        .to_vec()
}

#[test]
fn no_planted_secret_is_ever_shown() {
    for document in planted() {
        let imported = import(&document, &options(), &Machine::default());
        assert!(imported.dialect.is_some(), "{:?}", imported.diagnostics);
        let shown = everything(&document, &imported);
        let around = shown.split_once("CANARY").map(|(before, _)| {
            let start = before.char_indices().rev().nth(300).map_or(0, |(at, _)| at);
            before.split_at(start).1.to_owned()
        });
        assert_eq!(around, None, "{}", document.name);
        assert!(!shown.contains("canary"), "what a reference leads to is shown");
    }
}

#[test]
fn no_planted_secret_is_shown_of_a_text_that_cannot_be_read() {
    for document in planted() {
        let length = document.bytes.len();
        for cut in (0..length).step_by(53) {
            // Cut off, and with a byte taken out: quotes come apart, and all that follows moves.
            let mut without = document.bytes.clone();
            without.remove(cut);
            for bytes in [document.bytes[..cut].to_vec(), without] {
                let broken = Document::new(document.name.clone(), bytes);
                let options = options();
                let normalized = normalize(std::slice::from_ref(&broken), &options, &Machine::default());
                let excerpts = Excerpts::new(&broken, &options);
                for found in &normalized.diagnostics {
                    let shown = format!("{found} {}", excerpts.render(found, false));
                    assert!(!shown.contains("CANARY0"), "{} at {cut}: {shown}", document.name);
                }
            }
        }
    }
}

/// A secret may be a number, and stand where a program's path or a variable's name belongs.
#[test]
fn secrets_that_are_numbers_or_stand_in_the_wrong_place_are_not_shown_either() {
    for (secret, entry) in [
        (
            "4711471147",
            r#""command": "node", "env": {"PASSWORD": 4711471147}"#,
        ),
        (
            "4711471147",
            r#""command": "node", "args": ["--password", 4711471147]"#,
        ),
        (
            "4711471147",
            r#""command": "node", "url": "https://a.example", "headers": {"X-Api-Key": 4711471147}"#,
        ),
        ("4711471147", r#""command": ["node", "--pin", 4711471147]"#),
        (
            "4711471147",
            r#""url": "https://a.example", "proxy": {"url": "http://p.example", "password": 4711471147}"#,
        ),
        ("hunter2", r#""command": "node", "inheritEnv": ["TOKEN=hunter2"]"#),
        (
            "ghp_hunter2hunter2",
            r#""command": "node", "inheritEnv": ["ghp_hunter2hunter2"]"#,
        ),
        ("hunter2", r#""command": "/usr/bin/gone server --key hunter2""#),
        ("hunter2", r#""command": "/usr/bin/gone server hunter2""#),
        (
            "hunter2",
            r#""command": "/usr/bin/gone postgres://u:hunter2@db.example/x""#,
        ),
        ("hunter2", r#""command": "/usr/bin/env API_KEY=hunter2 python3""#),
        ("hunter2", r#""command": "/usr/bin/env TOKEN=ab/hunter2 /opt/x""#),
        ("hunter2", r#""command": "./run.sh PASS=ab/hunter2""#),
        ("hunter2", r#""command": "TOKEN=ab/hunter2 /usr/bin/npx x""#),
        (
            "hunter2",
            r#""command": "mcp-remote https://mcp.example/sse?token=hunter2""#,
        ),
        (
            "hunter2",
            r#""command": "/opt/mcp-remote https://mcp.example/sse?token=hunter2""#,
        ),
        (
            "ghp_hunter2hunter2",
            r#""command": "/usr/bin/run ghp_hunter2hunter2""#,
        ),
        (
            "hunter2",
            r#""command": "C:\\Tools\\npx.cmd --key hunter2", "enabled": false"#,
        ),
    ] {
        let text = format!(r#"{{"mcp": {{"servers": [{{"name": "a", {entry}}}]}}}}"#);
        let document = Document::new("a.json", text);
        let mut imported = import(&document, &options(), &Machine::default());
        assert!(!imported.diagnostics.is_empty(), "{entry}");
        // What stands behind a program's path, and looks like nothing else, may be more of the path.
        if entry.contains("gone server hunter2") {
            imported.config.clear();
        }
        let shown = everything(&document, &imported);
        assert!(!shown.contains(secret), "{entry}: {shown}");
    }
}

/// Of two servers of one id the first counts, on whatever machine.
#[test]
fn one_server_of_an_id_is_imported() {
    for (one, two) in [("node", "npx"), ("not-here", "nor-there"), ("not-here", "node")] {
        let servers = format!("{{name: a, command: {one}}}, {{name: a, command: {two}}}");
        let document = Document::new("a.yaml", format!("mcp: {{servers: [{servers}]}}"));
        let imported = import(&document, &options(), &Machine::default());
        assert_eq!(imported.left_out.len(), 1, "{one} {two}: {}", imported.config);
        // One that starts counts more than one that this machine cannot start.
        let counts = if two == "node" { two } else { one };
        let is_it = imported.config.contains(&format!("command: {counts}\n"));
        assert!(is_it, "{one} {two}: {}", imported.config);
        assert_eq!(
            imported.config.matches("- name:").count(),
            1,
            "{one} {two}: {}",
            imported.config
        );
    }
}

/// What stands under a variable's or a header's name is no field, whatever it is called.
#[test]
fn nothing_of_a_header_is_shown_whatever_its_name_is() {
    for headers in [
        r#"http_headers = { "no header" = "x", name = "hunter2", pin = 4711471147 }"#,
        r#"env = { "no=name" = "x", command = "hunter2", pin = 4711471147 }"#,
    ] {
        let transport = match headers.starts_with("env") {
            true => r#"command = "node""#,
            false => r#"url = "https://a.example""#,
        };
        let document = Document::new("a.toml", format!("[mcp_servers.a]\n{transport}\n{headers}\n"));
        let normalized = normalize(std::slice::from_ref(&document), &options(), &Machine::default());
        let excerpts = Excerpts::new(&document, &options());
        let found = normalized.diagnostics.iter();
        let shown: String = found.map(|found| excerpts.render(found, false)).collect();
        assert!(shown.contains("is no name that"), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("4711"), "{shown}");
    }
}

/// An argument whose name looks like a secret as well is replaced as a whole: else it would be taken for one again.
#[test]
fn arguments_are_replaced_once_and_for_all() {
    for argument in [
        "--88888888888888888888888888888888888888888api-key=canary",
        "1DDDDDDDDDDDDDDDDDDD22222222222222222222222222222=9f8e7d6c5b4a39281706f5e4d3c2b1a0",
        "ghp_aaaaaaaaaaa=9f8e7d6c5b4a39281706f5e4d3c2b1a0",
        "X-Api-Key: Bearer canary",
        "--token=canary",
        "--header=Authorization: Bearer canary",
        "--env=API_KEY=canary",
        "--url=https://x.example/?api_key=canary",
    ] {
        let text = format!(r#"{{"mcpServers":{{"a":{{"command":"node","args":["{argument}"]}}}}}}"#);
        let document = Document::new("a.json", text);
        let imported = import(&document, &options(), &Machine::default());
        let again = import(&as_document(&imported), &options(), &Machine::default());
        let body = |config: &str| config.lines().skip(1).collect::<Vec<_>>().join("\n");
        assert_eq!(body(&again.config), body(&imported.config), "{argument}");
        assert_eq!((imported.to_set.len(), again.to_set), (1, vec![]), "{argument}");
    }
}

fn known_field() -> impl Strategy<Value = (String, String)> {
    let word = "[a-zA-Z0-9 _.:/{}#,&*!|>%@`'\\\\\"ä日\u{1f600}\n\t-]{0,12}";
    let quoted = word.prop_map(|text| serde_json::to_string(&text).unwrap());
    let list = prop::collection::vec(quoted.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(",")));
    prop_oneof![
        quoted.clone().prop_map(|text| ("description".to_owned(), text)),
        list.clone().prop_map(|items| ("args".to_owned(), items)),
        list.prop_map(|items| ("disabledTools".to_owned(), items)),
        prop::collection::btree_map("[A-Z]{1,6}", quoted, 0..4).prop_map(|pairs| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, text)| format!("\"{name}\":{text}"))
                .collect();
            ("env".to_owned(), format!("{{{}}}", pairs.join(",")))
        }),
        (1_u32..4_000_000).prop_map(|number| ("timeout".to_owned(), number.to_string())),
        any::<bool>().prop_map(|flag| ("disabled".to_owned(), flag.to_string())),
        Just(("autoApprove".to_owned(), "[\"x\"]".to_owned())),
        Just(("cwd".to_owned(), "\"/home/ada\"".to_owned())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any mix of known and unknown fields: each is in the report, once, and what is printed means the same.
    #[test]
    fn every_field_is_in_the_report_and_nothing_changes_its_meaning(
        name in "[a-zA-Z0-9 ._-]{1,20}",
        known in prop::collection::vec(known_field(), 0..6),
        unknown in prop::collection::btree_map("zz[a-zA-Z]{1,8}", "(1|null|\"x\"|\\{\"zzin\":\\{\"zzner\":2\\}\\}|\\[\\{\"zzin\":1\\}\\])", 0..4),
    ) {
        let known: BTreeMap<_, _> = known.into_iter().collect();
        let mut fields: Vec<String> = known.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        fields.extend(unknown.iter().map(|(name, value)| format!("\"{name}\":{value}")));
        fields.insert(0, "\"command\":\"node\"".to_owned());
        let text = format!(
            r#"{{"zztop":{{"zzdeep":1}},"mcpServers":{{{}:{{{}}}}}}}"#,
            serde_json::to_string(&name).unwrap(),
            fields.join(",")
        );
        let document = Document::new("a.json", text);
        let imported = check(&document, &[]);
        let mut wanted = vec!["zztop".to_owned(), "zztop.zzdeep".to_owned(), "command".to_owned()];
        wanted.extend(known.keys().cloned());
        for (name, value) in &unknown {
            wanted.push(name.clone());
            if value.starts_with('{') {
                wanted.extend([format!("{name}.zzin"), format!("{name}.zzin.zzner")]);
            } else if value.starts_with('[') {
                wanted.push(format!("{name}.1.zzin"));
            }
        }
        for field in &wanted {
            let found: Vec<_> = imported.fields.iter().filter(|found| found.field == *field).collect();
            prop_assert_eq!(found.len(), 1, "{}: {:?}", field, imported.fields);
            if field.contains("zz") {
                let is_dropped = matches!(&found[0].fate, Fate::Dropped { why } if !why.is_empty());
                prop_assert!(is_dropped, "{:?}", found);
            }
        }
    }
}
