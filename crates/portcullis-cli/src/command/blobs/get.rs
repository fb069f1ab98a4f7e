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
    size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'static str>,
    base64: String,
}

pub(super) async fn run(arguments: &GetArguments) -> Result<ExitStatus, Refused> {
    let store = arguments.store.open()?;
    if arguments.store.format == Format::Json {
        let content = match &arguments.range {
            Some(range) => store.get_range(arguments.blob, range.clone()).await?,
            None => store.get(arguments.blob).await?,
        };
        output::json(&ContentLine {
            blob: arguments.blob,
            size_bytes: content.len() as u64,
            media_type: sniff(&content).map(|kind| kind.name),
            base64: base64_simd::STANDARD.encode_to_string(&content),
        });
        return Ok(ExitStatus::Done);
    }
    let mut out = std::io::stdout().lock();
    if std::io::IsTerminal::is_terminal(&out) {
        output::error("a blob may hold anything, and this is a terminal: send it to a file, as in `> FILE`");
        return Ok(ExitStatus::Usage);
    }
    let written = match &arguments.range {
        Some(range) => out.write_all(&store.get_range(arguments.blob, range.clone()).await?),
        None => {
            let mut content = store.get_stream(arguments.blob).await?;
            let mut written = Ok(());
            while written.is_ok()
                && let Some(piece) = content.next().await
            {
                written = out.write_all(&piece?);
            }
            written
        }
    };
    match written.and_then(|()| out.flush()) {
        Ok(()) => Ok(ExitStatus::Done),
        Err(error) => {
            output::error(&format!("standard output cannot be written: {error}"));
            Ok(ExitStatus::Failed)
        }
    }
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
