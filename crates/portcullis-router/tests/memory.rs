//! Large results over stdio and HTTP, from a server in a process of its own: what the hub's process takes of memory for
//! them.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests, which start this program again as their server and look at their own process"
)]

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use portcullis_blobs::{BlobStore, FsOptions, FsStore};
use portcullis_config::{
    HttpSpec, NoEnvironment, Protocol, ServerSpec, StdioSpec, Template, Timeouts, TransportSpec,
};
use portcullis_policy::{DecisionPoint, PolicyFile};
use portcullis_router::{CallRequest, Router, RouterOptions};
use portcullis_testkit::{
    Behaviour, HttpReplies, HttpServer, OwnServer, Script, Tool, play_given, pseudo_random,
};
use tokio::time::timeout;

const REPLIES: &str = "REPLIES";
const URL: &str = "url ";
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const SEED: u64 = 7;

fn script() -> Script {
    let image = |bytes| Behaviour::image(bytes, SEED);
    Script::new("s")
        .tool(Tool::new("small", image(MIB)))
        .tool(Tool::new("large", image(16 * MIB)))
}

/// No test by itself: the other one starts this program again, as its server over stdio.
#[test]
fn scripted_server() -> ExitCode {
    play_given()
}

/// Nor this, over HTTP.
#[test]
fn server() {
    let Ok(replies) = std::env::var(REPLIES) else {
        return;
    };
    let replies = match replies.as_str() {
        "json" => HttpReplies::Json,
        _ => HttpReplies::Events,
    };
    let server = HttpServer::start(&script(), replies).unwrap();
    println!("\n{URL}{}", server.url());
    // Until the other end of the pipe is gone.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(replies: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server", "--nocapture", "-q"])
            .env(REPLIES, replies)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.map_while(Result::ok).find_map(|line| {
            let url = line.strip_prefix(URL)?;
            Some(url.to_owned())
        });
        Self {
            child,
            url: url.unwrap(),
        }
    }

    fn spec(&self) -> ServerSpec {
        let origin = self.url.trim_end_matches("/mcp");
        let http = HttpSpec::new(self.url.parse().unwrap(), vec![origin.parse().unwrap()]);
        of_older_era(http)
    }
}

fn of_older_era(transport: impl Into<TransportSpec>) -> ServerSpec {
    ServerSpec {
        timeouts: Timeouts::uniform(PATIENCE),
        protocol: Protocol::Initialize,
        ..ServerSpec::new("s".parse().unwrap(), transport)
    }
}

fn over_stdio() -> ServerSpec {
    let own = OwnServer::new("scripted_server", &script()).unwrap();
    let (name, value) = own.variable;
    of_older_era(StdioSpec {
        env: [(name, Template::literal(&value))].into(),
        ..StdioSpec::new(own.program, own.args)
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn router(spec: ServerSpec, store: Arc<dyn BlobStore>) -> Router {
    let rules = PolicyFile {
        name: "r.rules".to_owned(),
        text: "default deny\nallow mcp.s.*\n".to_owned(),
    };
    let policies = Arc::new(DecisionPoint::load(&[rules]).unwrap());
    let options = RouterOptions::new(policies, store, Arc::new(NoEnvironment));
    let router = Router::start(vec![spec], options).await.unwrap();
    router.settled().await;
    router
}

fn kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    value.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// One line, one body and one event of over 21 MiB: the hub's process grows by a part of that, and the bytes are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_picture_reaches_the_store_without_lying_in_memory() {
    for over in ["stdio", "json", "events"] {
        let server = (over != "stdio").then(|| Server::start(over));
        let spec = server.as_ref().map_or_else(over_stdio, Server::spec);
        let folder = tempfile::tempdir().unwrap();
        let store = FsStore::open(&folder.path().join("blobs"), FsOptions::default()).unwrap();
        let router = router(spec, Arc::new(store)).await;
        let call = async |tool: &str| {
            let request = CallRequest::new(format!("mcp.s.{tool}").parse().unwrap(), "{}");
            let called = timeout(PATIENCE, router.call(request)).await;
            called.unwrap().unwrap().result.blobs[0].clone()
        };
        // What comes once is there already.
        call("small").await;
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = kib("VmRSS:");
        let info = call("large").await;
        let grew = kib("VmHWM:").saturating_sub(before);
        assert!(grew <= 8 << 10, "{over}: it grew by {grew} KiB");
        assert_eq!(
            (info.size_bytes, info.media_type.as_str()),
            (16 * MIB, "image/png")
        );
        let content = router.store().get(info.blob).await.unwrap();
        assert!(content == pseudo_random("image/png", 16 << 20, SEED), "{over}");
        router.shutdown().await.unwrap();
    }
}
