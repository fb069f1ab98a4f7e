//! What a document says of results: how they are shaped, and the store for what is large or binary in them.

use std::time::Duration;

use crate::{
    Code, Setting,
    fields::Fields,
    source::{Sink, quote},
    value::{Duplicate, Spanned},
};

/// The most that a reply may have which is handed on, in bytes: what the hub puts back into memory of one.
const MAX_REPLY_BYTES: u64 = 64 << 20;

/// The longest time that blobs are kept for, in seconds: ten years.
const MAX_SECONDS: u64 = 10 * 365 * 86_400;

/// The names of what is read here, one level down. Where one of them stands elsewhere, it was meant for here.
pub(crate) const NAMES: &[&str] = &[
    "maxReplyBytes",
    "oversize",
    "dataUrlMinBytes",
    "durability",
    "quotaBytes",
    "maxBlobBytes",
    "retentionSeconds",
    "sessionSeconds",
];

/// How results are shaped, as documents say it. What none says is for the hub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultSettings {
    /// The largest reply that is handed on, in bytes, after binary content was replaced.
    pub max_reply_bytes: Option<Setting<u64>>,
    /// What becomes of a larger one.
    pub oversize: Option<Setting<OversizeReplies>>,
    /// From which size on, in bytes of its text, a data URL in text, or base64 in structured content, goes to the store.
    pub data_url_min_bytes: Option<Setting<u64>>,
}

/// What becomes of replies above the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OversizeReplies {
    /// They are stored whole, and a note with a reference takes their place.
    Spill,
    /// Their calls fail.
    Reject,
}

/// The store of results' binary content, as documents say it. What none says is for the hub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobSettings {
    /// What outlasts a power cut.
    pub durability: Option<Setting<BlobDurability>>,
    /// What all blobs together may take, in bytes.
    pub quota_bytes: Option<Setting<u64>>,
    /// The largest single blob, in bytes.
    pub max_blob_bytes: Option<Setting<u64>>,
    /// How long what nothing keeps stays. A hub that is told collects what is older.
    pub retention: Option<Setting<Duration>>,
    /// How long what a session stored is kept under the session's name.
    pub session: Option<Setting<Duration>>,
}

/// What of a store outlasts a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobDurability {
    /// Every blob, each synced by itself.
    Fsync,
    /// Every blob, those that are stored at the same time synced together.
    Group,
    /// What the operating system had written.
    None,
}

/// Both, as they were written.
#[derive(Clone, Default)]
pub(crate) struct ResultsDraft {
    /// Whether the document says anything of either.
    pub(crate) stated: bool,
    /// Whether something in it could not be read. It may have been a limit, and without it more would be let through.
    pub(crate) broken: bool,
    pub(crate) max_reply_bytes: Option<Spanned<u64>>,
    pub(crate) oversize: Option<Spanned<OversizeReplies>>,
    pub(crate) data_url_min_bytes: Option<Spanned<u64>>,
    pub(crate) durability: Option<Spanned<BlobDurability>>,
    pub(crate) quota_bytes: Option<Spanned<u64>>,
    pub(crate) max_blob_bytes: Option<Spanned<u64>>,
    pub(crate) retention_seconds: Option<Spanned<u64>>,
    pub(crate) session_seconds: Option<Spanned<u64>>,
}

impl OversizeReplies {
    const ALL: [Self; 2] = [Self::Spill, Self::Reject];

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spill => "spill",
            Self::Reject => "reject",
        }
    }
}

impl BlobDurability {
    const ALL: [Self; 3] = [Self::Fsync, Self::Group, Self::None];

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Group => "group",
            Self::None => "none",
        }
    }
}

impl ResultsDraft {
    /// Reads `results` and `blobs`.
    pub(crate) fn read(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Self {
        let mut draft = Self::default();
        let before = sink.errors();
        let mut duplicates = Vec::new();
        let results = fields.take("results");
        let blobs = fields.take("blobs");
        draft.stated = results.is_some() || blobs.is_some();
        for member in results.iter().chain(&blobs) {
            member.value.duplicates(&mut duplicates);
        }
        let own = |duplicate: &&Duplicate| matches!(duplicate.key.value.as_str(), "results" | "blobs");
        duplicates.extend(fields.object().duplicates.iter().filter(own));
        if let Some(member) = results
            && let Some(each) = Fields::of(&member.value, "`results`", sink)
        {
            let mut each = each.under("results.").of_limits();
            draft.max_reply_bytes = each.number("maxReplyBytes", MAX_REPLY_BYTES, sink);
            draft.oversize = word(
                "oversize",
                OversizeReplies::ALL.map(|word| (word.name(), word)),
                "write `spill` or `reject`",
                &mut each,
                sink,
            );
            draft.data_url_min_bytes = each.number("dataUrlMinBytes", MAX_REPLY_BYTES, sink);
            each.finish(sink);
        }
        if let Some(member) = blobs
            && let Some(each) = Fields::of(&member.value, "`blobs`", sink)
        {
            let mut each = each.under("blobs.").of_limits();
            draft.durability = word(
                "durability",
                BlobDurability::ALL.map(|word| (word.name(), word)),
                "write `fsync`, `group` or `none`",
                &mut each,
                sink,
            );
            draft.quota_bytes = each.number("quotaBytes", u64::MAX, sink);
            draft.max_blob_bytes = each.number("maxBlobBytes", u64::MAX, sink);
            draft.retention_seconds = each.number("retentionSeconds", MAX_SECONDS, sink);
            draft.session_seconds = each.number("sessionSeconds", MAX_SECONDS, sink);
            each.finish(sink);
        }
        draft.weigh(sink);
        draft.broken = sink.errors() > before || !duplicates.is_empty();
        draft
    }

    /// A blob that the quota can never hold is refused by it, whatever `maxBlobBytes` says.
    fn weigh(&self, sink: &mut Sink<'_>) {
        if let (Some(most), Some(quota)) = (&self.max_blob_bytes, &self.quota_bytes)
            && most.value > quota.value
        {
            let message = format!(
                "`maxBlobBytes` is {}, above `quotaBytes`, which is {}",
                most.value, quota.value
            );
            let help = "the quota counts: lower `maxBlobBytes`, or raise the quota";
            sink.warning(Code::IgnoredField, most.span, message, help);
        }
    }
}

/// One of some words.
fn word<T>(
    name: &'static str,
    words: impl IntoIterator<Item = (&'static str, T)>,
    help: &str,
    fields: &mut Fields<'_>,
    sink: &mut Sink<'_>,
) -> Option<Spanned<T>> {
    let text = fields.text(name, sink)?;
    let mut words = words.into_iter();
    match words.find(|(word, _)| *word == text.value) {
        Some((_, value)) => Some(Spanned {
            value,
            span: text.span,
        }),
        None => {
            let message = format!("`{name}` is {}", quote(&text.value));
            sink.error(Code::BadValue, text.span, message, help);
            None
        }
    }
}
