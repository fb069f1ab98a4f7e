//! The store in a folder of the file system.
//!
//! ```text
//! FOLDER/                        0700
//!   format                       "portcullis-blobs 1"
//!   blake3/ab/abcdef…            0600, named by the 64 digits, 256 folders
//!   tmp/                         what is being written; each file locked by its writer
//!   tags/ab/abcdef….NAME         when the tag expires: milliseconds since the Unix epoch, or "never"
//!   sessions/RANDOM              the hashes that a living handle holds; locked by its process
//!   quarantine-NAME-RANDOM       what was found under a name that it may not have
//! ```
//!
//! Everything below FOLDER is reached through descriptors of the folders above it and never through a link, so
//! that what someone plants there can neither be written through nor read as a blob. A blob appears under its
//! name by one rename that replaces nothing, after all of it was written. Whoever makes a blob visible or tags one
//! shares the lock of its folder (`blake3/ab`), whoever collects in there has it alone.

use std::{fmt, ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use portcullis_types::BlobRef;
use tokio::runtime::Handle;

use crate::{
    BlobEntry, BlobError, BlobReader, BlobStore, BlobWriter, ByteStream, GcOptions, GcReport, Limits, Stats,
    Stored, Tag, TagName,
};

mod folder;

mod stat;

#[cfg(target_os = "linux")]
mod file_system;

mod hash;

mod helper;

mod parts;

mod recent;

mod buffers;

mod steps;

mod temp;

mod layout;

mod shelf;

mod commit;

mod settle;

mod session;

mod writer;

mod reading;

mod whole;

mod at_hand;

mod tags;

mod sweep;

#[cfg(test)]
mod tests;

use reading::Reading;
use session::Session;
use shelf::Shelf;
use sweep::{SHARDS, Sweep, shard_name};
use writer::Writer;

/// How many bytes of a stream are gathered before they are handed to the disk.
const BATCH_BYTES: usize = 256 * 1024;

/// A content-addressed store in one folder, which several processes may share.
///
/// What is got whole, up to a MiB, is read on its caller's thread where it is in memory. From half a MiB on, a thread of the
/// store's own helps with what is put or got whole, where it is free and there is a processor for it. They are started when they are first wanted, run only where their caller may run, and end when the
/// last handle is gone.
pub struct FsStore {
    shelf: Arc<Shelf>,
    session: Arc<Session>,
}

/// How a [`FsStore`] behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsOptions {
    /// What outlasts a power cut.
    pub durability: Durability,
    /// How much it takes.
    pub limits: Limits,
    /// How many threads may help with large content, 4 by default. On Linux they are told where to run; a host whose filter
    /// of system calls ends the process for `sched_setaffinity` wants none.
    pub helpers: usize,
}

impl Default for FsOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            limits: Limits::default(),
            helpers: 4,
        }
    }
}

/// What outlasts a power cut. In both modes a crash of the program leaves whole blobs or none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// A blob is on the disk before its put returns: file, rename and folder are synced.
    #[default]
    Fsync,
    /// As with [`Fsync`](Self::Fsync) a blob is on the disk before its put returns, but puts that run at the same
    /// time share two syncs of the whole file system: one before the renames, one after. What that gains
    /// depends on the file system (docs/blobs.md has figures); a single put is slower where others write to it too.
    Group,
    /// The operating system writes when it likes. After a power cut a blob may be missing or damaged; a damaged
    /// one is found when it is read and never returned.
    None,
}

impl FsStore {
    /// Opens the store in `folder`, laying it out where the folder is empty or does not exist, and removes what
    /// writers that died have left. Does a little file work on the calling thread, and looks at every blob where there is
    /// a quota: where one of its folders cannot be looked at, the others can be read, and no new blob is taken.
    ///
    /// `folder` itself is the caller's and may be reached through links; nothing below it is.
    ///
    /// # Errors
    ///
    /// [`BlobError::NotAStore`] where something else is there, [`BlobError::Insecure`] where others can write to the
    /// folder or to one in it, [`BlobError::NewerFormat`], [`BlobError::NotWritable`], [`BlobError::Forbidden`], [`BlobError::Full`] and
    /// [`BlobError::Io`].
    pub fn open(folder: &Path, options: FsOptions) -> Result<Self, BlobError> {
        Ok(Self::on(Shelf::open_or_new(folder, options)?))
    }

    /// As [`open`](Self::open), but makes no store where there is none: for those who only look at one.
    ///
    /// # Errors
    ///
    /// [`BlobError::NoStore`] where there is nothing; else as [`open`](Self::open).
    pub fn open_existing(folder: &Path, options: FsOptions) -> Result<Self, BlobError> {
        Ok(Self::on(Shelf::open(folder, options)?))
    }

    fn on(shelf: Shelf) -> Self {
        Self {
            shelf: Arc::new(shelf),
            session: Arc::default(),
        }
    }

    /// Runs file work where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Shelf>) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let shelf = Arc::clone(&self.shelf);
        blocking(move || work(&shelf)).await
    }

    async fn write_stream(&self, mut content: ByteStream<'_>) -> Result<Stored, BlobError> {
        let session = Arc::clone(&self.session);
        let mut writer = self
            .blocking(move |shelf| Writer::create(shelf, &session))
            .await?;
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        while let Some(piece) = content.next().await {
            let piece = piece.map_err(BlobError::Source)?;
            // They would gather for as long as they come.
            if piece.is_empty() {
                continue;
            }
            batch_bytes += piece.len();
            batch.push(piece);
            if batch_bytes >= BATCH_BYTES {
                let full = std::mem::take(&mut batch);
                batch_bytes = 0;
                writer = self.blocking(move |_| writer.write_all(&full)).await?;
            }
        }
        self.blocking(move |_| writer.write_all(&batch)?.finish()).await
    }
}

impl fmt::Debug for FsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsStore")
            .field("folder", &self.shelf.place())
            .finish_non_exhaustive()
    }
}

impl BlobStore for FsStore {
    fn put(&self, content: Bytes) -> BoxFuture<'_, Result<Stored, BlobError>> {
        let session = Arc::clone(&self.session);
        self.blocking(move |shelf| shelf.put(&session, &content)).boxed()
    }

    fn put_stream<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, BlobError>> {
        self.write_stream(content).boxed()
    }

    fn writer(&self) -> Result<Box<dyn BlobWriter>, BlobError> {
        Ok(Box::new(Writer::create(&self.shelf, &self.session)?))
    }

    fn get(&self, blob: BlobRef) -> BoxFuture<'_, Result<Bytes, BlobError>> {
        async move {
            if Handle::try_current().is_err() {
                return Err(BlobError::NoRuntime);
            }
            match self.shelf.at_hand(blob) {
                Some(content) => Ok(content),
                None => self.blocking(move |shelf| shelf.get(blob)).await,
            }
        }
        .boxed()
    }

    fn get_range(&self, blob: BlobRef, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, BlobError>> {
        self.blocking(move |shelf| shelf.get_range(blob, &range)).boxed()
    }

    fn get_stream(&self, blob: BlobRef) -> BoxFuture<'_, Result<BlobReader, BlobError>> {
        async move {
            let reading = self.blocking(move |shelf| shelf.reading(blob)).await?;
            let size_bytes = reading.size_bytes();
            let pieces = stream::try_unfold(Some(reading), |reading: Option<Reading>| async move {
                match reading {
                    Some(reading) => blocking(move || reading.next()).await.map(Some),
                    None => Ok(None),
                }
            });
            Ok(BlobReader::new(size_bytes, pieces.boxed()))
        }
        .boxed()
    }

    fn size_bytes(&self, blob: BlobRef) -> BoxFuture<'_, Result<Option<u64>, BlobError>> {
        self.blocking(move |shelf| shelf.size_bytes(blob)).boxed()
    }

    fn list(&self) -> BoxStream<'_, Result<BlobEntry, BlobError>> {
        stream::iter(0..SHARDS)
            .then(|shard| self.blocking(move |shelf| shelf.list_shard(&shard_name(shard))))
            .map_ok(|entries| stream::iter(entries.into_iter().map(Ok)))
            .try_flatten()
            .boxed()
    }

    fn tag(&self, tag: Tag) -> BoxFuture<'_, Result<(), BlobError>> {
        self.blocking(move |shelf| shelf.tag(&tag)).boxed()
    }

    fn untag(&self, name: TagName, blob: Option<BlobRef>) -> BoxFuture<'_, Result<u64, BlobError>> {
        self.blocking(move |shelf| shelf.untag(&name, blob)).boxed()
    }

    fn tags(&self) -> BoxFuture<'_, Result<Vec<Tag>, BlobError>> {
        self.blocking(|shelf| shelf.tags()).boxed()
    }

    fn gc(&self, options: GcOptions) -> BoxFuture<'_, Result<GcReport, BlobError>> {
        async move {
            let mut sweep = self.blocking(move |shelf| Sweep::begin(shelf, options)).await?;
            for shard in 0..SHARDS {
                sweep = self
                    .blocking(move |shelf| sweep.shard(shelf, &shard_name(shard)))
                    .await?;
            }
            self.blocking(move |shelf| sweep.finish(shelf)).await
        }
        .boxed()
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats, BlobError>> {
        self.blocking(|shelf| shelf.stats()).boxed()
    }

    fn session(&self) -> Arc<dyn BlobStore> {
        Arc::new(Self {
            shelf: Arc::clone(&self.shelf),
            session: Arc::default(),
        })
    }
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    let runtime = Handle::try_current().map_err(|_| BlobError::NoRuntime)?;
    runtime
        .spawn_blocking(work)
        .await
        .map_err(|_| BlobError::NoRuntime)?
}
