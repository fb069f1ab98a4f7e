//! What a picture costs on its way from a server's pipe into the store: `cargo xtask bench blobs` builds and runs it.
//!
//! Beside it, in the same run and taking turns: a bare program that reads the pipe, decodes, hashes and writes as it
//! arrives, and the SDK alone with its limit of a line lifted, which decodes nothing and stores nothing. Each figure is
//! the median of 7. The server is this very program, started again.
//!
//! `bench_spill [FOLDER]` works in a new folder below FOLDER (the system's temporary folder where none is given).

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement reads the clock, writes plain files and starts its own server"
)]
#![expect(clippy::print_stdout, reason = "the figures")]

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, BufWriter, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use base64_simd::STANDARD;
use portcullis_blobs::{Durability, FsOptions, FsStore, Hash};
use portcullis_config::{HttpSpec, NoEnvironment, Protocol, ServerSpec, StdioSpec, Timeouts, TransportSpec};
use portcullis_policy::{DecisionPoint, PolicyFile};
use portcullis_router::{CallRequest, Router, RouterOptions};
use rmcp::{
    RoleClient, ServiceExt, model::CallToolRequestParams, service::RunningService,
    transport::async_rw::AsyncRwTransport,
};
use serde_json::Value;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 7;
const MIB: usize = 1 << 20;
/// Bytes whose base64 fills 64 KiB.
const PIECE_BYTES: usize = 48 << 10;
const SERVE: &str = "serve";
/// Over HTTP instead of stdio: each reply a JSON body, or an event of a stream.
const SERVE_JSON: &str = "serve-json";
const SERVE_EVENTS: &str = "serve-events";

fn main() -> Result<ExitCode, Failure> {
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        Some(SERVE) => return serve(),
        Some(SERVE_JSON) => return serve_http(false),
        Some(SERVE_EVENTS) => return serve_http(true),
        _ => {}
    }
    let parent = match argument {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure(parent.path()))?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(folder: &Path) -> Result<(), Failure> {
    let ours = start(&folder.join("blobs"), over_stdio()?).await?;
    // First, while the process is small.
    memory(&ours, "stdio", [16, 1024]).await?;
    for (mode, name) in [(SERVE_JSON, "http-json"), (SERVE_EVENTS, "http-events")] {
        let server = HttpChild::start(mode)?;
        let ours = start(&folder.join(name), server.transport()?).await?;
        memory(&ours, name, [16, 128]).await?;
        ours.shutdown().await?;
    }
    let sdk = Sdk::start().await?;
    let mut bare = Bare::start(folder)?;
    for size in [16 * MIB, 256 * MIB] {
        let mut times = [const { Vec::new() }; 3];
        for round in 0..ROUNDS {
            for turn in 0..3 {
                // Nobody is always first, and nobody waits for what another left to be written.
                rustix::fs::sync();
                let begun = Instant::now();
                let turn = (turn + round) % 3;
                match turn {
                    0 => call(&ours, size).await?,
                    1 => bare.call(size)?,
                    _ => sdk.call(size).await?,
                }
                if let Some(times) = times.get_mut(turn) {
                    times.push(begun.elapsed());
                }
            }
        }
        let [ours, bare, sdk] = times.map(median);
        let target = if size == 16 * MIB { "<= 1.5" } else { "" };
        println!("\na picture of {} MiB over stdio", size / MIB);
        row("bare program", bare, None, "");
        row("into the store", ours, Some(bare), target);
        row("SDK alone", sdk, None, "");
        row("into the store", ours, Some(sdk), "<= 0.4");
    }
    ours.shutdown().await?;
    Ok(())
}

async fn memory(ours: &Router, over: &str, mib: [usize; 2]) -> Result<(), Failure> {
    call(ours, MIB).await?;
    println!("memory of the hub's process while a picture passes over {over}");
    for size in mib.map(|mib| mib * MIB) {
        fs::write("/proc/self/clear_refs", "5")?;
        let before = kib("VmRSS:")?;
        let begun = Instant::now();
        call(ours, size).await?;
        let (took, grew) = (begun.elapsed(), kib("VmHWM:")?.saturating_sub(before));
        println!(
            "  {:>5} MiB  {took:>10.2?}  grew by {grew} KiB (target <= 3072)",
            size / MIB
        );
    }
    Ok(())
}

async fn call(ours: &Router, size: usize) -> Result<(), Failure> {
    let arguments = format!("{{\"bytes\":{size},\"seed\":{}}}", seed());
    let outcome = ours
        .call(CallRequest::new("mcp.s.image".parse()?, arguments))
        .await?;
    match &outcome.result.blobs[..] {
        [info] if info.size_bytes == size as u64 => Ok(()),
        other => Err(format!("another picture came: {other:?}").into()),
    }
}

fn over_stdio() -> Result<TransportSpec, Failure> {
    Ok(StdioSpec::new(std::env::current_exe()?, [SERVE]).into())
}

async fn start(store: &Path, transport: TransportSpec) -> Result<Router, Failure> {
    let spec = ServerSpec {
        timeouts: Timeouts::uniform(Duration::from_secs(120)),
        protocol: Protocol::Initialize,
        ..ServerSpec::new("s".parse()?, transport)
    };
    let rules = PolicyFile {
        name: "bench.rules".to_owned(),
        text: "default deny\nallow mcp.s.*\n".to_owned(),
    };
    let options = FsOptions {
        durability: Durability::None,
        ..FsOptions::default()
    };
    let options = RouterOptions::new(
        Arc::new(DecisionPoint::load(&[rules])?),
        Arc::new(FsStore::open(store, options)?),
        Arc::new(NoEnvironment),
    );
    let router = Router::start(vec![spec], options).await?;
    router.settled().await;
    Ok(router)
}

/// The server over HTTP. It ends with its input.
struct HttpChild {
    child: Child,
    origin: String,
}

impl HttpChild {
    fn start(mode: &str) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let mut origin = String::new();
        BufReader::new(output).read_line(&mut origin)?;
        let origin = origin.trim().to_owned();
        Ok(Self { child, origin })
    }

    fn transport(&self) -> Result<TransportSpec, Failure> {
        let url = format!("{}/mcp", self.origin).parse()?;
        Ok(HttpSpec::new(url, vec![self.origin.parse()?]).into())
    }
}

impl Drop for HttpChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The SDK alone over a child's pipes.
struct Sdk {
    client: RunningService<RoleClient, ()>,
    _server: tokio::process::Child,
}

impl Sdk {
    async fn start() -> Result<Self, Failure> {
        let mut server = tokio::process::Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (input, output) = (server.stdin.take(), server.stdout.take());
        let (input, output) = (input.ok_or("no input")?, output.ok_or("no output")?);
        let transport = AsyncRwTransport::new_client(output, input).with_max_line_length(usize::MAX);
        let client = ().serve(transport).await?;
        Ok(Self {
            client,
            _server: server,
        })
    }

    async fn call(&self, size: usize) -> Result<(), Failure> {
        let mut params = CallToolRequestParams::new("image");
        params.arguments = serde_json::from_str(&format!("{{\"bytes\":{size},\"seed\":{}}}", seed()))?;
        let result = self.client.peer().call_tool(params).await?;
        if result.content.len() == 1 {
            Ok(())
        } else {
            Err("another picture came".into())
        }
    }
}

/// The least that can be done with a picture's bytes, in one thread.
struct Bare {
    server: Child,
    input: ChildStdin,
    output: ChildStdout,
    file: PathBuf,
}

impl Bare {
    fn start(folder: &Path) -> Result<Self, Failure> {
        let mut server = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (server.stdin.take(), server.stdout.take());
        Ok(Self {
            server,
            input: input.ok_or("no input")?,
            output: output.ok_or("no output")?,
            file: folder.join("bare"),
        })
    }

    fn call(&mut self, size: usize) -> Result<(), Failure> {
        let arguments = format!("{{\"bytes\":{size},\"seed\":{}}}", seed());
        let params = format!("{{\"name\":\"image\",\"arguments\":{arguments}}}");
        let line =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{params}}}\n");
        self.input.write_all(line.as_bytes())?;
        let mut file = File::create_new(&self.file)?;
        let written = self.store(&mut file)?;
        drop(file);
        fs::remove_file(&self.file)?;
        if written == size {
            Ok(())
        } else {
            Err(format!("{written} bytes came").into())
        }
    }

    fn store(&mut self, file: &mut File) -> Result<usize, Failure> {
        const KEY: &[u8] = b"\"data\":\"";
        let mut hasher = blake3::Hasher::new();
        let (mut buffer, mut text, mut bytes) = (vec![0; 64 << 10], Vec::new(), Vec::new());
        let (mut begun, mut ended, mut written) = (false, false, 0);
        loop {
            let count = self.output.read(&mut buffer)?;
            let read = buffer.get(..count).filter(|read| !read.is_empty());
            let mut read = read.ok_or("the server ended")?;
            let last = read.ends_with(b"\n");
            if !begun && let Some(at) = memchr::memmem::find(read, KEY) {
                read = read.get(at + KEY.len()..).unwrap_or_default();
                begun = true;
            }
            if begun && !ended {
                let end = memchr::memchr2(b'"', b'\\', read);
                ended = end.is_some();
                text.extend_from_slice(read.get(..end.unwrap_or(read.len())).unwrap_or_default());
                let whole = text.len() / 4 * 4;
                bytes.clear();
                STANDARD
                    .decode_append(text.get(..whole).unwrap_or_default(), &mut bytes)
                    .map_err(|_| "no base64")?;
                text.drain(..whole);
                hasher.update(&bytes);
                file.write_all(&bytes)?;
                written += bytes.len();
            }
            if last {
                std::hint::black_box(Hash::from_bytes(*hasher.finalize().as_bytes()));
                return Ok(written);
            }
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Different with each call, so that nothing is in the store already.
fn seed() -> u64 {
    static SEED: AtomicU64 = AtomicU64::new(1);
    SEED.fetch_add(1, Ordering::Relaxed)
}

/// The server: its pictures begin with 48 KiB of their own and go on with the same noise, so that they cost it little.
fn serve() -> Result<ExitCode, Failure> {
    let noise = STANDARD.encode_to_string(noise(0));
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        answer(&mut out, &message, noise.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One line, where the message wants an answer.
fn answer(out: &mut impl Write, message: &Value, noise: &[u8]) -> Result<(), Failure> {
    let Some(id) = message.get("id") else {
        return Ok(());
    };
    write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":")?;
    match message.get("method").and_then(Value::as_str) {
        Some("tools/call") => picture(out, message, noise)?,
        Some("tools/list") => {
            out.write_all(br#"{"tools":[{"name":"image","inputSchema":{"type":"object"}}]}"#)?;
        }
        _ => out.write_all(
            br#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#,
        )?,
    }
    out.write_all(b"}\n")?;
    Ok(out.flush()?)
}

/// The same over HTTP, until it is killed.
fn serve_http(events: bool) -> Result<ExitCode, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}", listener.local_addr()?);
    let noise: Arc<str> = STANDARD.encode_to_string(noise(0)).into();
    for stream in listener.incoming() {
        let (stream, noise) = (stream?, Arc::clone(&noise));
        std::thread::spawn(move || exchange(stream, events, noise.as_bytes()));
    }
    Ok(ExitCode::SUCCESS)
}

/// One request and its answer, which the end of the connection ends.
fn exchange(stream: TcpStream, events: bool, noise: &[u8]) -> Result<(), Failure> {
    let mut input = BufReader::new(stream.try_clone()?);
    let (mut method, mut length, mut line) = (String::new(), 0, String::new());
    while input.read_line(&mut line)? > 2 {
        if method.is_empty() {
            method = line.split(' ').next().unwrap_or_default().to_owned();
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    let mut out = BufWriter::with_capacity(64 << 10, stream);
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    if method != "POST" || message.get("id").is_none() {
        let status = if method == "GET" {
            "405 None"
        } else {
            "202 Accepted"
        };
        write!(
            out,
            "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )?;
        return Ok(out.flush()?);
    }
    let (kind, before) = if events {
        ("text/event-stream", "data: ")
    } else {
        ("application/json", "")
    };
    write!(
        out,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{before}"
    )?;
    answer(&mut out, &message, noise)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

fn picture(out: &mut impl Write, message: &Value, noise: &[u8]) -> Result<(), Failure> {
    let argument = |name: &str| {
        let at = format!("/params/arguments/{name}");
        let value = message.pointer(&at).and_then(Value::as_u64);
        value.ok_or("an argument is missing")
    };
    let (size, seed) = (usize::try_from(argument("bytes")?)?, argument("seed")?);
    out.write_all(br#"{"content":[{"type":"image","mimeType":"image/png","data":""#)?;
    out.write_all(STANDARD.encode_to_string(self::noise(seed)).as_bytes())?;
    let rest = size - PIECE_BYTES;
    for _ in 0..rest / PIECE_BYTES {
        out.write_all(noise)?;
    }
    out.write_all(noise.get(..rest % PIECE_BYTES / 3 * 4).unwrap_or_default())?;
    out.write_all(match rest % PIECE_BYTES % 3 {
        0 => b"",
        1 => b"QQ==",
        _ => b"QUE=",
    })?;
    Ok(out.write_all(b"\"}]}")?)
}

fn noise(seed: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ (seed + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    while bytes.len() < PIECE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn kib(name: &str) -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
    Ok(value
        .ok_or("the size of memory is not told here")?
        .trim()
        .parse()?)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn row(name: &str, time: Duration, over: Option<Duration>, target: &str) {
    let ratio = over.map_or(String::new(), |over| {
        format!("{:>7.2} x", time.as_secs_f64() / over.as_secs_f64())
    });
    let target = if target.is_empty() {
        String::new()
    } else {
        format!("  (target {target})")
    };
    println!("  {name:<18}{time:>10.2?} {ratio}{target}");
}
