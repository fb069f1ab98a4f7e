//! The store's figures, beside a plain write on the same disk in the same run: `cargo xtask bench blobs`.
//!
//! `bench_blobs [FOLDER]` works in a new folder below FOLDER (the system's temporary folder where none is given).
//! Each figure is the median of 7, what is compared taking turns.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement reads the clock, writes plain files and starts git to compare with"
)]
#![expect(clippy::print_stdout, reason = "the figures")]

use std::{
    error::Error,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use portcullis_blobs::{BlobStore, Bytes, Durability, FsOptions, FsStore, Hash};
use tokio::task::spawn_blocking;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 7;
const MIB: usize = 1 << 20;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let parent = match std::env::args_os().nth(1) {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let bench = Bench::new(parent.path())?;
    // First, while the process is small.
    bench.memory().await?;
    bench.settle().await?;
    for size in [MIB, 64 * MIB] {
        bench.writes(size).await?;
        bench.reads(size).await?;
    }
    bench.existing(MIB).await?;
    bench.at_once().await
}

struct Bench {
    folder: PathBuf,
    none: FsStore,
    fsync: FsStore,
    group: FsStore,
}

impl Bench {
    fn new(folder: &Path) -> Result<Self> {
        let open = |name: &str, durability| {
            let options = FsOptions {
                durability,
                ..FsOptions::default()
            };
            FsStore::open(&folder.join(name), options)
        };
        Ok(Self {
            folder: folder.to_owned(),
            none: open("none", Durability::None)?,
            fsync: open("fsync", Durability::Fsync)?,
            group: open("group", Durability::Group)?,
        })
    }

    async fn writes(&self, size: usize) -> Result<()> {
        let git = self.folder.join("git");
        let has_git = Command::new("git")
            .args(["init", "-q"])
            .arg(&git)
            .status()
            .is_ok_and(|done| done.success());
        let mut times = Times::<6>::default();
        for round in 0..ROUNDS {
            let content = content(size, round);
            // What was written before is not to be waited for in the next measurement, and nobody is always first.
            for turn in (0..5).map(|turn| (turn * (1 + round % 4) + round) % 5) {
                rustix::fs::sync();
                let time = match turn {
                    0 => self.plain(&content, false).await?,
                    1 => put(&self.none, &content).await?,
                    2 => self.plain(&content, true).await?,
                    3 => put(&self.fsync, &content).await?,
                    _ => put(&self.group, &content).await?,
                };
                times.add(turn, time);
            }
            if has_git {
                times.add(5, self.git(&git, &content)?);
            }
        }
        let [plain, none, synced, fsync, group, git] = times.medians();
        println!("\nwrite {} MiB", size / MIB);
        row("plain write", plain, None, "");
        let target = if size == MIB { "<= 1.8" } else { "<= 1.4" };
        row("put, no fsync", none, Some(plain), target);
        row("plain write + fdatasync", synced, None, "");
        row("put, fsync", fsync, Some(synced), "<= 1.35");
        row("put, group", group, Some(synced), "");
        if has_git {
            row("git hash-object -w", git, Some(none), ">= 20");
        }
        Ok(())
    }

    async fn reads(&self, size: usize) -> Result<()> {
        let content = content(size, 0);
        let blob = self.none.put(content.clone()).await?.blob;
        let file = self.folder.join("plain");
        fs::write(&file, &content)?;
        let mut times = Times::<4>::default();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let path = file.clone();
            drop(spawn_blocking(move || fs::read(path)).await??);
            times.add(0, begun.elapsed());
            let begun = Instant::now();
            drop(self.none.get(blob).await?);
            times.add(1, begun.elapsed());
            let begun = Instant::now();
            self.none.verify(blob).await?;
            times.add(2, begun.elapsed());
            let begun = Instant::now();
            self.none.get_range(blob, 1_000..2_000).await?;
            times.add(3, begun.elapsed());
        }
        let [plain, get, streamed, range] = times.medians();
        println!("\nread {} MiB, in the page cache", size / MIB);
        row("plain read", plain, None, "");
        row("get, verified", get, Some(plain), "");
        row("get_stream, to its end", streamed, Some(plain), "");
        row("get_range of 1,000 bytes", range, Some(plain), "");
        Ok(())
    }

    async fn existing(&self, size: usize) -> Result<()> {
        let content = content(size, 0);
        self.none.put(content.clone()).await?;
        let mut times = Times::<2>::default();
        for _ in 0..ROUNDS * 8 {
            let whole = content.clone();
            let begun = Instant::now();
            std::hint::black_box(spawn_blocking(move || Hash::of(&whole)).await?);
            times.add(0, begun.elapsed());
            times.add(1, put(&self.none, &content).await?);
        }
        let [hash, again] = times.medians();
        println!("\nput what exists, {} MiB", size / MIB);
        row("blake3 alone", hash, None, "");
        row("put again", again, Some(hash), "near 1");
        Ok(())
    }

    /// Many small blobs at once: what sharing syncs is for.
    async fn at_once(&self) -> Result<()> {
        println!("\n64 puts of 4 KiB at once");
        let mut times = Times::<2>::default();
        for round in 0..ROUNDS {
            for (at, store) in [&self.fsync, &self.group].into_iter().enumerate() {
                let contents = (0..64).map(|number| content(4 << 10, 1_000 + round * 64 + number));
                let begun = Instant::now();
                for stored in join_all(contents.map(|content| store.put(content))).await {
                    stored?;
                }
                times.add(at, begun.elapsed());
            }
        }
        let [fsync, group] = times.medians();
        row("put, fsync", fsync, None, "");
        row("put, group", group, Some(fsync), "");
        Ok(())
    }

    /// Brings the durable stores to where one is that has been in use: their folders are there and on the disk.
    async fn settle(&self) -> Result<()> {
        for store in [&self.fsync, &self.group] {
            for batch in 0..32 {
                let contents = (0..64).map(|number| content(64, 100_000 + batch * 64 + number));
                for stored in join_all(contents.map(|content| store.put(content))).await {
                    stored?;
                }
            }
        }
        Ok(())
    }

    /// How much memory a stream of 1 GiB takes on its way in and out.
    async fn memory(&self) -> Result<()> {
        const PIECES: usize = 16 * 1_024;
        // Whatever the first use of the runtime and the store takes is not the stream's.
        put(&self.none, &content(MIB, 77)).await?;
        let before = peak_kib()?;
        let piece = content(1 << 16, 5);
        let pieces = stream::iter((0..PIECES).map(|_| Ok(piece.clone())));
        let begun = Instant::now();
        let stored = self.none.put_stream(pieces.boxed()).await?;
        let (put, put_kib) = (begun.elapsed(), peak_kib()?.saturating_sub(before));
        let begun = Instant::now();
        let mut reader = self.none.get_stream(stored.blob).await?;
        let mut size = 0;
        while let Some(piece) = reader.try_next().await? {
            size += piece.len() as u64;
        }
        let (get, get_kib) = (begun.elapsed(), peak_kib()?.saturating_sub(before));
        if size != stored.size_bytes {
            return Err("the stream came back shorter".into());
        }
        println!("1 GiB as a stream");
        println!("  put  {put:>10.1?}  peak memory grew by {put_kib} KiB (target < 4096)");
        println!("  get  {get:>10.1?}  peak memory grew by {get_kib} KiB (target < 4096)");
        Ok(())
    }

    /// On the same kind of thread as the store's own work: under load, one that has just worked hard waits longer.
    async fn plain(&self, content: &Bytes, sync: bool) -> Result<Duration> {
        let (path, content) = (self.folder.join("plain-write"), content.clone());
        let written = spawn_blocking(move || {
            let begun = Instant::now();
            let mut file = File::create_new(&path)?;
            file.write_all(&content)?;
            if sync {
                file.sync_data()?;
            }
            drop(file);
            let took = begun.elapsed();
            fs::remove_file(&path)?;
            Ok::<_, std::io::Error>(took)
        });
        Ok(written.await??)
    }

    fn git(&self, repository: &Path, content: &[u8]) -> Result<Duration> {
        let begun = Instant::now();
        let mut git = Command::new("git")
            .arg("-C")
            .arg(repository)
            .args(["hash-object", "-w", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        if let Some(mut input) = git.stdin.take() {
            input.write_all(content)?;
        }
        if git.wait()?.success() {
            Ok(begun.elapsed())
        } else {
            Err("git hash-object failed".into())
        }
    }
}

async fn put(store: &FsStore, content: &Bytes) -> Result<Duration> {
    let content = content.clone();
    let begun = Instant::now();
    store.put(content).await?;
    Ok(begun.elapsed())
}

/// Noise, different in each round, so that nothing exists and nothing compresses away.
fn content(size: usize, round: usize) -> Bytes {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ (round as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

/// The largest resident size so far, in KiB.
fn peak_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    Ok(peak
        .ok_or("the peak of memory is not told here")?
        .trim()
        .parse()?)
}

struct Times<const N: usize>([Vec<Duration>; N]);

impl<const N: usize> Default for Times<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Vec::new()))
    }
}

impl<const N: usize> Times<N> {
    fn add(&mut self, at: usize, time: Duration) {
        if let Some(times) = self.0.get_mut(at) {
            times.push(time);
        }
    }

    fn medians(self) -> [Duration; N] {
        self.0.map(|mut times| {
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or_default()
        })
    }
}

fn row(name: &str, time: Duration, over: Option<Duration>, target: &str) {
    let ratio = over.map_or(String::new(), |over| {
        format!("{:>7.2} x", time.as_secs_f64() / over.as_secs_f64())
    });
    let target = if target.is_empty() {
        String::new()
    } else {
        format!("  (target {target})")
    };
    println!("  {name:<26}{time:>10.2?} {ratio}{target}");
}
