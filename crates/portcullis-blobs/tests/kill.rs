//! A writer that is killed at a random moment, again and again: every blob that can be seen is what its name says,
//! and none whose put had returned is lost.
//!
//! The writer is the test `writer` of this very file, which does nothing where it is not told a folder. There are a
//! few kills; `PORTCULLIS_KILLS=1000` makes it a thousand.

#![expect(
    clippy::disallowed_methods,
    reason = "a test that starts itself again, as often as its caller chooses"
)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which say by panicking what is wrong"
)]

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use portcullis_blobs::{BlobRef, BlobStore, Bytes, Durability, FsOptions, FsStore, GcOptions, Tag, TagName};

#[path = "shared/chance.rs"]
mod chance;

use chance::Chance;

const FOLDER: &str = "PORTCULLIS_KILL_FOLDER";
const MODE: &str = "PORTCULLIS_KILL_MODE";
const KILLS: &str = "PORTCULLIS_KILLS";

/// Later than anything is put.
const FAR_MS: i64 = 4_000_000_000_000;
/// After how many kills the store is emptied, which also checks that it can be.
const ROUND: usize = 25;

#[test]
fn report_49_a_killed_writer_leaves_whole_blobs_and_loses_none() {
    let kills = std::env::var(KILLS).map_or(20, |kills| kills.parse().expect("a number of kills"));
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("blobs");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut chance = Chance::new();
    let (mut acknowledged, mut seen) = (0, 0);
    let mut kept = Vec::new();
    for kill in 1..=kills {
        let mode = ["fsync", "group", "none"][kill % 3];
        let moment = (chance.below(4), Duration::from_micros(chance.below(20_000)));
        let blobs = run_and_kill(&folder, mode, moment);
        acknowledged += blobs.len();
        kept.extend(blobs);
        let store = open(&folder, Durability::None);
        runtime.block_on(async {
            for blob in &kept {
                let verified = store.verify(*blob).await;
                assert!(
                    verified.is_ok(),
                    "kill {kill}: acknowledged, and then: {verified:?}"
                );
            }
            let listed: Vec<_> = store.list().try_collect().await.unwrap();
            for entry in &listed {
                let verified = store.verify(entry.blob).await;
                assert_eq!(verified.unwrap(), entry.size_bytes, "kill {kill}");
            }
            seen += listed.len();
        });
        if kill % ROUND == 0 || kill == kills {
            runtime.block_on(empty(&store));
            kept.clear();
        }
    }
    assert!(
        acknowledged >= kills,
        "{acknowledged} blobs in {kills} kills prove little"
    );
    println!("kills={kills} acknowledged={acknowledged} seen={seen} bad=0 lost=0");
}

/// Takes the tags away and collects: nothing may be left, not of the dead either.
async fn empty(store: &FsStore) {
    store.untag(tag_name(), None).await.unwrap();
    let retention = Duration::ZERO;
    let options = GcOptions {
        retention,
        ..GcOptions::at(FAR_MS)
    };
    store.gc(options).await.unwrap();
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.blobs, stats.tags, stats.quarantined), (0, 0, 0));
}

/// Starts a writer and kills it some time after it has stored so many blobs. Gives those that it said were stored.
fn run_and_kill(folder: &Path, mode: &str, (count, after): (u64, Duration)) -> Vec<BlobRef> {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer", "--nocapture"])
        .env(FOLDER, folder)
        .env(MODE, mode)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(writer.stdout.take().unwrap());
    let (tell, lines) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut blobs = Vec::new();
        // What the kill cut short was not acknowledged; a whole line was.
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let blob = line
                .split_once("stored ")
                .and_then(|(_, blob)| blob.parse::<BlobRef>().ok());
            blobs.extend(blob);
            let _ = tell.send(blob.is_some());
        }
        blobs
    });
    // A moment anywhere in its life, from before it has opened the store on. Counted in blobs first and only then in
    // time, so that a slow machine sees as many of them.
    let _ = lines.recv_timeout(Duration::from_secs(30));
    for _ in 0..count {
        while matches!(lines.recv_timeout(Duration::from_secs(30)), Ok(false)) {}
    }
    std::thread::park_timeout(after);
    writer.kill().unwrap();
    writer.wait().unwrap();
    reading.join().unwrap()
}

/// The one that is killed.
#[test]
fn writer() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let durability = match std::env::var(MODE).as_deref() {
        Ok("group") => Durability::Group,
        Ok("none") => Durability::None,
        _ => Durability::Fsync,
    };
    let store = open(&folder, durability);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        // By its second large blob it has a helper.
        store.put(vec![1; 1 << 20].into()).await.unwrap();
        // The test ends it; this is for when there is nobody to do so.
        let lives = (0..3).map(|_| write(&store));
        let _ = tokio::time::timeout(Duration::from_secs(60), futures::future::join_all(lives)).await;
    });
}

async fn write(store: &FsStore) {
    let mut chance = Chance::new();
    for count in 1.. {
        let content = content(&mut chance);
        let stored = if chance.below(2) == 0 {
            store.put(content).await.unwrap()
        } else {
            let pieces: Vec<_> = content.chunks(60_000).map(Bytes::copy_from_slice).collect();
            let pieces = stream::iter(pieces.into_iter().map(Ok)).boxed();
            store.put_stream(pieces).await.unwrap()
        };
        let tag = Tag {
            name: tag_name(),
            blob: stored.blob,
            expires_ms: None,
        };
        store.tag(tag).await.unwrap();
        let mut out = std::io::stdout().lock();
        out.write_all(format!("stored {}\n", stored.blob).as_bytes())
            .unwrap();
        out.flush().unwrap();
        drop(out);
        if count % 8 == 0 {
            let retention = Duration::ZERO;
            let options = GcOptions {
                retention,
                ..GcOptions::at(FAR_MS)
            };
            store.gc(options).await.unwrap();
        }
    }
}

fn content(chance: &mut Chance) -> Bytes {
    if chance.below(24) == 0 {
        // What is written while it is hashed; filled as quickly as that.
        let mut content = vec![7; (8 << 20) + 77];
        content.extend_from_slice(&chance.next().to_le_bytes());
        return content.into();
    }
    let limit = if chance.below(4) == 0 { 800_000 } else { 4_000 };
    let size = 1 + chance.below(limit);
    let seed = chance.next();
    let bytes: Vec<u8> = (0..size).map(|at| (at.wrapping_mul(seed) >> 7) as u8).collect();
    bytes.into()
}

fn tag_name() -> TagName {
    "acknowledged".parse().unwrap()
}

fn open(folder: &Path, durability: Durability) -> FsStore {
    FsStore::open(
        folder,
        FsOptions {
            durability,
            ..FsOptions::default()
        },
    )
    .unwrap()
}
