//! When what is stored is on the disk, and the names that lead to it.

use std::{fs::File, sync::atomic::Ordering};

use portcullis_types::BlobRef;
use rustix::io::Errno;

use super::{Durability, folder::Folder, layout, shelf::Shelf};
use crate::BlobError;

impl Shelf {
    /// Makes what was written to `file` durable, where that is wanted, before it gets its name.
    pub(crate) fn settle_content(&self, file: &File) -> Result<(), BlobError> {
        match self.durability {
            Durability::Fsync => Folder::sync_file(file).map_err(self.io_failed("sync a blob")),
            Durability::Group => self.commit(),
            Durability::None => Ok(()),
        }
    }

    /// Makes the names that lead to `blob` durable, where that is wanted.
    pub(crate) fn settle_names(&self, blob: BlobRef, folder: &Folder) -> Result<(), BlobError> {
        match self.durability {
            Durability::Fsync => self.sync_names(blob, folder),
            Durability::Group => self.commit(),
            Durability::None => Ok(()),
        }
    }

    /// Makes a blob that was there before durable, where that is wanted: its first writer may not have come to
    /// that yet, or may not have wanted to. `false` where it is gone: nobody keeps a reader from moving it aside.
    pub(crate) fn settle_existing(&self, blob: BlobRef, folder: &Folder) -> Result<bool, BlobError> {
        if self.durability == Durability::Fsync {
            let (file, _) = match folder.file(&blob.0.to_string()) {
                Err(Errno::NOENT) => return Ok(false),
                other => other.map_err(self.failed("open a blob"))?,
            };
            Folder::sync_file(&file).map_err(self.io_failed("sync a blob"))?;
        }
        self.settle_names(blob, folder)?;
        Ok(true)
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durability != Durability::None
    }

    /// One sync of the file system for all that wait for one now.
    fn commit(&self) -> Result<(), BlobError> {
        self.committer
            .commit(|| self.root.sync_file_system())
            .map_err(self.failed("sync the file system"))
    }

    fn sync_names(&self, blob: BlobRef, folder: &Folder) -> Result<(), BlobError> {
        folder.sync().map_err(self.failed("sync a folder"))?;
        let [first, ..] = *blob.0.as_bytes();
        if let Some(synced) = self.synced.get(usize::from(first))
            && !synced.load(Ordering::Acquire)
        {
            let all = self.own_folder_or_new(&self.root, layout::BLOBS)?;
            all.sync().map_err(self.failed("sync a folder"))?;
            if !self.root_synced.load(Ordering::Acquire) {
                self.root.sync().map_err(self.failed("sync a folder"))?;
                self.root_synced.store(true, Ordering::Release);
            }
            synced.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// A folder of that name was made: what is known of one that was there before does not hold for it.
    pub(super) fn is_new(&self, name: &str) {
        if name == layout::BLOBS {
            self.root_synced.store(false, Ordering::Release);
        }
        for (shard, synced) in (0..=u8::MAX).zip(&self.synced) {
            if name == layout::BLOBS || name == layout::shard(shard) {
                synced.store(false, Ordering::Release);
            }
        }
    }
}
