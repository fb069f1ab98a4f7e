//! Fifty servers that misbehave beside ten that are well. What the ten's callers notice of the hub's being connected
//! to the fifty is measured against the same fifty running, called and started again the same, without the hub's being
//! connected to any: a plain driver runs them then. What is left is what one hub's servers cost each other.
//!
//! One hub lives through all of it, so that its memory over time tells whether something is kept.

use std::{path::Path, process::ExitCode, sync::Arc, sync::atomic::Ordering, time::Duration};

use portcullis_config::{ServerSpec, Timeouts};
use portcullis_supervisor::{LifecycleOptions, StopSequence, Supervisor, SupervisorOptions};
use portcullis_testkit::{Behaviour, Script, Tool};
use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    driver::Driver,
    load::{CALL, Health, PATIENCE, Stats, call_healthy, call_misfits},
    misfits::{MISFITS, misfit, record, starts},
    report::{Measured, Phase, Report, Took},
    rig::{Host, Processors, descriptors, lines, marked, new_mark, option, resident_kib, runtime, spec},
};

pub(crate) struct Options {
    phase: Duration,
    rounds: u64,
    seed: u64,
    /// Whether the run is long enough to be held to its targets of time and memory.
    is_long: bool,
}

impl Options {
    /// `--minutes N` is how long the whole takes, about.
    pub(crate) fn parse(words: &[&str]) -> Self {
        let seconds = option(words, "--minutes").unwrap_or(10) * 60;
        let rounds = option(words, "--rounds").unwrap_or(7);
        Self {
            phase: Duration::from_secs((seconds / (2 * rounds)).max(5)),
            rounds,
            seed: option(words, "--seed").unwrap_or(1),
            is_long: true,
        }
    }

    pub(crate) fn short() -> Self {
        Self {
            phase: Duration::from_secs(8),
            rounds: 2,
            seed: 1,
            is_long: false,
        }
    }
}

const HEALTHY: u64 = 10;
/// The beginning of each phase, when all start at once, does not count.
const WARM_UP: Duration = Duration::from_secs(2);
/// How soon the processes of servers that were switched off have to be gone.
const GONE: Duration = Duration::from_secs(20);

pub(crate) fn run(options: &Options) -> ExitCode {
    // What a first supervisor makes the process open and keep.
    runtime().block_on(async { drop(start(Vec::new()).await) });
    let before = descriptors();
    let mut report = Report::default();
    runtime().block_on(storm(options, &mut report));
    report.descriptors = descriptors().saturating_sub(before);
    report.tell();
    let is_on_target = !options.is_long || report.is_on_target();
    ExitCode::from(u8::from(!(report.is_well() && is_on_target)))
}

async fn start(specs: Vec<ServerSpec>) -> Supervisor {
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

/// All phases, in one hub.
async fn storm(options: &Options, report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let (well, ill) = (new_mark(), new_mark());
    let healthy = (0..HEALTHY).map(|number| {
        let script = Script::new(&format!("healthy-{number}")).tool(Tool::new("echo", Behaviour::Echo));
        spec(&script, &well, Timeouts::uniform(PATIENCE))
    });
    let misfits = (0..MISFITS).map(|number| {
        let mut spec = spec(&misfit(folder.path(), number), &ill, Timeouts::uniform(CALL));
        spec.enabled = false;
        spec
    });
    let supervisor = start(healthy.chain(misfits).collect()).await;

    let (over, health) = (CancellationToken::new(), Arc::new(Health::default()));
    let mut callers = JoinSet::new();
    for (id, upstream) in supervisor.upstreams() {
        if id.as_str().starts_with("healthy") {
            callers.spawn(call_healthy(upstream.clone(), over.clone(), Arc::clone(&health)));
        }
    }
    let stats = Arc::new(Stats::default());
    for round in 0..options.rounds {
        let seed = options.seed + round;
        // Each side comes first as often as the other: what the machine does beside falls on both.
        let connected_first = round % 2 == 1;
        for connected in [connected_first, !connected_first] {
            let phase = if connected {
                let folder = folder.path();
                let phase = beside(options.phase, &supervisor, folder, seed, &stats, &health).await;
                report.processes += left_after(&ill, GONE).await;
                phase
            } else {
                apart(options.phase, seed, &health).await
            };
            phase.tell();
            report.phases.push(phase);
        }
    }
    over.cancel();
    timeout(PATIENCE, callers.join_all())
        .await
        .expect("every call ends");
    supervisor.shutdown().await.unwrap();
    report.processes += marked(&well).len() + marked(&ill).len();
    report.healthy_failed = std::mem::take(&mut *health.failed.lock().unwrap());
    report.note_calls(&stats);
    for number in 0..MISFITS {
        report.note_executed(&lines(&record(folder.path(), number)));
    }
}

/// One phase in which the hub's misfits are switched on and called.
async fn beside(
    phase: Duration,
    supervisor: &Supervisor,
    folder: &Path,
    seed: u64,
    stats: &Arc<Stats>,
    health: &Health,
) -> Phase {
    let calls = || stats.answered.load(Ordering::Relaxed) + stats.failed.load(Ordering::Relaxed);
    let (calls_before, starts_before) = (calls(), lines(&starts(folder)).len());
    switch(supervisor, true);
    let over = CancellationToken::new();
    let ((), measured) = tokio::join!(call_misfits(supervisor, folder, seed, stats, &over), async {
        let measured = measure(phase, health).await;
        over.cancel();
        measured
    });
    switch(supervisor, false);
    Phase {
        connected: true,
        measured,
        calls: calls() - calls_before,
        starts: lines(&starts(folder)).len() - starts_before,
    }
}

fn switch(supervisor: &Supervisor, on: bool) {
    for id in supervisor.upstreams().keys() {
        if id.as_str().starts_with("misfit") {
            supervisor.set_enabled(id, on).unwrap();
        }
    }
}

/// One phase in which the hub is connected to no misfit, while a plain driver runs the same.
async fn apart(phase: Duration, seed: u64, health: &Health) -> Phase {
    let (folder, mark) = (tempfile::tempdir().unwrap(), new_mark());
    let path = folder.path().to_owned();
    let driver = spawn_blocking(move || Driver::start(&mark, &path, seed))
        .await
        .unwrap();
    let measured = measure(phase, health).await;
    let calls = spawn_blocking(move || driver.stop()).await.unwrap();
    Phase {
        connected: false,
        measured,
        calls,
        starts: lines(&starts(folder.path())).len(),
    }
}

/// What the calls of those that are well took during a phase, what memory the hub had, and what the machine did.
async fn measure(phase: Duration, health: &Health) -> Measured {
    sleep(WARM_UP).await;
    let before = Processors::now();
    health.counts.store(true, Ordering::Relaxed);
    let mut memory_kib = Vec::new();
    let end = Instant::now() + phase;
    while Instant::now() < end {
        sleep(Duration::from_millis(500)).await;
        memory_kib.push(resident_kib());
    }
    health.counts.store(false, Ordering::Relaxed);
    Measured {
        healthy: Took::of(std::mem::take(&mut *health.took.lock().unwrap())),
        memory_kib,
        busy: Processors::now().busy_since(before),
    }
}

/// How many processes carry `mark` once those that end by themselves had their time. No event tells of them all: what
/// servers leave behind ends behind their connection's end.
async fn left_after(mark: &str, time: Duration) -> usize {
    let until = Instant::now() + time;
    loop {
        let left = marked(mark).len();
        if left == 0 || Instant::now() > until {
            return left;
        }
        sleep(Duration::from_millis(100)).await;
    }
}
