//! `portcullis blobs verify`.

use super::*;

#[derive(Default, Serialize)]
struct VerifiedLine {
    verified: u64,
    size_bytes: u64,
    /// Those that are not what their names say, or not there.
    damaged: Vec<FailedLine>,
    /// Those of which that is not known.
    unread: Vec<FailedLine>,
}

#[derive(Serialize)]
struct FailedLine {
    blob: BlobRef,
    error: String,
}

impl VerifiedLine {
    fn failed(&mut self, blob: BlobRef, error: &BlobError) {
        let line = FailedLine {
            blob,
            error: output::chain(error),
        };
        match error {
            BlobError::Corrupt { .. } | BlobError::NotFound(_) => self.damaged.push(line),
            _ => self.unread.push(line),
        }
    }
}

pub(super) async fn run(arguments: &StoreArguments, wanted: Vec<BlobRef>) -> Result<ExitStatus, Refused> {
    let store = arguments.open()?;
    let is_named = !wanted.is_empty();
    let blobs = sizes_of(&store, wanted).await?;
    let shown = Progress::default();
    shown.begin(blobs.iter().map(|(_, size_bytes)| size_bytes).sum());
    let work = verify_all(&store, blobs, is_named, &shown);
    let line = progress::show("verifying", of_bytes, &shown, work).await;
    match arguments.format {
        Format::Json => output::json(&line),
        Format::Text => {
            let failed = line.damaged.iter().chain(&line.unread);
            failed.for_each(|failed| output::error(&failed.error));
            output::line(&format!(
                "{} blobs ({}) are what their names say; {} are not, and {} could not be read",
                line.verified,
                bytes(line.size_bytes),
                line.damaged.len(),
                line.unread.len()
            ));
        }
    }
    Ok(if line.damaged.is_empty() && line.unread.is_empty() {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    })
}

/// Verifies `blobs`. One that is gone is damage only where it was named: a collector may run beside us.
async fn verify_all(
    store: &FsStore,
    blobs: Vec<(BlobRef, u64)>,
    is_named: bool,
    shown: &Progress,
) -> VerifiedLine {
    let mut line = VerifiedLine::default();
    for (blob, size_bytes) in blobs {
        match verify_one(store, blob, size_bytes, shown).await {
            Ok(size_bytes) => {
                line.verified += 1;
                line.size_bytes += size_bytes;
            }
            Err(BlobError::NotFound(_)) if !is_named => {}
            Err(error) => line.failed(blob, &error),
        }
    }
    line
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

    #[test]
    fn what_is_collected_beside_it_is_not_damaged() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let parent = tempfile::tempdir().unwrap();
        let store = FsStore::open(parent.path(), FsOptions::default()).unwrap();
        runtime.block_on(async {
            let kept = store.put(Bytes::from_static(b"kept")).await.unwrap().blob;
            let missing: BlobRef = format!("blob:blake3:{}", "0".repeat(64)).parse().unwrap();
            for (is_named, damaged) in [(false, 0), (true, 1)] {
                let blobs = vec![(missing, 9), (kept, 4)];
                let line = verify_all(&store, blobs, is_named, &Progress::default()).await;
                assert_eq!((line.verified, line.damaged.len()), (1, damaged), "{is_named}");
            }
        });
    }

    #[test]
    fn what_cannot_be_read_is_not_said_to_be_damaged() {
        let blob: BlobRef = format!("blob:blake3:{}", "0".repeat(64)).parse().unwrap();
        let place = || "/blobs".to_owned();
        let source = || std::io::Error::from(std::io::ErrorKind::Other);
        let mut line = VerifiedLine::default();
        let corrupt = BlobError::Corrupt {
            blob,
            why: "it is shorter".to_owned(),
        };
        line.failed(blob, &corrupt);
        assert_eq!((line.damaged.len(), line.unread.len()), (1, 0));
        for error in [
            BlobError::Forbidden {
                action: "read",
                place: place(),
                source: source(),
            },
            BlobError::Io {
                action: "read",
                place: place(),
                source: source(),
            },
            BlobError::Busy { place: place() },
        ] {
            line.unread.clear();
            line.failed(blob, &error);
            assert_eq!((line.damaged.len(), line.unread.len()), (1, 1), "{error}");
        }
    }
}
