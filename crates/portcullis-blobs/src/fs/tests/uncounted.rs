//! Stores of which a folder cannot be looked at, so that nobody knows what is in them.

use std::{path::Path, sync::Barrier, thread};

use super::*;

fn with_quota() -> FsOptions {
    FsOptions {
        limits: Limits {
            quota_bytes: Some(1 << 20),
            ..Limits::default()
        },
        ..FsOptions::default()
    }
}

/// Makes the folder that is looked at last one that cannot be, and gives its path.
fn spoil(fixture: &Fixture) -> PathBuf {
    let last = fixture.folder().join("blake3/ff");
    fs::create_dir_all(&last).unwrap();
    if rustix::process::geteuid().is_root() {
        // It takes root to give a folder away,
        std::os::unix::fs::chown(&last, Some(1), None).unwrap();
    } else {
        // and root can look into every one.
        fs::set_permissions(&last, PermissionsExt::from_mode(0o000)).unwrap();
    }
    last
}

/// Takes it away again.
fn mend(spoiled: &Path) {
    fs::remove_dir(spoiled).unwrap();
}

#[track_caller]
fn assert_not_looked_at(error: &BlobError) {
    assert!(
        matches!(error, BlobError::Insecure { .. } | BlobError::Forbidden { .. }),
        "{error:?}"
    );
}

#[test]
fn what_cannot_be_counted_can_be_read_and_takes_nothing_new() {
    let fixture = Fixture::new();
    fixture.put(&fixture.open(), b"there before").unwrap();
    let spoiled = spoil(&fixture);
    let store = FsStore::open(&fixture.folder(), with_quota()).unwrap();
    assert_eq!(fixture.get(&store, b"there before").unwrap(), "there before");
    assert!(fixture.put(&store, b"there before").unwrap().existed);
    for _ in 0..2 {
        assert_not_looked_at(&fixture.put(&store, b"new").unwrap_err());
    }
    assert_not_looked_at(&store.writer().unwrap_err());
    mend(&spoiled);
    assert!(!fixture.put(&store, b"new").unwrap().existed);
    fixture.assert_whole(2);
}

/// Who comes while another counts for the first time has no old count to go by.
#[test]
fn before_the_first_count_nobody_stores_beside_it() {
    const AT_ONCE: usize = 8;
    let fixture = Fixture::new();
    fixture.open();
    spoil(&fixture);
    let store = FsStore::open(&fixture.folder(), with_quota()).unwrap();
    let start = Barrier::new(AT_ONCE);
    let all = thread::scope(|scope| {
        let threads = [(); AT_ONCE].map(|()| {
            scope.spawn(|| {
                start.wait();
                (0..8).map(|_| store.writer().map(drop)).collect::<Vec<_>>()
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    for writer in all.iter().flatten() {
        assert_not_looked_at(writer.as_ref().unwrap_err());
    }
}

#[test]
fn a_collection_is_told_of_also_where_what_is_left_cannot_be_counted() {
    let fixture = Fixture::new();
    fixture.put(&fixture.open(), b"loose").unwrap();
    let store = FsStore::open(&fixture.folder(), with_quota()).unwrap();
    let mut sweep = Sweep::begin(&store.shelf, GcOptions::at(keeping::FAR_MS)).unwrap();
    for shard in 0..SHARDS {
        sweep = sweep.shard(&store.shelf, &shard_name(shard)).unwrap();
    }
    // Meanwhile, or it would have been met before.
    spoil(&fixture);
    assert_eq!(sweep.finish(&store.shelf).unwrap().removed, 1);
    assert!(!fixture.file(b"loose").exists());
}
