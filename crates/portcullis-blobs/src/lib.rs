//! Where results too large or too binary for a model's context are kept: a content-addressed store.
//!
//! A blob's name is the blake3 hash of its content, so the same content is stored once, a blob never changes,
//! and every read can prove that it returns what was put. There are two stores behind one trait: [`MemStore`],
//! and [`FsStore`], which survives crashes, full disks and links planted in its folder.
//!
//! What is put stays while the handle that put it is there, and longer under a [`Tag`]; what nothing keeps is
//! collected by [`BlobStore::gc`], which is safe beside writers, readers and other processes.
//!
//! Deliberately absent: any idea of MCP or of what a blob means; any network; a wall clock. What time it is comes with
//! [`GcOptions`], and when a blob was put is what its file system says; only how old the last count for a quota is, is
//! measured here. Nothing in [`BlobStore`] assumes a local path, so that a store on object storage can be added.
//!
//! ```
//! use portcullis_blobs::{BlobStore, Bytes, FsOptions, FsStore};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # let parent = tempfile::tempdir()?;
//! # let folder = parent.path().join("blobs");
//! # runtime.block_on(async {
//! let store = FsStore::open(&folder, FsOptions::default())?;
//! let first = store.put(Bytes::from_static(b"a picture")).await?;
//! assert!(first.blob.to_string().starts_with("blob:blake3:"));
//!
//! // The same content again costs no write, and the bytes that come back are checked against their name.
//! assert!(store.put(Bytes::from_static(b"a picture")).await?.existed);
//! assert_eq!(store.get(first.blob).await?.as_ref(), b"a picture");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod store;

mod tag;

mod gc;

mod reader;

mod error;

mod media_type;

mod usage;

mod mem;

mod fs;

#[cfg(test)]
mod contract;

pub use bytes::Bytes;
pub use error::BlobError;
pub use fs::{Durability, FsOptions, FsStore};
pub use gc::{BlobEntry, GcOptions, GcReport, Progress, Stats};
pub use media_type::{MediaType, sniff};
pub use mem::MemStore;
pub use portcullis_types::{BlobRef, Hash};
pub use reader::BlobReader;
pub use store::{BlobStore, BlobWriter, ByteStream, Limits, Stored};
pub use tag::{Tag, TagName};
