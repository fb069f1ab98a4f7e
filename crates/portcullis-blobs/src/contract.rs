//! What every store promises, run against each of them.

use std::{io, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use portcullis_types::{BlobRef, Hash};

use crate::{BlobError, BlobStore, Durability, FsOptions, FsStore, Limits, MemStore};

mod keeping;
mod reading;

/// Runs `promise` against a fresh store of each kind that takes what `limits` allow.
fn check<F: Future<Output = ()>>(limits: Limits, promise: impl Fn(Arc<dyn BlobStore>) -> F) {
    let all = [Durability::Fsync, Durability::Group, Durability::None];
    check_with(&all, limits, promise);
}

/// The same where so much is put that syncing each would take long.
fn check_unsynced<F: Future<Output = ()>>(limits: Limits, promise: impl Fn(Arc<dyn BlobStore>) -> F) {
    check_with(&[Durability::None], limits, promise);
}

fn check_with<F: Future<Output = ()>>(
    durabilities: &[Durability],
    limits: Limits,
    promise: impl Fn(Arc<dyn BlobStore>) -> F,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(promise(Arc::new(MemStore::new(limits))));
    for &durability in durabilities {
        let parent = tempfile::tempdir().unwrap();
        let options = FsOptions {
            durability,
            limits,
            ..FsOptions::default()
        };
        let store = FsStore::open(&parent.path().join("blobs"), options).unwrap();
        runtime.block_on(promise(Arc::new(store)));
    }
}

fn content(size: usize) -> Bytes {
    (0..size)
        .map(|at| (at * 7 % 251) as u8)
        .collect::<Vec<_>>()
        .into()
}

fn pieces(content: &Bytes, size: usize) -> crate::ByteStream<'static> {
    let pieces: Vec<_> = content
        .chunks(size.max(1))
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    stream::iter(pieces).boxed()
}

#[test]
fn what_was_put_comes_back_under_its_hash() {
    check(Limits::default(), |store| async move {
        for size in [0, 1, 4095, 1 << 20, (1 << 20) + 1] {
            let content = content(size);
            let stored = store.put(content.clone()).await.unwrap();
            assert_eq!(stored.blob, BlobRef(Hash::of(&content)));
            assert_eq!((stored.size_bytes, stored.existed), (size as u64, false));
            assert_eq!(store.get(stored.blob).await.unwrap(), content);
            assert_eq!(store.size_bytes(stored.blob).await.unwrap(), Some(size as u64));
        }
    });
}

#[test]
fn a_stream_gives_the_same_blob_as_the_whole() {
    check(Limits::default(), |store| async move {
        let content = content(700_001);
        for (piece, existed) in [(1_000, false), (600_000, true), (700_001, true)] {
            let stored = store.put_stream(pieces(&content, piece)).await.unwrap();
            assert_eq!(
                (stored.blob, stored.existed),
                (BlobRef(Hash::of(&content)), existed)
            );
            assert_eq!(stored.size_bytes, 700_001);
        }
        assert!(store.put(content.clone()).await.unwrap().existed);
        assert_eq!(store.get(BlobRef(Hash::of(&content))).await.unwrap(), content);
        assert_eq!(
            store.put_stream(stream::empty().boxed()).await.unwrap().blob,
            BlobRef(Hash::of(b""))
        );
    });
}

#[test]
fn a_writer_gives_the_same_blob_as_the_whole_or_nothing() {
    let limits = Limits {
        max_blob_bytes: 500_000,
        quota_bytes: Some(700_000),
    };
    check(limits, |store| async move {
        let content = content(400_000);
        let blob = BlobRef(Hash::of(&content));
        let write = || {
            let mut writer = store.writer().unwrap();
            content
                .chunks(70_001)
                .for_each(|piece| writer.write(piece).unwrap());
            assert_eq!((writer.size_bytes(), writer.blob()), (400_000, blob));
            writer
        };
        // It is no blob before it is published, and gives its room back where it never is.
        drop(write());
        assert_eq!(store.size_bytes(blob).await.unwrap(), None);
        let writer = write();
        let mut buffer = [0; 1_000];
        assert_eq!(writer.read_at(399_500, &mut buffer).unwrap(), 500);
        assert_eq!(buffer[..500], content[399_500..]);
        assert_eq!(writer.read_at(400_000, &mut buffer).unwrap(), 0);
        assert!(!writer.publish().unwrap().existed);
        assert_eq!(store.get(blob).await.unwrap(), content);
        let mut second = store.writer().unwrap();
        assert!(matches!(second.write(&content), Err(BlobError::Quota { .. })));
        drop(second);
        let mut third = store.writer().unwrap();
        third.write(&content[..250_000]).unwrap();
        assert!(matches!(
            third.write(&[0; 250_001]),
            Err(BlobError::TooLarge { .. } | BlobError::Quota { .. })
        ));
        drop(third);
        assert_eq!(store.stats().await.unwrap().blobs, 1);
    });
}

/// Whoever goes on all the same gets an error: what is there is not what the hash says, or not all of it.
#[test]
fn a_writer_that_failed_publishes_nothing() {
    let limits = Limits {
        max_blob_bytes: 100,
        quota_bytes: Some(150),
    };
    check(limits, |store| async move {
        store.put(content(90)).await.unwrap();
        for too_much in [61, 101] {
            let mut writer = store.writer().unwrap();
            writer.write(&[1; 20]).unwrap();
            writer.write(&vec![2; too_much]).unwrap_err();
            // What would have had room.
            assert!(matches!(writer.write(&[3; 5]), Err(BlobError::Source(_))));
            assert!(matches!(writer.publish(), Err(BlobError::Source(_))));
            assert_eq!(store.stats().await.unwrap().blobs, 1, "{too_much}");
        }
        // Nor has it kept its room.
        assert!(!store.put(vec![4; 60].into()).await.unwrap().existed);
    });
}

#[test]
fn what_was_never_put_is_not_found() {
    check(Limits::default(), |store| async move {
        let blob = BlobRef(Hash::of(b"never put"));
        assert!(matches!(store.get(blob).await, Err(BlobError::NotFound(missing)) if missing == blob));
        assert_eq!(store.size_bytes(blob).await.unwrap(), None);
    });
}

#[test]
fn a_stream_that_fails_leaves_nothing() {
    check(
        Limits {
            max_blob_bytes: 1 << 20,
            quota_bytes: Some(400_000),
        },
        |store| async move {
            let broken =
                stream::iter([Ok(content(300_000)), Err(io::Error::other("the pipe broke"))]).boxed();
            assert!(matches!(
                store.put_stream(broken).await,
                Err(BlobError::Source(_))
            ));
            assert_eq!(
                store
                    .size_bytes(BlobRef(Hash::of(&content(300_000))))
                    .await
                    .unwrap(),
                None
            );
            // Its room was given back.
            store.put(content(400_000)).await.unwrap();
        },
    );
}

#[test]
fn limits_refuse_what_is_too_much_and_nothing_else() {
    check(
        Limits {
            max_blob_bytes: 600_000,
            quota_bytes: Some(1_000_000),
        },
        |store| async move {
            for refused in [
                store.put(content(600_001)).await,
                store.put_stream(pieces(&content(600_001), 50_000)).await,
            ] {
                assert!(
                    matches!(refused, Err(BlobError::TooLarge { limit_bytes: 600_000 })),
                    "{refused:?}"
                );
            }
            store.put(content(600_000)).await.unwrap();
            for refused in [
                store.put(content(400_001)).await,
                store.put_stream(pieces(&content(400_001), 50_000)).await,
            ] {
                assert!(
                    matches!(
                        refused,
                        Err(BlobError::Quota {
                            quota_bytes: 1_000_000,
                            ..
                        })
                    ),
                    "{refused:?}"
                );
            }
            // What is stored already takes no more room.
            assert!(store.put(content(600_000)).await.unwrap().existed);
            store.put(content(400_000)).await.unwrap();
        },
    );
}

/// A file takes its room on the disk however little is in it.
#[test]
fn a_quota_is_not_passed_by_many_small_blobs() {
    let limits = Limits {
        quota_bytes: Some(100_000),
        ..Limits::default()
    };
    check_unsynced(limits, |store| async move {
        let small = |number: u32| Bytes::copy_from_slice(&number.to_le_bytes());
        let session = store.session();
        for number in 0..1_024 {
            session.put(small(number)).await.unwrap();
        }
        let refused = [
            store.put(small(1_024)).await,
            store.put_stream(pieces(&small(1_024), 2)).await,
        ];
        for refused in refused {
            assert!(
                matches!(
                    refused,
                    Err(BlobError::TooMany {
                        most_blobs: 1_024,
                        quota_bytes: 100_000
                    })
                ),
                "{refused:?}"
            );
        }
        assert!(store.put(small(7)).await.unwrap().existed);
        drop(session);
        let retention = std::time::Duration::ZERO;
        let options = crate::GcOptions {
            retention,
            ..crate::GcOptions::at(4_000_000_000_000)
        };
        assert_eq!(store.gc(options).await.unwrap().removed, 1_023);
        store.put(small(1_024)).await.unwrap();
    });
}

#[test]
fn sixty_four_writers_of_one_hash_make_one_blob() {
    check(
        Limits {
            quota_bytes: Some(64 * 300_000),
            ..Limits::default()
        },
        |store| async move {
            let (content, rest) = (content(300_000), content(63 * 300_000));
            let writers = (0..64).map(|at| {
                let (store, content) = (Arc::clone(&store), content.clone());
                tokio::spawn(async move {
                    if at % 2 == 0 {
                        store.put(content).await
                    } else {
                        store.put_stream(pieces(&content, 70_000)).await
                    }
                })
            });
            let stored: Vec<_> = join_all(writers)
                .await
                .into_iter()
                .map(|writer| writer.unwrap().unwrap())
                .collect();
            assert_eq!(stored.iter().filter(|stored| !stored.existed).count(), 1);
            assert!(
                stored
                    .iter()
                    .all(|stored| stored.blob == BlobRef(Hash::of(&content)))
            );
            assert_eq!(store.get(BlobRef(Hash::of(&content))).await.unwrap(), content);
            let listed: Vec<_> = store.list().map(|entry| entry.unwrap().blob).collect().await;
            assert_eq!(listed, [BlobRef(Hash::of(&content))]);
            // Only one of them is counted.
            store.put_stream(pieces(&rest, 1 << 20)).await.unwrap();
        },
    );
}

#[test]
fn a_dropped_put_leaves_the_whole_blob_or_nothing() {
    let quota = Limits {
        quota_bytes: Some(1_000_000),
        ..Limits::default()
    };
    check(quota, |store| async move {
        // A stream whose second piece never comes: the first is written when it is asked for.
        let (asked, second) = tokio::sync::oneshot::channel();
        let never = stream::once(async move {
            asked.send(()).unwrap();
            std::future::pending().await
        });
        let stuck = stream::iter([Ok(content(300_000))]).chain(never).boxed();
        tokio::select! {
            stored = store.put_stream(stuck) => panic!("{stored:?}"),
            asked = second => asked.unwrap(),
        }
        // Its room was given back.
        store.put(content(1_000_000)).await.unwrap();
        let part = BlobRef(Hash::of(&content(300_000)));
        assert_eq!(store.size_bytes(part).await.unwrap(), None);
    });
}
