use std::{io, path::PathBuf};

use thiserror::Error;

/// Why a file was not written, or not for sure, or why the state cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// Something is there already, and nothing is ever overwritten.
    #[error("`{path}` is there already: move it away, or choose another name")]
    Exists {
        /// What was to be written.
        path: PathBuf,
    },
    /// A folder, a link or the like, where a file is to be written anew.
    #[error("`{path}` is no plain file, and is not written over: move it away, or choose another name")]
    NotAFile {
        /// What was to be written.
        path: PathBuf,
    },
    /// The path ends in no file's name.
    #[error("`{path}` names no file: write a path that ends in a file's name")]
    NoName {
        /// What was to be written.
        path: PathBuf,
    },
    /// It is written all the same: it is whole and has its name, but its folder could not be synced.
    #[error(
        "`{path}` is written, but a power cut may undo that: its folder cannot be synced; check the disk"
    )]
    Unsynced {
        /// What was written.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("cannot write `{path}`: check that its folder exists and may be written to")]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The folder, or the file in it, cannot be made or looked at.
    #[error("the state in `{path}` cannot be opened: check that it may be read and written")]
    Open {
        /// Which folder or file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Somebody else could change what is trusted.
    #[error("the state in `{path}` cannot be relied on: {why}")]
    Insecure {
        /// Which folder or file.
        path: PathBuf,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Another process holds it for longer than is waited.
    #[error("the state in `{path}` is in use by another process for over 2 s: try again")]
    Busy {
        /// Which file.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error(
        "the state in `{path}` was written by a newer version (its schema is {found}, the newest known here is {known}): \
         use that version, or another folder"
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// The version of its schema.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// It is the database of something else.
    #[error("`{path}` is a database, but not one of portcullis: choose another folder")]
    Foreign {
        /// Which file.
        path: PathBuf,
    },
    /// It cannot be read for what it is. It is left as it is.
    #[error(
        "the state in `{path}` is damaged ({why}); it is left as it is: move the file away to begin anew, which \
         trusts each tool as it is seen first from then on"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is no room for it. What was to be written is not.
    #[error("the disk that holds the state in `{path}` is full: free some space")]
    Full {
        /// Which file.
        path: PathBuf,
    },
    /// The database says no, for another reason.
    #[error("the state in `{path}` cannot be read or written: check that file, its folder and the disk")]
    Database {
        /// Which file.
        path: PathBuf,
        /// What the database says.
        source: rusqlite::Error,
    },
    /// A server has listed so many tools under changing names, or under such long ones, that no more are kept.
    #[error(
        "the server `{server}` has shown over {most} tools, or ones whose names have over {most_name_bytes} bytes \
         together; no more of them are kept, and what is not kept is not trusted: \
         `portcullis pins forget mcp.{server}` begins anew"
    )]
    TooManyTools {
        /// Which server.
        server: String,
        /// How many are kept.
        most: usize,
        /// How long their names may be together, in bytes.
        most_name_bytes: usize,
    },
}
