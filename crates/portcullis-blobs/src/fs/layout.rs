//! Laying out a store's folder, and telling one from any other folder.

use std::{
    io::{Read, Write},
    path::Path,
    sync::Arc,
};

use portcullis_types::BlobRef;
use rustix::{fs::Stat, io::Errno};

use super::{
    folder::Folder,
    stat::{is_file, is_own, others_may_write, size_bytes},
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

/// The folder that holds `blob`: the first two digits of its name.
pub(crate) fn fan_out(blob: BlobRef) -> String {
    let [first, ..] = *blob.0.as_bytes();
    shard(first)
}

/// The folder of that number, of 256.
pub(crate) fn shard(number: u8) -> String {
    format!("{number:02x}")
}

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
    keep_others_out(&root, path)?;
    Ok(Some(root))
}

/// Why there is no store at `path`: nothing was ever stored there, or what is there is none, or no longer one.
pub(crate) fn none_at(path: &Path) -> BlobError {
    let place = path.display().to_string();
    let found = match Folder::open(path) {
        Err(Errno::NOENT) => Ok(None),
        other => other.and_then(|root| foreign(&root)),
    };
    match found {
        Ok(None) => BlobError::NoStore { place },
        Ok(Some(found)) => BlobError::NotAStore {
            place,
            why: format!("it holds `{found}`, and no `format`, which every store has"),
        },
        Err(errno) => error("list the folder", path, errno),
    }
}

fn lay_out(path: &Path) -> Result<Folder, BlobError> {
    let io = |action| move |errno: Errno| error(action, path, errno);
    let opened = match Folder::open(path) {
        Err(Errno::NOENT) => {
            Folder::create_all(path).map_err(io("create the folder"))?;
            Folder::open(path)
        }
        Ok(found) => {
            // Whoever made it may have died before its name was on the disk.
            found.sync_name().map_err(io("sync the folder above"))?;
            Ok(found)
        }
        other => other,
    };
    let root = opened.map_err(io("open the folder"))?;
    if let Some(found) = foreign(&root).map_err(io("list the folder"))? {
        // Another process may have laid it out just now, and stored something.
        return open(path)?.ok_or_else(|| BlobError::NotAStore {
            place: path.display().to_string(),
            why: format!("it holds `{found}`"),
        });
    }
    keep_others_out(&root, path)?;
    // What another has made here before us is no foreign file yet.
    let own = |name| {
        let folder = root.child_or_new(name).map_err(io("create a folder"))?;
        keep_others_out_of(&folder, name, path)?;
        Ok(folder)
    };
    own(BLOBS)?;
    write_format(&root, own(TEMP)?).map_err(io("write the format"))?;
    Ok(root)
}

/// Refuses `folder`, which is `name` in the store at `path`, where others own it or can write to it: whoever could once write
/// to the root, or made this before us, would change what is being written there. Ours are made private, so what others have
/// been given a right to is taken back. Where nobody can write, it stays as it is.
pub(crate) fn keep_others_out_of(folder: &Folder, name: &str, path: &Path) -> Result<(), BlobError> {
    let io = |errno| error("look at a folder", path, errno);
    let refused = |why| {
        Err(BlobError::Insecure {
            place: path.display().to_string(),
            why: format!("the folder `{name}` in it {why}"),
        })
    };
    let is_ours_alone = |stat: &Stat| is_own(stat) && !others_may_write(stat);
    let found = folder.own_stat().map_err(io)?;
    if is_ours_alone(&found) || folder.is_read_only().map_err(io)? {
        return Ok(());
    }
    if !is_own(&found) {
        return refused(
            "belongs to another user: see who made it and what is in it, then remove it, or choose another folder for \
             the store",
        );
    }
    // Where this fails, what matters is what it leaves.
    let _ = folder.make_private();
    if is_ours_alone(&folder.own_stat().map_err(io)?) {
        Ok(())
    } else {
        refused(
            "is one that others may write to, and that cannot be taken from them: choose a folder on another file system \
             for the store",
        )
    }
}

/// Makes the folder its owner's alone. One of somebody else's, or that others could write to all the same, is refused:
/// they would see each blob come, and could take it away. Where nobody can write, it stays as it is.
fn keep_others_out(root: &Folder, path: &Path) -> Result<(), BlobError> {
    let io = |errno| error("look at the folder", path, errno);
    let refused = |why: &str| {
        Err(BlobError::Insecure {
            place: path.display().to_string(),
            why: why.to_owned(),
        })
    };
    if root.is_read_only().map_err(io)? {
        return Ok(());
    }
    if !is_own(&root.own_stat().map_err(io)?) {
        return refused(
            "the folder belongs to another user: run this as that user, or choose a folder of your own; where all files \
             of a file system belong to another user, as on some shares and disks and in some containers, choose one on \
             another file system",
        );
    }
    // Where this fails, what matters is what it leaves.
    let _ = root.make_private();
    if others_may_write(&root.own_stat().map_err(io)?) {
        return refused(
            "others may write to the folder, and that cannot be taken from them: choose one on another file system",
        );
    }
    Ok(())
}

/// What the operating system's error means for the store at `path`.
pub(crate) fn error(action: &'static str, path: &Path, errno: Errno) -> BlobError {
    let place = path.display().to_string();
    let source = errno.into();
    match errno {
        Errno::NOSPC | Errno::DQUOT => BlobError::Full { place, source },
        Errno::ROFS => BlobError::NotWritable { place, source },
        Errno::ACCESS | Errno::PERM => BlobError::Forbidden {
            action,
            place,
            source,
        },
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
    let refused = |why: &str| BlobError::NotAStore {
        place: path.display().to_string(),
        why: why.to_owned(),
    };
    let (file, _) = match root.file(FORMAT_FILE) {
        Err(Errno::NOENT) => return Ok(false),
        Err(Errno::LOOP) => return Err(refused("its `format` is a link")),
        other => other.map_err(|errno| error("read the format", path, errno))?,
    };
    let mut text = Vec::new();
    file.take(FORMAT_BYTES)
        .read_to_end(&mut text)
        .map_err(|source| io_error("read the format", path, source))?;
    let text = String::from_utf8_lossy(&text);
    let unreadable = || refused("its `format` cannot be read");
    let number = text.strip_prefix(FORMAT_WORD).ok_or_else(unreadable)?.trim();
    // A newer version may have more to say after its number.
    let found = number
        .split_whitespace()
        .next()
        .and_then(|found| found.parse().ok());
    match found {
        Some(found) if found > FORMAT => Err(BlobError::NewerFormat {
            place: path.display().to_string(),
            found,
            known: FORMAT,
        }),
        Some(_) if number.parse::<u64>().is_ok() => Ok(true),
        _ => Err(unreadable()),
    }
}

/// Writes the format file last of all, whole or not at all.
fn write_format(root: &Folder, scratch: Folder) -> Result<(), Errno> {
    let mut file = TempFile::create(Arc::new(scratch))?;
    let write = writeln!(file.file(), "{FORMAT_WORD} {FORMAT}").and_then(|()| Folder::sync_file(file.file()));
    write.map_err(|source| Errno::from_io_error(&source).unwrap_or(Errno::IO))?;
    match file.publish(root, FORMAT_FILE) {
        // Another process was first.
        Ok(()) | Err(Errno::EXIST) => root.sync(),
        Err(other) => Err(other),
    }
}
