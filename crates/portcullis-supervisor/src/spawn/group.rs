//! Process groups.
//!
//! A child leads a process group of its own. Its end is seen *before* it is reaped, so that the group's id cannot
//! have been given to somebody else when the rest of the group is killed. What leaves its
//! group (`setsid`) is outside this guard; docs/threat-model.md says so.
//!
//! A signal that the hub ignores, as SIGHUP is under `nohup`, the child ignores too, as any child does: what could
//! change that without `unsafe` (`posix_spawn(3)`) knows no working directory. Under a warden none is ignored.

use std::{io, process::Stdio};

use futures::future::BoxFuture;
use portcullis_config::ProcessLimits;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use secrecy::ExposeSecret;
use tokio::{
    process::{Child, Command},
    sync::watch,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{ProcessHandle, SpawnedProcess, Spawner, StopSequence};
use crate::environment::SpawnPlan;

/// Process groups: what every Unix offers without help.
#[derive(Debug, Clone, Copy, Default)]
pub struct GroupSpawner;

impl Spawner for GroupSpawner {
    fn spawn<'a>(
        &'a self,
        plan: &'a SpawnPlan,
        stop: StopSequence,
    ) -> BoxFuture<'a, io::Result<SpawnedProcess>> {
        Box::pin(async move { Self::start(plan, stop) })
    }
}

impl GroupSpawner {
    fn start(plan: &SpawnPlan, stop: StopSequence) -> io::Result<SpawnedProcess> {
        if plan.limits != ProcessLimits::default() {
            // Only between fork and exec could they be set, and `pre_exec` is not for a host.
            return Err(io::Error::other(format!(
                "cannot start `{}`: its limits of the process need a warden, which there is on Linux where the \
                 host's `main` calls `portcullis::warden::init()`",
                plan.program.display()
            )));
        }
        #[expect(clippy::disallowed_methods, reason = "this is the door for spawning")]
        let mut command = Command::new(&plan.program);
        command
            .args(&plan.args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // Never `pre_exec`: it would make each spawn a fork of the whole host.
        #[cfg(unix)]
        command.process_group(0);
        for (name, value) in &plan.environment {
            command.env(name, value.expose_secret());
        }
        if let Some(cwd) = &plan.cwd {
            command.current_dir(cwd);
        }
        let mut child = command.spawn().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot start `{}`: {error}", plan.program.display()),
            )
        })?;
        let pipes = (
            child.stdin.take(),
            child.stdout.take(),
            child.stderr.take(),
            child.id(),
        );
        let (Some(stdin), Some(stdout), Some(stderr), Some(pid)) = pipes else {
            return Err(io::Error::other("the child came without its pipes"));
        };
        let stop_token = CancellationToken::new();
        let (report, ended) = watch::channel(None);
        tokio::spawn(keep(child, GroupGuard::of(pid), stop_token.clone(), stop, report));
        Ok(SpawnedProcess {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            process: ProcessHandle {
                pid,
                stop: stop_token,
                ended,
            },
        })
    }
}

/// Kills the whole group when dropped, however the keeper ends.
struct GroupGuard(Option<Pid>);

impl GroupGuard {
    fn of(pid: u32) -> Self {
        Self(i32::try_from(pid).ok().and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // A group that is gone already is what is wanted.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Waits for the child's end or for the order to stop it, and reports when the group is gone.
async fn keep(
    mut child: Child,
    group: GroupGuard,
    stop: CancellationToken,
    sequence: StopSequence,
    report: watch::Sender<Option<String>>,
) {
    let mut exit = Exit::of(&group);
    tokio::select! {
        () = exit.seen(&mut child) => {}
        () = stop.cancelled() => {
            if timeout(sequence.after_eof, exit.seen(&mut child)).await.is_err() {
                group.signal(Signal::TERM);
                if timeout(sequence.after_term, exit.seen(&mut child)).await.is_err() {
                    group.signal(Signal::KILL);
                }
            }
        }
    }
    // The leader is dead but not reaped, so its id still names this group: kill what is left of it.
    drop(group);
    let how = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => format!("cannot be waited for: {error}"),
    };
    report.send_replace(Some(how));
}

/// Sees a child's end without reaping it: at each SIGCHLD of the process it asks, without waiting, whether it was
/// this child's.
struct Exit {
    leader: Option<Pid>,
    children: Option<tokio::signal::unix::Signal>,
}

impl Exit {
    fn of(group: &GroupGuard) -> Self {
        let children = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child()).ok();
        Self {
            leader: group.0,
            children,
        }
    }

    /// Resolves once the child has exited. Where signals cannot be listened to, the child is reaped by this, and
    /// the kill of its group that follows relies on the group's id not being taken again within that moment.
    async fn seen(&mut self, child: &mut Child) {
        if let (Some(leader), Some(children)) = (self.leader, &mut self.children) {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            loop {
                match rustix::process::waitid(WaitId::Pid(leader), look) {
                    Ok(None) => {}
                    Ok(Some(_)) => return,
                    Err(_) => break,
                }
                if children.recv().await.is_none() {
                    break;
                }
            }
        }
        let _ = child.wait().await;
    }
}
