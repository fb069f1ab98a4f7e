use std::time::Duration;

use super::Context;
use crate::{Code, Profile, Timeouts, draft::TimeoutsDraft, source::Sink, value::Spanned};

const STRICT_MIN: u64 = 1_000;
const STRICT_MAX: u64 = 300_000;
const STRICT_DEFAULT: u64 = 60_000;
/// The cap of a call of a server that is marked as long running.
const LONG_RUNNING: Duration = Duration::from_secs(3_600);

pub(super) fn build(draft: &TimeoutsDraft, context: &Context<'_>, sink: &mut Sink<'_>) -> Timeouts {
    let each = draft.each.as_ref().map(|each| each.value).or(context.timeout);
    let each = match (each, context.profile) {
        (Some(each), _) => Duration::from_millis(each),
        (None, Profile::Strict) => Duration::from_millis(STRICT_DEFAULT),
        (None, Profile::Desktop) => Timeouts::DEFAULT,
    };
    let own = |field: &Option<Spanned<u64>>| field.as_ref().map(|field| Duration::from_millis(field.value));
    let mut timeouts = Timeouts::uniform(each);
    timeouts.connect = own(&draft.connect).unwrap_or(timeouts.connect);
    timeouts.list = own(&draft.list).unwrap_or(timeouts.list);
    timeouts.call = own(&draft.call).unwrap_or(timeouts.call);
    timeouts.call_max = match own(&draft.call_max) {
        Some(call_max) => call_max,
        None if draft.long_running => LONG_RUNNING.max(timeouts.call),
        None => timeouts.call.saturating_mul(10),
    };
    if let Some(call_max) = &draft.call_max
        && timeouts.call_max < timeouts.call
    {
        let message = format!(
            "`callMaxMs` is shorter than the {} ms of a call",
            timeouts.call.as_millis()
        );
        sink.error(
            Code::BadValue,
            call_max.span,
            message,
            "give at least as much, or leave it out",
        );
    }
    if context.profile == Profile::Strict {
        for given in [&draft.each, &draft.connect, &draft.list, &draft.call]
            .into_iter()
            .flatten()
        {
            strict_range(given, sink);
        }
    }
    timeouts
}

/// Whether a timeout is one that the strict profile takes; an error where it is not.
pub(crate) fn strict_range(given: &Spanned<u64>, sink: &mut Sink<'_>) -> bool {
    let fits = (STRICT_MIN..=STRICT_MAX).contains(&given.value);
    if !fits {
        let message = format!(
            "a timeout of {} ms is outside what the strict profile takes",
            given.value
        );
        sink.error(
            Code::BadValue,
            given.span,
            message,
            format!("write {STRICT_MIN} to {STRICT_MAX}"),
        );
    }
    fits
}
