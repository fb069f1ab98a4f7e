mod writer;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use portcullis_types::{BlobRef, Hash};

use crate::{
    BlobEntry, BlobError, BlobReader, BlobStore, BlobWriter, ByteStream, GcOptions, GcReport, Limits, Stats,
    Stored, Tag, TagName,
    usage::{Amount, Reservation, Usage},
};
use writer::{MemWriter, as_it_is};

/// A store in memory: for tests, and for hosts that keep nothing. The one to read first.
///
/// It reads no clock: the retention of a blob that nothing keeps begins with the first collection that sees it.
pub struct MemStore {
    inner: Arc<Inner>,
    session: Arc<Session>,
}

/// What one handle put stays until this is gone: with the handle and all writers that came of it.
struct Session {
    inner: Arc<Inner>,
    number: u64,
}

struct Inner {
    usage: Arc<Usage>,
    sessions: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    blobs: HashMap<BlobRef, Held>,
    tags: BTreeMap<(TagName, BlobRef), Tag>,
}

struct Held {
    content: Bytes,
    /// The living sessions that put it.
    sessions: HashSet<u64>,
    /// When a collection first saw that nothing keeps it.
    unneeded_ms: Option<i64>,
}

impl MemStore {
    /// An empty store that takes what `limits` allow. `put_stream` holds the content that it stores in memory,
    /// so here the limits are what bounds memory.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self::on(Arc::new(Inner {
            usage: Usage::new(limits),
            sessions: AtomicU64::new(0),
            state: Mutex::default(),
        }))
    }

    /// A handle that is a session of its own.
    fn on(inner: Arc<Inner>) -> Self {
        let session = Session {
            number: inner.sessions.fetch_add(1, Ordering::Relaxed),
            inner: Arc::clone(&inner),
        };
        Self {
            inner,
            session: Arc::new(session),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state()
    }

    fn insert(&self, content: Bytes, room: Option<Reservation>) -> Result<Stored, BlobError> {
        self.inner.insert(self.session.number, content, room)
    }

    fn content(&self, blob: BlobRef) -> Result<Bytes, BlobError> {
        // Nothing but `insert` writes here, under the hash of the very bytes, so reading verifies nothing anew.
        match self.state().blobs.get(&blob) {
            Some(held) => Ok(held.content.clone()),
            None => Err(BlobError::NotFound(blob)),
        }
    }

    fn collect(&self, options: &GcOptions) -> GcReport {
        let mut state = self.state();
        let State { blobs, tags } = &mut *state;
        let mut report = GcReport {
            examined: blobs.len() as u64,
            ..GcReport::default()
        };
        let expired = |tag: &Tag| !tag.is_live(options.now_ms);
        report.expired_tags = tags.values().filter(|tag| expired(tag)).count() as u64;
        let kept: HashSet<BlobRef> = tags
            .values()
            .filter(|tag| !expired(tag))
            .map(|tag| tag.blob)
            .collect();
        if !options.dry_run {
            tags.retain(|_, tag| !expired(tag));
        }
        blobs.retain(|blob, held| {
            if !held.sessions.is_empty() || kept.contains(blob) {
                held.unneeded_ms = None;
                return true;
            }
            let unneeded_ms = held.unneeded_ms.unwrap_or(options.now_ms);
            if !options.is_past(unneeded_ms) {
                held.unneeded_ms = Some(unneeded_ms);
                return true;
            }
            report.removed += 1;
            report.removed_bytes += held.content.len() as u64;
            options.dry_run
        });
        let mut stored = Amount::default();
        blobs
            .values()
            .for_each(|held| stored.add(held.content.len() as u64));
        self.inner.usage.set_stored(stored);
        options.progress.begin(report.examined);
        options.progress.advance(report.examined);
        report
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, session: u64, content: Bytes, room: Option<Reservation>) -> Result<Stored, BlobError> {
        let blob = BlobRef(Hash::of(&content));
        let size_bytes = content.len() as u64;
        let mut state = self.state();
        if let Some(held) = state.blobs.get_mut(&blob) {
            held.sessions.insert(session);
            held.unneeded_ms = None;
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
        let held = Held {
            content,
            sessions: HashSet::from([session]),
            unneeded_ms: None,
        };
        state.blobs.insert(blob, held);
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

impl Drop for Session {
    fn drop(&mut self) {
        for held in self.inner.state().blobs.values_mut() {
            held.sessions.remove(&self.number);
        }
    }
}

impl fmt::Debug for MemStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemStore")
            .field("blobs", &self.state().blobs.len())
            .finish_non_exhaustive()
    }
}

impl BlobStore for MemStore {
    fn put(&self, content: Bytes) -> BoxFuture<'_, Result<Stored, BlobError>> {
        async move { self.insert(as_it_is(content.into()), None) }.boxed()
    }

    fn put_stream<'a>(&'a self, mut content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, BlobError>> {
        async move {
            let mut room = self.inner.usage.reservation();
            let mut whole = Vec::new();
            while let Some(piece) = content.next().await {
                let piece = piece.map_err(BlobError::Source)?;
                room.grow(piece.len() as u64)?;
                whole.extend_from_slice(&piece);
            }
            self.insert(as_it_is(whole), Some(room))
        }
        .boxed()
    }

    fn writer(&self) -> Result<Box<dyn BlobWriter>, BlobError> {
        Ok(Box::new(MemWriter::of(&self.session)))
    }

    fn get(&self, blob: BlobRef) -> BoxFuture<'_, Result<Bytes, BlobError>> {
        async move { self.content(blob) }.boxed()
    }

    fn get_range(&self, blob: BlobRef, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, BlobError>> {
        async move {
            let content = self.content(blob)?;
            BlobError::check_range(blob, content.len() as u64, &range)?;
            // Both fit, as the content does.
            let as_index = |at: u64| usize::try_from(at).unwrap_or(content.len());
            Ok(content.slice(as_index(range.start)..as_index(range.end)))
        }
        .boxed()
    }

    fn get_stream(&self, blob: BlobRef) -> BoxFuture<'_, Result<BlobReader, BlobError>> {
        async move {
            let content = self.content(blob)?;
            let size_bytes = content.len() as u64;
            let pieces = (!content.is_empty()).then_some(Ok(content));
            Ok(BlobReader::new(size_bytes, stream::iter(pieces).boxed()))
        }
        .boxed()
    }

    fn size_bytes(&self, blob: BlobRef) -> BoxFuture<'_, Result<Option<u64>, BlobError>> {
        async move { Ok(self.content(blob).ok().map(|content| content.len() as u64)) }.boxed()
    }

    fn list(&self) -> BoxStream<'_, Result<BlobEntry, BlobError>> {
        let entry = |(blob, held): (&BlobRef, &Held)| {
            Ok(BlobEntry {
                blob: *blob,
                size_bytes: held.content.len() as u64,
                stored_ms: None,
            })
        };
        let entries: Vec<_> = self.state().blobs.iter().map(entry).collect();
        stream::iter(entries).boxed()
    }

    fn tag(&self, tag: Tag) -> BoxFuture<'_, Result<(), BlobError>> {
        async move {
            let mut state = self.state();
            if !state.blobs.contains_key(&tag.blob) {
                return Err(BlobError::NotFound(tag.blob));
            }
            state.tags.insert((tag.name.clone(), tag.blob), tag);
            Ok(())
        }
        .boxed()
    }

    fn untag(&self, name: TagName, blob: Option<BlobRef>) -> BoxFuture<'_, Result<u64, BlobError>> {
        async move {
            let mut state = self.state();
            let before = state.tags.len();
            state
                .tags
                .retain(|(of, on), _| *of != name || blob.is_some_and(|blob| blob != *on));
            Ok((before - state.tags.len()) as u64)
        }
        .boxed()
    }

    fn tags(&self) -> BoxFuture<'_, Result<Vec<Tag>, BlobError>> {
        async move { Ok(self.state().tags.values().cloned().collect()) }.boxed()
    }

    fn gc(&self, options: GcOptions) -> BoxFuture<'_, Result<GcReport, BlobError>> {
        async move { Ok(self.collect(&options)) }.boxed()
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats, BlobError>> {
        async move {
            let state = self.state();
            Ok(Stats {
                blobs: state.blobs.len() as u64,
                size_bytes: state.blobs.values().map(|held| held.content.len() as u64).sum(),
                tags: state.tags.len() as u64,
                quarantined: 0,
                quota_bytes: self.inner.usage.limits().quota_bytes,
            })
        }
        .boxed()
    }

    fn session(&self) -> Arc<dyn BlobStore> {
        Arc::new(Self::on(Arc::clone(&self.inner)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn content_takes_no_more_memory_than_it_is_long() {
        let store = MemStore::default();
        let mut writer = store.writer().unwrap();
        (0..11).for_each(|_| writer.write(&[7; 1_000]).unwrap());
        let written = writer.publish().unwrap().blob;
        let pieces = stream::iter((0..11).map(|_| Ok(Bytes::from(vec![8; 1_000])))).boxed();
        let streamed = store.put_stream(pieces).await.unwrap().blob;
        let mut grown = Vec::with_capacity(22_000);
        grown.resize(11_000, 9);
        let put = store.put(grown.into()).await.unwrap().blob;
        let part_of_more = Bytes::from(vec![10; 22_000]).split_off(11_000);
        let part = store.put(part_of_more).await.unwrap().blob;
        let shared = Bytes::from(vec![11; 22_000]);
        let part_of_shared = store.put(shared.slice(..11_000)).await.unwrap().blob;
        drop(shared);
        let exact = vec![12; 11_000];
        let (address, exact) = (exact.as_ptr(), store.put(exact.into()).await.unwrap().blob);
        assert_eq!(store.get(exact).await.unwrap().as_ptr(), address, "not copied");
        let mut all = Vec::new();
        for blob in [written, streamed, put, part, part_of_shared, exact] {
            all.push(store.get(blob).await.unwrap());
        }
        drop(store);
        for content in all {
            let content = Vec::from(content.try_into_mut().unwrap());
            assert_eq!(
                (content.len(), content.capacity()),
                (11_000, 11_000),
                "{}",
                content[0]
            );
        }
    }

    /// With whatever keeps a blob for a while, the collection that saw it unneeded before is forgotten.
    #[tokio::test]
    async fn retention_begins_anew_after_a_blob_was_needed() {
        let removed = async |store: &MemStore, now_ms| {
            let retention = Duration::from_millis(100);
            let options = GcOptions {
                retention,
                ..GcOptions::at(now_ms)
            };
            store.gc(options).await.unwrap().removed
        };
        let content = Bytes::from_static(b"loose");
        for is_put_again in [true, false] {
            let store = MemStore::default();
            let blob = store.session().put(content.clone()).await.unwrap().blob;
            assert_eq!(removed(&store, 1_000).await, 0);
            if is_put_again {
                store.session().put(content.clone()).await.unwrap();
            } else {
                let name: TagName = "keep".parse().unwrap();
                let tag = Tag {
                    name: name.clone(),
                    blob,
                    expires_ms: None,
                };
                store.tag(tag).await.unwrap();
                assert_eq!(removed(&store, 1_050).await, 0);
                store.untag(name, None).await.unwrap();
            }
            assert_eq!(removed(&store, 1_100).await, 0, "{is_put_again}");
            assert_eq!(removed(&store, 1_199).await, 0);
            assert_eq!(removed(&store, 1_200).await, 1);
        }
    }
}
