//! What documents say for the hub as a whole: the first that says something counts.

use std::{path::PathBuf, time::Duration};

use portcullis_types::Tier;

use super::{super::Setting, Merge};
use crate::{
    Code, Origin,
    draft::HubDraft,
    results::ResultsDraft,
    source::{Sink, quote},
    value::Spanned,
};

const AGENTS: &str = "agents";
const RETENTION: &str = "blobs.retentionSeconds";

impl Merge<'_> {
    /// What decides on calls: of a document either all of it or nothing.
    pub(super) fn deciding(&mut self, hub: &HubDraft, sink: &mut Sink<'_>) {
        if sink.unread.deciding {
            return;
        }
        let policies = hub.policies.as_ref().map(|policies| Spanned {
            value: PathBuf::from(&policies.value),
            span: policies.span,
        });
        if self.deciding_unread {
            self.normalized.settings.agents_unread |= hub.agents.is_some();
            self.normalized.settings.leave_tier_unread(hub.tier.is_some());
            let tier = hub.tier.as_ref().map(|tier| ("tier", tier.span));
            let agents = hub.agents.as_ref().map(|agents| (AGENTS, agents.span));
            let policies = policies.map(|policies| ("policies", policies.span));
            for (name, span) in policies.into_iter().chain(tier).chain(agents) {
                let message = format!(
                    "`{name}` is not used: a document before this one may say otherwise, and cannot be read"
                );
                let help = "mend that document, or leave it out";
                sink.error(Code::SettingConflict, span, message, help);
            }
            return;
        }
        let settings = &mut self.normalized.settings;
        set(&mut settings.policies, "policies", policies, sink);
        let lifting = hub.tier.as_ref().filter(|tier| tier.value == Tier::FullAccess);
        if let Some(tier) = lifting.filter(|_| settings.tier.is_none()) {
            let message = "`tier` is `full_access`: what the policies ask about runs without a question, on the servers \
                           of other documents too";
            let help = "leave it out, and give the tier where the hub is started";
            sink.warning(Code::AsksLifted, tier.span, message, help);
        }
        set(&mut settings.tier, "tier", hub.tier.clone(), sink);
        // Of two maps neither is all of it.
        settings.agents_unread |= is_contradicted(settings.agents.as_ref(), hub.agents.as_ref());
        set(&mut settings.agents, AGENTS, hub.agents.clone(), sink);
    }

    /// What holds for results, and for the store of what is large in them.
    pub(super) fn limits(&mut self, draft: ResultsDraft, sink: &mut Sink<'_>) {
        let seconds = |given: Spanned<u64>| Spanned {
            value: Duration::from_secs(given.value),
            span: given.span,
        };
        let retention = draft.retention_seconds.map(seconds);
        let session = draft.session_seconds.map(seconds);
        let settings = &mut self.normalized.settings;
        let (results, blobs) = (&mut settings.results, &mut settings.blobs);
        settings.retention_unclear |= is_contradicted(blobs.retention.as_ref(), retention.as_ref());
        let (most, least) = (&mut results.max_reply_bytes, &mut results.data_url_min_bytes);
        set(most, "results.maxReplyBytes", draft.max_reply_bytes, sink);
        set(&mut results.oversize, "results.oversize", draft.oversize, sink);
        set(least, "results.dataUrlMinBytes", draft.data_url_min_bytes, sink);
        set(&mut blobs.durability, "blobs.durability", draft.durability, sink);
        set(
            &mut blobs.quota_bytes,
            "blobs.quotaBytes",
            draft.quota_bytes,
            sink,
        );
        let largest = &mut blobs.max_blob_bytes;
        set(largest, "blobs.maxBlobBytes", draft.max_blob_bytes, sink);
        set(&mut blobs.retention, RETENTION, retention, sink);
        set(&mut blobs.session, "blobs.sessionSeconds", session, sink);
    }
}

/// Of a document in which something that it says for all cannot be read, what decides on calls is not taken.
pub(super) fn leave_deciding_unread(hub: &HubDraft, sink: &mut Sink<'_>) {
    sink.unread.deciding |= hub.policies.is_some() || hub.tier.is_some() || hub.agents.is_some();
    sink.unread.agents |= hub.agents.is_some();
    sink.unread.tier |= hub.tier.is_some();
}

/// Whether what is given is another value than what is set.
fn is_contradicted<T: PartialEq>(setting: Option<&Setting<T>>, given: Option<&Spanned<T>>) -> bool {
    setting
        .zip(given)
        .is_some_and(|(first, own)| first.value != own.value)
}

/// Takes over what is given, where nothing is set.
fn set<T: PartialEq>(
    setting: &mut Option<Setting<T>>,
    name: &str,
    given: Option<Spanned<T>>,
    sink: &mut Sink<'_>,
) {
    let Some(given) = given else { return };
    match setting {
        None => {
            let origin = Origin {
                file: sink.source().file.clone(),
                line: sink.source().line(given.span),
                plugin: None,
            };
            *setting = Some(Setting {
                value: given.value,
                origin,
            });
        }
        Some(first) if first.value == given.value => {}
        Some(first) => {
            let Origin { file, line, .. } = &first.origin;
            let counts = match name {
                // What is collected by the wrong one does not come back.
                RETENTION => "so nothing is collected by either",
                // Without its profile an agent may do what policies forbid that.
                AGENTS => "so no hub is started with either",
                _ => "and that one counts",
            };
            let message = format!(
                "`{name}` has another value in {}, line {line}, {counts}",
                quote(file)
            );
            sink.error(
                Code::SettingConflict,
                given.span,
                message,
                "give it in one document only",
            );
        }
    }
}
