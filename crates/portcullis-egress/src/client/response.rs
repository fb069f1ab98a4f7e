use std::{fmt, time::Duration};

use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use url::Url;

use crate::{
    EgressError, Limits,
    body::{Body, Reading},
};

/// An answer whose body is still to come.
pub struct GuardedResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) url: Url,
    pub(super) body: Body,
    pub(super) limits: Limits,
    pub(super) deadline: Instant,
}

impl GuardedResponse {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers. `content-encoding` is as the server sent it, though the body comes decompressed.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Where the answer came from, after all redirects.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The whole body, decompressed.
    ///
    /// # Errors
    /// [`EgressError`] where it is too large on the wire or decompressed, stands still, or takes too long.
    pub async fn bytes(self) -> Result<Bytes, EgressError> {
        self.body.collect(&self.limits, self.deadline).await
    }

    /// At most the first `most` bytes of the body; fewer where it breaks, or has not come within ten seconds. For a
    /// message to a person.
    pub async fn prefix(self, most: usize) -> Vec<u8> {
        self.body.prefix(most, &self.limits, self.deadline).await
    }

    /// The body piece by piece as it comes, decompressed, in the time that [`bytes`](Self::bytes) has: for who does not
    /// keep all of it. On the wire too it may have [`Limits::decoded_bytes`]. After an error it ends.
    pub fn into_pieces(self) -> impl Stream<Item = Result<Bytes, EgressError>> + Send + 'static {
        let reading = Reading {
            idle: Some(self.limits.idle),
            deadline: Some((self.deadline, self.limits.total)),
            most: Some((self.limits.decoded_bytes, self.limits.decoded_bytes)),
        };
        pieces(self.body, reading)
    }

    /// The body piece by piece as it comes, decompressed: no limit on its length or time, only on silence, and none
    /// on that where `idle` is `None`. After an error it ends.
    pub fn into_stream(
        self,
        idle: Option<Duration>,
    ) -> impl Stream<Item = Result<Bytes, EgressError>> + Send + 'static {
        let reading = Reading {
            idle,
            deadline: None,
            most: None,
        };
        pieces(self.body, reading)
    }
}

fn pieces(body: Body, reading: Reading) -> impl Stream<Item = Result<Bytes, EgressError>> + Send + 'static {
    futures::stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match body.chunk(reading).await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(body))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}

impl fmt::Debug for GuardedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
