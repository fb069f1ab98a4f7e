//! `portcullis blobs`: a look at the store that results' binary content goes to, also beside a running hub.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use futures::{StreamExt, TryStreamExt};
use portcullis::{
    BlobRef,
    blobs::{BlobEntry, BlobError, BlobStore, FsOptions, FsStore, GcOptions, Progress, Tag},
    config::{Options, normalize},
    read_documents,
};
use serde::Serialize;

use crate::{ExitStatus, arguments::Format, findings, host::Host, hub, output, progress};

mod get;
mod text;

use text::{age, bytes, parse_duration};

#[derive(Debug, Args)]
pub(crate) struct BlobsArguments {
    #[command(subcommand)]
    command: BlobsCommand,
}

#[derive(Debug, Subcommand)]
enum BlobsCommand {
    /// List the blobs, with what keeps them
    Ls(StoreArguments),
    /// Write one blob's content to standard output, checked against its name
    Get(get::GetArguments),
    /// Check that blobs are what their names say; set aside those that are not
    Verify {
        /// Which ones; all where none is named
        #[arg(value_name = "BLOB")]
        wanted: Vec<BlobRef>,
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Remove what nothing keeps: no tag, no running hub, and no put within the retention
    Gc {
        /// How long what nothing keeps stays all the same: 30m, 12h, 7d [default: 7d]
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        retention: Option<Duration>,
        /// Configuration files whose `blobs.retentionSeconds` counts where there is no --retention
        #[arg(long, num_args = 1.., value_name = "FILE")]
        config: Vec<PathBuf>,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Say how much there is
    Stats(StoreArguments),
}

#[derive(Debug, Args)]
struct StoreArguments {
    /// The folder of the blobs [default: $XDG_DATA_HOME/portcullis/blobs]
    #[arg(long, value_name = "DIR")]
    blobs: Option<PathBuf>,
    /// How to print; `json` prints one object a line
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// A blob, in `ls`.
#[derive(Serialize)]
struct BlobLine {
    blob: BlobRef,
    size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_ms: Option<i64>,
    tags: Vec<TagLine>,
}

#[derive(Serialize)]
struct TagLine {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<i64>,
}

#[derive(Serialize)]
struct VerifiedLine {
    verified: u64,
    size_bytes: u64,
    damaged: Vec<DamagedLine>,
}

#[derive(Serialize)]
struct DamagedLine {
    blob: BlobRef,
    error: String,
}

#[derive(Serialize)]
struct CollectedLine {
    dry_run: bool,
    examined: u64,
    removed: u64,
    removed_bytes: u64,
    expired_tags: u64,
    busy_parts: u64,
}

#[derive(Serialize)]
struct StatsLine {
    folder: String,
    blobs: u64,
    size_bytes: u64,
    tags: u64,
    quarantined: u64,
}

pub(crate) async fn run(arguments: BlobsArguments) -> ExitStatus {
    let done = match arguments.command {
        BlobsCommand::Ls(store) => list(&store).await,
        BlobsCommand::Get(arguments) => get::run(&arguments).await,
        BlobsCommand::Verify { wanted, store } => verify(&store, wanted).await,
        BlobsCommand::Gc {
            retention,
            config,
            dry_run,
            store,
        } => match retention.map_or_else(|| retention_of(&config), Ok) {
            Ok(retention) => collect(&store, retention, dry_run).await,
            Err(status) => return status,
        },
        BlobsCommand::Stats(store) => stats(&store).await,
    };
    done.unwrap_or_else(|refused| refused.tell())
}

async fn list(arguments: &StoreArguments) -> Result<ExitStatus, Refused> {
    let store = arguments.open()?;
    let tags = store.tags().await?;
    let mut entries = store.list();
    while let Some(entry) = entries.try_next().await? {
        let line = BlobLine::of(&entry, &tags);
        match arguments.format {
            Format::Json => output::json(&line),
            Format::Text => output::line(&line.text()),
        }
    }
    Ok(ExitStatus::Done)
}

async fn verify(arguments: &StoreArguments, wanted: Vec<BlobRef>) -> Result<ExitStatus, Refused> {
    let store = arguments.open()?;
    let blobs = sizes_of(&store, wanted).await?;
    let shown = Progress::default();
    shown.begin(blobs.iter().map(|(_, size_bytes)| size_bytes).sum());
    let work = async {
        let mut line = VerifiedLine {
            verified: 0,
            size_bytes: 0,
            damaged: Vec::new(),
        };
        for (blob, size_bytes) in blobs {
            match verify_one(&store, blob, size_bytes, &shown).await {
                Ok(size_bytes) => {
                    line.verified += 1;
                    line.size_bytes += size_bytes;
                }
                Err(error) => line.damaged.push(DamagedLine {
                    blob,
                    error: output::chain(&error),
                }),
            }
        }
        line
    };
    let amount = |done, total| format!("{} of {}", bytes(done), bytes(total));
    let line = progress::show("verifying", amount, &shown, work).await;
    match arguments.format {
        Format::Json => output::json(&line),
        Format::Text => {
            line.damaged
                .iter()
                .for_each(|damaged| output::error(&damaged.error));
            output::line(&format!(
                "{} blobs ({}) are what their names say; {} are not",
                line.verified,
                bytes(line.size_bytes),
                line.damaged.len()
            ));
        }
    }
    Ok(if line.damaged.is_empty() {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    })
}

/// The blobs that are wanted, or all, each with its size in bytes as the store has it.
async fn sizes_of(store: &FsStore, wanted: Vec<BlobRef>) -> Result<Vec<(BlobRef, u64)>, BlobError> {
    if wanted.is_empty() {
        let entries = store.list();
        return entries
            .map_ok(|entry| (entry.blob, entry.size_bytes))
            .try_collect()
            .await;
    }
    let mut blobs = Vec::new();
    for blob in wanted {
        blobs.push((blob, store.size_bytes(blob).await?.unwrap_or(0)));
    }
    Ok(blobs)
}

/// Verifies `blob` and gives its size, showing every piece of it as it is read. What is then found to be missing counts
/// as done, too.
async fn verify_one(
    store: &FsStore,
    blob: BlobRef,
    size_bytes: u64,
    shown: &Progress,
) -> Result<u64, BlobError> {
    let mut read = 0;
    let verified = async {
        let mut pieces = store.get_stream(blob).await?;
        while let Some(piece) = pieces.try_next().await? {
            read += piece.len() as u64;
            shown.advance(piece.len() as u64);
        }
        Ok(())
    };
    let verified = verified.await;
    shown.advance(size_bytes.saturating_sub(read));
    verified.map(|()| read)
}

/// The retention that the configurations state, or the default. Where they leave it open, it may be one that is longer.
/// What is wrong with a server, or with this machine, is no matter here.
fn retention_of(config: &[PathBuf]) -> Result<Duration, ExitStatus> {
    let documents = read_documents(config).map_err(|error| {
        output::error(&error.to_string());
        ExitStatus::from(&error)
    })?;
    let options = Options::default();
    let normalized = normalize(&documents, &options, &Host::capture());
    if normalized.settings.retention_unclear {
        findings::print(&documents, &normalized.diagnostics, &options);
        return Err(ExitStatus::BadConfig);
    }
    let stated = normalized.settings.blobs.retention;
    Ok(stated.map_or_else(|| GcOptions::at(0).retention, |setting| setting.value))
}

async fn collect(
    arguments: &StoreArguments,
    retention: Duration,
    dry_run: bool,
) -> Result<ExitStatus, Refused> {
    let store = arguments.open()?;
    let options = GcOptions {
        retention,
        dry_run,
        ..GcOptions::at(now_ms())
    };
    let shown = options.progress.clone();
    let amount = |done, total| format!("{done} of {total} parts");
    let report = progress::show("collecting", amount, &shown, store.gc(options)).await?;
    let line = CollectedLine {
        dry_run,
        examined: report.examined,
        removed: report.removed,
        removed_bytes: report.removed_bytes,
        expired_tags: report.expired_tags,
        busy_parts: report.busy_parts,
    };
    match arguments.format {
        Format::Json => output::json(&line),
        Format::Text => output::line(&line.text()),
    }
    Ok(ExitStatus::Done)
}

async fn stats(arguments: &StoreArguments) -> Result<ExitStatus, Refused> {
    let store = arguments.open()?;
    let stats = store.stats().await?;
    let line = StatsLine {
        folder: arguments.folder()?.display().to_string(),
        blobs: stats.blobs,
        size_bytes: stats.size_bytes,
        tags: stats.tags,
        quarantined: stats.quarantined,
    };
    match arguments.format {
        Format::Json => output::json(&line),
        Format::Text => output::line(&format!(
            "{}: {} blobs, {}, {} tags, {} set aside as damaged",
            output::safe(&line.folder),
            line.blobs,
            bytes(line.size_bytes),
            line.tags,
            line.quarantined
        )),
    }
    Ok(ExitStatus::Done)
}

impl StoreArguments {
    fn folder(&self) -> Result<PathBuf, Refused> {
        let folder = self.blobs.clone().or_else(hub::default_blobs);
        folder.ok_or_else(|| {
            Refused::NoStore(
                "neither XDG_DATA_HOME nor HOME names a folder: name the store with --blobs".to_owned(),
            )
        })
    }

    /// Opens the store. To look at one does not make one.
    fn open(&self) -> Result<FsStore, Refused> {
        let folder = self.folder()?;
        if hub::is_missing(&folder) {
            return Err(Refused::NoStore(format!(
                "there is no blob store at `{}`: there is no such folder, so no hub has stored anything there; name \
                 another with --blobs",
                folder.display()
            )));
        }
        Ok(FsStore::open(&folder, FsOptions::default())?)
    }
}

impl BlobLine {
    fn of(entry: &BlobEntry, tags: &[Tag]) -> Self {
        let of_this = tags.iter().filter(|tag| tag.blob == entry.blob);
        Self {
            blob: entry.blob,
            size_bytes: entry.size_bytes,
            stored_ms: entry.stored_ms,
            tags: of_this
                .map(|tag| TagLine {
                    name: tag.name.to_string(),
                    expires_ms: tag.expires_ms,
                })
                .collect(),
        }
    }

    fn text(&self) -> String {
        let stored = self
            .stored_ms
            .map_or_else(String::new, |at_ms| age(now_ms(), at_ms));
        let tags: Vec<&str> = self.tags.iter().map(|tag| tag.name.as_str()).collect();
        format!(
            "{}  {:>9}  {stored:>8}  {}",
            self.blob,
            bytes(self.size_bytes),
            tags.join(" ")
        )
        .trim_end()
        .to_owned()
    }
}

impl CollectedLine {
    fn text(&self) -> String {
        let verb = if self.dry_run { "would go" } else { "removed" };
        let mut text = format!(
            "{} blobs looked at, {} {verb} ({}), {} tags had expired",
            self.examined,
            self.removed,
            bytes(self.removed_bytes),
            self.expired_tags
        );
        if self.busy_parts > 0 {
            text.push_str(&format!(
                "; {} of 256 parts were busy: run it again",
                self.busy_parts
            ));
        }
        text
    }
}

/// Why nothing was done.
#[derive(Debug)]
enum Refused {
    /// There is nothing to look at.
    NoStore(String),
    Store(BlobError),
}

impl From<BlobError> for Refused {
    fn from(error: BlobError) -> Self {
        Self::Store(error)
    }
}

impl Refused {
    fn tell(&self) -> ExitStatus {
        let (told, status) = match self {
            Self::NoStore(told) => (told.clone(), ExitStatus::Usage),
            Self::Store(error @ (BlobError::NotAStore { .. } | BlobError::Range { .. })) => {
                (output::chain(error), ExitStatus::Usage)
            }
            Self::Store(error) => (output::chain(error), ExitStatus::Failed),
        };
        output::error(&told);
        status
    }
}

fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the program's edge")]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use portcullis::blobs::Bytes;

    use super::*;

    #[test]
    fn progress_goes_by_the_bytes_that_were_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let parent = tempfile::tempdir().unwrap();
        let store = FsStore::open(parent.path(), FsOptions::default()).unwrap();
        runtime.block_on(async {
            let blob = store.put(Bytes::from(vec![7; 1 << 20])).await.unwrap().blob;
            let missing: BlobRef = format!("blob:blake3:{}", "0".repeat(64)).parse().unwrap();
            let sizes = sizes_of(&store, vec![blob, missing]).await.unwrap();
            assert_eq!(sizes, [(blob, 1 << 20), (missing, 0)]);
            assert_eq!(sizes_of(&store, Vec::new()).await.unwrap(), [(blob, 1 << 20)]);

            let shown = Progress::default();
            let size = verify_one(&store, blob, 1 << 20, &shown).await.unwrap();
            assert_eq!((size, shown.get().0), (1 << 20, 1 << 20));
            // It has gone since its size was asked for: what it would have taken is not waited for.
            assert!(verify_one(&store, missing, 1_000, &shown).await.is_err());
            assert_eq!(shown.get().0, (1 << 20) + 1_000);

            // While the first of a blob's pieces are read, they show.
            let mut verifying = std::pin::pin!(verify_one(&store, blob, 1 << 20, &shown));
            shown.begin(1 << 20);
            let mut seen = std::collections::BTreeSet::new();
            std::future::poll_fn(|context| {
                seen.insert(shown.get().0);
                verifying.as_mut().poll(context).map(drop)
            })
            .await;
            assert!(seen.range(1..1 << 20).next().is_some(), "{seen:?}");
        });
    }
}
