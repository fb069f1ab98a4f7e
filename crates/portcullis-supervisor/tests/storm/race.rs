//! Callers against a server that is killed and restarted while they call. It notes each call that it executes, so that
//! afterwards what callers were told can be held against what was done.

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use portcullis_config::Timeouts;
use portcullis_supervisor::{
    CallDeadline, CallFault, LifecycleOptions, ServerState, Supervisor, SupervisorEvent, SupervisorOptions,
    Upstream,
};
use portcullis_testkit::{Behaviour, Script, Tool};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::rig::{Host, lines, marked, new_mark, option, runtime, spec};

pub(crate) struct Options {
    kills: u64,
    drains: u64,
    callers: u64,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Self {
        Self {
            kills: option(words, "--kills").unwrap_or(500),
            drains: option(words, "--drains").unwrap_or(200),
            callers: option(words, "--callers").unwrap_or(64),
        }
    }

    pub(crate) fn short() -> Self {
        Self {
            kills: 50,
            drains: 20,
            callers: 64,
        }
    }
}

/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a call may take where its caller is patient, and where it is not.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(8);

/// What a caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Told {
    Ok,
    NotSent,
    Unknown,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    let executed = folder.path().join("executed");
    let mark = new_mark();
    let began = std::time::Instant::now();
    let (told, kills, drains) = runtime().block_on(storm(options, &executed, &mark));
    let took = began.elapsed();
    let left = marked(&mark).len();

    let mut times: HashMap<u64, usize> = HashMap::new();
    for line in lines(&executed) {
        let number = line.rsplit(':').next().and_then(|rest| rest.strip_suffix('}'));
        *times.entry(number.unwrap().parse().unwrap()).or_default() += 1;
    }
    let count = |wanted: Told| told.values().filter(|told| **told == wanted).count();
    let twice = times.values().filter(|times| **times > 1).count();
    let unsent_yet_done = told
        .iter()
        .filter(|(number, told)| **told == Told::NotSent && times.contains_key(number))
        .count();
    let ok_yet_not_done = told
        .iter()
        .filter(|(number, told)| **told == Told::Ok && !times.contains_key(number))
        .count();
    let unknown_done = told
        .iter()
        .filter(|(number, told)| **told == Told::Unknown && times.contains_key(number))
        .count();
    println!(
        "race: {kills} kills, {drains} drains, {} callers, {:.1} s",
        options.callers,
        took.as_secs_f64()
    );
    println!(
        "race: {} calls: {} ok, {} not sent, {} outcome unknown (of these {unknown_done} were executed)",
        told.len(),
        count(Told::Ok),
        count(Told::NotSent),
        count(Told::Unknown)
    );
    println!(
        "race: executed twice {twice}, `not sent` but executed {unsent_yet_done}, ok but not executed \
         {ok_yet_not_done}, processes left {left}"
    );
    let well = (twice, unsent_yet_done, ok_yet_not_done, left) == (0, 0, 0, 0) && count(Told::Ok) > 0;
    ExitCode::from(u8::from(!well))
}

/// Everything that was told to callers, and how often the server was killed and drained.
async fn storm(options: &Options, executed: &std::path::Path, mark: &str) -> (HashMap<u64, Told>, u64, u64) {
    let record = |then| Behaviour::record(executed, then);
    let script = Script::new("s")
        .tool(Tool::new("fast", record(Behaviour::Echo)))
        .tool(Tool::new("slow", record(Behaviour::delay(5, Behaviour::Echo))));
    let mut supervised = SupervisorOptions::new(Arc::new(Host));
    supervised.lifecycle = LifecycleOptions {
        base: Duration::from_millis(1),
        cap: Duration::from_millis(5),
        park_after: u32::MAX,
        ..LifecycleOptions::default()
    };
    let (tell, mut events) = mpsc::unbounded_channel();
    let timeouts = Timeouts::uniform(PATIENCE);
    let supervisor = Supervisor::start(vec![spec(&script, mark, timeouts)], supervised, tell)
        .await
        .unwrap();
    let id = "s".parse().unwrap();
    let upstream = supervisor.upstream(&id).unwrap();
    let (over, numbers, told) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(Mutex::new(HashMap::new())),
    );
    let callers: Vec<_> = (0..options.callers)
        .map(|caller| {
            let caller = Caller {
                number: caller,
                upstream: upstream.clone(),
                over: Arc::clone(&over),
                numbers: Arc::clone(&numbers),
                told: Arc::clone(&told),
            };
            tokio::spawn(caller.call_on())
        })
        .collect();

    let mut random = StdRng::seed_from_u64(7);
    let (mut kills, mut drains) = (0, 0);
    while kills < options.kills || drains < options.drains {
        let event = timeout(PATIENCE, events.recv())
            .await
            .expect("it comes up again")
            .unwrap();
        let SupervisorEvent::State {
            to: ServerState::Ready,
            pid: Some(pid),
            ..
        } = event
        else {
            continue;
        };
        sleep(Duration::from_micros(random.random_range(0..30_000))).await;
        let left = (options.kills - kills, options.drains - drains);
        if random.random_range(0..left.0 + left.1) < left.0 {
            kills += 1;
            let _ = kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL);
        } else {
            drains += 1;
            supervisor.restart(&id).unwrap();
        }
    }
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        timeout(PATIENCE, caller).await.expect("every call ends").unwrap();
    }
    supervisor.shutdown().await.unwrap();
    let told = told.lock().unwrap().clone();
    (told, kills, drains)
}

struct Caller {
    number: u64,
    upstream: Upstream,
    over: Arc<AtomicBool>,
    numbers: Arc<AtomicU64>,
    told: Arc<Mutex<HashMap<u64, Told>>>,
}

impl Caller {
    async fn call_on(self) {
        let tool = if self.number.is_multiple_of(2) {
            "fast"
        } else {
            "slow"
        };
        // Some call once on the connection at hand, some on whichever there is; some have no patience.
        let (once, patience) = (
            self.number.is_multiple_of(3),
            if self.number % 8 == 5 { SHORT } else { LONG },
        );
        while !self.over.load(Ordering::Relaxed) {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let arguments = format!(r#"{{"n":{number}}}"#);
            let result = self
                .call(tool, &arguments, once, Timeouts::uniform(patience))
                .await;
            let told = match result {
                Ok(result) => {
                    assert!(
                        result.contains(&number.to_string()),
                        "another call's answer: {result}"
                    );
                    Told::Ok
                }
                Err(CallFault::NotSent { .. } | CallFault::TimedOut { sent: false, .. }) => Told::NotSent,
                Err(CallFault::OutcomeUnknown { .. } | CallFault::TimedOut { sent: true, .. }) => {
                    Told::Unknown
                }
                Err(other) => panic!("nobody does anything that ends in {other:?}"),
            };
            self.told.lock().unwrap().insert(number, told);
            // A little apart, so that the disk does not decide how many are in flight.
            sleep(Duration::from_millis(self.number % 4)).await;
        }
    }

    async fn call(
        &self,
        tool: &str,
        arguments: &str,
        once: bool,
        timeouts: Timeouts,
    ) -> Result<String, CallFault> {
        if once {
            let ready = self.upstream.ready(Instant::now() + timeouts.call, 0).await?;
            ready.call(tool, arguments.into(), timeouts).await
        } else {
            let within = CallDeadline::from_now(timeouts);
            self.upstream.call(tool, arguments.into(), within).await
        }
    }
}
