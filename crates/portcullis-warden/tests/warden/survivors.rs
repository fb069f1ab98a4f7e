//! Which processes carry a mark among their arguments.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::runner::PATIENCE;

/// A mark that no other process on the machine carries.
pub(crate) fn new_mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "mark-{}-{}-",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// The living processes that carry `mark` and were not started as a hub or by one's launcher.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that ended meanwhile, or a zombie: no arguments.
        let Ok(arguments) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let words: Vec<_> = arguments.split(|byte| *byte == 0).collect();
        let is_marked = words
            .iter()
            .any(|word| word.windows(mark.len()).any(|part| part == mark.as_bytes()));
        if is_marked && !words.contains(&&b"hub"[..]) {
            found.push(pid);
        }
    }
    found
}

/// Waits until as many processes carry `mark` and have done all that they do before they stay.
#[track_caller]
pub(crate) fn await_marked(mark: &str, count: usize) {
    let stays =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "staying\n");
    let begun = Instant::now();
    loop {
        let up = marked(mark).iter().filter(|pid| stays(pid)).count();
        if up == count {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{up} of {count} processes are up");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until no process carries `mark`, and says how long that took.
#[track_caller]
pub(crate) fn await_none(mark: &str, most: Duration) -> Duration {
    let begun = Instant::now();
    loop {
        let left = marked(mark);
        let Some(first) = left.first() else {
            return begun.elapsed();
        };
        assert!(
            begun.elapsed() < most,
            "{} survivors after {most:?}: {}",
            left.len(),
            describe(&left)
        );
        await_end(*first, most.saturating_sub(begun.elapsed()));
    }
}

/// Waits until the process is dead, or for so long.
fn await_end(pid: i32, most: Duration) {
    let pid = Pid::from_raw(pid).unwrap();
    // One that cannot be opened is gone already.
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
        let most = Timespec::try_from(most).unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&most)).unwrap();
    }
}

fn describe(processes: &[i32]) -> String {
    let tell = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        format!("{pid}: {}", String::from_utf8_lossy(&words).replace('\0', " "))
    };
    processes.iter().map(tell).collect::<Vec<_>>().join("; ")
}
