//! Long strings of results on their way into the store: base64 is decoded and hashed while it arrives, text lies
//! beside the store's blobs until it is known what it was.
//!
//! What such a string is to its result is decided by `shape`, from the keys around it. Here it is told by its
//! characters alone: canonical base64 from its first to its last, a data URL of such, or text. Short ones stay in
//! memory, so that a reply of many takes few files.

use std::{any::Any, fmt, mem, sync::Arc};

use base64_simd::STANDARD;
use portcullis_blobs::{BlobError, BlobRef, BlobStore, Stored};
use portcullis_supervisor::{SpooledString, StringSpool, StringWriter};

mod content;
mod decode;
mod places;

use content::Content;
use decode::{Base64, NotBase64};
use places::Places;

/// How much of a string is looked at before it is known whether it is a data URL, in bytes.
const START_BYTES: usize = 512;

/// How much is encoded at once, in bytes: whole groups of three.
const ENCODE_BYTES: usize = 48 << 10;

/// Takes the long strings of a hub's results.
#[derive(Debug)]
pub(crate) struct Spool {
    store: Arc<dyn BlobStore>,
    files: Places,
}

impl Spool {
    pub(crate) fn new(store: Arc<dyn BlobStore>) -> Self {
        Self {
            store,
            files: Places::default(),
        }
    }

    /// The same for one server.
    fn of_one(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            files: self.files.of_one(),
        }
    }

    fn writer(&self) -> Writer {
        Writer {
            content: Content::new(Arc::clone(&self.store), self.files.clone()),
            mode: Mode::Start(Vec::new()),
            fault: None,
        }
    }
}

impl StringSpool for Spool {
    fn begin(&self) -> Box<dyn StringWriter> {
        Box::new(self.writer())
    }

    fn share(&self) -> Arc<dyn StringSpool> {
        Arc::new(self.of_one())
    }
}

/// Why a long string is not there.
#[derive(Debug)]
pub(crate) enum SpoolFault {
    Store(BlobError),
    /// Too many lie in files already: this many.
    Crowded(usize),
}

/// What a long string turned out to be.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Its content is its raw JSON text.
    Text,
    /// Its content is what it decodes to.
    Base64,
    /// The same, after the beginning of a data URL.
    DataUrl {
        /// That beginning as it was written, up to the comma.
        raw: Vec<u8>,
        declared: Option<String>,
    },
}

/// A whole string, outside of its message. No blob yet: dropped, nothing of it is left.
#[derive(Debug)]
pub(crate) struct Spooled {
    pub(crate) kind: Kind,
    content: Content,
}

/// What goes up to the router: a string, or why there is none.
#[derive(Debug)]
pub(crate) struct Outcome(pub(crate) Result<Spooled, SpoolFault>);

struct Writer {
    content: Content,
    mode: Mode,
    fault: Option<SpoolFault>,
}

enum Mode {
    /// Too little has come to tell.
    Start(Vec<u8>),
    Base64(Base64, Kind),
    Text,
}

impl Writer {
    fn put(&mut self, raw: &[u8]) -> Result<(), SpoolFault> {
        match &mut self.mode {
            Mode::Start(start) => {
                start.extend_from_slice(raw);
                if start.len() < START_BYTES {
                    return Ok(());
                }
                self.begin()
            }
            Mode::Text => self.content.write(raw),
            Mode::Base64(base64, _) => match base64.put(raw, &mut self.content)? {
                Ok(()) => Ok(()),
                Err(not) => self.become_text(&not, raw),
            },
        }
    }

    /// Enough has come: what does it begin with?
    fn begin(&mut self) -> Result<(), SpoolFault> {
        let Mode::Start(start) = mem::replace(&mut self.mode, Mode::Text) else {
            return Ok(());
        };
        let (kind, rest) = match decode::data_url(&start) {
            Some((length, declared)) => {
                let (raw, rest) = start.split_at(length.min(start.len()));
                let raw = raw.to_vec();
                (Kind::DataUrl { raw, declared }, rest)
            }
            None => (Kind::Base64, start.as_slice()),
        };
        self.mode = Mode::Base64(Base64::default(), kind);
        self.put(rest)
    }

    /// It is no base64 after all: what was decoded is encoded again, and the rest of `raw` goes on as text.
    fn become_text(&mut self, not: &NotBase64, raw: &[u8]) -> Result<(), SpoolFault> {
        let Mode::Base64(_, kind) = mem::replace(&mut self.mode, Mode::Text) else {
            return Ok(());
        };
        let text = self.content.successor();
        let decoded = mem::replace(&mut self.content, text);
        if let Kind::DataUrl { raw, .. } = kind {
            self.content.write(&raw)?;
        }
        let content = &mut self.content;
        encode(&decoded, |text| content.write(text))?;
        self.content.write(&not.held)?;
        self.content.write(raw.get(not.rest..).unwrap_or_default())
    }

    fn end(&mut self) -> Result<Kind, SpoolFault> {
        if matches!(self.mode, Mode::Start(_)) {
            self.begin()?;
        }
        if let Mode::Base64(base64, _) = &mut self.mode
            && let Err(not) = base64.end()
        {
            self.become_text(&not, &[])?;
        }
        self.content.settle()?;
        match mem::replace(&mut self.mode, Mode::Text) {
            Mode::Base64(_, kind) => Ok(kind),
            Mode::Start(_) | Mode::Text => Ok(Kind::Text),
        }
    }
}

impl StringWriter for Writer {
    fn write(&mut self, raw: &[u8]) {
        if self.fault.is_some() {
            return;
        }
        if let Err(fault) = self.put(raw) {
            // What was written goes at once: the rest of the string may take long to come.
            self.content = self.content.another();
            self.fault = Some(fault);
        }
    }

    fn finish(mut self: Box<Self>) -> Box<dyn SpooledString> {
        let kind = match self.fault.take() {
            Some(fault) => Err(fault),
            None => self.end(),
        };
        Box::new(Outcome(kind.map(|kind| Spooled {
            kind,
            content: self.content,
        })))
    }
}

impl Spooled {
    /// The size of its raw JSON text, put back, in bytes.
    pub(crate) fn text_bytes(&self) -> u64 {
        let encoded = self.content.size_bytes().div_ceil(3).saturating_mul(4);
        match &self.kind {
            Kind::Text => self.content.size_bytes(),
            Kind::Base64 => encoded,
            Kind::DataUrl { raw, .. } => encoded.saturating_add(raw.len() as u64),
        }
    }

    /// The media type of the data URL that it is, where it is one.
    pub(crate) fn data_url(&self) -> Option<Option<&str>> {
        match &self.kind {
            Kind::DataUrl { declared, .. } => Some(declared.as_deref()),
            Kind::Text | Kind::Base64 => None,
        }
    }

    /// The size of what it holds, in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.content.size_bytes()
    }

    /// The first bytes of what it holds: enough to tell its kind.
    pub(crate) fn head(&self) -> &[u8] {
        self.content.head()
    }

    /// The name that what it holds would have as a blob.
    pub(crate) fn blob(&self) -> BlobRef {
        self.content.blob()
    }

    /// Gives its raw JSON text in pieces.
    pub(crate) fn text<E: From<SpoolFault>>(
        &self,
        mut piece: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.kind {
            Kind::Text => return self.content.pieces(ENCODE_BYTES, piece),
            Kind::DataUrl { raw, .. } => piece(raw)?,
            Kind::Base64 => {}
        }
        encode(&self.content, piece)
    }

    /// Makes what it holds a blob.
    pub(crate) fn publish(self) -> Result<Stored, SpoolFault> {
        self.content.publish()
    }
}

impl SpooledString for Outcome {
    fn put_back(&self, text: &mut Vec<u8>) -> Result<(), String> {
        let append = |piece: &[u8]| {
            text.extend_from_slice(piece);
            Ok::<_, SpoolFault>(())
        };
        match &self.0 {
            Ok(spooled) => spooled.text(append).map_err(|fault| fault.to_string()),
            Err(fault) => Err(fault.to_string()),
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl From<BlobError> for SpoolFault {
    fn from(error: BlobError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for SpoolFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Crowded(most) => write!(
                f,
                "more than {most} long strings {} wait in files: call again later",
                if *most == places::MAX_OF_ONE {
                    "of this server"
                } else {
                    "of all servers"
                }
            ),
        }
    }
}

fn encode<E: From<SpoolFault>>(
    content: &Content,
    mut piece: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut text = Vec::with_capacity(ENCODE_BYTES / 3 * 4);
    content.pieces(ENCODE_BYTES, |bytes| {
        text.clear();
        STANDARD.encode_append(bytes, &mut text);
        piece(&text)
    })
}

#[cfg(test)]
mod tests;
