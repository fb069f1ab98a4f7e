use std::{io, path::PathBuf};

/// Why a script could not be read or played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a script.
    #[error("the script cannot be read at line {line}, column {column}: {what}; correct that place")]
    Unreadable {
        /// Line in the script's text, from 1.
        line: usize,
        /// Column in that line, from 1.
        column: usize,
        /// What is wrong there.
        what: String,
    },
    /// A number in the script is above its limit: a scripted server never waits or sends without bound.
    #[error("`{field}` of the script is {value}, above the limit of {limit}; lower it")]
    TooMuch {
        /// Where in the script, for example `tools.slow.delay.ms`.
        field: String,
        /// What the script asks for.
        value: u64,
        /// The most that is served.
        limit: u64,
    },
    /// A text in the script that must be JSON is not, or names something that is not there.
    #[error("`{field}` of the script: {what}")]
    Invalid {
        /// Where in the script.
        field: String,
        /// What is wrong, and what to write instead.
        what: String,
    },
    /// A file that the script names could not be written.
    #[error("cannot write to `{}`; give the script a path in a folder that exists and is writable", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Requests could not be read.
    #[error("cannot read the requests")]
    Input(#[source] io::Error),
    /// A request is longer than the server keeps in memory.
    #[error("a request is longer than {limit_bytes} bytes; send smaller ones")]
    LongLine {
        /// The longest line that is read.
        limit_bytes: u64,
    },
    /// The process could not be set up as the script asks.
    #[error("cannot {what}; leave that out of the script or run it where it is possible")]
    SetUp {
        /// What failed, for example `ignore SIGTERM`.
        what: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
}
