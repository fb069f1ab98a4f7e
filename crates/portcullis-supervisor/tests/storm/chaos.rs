//! Fifty servers that misbehave beside ten that are well. What the ten's callers notice of it is measured against the
//! same fifty under the same load, but of another hub: what is left is what one hub's servers cost each other.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use portcullis_config::Timeouts;
use portcullis_supervisor::{
    CallDeadline, CallFault, LifecycleOptions, StopSequence, Supervisor, SupervisorOptions, Upstream,
};
use portcullis_testkit::{Behaviour, Script, Tool};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    misfits::{MISFITS, TOOLS, cure, misfit, record},
    rig::{
        Host, descriptors, is_alive, lines, marked, new_mark, option, quantile, resident_kib, runtime, spec,
    },
};

pub(crate) struct Options {
    phase: Duration,
    rounds: u64,
    seed: u64,
}

impl Options {
    /// `--minutes N` is how long the whole takes, about.
    pub(crate) fn parse(words: &[&str]) -> Self {
        let seconds = option(words, "--minutes").unwrap_or(10) * 60;
        let rounds = option(words, "--rounds").unwrap_or(5);
        Self {
            phase: Duration::from_secs((seconds / (2 * rounds)).max(5)),
            rounds,
            seed: option(words, "--seed").unwrap_or(1),
        }
    }

    pub(crate) fn short() -> Self {
        Self {
            phase: Duration::from_secs(8),
            rounds: 2,
            seed: 1,
        }
    }
}

const HEALTHY: u64 = 10;
/// Callers of the misfits.
const CALLERS: u64 = 32;
/// What a call of a misfit may take, and how much later than a timer of that time its caller may hear of it.
const CALL: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of the calls of the misfits.
#[derive(Default)]
struct Stats {
    answered: AtomicU64,
    failed: AtomicU64,
    outlived: AtomicU64,
    slowest: Mutex<Duration>,
}

/// What became of the calls of those that are well.
#[derive(Default)]
struct Health {
    took: Mutex<Vec<Duration>>,
    failed: Mutex<Vec<String>>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let mut report = Report::default();
    // What a first supervisor makes the process open and keep.
    runtime_of(|| async { drop(start(Vec::new()).await) });
    for round in 0..options.rounds {
        for beside in [false, true] {
            report.phase(options, options.seed + round, beside);
        }
    }
    report.tell();
    ExitCode::from(u8::from(!report.is_well()))
}

fn runtime_of<F: Future>(work: impl FnOnce() -> F) -> F::Output {
    runtime().block_on(work())
}

#[derive(Default)]
struct Report {
    /// The p99 of each phase.
    apart: Vec<Duration>,
    beside: Vec<Duration>,
    stats: Stats,
    healthy_calls: usize,
    healthy_failed: Vec<String>,
    twice: usize,
    processes: usize,
    descriptors: usize,
    memory_kib: Vec<u64>,
}

impl Report {
    fn phase(&mut self, options: &Options, seed: u64, beside: bool) {
        let folder = tempfile::tempdir().unwrap();
        let (mark, before) = (new_mark(), descriptors());
        let mut other = (!beside).then(|| other_hub(&mark, folder.path(), seed));
        let health = Arc::new(Health::default());
        let memory = runtime().block_on(hub(
            options.phase,
            beside.then_some((folder.path(), seed)),
            &mark,
            &health,
            &self.stats,
        ));
        if let Some(other) = &mut other {
            drop(other.stdin.take());
            let _ = other.wait();
        }
        drop(other);
        self.memory_kib.extend(memory);
        let mut took = std::mem::take(&mut *health.took.lock().unwrap());
        took.sort();
        let p99 = quantile(&took, 0.99);
        println!(
            "chaos: {} for {} s: {} healthy calls, p50 {:.2} ms, p99 {:.2} ms",
            if beside {
                "misfits in this hub   "
            } else {
                "misfits in another hub"
            },
            options.phase.as_secs(),
            took.len(),
            quantile(&took, 0.5).as_secs_f64() * 1e3,
            p99.as_secs_f64() * 1e3
        );
        if beside { &mut self.beside } else { &mut self.apart }.push(p99);
        self.healthy_calls += took.len();
        self.healthy_failed.append(&mut health.failed.lock().unwrap());
        self.descriptors += descriptors().saturating_sub(before);
        let pids = lines(&folder.path().join("pids"));
        self.processes += marked(&mark).len() + pids.iter().filter(|pid| is_alive(pid)).count();
        for number in 0..MISFITS {
            let mut times: HashMap<String, usize> = HashMap::new();
            for line in lines(&record(folder.path(), number)) {
                let arguments = line.split_once(' ').unwrap().1.to_owned();
                *times.entry(arguments).or_default() += 1;
            }
            self.twice += times.values().filter(|times| **times > 1).count();
        }
    }

    fn is_well(&self) -> bool {
        let outlived = self.stats.outlived.load(Ordering::Relaxed);
        (outlived, self.twice, self.processes, self.descriptors) == (0, 0, 0, 0)
            && self.healthy_failed.is_empty()
            && self.stats.answered.load(Ordering::Relaxed) > 0
    }

    fn tell(&self) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        println!(
            "chaos: calls of misfits answered {}, failed {}; outlived their deadline {} (slowest {:.2} s of {} s)",
            load(&self.stats.answered),
            load(&self.stats.failed),
            load(&self.stats.outlived),
            self.stats.slowest.lock().unwrap().as_secs_f64(),
            CALL.as_secs()
        );
        println!(
            "chaos: healthy calls answered {}, failed {}",
            self.healthy_calls,
            self.healthy_failed.len()
        );
        for failed in self.healthy_failed.iter().take(3) {
            println!("chaos: a healthy server's call failed: {failed}");
        }
        println!(
            "chaos: executed twice {}, processes left {}, descriptors left {}",
            self.twice, self.processes, self.descriptors
        );
        let [apart, beside] = [&self.apart, &self.beside].map(|all| {
            let mut all = all.clone();
            all.sort();
            quantile(&all, 0.5)
        });
        println!(
            "chaos: p99 of the healthy: {:.2} ms beside, {:.2} ms apart, ratio {:.2} (to be 1.2 at most)",
            beside.as_secs_f64() * 1e3,
            apart.as_secs_f64() * 1e3,
            beside.as_secs_f64() / apart.as_secs_f64()
        );
        // The first third warms up: allocators keep what they once had.
        let settled = self
            .memory_kib
            .get(self.memory_kib.len() / 3..)
            .unwrap_or_default();
        let third = settled.len() / 3;
        let middle = |part: &[u64]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            part.get(part.len() / 2).copied().unwrap_or_default()
        };
        let (first, rest) = settled.split_at(third);
        let (_, last) = rest.split_at(rest.len() - third);
        let (first, last) = (middle(first), middle(last));
        println!(
            "chaos: resident memory {first} KiB, later {last} KiB, at most {} KiB",
            settled.iter().max().copied().unwrap_or_default()
        );
    }
}

async fn start(specs: Vec<portcullis_config::ServerSpec>) -> Supervisor {
    let mut options = SupervisorOptions::new(Arc::new(Host));
    options.lifecycle = LifecycleOptions {
        base: Duration::from_millis(50),
        cap: Duration::from_secs(2),
        probe_every: Duration::from_secs(3),
        ..LifecycleOptions::default()
    };
    options.stop = StopSequence {
        after_eof: Duration::from_millis(500),
        after_term: Duration::from_millis(500),
    };
    let (tell, mut heard) = mpsc::unbounded_channel();
    tokio::spawn(async move { while heard.recv().await.is_some() {} });
    Supervisor::start(specs, options, tell).await.unwrap()
}

fn misfits(folder: &Path, mark: &str) -> Vec<portcullis_config::ServerSpec> {
    let timeouts = Timeouts {
        connect: CALL,
        list: CALL,
        call: CALL,
        call_max: CALL,
    };
    (0..MISFITS)
        .map(|number| spec(&misfit(folder, number), mark, timeouts))
        .collect()
}

/// One phase: ten that are well, and where `beside` says so the fifty too. Gives the memory over time.
async fn hub(
    phase: Duration,
    beside: Option<(&Path, u64)>,
    mark: &str,
    health: &Arc<Health>,
    stats: &Stats,
) -> Vec<u64> {
    let healthy = (0..HEALTHY).map(|number| {
        let script = Script::new(&format!("healthy-{number}")).tool(Tool::new("echo", Behaviour::Echo));
        spec(&script, mark, Timeouts::uniform(PATIENCE))
    });
    let bad = beside
        .map(|(folder, _)| misfits(folder, mark))
        .unwrap_or_default();
    let supervisor = start(healthy.chain(bad).collect()).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for (id, upstream) in supervisor.upstreams() {
        if id.as_str().starts_with("healthy") {
            callers.spawn(call_healthy(
                upstream.clone(),
                Arc::clone(&over),
                Arc::clone(health),
            ));
        }
    }
    let counts = Arc::new(Stats::default());
    if let Some((folder, seed)) = beside {
        call_misfits(&mut callers, &supervisor, folder, seed, &over, &counts);
    }
    let mut memory = Vec::new();
    let end = Instant::now() + phase;
    while Instant::now() < end {
        sleep(Duration::from_millis(500)).await;
        memory.push(resident_kib());
    }
    over.store(true, Ordering::Relaxed);
    timeout(PATIENCE, async { while callers.join_next().await.is_some() {} })
        .await
        .expect("every call ends");
    supervisor.shutdown().await.unwrap();
    for (sum, count) in [
        (&stats.answered, &counts.answered),
        (&stats.failed, &counts.failed),
        (&stats.outlived, &counts.outlived),
    ] {
        sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let mut slowest = stats.slowest.lock().unwrap();
    *slowest = (*slowest).max(*counts.slowest.lock().unwrap());
    memory
}

async fn call_healthy(upstream: Upstream, over: Arc<AtomicBool>, health: Arc<Health>) {
    let mut number = 0_u64;
    if let Err(fault) = upstream.ready(Instant::now() + PATIENCE, 0).await {
        health.failed.lock().unwrap().push(fault.to_string());
    }
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let arguments = format!(r#"{{"n":{number}}}"#);
        let began = Instant::now();
        let within = CallDeadline::from_now(upstream.timeouts());
        match upstream.call("echo", arguments.into(), within).await {
            Ok(_) => health.took.lock().unwrap().push(began.elapsed()),
            Err(fault) => health.failed.lock().unwrap().push(fault.to_string()),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Has the misfits called, and those that need it cured, made ill and cured again.
fn call_misfits(
    callers: &mut JoinSet<()>,
    supervisor: &Supervisor,
    folder: &Path,
    seed: u64,
    over: &Arc<AtomicBool>,
    stats: &Arc<Stats>,
) {
    let misfits: Arc<[Upstream]> = (0..MISFITS)
        .map(|number| {
            supervisor
                .upstream(&format!("misfit-{number}").parse().unwrap())
                .unwrap()
                .clone()
        })
        .collect();
    let numbers = Arc::new(AtomicU64::new(0));
    for caller in 0..CALLERS {
        let (misfits, numbers) = (Arc::clone(&misfits), Arc::clone(&numbers));
        let (over, stats) = (Arc::clone(over), Arc::clone(stats));
        let mut random = StdRng::seed_from_u64(seed * 1_000 + caller);
        callers.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let upstream = misfits.get(random.random_range(0..misfits.len())).unwrap();
                let tool = TOOLS.get(random.random_range(0..TOOLS.len())).unwrap();
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                call_misfit(upstream, tool, number, &stats).await;
                sleep(Duration::from_millis(random.random_range(0..30))).await;
            }
        });
    }
    let (folder, over) = (folder.to_owned(), Arc::clone(over));
    let mut random = StdRng::seed_from_u64(seed);
    callers.spawn(async move {
        while !over.load(Ordering::Relaxed) {
            let some = (0..MISFITS).filter_map(|number| cure(&folder, number));
            for file in some {
                if random.random_range(0..3) == 0 {
                    let _ = fs::remove_file(&file);
                } else {
                    fs::write(&file, "").unwrap();
                }
            }
            sleep(Duration::from_millis(700)).await;
        }
    });
}

async fn call_misfit(upstream: &Upstream, tool: &str, number: u64, stats: &Stats) {
    let began = Instant::now();
    let control = tokio::spawn(async move {
        sleep_until(began + CALL).await;
        Instant::now()
    });
    let within = CallDeadline::since(began, upstream.timeouts());
    let arguments = format!(r#"{{"n":{number}}}"#);
    let result = upstream.call(tool, arguments.as_str().into(), within).await;
    let took = began.elapsed();
    let ended = Instant::now();
    if took <= CALL {
        control.abort();
    } else {
        // Not later than a timer of its deadline, which has to wait for its turn on a busy machine just as well.
        let fired = control.await.unwrap();
        if ended > fired + LATE {
            stats.outlived.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut slowest = stats.slowest.lock().unwrap();
    *slowest = (*slowest).max(took);
    match result {
        Ok(_) | Err(CallFault::Rpc { .. }) => stats.answered.fetch_add(1, Ordering::Relaxed),
        Err(_) => stats.failed.fetch_add(1, Ordering::Relaxed),
    };
}

/// The misfits and their callers, in a process of their own.
fn other_hub(mark: &str, folder: &Path, seed: u64) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["load", mark, folder.to_str().unwrap(), &seed.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    child
}

/// The part of the other hub: until the end of its input.
pub(crate) fn load(mark: &str, folder: &str, seed: u64) -> ExitCode {
    runtime().block_on(async {
        let folder = Path::new(folder);
        let supervisor = start(misfits(folder, mark)).await;
        let over = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        call_misfits(&mut callers, &supervisor, folder, seed, &over, &Arc::default());
        println!("up");
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let _ = ended.await;
        over.store(true, Ordering::Relaxed);
        while callers.join_next().await.is_some() {}
        supervisor.shutdown().await.unwrap();
    });
    ExitCode::SUCCESS
}
