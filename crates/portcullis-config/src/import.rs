//! From a document of any dialect to one of Portcullis' own.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use portcullis_types::{EgressRule, ServerId};
use serde::Serialize;

use crate::{
    Code, Diagnostic, Dialect, Document, Egress, Environment, Fate, FieldReport, Options, Severity,
    bounded::Bounded,
    build::{Context, build, derived_rule, is_command_line},
    draft::{Draft, EgressSource},
    normalize::{normalize, read_draft, read_text},
    source::{Sink, Source, Traced, apply, short},
};

mod secret;
mod write;

/// What an import comes to. Nothing in it holds a literal secret of the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// The dialect that was read; `None` where the document is of none.
    pub dialect: Option<Dialect>,
    /// The same servers in Portcullis' own format, as YAML.
    pub config: String,
    /// Where each HTTP server of it may connect.
    pub egress: BTreeMap<ServerId, Egress>,
    /// What became of each field of the document.
    pub fields: Vec<FieldReport>,
    /// The variables that must be set, since a literal secret has become a reference.
    pub to_set: Vec<ToSet>,
    /// The servers that are not in `config`, by the names that the document has for them.
    pub left_out: Vec<String>,
    /// All findings in the document, as [`normalize`] has them.
    pub diagnostics: Vec<Diagnostic>,
}

/// A variable to set, and where its value stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToSet {
    /// The variable.
    pub variable: String,
    /// The server that refers to it, by the name that the document has for it; empty where all do.
    pub server: String,
    /// The field of the own format that refers to it.
    pub field: String,
    /// The line of the document that has the value.
    pub line: usize,
}

/// Writes a document as one of Portcullis' own.
///
/// A server is left out where the document does not say what it is; one that only this machine cannot start (a
/// program that is not installed, a variable that is not set) is carried over. Literal secrets become references.
/// Importing what comes out gives the same again, and both give the same servers as the document itself, once
/// [`Imported::to_set`] is set.
#[must_use]
pub fn import(document: &Document, options: &Options, environment: &dyn Environment) -> Imported {
    let options = Options {
        trace: true,
        ..options.clone()
    };
    let environment: &dyn Environment = &Bounded::new(environment);
    let normalized = normalize(std::slice::from_ref(document), &options, environment);
    let mut imported = Imported {
        diagnostics: normalized.diagnostics,
        ..Imported::default()
    };
    let Ok(source) = read_text(document, &options) else {
        return imported;
    };
    let mut sink = Sink::tracing(&source, true);
    let Some((dialect, mut read)) = read_draft(document, &source, &options, &mut sink) else {
        imported.fields = normalized.fields;
        return imported;
    };
    let mut fields = Fields::of(sink.take_fields());
    imported.dialect = Some(dialect);
    let context = Context::of(document, &read, &options, environment, &mut sink);
    let starting: BTreeSet<_> = normalized.specs.iter().map(|spec| spec.id.clone()).collect();
    let mut servers = Vec::new();
    let mut ids = BTreeSet::new();
    let mut variables = secret::Variables::of(&read);
    let mut changes = Vec::new();
    for mut draft in std::mem::take(&mut read.servers) {
        let id = ServerId::from_display_name(&draft.name.value);
        let kept = match judge(&draft, &context, &source) {
            Judgement::Starts => true,
            // Another of the same id starts, and is the one that counts.
            Judgement::Elsewhere => !starting.contains(&id),
            Judgement::Bad => false,
        };
        if !kept || ids.contains(&id) {
            imported.left_out.push(short(&draft.name.value));
            fields.drop(&draft, "the server is left out: see what is said of it", |_| true);
            continue;
        }
        ids.insert(id.clone());
        drop_unused(&draft, &mut fields);
        let egress = egress(&draft, &context);
        if draft.has_url {
            imported
                .egress
                .insert(id.clone(), context.allowed_hosts.with(egress.clone()));
        }
        let replaced = secret::replace(&mut draft, &id, &context, &mut variables, &source);
        changes.extend(replaced.changes);
        imported.to_set.extend(replaced.to_set);
        servers.push((draft, egress));
    }
    let hub = ServerId::from_display_name("hub");
    let replaced = secret::replace_of_all(&mut read.hub.network, &hub, &mut variables, &source);
    imported.to_set.extend(replaced.to_set);
    apply(&changes, &mut fields.all);
    imported.fields = fields.all.into_iter().map(|field| field.report).collect();
    imported.config = write::document(document, dialect, &read, &servers);
    imported
}

enum Judgement {
    /// It can be started here.
    Starts,
    /// What is wrong is this machine's, and not its own.
    Elsewhere,
    /// The document does not say what it is.
    Bad,
}

/// Whether a server can be carried over.
fn judge(draft: &Draft, context: &Context<'_>, source: &Source) -> Judgement {
    // A whole command line is no program, and may hold secrets.
    let is_line = draft
        .command
        .as_ref()
        .is_some_and(|command| is_command_line(&command.value));
    if is_line {
        return Judgement::Bad;
    }
    let mut sink = Sink::new(source);
    if build(draft, context, &mut sink).is_some() {
        return Judgement::Starts;
    }
    let of_the_machine = |found: &Diagnostic| {
        matches!(
            found.code,
            Code::ProgramNotFound | Code::ProgramNotAbsolute | Code::UnsetReference
        )
    };
    let own = sink
        .finish()
        .iter()
        .any(|found| found.severity == Severity::Error && !of_the_machine(found));
    match draft.broken || own {
        true => Judgement::Bad,
        false => Judgement::Elsewhere,
    }
}

/// The rules of the server itself, without what the document allows all its servers.
fn egress(draft: &Draft, context: &Context<'_>) -> Vec<EgressRule> {
    match context.egress {
        EgressSource::Listed => draft.egress.iter().map(|rule| rule.value.clone()).collect(),
        EgressSource::Derived => derived_rule(draft, context).into_iter().collect(),
    }
}

/// Fields of the other kind of server have no effect, and are not written.
fn drop_unused(draft: &Draft, fields: &mut Fields) {
    let (unused, why) = if draft.has_command {
        (&draft.http_fields, "it has no effect: the server is a program")
    } else {
        (
            &draft.stdio_fields,
            "it has no effect: the server is reached over HTTP",
        )
    };
    if unused.is_empty() {
        return;
    }
    let is_unused = |field: &str| {
        // Some dialects have them one deeper.
        let field = field.strip_prefix("config.").unwrap_or(field);
        unused.iter().any(|(name, _)| {
            field
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    fields.drop(draft, why, is_unused);
}

/// What became of each field, and which of them stand in which entry.
struct Fields {
    all: Vec<Traced>,
    by_entry: HashMap<usize, Vec<usize>>,
}

impl Fields {
    fn of(all: Vec<Traced>) -> Self {
        let mut by_entry: HashMap<_, Vec<_>> = HashMap::new();
        for (field, place) in all.iter().zip(0..) {
            if let Some(entry) = field.entry {
                by_entry.entry(entry).or_default().push(place);
            }
        }
        Self { all, by_entry }
    }

    /// Says of some fields of a server that they are not carried over.
    fn drop(&mut self, draft: &Draft, why: &str, which: impl Fn(&str) -> bool) {
        for place in self.by_entry.get(&draft.name.span.start).into_iter().flatten() {
            let Some(Traced { report, .. }) = self.all.get_mut(*place) else {
                continue;
            };
            if which(&report.field) && !matches!(report.fate, Fate::Dropped { .. }) {
                report.fate = Fate::dropped(why);
            }
        }
    }
}
