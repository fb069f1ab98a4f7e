//! What was found gets its place in the list of blobs, as far as there is room.

use portcullis_blobs::{BlobRef, Hash};

use super::{BlobInfo, Shaper, base64, find, media, storing::Part};

/// How many parts of one result go to the store. Those beyond stay where they are, and with them the reply is
/// most likely spilled: a result of a million tiny pictures must not become a million files.
pub(super) const MAX_PUTS: usize = 1_024;

/// How many references are written into one result. Each is longer than the shortest that it may stand for, so that a
/// result of nothing else would become many times as long.
pub(super) const MAX_REFERENCES: usize = 65_536;

impl Shaper<'_> {
    /// Whether one more part may go to the store; where not, that is flagged.
    pub(super) fn has_room(&mut self) -> bool {
        let has_room = self.puts < MAX_PUTS;
        self.flags.left_inline += usize::from(!has_room);
        has_room
    }

    /// The blob whose reference takes the place of what was found; `None` where there is no room for it.
    pub(super) fn place(&mut self, content: find::Content) -> Option<BlobRef> {
        match content {
            find::Content::Known { blob, declared } if !self.ahead.has(blob) => {
                if let Some(declared) = declared {
                    self.declare(blob, &declared);
                }
                Some(blob)
            }
            _ if !self.has_room() => None,
            find::Content::Known { blob, declared } => self.place_ahead(blob, declared),
            find::Content::New { bytes, declared } => Some(self.store(bytes, declared.as_deref()).blob),
        }
    }

    /// Has `bytes` stored and remembers them for the list of blobs.
    pub(super) fn store(&mut self, bytes: Vec<u8>, declared: Option<&str>) -> BlobInfo {
        let blob = BlobRef(Hash::of(&bytes));
        self.store_as(blob, bytes, declared)
    }

    pub(super) fn store_as(&mut self, blob: BlobRef, bytes: Vec<u8>, declared: Option<&str>) -> BlobInfo {
        // Copies count, too: each of them becomes a link.
        self.puts += 1;
        let info = BlobInfo::of(blob, bytes.len() as u64, media::decide(&bytes, declared));
        self.remember(Part::Bytes(bytes.into()), &info);
        info
    }

    pub(super) fn remember(&mut self, part: Part, info: &BlobInfo) {
        if self.places.contains_key(&info.blob) {
            return;
        }
        // Whatever way it came: as base64 in a block, in a data URL, or beside its message.
        self.twins
            .insert_length(base64::canonical_bytes(info.size_bytes), info.blob);
        self.places.insert(info.blob, self.blobs.len());
        self.blobs.push(info.clone());
        self.parts.push(part);
    }

    /// Records what else the server declares of a blob that has a place, where that differs and nothing is recorded.
    pub(super) fn declare(&mut self, blob: BlobRef, declared: &str) {
        let at = self.places.get(&blob);
        let info = at.and_then(|at| self.blobs.get_mut(*at));
        if let Some(info) = info.filter(|info| info.declared_media_type.is_none()) {
            info.declared_media_type = media::differing(&info.media_type, declared);
        }
    }
}
