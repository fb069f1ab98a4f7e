//! The bounds of a script: a scripted server never waits, sends or loops without end.

use std::time::Duration;

use serde::de::IgnoredAny;

use super::{BadReply, Behaviour, Discover, Handshake, ListReply, Noise, Paging, Script};
use crate::Error;

/// The longest wait of any kind.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The longest request that is read.
pub(crate) const MAX_LINE_BYTES: u64 = 256 * 1024 * 1024;

/// The longest wait, as scripts write it.
const MAX_MS: u64 = 600_000;
/// The largest payload.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// The most of anything that is repeated.
const MAX_COUNT: u64 = 1_000_000;
/// The deepest nesting of behaviours in one another.
const MAX_DEPTH: u64 = 100;

pub(super) fn check(script: &Script) -> Result<(), Error> {
    handshake(script)?;
    let noise = &script.noise;
    let noises = [
        ("noise.at_start", &noise.at_start),
        ("noise.before_handshake", &noise.before_handshake),
        ("noise.after_handshake", &noise.after_handshake),
        ("noise.before_list", &noise.before_list),
        ("noise.per_message", &noise.per_message),
    ];
    for (field, noise) in noises
        .iter()
        .flat_map(|(field, noises)| noises.iter().map(move |noise| (field, noise)))
    {
        if let Noise::Blank(count) = noise {
            within(field, "blank", *count, MAX_COUNT)?;
        }
    }
    within("process", "stderr_bytes", script.process.stderr_bytes, MAX_BYTES)?;
    for descendant in &script.process.descendants {
        within("process.descendants", "seconds", descendant.seconds, 3_600)?;
    }
    listing(script)?;
    for (method, result) in &script.methods {
        json(&format!("methods.{method}"), result)?;
    }
    script
        .tools
        .iter()
        .try_for_each(|tool| behaviour(&format!("tools.{}", tool.name), &tool.behaviour, 0))
}

fn handshake(script: &Script) -> Result<(), Error> {
    if script.versions.is_empty() && script.era.is_legacy() {
        let what = "is empty; give at least one revision, for example `2025-11-25`".to_owned();
        return Err(Error::Invalid {
            field: "versions".to_owned(),
            what,
        });
    }
    match &script.handshake {
        Handshake::AfterMs(ms) => within("handshake", "after_ms", *ms, MAX_MS)?,
        Handshake::Raw(text) => json("handshake.raw", text)?,
        _ => {}
    }
    match &script.discover {
        Discover::Raw(text) => json("discover.raw", text),
        _ => Ok(()),
    }
}

fn listing(script: &Script) -> Result<(), Error> {
    match &script.listing.reply {
        ListReply::AfterMs(ms) => within("listing.reply", "after_ms", *ms, MAX_MS)?,
        ListReply::Raw(text) => json("listing.reply.raw", text)?,
        _ => {}
    }
    match &script.listing.paging {
        Paging::Size(0) => {
            let what = "is 0; give at least 1 tool a page".to_owned();
            Err(Error::Invalid {
                field: "listing.paging.size".to_owned(),
                what,
            })
        }
        Paging::Pages(pages) => {
            let missing = pages
                .iter()
                .flat_map(|page| &page.tools)
                .find(|place| **place >= script.tools.len());
            missing.map_or(Ok(()), |place| {
                let what = format!(
                    "names the tool at place {place}, but there are only {}",
                    script.tools.len()
                );
                Err(Error::Invalid {
                    field: "listing.paging.pages".to_owned(),
                    what,
                })
            })
        }
        _ => Ok(()),
    }
}

fn behaviour(field: &str, of: &Behaviour, depth: u64) -> Result<(), Error> {
    within(field, "then", depth, MAX_DEPTH)?;
    let then = match of {
        Behaviour::Raw(text) => return json(&format!("{field}.raw"), text),
        Behaviour::Image { bytes, .. }
        | Behaviour::Audio { bytes, .. }
        | Behaviour::EmbeddedBlob { bytes, .. }
        | Behaviour::Twin { bytes, .. } => return within(field, "bytes", *bytes, MAX_BYTES),
        Behaviour::BadReply(BadReply::Nesting(depth)) => return within(field, "nesting", *depth, MAX_COUNT),
        Behaviour::BadReply(BadReply::EndlessLine(bytes)) => {
            return within(field, "endless_line", *bytes, MAX_BYTES);
        }
        Behaviour::ListChanged { count, interval_ms } => {
            return repeated(field, *count, *interval_ms);
        }
        Behaviour::Ask { wait_ms, .. } => return within(field, "wait_ms", *wait_ms, MAX_MS),
        Behaviour::Delay { ms, then } | Behaviour::LateReply { ms, then } => {
            within(field, "ms", *ms, MAX_MS)?;
            then
        }
        Behaviour::Progress {
            count,
            interval_ms,
            then,
        } => {
            repeated(field, *count, *interval_ms)?;
            then
        }
        Behaviour::Stderr { bytes, then } => {
            within(field, "bytes", *bytes, MAX_BYTES)?;
            then
        }
        Behaviour::Notify { count, then, .. } => {
            within(field, "count", *count, MAX_COUNT)?;
            then
        }
        Behaviour::Record { then, .. } => then,
        _ => return Ok(()),
    };
    behaviour(field, then, depth.saturating_add(1))
}

/// Something repeated is bounded in number and in all its waits together.
fn repeated(field: &str, count: u64, interval_ms: u64) -> Result<(), Error> {
    within(field, "count", count, MAX_COUNT)?;
    within(
        field,
        "count times interval_ms",
        count.saturating_mul(interval_ms),
        MAX_MS,
    )
}

fn within(field: &str, name: &str, value: u64, limit: u64) -> Result<(), Error> {
    if value <= limit {
        Ok(())
    } else {
        Err(Error::TooMuch {
            field: format!("{field}.{name}"),
            value,
            limit,
        })
    }
}

/// A raw result must be JSON on one line, or it would break the frame; what breaks frames is asked for by name.
fn json(field: &str, text: &str) -> Result<(), Error> {
    let fault = match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => Some(format!("is not JSON ({error})")),
        Ok(_) if text.contains(['\n', '\r']) => Some("is JSON on more than one line".to_owned()),
        Ok(_) => None,
    };
    fault.map_or(Ok(()), |fault| {
        let what =
            format!("{fault}; write JSON on one line, or use `bad_reply` for what is meant to be broken");
        Err(Error::Invalid {
            field: field.to_owned(),
            what,
        })
    })
}
