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

/// What the files of policies end in.
const POLICIES: &[&str] = &["cedar", "rules"];

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

    /// Its `*.cedar` and `*.rules` files, in order of name. Each is named as it is called in the folder, so that a
    /// policy is told by the same name wherever the folder lies. Blocks.
    ///
    /// # Errors
    /// [`PolicyFolderError::Read`] for what cannot be read, [`PolicyFolderError::Empty`] where there is none.
    pub fn files(&self) -> Result<Vec<PolicyFile>, PolicyFolderError> {
        let files = read_texts(&self.path, POLICIES)?;
        if files.is_empty() {
            Err(PolicyFolderError::Empty(self.path.clone()))
        } else {
            Ok(files)
        }
    }

    /// Its seal, where it has one. Blocks.
    ///
    /// # Errors
    /// [`PolicyFolderError::Read`] where it cannot be read, [`PolicyFolderError::Policies`] where it is no seal.
    pub fn seal(&self) -> Result<Option<Seal>, PolicyFolderError> {
        let path = self.path.join(Seal::FILE_NAME);
        match read(&path) {
            Ok(text) => Ok(Some(text.parse()?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path)(error)),
        }
    }

    /// Loads all of it. What is wrong is told with the folder in front, so that the file can be opened from where one
    /// is. Blocks.
    ///
    /// # Errors
    /// [`PolicyFolderError`]: nothing is loaded then.
    pub fn load(&self) -> Result<DecisionPoint, PolicyFolderError> {
        let texts = self.texts()?;
        if let Some(seal) = &texts.seal {
            seal.check(&texts.files).map_err(|errors| self.place(errors))?;
        }
        Ok(DecisionPoint::load(&texts.files).map_err(|errors| self.place(errors))?)
    }

    /// The files, and the seal that they are to be held to.
    pub(crate) fn texts(&self) -> Result<FolderTexts, PolicyFolderError> {
        let files = self.files()?;
        let seal = self.seal()?;
        if seal.is_none() && self.sealed {
            return Err(Seal::missing().into());
        }
        Ok(FolderTexts { files, seal })
    }

    /// Puts the folder in front of the names in `errors`.
    pub(crate) fn place(&self, mut errors: PolicyErrors) -> PolicyErrors {
        for error in &mut errors.0 {
            error.file = self.path.join(&error.file).display().to_string();
        }
        errors
    }

    /// Looks at it without reading it. Blocks.
    pub(crate) fn stamp(&self) -> FolderStamp {
        match paths(&self.path, POLICIES) {
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
}

/// Reads the files of a folder that end in one of `endings`, in order of name, each under its name in the folder. A
/// link counts as what it leads to; what is hidden is left out, as editors and version control keep their own there.
/// Blocks.
///
/// # Errors
/// [`PolicyFolderError::Read`] for the first that cannot be read, is no plain file, is over 4 MiB, or whose name or
/// text is not UTF-8; and for a folder of over 10,000 files or 64 MiB.
pub fn read_texts(folder: &Path, endings: &[&str]) -> Result<Vec<PolicyFile>, PolicyFolderError> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut files = Vec::new();
    let mut bytes = 0;
    for path in paths(folder, endings).map_err(failed(folder))? {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(&path)(invalid("its name is not UTF-8")))?;
        if name.contains(char::is_control) {
            return Err(failed(&path)(invalid("its name holds a control character")));
        }
        let text = read(&path).map_err(failed(&path))?;
        bytes += text.len();
        if bytes > MAX_FOLDER_BYTES {
            let told = io::Error::new(io::ErrorKind::FileTooLarge, "its files are over 64 MiB together");
            return Err(failed(folder)(told));
        }
        files.push(PolicyFile {
            name: name.to_owned(),
            text,
        });
    }
    Ok(files)
}

/// The files of a folder that end so, in order of name, without those that are hidden.
fn paths(folder: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let ends = ending.is_some_and(|ending| endings.contains(&ending));
        if ends && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            return Err(io::Error::other("it holds over 10000 files of policies"));
        }
    }
    paths.sort();
    Ok(paths)
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
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is over 4 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let told = format!("its text is not UTF-8: {}", error.utf8_error());
        io::Error::new(io::ErrorKind::InvalidData, told)
    })
}

#[cfg(test)]
mod tests;
