use std::{io, path::PathBuf};

use thiserror::Error;

/// Why a file was not written.
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
    /// The operating system refused.
    #[error("cannot write `{path}`: check that its folder exists and may be written to")]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}
