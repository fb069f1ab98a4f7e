//! Several documents become one list of servers.

mod settings;

use std::collections::HashMap;

use portcullis_types::{Hash, ServerId};

use super::{Normalized, may_be_ours, read_draft, read_text};
use crate::{
    Code, Dialect, Document, Environment, Options, Origin, Profile, ServerSpec,
    build::{Context, build},
    draft::{Draft, DraftDocument},
    source::{Sink, Source, Traced, quote},
    unread::Unread,
    value::Problem,
};

/// Documents on their way to one list of servers.
pub(crate) struct Merge<'a> {
    options: &'a Options,
    environment: &'a dyn Environment,
    pub(crate) normalized: Normalized,
    /// How many were read so far, which tells them apart.
    documents: usize,
    seen: HashMap<ServerId, Seen>,
    /// What the enabled servers start or reach.
    launched: HashMap<Hash, ServerId>,
    /// Servers of strict documents so far.
    strict: usize,
    /// Whether a document so far says how calls are decided, or may, and could not be read. It would have counted
    /// before those that follow, and may have been the stricter one.
    deciding_unread: bool,
}

struct Seen {
    display_name: String,
    document: usize,
    origin: Origin,
    fingerprint: Hash,
}

/// One document as it was read.
pub(crate) struct Read<'a> {
    /// `None` where it is of no dialect.
    pub(crate) judged: Option<Judged<'a>>,
    /// What became of its fields, where [`Options::trace`] asks for that.
    pub(crate) fields: Vec<Traced>,
}

/// What stands in a document, and what its servers were judged by.
pub(crate) struct Judged<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) draft: DraftDocument,
    pub(crate) context: Context<'a>,
    /// One for each of the draft's servers.
    pub(crate) judgements: Vec<Judgement>,
}

/// What can be done with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It can be started here.
    Starts,
    /// What is wrong is this machine's, and not its own.
    Elsewhere,
    /// The document does not say what it is.
    Bad,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(options: &'a Options, environment: &'a dyn Environment) -> Self {
        Self {
            options,
            environment,
            normalized: Normalized::default(),
            documents: 0,
            seen: HashMap::new(),
            launched: HashMap::new(),
            strict: 0,
            deciding_unread: false,
        }
    }

    /// Adds the servers of one document.
    pub(crate) fn document(&mut self, document: &Document) {
        match read_text(document, self.options) {
            Ok(source) => {
                let read = self.text(document, &source);
                let fields = read.fields.into_iter();
                self.normalized.fields.extend(fields.map(|field| field.report));
            }
            Err(refused) => self.refused(document, *refused),
        }
    }

    /// Reports a document whose text cannot be read.
    pub(crate) fn refused(&mut self, document: &Document, (source, problem): (Source, Problem)) {
        let mut sink = Sink::new(&source);
        sink.problem(problem);
        if may_be_ours(document) {
            self.leave_unread(Unread::ALL);
        }
        self.normalized.settings.retention_unclear = true;
        self.normalized.diagnostics.extend(sink.finish());
    }

    /// Adds the servers of one document, and gives what it read to whoever goes on with it.
    pub(crate) fn text(&mut self, document: &Document, source: &Source) -> Read<'a> {
        self.documents += 1;
        let mut sink = Sink::tracing(source, self.options.trace);
        let judged = read_draft(document, source, self.options, &mut sink)
            .map(|(dialect, draft)| self.draft(document, dialect, draft, &mut sink));
        self.leave_unread(sink.unread);
        self.normalized.settings.retention_unclear |= sink.unread.limits || judged.is_none();
        let fields = sink.take_fields();
        self.normalized.diagnostics.extend(sink.finish());
        Read { judged, fields }
    }

    fn leave_unread(&mut self, unread: Unread) {
        let settings = &mut self.normalized.settings;
        settings.limits_unread |= unread.limits;
        settings.agents_unread |= unread.agents;
        settings.leave_tier_unread(unread.tier);
        self.deciding_unread |= unread.deciding;
    }

    fn draft(
        &mut self,
        document: &Document,
        dialect: Dialect,
        draft: DraftDocument,
        sink: &mut Sink<'_>,
    ) -> Judged<'a> {
        let before = sink.errors();
        let context = Context::of(document, &draft, self.options, self.environment, sink);
        let broken = draft.hub.broken || sink.errors() > before;
        if broken {
            settings::leave_deciding_unread(&draft.hub, sink);
        }
        self.deciding(&draft.hub, sink);
        self.limits(draft.hub.results.clone(), sink);
        let mut judgements = Vec::with_capacity(draft.servers.len());
        for server in &draft.servers {
            let own_errors = sink.own_errors();
            // They are judged all the same, for the sake of further errors.
            let spec = build(server, &context, sink).filter(|_| !broken);
            judgements.push(match &spec {
                Some(_) => Judgement::Starts,
                None if broken || server.broken || sink.own_errors() > own_errors => Judgement::Bad,
                None => Judgement::Elsewhere,
            });
            if let Some(spec) = spec {
                sink.enter(Some(&server.name));
                self.server(server, spec, context.profile, sink);
                sink.enter(None);
            }
        }
        Judged {
            dialect,
            draft,
            context,
            judgements,
        }
    }

    fn server(&mut self, draft: &Draft, spec: ServerSpec, profile: Profile, sink: &mut Sink<'_>) {
        let document = self.documents;
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
