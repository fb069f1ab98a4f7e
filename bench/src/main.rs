//! The store's figures, beside plain files, git and cacache on the same disk in the same run: `cargo xtask bench blobs`.
//!
//! `portcullis-bench [FOLDER]` works in a new folder below FOLDER (the system's temporary folder where none is given).
//! What is compared takes turns. Each figure is a median, of 63 at 1 MiB and of 15 else, after one turn that does not
//! count. A put is timed as its caller sees it, so with the way to a thread that may block and back; what it is
//! compared with is timed on such a thread, without that way. Reads are all timed with it.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement reads the clock and writes plain files to compare with"
)]
#![expect(clippy::print_stdout, reason = "the figures")]

use std::{
    error::Error,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use portcullis_blobs::{BlobStore, Bytes, Durability, FsOptions, FsStore, Hash};
use tokio::task::spawn_blocking;

mod figures;
mod rivals;

use figures::{Times, row, turns};
use rivals::{Cacache, Git, plain_write};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 15;
const ROUNDS_SMALL: usize = 63;
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
    sha256: Cacache,
    xxh3: Cacache,
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
            sha256: Cacache::sha256(folder),
            xxh3: Cacache::xxh3(folder),
        })
    }

    async fn writes(&self, size: usize) -> Result<()> {
        let rounds = rounds_of(size);
        let git = Git::new(&self.folder);
        let mut times = Times::<8>::default();
        for round in 0..=rounds {
            let content = content(size, round);
            // What was written before is not to be waited for in the next measurement, and nobody is always first.
            // Everyone's content is removed after its turn: a virtual machine whose free memory goes back to the host
            // takes ten times as long to fill memory anew as memory that was just given back, and so all get the like.
            for turn in turns::<8>(round) {
                rustix::fs::sync();
                let time = match turn {
                    0 => plain_write(&self.scratch_of("none"), &content, false).await?,
                    1 => self.put_once("none", &self.none, &content).await?,
                    2 => plain_write(&self.scratch_of("fsync"), &content, true).await?,
                    3 => self.put_once("fsync", &self.fsync, &content).await?,
                    4 => self.put_once("group", &self.group, &content).await?,
                    5 => self.sha256.write(&content).await?,
                    6 => self.xxh3.write(&content).await?,
                    _ => match &git {
                        Some(git) => git.write(&content)?,
                        None => continue,
                    },
                };
                if round > 0 {
                    times.add(turn, time);
                }
            }
        }
        let [plain, none, synced, fsync, group, sha256, xxh3, git] = times.medians();
        println!("\nwrite {} MiB", size / MIB);
        row("plain write", plain, None, "");
        let target = if size == MIB { "<= 1.8" } else { "<= 1.4" };
        row("put, no fsync", none, Some(plain), target);
        row("plain write + fdatasync", synced, None, "");
        row("put, fsync", fsync, Some(synced), "<= 1.35");
        row("put, group", group, Some(synced), "");
        println!("  others over put, no fsync");
        row("cacache, sha256", sha256, Some(none), "> 1");
        row("cacache, xxh3", xxh3, Some(none), "> 1");
        if !git.is_zero() {
            row("git hash-object -w", git, Some(none), ">= 20");
        }
        Ok(())
    }

    /// Where the store of that name writes. A plain write has to be there to be compared with: ext4 without a journal does not
    /// use an inode again for minutes after its file was removed, and looks through all of these each time it makes a file,
    /// which takes up to 0.3 ms in a part of the disk where many were removed, and nothing in another.
    fn scratch_of(&self, name: &str) -> PathBuf {
        self.folder.join(name).join("tmp")
    }

    /// Times a put of what is not there, and removes it again behind the store's back, in its folder `name`.
    async fn put_once(&self, name: &str, store: &FsStore, content: &Bytes) -> Result<Duration> {
        let content = content.clone();
        let begun = Instant::now();
        let stored = store.put(content).await?;
        let took = begun.elapsed();
        if stored.existed {
            return Err("what was to be new was there".into());
        }
        let hash = stored.blob.0.to_string();
        let shard = hash.get(..2).unwrap_or_default();
        fs::remove_file(self.folder.join(name).join("blake3").join(shard).join(&hash))?;
        Ok(took)
    }

    async fn reads(&self, size: usize) -> Result<()> {
        let content = content(size, 0);
        let blob = self.none.put(content.clone()).await?.blob;
        let entry = self.xxh3.put(&content)?;
        let file = self.folder.join("plain");
        fs::write(&file, &content)?;
        drop(content);
        let mut room = vec![0; size];
        let mut times = Times::<7>::default();
        for round in 0..=rounds_of(size) {
            for turn in turns::<7>(round) {
                let begun = Instant::now();
                let time = match turn {
                    0 => {
                        let path = file.clone();
                        timed(begun, spawn_blocking(move || fs::read(path)).await??)
                    }
                    1 => timed(begun, self.none.get(blob).await?),
                    2 => timed(begun, self.xxh3.read(&entry).await?),
                    3 => timed(begun, self.none.verify(blob).await?),
                    4 => timed(begun, self.none.get_range(blob, 1_000..2_000).await?),
                    5 => timed(begun, spawn_blocking(|| ()).await?),
                    _ => {
                        let path = file.clone();
                        let (read, time) = spawn_blocking(move || read_and_hash(&path, room)).await??;
                        room = read;
                        time
                    }
                };
                if round > 0 {
                    times.add(turn, time);
                }
            }
        }
        let [plain, get, xxh3, streamed, range, way, work] = times.medians();
        println!("\nread {} MiB, in the page cache", size / MIB);
        row("plain read", plain, None, "");
        row("get, verified", get, Some(plain), "");
        row("cacache, xxh3", xxh3, Some(plain), "");
        row("get over cacache, xxh3", get, Some(xxh3), "<= 0.9");
        row("get_stream, to its end", streamed, Some(plain), "");
        row("get_range of 1,000 bytes", range, Some(plain), "");
        println!("  what two threads could reach, with new memory at no cost");
        row("way to a thread and back", way, None, "");
        row("read and blake3, on one", work, None, "");
        row("the way and half of that", way + work / 2, Some(xxh3), "");
        Ok(())
    }

    /// Puts what is there: through the handle that put it, and through one that has not seen it before.
    async fn existing(&self, size: usize) -> Result<()> {
        let known = content(size, 0);
        self.none.put(known.clone()).await?;
        let options = FsOptions {
            durability: Durability::None,
            ..FsOptions::default()
        };
        let other = FsStore::open(&self.folder.join("none"), options)?;
        let mut times = Times::<3>::default();
        for round in 0..=ROUNDS_SMALL {
            let unseen = content(size, 10_000 + round);
            self.none.put(unseen.clone()).await?;
            for turn in turns::<3>(round) {
                let whole = known.clone();
                let begun = Instant::now();
                let time = match turn {
                    0 => {
                        std::hint::black_box(spawn_blocking(move || Hash::of(&whole)).await?);
                        begun.elapsed()
                    }
                    1 => put(&self.none, &known).await?,
                    _ => put(&other, &unseen).await?,
                };
                if round > 0 {
                    times.add(turn, time);
                }
            }
        }
        let [hash, again, elsewhere] = times.medians();
        println!("\nput what exists, {} MiB", size / MIB);
        row("blake3 alone", hash, None, "");
        row("put again", again, Some(hash), "near 1");
        row("put by another handle", elsewhere, Some(hash), "");
        Ok(())
    }

    /// Many small blobs at once: what sharing syncs is for.
    async fn at_once(&self) -> Result<()> {
        println!("\n64 puts of 4 KiB at once");
        let mut times = Times::<2>::default();
        for round in 0..=ROUNDS {
            for (at, store) in [&self.fsync, &self.group].into_iter().enumerate() {
                let contents = (0..64).map(|number| content(4 << 10, 1_000 + round * 64 + number));
                let begun = Instant::now();
                for stored in join_all(contents.map(|content| store.put(content))).await {
                    stored?;
                }
                if round > 0 {
                    times.add(at, begun.elapsed());
                }
            }
        }
        let [fsync, group] = times.medians();
        row("put, fsync", fsync, None, "");
        row("put, group", group, Some(fsync), "");
        Ok(())
    }

    /// Brings all stores to where one is that has been in use: with some thousand blobs, and the folders for them.
    async fn settle(&self) -> Result<()> {
        for batch in 0..32 {
            let contents: Vec<_> = (0..64)
                .map(|number| content(64, 100_000 + batch * 64 + number))
                .collect();
            for store in [&self.none, &self.fsync, &self.group] {
                for stored in join_all(contents.iter().map(|content| store.put(content.clone()))).await {
                    stored?;
                }
            }
            for content in &contents {
                self.sha256.put(content)?;
                self.xxh3.put(content)?;
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
}

async fn put(store: &FsStore, content: &Bytes) -> Result<Duration> {
    let content = content.clone();
    let begun = Instant::now();
    store.put(content).await?;
    Ok(begun.elapsed())
}

/// How long it took until `result` was there; what it holds is given back outside of that.
fn timed<T>(begun: Instant, result: T) -> Duration {
    let took = begun.elapsed();
    drop(result);
    took
}

/// How long it takes to read `file` into `room`, and to hash that.
fn read_and_hash(file: &Path, mut room: Vec<u8>) -> io::Result<(Vec<u8>, Duration)> {
    let begun = Instant::now();
    File::open(file)?.read_exact(&mut room)?;
    std::hint::black_box(Hash::of(&room));
    Ok((room, begun.elapsed()))
}

/// How often something of this size is measured.
fn rounds_of(size: usize) -> usize {
    if size <= MIB { ROUNDS_SMALL } else { ROUNDS }
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
