use std::{collections::HashMap, path::PathBuf};

use portcullis_types::{Hash, ServerId, Tier};

use crate::{
    Code, Diagnostic, Document, Environment, Options, Origin, Profile, ServerSpec, Severity,
    build::{Context, build, strict_range},
    dialect,
    draft::{Draft, HubDraft},
    source::{Sink, Source, quote},
    value::{Span, Spanned, is_json, json, yaml},
};

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
/// All errors are reported at once. A server with an error is left out and the others stay. Where two servers
/// have one id, the first stands.
#[must_use]
pub fn normalize(documents: &[Document], options: &Options, environment: &dyn Environment) -> Normalized {
    let mut merge = Merge {
        options,
        environment,
        normalized: Normalized::default(),
        seen: HashMap::new(),
        strict: 0,
    };
    for (document, index) in documents.iter().zip(0..) {
        merge.document(index, document);
    }
    merge.normalized
}

struct Merge<'a> {
    options: &'a Options,
    environment: &'a dyn Environment,
    normalized: Normalized,
    seen: HashMap<ServerId, Seen>,
    /// Servers of strict documents so far.
    strict: usize,
}

struct Seen {
    document: usize,
    origin: Origin,
    fingerprint: Hash,
}

impl Merge<'_> {
    fn document(&mut self, index: usize, document: &Document) {
        let (source, refusal) = read_text(document, self.options);
        let mut sink = Sink::new(&source);
        match refusal {
            Some((code, span, message, help)) => sink.error(code, span, message, help),
            None => self.text(index, &source, &mut sink),
        }
        self.normalized.diagnostics.extend(sink.finish());
    }

    fn text(&mut self, index: usize, source: &Source, sink: &mut Sink<'_>) {
        let parsed = match is_json(source) {
            true => json::parse(source, self.options.max_depth),
            false => yaml::parse(source, self.options.max_depth),
        };
        let root = match parsed {
            Ok(Some(root)) => root,
            Ok(None) => {
                sink.error(
                    Code::EmptyDocument,
                    Span::default(),
                    "there is nothing in the document",
                    dialect::SHAPES,
                );
                return;
            }
            Err(problem) => {
                sink.error(problem.code, problem.span, problem.message, problem.help);
                return;
            }
        };
        let Some(read) = dialect::read(&root, sink) else {
            return;
        };
        let profile = read.profile.max(self.options.profile);
        let context = Context {
            options: self.options,
            environment: self.environment,
            profile,
            egress: read.egress,
            allowed_hosts: read
                .hub
                .allowed_hosts
                .iter()
                .map(|rule| rule.value.clone())
                .collect(),
            timeout: hub_timeout(&read.hub, profile, sink),
        };
        self.settings(&read.hub, sink);
        for draft in &read.servers {
            if let Some(spec) = build(draft, &context, sink) {
                sink.enter(Some(&draft.name.value));
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
        self.seen.insert(
            spec.id.clone(),
            Seen {
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
    }
}

/// The text without its byte order mark; where it is no text, an empty one and why.
fn read_text(document: &Document, options: &Options) -> (Source, Option<(Code, Span, String, String)>) {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    let (bytes, base) = match document.bytes.strip_prefix(BOM) {
        Some(rest) => (rest, BOM.len()),
        None => (document.bytes.as_slice(), 0),
    };
    let empty = || Source::new(&document.name, String::new(), base);
    if bytes.len() > options.max_document_bytes {
        let message = format!(
            "the document has {} bytes, more than {}",
            bytes.len(),
            options.max_document_bytes
        );
        let help = "check that this is the right file, or split it";
        return (
            empty(),
            Some((Code::TooLarge, Span::default(), message, help.to_owned())),
        );
    }
    match str::from_utf8(bytes) {
        Ok(text) => (Source::new(&document.name, text.to_owned(), base), None),
        Err(error) => {
            let at = error.valid_up_to();
            // The text before the bad byte is enough to find its line.
            let before = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default()).into_owned();
            let message = "the document is not UTF-8".to_owned();
            let help = "save it as UTF-8; a file that starts with FF FE or FE FF is UTF-16".to_owned();
            let span = Span { start: at, end: at };
            (
                Source::new(&document.name, before, base),
                Some((Code::NotUtf8, span, message, help)),
            )
        }
    }
}

/// The timeout for all servers of the document. In the strict profile it is held to the same limits as a server's
/// own, and the default takes its place where it is outside.
fn hub_timeout(hub: &HubDraft, profile: Profile, sink: &mut Sink<'_>) -> Option<u64> {
    let timeout = hub.timeout.as_ref()?;
    (profile != Profile::Strict || strict_range(timeout, sink)).then_some(timeout.value)
}

fn duplicate(
    seen: &Seen,
    document: usize,
    fingerprint: Hash,
    draft: &Draft,
    spec: &ServerSpec,
    sink: &mut Sink<'_>,
) {
    let span = draft.name.span;
    let Origin { file, line } = &seen.origin;
    let place = if seen.document == document {
        format!("on line {line}")
    } else {
        format!("in {}, line {line}", quote(file))
    };
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

fn set<T: PartialEq>(setting: &mut Option<Setting<T>>, name: &str, given: Spanned<T>, sink: &mut Sink<'_>) {
    match setting {
        None => {
            let origin = Origin {
                file: sink.source().file.clone(),
                line: sink.source().line(given.span),
            };
            *setting = Some(Setting {
                value: given.value,
                origin,
            });
        }
        Some(first) if first.value == given.value => {}
        Some(first) => {
            let Origin { file, line } = &first.origin;
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
