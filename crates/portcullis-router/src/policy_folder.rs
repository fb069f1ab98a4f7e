//! A folder of policies on the disk: what it holds, and what tells that it was touched.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use portcullis_policy::{DecisionPoint, PolicyErrors, PolicyFile, Seal};
use thiserror::Error;

/// The largest file that is read, in bytes. What is larger is no policy.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// The most files of one folder that are read.
const MAX_FILES: usize = 10_000;
/// The most that all files of one folder may hold together, in bytes.
const MAX_FOLDER_BYTES: usize = 64 * 1024 * 1024;

/// A folder of policies: its `*.cedar` and `*.rules` files, and its seal.
#[derive(Debug, Clone)]
pub struct PolicyFolder {
    path: PathBuf,
    sealed: bool,
    watched: bool,
    still: Duration,
}

/// Why a folder of policies cannot be used.
#[derive(Debug, Error)]
pub enum PolicyFolderError {
    /// The folder or a file in it cannot be read.
    #[error("cannot read `{}`: {source}", .path.display())]
    Read {
        /// Which folder or file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It holds no policy.
    #[error("there is no policy in `{}`: it holds no file that ends in `.cedar` or `.rules`", .0.display())]
    Empty(PathBuf),
    /// What it holds cannot be loaded, or is not what was sealed.
    #[error(transparent)]
    Policies(#[from] PolicyErrors),
}

/// The texts of a folder.
#[derive(Debug, Clone)]
pub(crate) struct FolderTexts {
    pub(crate) files: Vec<PolicyFile>,
    pub(crate) seal: Option<Seal>,
}

/// What shows that a folder was touched: its files by name, with what the file system says of each. A folder that
/// cannot be listed has a stamp as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FolderStamp {
    Files(Vec<(PathBuf, FileStamp)>),
    Unreadable(io::ErrorKind),
}

/// Size, time of the last change, and which file it is: an edit in place changes one, a rename the other. `None`
/// where the name leads nowhere.
pub(crate) type FileStamp = Option<(u64, Option<SystemTime>, (u64, i64, i64))>;

impl PolicyFolder {
    /// How long a file stands still before an edit of it is taken.
    pub const STILL: Duration = Duration::from_millis(500);

    /// The folder at `path`, which may be a link.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            sealed: false,
            watched: true,
            still: Self::STILL,
        }
    }

    /// Whether a seal is demanded. Where there is one, the files must be what was sealed in any case.
    #[must_use]
    pub fn sealed(mut self, sealed: bool) -> Self {
        self.sealed = sealed;
        self
    }

    /// Whether edits are taken while the hub runs.
    #[must_use]
    pub fn watched(mut self, watched: bool) -> Self {
        self.watched = watched;
        self
    }

    /// How long all files must have stood still before an edit is taken; [`STILL`](Self::STILL) by default.
    #[must_use]
    pub fn still(mut self, still: Duration) -> Self {
        self.still = still;
        self
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    pub(crate) fn standing_still(&self) -> Duration {
        self.still
    }

    /// Its `*.cedar` and `*.rules` files, by name. Blocks.
    ///
    /// # Errors
    /// [`PolicyFolderError::Read`] for what cannot be read, [`PolicyFolderError::Empty`] where there is none.
    pub fn files(&self) -> Result<Vec<PolicyFile>, PolicyFolderError> {
        let mut files = Vec::new();
        let mut bytes = 0;
        for path in self.policy_paths().map_err(failed(&self.path))? {
            let text = read(&path).map_err(failed(&path))?;
            bytes += text.len();
            if bytes > MAX_FOLDER_BYTES {
                let told = io::Error::new(io::ErrorKind::FileTooLarge, "its files are over 64 MiB together");
                return Err(failed(&self.path)(told));
            }
            files.push(PolicyFile {
                name: path.display().to_string(),
                text,
            });
        }
        if files.is_empty() {
            Err(PolicyFolderError::Empty(self.path.clone()))
        } else {
            Ok(files)
        }
    }

    /// Loads all of it. Blocks.
    ///
    /// # Errors
    /// [`PolicyFolderError`]: nothing is loaded then.
    pub fn load(&self) -> Result<DecisionPoint, PolicyFolderError> {
        let texts = self.texts()?;
        if let Some(seal) = &texts.seal {
            seal.check(&texts.files)?;
        }
        Ok(DecisionPoint::load(&texts.files)?)
    }

    /// The files, and the seal that they are to be held to.
    pub(crate) fn texts(&self) -> Result<FolderTexts, PolicyFolderError> {
        let files = self.files()?;
        let path = self.path.join(Seal::FILE_NAME);
        let seal = match read(&path) {
            Ok(text) => Some(text.parse::<Seal>()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.sealed => {
                return Err(Seal::missing().into());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&path)(error)),
        };
        Ok(FolderTexts { files, seal })
    }

    /// Looks at it without reading it. Blocks.
    pub(crate) fn stamp(&self) -> FolderStamp {
        match self.policy_paths() {
            Ok(mut paths) => {
                paths.push(self.path.join(Seal::FILE_NAME));
                let stamped = |path: PathBuf| {
                    let stamp = fs::metadata(&path)
                        .ok()
                        .map(|found| (found.len(), found.modified().ok(), which(&found)));
                    (path, stamp)
                };
                FolderStamp::Files(paths.into_iter().map(stamped).collect())
            }
            Err(error) => FolderStamp::Unreadable(error.kind()),
        }
    }

    fn policy_paths(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            if matches!(ending, Some("cedar" | "rules")) {
                paths.push(path);
            }
            if paths.len() > MAX_FILES {
                return Err(io::Error::other("it holds over 10000 files of policies"));
            }
        }
        paths.sort();
        Ok(paths)
    }
}

#[cfg(unix)]
fn which(found: &fs::Metadata) -> (u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (found.ino(), found.ctime(), found.ctime_nsec())
}

#[cfg(not(unix))]
fn which(_: &fs::Metadata) -> (u64, i64, i64) {
    (0, 0, 0)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> PolicyFolderError + use<> {
    let path = path.to_owned();
    move |source| PolicyFolderError::Read { path, source }
}

/// The text of a file. A pipe or a device of the name would never end: it is none.
fn read(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is over 4 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
    fn write(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn a_folder_is_held_to_its_seal() {
        let root = tempfile::tempdir().unwrap();
        let folder = PolicyFolder::new(root.path());
        let demanding = folder.clone().sealed(true);
        assert!(matches!(folder.load(), Err(PolicyFolderError::Empty(_))));
        write(root.path(), "team.rules", "deny mcp.shell.*\n");
        folder.load().unwrap();
        let told = demanding.load().unwrap_err().to_string();
        assert!(told.contains("not sealed"), "{told}");
        let seal = Seal::of(&folder.files().unwrap()).to_string();
        write(root.path(), Seal::FILE_NAME, &seal);
        demanding.load().unwrap();
        write(root.path(), "team.rules", "# deny mcp.shell.*\n");
        for folder in [folder, demanding] {
            let told = folder.load().unwrap_err().to_string();
            let expected = "team.rules:1: this file is not the one that was sealed";
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn each_way_to_touch_it_shows_and_looking_does_not() {
        let root = tempfile::tempdir().unwrap();
        let folder = PolicyFolder::new(root.path().join("policies"));
        assert_eq!(folder.stamp(), FolderStamp::Unreadable(io::ErrorKind::NotFound));
        #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
        fs::create_dir(folder.path()).unwrap();
        let mut before = folder.stamp();
        let mut check = |what: &str, seen: bool| {
            let after = folder.stamp();
            assert_eq!(after != before, seen, "{what}");
            before = after;
        };
        write(folder.path(), "a.rules", "default ask");
        check("a new file", true);
        folder.files().unwrap();
        check("reading", false);
        write(folder.path(), "notes.txt", "x");
        check("a file that is none of ours", false);
        write(folder.path(), "b.tmp", "default ask");
        #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
        fs::rename(folder.path().join("b.tmp"), folder.path().join("a.rules")).unwrap();
        check("another file of the same name and text", true);
        write(folder.path(), Seal::FILE_NAME, "x");
        check("a seal", true);
        std::os::unix::fs::symlink("nowhere", folder.path().join("l.rules")).unwrap();
        check("a link", true);
        assert!(folder.files().is_err(), "it leads nowhere");
    }

    #[test]
    fn what_never_ends_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = PolicyFolder::new(root.path());
        std::os::unix::fs::symlink("/dev/zero", root.path().join("a.rules")).unwrap();
        let told = folder.load().unwrap_err().to_string();
        assert!(told.contains("no file"), "{told}");
    }
}
