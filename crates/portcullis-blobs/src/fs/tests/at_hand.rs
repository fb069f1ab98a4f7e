//! Blobs that are read where the caller runs, since nothing is to be waited for.

use rustix::fs::{Advice, fadvise};
use tokio::time::Instant;

use super::*;
use crate::{Limits, fs::at_hand::TAKEN_UNTIL};

const SIZES: [usize; 5] = [0, 5, 300_000, 700_001, 1 << 20];

fn content(size: usize) -> Bytes {
    (0..size as u32)
        .map(|at| ((at * 31) >> 7) as u8)
        .collect::<Vec<_>>()
        .into()
}

/// What is read by a deadline that does not come.
fn read(store: &FsStore, content: &[u8]) -> Option<Bytes> {
    store
        .shelf
        .read_by(Instant::now() + Duration::from_secs(30), blob(content))
}

/// A helper that is slow makes it give up, and it may try again.
fn is_at_hand(store: &FsStore, content: &[u8]) -> bool {
    let found = (0..100).find_map(|_| read(store, content));
    assert!(found.as_ref().is_none_or(|found| found == content));
    found.is_some()
}

/// A store that holds content of this size. `None` where the file system does not tell what is in memory: then nothing is at
/// hand.
fn holding(size: usize) -> Option<(Fixture, FsStore, Bytes)> {
    let fixture = Fixture::new();
    let store = fixture.open();
    let content = content(size);
    fixture.runtime.block_on(store.put(content.clone())).unwrap();
    if store.shelf.tells_what_is_at_hand {
        return Some((fixture, store, content));
    }
    assert!(store.shelf.at_hand(blob(&content)).is_none());
    None
}

#[test]
fn what_is_in_memory_needs_no_thread_that_may_wait() {
    for size in SIZES {
        let Some((fixture, store, content)) = holding(size) else {
            return;
        };
        assert!(is_at_hand(&store, &content), "{size}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let waiting = runtime.spawn_blocking(move || released.recv());
        // On a thread that has read nothing yet. What a helper does not do in time is finished where it may wait.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let read = runtime.block_on(async { store.get(blob(&content)).now_or_never() });
                match read {
                    Some(read) => assert!(read.unwrap() == content),
                    None => assert!(size > 512 << 10),
                }
            });
        });
        drop(release);
        assert!(runtime.block_on(waiting).unwrap().is_err());
        drop(fixture);
    }
}

#[test]
fn a_thread_that_is_for_other_work_reads_nothing() {
    for size in SIZES {
        let Some((fixture, store, content)) = holding(size) else {
            return;
        };
        let now = Instant::now();
        TAKEN_UNTIL.set(Some(now + Duration::from_secs(30)));
        assert!(store.shelf.at_hand(blob(&content)).is_none());
        assert!(fixture.get(&store, &content).unwrap() == content);
        let reads = || {
            TAKEN_UNTIL.set(None);
            store.shelf.at_hand(blob(&content)).is_some()
        };
        assert!((0..100).any(|_| reads()));
        assert!(TAKEN_UNTIL.get().is_some_and(|until| until > now));
    }
}

#[test]
fn what_takes_too_long_is_read_elsewhere() {
    let Some((fixture, store, content)) = holding(1 << 20) else {
        return;
    };
    assert!(store.shelf.read_by(Instant::now(), blob(&content)).is_none());
    assert!(fixture.get(&store, &content).unwrap() == content);
}

#[test]
fn what_is_on_the_disk_alone_is_waited_for_elsewhere() {
    for size in SIZES.into_iter().filter(|size| *size > 0) {
        let Some((fixture, store, content)) = holding(size) else {
            return;
        };
        assert!(is_at_hand(&store, &content));
        let file = fs::File::open(fixture.file(&content)).unwrap();
        // The kernel may be at some of it, and keep that.
        let is_dropped = || {
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            // To look for it once has the kernel read it.
            read(&store, &content).is_none()
        };
        assert!((0..100).any(|_| is_dropped()), "{size}");
        assert!(fixture.get(&store, &content).unwrap() == content);
        assert!(is_at_hand(&store, &content));
    }
}

/// The other way tells what is wrong, mends it or reads it all the same.
#[test]
fn what_is_not_as_it_should_be_is_left_to_the_other_way() {
    type Deed = fn(&Path);
    let deeds: [(&str, bool, Deed); 7] = [
        ("gone", false, |file| fs::remove_file(file).unwrap()),
        ("damaged", false, |file| {
            let mut damaged = fs::read(file).unwrap();
            damaged[3] ^= 1;
            fs::write(file, damaged).unwrap();
        }),
        ("a link", false, |file| {
            let aside = file.with_extension("aside");
            fs::rename(file, &aside).unwrap();
            symlink(aside.file_name().unwrap(), file).unwrap();
        }),
        ("a folder that is a link", false, |file| {
            let folder = file.parent().unwrap();
            let aside = folder.with_extension("aside");
            fs::rename(folder, &aside).unwrap();
            symlink(aside.file_name().unwrap(), folder).unwrap();
        }),
        ("others may read it", true, |file| set_mode(file, 0o644)),
        ("others may write to its folder", true, |file| {
            set_mode(file.parent().unwrap(), 0o777);
        }),
        ("others may write to the folder above", true, |file| {
            set_mode(file.parent().unwrap().parent().unwrap(), 0o777);
        }),
    ];
    for size in SIZES.into_iter().filter(|size| *size > 0) {
        for (what, is_read, deed) in deeds {
            let Some((fixture, store, content)) = holding(size) else {
                return;
            };
            deed(&fixture.file(&content));
            assert!(!is_at_hand(&store, &content), "{what}");
            let read = fixture.get(&store, &content);
            assert_eq!(read.is_ok(), is_read, "{what}: {read:?}");
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn what_is_larger_is_not_begun() {
    let Some((fixture, store, content)) = holding((1 << 20) + 1) else {
        return;
    };
    assert!(read(&store, &content).is_none());
    let limits = Limits {
        max_blob_bytes: 4,
        ..Limits::default()
    };
    let options = FsOptions {
        limits,
        ..FsOptions::default()
    };
    fixture.put(&store, b"four").unwrap();
    fixture.put(&store, b"fives").unwrap();
    let small = FsStore::open(&fixture.folder(), options).unwrap();
    assert!(is_at_hand(&small, b"four"));
    assert!(read(&small, b"fives").is_none());
    let refused = fixture.get(&small, b"fives");
    assert!(
        matches!(refused, Err(BlobError::TooLarge { limit_bytes: 4 })),
        "{refused:?}"
    );
}

/// As with all that a store does: whether it is at hand must not decide that.
#[test]
fn without_a_runtime_nothing_is_read() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"here").unwrap();
    let refused = store.get(blob(b"here")).now_or_never();
    assert!(matches!(refused, Some(Err(BlobError::NoRuntime))), "{refused:?}");
}
