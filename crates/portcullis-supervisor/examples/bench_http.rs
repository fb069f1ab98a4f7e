//! What the guarded client costs: calls of a server on loopback through the supervisor, beside calls of the same
//! server through the SDK on plain reqwest. `cargo xtask bench http` builds and runs it.
//!
//! Both take turns in one run, so that whatever else the machine does falls on both; what counts is the ratio.
//! `bench_http [CALLS]` sets how many calls each turn makes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use portcullis_config::{HttpSpec, Origin, Protocol, ServerSpec, Sources, Timeouts, TransportSpec};
use portcullis_supervisor::{Ready, Supervisor, SupervisorOptions};
use rmcp::{
    RoleClient, ServiceExt, model::CallToolRequestParams, service::Peer,
    transport::StreamableHttpClientTransport,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::Instant,
};
use url::Url;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Turns of each client; the median turn counts.
const TURNS: usize = 9;

struct Nothing;

impl Sources for Nothing {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn file(&self, _: &str) -> Option<String> {
        None
    }
}

/// Whom a turn goes through.
enum Client {
    Guarded(Box<Ready>, Timeouts),
    Plain(Peer<RoleClient>),
}

impl Client {
    async fn call(&self) -> Result<(), Failure> {
        match self {
            Self::Guarded(ready, timeouts) => {
                ready.call("t", r#"{"text":"hello"}"#.into(), *timeouts).await?;
            }
            Self::Plain(peer) => {
                let mut params = CallToolRequestParams::new("t");
                params.arguments = serde_json::from_str(r#"{"text":"hello"}"#)?;
                peer.call_tool(params).await?;
            }
        }
        Ok(())
    }
}

/// The median of the calls of one turn, and how many were made in a second.
#[derive(Clone, Copy)]
struct Turn {
    p50: Duration,
    per_second: f64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // The SDK's own client asks for the process's TLS provider, though nothing here is encrypted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let calls = std::env::args()
        .nth(1)
        .map_or(Ok(2_000), |text| text.parse::<usize>())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(serve(stream));
        }
    });

    let spec = spec(address)?;
    let (id, timeouts) = (spec.id.clone(), spec.timeouts);
    let (tell, _events) = mpsc::unbounded_channel();
    let supervisor = Supervisor::start(vec![spec], SupervisorOptions::new(Arc::new(Nothing)), tell).await?;
    let upstream = supervisor.upstream(&id).ok_or("the server is not there")?;
    let ready = upstream
        .ready(Instant::now() + Duration::from_secs(10), 0)
        .await?;
    let guarded = Client::Guarded(Box::new(ready), timeouts);
    let transport = StreamableHttpClientTransport::from_uri(format!("http://{address}/mcp"));
    let running = ().serve(transport).await?;
    let plain = Client::Plain(running.peer().clone());

    println!("in flight   client    p50 µs   calls/s");
    for in_flight in [1, 32] {
        // Warm: connections, code, allocator.
        turn(&plain, calls / 4, in_flight).await?;
        turn(&guarded, calls / 4, in_flight).await?;
        let (mut plain_turns, mut guarded_turns) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            plain_turns.push(turn(&plain, calls, in_flight).await?);
            guarded_turns.push(turn(&guarded, calls, in_flight).await?);
        }
        let (plain, guarded) = (median(plain_turns), median(guarded_turns));
        for (name, turn) in [("plain", plain), ("guarded", guarded)] {
            let micros = turn.p50.as_secs_f64() * 1e6;
            println!(
                "{in_flight:>9}   {name:<7} {micros:>8.1} {:>9.0}",
                turn.per_second
            );
        }
        println!(
            "{in_flight:>9}   ratio   {:>8.3} {:>9.3}   (p50: guarded over plain; calls/s: plain over guarded)",
            guarded.p50.as_secs_f64() / plain.p50.as_secs_f64(),
            plain.per_second / guarded.per_second
        );
    }
    supervisor.shutdown().await?;
    Ok(())
}

async fn turn(client: &Client, calls: usize, in_flight: usize) -> Result<Turn, Failure> {
    let began = Instant::now();
    let mut took = stream::iter(0..calls)
        .map(|_| async {
            let began = Instant::now();
            client.call().await.map(|()| began.elapsed())
        })
        .buffer_unordered(in_flight)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let per_second = calls as f64 / began.elapsed().as_secs_f64();
    took.sort();
    let p50 = took.get(took.len() / 2).copied().ok_or("no calls were made")?;
    Ok(Turn { p50, per_second })
}

/// Each figure's own median.
fn median(turns: Vec<Turn>) -> Turn {
    let mut p50: Vec<_> = turns.iter().map(|turn| turn.p50).collect();
    let mut per_second: Vec<_> = turns.iter().map(|turn| turn.per_second).collect();
    p50.sort();
    per_second.sort_by(f64::total_cmp);
    let at = turns.len() / 2;
    Turn {
        p50: p50.get(at).copied().unwrap_or_default(),
        per_second: per_second.get(at).copied().unwrap_or_default(),
    }
}

fn spec(address: SocketAddr) -> Result<ServerSpec, Failure> {
    Ok(ServerSpec {
        id: "bench".parse()?,
        display_name: "bench".to_owned(),
        description: None,
        transport: TransportSpec::Http(HttpSpec {
            url: Url::parse(&format!("http://{address}/mcp"))?,
            headers: BTreeMap::new(),
            egress: vec![format!("http://{address}").parse()?].into(),
        }),
        timeouts: Timeouts::uniform(Duration::from_secs(30)),
        protocol: Protocol::Initialize,
        enabled: true,
        disabled_tools: BTreeSet::new(),
        disabled_auto_approve_tools: BTreeSet::new(),
        origin: Origin::default(),
        isolation: Default::default(),
        limits: Default::default(),
        profile: Default::default(),
    })
}

/// A server of the older era without sessions, as lean as may be: what is measured is the client.
async fn serve(mut stream: TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let (head, length) = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(bytes.get(..end)?).to_ascii_lowercase();
                let length: usize = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
                    .unwrap_or(0);
                break (end + 4, length);
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        while bytes.len() < head + length {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let reply = reply(bytes.get(head..head + length)?);
        bytes.drain(..head + length);
        stream.write_all(reply.as_bytes()).await.ok()?;
    }
}

fn reply(body: &[u8]) -> String {
    let message: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let result = match message.get("method").and_then(serde_json::Value::as_str) {
        Some("initialize") => {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#
        }
        Some("tools/list") => r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#,
        Some("tools/call") => r#"{"content":[{"type":"text","text":"hello"}]}"#,
        _ => return "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    let id = message.get("id").map(ToString::to_string).unwrap_or_default();
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
