//! From a document of any dialect to one of Portcullis' own.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use portcullis_types::{EgressRule, ServerId};
use serde::Serialize;

use crate::{
    Diagnostic, Dialect, Document, Egress, Environment, Fate, FieldReport, Options,
    bounded::Bounded,
    build::{Context, derived_rule, is_command_line},
    draft::{Draft, EgressSource},
    normalize::{Judged, Judgement, Merge, read_text},
    source::{Traced, apply, short},
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
    /// All findings in the document, as [`normalize`](crate::normalize()) has them.
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
    let environment = Bounded::new(environment);
    let mut merge = Merge::new(&options, &environment);
    let source = match read_text(document, &options) {
        Ok(source) => source,
        Err(refused) => {
            merge.refused(document, *refused);
            return Imported::of(merge.normalized.diagnostics);
        }
    };
    let read = merge.text(document, &source);
    let mut imported = Imported::of(merge.normalized.diagnostics);
    let mut fields = Fields::of(read.fields);
    let Some(judged) = read.judged else {
        imported.fields = fields.reports();
        return imported;
    };
    let Judged {
        dialect,
        mut draft,
        context,
        judgements,
    } = judged;
    imported.dialect = Some(dialect);
    let starting: BTreeSet<_> = merge.normalized.specs.into_iter().map(|spec| spec.id).collect();
    let mut servers = Vec::new();
    let mut ids = BTreeSet::new();
    let mut variables = secret::Variables::of(&draft);
    let mut changes = Vec::new();
    for (mut server, judgement) in std::mem::take(&mut draft.servers).into_iter().zip(judgements) {
        let id = ServerId::from_display_name(&server.name.value);
        let kept = match judgement {
            Judgement::Starts => true,
            // A whole command line is no program, and may hold secrets.
            _ if is_whole_line(&server, &options) => false,
            // Another of the same id starts, and is the one that counts.
            Judgement::Elsewhere => !starting.contains(&id),
            Judgement::Bad => false,
        };
        if !kept || ids.contains(&id) {
            imported.left_out.push(short(&server.name.value));
            fields.drop(&server, "the server is left out: see what is said of it", |_| {
                true
            });
            continue;
        }
        ids.insert(id.clone());
        drop_unused(&server, &mut fields);
        let egress = egress(&server, &context);
        if server.has_url {
            imported
                .egress
                .insert(id.clone(), context.allowed_hosts.with(egress.clone()));
        }
        let replaced = secret::replace(&mut server, &id, &context, &mut variables, &source);
        changes.extend(replaced.changes);
        imported.to_set.extend(replaced.to_set);
        servers.push((server, egress));
    }
    let hub = ServerId::from_display_name("hub");
    let replaced = secret::replace_of_all(&mut draft.hub.network, &hub, &mut variables, &source);
    imported.to_set.extend(replaced.to_set);
    apply(&changes, &mut fields.all);
    imported.fields = fields.reports();
    imported.config = write::document(document, dialect, &draft, &servers);
    imported
}

impl Imported {
    /// Nothing yet but the findings.
    fn of(diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            diagnostics,
            ..Self::default()
        }
    }
}

fn is_whole_line(draft: &Draft, options: &Options) -> bool {
    draft
        .command
        .as_ref()
        .is_some_and(|command| is_command_line(&command.value, options))
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

    fn reports(self) -> Vec<FieldReport> {
        self.all.into_iter().map(|field| field.report).collect()
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
