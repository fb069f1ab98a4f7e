use std::time::Duration;

use portcullis_blobs::BlobError;
use thiserror::Error;

use crate::spool::SpoolFault;

/// Why a result could not be shaped. The call itself was carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The text is no JSON at all.
    #[error("the server's result is not valid JSON")]
    NotJson(#[source] serde_json::Error),
    /// The reply is above the limit, and replies above it are refused.
    #[error(
        "the reply has {size_bytes} bytes, above the limit of {limit_bytes}: ask the tool for less, raise the \
         limit, or set `oversize: spill` to have such replies stored whole"
    )]
    TooLarge {
        /// The size of the reply, in bytes, after binary content was replaced.
        size_bytes: usize,
        /// [`ShapeOptions::max_reply_bytes`](super::ShapeOptions::max_reply_bytes).
        limit_bytes: usize,
    },
    /// A part of the result could not be stored.
    #[error("the tool was called, but its result could not be stored: {0}")]
    Store(BlobError),
    /// The store was too slow, or had too much of the same server's to take before.
    #[error(
        "the tool was called, but its result is lost: it was not stored within {} s, since the blob store is slow or \
         other results of this server are before it; find out what the call did before you call again", .after.as_secs()
    )]
    Late {
        /// How long that was waited for.
        after: Duration,
    },
    /// A large result is shaped on a thread of its own, and none could be started.
    #[error(
        "the tool was called, but its result is lost: it is large, and no thread could be started for it ({0}); find out \
         what the call did before you call again"
    )]
    Thread(#[source] std::io::Error),
    /// The result is not there, or a long string of it.
    #[error("the tool was called, but its result, or a long string of it, was lost: {0}")]
    Lost(String),
}

impl From<SpoolFault> for ShapeError {
    fn from(fault: SpoolFault) -> Self {
        match fault {
            SpoolFault::Store(error) => Self::Store(error),
            crowded @ SpoolFault::Crowded(_) => Self::Lost(crowded.to_string()),
        }
    }
}
