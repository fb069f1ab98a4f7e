//! The store in a folder of the file system.
//!
//! ```text
//! FOLDER/                        0700
//!   format                       "portcullis-blobs 1"
//!   blake3/ab/abcdef…            0600, named by the 64 digits, 256 folders
//!   tmp/                         what is being written; each file locked by its writer
//!   quarantine-NAME-RANDOM       what was found under a name that it may not have
//! ```
//!
//! Everything below FOLDER is reached through descriptors of the folders above it and never through a link, so
//! that what someone plants there can neither be written through nor read as a blob. A blob appears under its
//! name by one rename that replaces nothing, after all of it was written.

use std::{fmt, path::Path, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use portcullis_types::BlobRef;

use crate::{BlobError, BlobStore, ByteStream, Limits, Stored};

mod folder;

mod temp;

mod shelf;

mod layout;

#[cfg(test)]
mod tests;

use shelf::{Shelf, Writer};

/// How many bytes of a stream are gathered before they are handed to the disk.
const BATCH_BYTES: usize = 256 * 1024;

/// A content-addressed store in one folder, which several processes may share.
pub struct FsStore {
    shelf: Arc<Shelf>,
}

/// How a [`FsStore`] behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FsOptions {
    /// What outlasts a power cut.
    pub durability: Durability,
    /// How much it takes.
    pub limits: Limits,
}

/// What outlasts a power cut. In both modes a crash of the program leaves whole blobs or none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// A blob is on the disk before its put returns: file, rename and folder are synced.
    #[default]
    Fsync,
    /// The operating system writes when it likes. After a power cut a blob may be missing or damaged; a damaged
    /// one is found when it is read and never returned.
    None,
}

impl FsStore {
    /// Opens the store in `folder`, laying it out where the folder is empty or does not exist, and removes what
    /// writers that died have left. Does a little file work on the calling thread.
    ///
    /// `folder` itself is the caller's and may be reached through links; nothing below it is.
    ///
    /// # Errors
    ///
    /// [`BlobError::NotAStore`] where something else is there, [`BlobError::NewerFormat`],
    /// [`BlobError::NotWritable`], [`BlobError::Full`] and [`BlobError::Io`].
    pub fn open(folder: &Path, options: FsOptions) -> Result<Self, BlobError> {
        Ok(Self {
            shelf: Arc::new(Shelf::open(folder, options)?),
        })
    }

    /// Runs file work where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Shelf>) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let shelf = Arc::clone(&self.shelf);
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BlobError::NoRuntime)?;
        runtime
            .spawn_blocking(move || work(&shelf))
            .await
            .map_err(|_| BlobError::NoRuntime)?
    }

    async fn write_stream(&self, mut content: ByteStream<'_>) -> Result<Stored, BlobError> {
        let mut writer = self.blocking(Writer::create).await?;
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        while let Some(piece) = content.next().await {
            let piece = piece.map_err(BlobError::Source)?;
            batch_bytes += piece.len();
            batch.push(piece);
            if batch_bytes >= BATCH_BYTES {
                let full = std::mem::take(&mut batch);
                batch_bytes = 0;
                writer = self.blocking(move |_| writer.write(&full)).await?;
            }
        }
        self.blocking(move |_| writer.write(&batch)?.publish()).await
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
        self.blocking(move |shelf| shelf.put(&content)).boxed()
    }

    fn put_stream<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, BlobError>> {
        self.write_stream(content).boxed()
    }

    fn get(&self, blob: BlobRef) -> BoxFuture<'_, Result<Bytes, BlobError>> {
        self.blocking(move |shelf| shelf.get(blob)).boxed()
    }

    fn size_bytes(&self, blob: BlobRef) -> BoxFuture<'_, Result<Option<u64>, BlobError>> {
        self.blocking(move |shelf| shelf.size_bytes(blob)).boxed()
    }
}
