use std::{fmt, io, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, TryStreamExt, future::BoxFuture, stream::BoxStream};
use portcullis_types::BlobRef;

use crate::{
    BlobError, BlobReader, Tag, TagName,
    gc::{BlobEntry, GcOptions, GcReport, Stats},
};

/// Content that arrives piece by piece, in order. An error ends it, and nothing of it is kept.
pub type ByteStream<'a> = BoxStream<'a, io::Result<Bytes>>;

/// A store of immutable content whose name is its blake3 hash.
///
/// Every implementation passes one contract suite: the same content has one name and is stored once, however
/// many put it at the same time; a reader sees a blob whole or not at all; content that does not hash to its
/// name is never returned as good. A future that is dropped leaves either the whole blob or nothing.
///
/// What keeps a blob: each handle is a session, and what was put through it, or found there by a put, stays at
/// least until the handle and all that it started are gone. A [`Tag`] keeps it longer. What neither keeps is
/// collected once its retention is over, by [`gc`](BlobStore::gc).
///
/// Where the medium does not do what is asked, each method may end in [`BlobError::Io`], [`BlobError::Forbidden`] or
/// [`BlobError::Insecure`], and in [`BlobError::NoRuntime`] where the store needs a runtime and none is there. What else
/// it may end in, it says itself.
pub trait BlobStore: Send + Sync + fmt::Debug {
    /// Stores `content`. Where it exists already it is not stored again, and [`Stored::existed`] says so.
    ///
    /// # Errors
    ///
    /// [`BlobError::TooLarge`], [`BlobError::Quota`] and [`BlobError::TooMany`] by the store's [`Limits`];
    /// [`BlobError::Full`] and [`BlobError::NotWritable`] by its medium; [`BlobError::Busy`] where another process keeps it
    /// locked, and [`BlobError::Corrupt`] where something keeps putting another file in its place.
    fn put(&self, content: Bytes) -> BoxFuture<'_, Result<Stored, BlobError>>;

    /// Stores what `content` yields, holding no more of it in memory than a fixed window and its own pieces.
    ///
    /// # Errors
    ///
    /// As [`put`](BlobStore::put); also [`BlobError::Source`] when the stream yields an error.
    fn put_stream<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, BlobError>>;

    /// A way to write content piece by piece on a thread that may block, and to decide at its end whether it is kept.
    /// Blocks too, a little.
    ///
    /// # Errors
    ///
    /// As [`put`](BlobStore::put).
    fn writer(&self) -> Result<Box<dyn BlobWriter>, BlobError>;

    /// The whole content of `blob`, checked against its name before a byte of it is returned.
    ///
    /// # Errors
    ///
    /// [`BlobError::NotFound`]; [`BlobError::Corrupt`] when what is stored is not what the name says;
    /// [`BlobError::TooLarge`] and [`BlobError::Memory`].
    fn get(&self, blob: BlobRef) -> BoxFuture<'_, Result<Bytes, BlobError>>;

    /// The bytes of `blob` in `range`, checked against its name before one of them is returned. That reads and
    /// hashes the whole blob, and holds no more of it in memory than the range.
    ///
    /// # Errors
    ///
    /// As [`get`](BlobStore::get), and [`BlobError::Range`] where the blob is shorter.
    fn get_range(&self, blob: BlobRef, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, BlobError>>;

    /// The content of `blob` as a stream that is checked as it goes by; see [`BlobReader`] for what that promises.
    ///
    /// # Errors
    ///
    /// [`BlobError::NotFound`] and [`BlobError::Corrupt`], here and from the stream.
    fn get_stream(&self, blob: BlobRef) -> BoxFuture<'_, Result<BlobReader, BlobError>>;

    /// Reads `blob` to its end, and gives its size in bytes when all of it is as it was put.
    ///
    /// # Errors
    ///
    /// As [`get_stream`](BlobStore::get_stream).
    fn verify(&self, blob: BlobRef) -> BoxFuture<'_, Result<u64, BlobError>> {
        async move {
            let reader = self.get_stream(blob).await?;
            reader
                .try_fold(0, async |size, piece| Ok(size + piece.len() as u64))
                .await
        }
        .boxed()
    }

    /// The size of `blob` in bytes as the medium has it, unverified; `None` where it is not stored.
    ///
    /// # Errors
    ///
    /// [`BlobError::Io`] when the medium cannot tell.
    fn size_bytes(&self, blob: BlobRef) -> BoxFuture<'_, Result<Option<u64>, BlobError>>;

    /// All blobs, in no order. What is put or collected meanwhile may be in it or not.
    fn list(&self) -> BoxStream<'_, Result<BlobEntry, BlobError>>;

    /// Keeps a blob under a name. The same name and blob again replaces the expiry.
    ///
    /// # Errors
    ///
    /// [`BlobError::NotFound`] where the blob is not stored; else as [`put`](BlobStore::put).
    fn tag(&self, tag: Tag) -> BoxFuture<'_, Result<(), BlobError>>;

    /// Takes the tags of that name away, from `blob` alone where one is given, and says how many there were.
    ///
    /// # Errors
    ///
    /// [`BlobError::NotWritable`].
    fn untag(&self, name: TagName, blob: Option<BlobRef>) -> BoxFuture<'_, Result<u64, BlobError>>;

    /// All tags, those that have expired included, in the order of their names.
    ///
    /// # Errors
    ///
    /// [`BlobError::Io`].
    fn tags(&self) -> BoxFuture<'_, Result<Vec<Tag>, BlobError>>;

    /// Removes what nothing keeps; see [`GcOptions`]. Writers, readers and other collectors may go on meanwhile,
    /// in this process and in others. Dropped, it stops early and has done no harm.
    ///
    /// # Errors
    ///
    /// [`BlobError::NoLocks`] where processes cannot be told apart, so that nothing may be removed, and
    /// [`BlobError::NotWritable`].
    fn gc(&self, options: GcOptions) -> BoxFuture<'_, Result<GcReport, BlobError>>;

    /// What the store holds.
    ///
    /// # Errors
    ///
    /// [`BlobError::Io`].
    fn stats(&self) -> BoxFuture<'_, Result<Stats, BlobError>>;

    /// A handle on the same store that is a session of its own: what is put through it stays until it is gone.
    fn session(&self) -> Arc<dyn BlobStore>;
}

/// Content on its way into a store, by a thread that may block. It is no blob before it is published: dropped,
/// nothing of it is left.
///
/// ```
/// use portcullis_blobs::{BlobStore, MemStore};
///
/// let store = MemStore::default();
/// let mut writer = store.writer()?;
/// writer.write(b"a pic")?;
/// writer.write(b"ture")?;
/// assert_eq!(writer.blob(), writer.publish()?.blob);
/// # Ok::<(), portcullis_blobs::BlobError>(())
/// ```
pub trait BlobWriter: Send + Sync + fmt::Debug {
    /// Appends a piece, hashing it on the way.
    ///
    /// # Errors
    ///
    /// As [`BlobStore::put`]. Nothing more can be written or published then.
    fn write(&mut self, piece: &[u8]) -> Result<(), BlobError>;

    /// How much was written, in bytes.
    fn size_bytes(&self) -> u64;

    /// The name that what was written so far would get.
    fn blob(&self) -> BlobRef;

    /// Reads into `buffer` what was written, from the byte `at` on, and says how much that was: 0 at the end.
    ///
    /// # Errors
    ///
    /// [`BlobError::Io`].
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, BlobError>;

    /// Makes it a blob: as if all of it had been put now.
    ///
    /// # Errors
    ///
    /// As [`BlobStore::put`].
    fn publish(self: Box<Self>) -> Result<Stored, BlobError>;
}

/// What became of content that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The name under which it is read.
    pub blob: BlobRef,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Whether it was there before, so that nothing was stored.
    pub existed: bool,
}

/// How much a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest single blob, in bytes. 4 GiB by default.
    pub max_blob_bytes: u64,
    /// What all blobs together may take, in bytes of content, as [`Stats::size_bytes`] has it. No quota by default.
    ///
    /// It bounds their number, too: one for each 4,096 bytes of it, and 1,024 at least, since each takes a block and an
    /// inode of the disk. What stands beside the blobs is not counted: tags, what sessions hold, what was set aside.
    ///
    /// Each process that shares a store counts what it stores itself. It looks at the disk when it opens the store,
    /// collects, finds its own count at the quota, and before it writes a blob where the last look is a second old (or
    /// 64 times as old as looking took), or it has stored an eighth of the room that it found then. So what several
    /// store within that time may pass the quota: each by what it was writing, or by an eighth of the room that there was.
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
