use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use portcullis_types::{BlobRef, Hash};

use crate::{
    BlobError, BlobStore, ByteStream, Limits, Stored,
    usage::{Reservation, Usage},
};

/// A store in memory: for tests, and for hosts that keep nothing. The one to read first.
pub struct MemStore {
    usage: Arc<Usage>,
    blobs: Mutex<HashMap<BlobRef, Bytes>>,
}

impl MemStore {
    /// An empty store that takes what `limits` allow. `put_stream` holds the content that it stores in memory,
    /// so here the limits are what bounds memory.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            usage: Usage::new(limits),
            blobs: Mutex::default(),
        }
    }

    fn blobs(&self) -> MutexGuard<'_, HashMap<BlobRef, Bytes>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, content: Bytes, room: Option<Reservation>) -> Result<Stored, BlobError> {
        let blob = BlobRef(Hash::of(&content));
        let size_bytes = content.len() as u64;
        let mut blobs = self.blobs();
        if blobs.contains_key(&blob) {
            return Ok(Stored {
                blob,
                size_bytes,
                existed: true,
            });
        }
        let room = match room {
            Some(room) => room,
            None => {
                let mut room = self.usage.reservation();
                room.grow(size_bytes)?;
                room
            }
        };
        room.keep();
        blobs.insert(blob, content);
        Ok(Stored {
            blob,
            size_bytes,
            existed: false,
        })
    }
}

impl Default for MemStore {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl fmt::Debug for MemStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemStore")
            .field("blobs", &self.blobs().len())
            .finish_non_exhaustive()
    }
}

impl BlobStore for MemStore {
    fn put(&self, content: Bytes) -> BoxFuture<'_, Result<Stored, BlobError>> {
        async move { self.insert(content, None) }.boxed()
    }

    fn put_stream<'a>(&'a self, mut content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, BlobError>> {
        async move {
            let mut room = self.usage.reservation();
            let mut whole = BytesMut::new();
            while let Some(piece) = content.next().await {
                let piece = piece.map_err(BlobError::Source)?;
                room.grow(piece.len() as u64)?;
                whole.extend_from_slice(&piece);
            }
            self.insert(whole.freeze(), Some(room))
        }
        .boxed()
    }

    fn get(&self, blob: BlobRef) -> BoxFuture<'_, Result<Bytes, BlobError>> {
        // Nothing but `insert` writes here, under the hash of the very bytes, so reading verifies nothing anew.
        async move { self.blobs().get(&blob).cloned().ok_or(BlobError::NotFound(blob)) }.boxed()
    }

    fn size_bytes(&self, blob: BlobRef) -> BoxFuture<'_, Result<Option<u64>, BlobError>> {
        async move { Ok(self.blobs().get(&blob).map(|content| content.len() as u64)) }.boxed()
    }
}
