//! How large warden and keepers are, and how long a start takes.

use std::{
    fs,
    hint::black_box,
    io::{Read, Write},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use portcullis_warden::{Launch, Program, Report, Warden};

use crate::hub::{Running, next_report, order, start};

const SERVERS: usize = 32;

/// The largest keeper may have 64 KiB of its own.
pub(crate) fn warden_and_keepers_are_small() {
    let (warden, keepers) = sizes(&Program::Itself);
    println!("  private memory: warden {warden} KiB, keepers {keepers:?} KiB");
    assert!(keepers.iter().all(|kib| *kib <= 64), "{keepers:?}");
    assert!(warden <= 1_024, "{warden}");
}

/// KiB of the warden, and of its keepers from the smallest to the largest.
fn sizes(program: &Program) -> (u64, Vec<u64>) {
    let warden = Warden::start(program).unwrap();
    // Before it shares anything with keepers.
    let alone = private_kib(warden.pid());
    let servers: Vec<Running> = (0..SERVERS)
        .map(|_| start(&warden, &order("/bin/cat", &[])))
        .collect();
    let mut keepers: Vec<u64> = servers
        .iter()
        .map(|server| private_kib(parent(server.pid)))
        .collect();
    keepers.sort_unstable();
    keepers.dedup();
    (alone, keepers)
}

pub(crate) fn parent(pid: u32) -> u32 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    text.rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

fn private_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    lines
        .map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
        .sum()
}

/// `cargo test -p portcullis-warden --test warden --release -- figures`
pub(crate) fn print() {
    let (warden, keepers) = sizes(&Program::Itself);
    println!("private memory of a warden: {warden} KiB; of each of {SERVERS} keepers: {keepers:?} KiB");
    for gib in [0, 2] {
        let ballast = vec![1_u8; gib << 30];
        for _ in 0..5 {
            println!("host of {gib} GiB: {}", spawn_times());
        }
        black_box(&ballast);
    }
}

/// 32 servers one after the other, and 32 asked for side by side, against plain spawning.
fn spawn_times() -> String {
    let begun = Instant::now();
    let warden = Warden::start(&Program::Itself).unwrap();
    let up = begun.elapsed();

    let begun = Instant::now();
    let servers: Vec<Running> = (0..SERVERS)
        .map(|_| start(&warden, &order("/bin/cat", &[])))
        .collect();
    let one_by_one = begun.elapsed();
    drop(servers);
    thread::sleep(Duration::from_secs(1));

    let begun = Instant::now();
    let order = order("/bin/cat", &[]).encode().unwrap();
    let mut asked: Vec<Launch> = (0..SERVERS).map(|_| warden.launch().unwrap()).collect();
    for launch in &mut asked {
        launch.control.write_all(&order).unwrap();
    }
    for launch in &mut asked {
        assert!(matches!(next_report(launch), Some(Report::Started { .. })));
    }
    let side_by_side = begun.elapsed();
    drop(asked);
    thread::sleep(Duration::from_secs(1));

    let begun = Instant::now();
    let plain: Vec<_> = (0..SERVERS).map(|_| spawn_plainly(false)).collect();
    let plainly = begun.elapsed();
    stop(plain);

    let begun = Instant::now();
    let forked: Vec<_> = (0..2).map(|_| spawn_plainly(true)).collect();
    let forking = begun.elapsed() * 16;
    stop(forked);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!(
        "warden up {:.1} ms; {SERVERS} servers: by the warden {:.1} ms, side by side {:.1} ms, spawned plainly {:.1} ms, by a fork of the \
         host {:.0} ms (from 2)",
        ms(up),
        ms(one_by_one),
        ms(side_by_side),
        ms(plainly),
        ms(forking)
    )
}

fn spawn_plainly(fork: bool) -> std::process::Child {
    let mut command = Command::new("/bin/cat");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if fork {
        // A user id makes the standard library fork, as `pre_exec` would.
        std::os::unix::process::CommandExt::uid(&mut command, rustix::process::geteuid().as_raw());
    }
    command.spawn().unwrap()
}

fn stop(children: Vec<std::process::Child>) {
    for mut child in children {
        drop(child.stdin.take());
        child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        child.wait().unwrap();
    }
}
