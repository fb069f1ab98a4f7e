//! A disk that is full, and one that can only be read.
//!
//! Both are a small file system in memory, in a mount namespace of its own, where the tests `full` and `read_only`
//! of this file run; elsewhere those do nothing. It takes root, or a system that lets users make namespaces. Where
//! there is neither this fails and says so, since a skipped test proves nothing.
#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests that start themselves again in a namespace, and play the one who fills the disk"
)]
#![expect(
    clippy::unwrap_used,
    clippy::string_slice,
    clippy::expect_used,
    reason = "helpers of tests, which say by panicking what is wrong"
)]

use std::{path::PathBuf, process::Command, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use portcullis_blobs::{
    BlobError, BlobRef, BlobStore, Bytes, Durability, FsOptions, FsStore, GcOptions, Hash, Tag,
};

const FOLDER: &str = "PORTCULLIS_DISK_FOLDER";

/// The script of the namespace: a file system of 2 MiB, then this program again.
const SCRIPT: &str = r#"mount -t tmpfs -o size=2m,mode=700 tmpfs "$1" && shift && exec "$@""#;

fn in_a_small_file_system(test: &str) {
    let parent = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(["sh", "-c", SCRIPT, "sh"])
        .arg(parent.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, parent.path())
        .output()
        .expect("this test needs `unshare` of util-linux");
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && out.contains("1 passed"),
        "this test needs root, or user namespaces, to mount a small file system: {out}{error}"
    );
}

#[test]
fn a_full_disk_is_said_and_harms_nothing() {
    in_a_small_file_system("full");
}

#[test]
fn a_store_that_can_only_be_read_can_be_read() {
    in_a_small_file_system("read_only");
}

fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn open(durability: Durability) -> Result<FsStore, BlobError> {
    let options = FsOptions {
        durability,
        ..FsOptions::default()
    };
    FsStore::open(&folder().unwrap().join("blobs"), options)
}

fn content(size: usize) -> Bytes {
    (0..size).map(|at| (at % 241) as u8).collect::<Vec<_>>().into()
}

fn collect() -> GcOptions {
    let retention = Duration::ZERO;
    GcOptions {
        retention,
        ..GcOptions::at(4_000_000_000_000)
    }
}

#[test]
fn full() {
    if folder().is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for durability in [Durability::Fsync, Durability::Group, Durability::None] {
        runtime.block_on(fill(Arc::new(open(durability).unwrap())));
    }
}

async fn fill(store: Arc<dyn BlobStore>) {
    let first = store.session();
    let kept = first.put(content(1_000_000)).await.unwrap().blob;
    let large = content(1_500_000);
    let pieces: Vec<_> = large.chunks(50_000).map(Bytes::copy_from_slice).collect();
    for refused in [
        store.put(large.clone()).await,
        // So large that it is written while it is hashed.
        store.put(content(9 << 20)).await,
        store
            .put_stream(stream::iter(pieces.into_iter().map(Ok)).boxed())
            .await,
    ] {
        assert!(matches!(refused, Err(BlobError::Full { .. })), "{refused:?}");
    }
    assert_eq!(store.size_bytes(BlobRef(Hash::of(&large))).await.unwrap(), None);

    // Until nothing at all fits, a tag or a name included.
    let filler = folder().unwrap().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[7; 4_096]).is_ok() {}
    let mut count = 0;
    let last = loop {
        count += 1;
        match store.put(Bytes::from(format!("small {count}"))).await {
            Ok(_) => assert!(count < 100_000),
            Err(error) => break error,
        }
    };
    assert!(matches!(last, BlobError::Full { .. }), "{last:?}");
    let tag = Tag {
        name: "keep".parse().unwrap(),
        blob: kept,
        expires_ms: None,
    };
    let refused = store.tag(tag.clone()).await;
    assert!(matches!(refused, Err(BlobError::Full { .. })), "{refused:?}");

    // What is there is whole, and nothing half-written takes the room.
    let listed: Vec<_> = store.list().try_collect().await.unwrap();
    for entry in &listed {
        assert_eq!(store.verify(entry.blob).await.unwrap(), entry.size_bytes);
    }
    let scratch = folder().unwrap().join("blobs/tmp");
    assert_eq!(std::fs::read_dir(scratch).unwrap().count(), 0);

    // Collecting needs no room, and then there is some.
    drop(first);
    assert!(store.gc(collect()).await.unwrap().removed >= 1);
    assert_eq!(store.size_bytes(kept).await.unwrap(), None);
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    let again = store.put(large).await.unwrap();
    store
        .tag(Tag {
            blob: again.blob,
            ..tag
        })
        .await
        .unwrap();
    store.untag("keep".parse().unwrap(), None).await.unwrap();
    drop(store);
    open(Durability::None).unwrap().gc(collect()).await.unwrap();
}

#[test]
fn read_only() {
    let Some(folder) = folder() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let session = open(Durability::Fsync).unwrap();
    let stored = runtime.block_on(session.put(content(300_000))).unwrap();
    let damaged = runtime.block_on(session.put(content(3_000))).unwrap();
    let name = damaged.blob.0.to_string();
    std::fs::write(folder.join("blobs/blake3").join(&name[..2]).join(&name), "bad").unwrap();
    drop(session);
    // Nobody can write there then, whatever the rights say.
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.join("blobs"), open_to_all).unwrap();
    let mount = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&folder)
        .status();
    assert!(mount.unwrap().success());

    let limits = portcullis_blobs::Limits {
        quota_bytes: Some(10_000_000),
        ..Default::default()
    };
    let options = FsOptions {
        limits,
        ..FsOptions::default()
    };
    let store = FsStore::open(&folder.join("blobs"), options).unwrap();
    runtime.block_on(async {
        assert_eq!(store.get(stored.blob).await.unwrap(), content(300_000));
        assert_eq!(store.verify(stored.blob).await.unwrap(), 300_000);
        assert_eq!(store.get_range(stored.blob, 5..9).await.unwrap().len(), 4);
        assert_eq!(store.stats().await.unwrap().blobs, 2);
        let corrupt = store.get(damaged.blob).await.unwrap_err();
        assert!(
            corrupt.to_string().contains("could not be moved aside"),
            "{corrupt}"
        );
        let tag = Tag {
            name: "keep".parse().unwrap(),
            blob: stored.blob,
            expires_ms: None,
        };
        for refused in [
            store.put(content(300_000)).await.map(drop),
            store.put(content(10)).await.map(drop),
            store.put_stream(stream::empty().boxed()).await.map(drop),
            store.tag(tag).await,
            store.gc(collect()).await.map(drop),
        ] {
            assert!(
                matches!(refused, Err(BlobError::NotWritable { .. })),
                "{refused:?}"
            );
        }
        let dry_run = true;
        let dry = GcOptions { dry_run, ..collect() };
        assert_eq!(store.gc(dry).await.unwrap().removed, 2);
    });
    let none = FsStore::open(&folder.join("new"), FsOptions::default());
    assert!(matches!(none, Err(BlobError::NotWritable { .. })), "{none:?}");
}
