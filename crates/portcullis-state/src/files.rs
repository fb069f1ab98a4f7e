//! Writes a file so that a reader, and a crash, sees all of it or none.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, RenameFlags};

use crate::StateError;

/// Who may read a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Privacy {
    /// Its owner alone: mode 0600, and 0700 for a folder.
    #[default]
    Private,
    /// Whoever the process's umask lets read.
    Shared,
}

/// Writes a new file: under a random name in the same folder first, which is synced and then given its name. The
/// name is never taken from a file, a folder or a link that has it.
///
/// # Errors
/// [`StateError::Exists`] where something has the name, [`StateError::NoName`] and [`StateError::Write`]: nothing is left
/// behind. [`StateError::Unsynced`] where the last step failed, to sync the folder: the file is there.
pub fn write_new(path: &Path, content: &[u8], privacy: Privacy) -> Result<(), StateError> {
    write_new_in(path, content, privacy, File::sync_all)
}

fn write_new_in(
    path: &Path,
    content: &[u8],
    privacy: Privacy,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), StateError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => StateError::Exists {
            path: path.to_owned(),
        },
        _ => StateError::Write {
            path: path.to_owned(),
            source,
        },
    };
    let folder = folder_of(path)?;
    // Said before anything is written; the name is decided by `publish` all the same.
    if path.symlink_metadata().is_ok() {
        return Err(StateError::Exists {
            path: path.to_owned(),
        });
    }
    let opened = File::open(folder).map_err(failed)?;
    let temporary = Temporary::beside(path, folder).map_err(failed)?;
    write(&temporary.0, content, privacy).map_err(failed)?;
    publish(&temporary.0, path).map_err(failed)?;
    sync(&opened).map_err(unsynced(path))
}

/// Writes a file anew, or for the first time where it is not there: whoever opens it finds the old content or the
/// new, whole. A file that is there keeps its permissions.
///
/// # Errors
/// [`StateError::NotAFile`] where a folder, a link or the like has the name, [`StateError::NoName`] and
/// [`StateError::Write`]: what was there stays, and nothing is left beside it. [`StateError::Unsynced`] where the last
/// step failed, to sync the folder: the new content is there, and after a power cut it may be the old one.
pub fn replace(path: &Path, content: &[u8], privacy: Privacy) -> Result<(), StateError> {
    replace_in(path, content, privacy, File::sync_all)
}

fn replace_in(
    path: &Path,
    content: &[u8],
    privacy: Privacy,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), StateError> {
    let failed = |source: io::Error| StateError::Write {
        path: path.to_owned(),
        source,
    };
    let folder = folder_of(path)?;
    let permissions = match path.symlink_metadata() {
        Ok(found) if found.is_file() => Some(found.permissions()),
        Ok(_) => {
            return Err(StateError::NotAFile {
                path: path.to_owned(),
            });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let opened = File::open(folder).map_err(failed)?;
    let temporary = Temporary::beside(path, folder).map_err(failed)?;
    write(&temporary.0, content, privacy).map_err(failed)?;
    if let Some(permissions) = permissions {
        fs::set_permissions(&temporary.0, permissions).map_err(failed)?;
    }
    #[expect(clippy::disallowed_methods, reason = "this is the door for files")]
    fs::rename(&temporary.0, path).map_err(failed)?;
    sync(&opened).map_err(unsynced(path))
}

/// Makes a folder; one that is there already is left as it is.
///
/// # Errors
/// [`StateError::Exists`] where something else has the name, and [`StateError::Write`].
pub fn create_folder(path: &Path, privacy: Privacy) -> Result<(), StateError> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    if privacy == Privacy::Private {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    match builder.create(path) {
        Ok(()) => Ok(()),
        Err(_) if path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(StateError::Exists {
            path: path.to_owned(),
        }),
        Err(source) => Err(StateError::Write {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The folder that a file stands in, or is to stand in.
fn folder_of(path: &Path) -> Result<&Path, StateError> {
    if path.file_name().is_none() {
        return Err(StateError::NoName {
            path: path.to_owned(),
        });
    }
    Ok(match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    })
}

/// A name is on the disk once its folder is. Where that fails, the file is there all the same.
fn unsynced(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    |source| StateError::Unsynced { path, source }
}

/// A file that goes, unless it has been given another name.
struct Temporary(PathBuf);

impl Temporary {
    /// A hidden name in `folder` that nobody can foresee.
    fn beside(path: &Path, folder: &Path) -> io::Result<Self> {
        let suffix = getrandom::u64().map_err(io::Error::other)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(path.file_name().unwrap_or_default());
        hidden.push(format!(".{suffix:016x}.tmp"));
        Ok(Self(folder.join(hidden)))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "this is the door for files")]
        let _ = fs::remove_file(&self.0);
    }
}

fn write(path: &Path, content: &[u8], privacy: Privacy) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "this is the door for files")]
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if privacy == Privacy::Private {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Gives a file its name, unless something has it.
fn publish(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            // Some file systems know no such rename; a second name is refused just as well where one is.
            #[expect(clippy::disallowed_methods, reason = "this is the door for files")]
            let linked = fs::hard_link(from, to);
            linked
        }
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        for (name, privacy, mode) in [("a", Privacy::Private, 0o600), ("ä b", Privacy::Shared, 0o400)] {
            let path = folder.path().join(name);
            write_new(&path, b"text", privacy).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"text");
            let found = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(found & mode, mode, "{name}");
            assert!(privacy == Privacy::Shared || found == mode, "{name}: {found:o}");
        }
        assert_eq!(names(folder.path()), ["a", "ä b"]);
    }

    #[test]
    fn nothing_is_overwritten_or_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write_new(&at("file"), b"first", Privacy::Private).unwrap();
        create_folder(&at("folder"), Privacy::Private).unwrap();
        symlink(at("elsewhere"), at("link")).unwrap();
        for name in ["file", "folder", "link"] {
            let error = write_new(&at(name), b"second", Privacy::Private).unwrap_err();
            assert!(matches!(error, StateError::Exists { .. }), "{name}: {error}");
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["file", "folder", "link"]);
        assert!(matches!(
            create_folder(&at("file"), Privacy::Private),
            Err(StateError::Exists { .. })
        ));
        create_folder(&at("folder"), Privacy::Private).unwrap();
        let mode = fs::metadata(at("folder")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{mode:o}");
    }

    /// The check before the writing is not what keeps the promise.
    #[test]
    fn a_name_that_is_taken_meanwhile_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        write(&from, b"second", Privacy::Private).unwrap();
        write(&to, b"first", Privacy::Private).unwrap();
        let error = publish(&from, &to).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&to).unwrap(), b"first");
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        replace(&path, b"first", Privacy::Private).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let open = File::open(&path).unwrap();
        replace(&path, b"second", Privacy::Private).unwrap();
        assert_eq!(
            io::read_to_string(open).unwrap(),
            "first",
            "whoever read goes on reading"
        );
        assert_eq!(
            (fs::read(&path).unwrap(), mode(&path)),
            (b"second".to_vec(), 0o640)
        );
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn what_is_no_plain_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write_new(&at("file"), b"first", Privacy::Private).unwrap();
        create_folder(&at("folder"), Privacy::Private).unwrap();
        symlink(at("file"), at("link")).unwrap();
        for name in ["folder", "link"] {
            let error = replace(&at(name), b"second", Privacy::Private).unwrap_err();
            assert!(matches!(error, StateError::NotAFile { .. }), "{name}: {error}");
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["file", "folder", "link"]);
    }

    #[test]
    fn what_cannot_be_written_says_so_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_new(&folder.path().join("no/such/a"), b"", Privacy::Private).unwrap_err();
        assert!(matches!(error, StateError::Write { .. }), "{error}");
        let error = write_new(&folder.path().join(".."), b"", Privacy::Private).unwrap_err();
        assert!(matches!(error, StateError::NoName { .. }), "{error}");
        assert_eq!(names(folder.path()), [] as [String; 0]);
    }

    /// Whoever is told that something failed is told as well that the file is there.
    #[test]
    fn a_file_whose_folder_cannot_be_synced_is_there_and_that_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let fails = |_: &File| Err(io::ErrorKind::Other.into());
        for (content, done) in [
            ("first", write_new_in(&path, b"first", Privacy::Private, fails)),
            ("second", replace_in(&path, b"second", Privacy::Private, fails)),
        ] {
            let error = done.unwrap_err();
            assert!(matches!(error, StateError::Unsynced { .. }), "{content}: {error}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn of_many_writers_of_one_name_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        let done = std::thread::scope(|scope| {
            let writers: Vec<_> = (1..=8_u8)
                .map(|number| {
                    let path = &path;
                    scope.spawn(move || write_new(path, &[number; 4096], Privacy::Private).is_ok())
                })
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .filter(|ok| *ok)
                .count()
        });
        assert_eq!(done, 1);
        let content = fs::read(&path).unwrap();
        assert!(content.len() == 4096 && content.iter().all(|byte| *byte == content[0]));
        assert_eq!(names(folder.path()), ["one"]);
    }
}
