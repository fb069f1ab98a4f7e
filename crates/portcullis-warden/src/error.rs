use std::{io, path::PathBuf};

use thiserror::Error;

/// Why there is no warden, or no keeper for a server.
#[derive(Debug, Error)]
pub enum Error {
    /// The operating system refused something that the hub's side needs.
    #[error("cannot {what} for the warden")]
    System {
        /// What was tried: `make a socket pair`.
        what: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The warden's program cannot be executed.
    #[error("cannot execute `{}` as the warden", program.display())]
    Execute {
        /// The program.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The program ended, or said nothing that a warden says.
    #[error(
        "`{}` does not act as the warden: its `main` must call `portcullis_warden::init()` before anything else",
        program.display()
    )]
    NotAWarden {
        /// The program.
        program: PathBuf,
    },
    /// The program is of another version than this one.
    #[error("`{}` is a warden of another version: use the one that was built with this hub", program.display())]
    Version {
        /// The program.
        program: PathBuf,
    },
    /// The warden found out that it could not keep its promise.
    #[error("the warden cannot work here: {reason}")]
    Refused {
        /// Why, and what to do.
        reason: &'static str,
    },
    /// The warden has ended; a new one can be started.
    #[error("the warden has ended")]
    Gone,
    /// The warden takes no more requests for now.
    #[error("the warden does not keep up: it has been stopped, or too many servers start at once")]
    Busy,
    /// An order that no keeper would read.
    #[error("the arguments and the environment take {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// How many bytes the order has.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
}
