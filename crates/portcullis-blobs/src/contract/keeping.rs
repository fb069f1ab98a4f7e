//! Sessions, tags and what a collection takes.

use std::time::Duration;

use super::*;
use crate::{GcOptions, GcReport, Tag, TagName};

/// Long after anything that these tests put.
const FAR_MS: i64 = 4_000_000_000_000;

/// A collection that takes whatever nothing keeps.
async fn collect(store: &Arc<dyn BlobStore>) -> GcReport {
    let retention = Duration::ZERO;
    store
        .gc(GcOptions {
            retention,
            ..GcOptions::at(FAR_MS)
        })
        .await
        .unwrap()
}

async fn is_there(store: &Arc<dyn BlobStore>, blob: BlobRef) -> bool {
    store.size_bytes(blob).await.unwrap().is_some()
}

/// Content that is kept in the same place as `blob`, where a store has several.
fn beside(blob: BlobRef) -> Bytes {
    let is_beside = |content: &Bytes| Hash::of(content).as_bytes()[0] == blob.0.as_bytes()[0];
    let mut all = (0_u32..).map(|number| Bytes::from(number.to_string()));
    all.find(is_beside).unwrap()
}

fn tag(name: &str, blob: BlobRef, expires_ms: Option<i64>) -> Tag {
    Tag {
        name: name.parse().unwrap(),
        blob,
        expires_ms,
    }
}

#[test]
fn what_a_session_put_or_found_stays_until_it_is_gone() {
    check(Limits::default(), |store| async move {
        let session = store.session();
        let (mine, found) = (content(10), content(20));
        let other = store.session();
        other.put(found.clone()).await.unwrap();
        let mine = session.put(mine).await.unwrap().blob;
        let found = session.put(found).await.unwrap();
        assert!(found.existed);
        drop(other);
        let streamed = session
            .put_stream(pieces(&content(300_000), 1_000))
            .await
            .unwrap();
        assert_eq!(collect(&store).await.removed, 0);

        drop(session);
        let report = collect(&store).await;
        assert_eq!(
            (report.examined, report.removed, report.removed_bytes),
            (3, 3, 300_030)
        );
        for blob in [mine, found.blob, streamed.blob] {
            assert!(!is_there(&store, blob).await);
        }
        // What was collected is written anew.
        assert!(!store.put(content(10)).await.unwrap().existed);
        assert_eq!(collect(&store).await.removed, 0);
        assert!(is_there(&store, mine).await);
    });
}

#[test]
fn a_tag_keeps_its_blob_until_it_expires_or_is_taken_away() {
    check(Limits::default(), |store| async move {
        let session = store.session();
        let mut blobs = Vec::new();
        for size in 1..=4 {
            blobs.push(session.put(content(size)).await.unwrap().blob);
        }
        drop(session);
        let [lasting, later, expired, twice] = blobs.try_into().unwrap();
        for tag in [
            tag("keep", lasting, None),
            tag("keep", later, Some(FAR_MS + 1)),
            tag("keep", expired, Some(FAR_MS)),
            tag("one", twice, Some(1)),
            tag("session:7", twice, Some(1)),
            // The same again replaces the expiry.
            tag("one", twice, None),
        ] {
            store.tag(tag).await.unwrap();
        }
        let dry_run = true;
        let options = GcOptions {
            dry_run,
            retention: Duration::ZERO,
            ..GcOptions::at(FAR_MS)
        };
        for options in [options.clone(), options] {
            let report = store.gc(options).await.unwrap();
            assert_eq!((report.removed, report.expired_tags), (1, 2));
            assert_eq!(store.tags().await.unwrap().len(), 5);
        }
        let report = collect(&store).await;
        assert_eq!((report.removed, report.expired_tags), (1, 2));
        assert!(!is_there(&store, expired).await);
        let mut kept = vec![
            tag("keep", lasting, None),
            tag("keep", later, Some(FAR_MS + 1)),
            tag("one", twice, None),
        ];
        kept.sort();
        assert_eq!(store.tags().await.unwrap(), kept);
        assert_eq!(store.stats().await.unwrap().tags, 3);

        let name: TagName = "keep".parse().unwrap();
        assert_eq!(store.untag(name.clone(), Some(lasting)).await.unwrap(), 1);
        assert_eq!(store.untag(name.clone(), Some(lasting)).await.unwrap(), 0);
        collect(&store).await;
        assert!(!is_there(&store, lasting).await && is_there(&store, later).await);
        assert_eq!(store.untag(name, None).await.unwrap(), 1);
        collect(&store).await;
        assert!(!is_there(&store, later).await && is_there(&store, twice).await);
    });
}

#[test]
fn a_tag_that_is_taken_from_one_blob_stays_on_the_others() {
    check(Limits::default(), |store| async move {
        let one = store.put(content(7)).await.unwrap().blob;
        let other = store.put(beside(one)).await.unwrap().blob;
        for tag in [
            tag("keep", one, None),
            tag("keep", other, None),
            tag("too", one, None),
        ] {
            store.tag(tag).await.unwrap();
        }
        let keep: TagName = "keep".parse().unwrap();
        assert_eq!(store.untag(keep, Some(one)).await.unwrap(), 1);
        let left = [tag("keep", other, None), tag("too", one, None)];
        assert_eq!(store.tags().await.unwrap(), left);
    });
}

#[test]
fn what_is_not_stored_cannot_be_tagged() {
    check(Limits::default(), |store| async move {
        let missing = BlobRef(Hash::of(b"never put"));
        let refused = async || {
            assert!(matches!(
                store.tag(tag("keep", missing, None)).await,
                Err(BlobError::NotFound(blob)) if blob == missing
            ));
            assert_eq!(store.tags().await.unwrap(), []);
        };
        refused().await;
        store.put(beside(missing)).await.unwrap();
        refused().await;
    });
}

#[test]
fn retention_keeps_what_was_put_lately_and_a_dry_run_everything() {
    check(Limits::default(), |store| async move {
        let blob = store.session().put(content(5)).await.unwrap().blob;
        // By this clock the blob comes from the future: nothing that a clock says takes it.
        for _ in 0..2 {
            assert_eq!(store.gc(GcOptions::at(0)).await.unwrap().removed, 0);
        }
        let late = GcOptions::at(FAR_MS);
        let dry_run = true;
        let dry = store.gc(GcOptions {
            dry_run,
            ..late.clone()
        });
        assert_eq!(dry.await.unwrap().removed, 1);
        assert!(is_there(&store, blob).await);
        let progress = late.progress.clone();
        assert_eq!(store.gc(late).await.unwrap().removed, 1);
        let (done, total) = progress.get();
        assert!(done == total && total > 0);
        assert!(!is_there(&store, blob).await);
    });
}

#[test]
fn a_collection_makes_room_under_the_quota() {
    let limits = Limits {
        quota_bytes: Some(100),
        ..Limits::default()
    };
    check(limits, |store| async move {
        store.session().put(content(80)).await.unwrap();
        assert!(matches!(
            store.put(content(70)).await,
            Err(BlobError::Quota { .. })
        ));
        assert_eq!(collect(&store).await.removed_bytes, 80);
        store.put(content(70)).await.unwrap();
    });
}
