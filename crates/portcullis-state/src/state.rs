//! The database: how it is opened, who may touch it, which version it has.

mod approvals;
mod folder;
mod pins;
mod schema;
mod sightings;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::StateError;
pub use approvals::{Approval, ApprovedCall};
pub use pins::{Pin, PinnedText, Trusting};
pub use sightings::{FirstSight, PinState, SeenTool, Sighted, SightedTool, Sighting};

/// What outlives a run. Its methods block, each for at most [`MAX_WAIT`](Self::MAX_WAIT) on other processes.
///
/// It keeps a rollback journal, not a write-ahead log: the log needs memory that all processes share, which network
/// file systems do not have, and home folders often lie on those. What is written here is written seldom.
pub struct State {
    connection: Mutex<Connection>,
    /// As errors name it.
    path: PathBuf,
    kept: bool,
}

impl State {
    /// How long another process is waited for.
    pub const MAX_WAIT: Duration = Duration::from_secs(2);
    /// What the database is called in its folder.
    pub const FILE_NAME: &'static str = "state.sqlite";

    /// Opens the state in `folder`; makes both where they are not there. The folder is 0700 and the file 0600, and
    /// neither may be a link. An older schema is upgraded.
    ///
    /// # Errors
    /// [`StateError::Open`], [`StateError::Insecure`], [`StateError::Newer`], [`StateError::Foreign`],
    /// [`StateError::Damaged`] and [`StateError::Busy`]. In each case what was there is left as it was.
    pub fn open(folder: &Path) -> Result<Self, StateError> {
        let path = folder::prepare(folder, Self::FILE_NAME)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(|error| told(&path, error))?;
        Self::ready(connection, path, true)
    }

    /// A state that ends with this process.
    ///
    /// # Errors
    /// [`StateError::Database`] where there is no memory for it.
    pub fn in_memory() -> Result<Self, StateError> {
        let path = PathBuf::from("memory");
        let connection = Connection::open_in_memory().map_err(|error| told(&path, error))?;
        Self::ready(connection, path, false)
    }

    fn ready(mut connection: Connection, path: PathBuf, kept: bool) -> Result<Self, StateError> {
        connection
            .busy_handler(Some(wait_a_little))
            .map_err(|error| told(&path, error))?;
        schema::bring_up_to_date(&mut connection, &path)?;
        Ok(Self {
            connection: Mutex::new(connection),
            path,
            kept,
        })
    }

    /// The file; none where the state is in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.kept.then_some(self.path.as_path())
    }

    /// Runs `work` on the connection, for reading.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StateError> {
        work(&self.lock()).map_err(|error| told(&self.path, error))
    }

    /// Runs `work` in a transaction that has the right to write from its beginning, so that what it reads still
    /// holds when it writes. What it did is undone where it fails.
    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, StateError> {
        let mut connection = self.lock();
        let run = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        run().map_err(|error| told(&self.path, error))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic in between has rolled its transaction back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// How long is waited between two tries to get a lock.
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// Waits for another process, unless that took too long already. The library's own handler sleeps longer each time,
/// so that of several who wait the one that waits longest tries least.
fn wait_a_little(tries: i32) -> bool {
    let waited = BETWEEN_TRIES.saturating_mul(u32::try_from(tries).unwrap_or(u32::MAX));
    if waited >= State::MAX_WAIT {
        return false;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing tells when another process lets go of a file"
    )]
    thread::sleep(BETWEEN_TRIES);
    true
}

/// What the database says, as an error that says what to do.
fn told(path: &Path, error: rusqlite::Error) -> StateError {
    let path = path.to_owned();
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StateError::Busy { path },
        Some(ErrorCode::DiskFull) => StateError::Full { path },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StateError::Damaged {
            path,
            why: error.to_string(),
        },
        _ => match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..) => StateError::Damaged {
                path,
                why: error.to_string(),
            },
            source => StateError::Database { path, source },
        },
    }
}

#[cfg(test)]
mod tests;
