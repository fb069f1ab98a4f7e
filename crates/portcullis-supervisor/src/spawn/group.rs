//! Process groups, on Unix. Elsewhere the child alone is ended, and what it started is its own affair.
//!
//! A child leads a process group of its own. Its end is seen *before* it is reaped, so that the group's id cannot
//! have been given to somebody else when the rest of the group is killed. What leaves its
//! group (`setsid`) is outside this guard; docs/threat-model.md says so.
//!
//! A signal that the hub ignores, as SIGHUP is under `nohup`, the child ignores too, as any child does: what could
//! change that without `unsafe` (`posix_spawn(3)`) knows no working directory. Under a warden none is ignored.

#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod unix;

use std::{io, process::Stdio};

use futures::future::BoxFuture;
use portcullis_config::ProcessLimits;
use secrecy::ExposeSecret;
use tokio::{
    process::{Child, Command},
    sync::watch,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

#[cfg(not(unix))]
use other::{Exit, Group};
#[cfg(unix)]
use unix::{Exit, Group};

use super::{ProcessHandle, SpawnedProcess, Spawner, StopSequence, told};
use crate::environment::SpawnPlan;

/// Process groups: what every Unix offers without help. On other systems, the process alone.
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
        let mut child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), told(plan, &error, None)))?;
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
        tokio::spawn(keep(child, Group::of(pid), stop_token.clone(), stop, report));
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

/// Waits for the child's end or for the order to stop it, and reports when the group is gone.
async fn keep(
    mut child: Child,
    group: Group,
    stop: CancellationToken,
    sequence: StopSequence,
    report: watch::Sender<Option<String>>,
) {
    let mut exit = Exit::of(&group);
    tokio::select! {
        () = exit.seen(&mut child) => {}
        () = stop.cancelled() => {
            if timeout(sequence.after_eof, exit.seen(&mut child)).await.is_err() {
                group.ask_to_end();
                if timeout(sequence.after_term, exit.seen(&mut child)).await.is_err() {
                    group.kill(&mut child);
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
