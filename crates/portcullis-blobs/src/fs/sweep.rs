//! Collecting garbage and listing what is there, one folder of blobs at a time.
//!
//! What goes is chosen without a lock, and looked at again under the exclusive lock of its folder, for a few blobs
//! at a time. Whoever puts or tags a blob does so under the shared lock of that folder, and has written down that
//! it is held before giving the lock back. So either the collector sees that, or the writer sees that the blob is
//! gone and writes it anew.

use std::collections::HashSet;

use portcullis_types::BlobRef;
use rustix::io::Errno;

use super::{
    folder::{Folder, Lock},
    layout,
    session::Holdings,
    shelf::Shelf,
    stat::{is_file, modified_ms, size_bytes},
    steps::{Step::Chosen, happened},
    temp,
};
use crate::{BlobEntry, BlobError, GcOptions, GcReport, Stats, Tag, usage::Amount};

/// How many folders of blobs there are.
pub(crate) const SHARDS: u64 = 256;

/// How many blobs are removed under one lock, so that no writer waits long.
const BATCH: usize = 64;

/// One collection.
#[derive(Debug)]
pub(crate) struct Sweep {
    options: GcOptions,
    holdings: Holdings,
    pub(crate) report: GcReport,
}

impl Sweep {
    pub(crate) fn begin(shelf: &Shelf, options: GcOptions) -> Result<Self, BlobError> {
        if let Some(scratch) = shelf.own_folder(&shelf.root, layout::TEMP)? {
            temp::clean(&scratch).map_err(shelf.failed("clean up"))?;
        }
        options.progress.begin(SHARDS);
        Ok(Self {
            holdings: Holdings::new(shelf)?,
            options,
            report: GcReport::default(),
        })
    }

    /// Sweeps the folder `shard`.
    pub(crate) fn shard(mut self, shelf: &Shelf, shard: &str) -> Result<Self, BlobError> {
        let Some(folder) = shelf.shard(layout::BLOBS, shard)? else {
            self.options.progress.advance(1);
            return Ok(self);
        };
        let entries = shelf.entries(&folder, shard)?;
        self.report.examined += entries.len() as u64;
        let tags = shelf.tags_of(shard)?;
        let any_expired = tags.iter().any(|tag| !tag.is_live(self.options.now_ms));
        let tagged = self.live(&tags);
        let candidates: Vec<BlobRef> = entries
            .iter()
            .filter(|entry| self.is_past(entry))
            .map(|entry| entry.blob)
            .filter(|blob| !tagged.contains(blob) && !self.holdings.contains(*blob))
            .collect();
        match self.remove(shelf, &folder, shard, any_expired, &candidates) {
            Err(BlobError::Busy { .. }) => self.report.busy_parts += 1,
            other => other?,
        }
        self.options.progress.advance(1);
        Ok(self)
    }

    /// The end: what was set aside and is past its retention goes too.
    pub(crate) fn finish(self, shelf: &Shelf) -> Result<GcReport, BlobError> {
        for name in shelf.aside()? {
            let stat = shelf
                .root
                .stat(&name)
                .map_err(shelf.failed("look at what was set aside"))?;
            let is_past = stat.is_some_and(|stat| self.options.is_past(modified_ms(&stat)));
            if is_past && !self.options.dry_run {
                // A folder that somebody planted is not ours to empty.
                let _ = shelf.root.remove(&name);
            }
        }
        // What is collected is, also where it cannot be counted. Until it can, the old count holds, which is too high.
        let _ = shelf.count();
        Ok(self.report)
    }

    /// Removes tags that have expired, on blobs that stay too, and then the candidates.
    fn remove(
        &mut self,
        shelf: &Shelf,
        folder: &Folder,
        shard: &str,
        any_expired: bool,
        candidates: &[BlobRef],
    ) -> Result<(), BlobError> {
        if any_expired {
            self.locked(shelf, folder, |sweep| sweep.expire(shelf, shard))?;
        }
        for batch in candidates.chunks(BATCH) {
            self.locked(shelf, folder, |sweep| {
                sweep.remove_batch(shelf, folder, shard, batch)
            })?;
        }
        Ok(())
    }

    /// Does `work` while nobody puts or tags there.
    fn locked(
        &mut self,
        shelf: &Shelf,
        folder: &Folder,
        work: impl FnOnce(&mut Self) -> Result<(), BlobError>,
    ) -> Result<(), BlobError> {
        happened(|| Chosen);
        shelf.lock(folder, Lock::Exclusive)?;
        let done = work(self);
        folder.unlock();
        done
    }

    fn expire(&mut self, shelf: &Shelf, shard: &str) -> Result<(), BlobError> {
        for tag in shelf.tags_of(shard)? {
            if !tag.is_live(self.options.now_ms) {
                if !self.options.dry_run {
                    shelf.remove_expired(shard, &tag)?;
                }
                self.report.expired_tags += 1;
            }
        }
        Ok(())
    }

    /// Looks at everything again, and removes.
    fn remove_batch(
        &mut self,
        shelf: &Shelf,
        folder: &Folder,
        shard: &str,
        batch: &[BlobRef],
    ) -> Result<(), BlobError> {
        self.holdings.refresh(shelf)?;
        let tags = shelf.tags_of(shard)?;
        let tagged = self.live(&tags);
        for &blob in batch {
            if tagged.contains(&blob) || self.holdings.contains(blob) {
                continue;
            }
            let Some(entry) = shelf.entry(folder, blob)?.filter(|entry| self.is_past(entry)) else {
                continue;
            };
            if !self.options.dry_run {
                match folder.remove(&blob.0.to_string()) {
                    Ok(()) => {}
                    Err(Errno::NOENT) => continue,
                    Err(other) => return Err(shelf.failed("remove a blob")(other)),
                }
            }
            self.report.removed += 1;
            self.report.removed_bytes += entry.size_bytes;
        }
        Ok(())
    }

    fn live(&self, tags: &[Tag]) -> HashSet<BlobRef> {
        let live = tags.iter().filter(|tag| tag.is_live(self.options.now_ms));
        live.map(|tag| tag.blob).collect()
    }

    fn is_past(&self, entry: &BlobEntry) -> bool {
        entry.stored_ms.is_some_and(|at_ms| self.options.is_past(at_ms))
    }
}

impl Shelf {
    /// The blobs in the folder `shard`.
    pub(crate) fn list_shard(&self, shard: &str) -> Result<Vec<BlobEntry>, BlobError> {
        match self.shard(layout::BLOBS, shard)? {
            Some(folder) => self.entries(&folder, shard),
            None => Ok(Vec::new()),
        }
    }

    pub(crate) fn stats(&self) -> Result<Stats, BlobError> {
        let stored = self.stored()?;
        Ok(Stats {
            blobs: stored.blobs,
            size_bytes: stored.bytes,
            tags: self.tags()?.len() as u64,
            quarantined: self.aside()?.len() as u64,
            quota_bytes: self.usage.limits().quota_bytes,
        })
    }

    /// How many blobs there are, and what is in them. A folder that cannot be looked at is an error, and not empty.
    pub(crate) fn stored(&self) -> Result<Amount, BlobError> {
        let mut stored = Amount::default();
        let Some(all) = self.own_folder(&self.root, layout::BLOBS)? else {
            return Ok(stored);
        };
        for shard in (0..SHARDS).map(shard_name) {
            if let Some(folder) = self.own_folder(&all, &shard)? {
                let entries = self.entries(&folder, &shard)?;
                entries.iter().for_each(|entry| stored.add(entry.size_bytes));
            }
        }
        Ok(stored)
    }

    fn entries(&self, folder: &Folder, shard: &str) -> Result<Vec<BlobEntry>, BlobError> {
        let mut entries = Vec::new();
        for name in folder.names().map_err(self.failed("list a folder"))? {
            let Some(hash) = name.parse().ok().filter(|_| name.starts_with(shard)) else {
                continue;
            };
            entries.extend(self.entry(folder, BlobRef(hash))?);
        }
        Ok(entries)
    }

    /// What `folder` has of `blob`: nothing where that is no file.
    pub(crate) fn entry(&self, folder: &Folder, blob: BlobRef) -> Result<Option<BlobEntry>, BlobError> {
        let stat = folder
            .stat(&blob.0.to_string())
            .map_err(self.failed("look for a blob"))?;
        Ok(stat.filter(is_file).map(|stat| BlobEntry {
            blob,
            size_bytes: size_bytes(&stat),
            stored_ms: Some(modified_ms(&stat)),
        }))
    }

    /// The names of what was set aside.
    fn aside(&self) -> Result<Vec<String>, BlobError> {
        let mut names = self.root.names().map_err(self.failed("list the folder"))?;
        names.retain(|name| name.starts_with(layout::ASIDE));
        Ok(names)
    }
}

/// The name of the folder of blobs `shard`, from 0 to 255.
pub(crate) fn shard_name(shard: u64) -> String {
    format!("{shard:02x}")
}
