//! What the guarded client costs: calls of a server on loopback through the supervisor, beside calls of the same
//! server through the SDK on plain reqwest. `cargo xtask bench http` builds and runs it.
//!
//! Like is compared with like: both give the same typed result of the same bytes, so what the supervisor saves by not
//! reading results is not counted for it. Both take turns in one run, so that whatever else the machine does falls on
//! both; what counts is the ratio of a turn to its neighbour, of which the median is told.
//! `bench_http [CALLS]` sets how many calls each turn makes.
//!
//! Then every spelling of an inner address that the client's tests know is asked for: each must be refused, and nobody
//! may come to the listener behind it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use http::Method;
use portcullis_config::{HttpSpec, NoEnvironment, Protocol, ServerSpec, Timeouts};
use portcullis_egress::{EgressRules, GuardedClient, GuardedRequest};
use portcullis_supervisor::{Ready, Supervisor, SupervisorOptions};
use portcullis_types::EgressRule;
use rmcp::{
    RoleClient, ServiceExt,
    model::{CallToolRequestParams, CallToolResult},
    service::Peer,
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::Instant,
};
use url::Url;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Turns of each client; the median counts.
const TURNS: usize = 7;

/// How much more the guarded client may cost.
const TARGET: f64 = 1.05;

/// Whom a turn goes through.
enum Client {
    Guarded(Box<Ready>, Timeouts),
    Plain(Peer<RoleClient>),
}

impl Client {
    async fn call(&self) -> Result<(), Failure> {
        match self {
            Self::Guarded(ready, timeouts) => {
                let raw = ready.call("t", r#"{"text":"hello"}"#.into(), *timeouts).await?;
                check(&serde_json::from_str(&raw)?)
            }
            Self::Plain(peer) => {
                let mut params = CallToolRequestParams::new("t");
                params.arguments = serde_json::from_str(r#"{"text":"hello"}"#)?;
                check(&peer.call_tool(params).await?)
            }
        }
    }
}

/// What both clients are asked for: the result as the SDK's type.
fn check(result: &CallToolResult) -> Result<(), Failure> {
    match result.content.len() {
        1 => Ok(()),
        other => Err(format!("{other} blocks of content").into()),
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
    let supervisor =
        Supervisor::start(vec![spec], SupervisorOptions::new(Arc::new(NoEnvironment)), tell).await?;
    let upstream = supervisor.upstream(&id).ok_or("the server is not there")?;
    let ready = upstream
        .ready(Instant::now() + Duration::from_secs(10), 0)
        .await?;
    let guarded = Client::Guarded(Box::new(ready), timeouts);
    // As many requests at one time as the guarded client has.
    let config = StreamableHttpClientTransportConfig::with_uri(format!("http://{address}/mcp"))
        .max_concurrent_requests(64);
    let transport = StreamableHttpClientTransport::from_config(config);
    let running = ().serve(transport).await?;
    let plain = Client::Plain(running.peer().clone());

    println!("in flight   client    p50 µs   calls/s   (medians of {TURNS} turns of {calls} calls)");
    for in_flight in [1, 32] {
        // Warm: connections, code, allocator.
        turn(&plain, calls / 4, in_flight).await?;
        turn(&guarded, calls / 4, in_flight).await?;
        let mut pairs = Vec::new();
        for number in 0..TURNS {
            // Who goes first changes, so that neither always finds what the other left behind.
            pairs.push(if number % 2 == 0 {
                let first = turn(&plain, calls, in_flight).await?;
                (first, turn(&guarded, calls, in_flight).await?)
            } else {
                let first = turn(&guarded, calls, in_flight).await?;
                (turn(&plain, calls, in_flight).await?, first)
            });
        }
        report(in_flight, &pairs);
    }
    supervisor.shutdown().await?;
    refuse_spellings().await
}

/// The medians of both clients, and of the ratios of neighbours.
fn report(in_flight: usize, pairs: &[(Turn, Turn)]) {
    let of = |figure: fn(&(Turn, Turn)) -> f64| median(pairs.iter().map(figure).collect());
    let (plain, guarded) = (of(|(plain, _)| micros(plain)), of(|(_, guarded)| micros(guarded)));
    println!(
        "{in_flight:>9}   plain   {plain:>8.1} {:>9.0}",
        of(|(plain, _)| plain.per_second)
    );
    println!(
        "{in_flight:>9}   guarded {guarded:>8.1} {:>9.0}",
        of(|(_, guarded)| guarded.per_second)
    );
    let p50 = of(|(plain, guarded)| micros(guarded) / micros(plain));
    let rate = of(|(plain, guarded)| plain.per_second / guarded.per_second);
    let met = if p50 <= TARGET && rate <= TARGET {
        "met"
    } else {
        "not met"
    };
    println!("{in_flight:>9}   ratio   {p50:>8.3} {rate:>9.3}   (at most {TARGET}: {met})");
}

fn micros(turn: &Turn) -> f64 {
    turn.p50.as_secs_f64() * 1e6
}

/// Asks for each spelling of an inner address, under rules that allow much and none of them.
async fn refuse_spellings() -> Result<(), Failure> {
    let spellings: Vec<String> =
        serde_json::from_str(include_str!("../../portcullis-egress/test_data/spellings.json"))?;
    let trap = TcpListener::bind("127.0.0.1:0").await?;
    let port = trap.local_addr()?.port();
    let came = Arc::<AtomicUsize>::default();
    let mut traps = vec![trap];
    // Not every machine has the newer family.
    traps.extend(TcpListener::bind(("::1", port)).await.ok());
    for trap in traps {
        let came = Arc::clone(&came);
        tokio::spawn(async move {
            while trap.accept().await.is_ok() {
                came.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let lines = [
        format!("http://*.test:{port}"),
        format!("http://*.0.0.1:{port}"),
        format!("https://*.example:{port}"),
        format!("http://8.8.8.8:{port}"),
    ];
    let rules = lines
        .iter()
        .map(|line| line.parse())
        .collect::<Result<Vec<EgressRule>, _>>()?;
    let client = GuardedClient::builder(EgressRules::new(rules)).build()?;
    let mut refused = 0;
    for spelling in &spellings {
        refused += usize::from(match Url::parse(&spelling.replace("PORT", &port.to_string())) {
            Ok(url) => client
                .send(GuardedRequest::new(Method::GET, url))
                .await
                .is_err_and(|error| error.refusal().is_some()),
            // What is no url cannot be asked for.
            Err(_) => true,
        });
    }
    let (all, came) = (spellings.len(), came.load(Ordering::SeqCst));
    println!("refused spellings: {refused} of {all}; connections at the trap: {came}");
    match (refused == all, came) {
        (true, 0) => Ok(()),
        _ => Err("a spelling of an inner address was let through".into()),
    }
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

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spec(address: SocketAddr) -> Result<ServerSpec, Failure> {
    let http = HttpSpec::new(
        Url::parse(&format!("http://{address}/mcp"))?,
        vec![format!("http://{address}").parse()?],
    );
    Ok(ServerSpec {
        protocol: Protocol::Initialize,
        ..ServerSpec::new("bench".parse()?, http)
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
