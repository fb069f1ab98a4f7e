#![expect(
    clippy::disallowed_methods,
    reason = "these tests play the one who tampers with the store's folder"
)]

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use tempfile::TempDir;

use super::*;
use crate::Hash;

mod at_hand;

mod durable;

mod keeping;

mod laid_out;

mod large;

mod lost;

mod meanwhile;

mod uncounted;

struct Fixture {
    parent: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Fixture {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self {
            parent: tempfile::tempdir().unwrap(),
            runtime,
        }
    }

    fn folder(&self) -> PathBuf {
        self.parent.path().join("blobs")
    }

    fn open(&self) -> FsStore {
        FsStore::open(&self.folder(), FsOptions::default()).unwrap()
    }

    fn put(&self, store: &FsStore, content: &'static [u8]) -> Result<Stored, BlobError> {
        self.runtime.block_on(store.put(Bytes::from_static(content)))
    }

    fn get(&self, store: &FsStore, content: &[u8]) -> Result<Bytes, BlobError> {
        self.runtime.block_on(store.get(blob(content)))
    }

    /// Where `content` lies, or would.
    fn file(&self, content: &[u8]) -> PathBuf {
        let name = blob(content).0.to_string();
        self.folder()
            .join("blake3")
            .join(layout::fan_out(blob(content)))
            .join(name)
    }

    /// The names in the root that begin with `prefix`.
    fn root_names(&self, prefix: &str) -> Vec<String> {
        let names = fs::read_dir(self.folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string());
        names
            .map(Result::unwrap)
            .filter(|name| name.starts_with(prefix))
            .collect()
    }

    /// Leaves a file in the folder `name`, as a process does that dies.
    fn leave(&self, name: &str, content: &[u8]) {
        let file = temp::random_name().unwrap();
        fs::write(self.folder().join(name).join(file), content).unwrap();
    }

    /// Whatever went wrong, each blob that can be seen is what its name says. Read past the store, which would move aside
    /// what is not.
    fn assert_whole(&self, expected: usize) {
        let entries = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut count = 0;
        for shard in entries(self.folder().join("blake3")) {
            for entry in entries(shard.path()) {
                let hash: Hash = entry.file_name().to_str().unwrap().parse().unwrap();
                assert!(entry.file_type().unwrap().is_file(), "{hash}");
                assert_eq!(Hash::of(&fs::read(entry.path()).unwrap()), hash);
                count += 1;
            }
        }
        assert_eq!(count, expected);
    }

    fn temp_files(&self) -> usize {
        fs::read_dir(self.folder().join("tmp")).unwrap().count()
    }
}

fn blob(content: &[u8]) -> BlobRef {
    BlobRef(Hash::of(content))
}

#[test]
fn a_blob_outlives_the_store_that_wrote_it() {
    let fixture = Fixture::new();
    fixture.put(&fixture.open(), b"kept").unwrap();
    let again = fixture.open();
    assert_eq!(fixture.get(&again, b"kept").unwrap().as_ref(), b"kept");
    assert!(fixture.put(&again, b"kept").unwrap().existed);
    assert_eq!(fixture.temp_files(), 0);
}

#[test]
fn a_damaged_blob_is_never_returned_and_is_set_aside() {
    let damage = |how: fn(&Path)| {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.put(&store, b"the true content").unwrap();
        how(&fixture.file(b"the true content"));

        let error = fixture.get(&store, b"the true content").unwrap_err();
        assert!(matches!(error, BlobError::Corrupt { .. }), "{error:?}");
        let aside = fixture.root_names("quarantine-").pop().unwrap();
        assert!(error.to_string().contains(&aside), "{error}");
        assert!(matches!(
            fixture.get(&store, b"the true content"),
            Err(BlobError::NotFound(_))
        ));
        assert!(!fixture.put(&store, b"the true content").unwrap().existed);
        assert_eq!(
            fixture.get(&store, b"the true content").unwrap().as_ref(),
            b"the true content"
        );
    };
    damage(|file| fs::write(file, b"the fake content").unwrap());
    damage(|file| fs::write(file, b"the true").unwrap());
    damage(|file| fs::write(file, b"the true content and more").unwrap());
    damage(|file| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    });
    damage(|file| {
        fs::remove_file(file).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    });
    damage(|file| {
        fs::remove_file(file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            file,
            rustix::fs::FileType::Socket,
            0o600.into(),
            0,
        )
        .unwrap();
    });
}

#[test]
fn a_put_replaces_a_file_of_the_wrong_size_and_one_that_others_could_write() {
    let check = |planted: &[u8], mode: u32, existed: bool| {
        let fixture = Fixture::new();
        let store = fixture.open();
        let file = fixture.file(b"wanted");
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, planted).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(
            fixture.put(&store, b"wanted").unwrap().existed,
            existed,
            "{planted:?} {mode:o}"
        );
        assert_eq!(fixture.get(&store, b"wanted").unwrap().as_ref(), b"wanted");
        assert_eq!(fixture.root_names("quarantine-").is_empty(), existed);
    };
    check(b"want", 0o600, false);
    check(b"WANTED", 0o644, false);
    check(b"wanted", 0o644, true);

    // What this handle has written itself, too.
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"wanted").unwrap();
    let file = fixture.file(b"wanted");
    fs::write(&file, b"WANTED").unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(!fixture.put(&store, b"wanted").unwrap().existed);
    assert_eq!(fixture.get(&store, b"wanted").unwrap().as_ref(), b"wanted");
}

/// A power cut leaves such a file where nothing is synced, and a disk that goes bad does. The content at hand may be the only
/// good one.
#[test]
fn what_is_damaged_and_as_long_as_before_is_not_taken_for_the_content_that_is_put() {
    for (size, durability) in [
        (16, Durability::Fsync),
        (16, Durability::None),
        (1 << 20, Durability::Fsync),
        (1 << 20, Durability::Group),
        (1 << 20, Durability::None),
    ] {
        for is_streamed in [false, true] {
            let fixture = Fixture::new();
            let options = FsOptions {
                durability,
                ..FsOptions::default()
            };
            let open = || FsStore::open(&fixture.folder(), options).unwrap();
            let content = Bytes::from(vec![7; size]);
            fixture.runtime.block_on(open().put(content.clone())).unwrap();
            fs::write(fixture.file(&content), vec![0; size]).unwrap();

            let store = open();
            let pieces = stream::iter([Ok(content.clone())]).boxed();
            let put = || match is_streamed {
                true => store.put_stream(pieces),
                false => store.put(content.clone()),
            };
            let stored = fixture.runtime.block_on(put()).unwrap();
            assert!(!stored.existed, "{size} {durability:?} {is_streamed}");
            assert_eq!(fixture.get(&store, &content).unwrap(), content);
            assert_eq!(fixture.root_names("quarantine-").len(), 1);
            assert_eq!(fixture.temp_files(), 0);
            assert!(
                fixture
                    .runtime
                    .block_on(store.put(content.clone()))
                    .unwrap()
                    .existed
            );
        }
    }
}

/// What others could write is read before it is taken for what it should be, however large it is.
#[test]
fn what_others_could_write_is_not_read_into_memory() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let content = vec![7; hash::HELPED_BYTES];
    let stored = fixture.runtime.block_on(store.put(content.clone().into()));
    fs::set_permissions(fixture.file(&content), PermissionsExt::from_mode(0o644)).unwrap();
    let pieces = stream::iter([Ok(content.into())]).boxed();
    assert!(
        fixture
            .runtime
            .block_on(store.put_stream(pieces))
            .unwrap()
            .existed
    );
    assert!(!store.shelf.buffers.were_used());
    drop(fixture.runtime.block_on(store.get(stored.unwrap().blob)).unwrap());
    assert!(store.shelf.buffers.were_used());
}

/// It may have been put by one that takes more.
#[test]
fn what_is_larger_than_the_limit_is_not_read_at_once() {
    let fixture = Fixture::new();
    fixture.put(&fixture.open(), b"0123456789").unwrap();
    let limited = |max_blob_bytes| {
        let options = FsOptions {
            limits: Limits {
                max_blob_bytes,
                ..Limits::default()
            },
            ..FsOptions::default()
        };
        fixture.get(&FsStore::open(&fixture.folder(), options).unwrap(), b"0123456789")
    };
    let refused = limited(9);
    assert!(
        matches!(refused, Err(BlobError::TooLarge { limit_bytes: 9 })),
        "{refused:?}"
    );
    assert_eq!(limited(10).unwrap().len(), 10);
}

/// A reader that finds damage moves it aside under no lock. Whoever puts the content anew in that moment must not fail.
#[test]
fn what_is_moved_aside_while_it_is_put_is_written_anew() {
    for durability in [Durability::None, Durability::Fsync] {
        let fixture = Fixture::new();
        let options = FsOptions {
            durability,
            ..FsOptions::default()
        };
        let store = FsStore::open(&fixture.folder(), options).unwrap();
        let file = fixture.file(b"the true content");
        let put = || fixture.put(&store, b"the true content").map(drop);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Of the right length, so that a put cannot tell.
                    let damaged = fs::File::options().write(true).open(&file);
                    let _ = damaged.and_then(|mut file| file.write_all(b"the fake"));
                    let _ = store.shelf.get(blob(b"the true content"));
                }
            });
            let failed = (0..1_000).find_map(|_| put().err());
            is_over.store(true, Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
        // What the other has damaged since is moved aside when it is read.
        let _ = fixture.get(&store, b"the true content");
        put().unwrap();
        fixture.assert_whole(1);
    }
}

/// Two may find the same damage, and one of them may have mended it when the other comes to move it aside: then the good
/// file, or the folder of good files, is not moved for a moment even, in which a crash would lose it.
#[test]
fn what_another_has_mended_is_not_moved_aside() {
    let fixture = Fixture::new();
    let store = fixture.open();
    fixture.put(&store, b"good").unwrap();
    let all = store.shelf.root.child("blake3").unwrap();
    let shard = layout::fan_out(blob(b"good"));
    let folder = all.child(&shard).unwrap();
    // What was found there before, and lies in the quarantine since.
    fs::write(fixture.folder().join("quarantine-bad"), b"baad").unwrap();
    let found = store.shelf.root.stat("quarantine-bad").unwrap().unwrap();
    steps::taken();
    for (within, name) in [(&folder, blob(b"good").0.to_string()), (&all, shard)] {
        assert_eq!(store.shelf.set_aside(within, &name, &found).unwrap(), None);
    }
    assert_eq!(steps::taken(), []);
    let error = store.shelf.corrupt(blob(b"good"), &folder, &found, "bad");
    assert!(
        error.to_string().contains("somebody else has moved it"),
        "{error}"
    );
    assert_eq!(fixture.get(&store, b"good").unwrap().as_ref(), b"good");
}

#[test]
fn report_49_a_planted_link_is_neither_written_through_nor_read() {
    let fixture = Fixture::new();
    let victim = fixture.parent.path().join("victim");
    fs::write(&victim, b"hands off").unwrap();
    let before = fs::File::open(&victim).unwrap();
    before.set_modified(SystemTime::UNIX_EPOCH).unwrap();

    // In the place of a blob.
    let store = fixture.open();
    let file = fixture.file(b"first");
    fs::create_dir(file.parent().unwrap()).unwrap();
    symlink(&victim, &file).unwrap();
    assert!(matches!(
        fixture.get(&store, b"first"),
        Err(BlobError::Corrupt { .. })
    ));
    symlink(&victim, &file).unwrap();
    assert!(!fixture.put(&store, b"first").unwrap().existed);
    assert_eq!(fixture.get(&store, b"first").unwrap().as_ref(), b"first");

    // In the place of a folder, even one that holds the right content under the right name.
    let elsewhere = fixture.parent.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let file = fixture.file(b"second");
    fs::write(elsewhere.join(file.file_name().unwrap()), b"second").unwrap();
    symlink(&elsewhere, file.parent().unwrap()).unwrap();
    assert!(matches!(
        fixture.get(&store, b"second"),
        Err(BlobError::NotFound(_))
    ));
    symlink(&elsewhere, file.parent().unwrap()).unwrap();
    fs::remove_file(elsewhere.join(file.file_name().unwrap())).unwrap();
    assert!(!fixture.put(&store, b"second").unwrap().existed);
    assert_eq!(fixture.get(&store, b"second").unwrap().as_ref(), b"second");

    // In the place of the folder of all blobs, and of what is being written.
    for name in ["blake3", "tmp"] {
        fs::rename(fixture.folder().join(name), fixture.parent.path().join(name)).unwrap();
        symlink(&elsewhere, fixture.folder().join(name)).unwrap();
        assert!(
            !fixture
                .put(&store, if name == "tmp" { b"fourth" } else { b"third" })
                .unwrap()
                .existed
        );
    }
    assert_eq!(fixture.get(&store, b"third").unwrap().as_ref(), b"third");

    // What was stored before lies in the folder that was moved away.
    fixture.assert_whole(2);
    assert_eq!(fs::read(&victim).unwrap(), b"hands off");
    let written = fs::metadata(&victim).unwrap().modified().unwrap();
    assert_eq!(written, SystemTime::UNIX_EPOCH, "nor is it touched");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn the_quota_counts_what_is_there_already_and_notices_what_has_gone() {
    let fixture = Fixture::new();
    fixture.put(&fixture.open(), b"0123456789").unwrap();
    let limits = Limits {
        quota_bytes: Some(15),
        ..Limits::default()
    };
    let store = FsStore::open(
        &fixture.folder(),
        FsOptions {
            limits,
            ..FsOptions::default()
        },
    )
    .unwrap();
    let error = fixture.put(&store, b"abcdefghij").unwrap_err();
    assert!(
        matches!(
            error,
            BlobError::Quota {
                quota_bytes: 15,
                used_bytes: 10,
                needed_bytes: 10
            }
        ),
        "{error:?}"
    );
    // In code it is called one thing and in a configuration another.
    let text = error.to_string();
    assert!(
        text.contains("`quota_bytes`") && text.contains("`quotaBytes`"),
        "{text}"
    );
    assert_eq!(fixture.temp_files(), 0);
    fs::remove_file(fixture.file(b"0123456789")).unwrap();
    fixture.put(&store, b"abcdefghij").unwrap();
}

/// What else lies among them takes no room.
#[test]
fn the_quota_counts_blobs_and_nothing_else() {
    let fixture = Fixture::new();
    fixture.put(&fixture.open(), b"0123456789").unwrap();
    let shard = fixture.file(b"0123456789").parent().unwrap().to_owned();
    fs::write(shard.join("README"), [7; 100]).unwrap();
    fs::create_dir(fixture.folder().join("blake3/of-somebody")).unwrap();
    fs::write(fixture.folder().join("blake3/of-somebody/file"), [7; 100]).unwrap();
    let options = FsOptions {
        limits: Limits {
            quota_bytes: Some(20),
            ..Limits::default()
        },
        ..FsOptions::default()
    };
    let store = FsStore::open(&fixture.folder(), options).unwrap();
    assert!(!fixture.put(&store, b"abcdefghij").unwrap().existed);
    assert!(matches!(
        fixture.put(&store, b"x"),
        Err(BlobError::Quota { used_bytes: 20, .. })
    ));
}

/// Each looks at the disk now and then, so that none takes all of the room once more.
#[test]
fn several_that_share_a_store_share_its_quota() {
    const BLOB: u64 = 1_000;
    let quota_bytes = 100 * BLOB;
    let options = FsOptions {
        limits: Limits {
            quota_bytes: Some(quota_bytes),
            ..Limits::default()
        },
        durability: Durability::None,
        ..FsOptions::default()
    };
    let all_write = |number: u64| number as usize % 3;
    let two_are_idle_at_first = |number: u64| (number as usize / 100).min(2);
    let cases = [
        (all_write as fn(u64) -> usize, Duration::ZERO, 2),
        (two_are_idle_at_first, Duration::from_secs(1), 0),
    ];
    for (whose, pause, others) in cases {
        let fixture = Fixture::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        // By the clock that stands.
        let inside = runtime.enter();
        let stores = [(); 3].map(|()| FsStore::open(&fixture.folder(), options).unwrap());
        drop(inside);
        let mut stored = 0;
        for number in 0..300_u64 {
            let content = Bytes::from(number.to_le_bytes().repeat(BLOB as usize / 8));
            match runtime.block_on(stores[whose(number)].put(content)) {
                Ok(_) => stored += BLOB,
                Err(BlobError::Quota { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
            if number % 100 == 99 {
                runtime.block_on(tokio::time::advance(pause));
            }
        }
        assert!(stored >= quota_bytes, "all of it can be used: {stored}");
        assert!(stored <= quota_bytes + others * BLOB, "{stored}");
    }
}

#[test]
fn outside_of_a_runtime_there_is_an_error_and_no_panic() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let put = futures::FutureExt::now_or_never(store.put(Bytes::from_static(b"x"))).unwrap();
    assert!(matches!(put, Err(BlobError::NoRuntime)));
}

/// A process has 1,024 as a rule, and strings of many servers may wait in files at once.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_being_written_takes_one_descriptor() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let writers: Vec<_> = (0..8).map(|_| store.writer().unwrap()).collect();
    let scratch = fixture.folder().join("tmp");
    let open = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    // The folder is one of them.
    assert_eq!(
        open.filter(|path| path.starts_with(&scratch)).count(),
        writers.len() + 1
    );

    // It is not relied on.
    fs::remove_dir_all(&scratch).unwrap();
    fixture.put(&store, b"works").unwrap();
    assert_eq!(fixture.get(&store, b"works").unwrap().as_ref(), b"works");
    drop(writers);
    assert_eq!(fixture.temp_files(), 0);
}

/// Whoever sends pieces can send as many as it likes that have nothing in them.
#[test]
fn empty_pieces_of_a_stream_are_not_kept() {
    struct Empty {
        _kept: Arc<()>,
    }

    impl AsRef<[u8]> for Empty {
        fn as_ref(&self) -> &[u8] {
            &[]
        }
    }

    let fixture = Fixture::new();
    let kept = Arc::new(());
    let pieces = (0..10_000).map({
        let kept = Arc::clone(&kept);
        move |_| {
            assert!(Arc::strong_count(&kept) <= 3);
            Ok(Bytes::from_owner(Empty {
                _kept: Arc::clone(&kept),
            }))
        }
    });
    let store = fixture.open();
    let pieces = stream::iter(pieces.chain([Ok(Bytes::from_static(b"end"))])).boxed();
    let stored = fixture.runtime.block_on(store.put_stream(pieces)).unwrap();
    assert_eq!(stored.blob, blob(b"end"));
    assert_eq!(Arc::strong_count(&kept), 1);
}
