//! Content blocks (MCP revision 2026-07-28, `ContentBlock`): binary ones become links, unknown ones stay.

use std::{borrow::Cow, collections::HashSet, ops::Range};

use portcullis_blobs::sniff;
use serde_json::value::RawValue;

use super::{
    BlobInfo, ShapeError, Shaper, base64, find,
    json::{self, Members, ObjectWriter},
    media,
};
use crate::spool::Spooled;

/// How many digits of its hash name a blob that has no name.
const NAME_DIGITS: usize = 12;

/// `content` after a first look.
pub(super) enum Content<'a> {
    Nothing,
    Blocks {
        list: &'a str,
        looked: Vec<Looked<'a>>,
    },
    /// Neither a list nor a block: it becomes text.
    Value(&'a str),
}

/// What a first look at a block gave. It is small, since there may be millions of them.
pub(super) enum Looked<'a> {
    /// It was binary, and this link takes its place.
    Link(String),
    /// It is of a known type and holds text: to be looked through once all binary blocks are known.
    Text(&'a str),
    /// It is binary and found no room: it stays, but for what is the server's alone.
    Left(&'a str),
    /// All that stands there in the list stays word for word.
    Asis(Range<usize>),
}

/// A binary block on its way to the store.
struct Binary<'a> {
    /// `image`, `audio` or `resource`.
    kind: &'static str,
    payload: Payload<'a>,
    name: Option<Cow<'a, str>>,
    /// The media type beside it, else the one in its data URL.
    declared: Option<Cow<'a, str>>,
}

/// What such a block holds.
enum Payload<'a> {
    /// Its base64 and what that decodes to.
    Inline { text: Cow<'a, str>, bytes: Vec<u8> },
    /// It went by already.
    Spooled(Box<Spooled>),
}

/// The beginning of a `resource_link` block to a blob.
pub(super) fn link(info: &BlobInfo, name: &str) -> ObjectWriter {
    let mut link = ObjectWriter::new();
    link.text_member("type", "resource_link");
    link.text_member("uri", &info.blob.to_string());
    link.text_member("name", name);
    link.text_member("mimeType", &info.media_type);
    link.member("size", &info.size_bytes.to_string());
    link
}

impl<'a> Shaper<'a> {
    /// Takes what is binary out of the blocks of `content`: its twins may stand in text before it.
    pub(super) fn look_at_content(
        &mut self,
        content: Option<&'a RawValue>,
    ) -> Result<Content<'a>, ShapeError> {
        let Some(raw) = content.filter(|raw| raw.get() != "null") else {
            self.flags.repaired = true;
            return Ok(Content::Nothing);
        };
        let raw = raw.get();
        if let Some(blocks) = json::elements(raw) {
            return self.look_at_blocks(raw, blocks);
        }
        self.flags.repaired = true;
        if is_block(raw) {
            self.look_at_blocks(raw, std::iter::once(0..raw.len()))
        } else {
            Ok(Content::Value(raw))
        }
    }

    fn look_at_blocks(
        &mut self,
        list: &'a str,
        blocks: impl Iterator<Item = Range<usize>>,
    ) -> Result<Content<'a>, ShapeError> {
        let mut looked = Vec::new();
        for at in blocks {
            match (self.look(list, at)?, looked.last_mut()) {
                (Looked::Asis(at), Some(Looked::Asis(before))) => before.end = at.end,
                (block, _) => looked.push(block),
            }
        }
        Ok(Content::Blocks { list, looked })
    }

    /// The list that stands for `content`, as JSON. All that is binary in the result must be known.
    pub(super) fn write_content(&mut self, content: Content<'a>) -> Result<String, ShapeError> {
        let (list, looked) = match content {
            Content::Nothing => return Ok("[]".to_owned()),
            Content::Value(raw) => return self.as_text(raw),
            Content::Blocks { list, looked } => (list, looked),
        };
        let mut shaped = "[".to_owned();
        for block in looked {
            if shaped.len() > 1 {
                shaped.push(',');
            }
            match block {
                Looked::Link(link) => shaped.push_str(&self.rewrite(&link, find::Place::Block)?),
                Looked::Text(block) => {
                    let block = without_meta(block);
                    shaped.push_str(&self.rewrite(&block, find::Place::Block)?);
                }
                Looked::Left(block) => shaped.push_str(&without_meta(block)),
                Looked::Asis(at) => shaped.push_str(list.get(at).unwrap_or_default()),
            }
        }
        shaped.push(']');
        Ok(shaped)
    }

    /// One text block that holds the text, or the JSON, of what is no content block.
    pub(super) fn as_text(&mut self, raw: &str) -> Result<String, ShapeError> {
        let mut block = ObjectWriter::new();
        block.text_member("type", "text");
        if self.spools.get(raw).is_some() {
            block.member("text", raw);
        } else if !self.spools.fit(raw) {
            // No text of it can be made. Such a reply is never handed on, and is stored with it as it came.
            return Ok(raw.to_owned());
        } else {
            let text = self.spools.fill(raw)?;
            block.text_member(
                "text",
                &json::unquote(&text).unwrap_or_else(|| text.as_ref().into()),
            );
        }
        let block = self.rewrite(&block.finish(), find::Place::Block)?;
        Ok(format!("[{block}]"))
    }

    fn look(&mut self, list: &'a str, at: Range<usize>) -> Result<Looked<'a>, ShapeError> {
        let raw = list.get(at.clone()).unwrap_or_default();
        let Some(members) = json::members(raw) else {
            return Ok(self.look_at_large(raw).unwrap_or(Looked::Asis(at)));
        };
        let kind = members.last_text("type");
        let resource_raw = members.last("resource").filter(|raw| has_blob(raw.get()));
        let resource = resource_raw.and_then(|raw| json::members(raw.get()));
        if kind.as_deref() == Some("resource") && resource_raw.is_some() && resource.is_none() {
            // Too large to be taken apart.
            self.flags.left_inline += 1;
            return Ok(Looked::Text(raw));
        }
        let is_binary = match kind.as_deref() {
            Some("image" | "audio") => true,
            Some("resource") => resource.is_some(),
            Some("text" | "resource_link") => false,
            _ => return Ok(Looked::Asis(at)),
        };
        if is_binary && !self.has_room() {
            return Ok(Looked::Left(raw));
        }
        let link = match (kind.as_deref(), resource) {
            (Some("image"), _) => self.media_block("image", &members)?,
            (Some("audio"), _) => self.media_block("audio", &members)?,
            (Some("resource"), Some(resource)) => self.blob_resource(&members, &resource)?,
            _ => return Ok(Looked::Text(raw)),
        };
        Ok(link.map_or_else(
            || {
                self.flags.undecoded += 1;
                Looked::Text(raw)
            },
            Looked::Link,
        ))
    }

    /// A block of known type that is too large to be taken apart.
    fn look_at_large(&mut self, raw: &'a str) -> Option<Looked<'a>> {
        let kind = json::unquote(json::last(raw, "type")?.get())?;
        let is_binary = match kind.as_ref() {
            "image" | "audio" => true,
            "resource" => json::last(raw, "resource").is_some_and(|raw| has_blob(raw.get())),
            "text" | "resource_link" => false,
            _ => return None,
        };
        self.flags.left_inline += usize::from(is_binary);
        Some(Looked::Text(raw))
    }

    /// An `ImageContent` or `AudioContent` block.
    fn media_block(
        &mut self,
        kind: &'static str,
        members: &Members<'a>,
    ) -> Result<Option<String>, ShapeError> {
        let Some((payload, in_url)) = self.decode(members, "data") else {
            return Ok(None);
        };
        let name = members.last_text("name").or_else(|| members.last_text("uri"));
        let binary = Binary {
            kind,
            payload,
            name,
            declared: members.last_text("mimeType").or(in_url),
        };
        let mut link = self.store_block(binary)?;
        rest(&mut link, members, &HashSet::from(["data"]));
        Ok(Some(link.finish()))
    }

    /// An `EmbeddedResource` block whose resource is `BlobResourceContents`.
    fn blob_resource(
        &mut self,
        members: &Members<'a>,
        resource: &Members<'a>,
    ) -> Result<Option<String>, ShapeError> {
        let Some((payload, in_url)) = self.decode(resource, "blob") else {
            return Ok(None);
        };
        let binary = Binary {
            kind: "resource",
            payload,
            name: resource.last_text("uri"),
            declared: resource.last_text("mimeType").or(in_url),
        };
        let mut link = self.store_block(binary)?;
        rest(&mut link, members, &HashSet::from(["resource"]));
        let mut taken: HashSet<&str> = members.iter().filter_map(json::Member::name).collect();
        taken.insert("blob");
        rest(&mut link, resource, &taken);
        Ok(Some(link.finish()))
    }

    /// What such a block holds, and the media type of the data URL that it is in.
    fn decode(&mut self, members: &Members<'a>, name: &str) -> Option<(Payload<'a>, Option<Cow<'a, str>>)> {
        let raw = members.last(name)?.get();
        if self.spools.get(raw).is_some() {
            // One that is no base64 as a whole stays what it is; its marker is never looked into.
            let spooled = self.spools.take_binary(raw)?;
            let in_url = spooled.data_url().map(|declared| declared.map(str::to_owned));
            self.flags.lenient_base64 += usize::from(in_url.is_some());
            let in_url = in_url.flatten().map(Cow::Owned);
            return Some((Payload::Spooled(Box::new(spooled)), in_url));
        }
        let text = members.last_text(name)?;
        let (text, in_url) = match find::whole_data_url(&text) {
            Some((start, declared)) => (text.get(start..)?.to_owned().into(), Some(declared)),
            None => (text, None),
        };
        let (bytes, canonical) = base64::lenient(&text)?;
        self.flags.lenient_base64 += usize::from(!canonical || in_url.is_some());
        let payload = Payload::Inline { text, bytes };
        Some((payload, in_url.flatten().map(Cow::Owned)))
    }

    /// Stores a block's bytes, remembers its text for twins and begins the link to it.
    fn store_block(&mut self, binary: Binary<'a>) -> Result<ObjectWriter, ShapeError> {
        let Binary {
            kind,
            payload,
            name,
            declared,
        } = binary;
        let (info, sniffed) = match payload {
            Payload::Inline { text, bytes } => {
                let sniffed = sniff(&bytes);
                let info = self.store(bytes, declared.as_deref());
                self.twins.insert(text, info.blob);
                (info, sniffed)
            }
            Payload::Spooled(spooled) => {
                let sniffed = sniff(spooled.head());
                let info = self.publish(*spooled, declared.as_deref());
                (info, sniffed)
            }
        };
        let extension = media::extension(sniffed, &info.media_type);
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| {
            let digits: String = info.blob.0.to_string().chars().take(NAME_DIGITS).collect();
            let dot = if extension.is_some() { "." } else { "" };
            format!("{kind}-{digits}{dot}{}", extension.unwrap_or_default()).into()
        });
        Ok(link(&info, &name))
    }
}

/// Whether a resource holds binary content. Some servers write every field, and those that are empty are not there.
fn has_blob(resource: &str) -> bool {
    match json::last(resource, "blob").map(RawValue::get) {
        None | Some("null") => false,
        Some("\"\"") => json::last(resource, "text").is_none_or(|text| json::unquote(text.get()).is_none()),
        Some(_) => true,
    }
}

/// A block of known type, to the letter but for the server's `_meta`. It may be of any size.
fn without_meta(block: &str) -> String {
    let mut kept = ObjectWriter::new();
    json::each_member(block, |member| {
        let value = member.value.get();
        match member.name() {
            Some("_meta") => {}
            Some("resource") if value.starts_with('{') => {
                let mut inner = ObjectWriter::new();
                json::each_member(value, |member| {
                    if member.name() != Some("_meta") {
                        inner.raw_member(member.raw_name, member.value.get());
                    }
                    true
                });
                kept.raw_member(member.raw_name, &inner.finish());
            }
            _ => kept.raw_member(member.raw_name, value),
        }
        true
    });
    kept.finish()
}

/// Carries over what else a block holds, but what the link says already.
fn rest(link: &mut ObjectWriter, members: &Members<'_>, taken: &HashSet<&str>) {
    let in_link = ["type", "uri", "name", "mimeType", "size", "_meta"];
    for member in members.iter() {
        if member
            .name()
            .is_none_or(|name| !in_link.contains(&name) && !taken.contains(name))
        {
            link.raw_member(member.raw_name, member.value.get());
        }
    }
}

/// Whether `raw` has the form of a content block.
pub(super) fn is_block(raw: &str) -> bool {
    json::last(raw, "type").is_some_and(|kind| json::unquote(kind.get()).is_some())
}
