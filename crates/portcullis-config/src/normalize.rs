<<<<<<< HEAD
use std::{cell::RefCell, collections::BTreeMap, path::PathBuf};
=======
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    time::Duration,
};
>>>>>>> shape

use portcullis_types::{AgentId, Tier};

use crate::{
    BlobSettings, Code, Diagnostic, Dialect, Document, Egress, Environment, FieldReport, Options, Origin,
    Profile, ResultSettings, ServerSpec, Severity,
    bounded::Bounded,
    build::{Context, strict_range},
    dialect,
    draft::{DraftDocument, HubDraft},
    source::{Sink, Source},
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The folder of Cedar policies, as it was written: relative to the document's own folder.
    pub policies: Option<Setting<PathBuf>>,
    /// How freely agents may act.
    pub tier: Option<Setting<Tier>>,
    /// The profile, in the policies' sense, of each agent that is named.
    pub agents: Option<Setting<BTreeMap<AgentId, String>>>,
    /// How results are shaped.
    pub results: ResultSettings,
    /// The store of what is large or binary in them.
    pub blobs: BlobSettings,
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

<<<<<<< HEAD
=======
struct Merge<'a> {
    options: &'a Options,
    environment: &'a dyn Environment,
    normalized: Normalized,
    seen: HashMap<ServerId, Seen>,
    /// What the enabled servers start or reach.
    launched: HashMap<Hash, ServerId>,
    /// Servers of strict documents so far.
    strict: usize,
}

struct Seen {
    display_name: String,
    document: usize,
    origin: Origin,
    fingerprint: Hash,
}

impl Merge<'_> {
    fn document(&mut self, index: usize, document: &Document) {
        let source = match read_text(document, self.options) {
            Ok(source) => source,
            Err(refused) => {
                let (source, problem) = *refused;
                let mut sink = Sink::new(&source);
                sink.problem(problem);
                self.normalized.diagnostics.extend(sink.finish());
                return;
            }
        };
        let mut sink = Sink::tracing(&source, self.options.trace);
        if let Some((_, read)) = read_draft(document, &source, self.options, &mut sink) {
            self.draft(index, document, read, &mut sink);
        }
        let fields = sink.take_fields().into_iter();
        self.normalized.fields.extend(fields.map(|field| field.report));
        self.normalized.diagnostics.extend(sink.finish());
    }

    fn draft(&mut self, index: usize, document: &Document, read: DraftDocument, sink: &mut Sink<'_>) {
        let context = Context::of(document, &read, self.options, self.environment, sink);
        self.settings(&read.hub, sink);
        for draft in &read.servers {
            if let Some(spec) = build(draft, &context, sink) {
                sink.enter(Some(&draft.name));
                self.server(index, draft, spec, context.profile, sink);
                sink.enter(None);
            }
        }
    }

    fn server(
        &mut self,
        document: usize,
        draft: &Draft,
        spec: ServerSpec,
        profile: Profile,
        sink: &mut Sink<'_>,
    ) {
        let fingerprint = spec.fingerprint();
        if let Some(seen) = self.seen.get(&spec.id) {
            duplicate(seen, document, fingerprint, draft, &spec, sink);
            return;
        }
        let launch = spec.launch_fingerprint();
        if spec.enabled
            && let Some(seen) = self.launched.get(&launch).and_then(|id| self.seen.get(id))
            && !same_launch(seen, document, draft, &spec, sink)
        {
            return;
        }
        let strict = profile == Profile::Strict;
        let limit = self
            .options
            .max_servers
            .or(strict.then_some(Options::STRICT_MAX_SERVERS));
        let count = if self.options.max_servers.is_some() {
            self.normalized.specs.len()
        } else {
            self.strict
        };
        if let Some(limit) = limit
            && count >= limit
        {
            let message = format!(
                "more than {limit} servers: {} is left out",
                quote(&spec.display_name)
            );
            sink.error(
                Code::TooManyServers,
                draft.name.span,
                message,
                "take servers out, or have the host raise its limit",
            );
            return;
        }
        self.strict += usize::from(strict);
        if spec.enabled {
            self.launched.entry(launch).or_insert_with(|| spec.id.clone());
        }
        self.seen.insert(
            spec.id.clone(),
            Seen {
                display_name: spec.display_name.clone(),
                document,
                origin: spec.origin.clone(),
                fingerprint,
            },
        );
        self.normalized.specs.push(spec);
    }

    fn settings(&mut self, hub: &HubDraft, sink: &mut Sink<'_>) {
        let settings = &mut self.normalized.settings;
        if let Some(policies) = &hub.policies {
            let value = Spanned {
                value: PathBuf::from(&policies.value),
                span: policies.span,
            };
            set(&mut settings.policies, "policies", value, sink);
        }
        if let Some(tier) = hub.tier.clone() {
            set(&mut settings.tier, "tier", tier, sink);
        }
        if let Some(agents) = hub.agents.clone() {
            set(&mut settings.agents, "agents", agents, sink);
        }
        let (results, blobs, draft) = (&mut settings.results, &mut settings.blobs, &hub.results);
        let seconds = |given: &Spanned<u64>| Spanned {
            value: Duration::from_secs(given.value),
            span: given.span,
        };
        let mut take = Take(sink);
        take.given(
            &mut results.max_reply_bytes,
            "results.maxReplyBytes",
            draft.max_reply_bytes.as_ref(),
        );
        take.given(&mut results.oversize, "results.oversize", draft.oversize.as_ref());
        take.given(
            &mut results.data_url_min_bytes,
            "results.dataUrlMinBytes",
            draft.data_url_min_bytes.as_ref(),
        );
        take.given(
            &mut blobs.durability,
            "blobs.durability",
            draft.durability.as_ref(),
        );
        take.given(
            &mut blobs.quota_bytes,
            "blobs.quotaBytes",
            draft.quota_bytes.as_ref(),
        );
        take.given(
            &mut blobs.max_blob_bytes,
            "blobs.maxBlobBytes",
            draft.max_blob_bytes.as_ref(),
        );
        let (retention, session) = (
            draft.retention_seconds.as_ref().map(seconds),
            draft.session_seconds.as_ref().map(seconds),
        );
        take.given(&mut blobs.retention, "blobs.retentionSeconds", retention.as_ref());
        take.given(&mut blobs.session, "blobs.sessionSeconds", session.as_ref());
    }
}

>>>>>>> shape
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
    match value::parse(source, options.max_depth) {
        Ok(Some(root)) => dialect::read(&root, document.dialect, options, sink),
        Ok(None) => {
            let message = "there is nothing in the document";
            sink.error(Code::EmptyDocument, Span::default(), message, dialect::SHAPES);
            None
        }
        Err(problem) => {
            sink.problem(problem);
            None
        }
    }
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
/// own, and the default takes its place where it is outside.
fn hub_timeout(hub: &HubDraft, profile: Profile, sink: &mut Sink<'_>) -> Option<u64> {
    let timeout = hub.timeout.as_ref()?;
    (profile != Profile::Strict || strict_range(timeout, sink)).then_some(timeout.value)
}
<<<<<<< HEAD
=======

fn duplicate(
    seen: &Seen,
    document: usize,
    fingerprint: Hash,
    draft: &Draft,
    spec: &ServerSpec,
    sink: &mut Sink<'_>,
) {
    let span = draft.name.span;
    let place = seen.place(document);
    let name = quote(&spec.display_name);
    if seen.document != document && seen.fingerprint == fingerprint {
        let message = format!("the server {name} stands {place} as well, just the same: it is started once");
        sink.warning(Code::SameServer, span, message, "take it out of one of the two");
        return;
    }
    let message = format!(
        "the id `{}` of the server {name} is taken {place} and here (line {})",
        spec.id, spec.origin.line
    );
    sink.error(
        Code::DuplicateServer,
        span,
        message,
        "the first one stands: rename this one, or take it out",
    );
}

/// Whether a server that starts or reaches the same as one before it stays.
fn same_launch(seen: &Seen, document: usize, draft: &Draft, spec: &ServerSpec, sink: &mut Sink<'_>) -> bool {
    let (first, second) = (quote(&seen.display_name), quote(&spec.display_name));
    let place = seen.place(document);
    let stays = seen.document == document;
    let (what, help) = if stays {
        (
            format!(
                "it is started twice (lines {} and {})",
                seen.origin.line, spec.origin.line
            ),
            "take one of the two out, unless two are meant",
        )
    } else {
        (
            format!("it is started once, as {first}"),
            "take it out of one of the two; policies name it by the id of the first",
        )
    };
    let message = format!("the server {second} is the same as {first} {place}: {what}");
    sink.warning(Code::SameServer, draft.name.span, message, help);
    stays
}

impl Seen {
    fn place(&self, document: usize) -> String {
        let Origin { file, line, .. } = &self.origin;
        if self.document == document {
            format!("on line {line}")
        } else {
            format!("in {}, line {line}", quote(file))
        }
    }
}

/// Takes over what is given.
struct Take<'a, 's>(&'a mut Sink<'s>);

impl Take<'_, '_> {
    fn given<T: PartialEq + Clone>(
        &mut self,
        setting: &mut Option<Setting<T>>,
        name: &str,
        given: Option<&Spanned<T>>,
    ) {
        if let Some(given) = given {
            set(setting, name, given.clone(), self.0);
        }
    }
}

fn set<T: PartialEq>(setting: &mut Option<Setting<T>>, name: &str, given: Spanned<T>, sink: &mut Sink<'_>) {
    match setting {
        None => {
            let origin = Origin {
                file: sink.source().file.clone(),
                line: sink.source().line(given.span),
                plugin: None,
            };
            *setting = Some(Setting {
                value: given.value,
                origin,
            });
        }
        Some(first) if first.value == given.value => {}
        Some(first) => {
            let Origin { file, line, .. } = &first.origin;
            let message = format!(
                "`{name}` has another value in {}, line {line}, and that one counts",
                quote(file)
            );
            sink.error(
                Code::SettingConflict,
                given.span,
                message,
                "give it in one document only",
            );
        }
    }
}
>>>>>>> shape
