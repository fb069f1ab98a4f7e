use std::{io, ops::Range};

use portcullis_types::BlobRef;
use thiserror::Error;

/// Why a blob could not be put or read. The message says what failed and what can be done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BlobError {
    /// Nothing of that name was ever put here, or it is gone.
    #[error("blob `{0}` is not in the store")]
    NotFound(BlobRef),
    /// What lies under that name is not the content it names. It was not returned, and is set aside.
    #[error("blob `{blob}` is damaged: {why}; put it again from its source")]
    Corrupt {
        /// The name that was asked for.
        blob: BlobRef,
        /// What was found instead, and where it was moved.
        why: String,
    },
    /// One blob is above [`Limits::max_blob_bytes`](crate::Limits::max_blob_bytes).
    #[error(
        "the content is larger than the {limit_bytes} bytes that one blob may have: raise `max_blob_bytes`, which is \
         `maxBlobBytes` in a configuration"
    )]
    TooLarge {
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// The store holds as much as [`Limits::quota_bytes`](crate::Limits::quota_bytes) lets it.
    #[error(
        "the blob store's quota of {quota_bytes} bytes does not hold {needed_bytes} more ({used_bytes} are used): \
         raise `quota_bytes`, which is `quotaBytes` in a configuration, or remove blobs that nothing needs"
    )]
    Quota {
        /// The quota, in bytes.
        quota_bytes: u64,
        /// What is stored or being written, in bytes.
        used_bytes: u64,
        /// What was to be added, in bytes.
        needed_bytes: u64,
    },
    /// The store holds as many blobs as [`Limits::quota_bytes`](crate::Limits::quota_bytes) lets it, however small.
    #[error(
        "the blob store's quota of {quota_bytes} bytes does not hold more than {most_blobs} blobs: raise `quota_bytes`, \
         which is `quotaBytes` in a configuration, or remove blobs that nothing needs"
    )]
    TooMany {
        /// The quota, in bytes.
        quota_bytes: u64,
        /// How many blobs it holds.
        most_blobs: u64,
    },
    /// The disk, or the user's share of it, is full. Nothing half-written is left behind.
    #[error("the disk that holds the blob store at `{place}` is full: free some space, or move the store")]
    Full {
        /// Where the store is.
        place: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The store lies where nothing can be written.
    #[error(
        "the blob store at `{place}` cannot be written: its file system can only be read; move the store"
    )]
    NotWritable {
        /// Where the store is.
        place: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// This user has no right to read or write something of the store.
    #[error(
        "this user may not {action} in the blob store at `{place}`: make the folder, and all in it, this user's own"
    )]
    Forbidden {
        /// What was being done.
        action: &'static str,
        /// Where the store is.
        place: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The store was written by a newer version, whose rules this one does not know.
    #[error(
        "the blob store at `{place}` has format {found}, and this version knows up to {known}: \
         use the newer program, or another folder"
    )]
    NewerFormat {
        /// Where the store is.
        place: String,
        /// The format found there.
        found: u64,
        /// The newest format that this version reads.
        known: u64,
    },
    /// The place holds something else; a store is never laid over other files.
    #[error("`{place}` is not a blob store: {why}; give an empty folder, or one that does not exist yet")]
    NotAStore {
        /// Where a store was to be.
        place: String,
        /// What is there.
        why: String,
    },
    /// Others than this user could write to the store's folder, or to one in it.
    #[error("the blob store at `{place}` is not safe from other users: {why}")]
    Insecure {
        /// Where the store is, or was to be.
        place: String,
        /// Who they are, and what can be done.
        why: String,
    },
    /// There is no store to look at, nor anything else.
    #[error("there is no blob store at `{place}`: nothing was ever stored there; name another folder")]
    NoStore {
        /// Where one was looked for.
        place: String,
    },
    /// The stream that was to be stored ended in an error. Nothing of it is kept.
    #[error("the content could not be read to its end, so it was not stored")]
    Source(#[source] io::Error),
    /// Any other failure of the medium.
    #[error("could not {action} in the blob store at `{place}`")]
    Io {
        /// What was being done.
        action: &'static str,
        /// Where the store is.
        place: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The blob is shorter than what was asked for.
    #[error("blob `{blob}` has {size_bytes} bytes, so there are no bytes {start} to {end} in it")]
    Range {
        /// The blob.
        blob: BlobRef,
        /// Its size in bytes.
        size_bytes: u64,
        /// The first byte that was asked for, counted from 0.
        start: u64,
        /// The byte before which the range was to end.
        end: u64,
    },
    /// A tag may not be called that.
    #[error(
        "`{0}` cannot be the name of a tag: take 1 to 128 letters, digits and `.`, `_`, `-`, `:`, `@`, \
         the first a letter or digit"
    )]
    BadTagName(String),
    /// Another process holds a lock for too long.
    #[error("another process keeps the blob store at `{place}` locked: see whether a collection hangs there")]
    Busy {
        /// Where the store is.
        place: String,
    },
    /// The file system has no locks, or none that other machines heed, so that what others need cannot be known.
    #[error(
        "the file system of the blob store at `{place}` has no locks that all heed who may use it, so nothing can be \
         collected safely: move the store to a local disk"
    )]
    NoLocks {
        /// Where the store is.
        place: String,
    },
    /// The whole blob does not fit in memory; read it as a stream.
    #[error("there is not enough memory to read {needed_bytes} bytes at once")]
    Memory {
        /// What reading the blob at once takes, in bytes.
        needed_bytes: u64,
    },
    /// The call was made outside of an async runtime, or while it was shutting down.
    #[error("the blob store needs a running tokio runtime, and there is none or it is shutting down")]
    NoRuntime,
}

impl BlobError {
    /// What is left of a writer of which a write failed. What it has is not what its hash says.
    pub(crate) fn broken_writer() -> Self {
        Self::Source(io::Error::other("a piece of it could not be written before"))
    }

    /// Whether `range` lies in a blob of `size_bytes`.
    pub(crate) fn check_range(blob: BlobRef, size_bytes: u64, range: &Range<u64>) -> Result<(), Self> {
        if range.start <= range.end && range.end <= size_bytes {
            Ok(())
        } else {
            Err(Self::Range {
                blob,
                size_bytes,
                start: range.start,
                end: range.end,
            })
        }
    }
}
