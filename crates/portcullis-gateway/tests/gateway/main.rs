//! The gateway to a hand-played client, over a real server that this very program plays when it is started again.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests"
)]

mod calls;
mod session;

use std::{process::ExitCode, sync::Arc, time::Duration};

use portcullis_blobs::MemStore;
use portcullis_config::{NoEnvironment, Protocol, ServerSpec, StdioSpec, Template, Timeouts};
use portcullis_gateway::{GatewayError, GatewayOptions};
use portcullis_policy::{DecisionPoint, PolicyFile};
use portcullis_router::{Router, RouterOptions};
use portcullis_testkit::{OwnServer, Script, play_given};
use serde_json::{Value, json};
use tokio::{
    io::{
        AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split,
    },
    task::JoinHandle,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(20);
/// MCP 2026-07-28, base protocol: what a modern client says with each request.
const MODERN: &str = "2026-07-28";

/// What the other tests start as their servers. No test by itself.
#[test]
fn scripted_server() -> ExitCode {
    play_given()
}

fn scripted(script: &Script) -> ServerSpec {
    let own = OwnServer::new("scripted_server", script).unwrap();
    let (name, value) = own.variable;
    let stdio = StdioSpec {
        env: [(name, Template::literal(&value))].into(),
        ..StdioSpec::new(own.program, own.args)
    };
    ServerSpec {
        timeouts: Timeouts::uniform(PATIENCE),
        protocol: Protocol::Initialize,
        ..ServerSpec::new(script.name.parse().unwrap(), stdio)
    }
}

/// A hub with `script` as its only server, which is up.
async fn hub(script: &Script, rules: &str) -> Arc<Router> {
    let rules = PolicyFile {
        name: "team.rules".to_owned(),
        text: rules.to_owned(),
    };
    let policies = Arc::new(DecisionPoint::load(&[rules]).unwrap());
    let options = RouterOptions::new(policies, Arc::new(MemStore::default()), Arc::new(NoEnvironment));
    let router = Arc::new(Router::start(vec![scripted(script)], options).await.unwrap());
    router.settled().await;
    router
}

/// A client without an SDK: it sees each line as it came.
struct Client {
    heard: Lines<BufReader<ReadHalf<DuplexStream>>>,
    speak: WriteHalf<DuplexStream>,
    served: JoinHandle<Result<(), GatewayError>>,
    router: Arc<Router>,
    /// What was heard while something else was waited for.
    notifications: Vec<Value>,
}

impl Client {
    /// A client of a hub with `script` as its only server, before any handshake.
    async fn new(script: &Script, rules: &str) -> Self {
        let router = hub(script, rules).await;
        let (ours, theirs) = duplex(1024 * 1024);
        let (heard, speak) = split(ours);
        let (input, output) = split(theirs);
        let served = tokio::spawn(portcullis_gateway::serve(
            Arc::clone(&router),
            GatewayOptions::default(),
            input,
            output,
        ));
        Self {
            heard: BufReader::new(heard).lines(),
            speak,
            served,
            router,
            notifications: Vec::new(),
        }
    }

    /// One that has shaken hands in the older era.
    async fn legacy(script: &Script, rules: &str) -> Self {
        let mut client = Self::new(script, rules).await;
        let answer = client.initialize().await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        client
    }

    async fn initialize(&mut self) -> Value {
        let info = json!({"name": "hand", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        let answer = self.ask(&request(json!("init"), "initialize", &params)).await;
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        answer
    }

    async fn say(&mut self, line: &str) {
        self.speak
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn line(&mut self) -> String {
        timeout(PATIENCE, self.heard.next_line())
            .await
            .expect("nothing came")
            .unwrap()
            .expect("the gateway ended")
    }

    /// The line of the next answer.
    async fn answer(&mut self) -> String {
        loop {
            let line = self.line().await;
            let message: Value = serde_json::from_str(&line).unwrap();
            if message.get("method").is_none() {
                return line;
            }
            self.notifications.push(message);
        }
    }

    async fn ask(&mut self, message: &str) -> Value {
        self.say(message).await;
        serde_json::from_str(&self.answer().await).unwrap()
    }

    async fn list(&mut self) -> Vec<Value> {
        let answer = self.ask(&request(json!(1), "tools/list", &json!({}))).await;
        answer["result"]["tools"]
            .as_array()
            .unwrap_or_else(|| panic!("no list: {answer}"))
            .clone()
    }

    fn alias(&self, tool: &str) -> String {
        let catalog = self.router.catalog();
        catalog
            .get(&format!("mcp.s.{tool}").parse().unwrap())
            .unwrap()
            .alias
            .to_string()
    }

    /// Closes the client's end and waits for the gateway's.
    async fn leave(self) -> Result<(), GatewayError> {
        let Self {
            heard,
            speak,
            served,
            router,
            ..
        } = self;
        drop((heard, speak));
        let ended = timeout(PATIENCE, served).await.unwrap().unwrap();
        router.shutdown().await.unwrap();
        ended
    }
}

fn request(id: Value, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// The same as a modern client says it.
fn modern(id: Value, method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "hand", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(id, method, &params)
}

fn call(id: u64, alias: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{alias}","arguments":{arguments}}}}}"#
    )
}
