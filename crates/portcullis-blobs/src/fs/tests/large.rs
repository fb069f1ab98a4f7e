//! Content that is large enough for two threads to share the work.

use super::*;
use crate::Limits;

/// No whole number of parts.
const SIZES: [usize; 2] = [(1 << 20) + 12_345, (8 << 20) + 12_345];

fn content(seed: u32, size: usize) -> Bytes {
    (0..size as u32)
        .map(|at| (at.wrapping_mul(seed) >> 9) as u8)
        .collect::<Vec<_>>()
        .into()
}

#[test]
fn what_is_there_already_needs_no_room_and_what_is_not_leaves_nothing() {
    for size in SIZES {
        let fixture = Fixture::new();
        let options = FsOptions {
            limits: Limits {
                quota_bytes: Some(size as u64 + 1_000),
                ..Limits::default()
            },
            ..FsOptions::default()
        };
        let store = FsStore::open(&fixture.folder(), options).unwrap();
        let put = |content: &Bytes| fixture.runtime.block_on(store.put(content.clone()));
        let kept = content(31, size);
        assert!(!put(&kept).unwrap().existed);
        assert!(put(&kept).unwrap().existed);
        assert_eq!(fixture.temp_files(), 0);
        let refused = put(&content(37, size));
        assert!(matches!(refused, Err(BlobError::Quota { .. })), "{refused:?}");
        assert_eq!(fixture.temp_files(), 0);
        assert_eq!(fixture.get(&store, &kept).unwrap(), kept);
        // What was refused has taken no room.
        fixture.put(&store, &[7; 1_000]).unwrap();
    }
}

/// What was begun in vain is dropped, and takes no room meanwhile.
#[test]
fn what_is_begun_of_content_that_is_there_takes_no_room() {
    for size in SIZES {
        for durability in [Durability::Fsync, Durability::None] {
            let fixture = Fixture::new();
            let options = FsOptions {
                limits: Limits {
                    quota_bytes: Some(2 * size as u64),
                    ..Limits::default()
                },
                durability,
                ..FsOptions::default()
            };
            let put =
                |store: &FsStore, seed| fixture.runtime.block_on(store.put(content(seed, size))).unwrap();
            let store = open_with_helper(&fixture, options);
            assert!(!put(&store, 31).existed);
            for _ in 0..3 {
                assert!(put(&store, 31).existed);
                // One that has not seen it before.
                assert!(put(&open_with_helper(&fixture, options), 31).existed);
                assert_eq!(fixture.temp_files(), 0);
            }
            assert!(!put(&open_with_helper(&fixture, options), 37).existed);
        }
    }
}

/// Else one who puts what is there would keep another from the last room, and nothing would come of it.
#[test]
fn what_is_written_meanwhile_keeps_nobody_out() {
    let fixture = Fixture::new();
    let size = SIZES[0];
    let options = FsOptions {
        limits: Limits {
            quota_bytes: Some(2 * size as u64),
            ..Limits::default()
        },
        ..FsOptions::default()
    };
    let store = FsStore::open(&fixture.folder(), options).unwrap();
    let put = |content: &Bytes| fixture.runtime.block_on(store.put(content.clone()));
    let there = content(31, size);
    put(&there).unwrap();
    let mut hashing = hash::Hashing::begin(&there, &helper::Helpers::at_most(0));
    let begun = store
        .shelf
        .write_meanwhile(&store.session, &there, &mut hashing)
        .unwrap();
    assert!(begun.1.len() < size);
    put(&content(37, size)).unwrap();
    assert!(matches!(put(&content(41, size)), Err(BlobError::Quota { .. })));
}

#[test]
fn a_put_that_nobody_waits_for_leaves_the_whole_blob_or_nothing() {
    for size in SIZES {
        let fixture = Fixture::new();
        let store = fixture.open();
        let whole = content(31, size);
        // Begun, and given up before its first part, or after some.
        for polls in 1..4 {
            fixture.runtime.block_on(async {
                let mut put = store.put(whole.clone());
                (0..polls).all(|_| (&mut put).now_or_never().is_none())
            });
        }
        // What it had begun on another thread ends with the runtime.
        let Fixture { parent, runtime } = fixture;
        drop(runtime);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let fixture = Fixture { parent, runtime };
        assert_eq!(fixture.temp_files(), 0);
        match fixture.get(&store, &whole) {
            Ok(content) => assert_eq!(content, whole),
            // The thread had not come to it yet.
            Err(error) => assert!(matches!(error, BlobError::NotFound(_)), "{error:?}"),
        }
    }
}

#[test]
fn a_runtime_with_one_thread_for_such_work_does_it_too() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        for size in SIZES {
            let content = content(41, size);
            let stored = store.put(content.clone()).await.unwrap();
            assert_eq!(stored.blob, blob(&content));
            assert_eq!(store.get(stored.blob).await.unwrap(), content);
        }
    });
}

#[test]
fn damage_anywhere_is_found() {
    for size in [(512 << 10) + 12_345, (2 << 20) + 12_345] {
        let whole = content(43, size);
        let check = |damage: &dyn Fn(&mut Vec<u8>)| {
            let fixture = Fixture::new();
            let store = fixture.open();
            fixture.runtime.block_on(store.put(whole.clone())).unwrap();
            assert_eq!(fixture.get(&store, &whole).unwrap(), whole);
            let mut damaged = whole.to_vec();
            damage(&mut damaged);
            fs::write(fixture.file(&whole), damaged).unwrap();
            let error = fixture.get(&store, &whole).unwrap_err();
            assert!(matches!(error, BlobError::Corrupt { .. }), "{error:?}");
            assert_eq!(fixture.root_names("quarantine-").len(), 1);
        };
        let part = hash::PART_BYTES;
        for at in (10..size).step_by(part) {
            check(&|content| content[at] ^= 1);
        }
        check(&|content| *content.last_mut().unwrap() ^= 1);
        check(&|content| content.truncate(part * 4));
        check(&|content| content.extend_from_slice(b"more"));
        // Zeros at the end that are no longer there.
        check(&|content| content.push(0));
    }
}

/// The same memory is read into again and again, and never shows what stood there before, nor changes what is looked at.
#[test]
fn what_was_read_stays_while_others_are_read() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let contents: Vec<Bytes> = [700_000, 1 << 20, 600_001, 1_500_000, 524_288]
        .into_iter()
        .enumerate()
        .map(|(number, size)| content(31 + 2 * number as u32, size))
        .collect();
    for content in &contents {
        fixture.runtime.block_on(store.put(content.clone())).unwrap();
    }
    let mut held: Vec<(usize, Bytes)> = Vec::new();
    for round in 0..25 {
        let number = round * 3 % contents.len();
        held.push((number, fixture.get(&store, &contents[number]).unwrap()));
        if round % 2 == 1 {
            held.remove(0);
        }
        for (number, read) in &held {
            assert_eq!(*read, contents[*number]);
        }
        held.truncate(6);
    }
}

/// A store that has a helper which has nothing to do, where this machine has processors for that.
fn open_with_helper(fixture: &Fixture, options: FsOptions) -> FsStore {
    let mut shelf = Shelf::open_or_new(&fixture.folder(), options).unwrap();
    if let Some(helpers) = helper::tests::ready(1) {
        shelf.helpers = helpers;
    }
    FsStore::on(shelf)
}

/// With a helper that comes, one that never does and one that comes too late.
#[test]
fn whoever_helps_it_is_the_same() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let busy = helper::tests::ready(1).inspect(|helpers| {
        assert!(helpers.ask(move || helper::tests::wait_for(&released)));
    });
    let all = [helper::tests::ready(1), helper::tests::ready(2), busy];
    let all = all.into_iter().flatten().chain([helper::Helpers::at_most(0)]);
    for helpers in all {
        let fixture = Fixture::new();
        let mut shelf = Shelf::open_or_new(&fixture.folder(), FsOptions::default()).unwrap();
        shelf.helpers = helpers;
        let store = FsStore::on(shelf);
        for (round, size) in [524_288, 524_289, 700_000, 1 << 20, SIZES[0], SIZES[1]]
            .into_iter()
            .cycle()
            .take(24)
            .enumerate()
        {
            let whole = content(31 + 2 * round as u32, size);
            let stored = fixture.runtime.block_on(store.put(whole.clone())).unwrap();
            assert_eq!(
                (stored.blob, stored.size_bytes, stored.existed),
                (blob(&whole), size as u64, false)
            );
            assert!(fs::read(fixture.file(&whole)).unwrap() == whole, "{size}");
            assert_eq!(fixture.get(&store, &whole).unwrap(), whole);
        }
        assert_eq!(fixture.temp_files(), 0);
    }
    drop(release);
}

#[test]
fn a_helper_that_comes_late_is_not_waited_for_and_finds_nothing() {
    for size in SIZES {
        let fixture = Fixture::new();
        let whole = content(31, size);
        for is_get in [false, true] {
            let Some((helpers, release, helper)) = helper::tests::late() else {
                return;
            };
            let mut shelf = Shelf::open_or_new(&fixture.folder(), FsOptions::default()).unwrap();
            shelf.helpers = helpers;
            let store = FsStore::on(shelf);
            if is_get {
                let read = fixture.get(&store, &whole).unwrap();
                assert!(read == whole);
            } else {
                let stored = fixture.runtime.block_on(store.put(whole.clone())).unwrap();
                assert_eq!((stored.blob, stored.existed), (blob(&whole), false));
            }
            assert_eq!(fixture.temp_files(), 0);
            assert!(whole.is_unique());
            drop(release);
            helper.join().unwrap();
        }
    }
}

/// Told by nothing but its hash: another handle may have put it, or another process.
#[test]
fn what_is_there_is_not_rewritten_whoever_put_it() {
    use std::os::unix::fs::MetadataExt;

    for size in SIZES {
        let fixture = Fixture::new();
        let whole = content(31, size);
        let first = fixture.open();
        assert!(
            !fixture
                .runtime
                .block_on(first.put(whole.clone()))
                .unwrap()
                .existed
        );
        let inode = fs::metadata(fixture.file(&whole)).unwrap().ino();
        let options = FsOptions {
            limits: Limits {
                // None to spare for a file that is written in vain.
                quota_bytes: Some(size as u64),
                ..Limits::default()
            },
            ..FsOptions::default()
        };
        let unsynced = |options| FsOptions {
            durability: Durability::None,
            ..options
        };
        for options in [
            FsOptions::default(),
            unsynced(FsOptions::default()),
            options,
            unsynced(options),
        ] {
            let other = open_with_helper(&fixture, options);
            for _ in 0..2 {
                let stored = fixture.runtime.block_on(other.put(whole.clone())).unwrap();
                assert_eq!((stored.blob, stored.existed), (blob(&whole), true));
                assert_eq!(fixture.temp_files(), 0);
            }
            assert_eq!(fs::metadata(fixture.file(&whole)).unwrap().ino(), inode);
            assert_eq!(fixture.get(&other, &whole).unwrap(), whole);
        }
    }
}

/// That it was put before makes it likely to be there, and no more.
#[test]
fn what_was_put_before_and_is_gone_or_only_looks_like_it_is_written() {
    let fixture = Fixture::new();
    let store = open_with_helper(&fixture, FsOptions::default());
    let whole = content(31, SIZES[0]);
    let put = |content: &Bytes| fixture.runtime.block_on(store.put(content.clone())).unwrap();
    for _ in 0..2 {
        assert!(!put(&whole).existed);
        assert!(put(&whole).existed);
        assert_eq!(fixture.get(&store, &whole).unwrap(), whole);
        fs::remove_file(fixture.file(&whole)).unwrap();
    }
    let mut other = whole.to_vec();
    // Between the places that are looked at.
    other[1_000] ^= 1;
    let other = Bytes::from(other);
    assert!(recent::Mark::of(&other) == recent::Mark::of(&whole));
    let stored = put(&other);
    assert_eq!((stored.blob, stored.existed), (blob(&other), false));
    assert_eq!(fixture.get(&store, &other).unwrap(), other);
}

#[test]
fn a_hundred_at_once_each_get_their_own() {
    let fixture = Fixture::new();
    let store = open_with_helper(&fixture, FsOptions::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let contents: Vec<Bytes> = (0..100)
        .map(|number| content(31 + 2 * (number % 40), (512 << 10) + number as usize % 40))
        .collect();
    runtime.block_on(async {
        let store = &store;
        let all = contents.iter().map(|content| async move {
            let stored = store.put(content.clone()).await.unwrap();
            assert_eq!(stored.blob, blob(content));
            assert_eq!(store.get(stored.blob).await.unwrap(), content);
        });
        futures::future::join_all(all).await;
    });
    assert_eq!(fixture.temp_files(), 0);
    for content in &contents {
        assert_eq!(fs::read(fixture.file(content)).unwrap(), content.as_ref());
    }
}
