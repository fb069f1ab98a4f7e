//! Writers, readers, taggers and collectors in several processes at once: nothing that is kept may be lost.
//!
//! Each process runs the test `worker` of this very file, which does nothing where it is not told a folder. It takes
//! a few seconds; `PORTCULLIS_RACE_SECONDS=600` makes it ten minutes.

#![expect(
    clippy::disallowed_methods,
    reason = "a test that starts itself again, and runs for a time that its caller chooses"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::string_slice,
    reason = "helpers of tests, which say by panicking what is wrong"
)]

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use portcullis_blobs::{
    BlobError, BlobRef, BlobStore, Bytes, Durability, FsOptions, FsStore, GcOptions, Tag, TagName,
};

#[path = "shared/chance.rs"]
mod chance;

use chance::Chance;

const FOLDER: &str = "PORTCULLIS_RACE_FOLDER";
const SECONDS: &str = "PORTCULLIS_RACE_SECONDS";

const PROCESSES: usize = 3;
const TASKS: usize = 3;
/// Few contents, so that the workers meet at each of them.
const CONTENTS: u64 = 64;

fn seconds() -> u64 {
    std::env::var(SECONDS).map_or(4, |seconds| seconds.parse().expect("a number of seconds"))
}

#[test]
fn report_50_nothing_live_is_lost_to_collectors() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("blobs");
    let children: Vec<Child> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "worker", "--nocapture"])
                .env(FOLDER, &folder)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut collected = 0;
    let mut failures = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        collected += figure(&text, "collected=");
        if !output.status.success() || !text.contains("collected=") {
            failures.push(format!("{}: {text}", output.status));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    // Where collectors take nothing, there is no race and this proves nothing.
    assert!(collected > 50, "only {collected} blobs were collected");

    let runtime = runtime();
    let store = open(&folder);
    let retention = Duration::ZERO;
    let report = runtime.block_on(store.gc(GcOptions {
        retention,
        ..GcOptions::at(far_ms())
    }));
    assert_eq!(report.unwrap().busy_parts, 0);
    let left = runtime.block_on(async { store.list().try_collect::<Vec<_>>().await.unwrap() });
    assert_eq!(left, [], "nothing keeps them, so they go");
    println!("seconds={} collected={collected} lost=0", seconds());
    for name in ["tmp", "sessions"] {
        assert_eq!(std::fs::read_dir(folder.join(name)).unwrap().count(), 0, "{name}");
    }
}

fn figure(text: &str, name: &str) -> u64 {
    let at = text.find(name).map(|at| &text[at + name.len()..]);
    at.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// One of the processes.
#[test]
fn worker() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let until = Instant::now() + Duration::from_secs(seconds());
    let collected: u64 = runtime().block_on(async {
        let store: Arc<dyn BlobStore> = Arc::new(open(&folder));
        let tasks = (0..TASKS).map(|_| tokio::spawn(Task::new(&folder, Arc::clone(&store)).run(until)));
        join_all(tasks).await.into_iter().map(Result::unwrap).sum()
    });
    println!("collected={collected} ");
}

/// One who puts, reads, tags, lets go and collects, and knows what must be there.
struct Task {
    folder: PathBuf,
    store: Arc<dyn BlobStore>,
    session: Arc<dyn BlobStore>,
    name: TagName,
    chance: Chance,
    held: HashSet<u64>,
    tagged: HashSet<u64>,
    known: HashMap<u64, BlobRef>,
    collected: u64,
}

impl Task {
    fn new(folder: &Path, store: Arc<dyn BlobStore>) -> Self {
        let mut chance = Chance::new();
        Self {
            folder: folder.to_owned(),
            session: store.session(),
            store,
            name: format!("task-{}", chance.next()).parse().unwrap(),
            chance,
            held: HashSet::new(),
            tagged: HashSet::new(),
            known: HashMap::new(),
            collected: 0,
        }
    }

    async fn run(mut self, until: Instant) -> u64 {
        while Instant::now() < until {
            let number = self.chance.below(CONTENTS);
            match self.chance.below(16) {
                0..=4 => self.put(number).await,
                5 => self.tag(number).await,
                6..=7 => self.untag(number).await,
                8 => self.let_go(),
                9..=14 => self.read(number).await,
                _ => self.collect().await,
            }
        }
        self.store.untag(self.name, None).await.unwrap();
        self.collected
    }

    async fn put(&mut self, number: u64) {
        let content = content(number);
        let stored = if self.chance.below(2) == 0 {
            self.session.put(content).await
        } else {
            let pieces: Vec<_> = content.chunks(5_000).map(Bytes::copy_from_slice).collect();
            let pieces = stream::iter(pieces.into_iter().map(Ok)).boxed();
            self.session.put_stream(pieces).await
        };
        self.known.insert(number, stored.unwrap().blob);
        self.held.insert(number);
    }

    async fn tag(&mut self, number: u64) {
        let Some(&blob) = self.known.get(&number) else {
            return;
        };
        let name = self.name.clone();
        let tag = Tag {
            name,
            blob,
            expires_ms: None,
        };
        match self.store.tag(tag).await {
            Ok(()) => {
                self.tagged.insert(number);
            }
            // Nothing kept it any more.
            Err(BlobError::NotFound(_)) if !self.is_kept(number) => {}
            Err(error) => panic!("{number} cannot be tagged: {error}"),
        }
    }

    async fn untag(&mut self, number: u64) {
        if let Some(&blob) = self.known.get(&number) {
            let removed = self.store.untag(self.name.clone(), Some(blob)).await.unwrap();
            assert_eq!(removed == 1, self.tagged.remove(&number), "the tag of {number}");
        }
    }

    fn let_go(&mut self) {
        // A handle that has not seen what is there writes large content before it knows.
        self.store = Arc::new(open(&self.folder));
        self.session = self.store.session();
        self.held.clear();
    }

    async fn read(&mut self, number: u64) {
        let Some(&blob) = self.known.get(&number) else {
            return;
        };
        match self.store.get(blob).await {
            Ok(bytes) => assert!(bytes == content(number), "{number} is not what was put"),
            Err(BlobError::NotFound(_)) if !self.is_kept(number) => {}
            Err(error) => panic!(
                "{number} is lost (held: {}, tagged: {}): {error}",
                self.held.contains(&number),
                self.tagged.contains(&number)
            ),
        }
    }

    async fn collect(&mut self) {
        let retention = Duration::ZERO;
        let options = GcOptions {
            retention,
            ..GcOptions::at(far_ms())
        };
        self.collected += self.store.gc(options).await.unwrap().removed;
    }

    fn is_kept(&self, number: u64) -> bool {
        self.held.contains(&number) || self.tagged.contains(&number)
    }
}

/// Sizes on both sides of what is written at once, and some that are written while they are hashed.
fn content(number: u64) -> Bytes {
    match number {
        0 => return vec![7; 9 << 20].into(),
        1..8 => return vec![number as u8; 600 << 10].into(),
        _ => {}
    }
    let size = 100 + number * 300;
    let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + number) as u8).collect();
    bytes.into()
}

fn open(folder: &Path) -> FsStore {
    let durability = Durability::None;
    FsStore::open(
        folder,
        FsOptions {
            durability,
            ..FsOptions::default()
        },
    )
    .unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap()
}

/// Later than anything is put.
fn far_ms() -> i64 {
    4_000_000_000_000
}
