//! What a result has for the store goes there at its very end, when nothing but the store can refuse it any more.

use portcullis_blobs::{BlobStore, Bytes};
use serde_json::value::RawValue;

use super::{BlobInfo, ShapeError, ShapeFlags, ShapedResult, block, json::ObjectWriter, spooled::Spools};
use crate::spool::Spooled;

/// A part of a result that becomes a blob.
pub(super) enum Part {
    Bytes(Bytes),
    Spooled(Spooled),
}

/// A result as the host gets it, but for what of it is not in the store yet.
pub(super) struct Unstored {
    pub(super) body: Body,
    pub(super) is_error: bool,
    pub(super) size_bytes: usize,
    pub(super) blobs: Vec<BlobInfo>,
    /// What is in each of them.
    pub(super) parts: Vec<Part>,
    pub(super) flags: ShapeFlags,
}

/// What becomes of the reply that is left once its parts are replaced.
pub(super) enum Body {
    HandedOn(String),
    Spilled(Spill),
}

/// A reply that is too large.
pub(super) struct Spill {
    pub(super) json: String,
    pub(super) spools: Spools,
    pub(super) size_bytes: usize,
    pub(super) limit_bytes: usize,
    pub(super) is_error: bool,
    /// Of revision 2026-07-28: short, and needed to understand the result, spilled or not.
    pub(super) result_type: Option<String>,
}

impl Unstored {
    /// Whether there is nothing to store.
    pub(super) fn is_stored(&self) -> bool {
        self.parts.is_empty() && matches!(self.body, Body::HandedOn(_))
    }

    /// Stores everything, but nothing more once `go_on` says no. Blocks where there are long strings.
    pub(super) async fn store(
        self,
        store: &dyn BlobStore,
        go_on: impl Fn() -> Result<(), ShapeError>,
    ) -> Result<ShapedResult, ShapeError> {
        let Self { mut blobs, .. } = self;
        // A store does not let go of one blob alone. So what it has no room for had better come first, and that is the
        // largest.
        let (json, reply) = match self.body {
            Body::HandedOn(json) => (json, None),
            Body::Spilled(spill) => {
                go_on()?;
                let (note, info) = spill.store(store, &go_on).await?;
                (note, Some(info))
            }
        };
        for part in self.parts {
            go_on()?;
            match part {
                Part::Bytes(bytes) => store.put(bytes).await.map_err(ShapeError::Store)?,
                Part::Spooled(spooled) => spooled.publish()?,
            };
        }
        let spilled = reply.is_some();
        if let Some(info) = reply {
            // Last, also where an equal blob came before: that is where the reply is looked for.
            blobs.retain(|known| known.blob != info.blob);
            blobs.push(info);
        }
        Ok(ShapedResult {
            is_error: self.is_error,
            result: RawValue::from_string(json).map_err(ShapeError::NotJson)?,
            blobs,
            size_bytes: self.size_bytes,
            spilled,
            flags: self.flags,
        })
    }
}

impl Spill {
    /// Stores the whole reply and says where it is.
    async fn store(
        self,
        store: &dyn BlobStore,
        go_on: &impl Fn() -> Result<(), ShapeError>,
    ) -> Result<(String, BlobInfo), ShapeError> {
        let Self {
            json,
            spools,
            size_bytes,
            limit_bytes,
            is_error,
            result_type,
        } = self;
        let stored = if spools.are_none() {
            store.put(json.into_bytes().into()).await
        } else {
            let mut writer = store.writer().map_err(ShapeError::Store)?;
            spools.write_filled(&json, writer.as_mut())?;
            go_on()?;
            writer.publish()
        };
        let info = BlobInfo {
            blob: stored.map_err(ShapeError::Store)?.blob,
            media_type: "application/json".to_owned(),
            declared_media_type: None,
            size_bytes: size_bytes as u64,
        };
        let note = note(&info, limit_bytes);
        let mut object = ObjectWriter::new();
        object.member("content", &note);
        if is_error {
            object.member("isError", "true");
        }
        if let Some(result_type) = result_type {
            object.member("resultType", &result_type);
        }
        Ok((object.finish(), info))
    }
}

/// The content that stands for a reply that is stored whole.
fn note(info: &BlobInfo, limit_bytes: usize) -> String {
    let BlobInfo { blob, size_bytes, .. } = info;
    let note = format!(
        "The reply of this tool has {size_bytes} bytes, above the limit of {limit_bytes}, so it was stored whole as \
         {blob} (application/json); nothing was cut. Read that blob for the full reply, or call the tool again for less."
    );
    let mut text = ObjectWriter::new();
    text.text_member("type", "text");
    text.text_member("text", &note);
    let link = block::link(info, "reply.json");
    format!("[{},{}]", text.finish(), link.finish())
}
