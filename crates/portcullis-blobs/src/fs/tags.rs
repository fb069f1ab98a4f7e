//! Tags: one small file for each, named by blob and tag, in one folder for each folder of blobs. What is in it is
//! when it expires.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use portcullis_types::BlobRef;
use rustix::io::Errno;

use super::{
    folder::{Folder, Lock},
    layout,
    shelf::Shelf,
    stat::is_file,
};
use crate::{BlobError, Tag, TagName};

/// What stands in the file of a tag that does not expire.
const NEVER: &str = "never";

impl Shelf {
    pub(crate) fn tag(self: &Arc<Self>, tag: &Tag) -> Result<(), BlobError> {
        let Some(blobs) = self.folder(tag.blob)? else {
            return Err(BlobError::NotFound(tag.blob));
        };
        let failed = self.failed("write a tag");
        let mut file = self.temp_file()?;
        let expiry = tag.expires_ms.map_or(NEVER.to_owned(), |ms| ms.to_string());
        writeln!(file.file(), "{expiry}").map_err(self.io_failed("write a tag"))?;
        self.settle_content(file.file())?;

        // A collector looks at tags and removes blobs under the exclusive lock: either it sees this tag, or we see
        // that the blob is gone.
        self.lock(&blobs, Lock::Shared)?;
        let stat = blobs
            .stat(&tag.blob.0.to_string())
            .map_err(self.failed("look for a blob"))?;
        if !stat.as_ref().is_some_and(is_file) {
            return Err(BlobError::NotFound(tag.blob));
        }
        let all = self.own_folder_or_new(&self.root, layout::TAGS)?;
        let tags = self.own_folder_or_new(&all, &layout::fan_out(tag.blob))?;
        file.replace(&tags, &file_name(&tag.name, tag.blob))
            .map_err(&failed)?;
        blobs.unlock();
        if self.is_durable() {
            for folder in [&tags, &all, &self.root] {
                folder.sync().map_err(self.failed("sync a folder"))?;
            }
        }
        Ok(())
    }

    pub(crate) fn untag(&self, name: &TagName, blob: Option<BlobRef>) -> Result<u64, BlobError> {
        let Some(all) = self.own_folder(&self.root, layout::TAGS)? else {
            return Ok(0);
        };
        let shards = match blob {
            Some(blob) => vec![layout::fan_out(blob)],
            None => self.tag_shards(&all)?,
        };
        let mut removed = 0;
        for shard in shards {
            let Some(folder) = self.own_folder(&all, &shard)? else {
                continue;
            };
            for file in folder.names().map_err(self.failed("list a folder"))? {
                let is_meant = parse_name(&shard, &file)
                    .is_some_and(|(on, of)| of == *name && blob.is_none_or(|blob| blob == on));
                if !is_meant {
                    continue;
                }
                match folder.remove(&file) {
                    Ok(()) => removed += 1,
                    Err(Errno::NOENT) => {}
                    Err(other) => return Err(self.failed("remove a tag")(other)),
                }
            }
        }
        Ok(removed)
    }

    pub(crate) fn tags(&self) -> Result<Vec<Tag>, BlobError> {
        let mut tags = Vec::new();
        if let Some(all) = self.own_folder(&self.root, layout::TAGS)? {
            for shard in self.tag_shards(&all)? {
                tags.extend(self.tags_of(&shard)?);
            }
        }
        tags.sort();
        Ok(tags)
    }

    /// The tags of the blobs of one folder. What cannot be read does not expire.
    pub(crate) fn tags_of(&self, shard: &str) -> Result<Vec<Tag>, BlobError> {
        let Some(folder) = self.shard(layout::TAGS, shard)? else {
            return Ok(Vec::new());
        };
        let names = folder.names().map_err(self.failed("list a folder"))?;
        let tags = names.iter().filter_map(|file| {
            let (blob, name) = parse_name(shard, file)?;
            // Taken away just now: no tag. Anything else that goes wrong keeps the blob.
            let expires_ms = match folder.file(file) {
                Err(Errno::NOENT) => return None,
                Err(_) => None,
                Ok((content, _)) => {
                    let mut text = String::new();
                    let read = content.take(64).read_to_string(&mut text).ok();
                    read.and_then(|_| text.trim().parse().ok())
                }
            };
            Some(Tag {
                name,
                blob,
                expires_ms,
            })
        });
        Ok(tags.collect())
    }

    /// Removes a tag that has expired. Under the exclusive lock of its blob's folder it cannot be set anew
    /// meanwhile.
    pub(crate) fn remove_expired(&self, shard: &str, tag: &Tag) -> Result<(), BlobError> {
        match self.shard(layout::TAGS, shard)? {
            Some(folder) => match folder.remove(&file_name(&tag.name, tag.blob)) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(other) => Err(self.failed("remove a tag")(other)),
            },
            None => Ok(()),
        }
    }

    /// Which folders of tags there are. What else lies beside them is not ours.
    fn tag_shards(&self, all: &Folder) -> Result<Vec<String>, BlobError> {
        let mut names = all.names().map_err(self.failed("list a folder"))?;
        names.retain(|name| name.len() == 2 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        Ok(names)
    }
}

fn file_name(name: &TagName, blob: BlobRef) -> String {
    format!("{}.{name}", blob.0)
}

/// What the file `file` in the folder `shard` tags: one in the folder of other blobs keeps nothing.
fn parse_name(shard: &str, file: &str) -> Option<(BlobRef, TagName)> {
    let (hash, name) = file.split_once('.')?;
    let blob = BlobRef(hash.parse().ok()?);
    let is_here = layout::fan_out(blob) == shard;
    is_here.then_some((blob, name.parse().ok()?))
}
