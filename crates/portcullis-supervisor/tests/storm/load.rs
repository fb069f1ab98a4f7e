//! What the servers are asked to do: the same for a hub's servers and for those that a plain driver runs.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use portcullis_supervisor::{CallDeadline, CallFault, Supervisor, Upstream};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::misfits::{MISFITS, TOOLS, cure};

/// What a call of a misfit may take, and how much later than a timer of that time its caller may hear of it.
pub(crate) const CALL: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_millis(500);
/// How often some misfit is called: open, so that slow answers do not thin the load out.
const CALL_EVERY: Duration = Duration::from_millis(4);
/// How often those that need it are made ill or well.
const CURE_EVERY: Duration = Duration::from_millis(700);
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Which misfit is called next, and with which tool: the same calls for the same seed.
pub(crate) struct Plan(StdRng);

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    pub(crate) fn next(&mut self) -> (usize, &'static str) {
        let misfit = self.0.random_range(0..MISFITS);
        let tool = TOOLS.get(self.0.random_range(0..TOOLS.len())).unwrap();
        (usize::try_from(misfit).unwrap(), tool)
    }
}

/// Tells when the next call is due.
pub(crate) fn pace() -> tokio::time::Interval {
    let mut pace = interval(CALL_EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    pace
}

/// Makes ill and well again those that need it, until it is dropped. Off the runtime's threads: the disk is busy with
/// what the misfits note, and the hub that is measured must not wait for it.
pub(crate) async fn cure_some(folder: &Path, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let changes: Vec<_> = (0..MISFITS)
            .filter_map(|number| cure(folder, number))
            .map(|file| (file, random.random_range(0..3) == 0))
            .collect();
        let change = move || {
            for (file, ill) in changes {
                if ill {
                    let _ = fs::remove_file(&file);
                } else {
                    fs::write(&file, "").unwrap();
                }
            }
        };
        tokio::task::spawn_blocking(change).await.unwrap();
        sleep(CURE_EVERY).await;
    }
}

/// What became of the calls of the misfits.
#[derive(Default)]
pub(crate) struct Stats {
    pub(crate) answered: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) outlived: AtomicU64,
    pub(crate) slowest: Mutex<Duration>,
    /// Numbers the calls of all phases.
    numbers: AtomicU64,
}

/// Calls the misfits until `over`, then waits for those calls.
pub(crate) async fn call_misfits(
    supervisor: &Supervisor,
    folder: &Path,
    seed: u64,
    stats: &Arc<Stats>,
    over: &CancellationToken,
) {
    let misfits: Vec<&Upstream> = (0..MISFITS)
        .map(|number| format!("misfit-{number}").parse().unwrap())
        .map(|id| supervisor.upstream(&id).unwrap())
        .collect();
    let (mut plan, mut pace, mut calls) = (Plan::new(seed), pace(), JoinSet::new());
    let call_on = async {
        loop {
            pace.tick().await;
            let (misfit, tool) = plan.next();
            let upstream = Upstream::clone(misfits.get(misfit).unwrap());
            let stats = Arc::clone(stats);
            calls.spawn(async move { call_misfit(&upstream, tool, &stats).await });
            while calls.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = over.cancelled() => {}
        () = call_on => {}
        () = cure_some(folder, seed) => {}
    }
    calls.join_all().await;
}

async fn call_misfit(upstream: &Upstream, tool: &str, stats: &Stats) {
    let number = stats.numbers.fetch_add(1, Ordering::Relaxed);
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

/// What became of the calls of those that are well.
#[derive(Default)]
pub(crate) struct Health {
    /// Whether calls count at the moment.
    pub(crate) counts: AtomicBool,
    /// What the calls took that counted, in microseconds.
    pub(crate) took: Mutex<Vec<u32>>,
    pub(crate) failed: Mutex<Vec<String>>,
}

/// Calls one that is well, again and again, until `over`.
pub(crate) async fn call_healthy(upstream: Upstream, over: CancellationToken, health: Arc<Health>) {
    if let Err(fault) = upstream.ready(Instant::now() + PATIENCE, 0).await {
        health.failed.lock().unwrap().push(fault.to_string());
    }
    let mut number = 0_u64;
    while !over.is_cancelled() {
        number += 1;
        let counts = health.counts.load(Ordering::Relaxed);
        let began = Instant::now();
        let within = CallDeadline::from_now(upstream.timeouts());
        let arguments = format!(r#"{{"n":{number}}}"#);
        match upstream.call("echo", arguments.into(), within).await {
            Ok(_) if counts => {
                let took = u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX);
                health.took.lock().unwrap().push(took);
            }
            Ok(_) => {}
            Err(fault) => health.failed.lock().unwrap().push(fault.to_string()),
        }
        sleep(Duration::from_millis(5)).await;
    }
}
