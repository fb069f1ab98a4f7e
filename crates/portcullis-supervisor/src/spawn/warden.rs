//! Servers whose parent is a keeper of the hub's warden.

use std::{
    error::Error as _,
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    pin::pin,
    process::ExitStatus,
    time::Duration,
};

use futures::future::BoxFuture;
use portcullis_warden::{Error, Launch, Limits, Order, Program, Report, STOP, Step, Warden};
use secrecy::{ExposeSecret, SecretSlice};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{UnixStream, unix::pipe},
    sync::{Mutex, watch},
    task::spawn_blocking,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{ProcessHandle, SpawnedProcess, Spawner, StopSequence, not_entered, not_executed};
use crate::environment::SpawnPlan;

/// How long a keeper may take to start a server. It takes a few milliseconds.
const START_WAIT: Duration = Duration::from_secs(10);
/// How long a keeper may take to kill what is left after the stop sequence, and to say so.
const DEATH_WAIT: Duration = Duration::from_secs(5);

/// Starts servers through a warden, which is started with the first of them, once per value of this type, and again
/// where it was killed. Linux.
#[derive(Debug)]
pub struct WardenSpawner {
    program: Program,
    limits: Limits,
    warden: Mutex<Option<Warden>>,
}

impl WardenSpawner {
    /// With `program` as the warden.
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self {
            program,
            limits: Limits::default(),
            warden: Mutex::default(),
        }
    }

    /// What each server may use at most, where its own definition does not say.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    async fn start(&self, plan: &SpawnPlan, stop: StopSequence) -> io::Result<SpawnedProcess> {
        let cannot =
            |reason: &dyn std::fmt::Display| format!("cannot start `{}`: {reason}", plan.program.display());
        let failed = |error: Error| io::Error::other(cannot(&with_source(&error)));
        let cwd = working_directory(plan).map_err(|error| {
            let reason = format!(
                "the hub's own working directory, where it would run, cannot be found: {error}; start the hub \
                 elsewhere, or give the server a `cwd`"
            );
            io::Error::other(cannot(&reason))
        })?;
        let order = self
            .order(plan, cwd.clone(), stop)
            .encode()
            .map(SecretSlice::from)
            .map_err(failed)?;
        let launch = self.launch().await.map_err(failed)?;
        launch.control.set_nonblocking(true)?;
        let mut control = UnixStream::from_std(launch.control)?;
        let first = async {
            control.write_all(order.expose_secret()).await?;
            read_report(&mut control).await
        };
        let pid = match timeout(START_WAIT, first).await {
            Ok(Ok(Report::Started { pid })) => pid,
            Ok(Ok(Report::Failed { step, errno })) => {
                let error = io::Error::from_raw_os_error(errno);
                let reason = match step {
                    Step::Program => not_executed(&plan.program, &error),
                    Step::WorkingDirectory => not_entered(&cwd, &error),
                    Step::Order => "the warden is of another version".to_owned(),
                };
                return Err(io::Error::other(cannot(&reason)));
            }
            Ok(_) => return Err(io::Error::other(cannot(&"its keeper ended before it ran"))),
            Err(_) => {
                let reason = format!("the warden took over {} s", START_WAIT.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, cannot(&reason)));
            }
        };
        let stop_token = CancellationToken::new();
        let (report, ended) = watch::channel(None);
        tokio::spawn(watch_over(control, stop_token.clone(), stop, report));
        // Before anything that may fail: dropped, it stops the server.
        let process = ProcessHandle {
            pid,
            stop: stop_token,
            ended,
        };
        Ok(SpawnedProcess {
            stdin: Box::new(pipe::Sender::from_owned_fd(OwnedFd::from(launch.stdin))?),
            stdout: Box::new(pipe::Receiver::from_owned_fd(OwnedFd::from(launch.stdout))?),
            stderr: Box::new(pipe::Receiver::from_owned_fd(OwnedFd::from(launch.stderr))?),
            process,
        })
    }

    fn order(&self, plan: &SpawnPlan, cwd: PathBuf, stop: StopSequence) -> Order {
        let variable =
            |(name, value): (&String, &secrecy::SecretString)| (name.into(), value.expose_secret().into());
        Order {
            program: plan.program.clone(),
            args: plan.args.clone(),
            environment: plan.environment.iter().map(variable).collect(),
            cwd: Some(cwd),
            limits: self.limits_of(plan),
            after_eof: stop.after_eof,
            after_term: stop.after_term,
        }
    }

    /// The plan's limits; where it has none, those for all.
    fn limits_of(&self, plan: &SpawnPlan) -> Limits {
        let (own, all) = (plan.limits, self.limits);
        Limits {
            memory_bytes: own.memory_bytes.or(all.memory_bytes),
            open_files: own.open_files.or(all.open_files),
            processes: own.processes.or(all.processes),
            cpu_seconds: own.cpu_seconds.or(all.cpu_seconds),
            file_bytes: own.file_bytes.or(all.file_bytes),
            core_bytes: all.core_bytes,
        }
    }

    /// Asks the warden for a keeper; starts the warden where there is none, and once more where it was killed.
    async fn launch(&self) -> Result<Launch, Error> {
        let mut warden = self.warden.lock().await;
        if let Some(running) = &*warden {
            match running.launch() {
                Err(Error::Gone) => tracing::warn!("the warden was killed; another one is started"),
                launch => return launch,
            }
        }
        let program = self.program.clone();
        let started = spawn_blocking(move || Warden::start(&program))
            .await
            .map_err(|_| Error::Gone)??;
        warden.insert(started).launch()
    }
}

impl Spawner for WardenSpawner {
    fn spawn<'a>(
        &'a self,
        plan: &'a SpawnPlan,
        stop: StopSequence,
    ) -> BoxFuture<'a, io::Result<SpawnedProcess>> {
        Box::pin(self.start(plan, stop))
    }
}

/// Where a plan's server starts: the warden's own directory is none that anybody asked for.
fn working_directory(plan: &SpawnPlan) -> io::Result<PathBuf> {
    match &plan.cwd {
        Some(cwd) if cwd.is_absolute() => Ok(cwd.clone()),
        // As without a warden: seen from the hub's own.
        cwd => Ok(std::env::current_dir()?.join(cwd.as_deref().unwrap_or(Path::new("")))),
    }
}

/// Waits for the server's end or for the order to stop it, and reports when nothing of it is left. Dropped, however
/// that comes, it closes the keeper's socket, which stops the server.
async fn watch_over(
    mut control: UnixStream,
    stop: CancellationToken,
    sequence: StopSequence,
    report: watch::Sender<Option<String>>,
) {
    let (mut reader, mut writer) = control.split();
    let mut ending = pin!(read_report(&mut reader));
    let said = tokio::select! {
        said = &mut ending => Some(said),
        () = stop.cancelled() => {
            // A keeper that is gone is seen by reading.
            let _ = writer.write_all(STOP).await;
            timeout(sequence.longest().saturating_add(DEATH_WAIT), ending).await.ok()
        }
    };
    let how = match said {
        Some(Ok(Report::Ended { status, left })) => {
            let status = ExitStatus::from_raw(status);
            if left {
                format!("{status}; some of its processes cannot be killed")
            } else {
                status.to_string()
            }
        }
        // The warden kills what it leaves.
        Some(_) => "its keeper was killed".to_owned(),
        None => "its keeper does not answer".to_owned(),
    };
    report.send_replace(Some(how));
}

async fn read_report(control: &mut (impl AsyncRead + Unpin)) -> io::Result<Report> {
    let mut bytes = [0; Report::BYTES];
    control.read_exact(&mut bytes).await?;
    Report::decode(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The error and its cause in one line, since whoever shows it shows one.
fn with_source(error: &Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_config::ProcessLimits;

    use super::*;

    fn plan(cwd: Option<&str>, limits: ProcessLimits) -> SpawnPlan {
        SpawnPlan {
            program: "/bin/true".into(),
            args: Vec::new(),
            environment: Default::default(),
            cwd: cwd.map(Into::into),
            limits,
            secrets: Vec::new(),
        }
    }

    fn ordered(spawner: &WardenSpawner, limits: ProcessLimits) -> Order {
        spawner.order(&plan(None, limits), "/".into(), StopSequence::default())
    }

    #[test]
    fn a_definitions_limits_come_before_those_for_all() {
        let all = Limits {
            open_files: Some(50),
            memory_bytes: Some(1 << 30),
            core_bytes: Some(0),
            ..Limits::default()
        };
        let spawner = WardenSpawner::new(Program::Itself).limits(all);
        let none = ordered(&spawner, ProcessLimits::default());
        assert_eq!(none.limits, all);
        let own = ProcessLimits {
            open_files: Some(100),
            cpu_seconds: Some(7),
            ..ProcessLimits::default()
        };
        let expected = Limits {
            open_files: Some(100),
            cpu_seconds: Some(7),
            ..all
        };
        assert_eq!(ordered(&spawner, own).limits, expected);
    }

    #[test]
    fn without_a_directory_of_its_own_a_server_starts_in_the_hubs() {
        let of = |cwd| working_directory(&plan(cwd, ProcessLimits::default())).ok();
        assert_eq!(of(Some("/usr")), Some("/usr".into()));
        let own = std::env::current_dir().unwrap();
        assert_eq!(of(None), Some(own.join("")));
        assert_eq!(of(Some("src")), Some(own.join("src")));
    }
}
