//! What a chaos has shown.

use std::{collections::HashMap, sync::atomic::Ordering, time::Duration};

use crate::{
    load::{CALL, Stats},
    rig::{median, quantile},
};

/// How much the healthy servers' slowest calls may take beside the same processes run without a hub.
const MOST_P99: f64 = 1.2;
/// How much the hub's memory may grow over a long run, in KiB.
const MOST_GROWTH_KIB: u64 = 8_192;

/// What one phase has shown.
pub(crate) struct Phase {
    /// Whether the misfits were connected to the hub, or run by a plain driver.
    pub(crate) connected: bool,
    pub(crate) measured: Measured,
    /// Calls of misfits: those that ended, or those that were written.
    pub(crate) calls: u64,
    /// How often a misfit was started.
    pub(crate) starts: usize,
}

/// What was seen while the calls counted.
pub(crate) struct Measured {
    pub(crate) healthy: Took,
    /// The hub's memory over time.
    pub(crate) memory_kib: Vec<u64>,
    /// Which part of the time the machine's processors worked, for whomever.
    pub(crate) busy: f64,
}

/// What the calls of those that are well took. Not each for itself: that would show as the hub's memory.
#[derive(Default)]
pub(crate) struct Took {
    calls: usize,
    p50: f64,
    p99: f64,
}

impl Took {
    /// Of times in microseconds.
    pub(crate) fn of(mut micros: Vec<u32>) -> Self {
        micros.sort_unstable();
        let millis = |part| f64::from(quantile(&micros, part)) / 1e3;
        Self {
            calls: micros.len(),
            p50: millis(0.5),
            p99: millis(0.99),
        }
    }
}

impl Phase {
    pub(crate) fn tell(&self) {
        let Measured {
            healthy,
            memory_kib,
            busy,
        } = &self.measured;
        println!(
            "chaos: misfits {}: {} calls of {} starts; {} healthy calls, p50 {:.2} ms, p99 {:.2} ms; memory {} KiB; \
             processors busy {:.0} %",
            if self.connected {
                "in the hub   "
            } else {
                "without a hub"
            },
            self.calls,
            self.starts,
            healthy.calls,
            healthy.p50,
            healthy.p99,
            median(memory_kib),
            busy * 100.0
        );
    }
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) phases: Vec<Phase>,
    answered: u64,
    failed: u64,
    outlived: u64,
    slowest: Duration,
    pub(crate) healthy_failed: Vec<String>,
    twice: usize,
    pub(crate) processes: usize,
    pub(crate) descriptors: usize,
}

impl Report {
    pub(crate) fn note_calls(&mut self, stats: &Stats) {
        self.answered = stats.answered.load(Ordering::Relaxed);
        self.failed = stats.failed.load(Ordering::Relaxed);
        self.outlived = stats.outlived.load(Ordering::Relaxed);
        self.slowest = *stats.slowest.lock().unwrap();
    }

    /// Takes what a server noted that it executed: an id, a space and the arguments, which no two calls share.
    pub(crate) fn note_executed(&mut self, lines: &[String]) {
        let mut times: HashMap<&str, usize> = HashMap::new();
        for line in lines {
            let (_, arguments) = line.split_once(' ').unwrap();
            *times.entry(arguments).or_default() += 1;
        }
        self.twice += times.values().filter(|times| **times > 1).count();
    }

    pub(crate) fn is_well(&self) -> bool {
        (self.outlived, self.twice, self.processes, self.descriptors) == (0, 0, 0, 0)
            && self.healthy_failed.is_empty()
            && self.answered > 0
            && self.phases.iter().all(|phase| phase.measured.healthy.calls > 0)
    }

    pub(crate) fn tell(&self) {
        println!(
            "chaos: calls of misfits answered {}, failed {}; outlived their deadline {} (slowest {:.2} s of {} s)",
            self.answered,
            self.failed,
            self.outlived,
            self.slowest.as_secs_f64(),
            CALL.as_secs()
        );
        println!(
            "chaos: healthy calls answered {}, failed {}",
            self.phases
                .iter()
                .map(|phase| phase.measured.healthy.calls)
                .sum::<usize>(),
            self.healthy_failed.len()
        );
        for failed in self.healthy_failed.iter().take(3) {
            println!("chaos: a healthy server's call failed: {failed}");
        }
        println!(
            "chaos: executed twice {}, processes left {}, descriptors left {}",
            self.twice, self.processes, self.descriptors
        );
        for (name, ratio, target) in [
            ("p50", self.p50(), ""),
            ("p99", self.p99(), " (to be 1.2 at most)"),
        ] {
            let Beside { with, without } = ratio;
            println!(
                "chaos: {name} of the healthy: {with:.2} ms with the misfits connected, {without:.2} ms with the same \
                 running without a hub, ratio {:.2}{target}",
                ratio.ratio()
            );
        }
        let (first, last, most) = self.memory();
        println!(
            "chaos: resident memory while the misfits are connected: {first} KiB, later {last} KiB (to grow by \
             {MOST_GROWTH_KIB} at most), at most {most} KiB"
        );
    }

    /// Whether what takes time and memory stays within its bounds. A run has to be long for this to tell anything.
    pub(crate) fn is_on_target(&self) -> bool {
        let (first, last, _) = self.memory();
        self.p99().ratio() <= MOST_P99 && last <= first + MOST_GROWTH_KIB
    }

    fn p50(&self) -> Beside {
        self.beside(|took| took.p50)
    }

    fn p99(&self) -> Beside {
        self.beside(|took| took.p99)
    }

    fn beside(&self, value: impl Fn(&Took) -> f64) -> Beside {
        let [with, without] = [true, false].map(|connected| {
            let phases = self.phases.iter().filter(|phase| phase.connected == connected);
            median(
                &phases
                    .map(|phase| value(&phase.measured.healthy))
                    .collect::<Vec<_>>(),
            )
        });
        Beside { with, without }
    }

    /// The hub's memory with the misfits connected, early and late, and the most of it, in KiB. The first third warms up:
    /// allocators keep what they once had.
    fn memory(&self) -> (u64, u64, u64) {
        let connected = self.phases.iter().filter(|phase| phase.connected);
        let samples: Vec<u64> = connected
            .flat_map(|phase| phase.measured.memory_kib.clone())
            .collect();
        let (_, settled) = samples.split_at(samples.len() / 3);
        let (first, rest) = settled.split_at(settled.len() / 3);
        let (_, last) = rest.split_at(rest.len() / 2);
        let most = settled.iter().max().copied().unwrap_or_default();
        (median(first), median(last), most)
    }
}

/// The medians of the phases with the hub's connections and of those without, in milliseconds.
struct Beside {
    with: f64,
    without: f64,
}

impl Beside {
    fn ratio(&self) -> f64 {
        self.with / self.without
    }
}
