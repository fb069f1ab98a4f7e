//! A first look at structured content: it learns what is binary there and stores nothing.
//!
//! Servers repeat structured content as JSON text (MCP revision 2026-07-28, server/tools, structured content). What is
//! told to be binary in the one has to be known before the other is looked through.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use portcullis_blobs::{BlobRef, Hash};

use super::{
    Shaper, base64, find, json, media,
    placing::{MAX_PUTS, MAX_REFERENCES},
};

/// How deep an object may lie in which a media type is looked for. Beyond what most readers of JSON take there is none.
const MAX_DEPTH: usize = 128;

/// How many declarations of one blob are kept: the first of them, and those that may differ from it.
const MAX_DECLARED: usize = 4;

/// The longest media type that is read, in characters: too long to be one.
const MAX_DECLARED_CHARS: usize = 256;

/// What is binary and has no place in the list of blobs yet.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    parts: HashMap<BlobRef, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    content: Content,
    /// What the server declared, in order.
    declared: Vec<String>,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    /// A long string that lies somewhere else: its marker.
    Spooled(String),
}

impl Ahead {
    pub(super) fn has(&self, blob: BlobRef) -> bool {
        self.parts.contains_key(&blob)
    }

    /// Lets go of a part that gets its place from another copy, and gives what was declared of it.
    pub(super) fn take(&mut self, blob: BlobRef) -> Vec<String> {
        self.parts.remove(&blob).map_or(Vec::new(), |part| part.declared)
    }

    fn insert(&mut self, blob: BlobRef, content: Content, declared: Option<String>) {
        let declared = Vec::from_iter(declared);
        self.parts.entry(blob).or_insert(Waiting { content, declared });
    }
}

impl<'a> Shaper<'a> {
    /// Learns what is binary in `structured`, and what is declared of it by the members beside it.
    pub(super) fn look_ahead(&mut self, structured: &'a str) {
        let mut objects = Objects::default();
        for token in json::tokens(structured) {
            match token {
                json::Token::Open { is_object } => objects.open(is_object),
                json::Token::Close => {
                    let Some(object) = objects.close() else { continue };
                    let Some(declared) = object.declared() else {
                        continue;
                    };
                    for blob in object.holds {
                        self.declare_ahead(blob, &declared);
                    }
                }
                json::Token::String(name) if name.is_name => objects.name(name.raw),
                json::Token::String(string) => {
                    let blob = self.learn(string.raw);
                    let is_here = !self.spools.has(string.raw);
                    objects.string(is_here.then_some(string.raw), blob);
                }
            }
        }
    }

    /// Learns what is binary in one string. Gives the blob that all of it is.
    fn learn(&mut self, raw: &'a str) -> Option<BlobRef> {
        if let Some(spooled) = self.spools.get(raw) {
            let found = self.binary(spooled, find::Place::Structured)?;
            let is_known = self.ahead.has(found.blob) || self.places.contains_key(&found.blob);
            if !is_known && found.is_new && self.may_learn() {
                self.twins
                    .insert_length(base64::canonical_bytes(spooled.size_bytes()), found.blob);
                let content = Content::Spooled(raw.to_owned());
                self.ahead.insert(found.blob, content, found.declared);
            }
            return Some(found.blob);
        }
        if !self.may_learn() {
            return None;
        }
        let min_bytes = self.options.data_url_min_bytes;
        let found = find::in_string(
            raw,
            find::Place::Structured,
            &self.twins,
            min_bytes,
            MAX_REFERENCES,
        )?;
        let find::Found { text, finds, .. } = found;
        let mut whole = None;
        for found in finds {
            let blob = match found.content {
                find::Content::Known { blob, .. } => blob,
                find::Content::New { .. } if !self.may_learn() => break,
                find::Content::New { bytes, declared } => {
                    let blob = BlobRef(Hash::of(&bytes));
                    let written = match &text {
                        Cow::Borrowed(text) => text.get(found.payload).map(Cow::Borrowed),
                        Cow::Owned(text) => text.get(found.payload).map(|text| text.to_owned().into()),
                    };
                    if let Some(written) = written {
                        self.twins.insert(written, blob);
                    }
                    self.twins
                        .insert_length(base64::canonical_bytes(bytes.len() as u64), blob);
                    self.ahead.insert(blob, Content::Bytes(bytes), declared);
                    blob
                }
            };
            whole = (found.range == (0..text.len())).then_some(blob);
        }
        whole
    }

    /// Whether what is learned next may find room in the store.
    fn may_learn(&self) -> bool {
        self.ahead.parts.len() < MAX_PUTS.saturating_sub(self.puts)
    }

    /// A media type that stands beside what `blob` is.
    fn declare_ahead(&mut self, blob: BlobRef, declared: &str) {
        match self.ahead.parts.get_mut(&blob) {
            Some(Waiting { declared: before, .. }) => {
                // Of those that say the same in other words, the first is enough.
                let is_new = |first: &String| media::differing(first, declared).is_some();
                if before.len() < MAX_DECLARED && before.first().is_none_or(is_new) {
                    before.push(declared.to_owned());
                }
            }
            None => self.declare(blob, declared),
        }
    }

    /// Gives what was learned its place, which is that of `declared` if there is one.
    pub(super) fn place_ahead(&mut self, blob: BlobRef, declared: Option<String>) -> Option<BlobRef> {
        let waiting = self.ahead.parts.remove(&blob)?;
        let mut types = declared.into_iter().chain(waiting.declared);
        let first = types.next();
        match waiting.content {
            Content::Bytes(bytes) => self.store_as(blob, bytes, first.as_deref()),
            Content::Spooled(marker) => {
                let spooled = self.spools.use_up(marker)?;
                self.publish(spooled, first.as_deref())
            }
        };
        for other in types {
            self.declare(blob, &other);
        }
        Some(blob)
    }
}

/// A member that says what the binary content beside it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeclaredBy {
    MimeType,
    MediaType,
}

impl DeclaredBy {
    /// Whether the member of that name is one, written with its quotes.
    pub(super) fn of(raw_name: &str) -> Option<Self> {
        let is_escaped = raw_name.contains('\\');
        let name = if is_escaped {
            json::unquote(raw_name)?
        } else {
            raw_name.trim_matches('"').into()
        };
        match name.as_ref() {
            "mimeType" => Some(Self::MimeType),
            "mediaType" => Some(Self::MediaType),
            _ => None,
        }
    }
}

/// The objects and lists around what is looked at.
#[derive(Debug, Default)]
struct Objects<'a> {
    open: Vec<Object<'a>>,
    /// How many more there are inside of those.
    beyond: usize,
}

#[derive(Debug, Default)]
struct Object<'a> {
    is_object: bool,
    /// What the member at hand says.
    member: Option<DeclaredBy>,
    mime_type: Option<&'a str>,
    media_type: Option<&'a str>,
    /// What is binary among its own members.
    holds: HashSet<BlobRef>,
}

impl<'a> Objects<'a> {
    fn open(&mut self, is_object: bool) {
        if self.open.len() < MAX_DEPTH {
            self.open.push(Object {
                is_object,
                ..Object::default()
            });
        } else {
            self.beyond += 1;
        }
    }

    fn close(&mut self) -> Option<Object<'a>> {
        match self.beyond.checked_sub(1) {
            Some(beyond) => {
                self.beyond = beyond;
                None
            }
            None => self.open.pop(),
        }
    }

    /// The object whose member is looked at.
    fn inner(&mut self) -> Option<&mut Object<'a>> {
        let inner = self.open.last_mut().filter(|_| self.beyond == 0);
        inner.filter(|inner| inner.is_object)
    }

    fn name(&mut self, raw: &'a str) {
        if let Some(object) = self.inner() {
            object.member = DeclaredBy::of(raw);
            // Of a field that occurs twice the last one stands, be it a string or not.
            if let Some(declared) = object.member_type() {
                *declared = None;
            }
        }
    }

    /// A string, where it is in memory, and the blob that it is.
    fn string(&mut self, raw: Option<&'a str>, blob: Option<BlobRef>) {
        let Some(object) = self.inner() else { return };
        match object.member_type() {
            Some(declared) => *declared = raw,
            None => object.holds.extend(blob),
        }
    }
}

impl<'a> Object<'a> {
    fn member_type(&mut self) -> Option<&mut Option<&'a str>> {
        match self.member? {
            DeclaredBy::MimeType => Some(&mut self.mime_type),
            DeclaredBy::MediaType => Some(&mut self.media_type),
        }
    }

    /// The media type that it gives for what it holds.
    fn declared(&self) -> Option<String> {
        if self.holds.is_empty() {
            return None;
        }
        let types = [self.mime_type, self.media_type].into_iter().flatten();
        types
            .filter_map(json::unquote)
            .find(|declared| !declared.trim().is_empty())
            .map(|declared| declared.chars().take(MAX_DECLARED_CHARS).collect())
    }
}
