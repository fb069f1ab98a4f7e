//! Laying out a store's folder, and telling one from any other folder.

use std::{
    io::{Read, Write},
    path::Path,
};

use rustix::io::Errno;

use super::{
    folder::{Folder, is_file, size_bytes},
    temp::{self, TempFile},
};
use crate::BlobError;

/// The newest format that this version reads and writes.
const FORMAT: u64 = 1;
const FORMAT_FILE: &str = "format";
const FORMAT_WORD: &str = "portcullis-blobs";
/// More than any format file has, in bytes.
const FORMAT_BYTES: u64 = 64;

/// Where the blobs are.
pub(crate) const BLOBS: &str = "blake3";
/// Where they are written.
pub(crate) const TEMP: &str = "tmp";
/// What keeps them by name.
pub(crate) const TAGS: &str = "tags";
/// What living handles hold.
pub(crate) const SESSIONS: &str = "sessions";
/// How the names of what was set aside begin.
pub(crate) const ASIDE: &str = "quarantine-";

/// Opens the store at `path`, or lays one out where there is nothing.
pub(crate) fn open_or_new(path: &Path) -> Result<Folder, BlobError> {
    match open(path)? {
        Some(root) => Ok(root),
        None => lay_out(path),
    }
}

/// Opens the store at `path`. `None` where there is none, whatever else there is.
pub(crate) fn open(path: &Path) -> Result<Option<Folder>, BlobError> {
    let root = match Folder::open(path) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR) => {
            return Err(BlobError::NotAStore {
                place: path.display().to_string(),
                why: "it is not a folder".to_owned(),
            });
        }
        other => other.map_err(|errno| error("open the folder", path, errno))?,
    };
    if !read_format(&root, path)? {
        return Ok(None);
    }
    // One that we may only read stays as its owner set it.
    let _ = root.make_private();
    Ok(Some(root))
}

fn lay_out(path: &Path) -> Result<Folder, BlobError> {
    let io = |action| move |errno: Errno| error(action, path, errno);
    let (root, is_new) = match Folder::open(path) {
        Err(Errno::NOENT) => {
            Folder::create_all(path).map_err(io("create the folder"))?;
            (Folder::open(path).map_err(io("open the folder"))?, true)
        }
        other => (other.map_err(io("open the folder"))?, false),
    };
    if let Some(found) = foreign(&root).map_err(io("list the folder"))? {
        // Another process may have laid it out just now, and stored something.
        return open(path)?.ok_or_else(|| BlobError::NotAStore {
            place: path.display().to_string(),
            why: format!("it holds `{found}`"),
        });
    }
    root.make_private().map_err(io("make the folder private"))?;
    root.child_or_new(BLOBS).map_err(io("create a folder"))?;
    write_format(&root).map_err(io("write the format"))?;
    if is_new {
        sync_parent(path).map_err(io("sync the folder"))?;
    }
    Ok(root)
}

/// What the operating system's error means for the store at `path`.
pub(crate) fn error(action: &'static str, path: &Path, errno: Errno) -> BlobError {
    let place = path.display().to_string();
    let source = errno.into();
    match errno {
        Errno::NOSPC | Errno::DQUOT => BlobError::Full { place, source },
        Errno::ROFS | Errno::ACCESS | Errno::PERM => BlobError::NotWritable { place, source },
        _ => BlobError::Io {
            action,
            place,
            source,
        },
    }
}

/// What a failed read or write means for the store at `path`.
pub(crate) fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> BlobError {
    match Errno::from_io_error(&source) {
        Some(errno) => error(action, path, errno),
        None => BlobError::Io {
            action,
            place: path.display().to_string(),
            source,
        },
    }
}

/// What in `root` no laying out that was cut short can have left. It ends before anything is stored.
fn foreign(root: &Folder) -> Result<Option<String>, Errno> {
    for name in root.names()? {
        let is_ours = matches!(&*name, BLOBS | TEMP);
        let Some(folder) = is_ours.then(|| root.child(&name).ok()).flatten() else {
            return Ok(Some(name));
        };
        for inner in folder.names()? {
            if name == BLOBS || !temp::is_name(&inner) || !is_short_file(&folder, &inner)? {
                return Ok(Some(format!("{name}/{inner}")));
            }
        }
    }
    Ok(None)
}

/// Whether `name` may be a format file that was not written to its end, or is gone.
fn is_short_file(folder: &Folder, name: &str) -> Result<bool, Errno> {
    let stat = folder.stat(name)?;
    Ok(stat.is_none_or(|stat| is_file(&stat) && size_bytes(&stat) <= FORMAT_BYTES))
}

/// Whether there is a format file, and of a format that this version knows.
fn read_format(root: &Folder, path: &Path) -> Result<bool, BlobError> {
    let place = || path.display().to_string();
    let (file, _) = match root.file(FORMAT_FILE) {
        Err(Errno::NOENT) => return Ok(false),
        Err(Errno::LOOP) => {
            return Err(BlobError::NotAStore {
                place: place(),
                why: "its `format` is a link".to_owned(),
            });
        }
        other => other.map_err(|errno| error("read the format", path, errno))?,
    };
    let mut text = String::new();
    file.take(FORMAT_BYTES)
        .read_to_string(&mut text)
        .map_err(|source| io_error("read the format", path, source))?;
    let found = text
        .strip_prefix(FORMAT_WORD)
        .and_then(|rest| rest.trim().parse().ok())
        .ok_or_else(|| BlobError::NotAStore {
            place: place(),
            why: "its `format` cannot be read".to_owned(),
        })?;
    if found > FORMAT {
        return Err(BlobError::NewerFormat {
            place: place(),
            found,
            known: FORMAT,
        });
    }
    Ok(true)
}

/// Writes the format file last of all, whole or not at all.
fn write_format(root: &Folder) -> Result<(), Errno> {
    let scratch = root.child_or_new(TEMP)?;
    temp::clean(&scratch)?;
    let mut file = TempFile::create(scratch)?;
    let write = writeln!(file.file(), "{FORMAT_WORD} {FORMAT}").and_then(|()| file.file().sync_data());
    write.map_err(|source| Errno::from_io_error(&source).unwrap_or(Errno::IO))?;
    match file.publish(root, FORMAT_FILE) {
        // Another process was first.
        Ok(()) | Err(Errno::EXIST) => root.sync(),
        Err(other) => Err(other),
    }
}

fn sync_parent(path: &Path) -> Result<(), Errno> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => Folder::open(parent)?.sync(),
        None => Ok(()),
    }
}
