use std::{cell::RefCell, collections::BTreeMap, path::PathBuf};

use portcullis_types::{AgentId, Tier};

use crate::{
    BlobSettings, Code, Diagnostic, Dialect, Document, Egress, Environment, FieldReport, Options, Origin,
    Profile, ResultSettings, ServerSpec, Severity,
    bounded::Bounded,
    build::{Context, strict_range},
    dialect::{self, portcullis::OF_ALL_DOCUMENTS},
    draft::{DraftDocument, HubDraft},
    source::{Sink, Source},
    unread::Unread,
    value::{self, Problem, Span},
};

pub(crate) use merge::{Judged, Judgement, Merge};

mod merge;

/// What came of the documents: the servers that can be used, and all that was found on the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Normalized {
    /// The servers, in the order of the documents. One with an error is not among them; one that its document
    /// disables is.
    pub specs: Vec<ServerSpec>,
    /// All findings, in the order of the documents and of their text.
    pub diagnostics: Vec<Diagnostic>,
    /// What the documents say for the hub as a whole.
    pub settings: Settings,
    /// What became of each field, and where it stands; empty unless [`Options::trace`] asks for it.
    pub fields: Vec<FieldReport>,
}

impl Normalized {
    /// Whether a server or a document could not be used.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

/// What documents say for the hub as a whole. The first document that says something counts.
///
/// Policies, tier and agents say together how calls are decided: of a document in which one of what it says for all its
/// servers cannot be read none of the three is taken, and none from a document behind it, which might allow more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The folder of Cedar policies, as it was written: relative to the document's own folder.
    pub policies: Option<Setting<PathBuf>>,
    /// How freely agents may act.
    pub tier: Option<Setting<Tier>>,
    /// The profile, in the policies' sense, of each agent that is named.
    pub agents: Option<Setting<BTreeMap<AgentId, AgentId>>>,
    /// How results are shaped.
    pub results: ResultSettings,
    /// The store of what is large or binary in them.
    pub blobs: BlobSettings,
    /// Whether a document states limits, under `results` or `blobs`, or may state them, that are not among these since
    /// something in it, or all of it, could not be read. They would have held for the servers of the others too.
    pub limits_unread: bool,
    /// Whether a document gives agents their profiles, or may, that are not among these: something in it or in one
    /// before it could not be read, or one before it gives others. What policies forbid a profile would hold for none of
    /// them.
    pub agents_unread: bool,
    /// Whether a document states a tier, or may, and there is none here: something in it or in one before it could not be
    /// read. What policies forbid in that tier would be allowed.
    pub tier_unread: bool,
    /// Whether the documents leave open how long blobs are kept: two say otherwise, or one, which may have said, could
    /// not be read. What is collected by another retention than was meant is gone.
    pub retention_unclear: bool,
}

impl Settings {
    /// Notes that a document's tier may have got lost. Behind one that counts it would have said nothing.
    fn leave_tier_unread(&mut self, may_have_one: bool) {
        self.tier_unread |= may_have_one && self.tier.is_none();
    }
}

/// A setting, and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// What was written.
    pub value: T,
    /// Where.
    pub origin: Origin,
}

/// Turns documents into servers. Pure: what it needs from outside it asks `environment` for.
///
/// All errors are reported at once. A server with an error is left out and the others stay.
///
/// Documents are merged in their order. Where two servers have one id, the first stands; the second is an error,
/// or a warning where it is just the same in another document. Where a later document has a server under another
/// id that starts or reaches the very same thing, the first stands as well, with a warning: it is started once.
/// Within one document two names for one thing are taken as meant, with a warning.
///
/// It takes time and memory in proportion to the documents. Each file is read once, and references to files count
/// as unreadable once what they hold comes to 64 MiB, those to the keyring as missing after 1,024 entries.
#[must_use]
pub fn normalize(documents: &[Document], options: &Options, environment: &dyn Environment) -> Normalized {
    let environment = Bounded::new(environment);
    let mut merge = Merge::new(options, &environment);
    for document in documents {
        merge.document(document);
    }
    merge.normalized
}

impl<'a> Context<'a> {
    /// What the document's servers are judged by.
    pub(crate) fn of(
        document: &Document,
        read: &DraftDocument,
        options: &'a Options,
        environment: &'a dyn Environment,
        sink: &mut Sink<'_>,
    ) -> Self {
        let profile = read.profile.max(options.profile);
        Self {
            options,
            environment,
            profile,
            egress: read.egress,
            allowed_hosts: Egress::shared(
                read.hub
                    .allowed_hosts
                    .iter()
                    .map(|rule| rule.value.clone())
                    .collect(),
            ),
            network: read.hub.network.clone(),
            timeout: hub_timeout(&read.hub, profile, sink),
            plugin: document.plugin.clone().or_else(|| read.plugin.clone()),
            env_files: RefCell::default(),
        }
    }
}

/// From a text to the servers that it has, not yet judged.
fn read_draft(
    document: &Document,
    source: &Source,
    options: &Options,
    sink: &mut Sink<'_>,
) -> Option<(Dialect, DraftDocument)> {
    let root = match value::parse(source, options.max_depth) {
        Ok(Some(root)) => Some(root),
        Ok(None) => {
            let message = "there is nothing in the document";
            sink.error(Code::EmptyDocument, Span::default(), message, dialect::SHAPES);
            None
        }
        Err(problem) => {
            sink.problem(problem);
            None
        }
    };
    let known = root.and_then(|root| {
        let dialect = dialect::of(&root, document.dialect, sink)?;
        Some((root, dialect))
    });
    let Some((root, dialect)) = known else {
        if may_be_ours(document) {
            sink.unread = Unread::ALL;
        }
        return None;
    };
    let draft = dialect::read(&root, dialect, options, sink)?;
    Some((dialect, draft))
}

/// Whether a document of which nothing is known may be one of Portcullis' own, and say what holds for the whole hub: it
/// was called one, or it has one of their words, or nothing is left of it, or it is no text. Other clients' documents,
/// of which most have no such word, must not keep a hub from starting by a comma too many.
fn may_be_ours(document: &Document) -> bool {
    if let Some(named) = document.dialect {
        return named == Dialect::Portcullis;
    }
    let Ok(text) = str::from_utf8(&document.bytes) else {
        return true;
    };
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '@');
    let mut words = text.split(|c| !is_of_word(c));
    text.trim_start_matches('\u{feff}').trim().is_empty()
        || words.any(|word| word == "mcp" || OF_ALL_DOCUMENTS.contains(&word))
}

/// The text without its byte order mark; where it is no text, as much of it as shows where, and why.
pub(crate) fn read_text(document: &Document, options: &Options) -> Result<Source, Box<(Source, Problem)>> {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    let (bytes, base) = match document.bytes.strip_prefix(BOM) {
        Some(rest) => (rest, BOM.len()),
        None => (document.bytes.as_slice(), 0),
    };
    if bytes.len() > options.max_document_bytes {
        let problem = Problem {
            code: Code::TooLarge,
            span: Span::default(),
            message: format!(
                "the document has {} bytes, more than {}",
                bytes.len(),
                options.max_document_bytes
            ),
            help: "check that this is the right file, or split it".to_owned(),
        };
        let source = Source::new(&document.name, String::new(), base);
        return Err(Box::new((source, problem)));
    }
    match str::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(&document.name, text.to_owned(), base)),
        Err(error) => {
            let at = error.valid_up_to();
            // The text before the bad byte is enough to find its line.
            let before = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default()).into_owned();
            let problem = Problem {
                code: Code::NotUtf8,
                span: Span { start: at, end: at },
                message: "the document is not UTF-8".to_owned(),
                help: "save it as UTF-8; a file that starts with FF FE or FE FF is UTF-16".to_owned(),
            };
            Err(Box::new((Source::new(&document.name, before, base), problem)))
        }
    }
}

/// The timeout for all servers of the document. In the strict profile it is held to the same limits as a server's
/// own, and an error where it is outside.
fn hub_timeout(hub: &HubDraft, profile: Profile, sink: &mut Sink<'_>) -> Option<u64> {
    let timeout = hub.timeout.as_ref()?;
    (profile != Profile::Strict || strict_range(timeout, sink)).then_some(timeout.value)
}
