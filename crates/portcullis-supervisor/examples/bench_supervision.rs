//! What supervision costs, and how soon trouble is told: `cargo xtask bench supervision` builds and runs it.
//!
//! The SDK alone, over its own child process, takes turns with the supervisor in one run, so that whatever else the
//! machine does falls on both; what counts is the ratio of the medians. `bench_supervision [PART…]` runs some parts
//! alone: `calls`, `bad`, `crash`, `start`, `hung`, `idle`, `keeper`. The program plays every part, the servers' and the
//! warden's too.

#![expect(
    clippy::disallowed_methods,
    reason = "the edge of a measuring program: its arguments, its processes and its clock"
)]

use std::{
    io::{BufRead, Write},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream};
use portcullis_config::{NoEnvironment, Protocol, ServerSpec, StdioSpec, Timeouts};
use portcullis_supervisor::{
    LifecycleOptions, Ready, ServerState, Supervisor, SupervisorEvent, SupervisorOptions,
};
use portcullis_testkit::{BadReply, Behaviour, Handshake, Script, Tool};
use rmcp::{
    RoleClient, ServiceExt,
    model::CallToolRequestParams,
    service::{Peer, RunningService},
    transport::TokioChildProcess,
};
use tokio::{sync::mpsc, time::Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Turns of each side; the median counts.
const TURNS: usize = 9;
/// Servers that are started side by side.
const MANY: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    portcullis_warden::init();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["lean"] => Ok(lean()?),
        ["--script", ..] => {
            let _ = portcullis_testkit::run(words.iter().map(Into::into));
            Ok(())
        }
        ["start-side", side, gib] => start_side(side, gib.parse()?),
        parts => {
            let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
            if wanted("calls") {
                calls()?;
            }
            if wanted("bad") {
                on_all_cores(bad_replies())?;
            }
            if wanted("crash") {
                on_all_cores(crash())?;
            }
            if wanted("start") {
                start()?;
            }
            if wanted("hung") {
                on_all_cores(hung())?;
            }
            if wanted("idle") {
                on_all_cores(idle())?;
            }
            #[cfg(target_os = "linux")]
            if wanted("keeper") {
                on_all_cores(keeper())?;
            }
            Ok(())
        }
    }
}

fn on_all_cores(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(work)
}

// --- servers

/// A server of the older era, as lean as may be: what is measured is the client.
fn lean() -> std::io::Result<()> {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines() {
        let line = line?;
        let Some((_, rest)) = line.split_once(r#""id":"#) else {
            continue;
        };
        let id: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let result = if line.contains(r#""tools/call""#) {
            r#"{"content":[{"type":"text","text":"hello"}]}"#
        } else if line.contains(r#""tools/list""#) {
            r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#
        } else {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"lean","version":"1"}}"#
        };
        let reply = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
        output.write_all(reply.as_bytes())?;
    }
    Ok(())
}

/// A server that is this program with these arguments.
fn spec(id: &str, args: &[&str]) -> Result<ServerSpec, Failure> {
    let stdio = StdioSpec::new(std::env::current_exe()?, args);
    Ok(ServerSpec {
        timeouts: Timeouts::uniform(PATIENCE),
        protocol: Protocol::Initialize,
        ..ServerSpec::new(id.parse()?, stdio)
    })
}

fn scripted(script: &Script) -> Result<ServerSpec, Failure> {
    spec(&script.name, &["--script", &script.to_json()])
}

type Events = mpsc::UnboundedReceiver<SupervisorEvent>;

async fn supervise(
    specs: Vec<ServerSpec>,
    change: impl FnOnce(&mut LifecycleOptions),
) -> Result<(Supervisor, Events), Failure> {
    let mut options = SupervisorOptions::new(Arc::new(NoEnvironment));
    options.lifecycle.base = Duration::from_millis(1);
    options.lifecycle.cap = Duration::from_millis(5);
    options.lifecycle.park_after = u32::MAX;
    change(&mut options.lifecycle);
    let (tell, events) = mpsc::unbounded_channel();
    Ok((Supervisor::start(specs, options, tell).await?, events))
}

async fn ready(supervisor: &Supervisor, id: &str) -> Result<Ready, Failure> {
    let upstream = supervisor
        .upstream(&id.parse()?)
        .ok_or("the server is not there")?;
    Ok(upstream.ready(Instant::now() + PATIENCE, 0).await?)
}

/// The SDK alone, over its own `TokioChildProcess`, as its documentation has it.
async fn plain() -> Result<RunningService<RoleClient, ()>, Failure> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.arg("lean");
    Ok(().serve(TokioChildProcess::new(command)?).await?)
}

// --- calls

/// Whom a turn goes through. Each is a type of its own, so that neither's calls have the size of the larger one's.
trait Client {
    async fn call(&self) -> Result<(), Failure>;
}

struct Ours(Ready, Timeouts);

impl Client for Ours {
    async fn call(&self) -> Result<(), Failure> {
        self.0.call("t", r#"{"text":"hello"}"#.into(), self.1).await?;
        Ok(())
    }
}

struct Plain(Peer<RoleClient>);

impl Client for Plain {
    async fn call(&self) -> Result<(), Failure> {
        let mut params = CallToolRequestParams::new("t");
        params.arguments = serde_json::from_str(r#"{"text":"hello"}"#)?;
        self.0.call_tool(params).await?;
        Ok(())
    }
}

/// Calls through a server handle beside calls through the SDK, client and servers on one core.
fn calls() -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    {
        let mut one = rustix::thread::CpuSet::new();
        one.set(0);
        rustix::thread::sched_setaffinity(None, &one)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (supervisor, _events) = supervise(vec![spec("lean", &["lean"])?], |_| {}).await?;
        let ours = Ours(ready(&supervisor, "lean").await?, Timeouts::uniform(PATIENCE));
        let running = plain().await?;
        let sdk = Plain(running.peer().clone());
        for (in_flight, count) in [(1, 3_000), (64, 12_000)] {
            turn(&sdk, count / 4, in_flight).await?;
            turn(&ours, count / 4, in_flight).await?;
            let (mut plain, mut through) = (Vec::new(), Vec::new());
            for _ in 0..TURNS {
                plain.push(turn(&sdk, count, in_flight).await?);
                through.push(turn(&ours, count, in_flight).await?);
            }
            let (plain, ours) = (Turn::median(&plain), Turn::median(&through));
            println!(
                "calls: {in_flight:>2} in flight: p50 {:.1} µs beside {:.1} µs of the SDK alone, ratio {:.2} (at 1 in \
                 flight to be 0.85 at most); {:.0} calls/s beside {:.0}, ratio {:.2} (at 64 to be 2.2 at least)",
                ours.p50 * 1e6,
                plain.p50 * 1e6,
                ours.p50 / plain.p50,
                ours.per_second,
                plain.per_second,
                ours.per_second / plain.per_second
            );
        }
        supervisor.shutdown().await?;
        Ok::<_, Failure>(())
    })?;
    #[cfg(target_os = "linux")]
    {
        let mut all = rustix::thread::CpuSet::new();
        (0..std::thread::available_parallelism()?.get()).for_each(|core| all.set(core));
        rustix::thread::sched_setaffinity(None, &all)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Turn {
    p50: f64,
    per_second: f64,
}

impl Turn {
    fn median(turns: &[Self]) -> Self {
        Self {
            p50: median(turns.iter().map(|turn| turn.p50)),
            per_second: median(turns.iter().map(|turn| turn.per_second)),
        }
    }
}

async fn turn(client: &impl Client, calls: usize, in_flight: usize) -> Result<Turn, Failure> {
    let began = Instant::now();
    let took = stream::iter(0..calls)
        .map(|_| async {
            let began = Instant::now();
            client.call().await.map(|()| began.elapsed().as_secs_f64())
        })
        .buffer_unordered(in_flight)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Turn {
        per_second: calls as f64 / began.elapsed().as_secs_f64(),
        p50: median(took.into_iter()),
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

// --- trouble

/// How soon the only call in flight hears of a reply that cannot be used, by kind.
async fn bad_replies() -> Result<(), Failure> {
    // What is no message at all is told from a banner by nothing: its call ends by its deadline.
    let kinds: Vec<_> = BadReply::KINDS
        .iter()
        .filter(|kind| **kind != BadReply::NotJson)
        .collect();
    let script = kinds.iter().fold(Script::new("bad"), |script, kind| {
        script.tool(Tool::new(&kind.name(), Behaviour::BadReply(**kind)))
    });
    let (supervisor, _events) = supervise(vec![scripted(&script)?], |_| {}).await?;
    let ready = ready(&supervisor, "bad").await?;
    let (mut slowest, mut late) = (Duration::ZERO, 0);
    for kind in &kinds {
        let began = Instant::now();
        let patience = Timeouts::uniform(Duration::from_secs(5));
        let _ = ready.call(&kind.name(), "{}".into(), patience).await;
        if began.elapsed() >= Duration::from_secs(1) {
            println!("bad: {kind:?} took {:.2} s", began.elapsed().as_secs_f64());
            late += 1;
        }
        slowest = slowest.max(began.elapsed());
    }
    println!(
        "bad: {} kinds of bad reply, {late} of them not within 1 s, the slowest {:.1} ms",
        kinds.len(),
        slowest.as_secs_f64() * 1e3
    );
    supervisor.shutdown().await?;
    Ok(())
}

/// How soon a caller hears of the end of its server: from before the signal that kills it.
async fn crash() -> Result<(), Failure> {
    let script = Script::new("mute")
        .tool(Tool::new("mute", Behaviour::Mute))
        .tool(Tool::new("pid", Behaviour::Pid));
    let (supervisor, mut events) = supervise(vec![scripted(&script)?], |_| {}).await?;
    let mut took = Vec::new();
    while took.len() < 51 {
        let Some(event) = events.recv().await else { break };
        let SupervisorEvent::State {
            to: ServerState::Ready,
            pid: Some(pid),
            ..
        } = event
        else {
            continue;
        };
        let ready = ready(&supervisor, "mute").await?;
        let call = tokio::spawn(async move {
            let result = ready.call("mute", "{}".into(), Timeouts::uniform(PATIENCE)).await;
            (result.is_err(), Instant::now())
        });
        // Time for the call to be on its way.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let began = Instant::now();
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid)?).ok_or("no process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        let (failed, at) = call.await?;
        if !failed {
            return Err("a mute server answered".into());
        }
        took.push(at.duration_since(began).as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    println!(
        "crash: the caller's error came {:.2} ms after the signal (median of {}), {:.2} ms at most (to be 10 ms)",
        median(took.iter().copied()),
        took.len(),
        took.last().copied().unwrap_or_default()
    );
    supervisor.shutdown().await?;
    Ok(())
}

/// What a server that hangs in its handshake costs the others: until five are ready.
async fn hung() -> Result<(), Failure> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        for (hangs, times) in [(false, &mut without), (true, &mut with)] {
            let mut specs = Vec::new();
            for at in 0..5 {
                specs.push(spec(&format!("well-{at}"), &["lean"])?);
            }
            if hangs {
                specs.push(scripted(&Script::new("hung").handshake(Handshake::Hang))?);
            }
            let began = Instant::now();
            let (supervisor, _events) = supervise(specs, |_| {}).await?;
            for at in 0..5 {
                ready(&supervisor, &format!("well-{at}")).await?;
            }
            times.push(began.elapsed().as_secs_f64() * 1e3);
            supervisor.shutdown().await?;
        }
    }
    let (without, with) = (median(without.into_iter()), median(with.into_iter()));
    println!(
        "hung: five servers listed in {with:.1} ms beside one that hangs, {without:.1} ms without, ratio {:.2} (to be \
         1.2 at most)",
        with / without
    );
    Ok(())
}

// --- starting and resting

/// 32 servers side by side, by the supervisor and by the SDK alone, each in a process of its own, small and large.
fn start() -> Result<(), Failure> {
    for gib in ["0", "2"] {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            for (side, times) in [("plain", &mut plain), ("ours", &mut ours)] {
                let output = std::process::Command::new(std::env::current_exe()?)
                    .args(["start-side", side, gib])
                    .output()?;
                let text = String::from_utf8(output.stdout)?;
                times.push(text.trim().parse::<f64>()?);
            }
        }
        let (ours, plain) = (median(ours.into_iter()), median(plain.into_iter()));
        println!(
            "start: {MANY} servers ready in {ours:.1} ms, by the SDK alone {plain:.1} ms, ratio {:.2} (to be 1.3 at \
             most), in a host that holds {gib} GiB",
            ours / plain
        );
    }
    Ok(())
}

fn start_side(side: &str, gib: usize) -> Result<(), Failure> {
    // Touched, so that it is there.
    let ballast = vec![1_u8; gib << 30];
    on_all_cores(async {
        let began = Instant::now();
        match side {
            "plain" => {
                let each = (0..MANY).map(|_| async {
                    let running = plain().await?;
                    running.peer().list_all_tools().await?;
                    Ok::<_, Failure>(running)
                });
                let all = join_all(each).await.into_iter().collect::<Result<Vec<_>, _>>()?;
                println!("{}", began.elapsed().as_secs_f64() * 1e3);
                drop(all);
            }
            _ => {
                let specs = (0..MANY).map(|at| spec(&format!("s-{at}"), &["lean"]));
                let (supervisor, _events) = supervise(specs.collect::<Result<_, _>>()?, |_| {}).await?;
                for at in 0..MANY {
                    ready(&supervisor, &format!("s-{at}")).await?;
                }
                println!("{}", began.elapsed().as_secs_f64() * 1e3);
                supervisor.shutdown().await?;
            }
        }
        Ok(())
    })?;
    drop(std::hint::black_box(ballast));
    Ok(())
}

/// What a server costs that was connected once and rests: brought up a few at a time, so that what many connections
/// at once need does not count.
async fn idle() -> Result<(), Failure> {
    const SERVERS: usize = 1_000;
    const AT_ONCE: usize = 20;
    let mut specs = Vec::new();
    for at in 0..SERVERS {
        let mut spec = spec(&format!("s-{at}"), &["lean"])?;
        spec.enabled = false;
        specs.push(spec);
    }
    // Warm: the warden, the runtime, the allocator.
    let rest = |options: &mut LifecycleOptions| options.idle_after = Some(Duration::from_millis(10));
    let (warm, mut events) = supervise(vec![spec("warm", &["lean"])?], rest).await?;
    until_idle(&mut events, 1).await?;
    let before = resident_kib()?;
    let (supervisor, mut events) = supervise(specs, rest).await?;
    let names: Vec<String> = (0..SERVERS).map(|at| format!("s-{at}")).collect();
    for some in names.chunks(AT_ONCE) {
        for name in some {
            supervisor.set_enabled(&name.parse()?, true)?;
        }
        until_idle(&mut events, some.len()).await?;
    }
    // The last processes end.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let each = (resident_kib()? - before) / SERVERS as f64;
    println!("idle: {each:.1} KiB for each of {SERVERS} servers at rest (to be 16 KiB at most)");
    supervisor.shutdown().await?;
    warm.shutdown().await?;
    Ok(())
}

/// What a server costs in the warden's processes: the memory that each keeper shares with nobody.
#[cfg(target_os = "linux")]
async fn keeper() -> Result<(), Failure> {
    let specs = (0..MANY).map(|at| spec(&format!("s-{at}"), &["lean"]));
    let (supervisor, mut events) = supervise(specs.collect::<Result<_, _>>()?, |_| {}).await?;
    let mut private = Vec::new();
    while private.len() < MANY {
        if let SupervisorEvent::State {
            to: ServerState::Ready,
            pid: Some(pid),
            ..
        } = events.recv().await.ok_or("the supervisor is gone")?
        {
            let keeper = field(&format!("/proc/{pid}/status"), "PPid:")?;
            let rollup = format!("/proc/{keeper}/smaps_rollup");
            private.push(field(&rollup, "Private_Clean:")? + field(&rollup, "Private_Dirty:")?);
        }
    }
    println!(
        "keeper: {:.0} KiB of its own (median of {MANY}), {:.0} KiB at most (to be 64 KiB at most)",
        median(private.iter().copied()),
        private.iter().copied().fold(0.0, f64::max)
    );
    supervisor.shutdown().await?;
    Ok(())
}

/// The number behind `name` in a file of the kernel's.
fn field(path: &str, name: &str) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(value.ok_or("no figure")?.parse()?)
}

async fn until_idle(events: &mut Events, mut count: usize) -> Result<(), Failure> {
    while count > 0 {
        match events.recv().await.ok_or("the supervisor is gone")? {
            SupervisorEvent::State {
                to: ServerState::Idle,
                ..
            } => count -= 1,
            SupervisorEvent::State {
                to: ServerState::BackingOff,
                reason,
                ..
            } => return Err(reason.into()),
            _ => {}
        }
    }
    Ok(())
}

/// What this process holds in memory.
fn resident_kib() -> Result<f64, Failure> {
    field("/proc/self/status", "VmRSS:")
}
