//! The servers that people run, as `cargo xtask real-servers` installs them.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    thread,
};

use portcullis::{Document, Hub, PolicyFile};
use portcullis_e2e::{DEADLINE, Folder, Program, mcp_servers, pair, real};
use serde_json::{Value, json};

use crate::portcullis;

const RULES: &str = "default deny
allow mcp.everything.*
allow mcp.files.read_*
allow mcp.files.list_*
ask mcp.files.write_file
allow mcp.memory.*
deny mcp.memory.delete_*
";

/// `mcp.json` with these of the three servers over stdio, and a folder `shelf` with a book.
fn configure(folder: &Folder, wanted: &[&str]) -> String {
    folder.write("shelf/book.txt", "the rain in spain\n");
    let everything = json!({"command": real("mcp-server-everything")});
    let files = json!({"command": real("mcp-server-filesystem"), "args": [folder.path("shelf")]});
    let memory = pair(
        json!({"command": real("mcp-server-memory")}),
        "env",
        json!({"MEMORY_FILE_PATH": folder.path("memory.jsonl")}),
    );
    let servers = [("everything", everything), ("files", files), ("memory", memory)];
    let text = mcp_servers(servers.into_iter().filter(|(name, _)| wanted.contains(name)));
    folder.write("mcp.json", &text);
    folder.rules(RULES);
    text
}

const ALL: [&str; 3] = ["everything", "files", "memory"];

fn program(folder: &Folder, arguments: &[&str]) -> Program {
    portcullis(folder, arguments)
        .args([
            "--config",
            "mcp.json",
            "--policies",
            "policies",
            "--format",
            "json",
        ])
        .with("--blobs", folder.path("blobs"))
}

#[test]
fn the_program_lists_the_tools_of_all_three() {
    let folder = Folder::new();
    configure(&folder, &ALL);
    let listed = program(&folder, &["tools"]).run().exits(0).json();
    for (server, tools) in [("everything", 13), ("files", 14), ("memory", 9)] {
        assert_eq!(listed["servers"][server]["state"], "ready", "{listed}");
        assert_eq!(listed["servers"][server]["tools"], tools, "{server}");
    }
    let outlook = |capability: &str| {
        let tools = listed["tools"].as_array().unwrap();
        let tool = tools
            .iter()
            .find(|tool| tool["capability"] == capability)
            .unwrap();
        tool["outlook"]["answer"].as_str().unwrap().to_owned()
    };
    assert_eq!(outlook("mcp.files.read_text_file"), "allow");
    assert_eq!(outlook("mcp.files.write_file"), "ask");
    assert_eq!(outlook("mcp.files.move_file"), "deny");
    assert_eq!(outlook("mcp.memory.delete_entities"), "deny");
}

#[test]
fn the_program_puts_the_tiny_image_into_the_store() {
    let folder = Folder::new();
    configure(&folder, &["everything"]);
    let printed = program(&folder, &["call", "mcp.everything.get-tiny-image"])
        .run()
        .exits(0)
        .json();
    let blob = &printed["blobs"][0];
    assert_eq!(blob["mediaType"], "image/png", "{printed}");
    let reference = blob["blob"].as_str().unwrap();
    let hash = reference.strip_prefix("blob:blake3:").unwrap();
    let bytes = fs::read(folder.path("blobs/blake3").join(&hash[..2]).join(hash)).unwrap();
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    assert_eq!(blob["sizeBytes"], bytes.len(), "{printed}");
    let content = printed["result"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 3, "text, picture and text, in order: {printed}");
    assert!(content[1].to_string().contains(reference), "{printed}");
}

#[test]
fn the_program_reads_a_file_and_keeps_what_is_asked_or_denied_from_happening() {
    let folder = Folder::new();
    configure(&folder, &["files"]);
    let book = json!({"path": folder.path("shelf/book.txt")}).to_string();
    let read = program(&folder, &["call", "mcp.files.read_text_file", &book])
        .run()
        .exits(0)
        .json();
    assert_eq!(
        read["result"]["content"][0]["text"], "the rain in spain\n",
        "{read}"
    );

    let note = folder.path("shelf/note.txt");
    let write = json!({"path": &note, "content": "x"}).to_string();
    let asked = program(&folder, &["call", "mcp.files.write_file", &write])
        .run()
        .exits(5)
        .json();
    assert_eq!(asked["error"]["decision"]["policies"][0]["line"], 5, "{asked}");
    assert!(!note.exists());

    let moved = json!({"source": folder.path("shelf/book.txt"), "destination": &note}).to_string();
    let denied = program(&folder, &["call", "mcp.files.move_file", &moved])
        .run()
        .exits(4)
        .json();
    assert_eq!(denied["error"]["decision"]["code"], "deny.default", "{denied}");
    assert!(!note.exists());

    let outside = json!({"path": folder.path("mcp.json")}).to_string();
    let failed = program(&folder, &["call", "mcp.files.read_text_file", &outside])
        .run()
        .exits(6)
        .json();
    assert_eq!(
        failed["is_error"], true,
        "the server's own refusal is passed on: {failed}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hub_calls_all_three() {
    let folder = Folder::new();
    let config = configure(&folder, &ALL);
    let hub = Hub::builder()
        .document(Document::new("mcp.json", config))
        .policy_files([PolicyFile {
            name: "real.rules".to_owned(),
            text: RULES.to_owned(),
        }])
        .start()
        .await
        .unwrap();
    let call = async |capability: &str, arguments: Value| {
        let outcome = hub.call(capability, &arguments).await.unwrap();
        assert!(
            !outcome.result.is_error,
            "{capability}: {}",
            outcome.result.result
        );
        outcome.result.result.get().to_owned()
    };
    let sum = call("mcp.everything.get-sum", json!({"a": 19, "b": 23})).await;
    assert!(sum.contains("42"), "{sum}");
    let echo = call("mcp.everything.echo", json!({"message": "portcullis"})).await;
    assert!(echo.contains("Echo: portcullis"), "{echo}");
    let listed = call("mcp.files.list_directory", json!({"path": folder.path("shelf")})).await;
    assert!(listed.contains("book.txt"), "{listed}");
    let entity = json!({"name": "Ada", "entityType": "person", "observations": ["counts"]});
    call("mcp.memory.create_entities", json!({"entities": [entity]})).await;
    let graph = call("mcp.memory.read_graph", json!({})).await;
    assert!(graph.contains("Ada"), "{graph}");
    let denied = hub
        .call("mcp.memory.delete_entities", &json!({"entityNames": ["Ada"]}))
        .await
        .unwrap_err();
    assert_eq!(denied.code(), "denied");
    let graph = call("mcp.memory.read_graph", json!({})).await;
    assert!(graph.contains("Ada"), "still there: {graph}");
    hub.shutdown().await.unwrap();
}

#[test]
fn the_program_reaches_the_everything_server_over_http() {
    let server = EverythingOverHttp::start();
    let folder = Folder::new();
    configure(&folder, &[]);
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    folder.write("mcp.json", mcp_servers([("everything", json!({"url": url}))]));
    let listed = program(&folder, &["tools"]).run().exits(0).json();
    assert_eq!(listed["servers"]["everything"]["tools"], 13, "{listed}");
    let sum = program(
        &folder,
        &["call", "mcp.everything.get-sum", r#"{"a": 19, "b": 23}"#],
    )
    .run()
    .exits(0)
    .json();
    assert!(
        sum["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("42"),
        "{sum}"
    );
    let image = program(&folder, &["call", "mcp.everything.get-tiny-image"])
        .run()
        .exits(0)
        .json();
    assert_eq!(image["blobs"][0]["mediaType"], "image/png", "{image}");
}

/// `server-everything` over streamable HTTP; ended when dropped.
struct EverythingOverHttp {
    child: Child,
    port: u16,
}

impl EverythingOverHttp {
    /// Starts it, and waits until it says that it listens. Somebody else may take the port before it does: then
    /// another one is tried.
    fn start() -> Self {
        let mut said = String::new();
        for _ in 0..5 {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let mut child = Command::new(real("mcp-server-everything"))
                .arg("streamableHttp")
                .env("PORT", port.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let stderr = BufReader::new(child.stderr.take().unwrap());
            let server = Self { child, port };
            let (line, lines) = channel();
            // Reads to the end, so that the server never meets a full pipe.
            thread::spawn(move || {
                for text in stderr.lines().map_while(Result::ok) {
                    let _ = line.send(text);
                }
            });
            while let Ok(text) = lines.recv_timeout(DEADLINE) {
                if text.contains(&format!("listening on port {port}")) {
                    return server;
                }
                said.push_str(&text);
                said.push('\n');
            }
        }
        panic!("the server never listened; it said:\n{said}");
    }
}

impl Drop for EverythingOverHttp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
