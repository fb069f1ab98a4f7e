//! No secret that is planted in a configuration comes out of the program again.

use portcullis_e2e::{Client, Folder, Program};
use portcullis_testkit::{Behaviour, Script, Tool};
use serde_json::{Value, json};

use crate::{document, portcullis};

const CANARY: &str = "CANARY0123456789abcdefXYZ";

/// Servers with a secret in each place that one can stand in; those that start say all they were given and fail.
fn planted(folder: &Folder) {
    folder.write("secret.txt", CANARY);
    folder.write("vars.env", format!("FROM_FILE={CANARY}\n"));
    let file = folder.path("secret.txt");
    let says = r#"echo "env $API_TOKEN $FROM_FILE $AT" >&2; echo "args $0 $*" >&2; exit 3"#;
    let document = json!({"mcpServers": {
        "env": {"command": "/bin/sh", "args": ["-c", says], "env": {
            "API_TOKEN": CANARY, "AT": format!("${{file:{}}}", file.display()), "DSN": format!("postgres://u:{CANARY}@h/d"),
        }},
        "env-file": {"command": "/bin/sh", "args": ["-c", says], "envFile": folder.path("vars.env")},
        "args": {"command": "/bin/sh", "args": ["-c", says, "x", format!("--token={CANARY}"), "--api-key", CANARY]},
        "referred": {"command": "/bin/sh", "args": ["-c", says, "x", "--token=${env:PLANTED}"]},
        "header": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": format!("Bearer {CANARY}"), "X-Api-Key": "${env:PLANTED}"}},
        "query": {"url": format!("http://127.0.0.1:9/mcp?api_key={CANARY}")},
        "path": {"url": format!("http://127.0.0.1:9/s/{CANARY}/mcp")},
        "userinfo": {"url": format!("http://ada:{CANARY}@127.0.0.1:9/mcp")},
        "line": {"command": format!("npx server --key {CANARY}")},
        "types": {"command": "/bin/sh", "env": {"TOKEN": [CANARY]}, "args": CANARY},
        "unknown": {"command": "/bin/sh", "password": CANARY, "auth": {"clientSecret": CANARY}},
        "broken": {"command": "/bin/sh", "args": [format!("{CANARY} ${{env:NOT_THERE}}")]},
    }});
    let mut document = document;
    for server in document["mcpServers"].as_object_mut().unwrap().values_mut() {
        // Whoever waits for a server that never comes up waits this long.
        server["timeoutSeconds"] = json!(1);
    }
    folder.write("planted.json", serde_json::to_string_pretty(&document).unwrap());
    let yaml = format!(
        "# {CANARY}\nmcp:\n  servers:\n    - {{name: a, command: /bin/sh, env: {{TOKEN: {CANARY}}}}}\n    - name: \"{CANARY}"
    );
    folder.write("broken.yaml", yaml);
}

fn silent(folder: &Folder, arguments: &[&str]) -> String {
    let program: Program = portcullis(folder, arguments);
    let finished = program
        .env("PLANTED", CANARY)
        .env("PORTCULLIS_LOG", "trace")
        .run();
    let all = format!("{}{}", finished.stdout, finished.stderr);
    shows_no_secret(&all, arguments);
    all
}

#[track_caller]
fn shows_no_secret(said: &str, by: &[&str]) {
    let start = said.find(CANARY).map(|at| at.saturating_sub(200));
    let around = start.map(|start| {
        String::from_utf8_lossy(&said.as_bytes()[start..])
            .chars()
            .take(400)
            .collect::<String>()
    });
    assert_eq!(around, None, "{by:?} shows a secret");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn no_planted_secret_is_in_any_output() {
    let folder = Folder::new();
    planted(&folder);
    folder.rules("default allow\n");
    for format in ["text", "json"] {
        for file in ["planted.json", "broken.yaml"] {
            for command in ["check", "import"] {
                let said = silent(&folder, &[command, file, "--format", format]);
                assert!(said.len() > 100, "{said}");
            }
        }
        let hub = [
            "--config",
            "planted.json",
            "--preset",
            "ask-by-default",
            "--format",
            format,
        ];
        let said = silent(&folder, &[["tools"].as_slice(), &hub].concat());
        for server in ["env", "env-file", "args", "referred", "header", "query", "path"] {
            assert!(said.contains(server), "nothing is said of {server}: {said}");
        }
        for server in ["env", "args", "referred", "query"] {
            let capability = format!("mcp.{server}.read");
            let arguments = format!(r#"{{"token": "{CANARY}"}}"#);
            silent(
                &folder,
                &[["call", &capability, &arguments].as_slice(), &hub].concat(),
            );
        }
    }
}

/// The same for what a client of `serve` hears, and for what stands on its standard error: of servers that fail, and of
/// one that has secrets and works.
#[test]
fn no_planted_secret_is_served() {
    let folder = Folder::new();
    let works = Script::new("works").tool(Tool::new("read", Behaviour::Text("it ran".to_owned())));
    let mut document: Value = serde_json::from_str(&document(&[("works", works)])).unwrap();
    planted(&folder);
    let planted = std::fs::read(folder.path("planted.json")).unwrap();
    let planted: Value = serde_json::from_slice(&planted).unwrap();
    let servers = document["mcpServers"].as_object_mut().unwrap();
    servers["works"]["env"]["TOKEN"] = json!(CANARY);
    servers.extend(planted["mcpServers"].as_object().unwrap().clone());
    folder.write("all.json", document.to_string());
    folder.rules("default deny\nallow mcp.works.* when arg.path == \"/srv\"\nask mcp.env.*\n");

    let arguments = [
        "serve",
        "--stdio",
        "--config",
        "all.json",
        "--policies",
        "policies",
    ];
    let program = portcullis(&folder, &arguments)
        .env("PLANTED", CANARY)
        .env("PORTCULLIS_LOG", "trace");
    let mut client = Client::connect(program);
    let mut heard = vec![client.request("tools/list", "{}")];
    let tools: Value = serde_json::from_str(&heard[0]).unwrap();
    let name = tools["result"]["tools"][0]["name"].as_str().unwrap().to_owned();
    let ran = client.call(&name, r#"{"path": "/srv"}"#);
    assert!(ran.contains("it ran"), "{ran}");
    heard.push(ran);
    for (name, arguments) in [
        (name.as_str(), json!({"path": CANARY})),
        ("no_such_tool", json!({"token": CANARY})),
        ("mcp.env.read", json!({"token": CANARY})),
    ] {
        heard.push(client.call(name, &arguments.to_string()));
    }
    let notified: Vec<_> = client.notifications.iter().map(Value::to_string).collect();
    let finished = client.leave();
    for server in ["env", "header", "works"] {
        assert!(
            finished.stderr.contains(server),
            "nothing is said of {server}: {}",
            finished.stderr
        );
    }
    for said in [
        heard.concat(),
        notified.concat(),
        finished.stdout,
        finished.stderr,
    ] {
        shows_no_secret(&said, &arguments);
    }
}
