//! Finding binary content inside strings: twins of what is stored already, data URLs, and whole base64 strings.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ops::Range,
};

use portcullis_blobs::{BlobRef, Hash, sniff};

use super::{
    base64, json,
    runs::{runs, unescaped},
};

/// The shortest base64 text that is taken for the twin of another: below it, equal may be chance.
const MIN_TWIN_BYTES: usize = 8;
/// How far before its comma a data URL may begin.
const MAX_HEADER_BYTES: usize = 256;
const SCHEME: &str = "data:";
const MARK: &str = ";base64";

/// What is binary in a result and was met already: the base64 texts of blocks and of structured content.
#[derive(Debug, Default)]
pub(super) struct Twins<'a> {
    texts: HashMap<Cow<'a, str>, BlobRef>,
    /// All of it, by the length of its canonical base64: that may be in no memory, or never have been.
    by_length: HashMap<u64, HashSet<BlobRef>>,
}

impl<'a> Twins<'a> {
    pub(super) fn insert(&mut self, text: Cow<'a, str>, blob: BlobRef) {
        self.texts.insert(text, blob);
    }

    /// Remembers a blob whose canonical base64 would have so many bytes.
    pub(super) fn insert_length(&mut self, text_bytes: u64, blob: BlobRef) {
        self.by_length.entry(text_bytes).or_default().insert(blob);
    }

    fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.by_length.is_empty()
    }

    fn get(&self, text: &str) -> Option<BlobRef> {
        if text.len() < MIN_TWIN_BYTES {
            return None;
        }
        self.texts.get(text).copied().or_else(|| {
            let candidates = self.by_length.get(&(text.len() as u64))?;
            let blob = BlobRef(Hash::of(&base64::canonical(text)?));
            candidates.contains(&blob).then_some(blob)
        })
    }
}

/// Where a string stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In `structuredContent`, where a whole string may be binary content.
    Structured,
    /// In a content block, where text is text.
    Block,
}

/// A part of a string that belongs into the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Find {
    /// Where in the text, in bytes.
    pub(super) range: Range<usize>,
    /// The base64 of it.
    pub(super) payload: Range<usize>,
    pub(super) content: Content,
}

/// What such a part holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// What is a twin, with the media type that was given with it here.
    Known { blob: BlobRef, declared: Option<String> },
    /// Bytes to be stored, with the media type that was given with them.
    New {
        bytes: Vec<u8>,
        declared: Option<String>,
    },
}

/// What was found in one string.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// What the ranges are of.
    pub(super) text: Cow<'a, str>,
    /// No text can have half a surrogate pair, so that of a string with one this is as it is written.
    pub(super) is_written: bool,
    /// In order.
    pub(super) finds: Vec<Find>,
    /// There may be more of them.
    pub(super) is_cut: bool,
}

impl<'a> Found<'a> {
    fn in_text(text: Cow<'a, str>, is_written: bool, looked: Parts) -> Option<Self> {
        let Parts { finds, is_cut } = looked;
        (is_cut || !finds.is_empty()).then_some(Self {
            text,
            is_written,
            finds,
            is_cut,
        })
    }

    /// `text` as a JSON string again, some of it replaced.
    pub(super) fn quoted(replaced: &str, is_written: bool) -> String {
        match is_written {
            true => format!("\"{replaced}\""),
            false => json::text(replaced),
        }
    }
}

/// What of the JSON string `raw` belongs into the store, the first `most` of it. `None` where nothing does.
pub(super) fn in_string<'a>(
    raw: &'a str,
    place: Place,
    twins: &Twins<'_>,
    min_bytes: usize,
    most: usize,
) -> Option<Found<'a>> {
    if raw.len() < MIN_TWIN_BYTES || (twins.is_empty() && raw.len() < min_bytes) {
        return None;
    }
    let Some(text) = json::unquote(raw) else {
        let written = raw.strip_prefix('"')?.strip_suffix('"')?;
        return Found::in_text(written.into(), true, parts(written, twins, min_bytes, most));
    };
    let whole = match place {
        Place::Structured => whole(&text, twins, min_bytes),
        _ => None,
    };
    let looked = match whole {
        Some(_) if most == 0 => Parts {
            finds: Vec::new(),
            is_cut: true,
        },
        Some(content) => Parts {
            finds: vec![Find {
                range: 0..text.len(),
                payload: 0..text.len(),
                content,
            }],
            is_cut: false,
        },
        None => parts(&text, twins, min_bytes, most),
    };
    Found::in_text(text, false, looked)
}

/// Whether `text` as a whole is binary content.
fn whole(text: &str, twins: &Twins<'_>, min_bytes: usize) -> Option<Content> {
    if let Some(blob) = twins.get(text) {
        return Some(Content::Known { blob, declared: None });
    }
    if text.len() < min_bytes {
        return None;
    }
    // A name of a hundred words may be valid base64 too: what it decodes to must be of a known binary kind.
    let bytes = base64::canonical(text)?;
    sniff(&bytes).filter(|kind| !kind.is_text)?;
    Some(Content::New {
        bytes,
        declared: None,
    })
}

struct Parts {
    finds: Vec<Find>,
    is_cut: bool,
}

/// Data URLs and long twins inside of `text`, the first `most` of them. Where it is JSON, they may have its escapes.
fn parts(text: &str, twins: &Twins<'_>, min_bytes: usize, most: usize) -> Parts {
    let mut finds: Vec<Find> = Vec::new();
    for run in runs(text, MIN_TWIN_BYTES) {
        let payload = run.of(text);
        let run = run.range;
        let free_from = finds.last().map_or(0, |last| last.range.end);
        let find = match header(text, free_from, run.start) {
            Some((start, declared)) => {
                let content = match twins.get(&payload) {
                    Some(blob) => Some(Content::Known { blob, declared }),
                    None if run.end - start < min_bytes => None,
                    None => base64::canonical(&payload).map(|bytes| Content::New { bytes, declared }),
                };
                content.map(|content| Find {
                    range: start..run.end,
                    payload: run,
                    content,
                })
            }
            None if payload.len() < min_bytes => None,
            None => twins.get(&payload).map(|blob| Find {
                range: run.clone(),
                payload: run,
                content: Content::Known { blob, declared: None },
            }),
        };
        if find.is_some() && finds.len() >= most {
            return Parts { finds, is_cut: true };
        }
        finds.extend(find);
    }
    Parts { finds, is_cut: false }
}

/// Where in `text` the base64 begins of which it is a data URL from its first character on, and its media type.
pub(super) fn whole_data_url(text: &str) -> Option<(usize, Option<String>)> {
    let scheme = text.get(..SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let start = text.find(',')? + 1;
    Some((start, data_url_header(text.get(..start)?)?))
}

/// The media type in `text`, where that is the beginning of a base64 data URL and nothing else, its comma included.
pub(crate) fn data_url_header(text: &str) -> Option<Option<String>> {
    let (start, declared) = header(text, 0, text.len())?;
    (start == 0).then_some(declared)
}

/// The `data:…;base64,` (RFC 2397) that ends at `end`: where it begins, and its media type without escapes.
fn header(text: &str, from: usize, end: usize) -> Option<(usize, Option<String>)> {
    let mut from = from.max(end.saturating_sub(MAX_HEADER_BYTES));
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let before = text.get(from..end)?.strip_suffix(',')?;
    let mark = before.len().checked_sub(MARK.len())?;
    let is_mark = before.get(mark..)?.eq_ignore_ascii_case(MARK);
    let before = before.get(..mark).filter(|_| is_mark)?;
    let scheme = before.to_ascii_lowercase().rfind(SCHEME)?;
    let media_type = unescaped(before.get(scheme + SCHEME.len()..)?);
    // Anything that may not stand in a URL means that the URL did not begin there.
    let is_url = media_type
        .bytes()
        .all(|b| b.is_ascii_graphic() && !b",\"'<>()[]{}\\`^|".contains(&b));
    is_url.then(|| {
        (
            from + scheme,
            Some(media_type.into_owned()).filter(|declared| !declared.is_empty()),
        )
    })
}

#[cfg(test)]
mod tests;
