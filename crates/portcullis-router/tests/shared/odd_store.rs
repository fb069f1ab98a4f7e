//! A store in memory where some content has to wait, or writing comes to grief.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use portcullis_blobs::{
    BlobEntry, BlobError, BlobReader, BlobRef, BlobStore, BlobWriter, ByteStream, Bytes, GcOptions, GcReport,
    MemStore, Stats, Stored, Tag, TagName,
};
use tokio::sync::Semaphore;

/// All handles on it are one session of the store behind it.
#[derive(Clone)]
pub(crate) struct OddStore {
    inner: Arc<MemStore>,
    /// What waits at the gate.
    waits: fn(&[u8]) -> bool,
    gate: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    /// Whether whoever wants to write piece by piece panics.
    pub(crate) panics: bool,
}

impl OddStore {
    /// A put of what `waits` waits until the gate is opened.
    pub(crate) fn new(waits: fn(&[u8]) -> bool) -> Self {
        Self {
            inner: Arc::default(),
            waits,
            gate: Arc::new(Semaphore::new(0)),
            inside: Arc::default(),
            most: Arc::default(),
            panics: false,
        }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.inside.load(Ordering::Acquire)
    }

    /// How many have waited at once.
    pub(crate) fn most_waiting(&self) -> usize {
        self.most.load(Ordering::Acquire)
    }

    /// From now on nothing waits.
    pub(crate) fn open(&self) {
        self.gate.close();
    }
}

impl fmt::Debug for OddStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OddStore").finish_non_exhaustive()
    }
}

impl BlobStore for OddStore {
    fn put(&self, content: Bytes) -> BoxFuture<'_, Result<Stored, BlobError>> {
        async move {
            if (self.waits)(&content) && !self.gate.is_closed() {
                let inside = self.inside.fetch_add(1, Ordering::AcqRel) + 1;
                self.most.fetch_max(inside, Ordering::AcqRel);
                let _ = self.gate.acquire().await;
                self.inside.fetch_sub(1, Ordering::AcqRel);
            }
            self.inner.put(content).await
        }
        .boxed()
    }

    fn put_stream<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, BlobError>> {
        self.inner.put_stream(content)
    }

    fn writer(&self) -> Result<Box<dyn BlobWriter>, BlobError> {
        assert!(!self.panics, "this store comes to grief");
        self.inner.writer()
    }

    fn get(&self, blob: BlobRef) -> BoxFuture<'_, Result<Bytes, BlobError>> {
        self.inner.get(blob)
    }

    fn get_range(&self, blob: BlobRef, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, BlobError>> {
        self.inner.get_range(blob, range)
    }

    fn get_stream(&self, blob: BlobRef) -> BoxFuture<'_, Result<BlobReader, BlobError>> {
        self.inner.get_stream(blob)
    }

    fn size_bytes(&self, blob: BlobRef) -> BoxFuture<'_, Result<Option<u64>, BlobError>> {
        self.inner.size_bytes(blob)
    }

    fn list(&self) -> BoxStream<'_, Result<BlobEntry, BlobError>> {
        self.inner.list()
    }

    fn tag(&self, tag: Tag) -> BoxFuture<'_, Result<(), BlobError>> {
        self.inner.tag(tag)
    }

    fn untag(&self, name: TagName, blob: Option<BlobRef>) -> BoxFuture<'_, Result<u64, BlobError>> {
        self.inner.untag(name, blob)
    }

    fn tags(&self) -> BoxFuture<'_, Result<Vec<Tag>, BlobError>> {
        self.inner.tags()
    }

    fn gc(&self, options: GcOptions) -> BoxFuture<'_, Result<GcReport, BlobError>> {
        self.inner.gc(options)
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats, BlobError>> {
        self.inner.stats()
    }

    fn session(&self) -> Arc<dyn BlobStore> {
        Arc::new(self.clone())
    }
}
