//! What documents say of results, of their store and of agents, as the hub's parts are told it.

use std::{collections::BTreeMap, time::Duration};

use portcullis_blobs::{Durability, FsOptions, Limits};
use portcullis_config::{BlobDurability, BlobSettings, OversizeReplies, ResultSettings, Setting, Settings};
use portcullis_router::{Oversize, ShapeOptions};
use portcullis_types::AgentId;

/// The store's options. What no document says is as ever.
pub(crate) fn blob_options(settings: &BlobSettings) -> FsOptions {
    let defaults = FsOptions::default();
    let durability = settings.durability.as_ref().map(|set| match set.value {
        BlobDurability::Fsync => Durability::Fsync,
        BlobDurability::Group => Durability::Group,
        BlobDurability::None => Durability::None,
    });
    FsOptions {
        durability: durability.unwrap_or(defaults.durability),
        limits: Limits {
            max_blob_bytes: value(&settings.max_blob_bytes).unwrap_or(defaults.limits.max_blob_bytes),
            quota_bytes: value(&settings.quota_bytes).or(defaults.limits.quota_bytes),
        },
        helpers: defaults.helpers,
    }
}

/// How results are shaped. What no document says is as ever.
pub(crate) fn shape_options(settings: &ResultSettings) -> ShapeOptions {
    let defaults = ShapeOptions::default();
    let bytes = |setting| value(setting).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let oversize = settings.oversize.as_ref().map(|set| match set.value {
        OversizeReplies::Spill => Oversize::Spill,
        OversizeReplies::Reject => Oversize::Reject,
    });
    ShapeOptions {
        max_reply_bytes: bytes(&settings.max_reply_bytes).unwrap_or(defaults.max_reply_bytes),
        oversize: oversize.unwrap_or(defaults.oversize),
        data_url_min_bytes: bytes(&settings.data_url_min_bytes).unwrap_or(defaults.data_url_min_bytes),
    }
}

/// How long what nothing keeps stays, where the documents leave no doubt of it: what was collected does not come back.
pub(crate) fn retention(settings: &Settings) -> Option<Duration> {
    let retention = value(&settings.blobs.retention)?;
    if settings.retention_unclear {
        tracing::warn!(
            "nothing is collected from the blob store: a document cannot be read, or has another `blobs.retentionSeconds`"
        );
        return None;
    }
    Some(retention)
}

/// The profile of each agent that is named.
pub(crate) fn profiles(agents: Option<Setting<BTreeMap<AgentId, String>>>) -> BTreeMap<AgentId, AgentId> {
    let named = agents.map(|agents| agents.value).unwrap_or_default();
    // A name that is none was an error of its document.
    let read = |(agent, profile): (AgentId, String)| Some((agent, profile.parse().ok()?));
    named.into_iter().filter_map(read).collect()
}

pub(crate) fn value<T: Copy>(setting: &Option<Setting<T>>) -> Option<T> {
    setting.as_ref().map(|setting| setting.value)
}
