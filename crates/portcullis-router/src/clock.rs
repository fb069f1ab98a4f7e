use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch: for events, and for policies that read the time.
pub(crate) fn unix_ms() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the router is a shell: the wall clock is read here"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
