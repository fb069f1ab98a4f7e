//! What of a tool's result reaches the host: everything, but nothing large and nothing binary.
//!
//! A result comes here as the server sent it (MCP revision 2026-07-28, `CallToolResult`) and leaves as JSON of
//! the same form. Images, audio, embedded blobs, their base64 twins elsewhere and data URLs become references
//! to the blob store; a reply that is still too large is stored whole. Everything else keeps its order and its
//! very text: only what is changed is parsed.
//!
//! What is decided here where the specification or the server leaves it open:
//!
//! - The server's `_meta` is stripped where the protocol has it: on the result, on blocks of known type, whatever else
//!   they hold, and on an embedded resource. In blocks of unknown type and in `structuredContent` a key `_meta` is
//!   content.
//! - Where the protocol says base64, the bytes are what is meant: line breaks, missing padding, the URL-safe
//!   alphabet and a data URL of it are accepted and flagged. Where base64 is only a guess, it must be canonical, so
//!   that what was replaced can be restored to the letter; or it stands letter for letter in such a block too.
//!   In a text that is JSON again it may have the escapes of JSON (`\/`, `\u002B`), and so may a data URL.
//! - What structured content alone tells to be binary is known in the text that repeats it as well. The type beside it there
//!   (`mimeType`, `mediaType`) is what the server declares.
//! - What claims to be base64 and is not is text: it stays as it came but for what is replaced in any text, and is
//!   flagged.
//! - A resource whose `blob` is `null`, or empty beside a `text`, has none: some servers write every field.
//! - Without `content`, or with `null`, the list is empty. A single block becomes a list of one; any other value
//!   becomes a text block that holds it. A result that is no object is read as such a value too, or
//!   as the list where it is a list of blocks. All of these are flagged.
//! - An object of over 65,536 members is none of the protocol's, and its base64 stays where it is: as a result it is read
//!   as a value, `_meta` and all, but for its `isError`; a block of known type that is one, or whose resource is, is looked
//!   through as text is. Either is flagged, but for blocks that are text.
//! - A value whose long strings are over 64 MiB together becomes no text: it is stored with its reply as it came.
//! - Of a field that occurs twice the last one stands, as most JSON readers have it; that is flagged too.

use std::{collections::HashMap, fmt::Write};

use portcullis_blobs::{BlobRef, BlobStore};
use serde::Serialize;
use serde_json::value::RawValue;

mod options;

mod error;

mod json;

mod base64;

mod media;

mod runs;

mod find;

mod placing;

mod ahead;

mod block;

mod flags;

mod spooled;

mod storing;

mod work;

mod fault;

#[cfg(test)]
mod tests;

pub use error::ShapeError;
pub(crate) use find::data_url_header;
use flags::InPieces;
pub use flags::{ShapeFlags, is_hidden};
pub use options::{Oversize, ShapeOptions};
pub(crate) use work::Shaping;

use ahead::Ahead;
use placing::MAX_REFERENCES;
use spooled::Spools;
use storing::{Body, Part, Spill, Unstored};

/// A result as the host gets it.
#[derive(Debug)]
pub struct ShapedResult {
    /// A JSON object: `content` (always a list), `structuredContent` and `isError` where the server gave them,
    /// and whatever other fields it gave but `_meta`.
    pub result: Box<RawValue>,
    /// Whether the server says that the tool failed.
    pub is_error: bool,
    /// What was stored, each blob once, in the order of its first place: first the blocks that are binary, then what else
    /// stands in content, then structured content. Only these references come from us: one that is in the text and
    /// not in this list was written by the server.
    pub blobs: Vec<BlobInfo>,
    /// The size of the whole reply in bytes, after binary content was replaced and before it was spilled.
    pub size_bytes: usize,
    /// Whether the reply was above the limit and [`result`](Self::result) only tells where it is: it is the last
    /// of [`blobs`](Self::blobs), as `application/json`, `structuredContent` and all.
    pub spilled: bool,
    /// What a reader should know before trusting the text.
    pub flags: ShapeFlags,
}

/// A blob that a result refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobInfo {
    /// Its name in the store.
    pub blob: BlobRef,
    /// What it is: told from its first bytes where those say so, else as the server declared it. Text that is declared as
    /// text is that, however it begins, unless it begins as a document that is written in text: RTF, PDF, PostScript.
    pub media_type: String,
    /// What the server declared, where that differs; at most 255 characters of it. Of several declarations the first that
    /// differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared_media_type: Option<String>,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// Shapes `raw_result`, the JSON text of a `tools/call` result. Nothing is stored of one that is refused.
///
/// # Errors
///
/// [`ShapeError::NotJson`]; [`ShapeError::TooLarge`] only with [`Oversize::Reject`]; [`ShapeError::Store`] when
/// the store fails: what it took of the result by then stays there as if it had been put alone.
pub async fn shape(
    raw_result: &str,
    store: &dyn BlobStore,
    options: &ShapeOptions,
) -> Result<ShapedResult, ShapeError> {
    let unstored = replace(raw_result, Spools::default(), options)?;
    unstored.store(store, || Ok(())).await
}

/// Replaces what is binary in `raw_result`, some of whose strings may be in `spools` and not in the text.
fn replace(raw_result: &str, spools: Spools, options: &ShapeOptions) -> Result<Unstored, ShapeError> {
    let raw: &RawValue = serde_json::from_str(raw_result).map_err(ShapeError::NotJson)?;
    let mut shaper = Shaper::new(*options, spools);
    let reply = shaper.reply(raw)?;
    shaper.flags.look_at(&reply.json, &shaper.blobs);
    shaper.finish(reply)
}

/// The shaping of one result.
struct Shaper<'a> {
    options: ShapeOptions,
    blobs: Vec<BlobInfo>,
    /// What is behind those names, on its way to the store.
    parts: Vec<Part>,
    /// Where in `blobs` each of them stands.
    places: HashMap<BlobRef, usize>,
    twins: find::Twins<'a>,
    /// What is binary in structured content and has no place in `blobs` yet.
    ahead: Ahead,
    /// Long strings that stand in the result as markers.
    spools: Spools,
    flags: ShapeFlags,
    /// How many parts go to the store.
    puts: usize,
    /// How many references were written.
    references: usize,
}

/// The longest `resultType` that goes beside a note. Those that there are have a dozen bytes, and a marker has more.
const MAX_RESULT_TYPE_BYTES: usize = 50;

/// A reply with its binary content replaced.
struct Reply<'a> {
    json: String,
    is_error: bool,
    /// Of revision 2026-07-28: short, and needed to understand the result, spilled or not.
    result_type: Option<&'a RawValue>,
}

impl<'a> Shaper<'a> {
    fn new(options: ShapeOptions, spools: Spools) -> Self {
        Self {
            options,
            blobs: Vec::new(),
            parts: Vec::new(),
            places: HashMap::new(),
            twins: find::Twins::default(),
            ahead: Ahead::default(),
            flags: ShapeFlags {
                left_inline: spools.left_inline(),
                ..ShapeFlags::default()
            },
            spools,
            puts: 0,
            references: 0,
        }
    }

    /// Replaces what is binary in the whole result.
    fn reply(&mut self, raw: &'a RawValue) -> Result<Reply<'a>, ShapeError> {
        let Some(members) = json::members(raw.get()) else {
            self.flags.repaired = true;
            let blocks = json::elements(raw.get())
                .is_some_and(|mut list| list.all(|at| raw.get().get(at).is_some_and(block::is_block)));
            let content = if blocks || raw.get() == "null" {
                let looked = self.look_at_content(Some(raw))?;
                self.write_content(looked)?
            } else {
                self.as_text(raw.get())?
            };
            let mut object = json::ObjectWriter::new();
            object.member("content", &content);
            // It may be an object that is too large to be taken apart. That its tool failed is said all the same.
            let is_error_raw = json::last(raw.get(), "isError");
            let is_error = is_error_raw.is_some_and(|raw| self.is_error(raw));
            if is_error {
                object.member("isError", "true");
            }
            return Ok(Reply {
                json: object.finish(),
                is_error,
                result_type: None,
            });
        };
        let (content_raw, structured_raw) = (members.last("content"), members.last("structuredContent"));
        let is_error_raw = members.last("isError");
        // All that is binary is known before any text is looked through: its twins may stand there. What is told by its
        // place comes first, and what only may be binary is stored in the order of its places, content's before others.
        let content = self.look_at_content(content_raw)?;
        if let Some(structured) = structured_raw {
            self.look_ahead(structured.get());
        }
        let content = self.write_content(content)?;
        let structured = match structured_raw {
            Some(structured) => Some(self.rewrite(structured.get(), find::Place::Structured)?),
            None => None,
        };
        let is_error = is_error_raw.map(|raw| self.is_error(raw));

        let mut object = json::ObjectWriter::new();
        if content_raw.is_none() {
            object.member("content", &content);
        }
        for member in members.iter() {
            let (last, shaped) = match member.name() {
                Some("_meta") => continue,
                Some("content") => (content_raw, Some(content.as_str())),
                Some("structuredContent") => (structured_raw, structured.as_deref()),
                Some("isError") => (
                    is_error_raw,
                    is_error.map(|is_error| if is_error { "true" } else { "false" }),
                ),
                _ => (Some(member.value), None),
            };
            if last.is_some_and(|last| std::ptr::eq(last, member.value)) {
                object.raw_member(member.raw_name, shaped.unwrap_or(member.value.get()));
            } else {
                self.flags.duplicate_keys = true;
            }
        }
        let is_error = is_error.unwrap_or(false);
        Ok(Reply {
            json: object.finish(),
            is_error,
            result_type: members.last("resultType"),
        })
    }

    /// `isError` as a boolean. What is neither `true`, `false` nor `null` is taken for a failure.
    fn is_error(&mut self, raw: &RawValue) -> bool {
        match raw.get() {
            "true" => true,
            "false" => false,
            other => {
                self.flags.repaired = true;
                other != "null"
            }
        }
    }

    /// The reply as it is handed on or stored. What can be refused without the store is refused here.
    fn finish(mut self, reply: Reply<'_>) -> Result<Unstored, ShapeError> {
        let Reply {
            json,
            is_error,
            result_type,
        } = reply;
        let (size_bytes, limit_bytes) = (self.spools.size_of(&json), self.options.max_reply_bytes);
        let body = match self.options.oversize {
            _ if size_bytes <= limit_bytes => Body::HandedOn(self.spools.fill(&json)?.into_owned()),
            Oversize::Reject => {
                return Err(ShapeError::TooLarge {
                    size_bytes,
                    limit_bytes,
                });
            }
            Oversize::Spill => {
                self.spools.look_at_texts(&json, &mut self.flags, &self.blobs)?;
                let result_type = result_type.map(RawValue::get);
                let short = result_type.filter(|raw| raw.len() <= MAX_RESULT_TYPE_BYTES);
                Body::Spilled(Spill {
                    json,
                    spools: self.spools,
                    size_bytes,
                    limit_bytes,
                    is_error,
                    result_type: short.map(str::to_owned),
                })
            }
        };
        Ok(Unstored {
            body,
            is_error,
            size_bytes,
            blobs: self.blobs,
            parts: self.parts,
            flags: self.flags,
        })
    }

    /// Replaces what belongs into the store in the strings of a piece of JSON; the rest stays to the letter.
    fn rewrite(&mut self, raw: &str, place: find::Place) -> Result<String, ShapeError> {
        let mut out = String::new();
        let mut done = 0;
        for token in json::strings(raw).filter(|token| !token.is_name) {
            if self.spools.has(token.raw) {
                if let Some(blob) = self.spooled_string(token.raw, place)? {
                    out.push_str(raw.get(done..token.start).unwrap_or_default());
                    out.push_str(&json::text(&blob.to_string()));
                    done = token.start + token.raw.len();
                }
                continue;
            }
            if self.is_own(token.raw) {
                continue;
            }
            let min_bytes = self.options.data_url_min_bytes;
            let most = MAX_REFERENCES.saturating_sub(self.references);
            let Some(found) = find::in_string(token.raw, place, &self.twins, min_bytes, most) else {
                continue;
            };
            let find::Found {
                text,
                is_written,
                finds,
                is_cut,
            } = found;
            self.flags.left_inline += usize::from(is_cut);
            let mut replaced = String::new();
            let mut at = 0;
            for find in finds {
                let Some(blob) = self.place(find.content) else {
                    continue;
                };
                replaced.push_str(text.get(at..find.range.start).unwrap_or_default());
                // Writing to a string does not fail.
                let _ = write!(replaced, "{blob}");
                self.references += 1;
                at = find.range.end;
            }
            if at == 0 {
                // Nothing of it found room, so that it stays to the letter.
                continue;
            }
            replaced.push_str(text.get(at..).unwrap_or_default());
            out.push_str(raw.get(done..token.start).unwrap_or_default());
            out.push_str(&find::Found::quoted(&replaced, is_written));
            done = token.start + token.raw.len();
        }
        out.push_str(raw.get(done..).unwrap_or_default());
        Ok(out)
    }

    /// Whether a JSON string is the name of a blob of this result: nothing of that is anything else.
    fn is_own(&self, raw: &str) -> bool {
        let name = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
        let blob: Option<BlobRef> = name.and_then(|name| name.parse().ok());
        blob.is_some_and(|blob| self.places.contains_key(&blob))
    }
}

impl BlobInfo {
    fn of(blob: BlobRef, size_bytes: u64, media: media::Media) -> Self {
        Self {
            blob,
            media_type: media.media_type,
            declared_media_type: media.declared_media_type,
            size_bytes,
        }
    }
}
