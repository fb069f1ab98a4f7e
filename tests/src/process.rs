use std::{fs, path::Path, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::DEADLINE;

/// The process ids in a file that scripted servers append theirs to; none where there is no file.
pub fn pids(file: &Path) -> Vec<u32> {
    fs::read_to_string(file)
        .unwrap_or_default()
        .lines()
        .map(|line| line.parse().expect("a process id is a number"))
        .collect()
}

/// Whether a process has ended by now; one that nobody has reaped yet has ended too.
pub fn is_gone(pid: u32) -> bool {
    ends_within(pid, Duration::ZERO)
}

/// Asserts that none of these processes is there any more.
#[track_caller]
pub fn check_gone(pids: &[u32]) {
    let left: Vec<_> = pids
        .iter()
        .filter(|pid| !is_gone(**pid))
        .map(|pid| describe(*pid))
        .collect();
    assert!(left.is_empty(), "still there: {left:?}");
}

/// Waits for the end of a process, which need not be a child of this one.
#[track_caller]
pub fn wait_until_gone(pid: u32) {
    assert!(ends_within(pid, DEADLINE), "still there: {}", describe(pid));
}

/// What a process is, for whoever reads a failure.
fn describe(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let state = read("stat")
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .chars()
        .take(12)
        .collect::<String>();
    let command: String = read("cmdline").replace('\0', " ").chars().take(200).collect();
    format!("{pid}, in state {state}: {command}")
}

fn ends_within(pid: u32, time: Duration) -> bool {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let handle = match pidfd_open(raw.expect("a process id is positive"), PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return true,
        Err(error) => panic!("process {pid} cannot be watched: {error}"),
    };
    let time = Timespec::try_from(time).unwrap();
    // Readable once the process has ended.
    let mut wanted = [PollFd::new(&handle, PollFlags::IN)];
    poll(&mut wanted, Some(&time)).unwrap() == 1
}
