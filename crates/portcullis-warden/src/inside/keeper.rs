//! A keeper: parent of one server, and of whatever the server leaves behind.

use std::{
    collections::BTreeSet,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpid, kill_process_group, set_child_subreaper, setsid};

use super::{Post, execute::execute, signals, sweep, wait_for};
use crate::{Order, Report, Step};

/// How long the hub may take to write an order.
const ORDER_WAIT: Duration = Duration::from_secs(10);
/// How long the last processes may take to die before the hub is told that some would not.
const DEATH_WAIT: Duration = Duration::from_secs(2);
/// How often processes that would not die are told again: quickly at first, then seldom.
const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What a keeper watches over.
struct Server<'a> {
    pid: Pid,
    post: &'a Post,
    control: &'a UnixStream,
    after_eof: Duration,
    after_term: Duration,
}

/// How far the stop sequence is.
#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// Its standard input is closed; SIGTERM comes then.
    AfterEof(Instant),
    /// SIGTERM was sent; SIGKILL comes then.
    AfterTerm(Instant),
}

/// Starts the server that the hub orders, and returns when it and all that it left behind are gone.
pub(super) fn keep(post: &Post, pipes: [OwnedFd; 3], control: &UnixStream) -> io::Result<()> {
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    let _ = rustix::thread::set_name(c"portcullis-keep");
    let Some(server) = start(post, pipes, control)? else {
        return Ok(());
    };
    server.watch()?;
    server.end_all()
}

/// Reads the order and carries it out; none where nothing runs.
fn start<'a>(post: &'a Post, pipes: [OwnedFd; 3], control: &'a UnixStream) -> io::Result<Option<Server<'a>>> {
    let Some(order) = read_order(control)? else {
        report(
            control,
            Report::Failed {
                step: Step::Order,
                errno: rustix::io::Errno::INVAL.raw_os_error(),
            },
        );
        return Ok(None);
    };
    if let Some(cwd) = &order.cwd
        // The error of executing a program does not say which of the two was missing.
        && let Err(error) = rustix::process::chdir(cwd)
    {
        let error = io::Error::from(error);
        report(control, failed(Step::WorkingDirectory, &error));
        return Ok(None);
    }
    let executed = execute(&order, pipes);
    let _ = rustix::process::chdir("/");
    let pid = match executed {
        Ok(pid) => pid,
        Err(error) => {
            report(control, failed(Step::Program, &error));
            return Ok(None);
        }
    };
    report(
        control,
        Report::Started {
            pid: pid.as_raw_pid().unsigned_abs(),
        },
    );
    Ok(Some(Server {
        pid,
        post,
        control,
        after_eof: order.after_eof,
        after_term: order.after_term,
    }))
}

fn read_order(mut control: &UnixStream) -> io::Result<Option<Order>> {
    control.set_read_timeout(Some(ORDER_WAIT))?;
    let mut head = [0; Order::LENGTH_BYTES];
    control.read_exact(&mut head)?;
    let Some(length) = Order::length(head) else {
        return Ok(None);
    };
    let mut body = vec![0; length];
    control.read_exact(&mut body)?;
    Ok(Order::decode(&body))
}

impl Server<'_> {
    /// Returns when the server is dead, which it still is to be reaped, or when it must be killed.
    fn watch(&self) -> io::Result<()> {
        let mut phase = Phase::Running;
        loop {
            let until = match phase {
                Phase::Running => None,
                Phase::AfterEof(until) | Phase::AfterTerm(until) => {
                    Some(until.saturating_duration_since(now()))
                }
            };
            let running = matches!(phase, Phase::Running);
            let hub = self
                .post
                .hub
                .as_ref()
                .filter(|_| running)
                .map(|hub| hub as &dyn AsFd);
            let control = running.then_some(self.control as &dyn AsFd);
            let [told, hub_ended, child_ended] = wait_for([control, hub, Some(&self.post.signals)], until)?;
            if told {
                // An unread word would make of this socket's end an error on the hub's side.
                let mut control = self.control;
                let _ = control.read(&mut [0; 16]);
            }
            if child_ended && self.is_dead()? {
                return Ok(());
            }
            phase = match phase {
                // The order to stop, or the hub's end: the rest is the same.
                Phase::Running if told || hub_ended => Phase::AfterEof(now() + self.after_eof),
                Phase::AfterEof(until) if now() >= until => {
                    // Sound: the server was not reaped, and leads a session, so this group is its own for good.
                    let _ = kill_process_group(self.pid, Signal::TERM);
                    Phase::AfterTerm(now() + self.after_term)
                }
                Phase::AfterTerm(until) if now() >= until => return Ok(()),
                same => same,
            };
        }
    }

    /// Reaps what else has died since; whether the server has.
    fn is_dead(&self) -> io::Result<bool> {
        signals::drain(&self.post.signals);
        let mut dead = false;
        sweep::take_dead(|child| {
            dead = child == self.pid;
            !dead
        })?;
        Ok(dead)
    }

    /// Kills until nothing is left, and tells the hub.
    fn end_all(&self) -> io::Result<()> {
        let begun = now();
        let mut status = Signal::KILL.as_raw();
        let (mut pause, mut told) = (AGAIN.0, false);
        loop {
            let round = sweep::round(&BTreeSet::new())?;
            for (child, how) in &round.dead {
                if *child == self.pid {
                    status = *how;
                }
            }
            if !round.any_left {
                break;
            }
            if !round.dead.is_empty() {
                // What they left behind is ours by now.
                continue;
            }
            if !told && now() - begun > DEATH_WAIT {
                report(self.control, Report::Ended { status, left: true });
                told = true;
            }
            wait_for([Some(&self.post.signals as &dyn AsFd)], Some(pause))?;
            signals::drain(&self.post.signals);
            pause = AGAIN.1.min(pause * 2);
        }
        if !told {
            report(self.control, Report::Ended { status, left: false });
        }
        Ok(())
    }
}

fn failed(step: Step, error: &io::Error) -> Report {
    Report::Failed {
        step,
        // What the standard library refuses before the kernel does, such as a zero in an argument, has no number.
        errno: error
            .raw_os_error()
            .unwrap_or(rustix::io::Errno::INVAL.raw_os_error()),
    }
}

/// Tells the hub. It may be gone, and that changes nothing.
fn report(mut control: &UnixStream, report: Report) {
    let _ = control.write_all(&report.encode());
}

fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the keeper is a process of its own, and the only clock there is"
    )]
    Instant::now()
}
