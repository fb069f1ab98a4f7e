use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::said::without;

/// The last answer that was none, in words for people: the SDK keeps only the name of a failure. And how long the
/// server asked to be left alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Complaint(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Values that the server is given and may send back, the longest first: they are never shown.
    secrets: Arc<[SecretString]>,
    reason: Option<String>,
    /// Why the connection was ended, where it was for a reason of the server's.
    ended: Option<String>,
    leave_alone: Option<(Instant, Duration)>,
}

impl Complaint {
    pub(crate) fn last(&self) -> Option<String> {
        self.lock().reason.clone()
    }

    /// What is left of the time for which the server asked to be left alone.
    pub(crate) fn left_alone_for(&self) -> Option<Duration> {
        let (since, wait) = self.lock().leave_alone?;
        Some(wait.saturating_sub(since.elapsed())).filter(|left| !left.is_zero())
    }

    pub(crate) fn say(&self, reason: &str) {
        self.lock().reason = Some(reason.to_owned());
    }

    /// Ends a connection that is of no use any more. Of several reasons the first counts.
    pub(crate) fn end(&self, connection: &CancellationToken, why: &str) {
        self.lock().ended.get_or_insert_with(|| why.to_owned());
        connection.cancel();
    }

    /// Why the connection was ended. What was last said may be another call's, which ended nothing.
    pub(crate) fn why_ended(&self) -> Option<String> {
        self.lock().ended.clone()
    }

    pub(super) fn leave_alone(&self, wait: Duration) {
        self.lock().leave_alone = Some((Instant::now(), wait));
    }

    /// A later answer was one: nothing of what was said before counts.
    pub(super) fn withdraw(&self) {
        let mut said = self.lock();
        said.reason = None;
        said.leave_alone = None;
    }

    /// Remembers the values that are never shown.
    pub(super) fn keep(&self, secrets: &[SecretString]) {
        let secrets = secrets.iter().map(|secret| secret.expose_secret());
        let mut values: Vec<_> = secrets
            // A word or two of letters is no secret, and its letters stand everywhere.
            .filter(|value| value.len() > 3)
            .collect();
        // One that is a part of another must not leave the rest of that other behind.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        self.lock().secrets = values.into_iter().map(SecretString::from).collect();
    }

    /// `text` without the values that the server is given.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
        let secrets = Arc::clone(&self.lock().secrets);
        let hide = |text: String, secret: &SecretString| without(&text, secret.expose_secret());
        secrets.iter().fold(text.to_owned(), hide)
    }

    /// Another handshake is tried. What the server asked for stands.
    pub(crate) fn begin(&self) {
        let mut said = self.lock();
        said.reason = None;
        said.ended = None;
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
