//! What both storms need: specs, ids, processes and descriptors counted.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use portcullis_config::{Protocol, ServerSpec, Sources, StdioSpec, Template, Timeouts};
use portcullis_testkit::Script;

pub(crate) struct Host;

impl Sources for Host {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "PATH").then(|| "/usr/bin:/bin".to_owned())
    }

    fn file(&self, _: &str) -> Option<String> {
        None
    }
}

/// The variable in which each server, and what it leaves behind, carries the mark of its run.
pub(crate) const MARK: &str = "STORM_MARK";

/// A server that plays `script`, by this very program, with `mark` in its environment.
pub(crate) fn spec(script: &Script, mark: &str, timeouts: Timeouts) -> ServerSpec {
    let program = std::env::current_exe().unwrap();
    let stdio = StdioSpec {
        env: [(MARK.to_owned(), Template::literal(mark))].into(),
        cwd: Some("/".into()),
        ..StdioSpec::new(program, ["server", "--script", &script.to_json()])
    };
    ServerSpec {
        timeouts,
        protocol: Protocol::Initialize,
        ..ServerSpec::new(script.name.parse().unwrap(), stdio)
    }
}

/// A mark that no other run has.
pub(crate) fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(
        "storm-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// The processes that carry `mark`.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that ended meanwhile, or a zombie: no variables.
        let variables = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = variables.split(|byte| *byte == 0);
        if variables.any(|variable| variable == wanted.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What this process holds in memory, in KiB.
pub(crate) fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(crate) fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The value behind `--name` among `words`.
pub(crate) fn option(words: &[&str], name: &str) -> Option<u64> {
    let at = words.iter().position(|word| *word == name)?;
    let value = words
        .get(at + 1)
        .unwrap_or_else(|| panic!("`{name}` needs a number"));
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("`{name}` is `{value}`, which is no number")),
    )
}

/// The value below which `part` of the sorted values lie.
pub(crate) fn quantile<T: Copy + Default>(sorted: &[T], part: f64) -> T {
    let at = (sorted.len() as f64 * part) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// The value in the middle.
pub(crate) fn median<T: Copy + Default + PartialOrd>(values: &[T]) -> T {
    let mut values = values.to_vec();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    quantile(&values, 0.5)
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// The machine's processors: how long they have worked, and how long they have been there, in ticks.
#[derive(Clone, Copy)]
pub(crate) struct Processors {
    busy: u64,
    all: u64,
}

impl Processors {
    /// From when the machine was started until now (proc_stat(5)).
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap();
        let ticks = text.lines().next().unwrap().split_whitespace().skip(1);
        // What a guest takes is counted as its host's as well.
        let ticks: Vec<u64> = ticks.take(8).map(|ticks| ticks.parse().unwrap()).collect();
        let all = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self {
            busy: all - idle,
            all,
        }
    }

    /// Which part of the time since `before` they have worked.
    pub(crate) fn busy_since(self, before: Self) -> f64 {
        (self.busy - before.busy) as f64 / (self.all - before.all).max(1) as f64
    }
}
