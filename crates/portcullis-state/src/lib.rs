//! What outlives a run, and the door through which files are written for people.
//!
//! A file appears whole or not at all, and never in the place of another, unless it is told to:
//!
//! ```
//! use portcullis_state::{Privacy, StateError, write_new};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("portcullis.yaml");
//! write_new(&path, b"mcp: {servers: []}\n", Privacy::Shared)?;
//! let again = write_new(&path, b"", Privacy::Shared);
//! assert!(matches!(again, Err(StateError::Exists { .. })));
//! assert_eq!(std::fs::read(&path)?, b"mcp: {servers: []}\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Deliberately absent: any async runtime, any knowledge of what stands in the files.

mod error;
mod files;

pub use error::StateError;
pub use files::{Privacy, create_folder, replace, write_new};
