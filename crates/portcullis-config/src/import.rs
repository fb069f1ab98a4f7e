//! From a document of any dialect to one of Portcullis' own.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::{EgressRule, ServerId};
use serde::Serialize;

use crate::{
    Code, Diagnostic, Dialect, Document, Environment, Fate, FieldReport, Options, Severity,
    build::{Context, build, derived_rule},
    draft::{Draft, EgressSource},
    normalize::{normalize, read_draft, read_text},
    source::{Sink, Source, apply},
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
    pub egress: BTreeMap<ServerId, Vec<EgressRule>>,
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
    let normalized = normalize(std::slice::from_ref(document), &options, environment);
    let mut imported = Imported {
        fields: normalized.fields,
        diagnostics: normalized.diagnostics,
        ..Imported::default()
    };
    let Ok(source) = read_text(document, &options) else {
        return imported;
    };
    let mut sink = Sink::new(&source);
    let Some((dialect, mut read)) = read_draft(document, &source, &options, &mut sink) else {
        return imported;
    };
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
            imported.left_out.push(draft.name.value.clone());
            drop_fields(
                &draft,
                "the server is left out: see what is said of it",
                |_| true,
                &mut imported.fields,
            );
            continue;
        }
        ids.insert(id.clone());
        drop_unused(&draft, &mut imported.fields);
        let egress = egress(&draft, &context);
        if draft.has_url {
            let allowed = read.hub.allowed_hosts.iter().map(|rule| rule.value.clone());
            imported
                .egress
                .insert(id.clone(), allowed.chain(egress.iter().cloned()).collect());
        }
        let replaced = secret::replace(&mut draft, &id, &context, &mut variables, &source);
        changes.extend(replaced.changes);
        imported.to_set.extend(replaced.to_set);
        servers.push((draft, egress));
    }
    let hub = ServerId::from_display_name("hub");
    let replaced = secret::replace_of_all(&mut read.hub.network, &hub, &mut variables, &source);
    imported.to_set.extend(replaced.to_set);
    apply(&changes, &mut imported.fields);
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
    let is_line = draft.command.as_ref().is_some_and(|command| {
        let first = command
            .value
            .split(char::is_whitespace)
            .next()
            .unwrap_or_default();
        first.len() < command.value.len() && !first.contains(['/', '\\', '$'])
    });
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
fn drop_unused(draft: &Draft, fields: &mut [FieldReport]) {
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
        unused.iter().any(|(name, _)| {
            field
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    drop_fields(draft, why, is_unused, fields);
}

fn drop_fields(draft: &Draft, why: &str, which: impl Fn(&str) -> bool, fields: &mut [FieldReport]) {
    let of_server = |field: &&mut FieldReport| field.server.as_deref() == Some(draft.name.value.as_str());
    for field in fields.iter_mut().filter(of_server) {
        if which(&field.field) && !matches!(field.fate, Fate::Dropped { .. }) {
            field.fate = Fate::dropped(why);
        }
    }
}
