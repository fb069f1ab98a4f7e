//! Collecting a store's garbage for as long as a hub runs.

use std::{sync::Arc, time::Duration};

use portcullis_blobs::{BlobStore, GcOptions};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use crate::clock;

/// How often it is collected.
const EVERY: Duration = Duration::from_secs(3_600);

/// Collects what nothing keeps, at once and then every hour. Dropped, it ends.
#[derive(Debug)]
pub struct Collector(JoinHandle<()>);

impl Collector {
    /// Begins to collect what was put into `store` longer than `retention` ago and is kept by nothing. What fails is
    /// logged and tried again the next time: no call depends on it.
    #[must_use]
    pub fn start(store: Arc<dyn BlobStore>, retention: Duration) -> Self {
        Self(tokio::spawn(async move {
            let mut turns = interval(EVERY);
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                turns.tick().await;
                let options = GcOptions {
                    retention,
                    ..GcOptions::at(clock::unix_ms())
                };
                match store.gc(options).await {
                    Ok(report) => tracing::info!(?report, "collected what nothing keeps"),
                    Err(error) => tracing::warn!(%error, "the blob store's garbage could not be collected"),
                }
            }
        }))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use portcullis_blobs::{Bytes, MemStore};

    use super::*;

    async fn is_there(store: &MemStore, blob: portcullis_blobs::BlobRef) -> bool {
        store.size_bytes(blob).await.unwrap().is_some()
    }

    /// Nothing else keeps it: its session is over, and it has no tag.
    async fn litter(store: &MemStore, content: &'static [u8]) -> portcullis_blobs::BlobRef {
        let session = store.session();
        session.put(Bytes::from_static(content)).await.unwrap().blob
    }

    #[tokio::test(start_paused = true)]
    async fn what_nothing_keeps_goes_at_once_and_every_hour_until_it_ends() {
        let store = Arc::new(MemStore::default());
        let (first, kept) = (
            litter(&store, b"a").await,
            store.put(Bytes::from_static(b"k")).await,
        );
        let collector = Collector::start(Arc::clone(&store) as _, Duration::ZERO);
        while is_there(&store, first).await {
            tokio::task::yield_now().await;
        }
        let second = litter(&store, b"b").await;
        tokio::time::sleep(EVERY - Duration::from_secs(1)).await;
        assert!(is_there(&store, second).await);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!is_there(&store, second).await);
        drop(collector);
        let third = litter(&store, b"c").await;
        tokio::time::sleep(3 * EVERY).await;
        assert!(is_there(&store, third).await && is_there(&store, kept.unwrap().blob).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_stored_a_shorter_while_ago_than_it_is_retained_stays() {
        let store = Arc::new(MemStore::default());
        let blob = litter(&store, b"a").await;
        // No time passes on the clock by which blobs are dated.
        let _collector = Collector::start(Arc::clone(&store) as _, EVERY);
        tokio::time::sleep(3 * EVERY).await;
        assert!(is_there(&store, blob).await);
    }
}
