//! `portcullis blobs`: a look at the store that results' binary content goes to, also beside a running hub.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use futures::TryStreamExt;
use portcullis::{
    BlobRef,
    blobs::{BlobEntry, BlobError, BlobStore, FsOptions, FsStore, GcOptions, Progress, Tag, TagName},
    config::{Options, normalize},
    read_documents,
};
use serde::Serialize;

use crate::{ExitStatus, arguments::Format, findings, host::Host, hub, output, progress};

mod get;
mod text;
mod untag;
mod verify;

use text::{age, bytes, of_bytes, parse_duration};

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
    /// Let a name's tags go: what nothing else keeps is then collected once its retention is over
    Untag {
        /// Which one, as `ls` shows it: session:ID for what a session stored
        #[arg(value_name = "NAME")]
        name: TagName,
        /// Only from this blob
        #[arg(value_name = "BLOB")]
        blob: Option<BlobRef>,
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
        BlobsCommand::Verify { wanted, store } => verify::run(&store, wanted).await,
        BlobsCommand::Gc {
            retention,
            config,
            dry_run,
            store,
        } => match retention.map_or_else(|| retention_of(&config), Ok) {
            Ok(retention) => collect(&store, retention, dry_run).await,
            Err(status) => return status,
        },
        BlobsCommand::Untag { name, blob, store } => untag::run(&store, name, blob).await,
        BlobsCommand::Stats(store) => stats(&store).await,
    };
    done.unwrap_or_else(|refused| refused.tell())
}

async fn list(arguments: &StoreArguments) -> Result<ExitStatus, Refused> {
    let store = arguments.open()?;
    let mut tags: HashMap<BlobRef, Vec<Tag>> = HashMap::new();
    for tag in store.tags().await? {
        tags.entry(tag.blob).or_default().push(tag);
    }
    let mut entries = store.list();
    while let Some(entry) = entries.try_next().await? {
        let line = BlobLine::of(&entry, tags.get(&entry.blob).map_or(&[], Vec::as_slice));
        match arguments.format {
            Format::Json => output::json(&line),
            Format::Text => output::line(&line.text()),
        }
    }
    Ok(ExitStatus::Done)
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
        ..GcOptions::at(hub::now_ms())
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
        Ok(FsStore::open_existing(&folder, FsOptions::default())?)
    }
}

impl BlobLine {
    /// Of a blob that these tags keep.
    fn of(entry: &BlobEntry, tags: &[Tag]) -> Self {
        Self {
            blob: entry.blob,
            size_bytes: entry.size_bytes,
            stored_ms: entry.stored_ms,
            tags: tags
                .iter()
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
            .map_or_else(String::new, |at_ms| age(hub::now_ms(), at_ms));
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
    /// Too large to be read at once.
    TooLarge {
        limit_bytes: u64,
    },
    /// Nothing is kept under that name, or not the blob that was named.
    NoTag {
        name: TagName,
        blob: Option<BlobRef>,
    },
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
            Self::Store(
                error @ (BlobError::NoStore { .. } | BlobError::NotAStore { .. } | BlobError::Range { .. }),
            ) => (output::chain(error), ExitStatus::Usage),
            Self::Store(error) => (output::chain(error), ExitStatus::Failed),
            Self::TooLarge { limit_bytes } => (
                format!(
                    "as JSON at most {} are read at once: leave `--format json` out, or take parts with `--range`",
                    bytes(*limit_bytes)
                ),
                ExitStatus::Usage,
            ),
            Self::NoTag {
                name,
                blob: Some(blob),
            } => (
                format!(
                    "no tag `{name}` is on `{blob}`: `portcullis blobs ls` shows the tags of each blob that is there"
                ),
                ExitStatus::Failed,
            ),
            Self::NoTag { name, blob: None } => (
                format!(
                    "no tag is called `{name}`: `portcullis blobs ls` shows the tags of each blob that is there"
                ),
                ExitStatus::Failed,
            ),
        };
        output::error(&told);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_were_busy_are_told() {
        let line = |busy_parts| CollectedLine {
            dry_run: false,
            examined: 9,
            removed: 1,
            removed_bytes: 2_048,
            expired_tags: 0,
            busy_parts,
        };
        let done = "9 blobs looked at, 1 removed (2.0 KiB), 0 tags had expired";
        assert_eq!(line(0).text(), done);
        assert_eq!(
            line(3).text(),
            format!("{done}; 3 of 256 parts were busy: run it again")
        );
    }
}
