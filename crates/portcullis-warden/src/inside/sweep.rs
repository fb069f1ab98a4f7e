//! Ends every child, and what it leaves behind.

use std::{collections::BTreeSet, io};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, getpgrp, kill_process, kill_process_group, waitpid,
};

use super::children;

/// How many dead children one round takes note of before it looks for living ones again: a server whose processes
/// come and go quicker than they are counted must not keep a round from ending.
const DEAD_PER_ROUND: usize = 4_096;

/// What came of a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The children that were dead, with their statuses.
    pub(super) dead: Vec<(Pid, i32)>,
    /// Whether a child is left, spared ones counted.
    pub(super) any_left: bool,
    /// How many children, spared ones not counted, were told to die.
    pub(super) told: usize,
}

/// Kills each child but the spared ones, and takes note of those that are dead. What a child leaves behind becomes a
/// child too, so rounds are made until none is left.
///
/// Sound, in that nobody else's process is killed: a child's id stays its own until it is reaped here, and nothing
/// else in this process, which has one thread, reaps.
pub(super) fn round(spared: &BTreeSet<i32>) -> io::Result<Round> {
    let mut told = 0;
    for child in children::listed()? {
        if !spared.contains(&child.as_raw_pid()) {
            // One that is dead already, or that has more rights than we, is seen by who counts the rounds.
            let _ = kill_process(child, Signal::KILL);
            told += 1;
        }
    }
    let (dead, any_left) = take_dead(|child| {
        if !spared.contains(&child.as_raw_pid()) {
            kill_group_of_dead(child);
        }
        true
    })?;
    Ok(Round { dead, any_left, told })
}

/// Reaps dead children as long as `reap` says so of each, and says whether a child is left.
pub(super) fn take_dead(mut reap: impl FnMut(Pid) -> bool) -> io::Result<(Vec<(Pid, i32)>, bool)> {
    let mut dead = Vec::new();
    while dead.len() < DEAD_PER_ROUND {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let pid = match waitid(Id::All, look) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => pid,
            Ok(_) => return Ok((dead, true)),
            Err(nix::errno::Errno::ECHILD) => return Ok((dead, false)),
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let Some(child) = Pid::from_raw(pid.as_raw()) else {
            return Ok((dead, true));
        };
        if !reap(child) {
            return Ok((dead, true));
        }
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG)? {
            dead.push((child, status.as_raw()));
        }
    }
    Ok((dead, true))
}

/// Kills what is in the process group of a dead child, in one step that no fork escapes.
///
/// Sound: a group's id is not given away while a member, even a dead one, was not reaped. All members descend from a
/// server, since a group lies within a session, and each server began a session of its own. The exception would be a
/// child that died before it did so: it is in our own group.
fn kill_group_of_dead(child: Pid) {
    if let Ok(group) = getpgid(Some(child))
        && group != getpgrp()
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
}
