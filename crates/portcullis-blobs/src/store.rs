use std::{fmt, io};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use portcullis_types::BlobRef;

use crate::BlobError;

/// Content that arrives piece by piece, in order. An error ends it, and nothing of it is kept.
pub type ByteStream<'a> = BoxStream<'a, io::Result<Bytes>>;

/// A store of immutable content whose name is its blake3 hash.
///
/// Every implementation passes one contract suite: the same content has one name and is stored once, however
/// many put it at the same time; a reader sees a blob whole or not at all; content that does not hash to its
/// name is never returned. A future that is dropped leaves either the whole blob or nothing.
pub trait BlobStore: Send + Sync + fmt::Debug {
    /// Stores `content`. Where it exists already nothing is written, and [`Stored::existed`] says so.
    ///
    /// # Errors
    ///
    /// [`BlobError::TooLarge`] and [`BlobError::Quota`] by the store's [`Limits`]; [`BlobError::Full`],
    /// [`BlobError::NotWritable`] and [`BlobError::Io`] by its medium.
    fn put(&self, content: Bytes) -> BoxFuture<'_, Result<Stored, BlobError>>;

    /// Stores what `content` yields, holding no more of it in memory than a fixed window and its own pieces.
    ///
    /// # Errors
    ///
    /// As [`put`](BlobStore::put); also [`BlobError::Source`] when the stream yields an error.
    fn put_stream<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, BlobError>>;

    /// The whole content of `blob`, checked against its name before a byte of it is returned.
    ///
    /// # Errors
    ///
    /// [`BlobError::NotFound`]; [`BlobError::Corrupt`] when what is stored is not what the name says;
    /// [`BlobError::TooLarge`], [`BlobError::Memory`] and [`BlobError::Io`].
    fn get(&self, blob: BlobRef) -> BoxFuture<'_, Result<Bytes, BlobError>>;

    /// The size of `blob` in bytes as the medium has it, unverified; `None` where it is not stored.
    ///
    /// # Errors
    ///
    /// [`BlobError::Io`] when the medium cannot tell.
    fn size_bytes(&self, blob: BlobRef) -> BoxFuture<'_, Result<Option<u64>, BlobError>>;
}

/// What became of content that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The name under which it is read.
    pub blob: BlobRef,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Whether it was there before, so that nothing was written.
    pub existed: bool,
}

/// How much a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest single blob, in bytes. 4 GiB by default.
    pub max_blob_bytes: u64,
    /// What all blobs together may take, in bytes. No quota by default.
    ///
    /// Several processes that share one store each count for themselves between looks at the disk, so together
    /// they may pass it by what they write at the same time.
    pub quota_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_blob_bytes: 4 << 30,
            quota_bytes: None,
        }
    }
}
