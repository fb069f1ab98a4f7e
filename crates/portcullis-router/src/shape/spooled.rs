//! The long strings of a result, which stand in its text as markers and lie somewhere else.
//!
//! A base64 string goes to the store where the keys around it say that it is binary. Each other string comes back into
//! its place: text before the result is looked through, as long as that fits into memory, and all else at the very
//! end, where a reply that is too large goes to the store piece by piece.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use portcullis_blobs::{BlobRef, BlobWriter, sniff};

use super::{
    BlobInfo, InPieces, Part, ShapeError, ShapeFlags, Shaper,
    ahead::DeclaredBy,
    find::Place,
    json::{self, StringToken},
    media,
};
use crate::spool::{Kind, SpoolFault, Spooled};

/// The most text that comes back into memory, in bytes: what a line may have.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// The strings by their markers, each as it stands in the text, with its quotes.
#[derive(Debug, Default)]
pub(super) struct Spools {
    strings: HashMap<String, Spooled>,
    /// The blobs of those that a twin before them has used up.
    used: HashMap<String, BlobRef>,
    left_inline: usize,
}

impl Spools {
    /// `strings` by their markers (without quotes).
    pub(super) fn new(strings: impl IntoIterator<Item = (String, Spooled)>) -> Self {
        let quoted = |(marker, spooled)| (format!("\"{marker}\""), spooled);
        Self {
            strings: strings.into_iter().map(quoted).collect(),
            used: HashMap::new(),
            left_inline: 0,
        }
    }

    pub(super) fn are_none(&self) -> bool {
        self.strings.is_empty()
    }

    /// Whether `raw` is one of the markers.
    pub(super) fn has(&self, raw: &str) -> bool {
        self.strings.contains_key(raw) || self.used.contains_key(raw)
    }

    /// The string whose marker `raw` is, taken for a twin of it: its own place will have the blob's reference.
    pub(super) fn use_up(&mut self, raw: String) -> Option<Spooled> {
        let spooled = self.strings.remove(&raw)?;
        self.used.insert(raw, spooled.blob());
        Some(spooled)
    }

    /// How many strings of text were too large to be looked through.
    pub(super) fn left_inline(&self) -> usize {
        self.left_inline
    }

    /// The string whose marker `raw` is.
    pub(super) fn get(&self, raw: &str) -> Option<&Spooled> {
        self.strings.get(raw)
    }

    /// The same, taken, where it is base64, in a data URL or without one, and nothing else.
    pub(super) fn take_binary(&mut self, raw: &str) -> Option<Spooled> {
        match self.strings.get(raw)?.kind {
            Kind::Base64 | Kind::DataUrl { .. } => self.strings.remove(raw),
            Kind::Text => None,
        }
    }

    /// Puts back what has to be looked through: text, and base64 where binary content has no place. What does not fit
    /// into memory stays out, and is flagged.
    pub(super) fn prepare(&mut self, json: String) -> Result<String, ShapeError> {
        if self.are_none() {
            return Ok(json);
        }
        let structured = structured(&json);
        let mut room = MAX_TEXT_BYTES;
        let mut back = Vec::new();
        let mut name = "";
        for token in json::strings(&json) {
            let before = std::mem::replace(&mut name, if token.is_name { token.raw } else { "" });
            let Some(spooled) = self.get(token.raw) else {
                continue;
            };
            let may_be_binary = !token.is_name
                && (structured.contains(&token.start) && DeclaredBy::of(before).is_none()
                    || matches!(before, "\"data\"" | "\"blob\"" | "\"text\""));
            if may_be_binary && !matches!(spooled.kind, Kind::Text) {
                continue;
            }
            match room.checked_sub(spooled.text_bytes()) {
                Some(left) => {
                    room = left;
                    back.push(token);
                }
                None => self.left_inline += 1,
            }
        }
        let mut text = Vec::new();
        self.write(&json, &back, |piece| {
            text.extend_from_slice(piece);
            Ok::<_, ShapeError>(())
        })?;
        for token in back {
            self.strings.remove(token.raw);
        }
        utf8(text)
    }

    /// The size of `json` with its strings back, in bytes.
    pub(super) fn size_of(&self, json: &str) -> usize {
        self.markers(json).iter().fold(json.len(), |size, token| {
            let text = self.get(token.raw).map_or(0, Spooled::text_bytes);
            let text = usize::try_from(text).unwrap_or(usize::MAX);
            // The quotes stay.
            (size + 2 - token.raw.len()).saturating_add(text)
        })
    }

    /// Whether the strings of `json` fit into memory.
    pub(super) fn fit(&self, json: &str) -> bool {
        self.fit_at(&self.markers(json))
    }

    fn fit_at(&self, markers: &[StringToken<'_>]) -> bool {
        let bytes = markers
            .iter()
            .filter_map(|token| Some(self.get(token.raw)?.text_bytes()))
            .fold(0, u64::saturating_add);
        bytes <= MAX_TEXT_BYTES
    }

    /// `json` with its strings back.
    pub(super) fn fill<'a>(&self, json: &'a str) -> Result<Cow<'a, str>, ShapeError> {
        if self.are_none() {
            return Ok(json.into());
        }
        let markers = self.markers(json);
        if !self.fit_at(&markers) {
            return Err(ShapeError::TooLarge {
                size_bytes: self.size_of(json),
                limit_bytes: usize::try_from(MAX_TEXT_BYTES).unwrap_or(usize::MAX),
            });
        }
        let mut text = Vec::new();
        self.write(json, &markers, |piece| {
            text.extend_from_slice(piece);
            Ok::<_, ShapeError>(())
        })?;
        utf8(text).map(Cow::Owned)
    }

    /// Counts what is in the texts that never lie in memory.
    pub(super) fn look_at_texts(
        &self,
        json: &str,
        flags: &mut ShapeFlags,
        blobs: &[BlobInfo],
    ) -> Result<(), ShapeError> {
        let found = self.markers(json);
        let texts = found.iter().filter_map(|token| self.get(token.raw));
        for text in texts.filter(|spooled| matches!(spooled.kind, Kind::Text)) {
            let mut looking = InPieces::new(flags, blobs);
            text.text(|piece| {
                looking.piece(piece);
                Ok::<_, ShapeError>(())
            })?;
            looking.end();
        }
        Ok(())
    }

    /// Writes `json` with its strings back, never holding them in memory.
    pub(super) fn write_filled(&self, json: &str, writer: &mut dyn BlobWriter) -> Result<(), ShapeError> {
        self.write(json, &self.markers(json), |piece| {
            writer.write(piece).map_err(ShapeError::Store)
        })
    }

    fn markers<'j>(&self, json: &'j str) -> Vec<StringToken<'j>> {
        if self.are_none() {
            return Vec::new();
        }
        json::strings(json)
            .filter(|token| self.get(token.raw).is_some())
            .collect()
    }

    /// Gives `json` in pieces, with the strings of `tokens` in their places.
    fn write<E: From<SpoolFault>>(
        &self,
        json: &str,
        tokens: &[StringToken<'_>],
        mut piece: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        for token in tokens {
            let Some(spooled) = self.get(token.raw) else {
                continue;
            };
            piece(json.get(done..=token.start).unwrap_or_default().as_bytes())?;
            spooled.text(&mut piece)?;
            // The closing quote goes with what follows.
            done = token.start + token.raw.len() - 1;
        }
        piece(json.get(done..).unwrap_or_default().as_bytes())
    }
}

/// A long string that may be binary.
pub(super) struct Found {
    pub(super) blob: BlobRef,
    /// The media type in the data URL that it is.
    pub(super) declared: Option<String>,
    /// Whether it is binary by itself, and not only where it is a twin.
    pub(super) is_new: bool,
}

impl Shaper<'_> {
    /// What takes the place of a long string in text or in structured content; `None` where it stays.
    pub(super) fn spooled_string(&mut self, raw: &str, place: Place) -> Result<Option<BlobRef>, ShapeError> {
        if let Some(blob) = self.spools.used.get(raw) {
            return Ok(Some(*blob));
        }
        let Some(found) = self
            .spools
            .get(raw)
            .and_then(|spooled| self.binary(spooled, place))
        else {
            return Ok(None);
        };
        let Found {
            blob,
            declared,
            is_new,
        } = found;
        if self.places.contains_key(&blob) {
            self.spools.strings.remove(raw);
            if let Some(declared) = declared {
                self.declare(blob, &declared);
            }
            return Ok(Some(blob));
        }
        let is_ahead = self.ahead.has(blob);
        if !(is_ahead || is_new) || !self.has_room() {
            return Ok(None);
        }
        let Some(spooled) = self.spools.strings.remove(raw) else {
            return Ok(None);
        };
        let mut types = declared.into_iter().chain(self.ahead.take(blob));
        self.publish(spooled, types.next().as_deref());
        for other in types {
            self.declare(blob, &other);
        }
        Ok(Some(blob))
    }

    /// What a long string is where it may be binary: a blob by itself, or the twin of one.
    pub(super) fn binary(&self, spooled: &Spooled, place: Place) -> Option<Found> {
        let (is_binary, declared) = match &spooled.kind {
            Kind::Text => return None,
            Kind::DataUrl { declared, .. } => (true, declared.clone()),
            Kind::Base64 => {
                let is_known = || sniff(spooled.head()).is_some_and(|kind| !kind.is_text);
                (place == Place::Structured && is_known(), None)
            }
        };
        let is_short = spooled.text_bytes() < self.options.data_url_min_bytes as u64;
        // In a block it is text, of which what is short stays, whatever it is.
        let may_be_twin = is_binary || place == Place::Structured || !is_short;
        may_be_twin.then(|| Found {
            blob: spooled.blob(),
            declared,
            is_new: is_binary && !is_short,
        })
    }

    /// Has a long string's bytes become a blob, and remembers it for the list of blobs.
    pub(super) fn publish(&mut self, spooled: Spooled, declared: Option<&str>) -> BlobInfo {
        self.puts += 1;
        // Its beginning tells as much as all of it does, but for text that no declaration names.
        let media = media::decide_by_head(spooled.head(), spooled.size_bytes(), declared);
        let info = BlobInfo::of(spooled.blob(), spooled.size_bytes(), media);
        self.remember(Part::Spooled(spooled), &info);
        info
    }
}

/// Where in `json` the structured content stands.
fn structured(json: &str) -> Range<usize> {
    let Some(found) = json::members(json).and_then(|members| members.last("structuredContent")) else {
        return 0..0;
    };
    let start = (found.get().as_ptr() as usize).saturating_sub(json.as_ptr() as usize);
    start..start + found.get().len()
}

fn utf8(text: Vec<u8>) -> Result<String, ShapeError> {
    String::from_utf8(text).map_err(|_| ShapeError::Lost("it is not UTF-8".to_owned()))
}
