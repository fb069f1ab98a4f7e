//! The one door through which a server's process is started, and the handle that ends it.
//!
//! Two ways: by a warden, which lets nothing of a server survive, and in a process group, which is all that there is
//! where the host's `main` did not call `portcullis_warden::init()`.

mod group;
#[cfg(target_os = "linux")]
mod warden;

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use crate::environment::SpawnPlan;
pub use group::GroupSpawner;
#[cfg(target_os = "linux")]
pub use warden::WardenSpawner;

/// Starts processes. A trait, so that a warden can take the place of process groups.
pub trait Spawner: Send + Sync + fmt::Debug {
    /// Starts `plan` with all three pipes, in a process group of its own. Dropped before it is done, the future leaves
    /// no process.
    ///
    /// # Errors
    /// What the operating system says, with the program's path; where it is not the program that is missing, what is.
    fn spawn<'a>(
        &'a self,
        plan: &'a SpawnPlan,
        stop: StopSequence,
    ) -> BoxFuture<'a, io::Result<SpawnedProcess>>;
}

/// The warden where `main` has said that there can be one, process groups elsewhere.
pub(crate) fn default_spawner() -> Arc<dyn Spawner> {
    #[cfg(target_os = "linux")]
    if let Some(program) = portcullis_warden::program() {
        return Arc::new(WardenSpawner::new(program.clone()));
    }
    Arc::new(GroupSpawner)
}

/// What a spawner says of a working directory that it cannot enter.
fn not_entered(cwd: &Path, error: &io::Error) -> String {
    format!(
        "its working directory `{}` cannot be entered: {error}",
        cwd.display()
    )
}

/// What a spawner says of a program that it cannot execute. The operating system has one error for a program that is
/// missing and for one whose interpreter is.
fn not_executed(program: &Path, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::NotFound {
        return error.to_string();
    }
    match first_line(program) {
        Ok(line) => match line.strip_prefix("#!") {
            Some(named) => format!(
                "the file is there, but what its first line names, `{}`, is not: {error}",
                named.trim()
            ),
            None => format!(
                "the file is there, but what it needs to run, such as the loader that it was built for, is not: \
                 {error}"
            ),
        },
        Err(_) => error.to_string(),
    }
}

/// The beginning of a file that is a program, printable and no longer than the system reads of it.
fn first_line(program: &Path) -> io::Result<String> {
    const READ_BYTES: u64 = 256;
    // A pipe would be waited for.
    if !program.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut start = Vec::new();
    File::open(program)?.take(READ_BYTES).read_to_end(&mut start)?;
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    Ok(line.chars().filter(|c| !c.is_control()).collect())
}

/// How long a child is given at each step of being stopped.
#[derive(Debug, Clone, Copy)]
pub struct StopSequence {
    /// After its standard input was closed.
    pub after_eof: Duration,
    /// After SIGTERM went to its group; then comes SIGKILL.
    pub after_term: Duration,
}

impl StopSequence {
    /// How long all of it takes at most. A step may be given for ever.
    pub(crate) fn longest(self) -> Duration {
        self.after_eof.saturating_add(self.after_term)
    }
}

impl Default for StopSequence {
    fn default() -> Self {
        Self {
            after_eof: Duration::from_secs(1),
            after_term: Duration::from_secs(2),
        }
    }
}

/// A started process: its pipes, and the handle that ends it.
pub struct SpawnedProcess {
    /// The child's standard input.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// The child's standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// The child's standard error. Somebody must read it: a full pipe blocks the child.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Ends it.
    pub process: ProcessHandle,
}

/// Stops a process, or tells that it ended. Dropped, it stops the process in the background.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: u32,
    stop: CancellationToken,
    ended: watch::Receiver<Option<String>>,
}

impl ProcessHandle {
    /// The process id, for people and tests.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Begins the stop sequence; the child's standard input should be closed by now.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Resolves when the process and its group are gone, to how it ended. Bounded by the stop sequence once
    /// [`stop`](Self::stop) was called.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(report) => report.clone().unwrap_or_default(),
            // The task that waits for it is gone, and what it held with it: the process is being killed.
            Err(_) => "killed".to_owned(),
        }
    }

    /// A future of its own for [`ended`](Self::ended), to be watched elsewhere.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<String>> {
        self.ended.clone()
    }
}

impl Drop for ProcessHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
