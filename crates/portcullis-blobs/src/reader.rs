use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, stream::BoxStream};

use crate::BlobError;

/// A blob's content, piece by piece, with a fixed window of it in memory.
///
/// It is hashed as it goes by, and the last piece is only handed out when the hash is right: damaged content ends
/// in [`BlobError::Corrupt`] and never comes to its end, so whoever has all of it has the true content. Hashing it
/// whole first would read every large blob twice, and prove nothing about what the second reading finds. Who must
/// not see one wrong byte, not even of what then turns out to be damaged, takes
/// [`get`](crate::BlobStore::get) or [`get_range`](crate::BlobStore::get_range).
pub struct BlobReader {
    size_bytes: u64,
    pieces: BoxStream<'static, Result<Bytes, BlobError>>,
}

impl BlobReader {
    /// A reader of `size_bytes` that come as `pieces`. For those who write a store: `pieces` ends after an error.
    #[must_use]
    pub fn new(size_bytes: u64, pieces: BoxStream<'static, Result<Bytes, BlobError>>) -> Self {
        Self { size_bytes, pieces }
    }

    /// How many bytes come, unless an error does.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Stream for BlobReader {
    type Item = Result<Bytes, BlobError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.as_mut().poll_next(context)
    }
}

impl fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobReader")
            .field("size_bytes", &self.size_bytes)
            .finish_non_exhaustive()
    }
}
