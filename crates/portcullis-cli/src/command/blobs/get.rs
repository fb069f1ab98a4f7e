//! `portcullis blobs get`.

use std::{io::Write, ops::Range};

use clap::Args;
use portcullis::blobs::sniff;

use super::*;

#[derive(Debug, Args)]
pub(super) struct GetArguments {
    /// Which one: blob:blake3:<64 digits>
    blob: BlobRef,
    /// Only the bytes from FROM (counted from 0) up to and without TO
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range)]
    range: Option<Range<u64>>,
    #[command(flatten)]
    store: StoreArguments,
}

/// The content as JSON, in base64.
#[derive(Serialize)]
struct ContentLine {
    blob: BlobRef,
    /// Of the whole blob, also where a part of it is wanted.
    size_bytes: u64,
    /// Where that part begins, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    /// Of the whole blob: a part does not tell what it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'static str>,
    base64: String,
}

pub(super) async fn run(arguments: &GetArguments) -> Result<ExitStatus, Refused> {
    let store = arguments.store.open()?;
    if arguments.store.format == Format::Json {
        output::json(&content(&store, arguments).await?);
        return Ok(ExitStatus::Done);
    }
    let mut out = std::io::stdout().lock();
    if std::io::IsTerminal::is_terminal(&out) {
        output::error("a blob may hold anything, and this is a terminal: send it to a file, as in `> FILE`");
        return Ok(ExitStatus::Usage);
    }
    let written = match &arguments.range {
        Some(range) => out.write_all(&store.get_range(arguments.blob, range.clone()).await?),
        None => write(&store, arguments.blob, &mut out).await?,
    };
    match written.and_then(|()| out.flush()) {
        Ok(()) => Ok(ExitStatus::Done),
        Err(error) => {
            output::error(&format!("standard output cannot be written: {error}"));
            Ok(ExitStatus::Failed)
        }
    }
}

async fn content(store: &FsStore, arguments: &GetArguments) -> Result<ContentLine, Refused> {
    let blob = arguments.blob;
    let size_bytes = store.size_bytes(blob).await?.ok_or(BlobError::NotFound(blob))?;
    let content = match &arguments.range {
        Some(range) => store.get_range(blob, range.clone()).await,
        None => store.get(blob).await,
    };
    let content = content.map_err(|error| match error {
        BlobError::TooLarge { limit_bytes } => Refused::TooLarge { limit_bytes },
        other => Refused::Store(other),
    })?;
    let whole = arguments.range.is_none().then_some(&content);
    Ok(ContentLine {
        blob,
        size_bytes,
        from: arguments.range.as_ref().map(|range| range.start),
        media_type: whole.and_then(|content| sniff(content)).map(|kind| kind.name),
        base64: base64_simd::STANDARD.encode_to_string(&content),
    })
}

/// Writes the blob piece by piece, and shows how far that is.
async fn write(store: &FsStore, blob: BlobRef, out: &mut impl Write) -> Result<std::io::Result<()>, Refused> {
    let mut content = store.get_stream(blob).await?;
    let shown = Progress::default();
    shown.begin(content.size_bytes());
    let work = async {
        while let Some(piece) = content.try_next().await? {
            if let Err(error) = out.write_all(&piece) {
                return Ok(Err(error));
            }
            shown.advance(piece.len() as u64);
        }
        Ok(Ok(()))
    };
    progress::show("reading", of_bytes, &shown, work).await
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let ends = text
        .split_once("..")
        .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match ends {
        Some((from, to)) if from <= to => Ok(from..to),
        _ => Err("give two numbers of bytes, such as 0..1024".to_owned()),
    }
}
