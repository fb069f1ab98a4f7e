use std::path::PathBuf;

use clap::Args;
use portcullis::{
    Diagnostic,
    config::{Fate, Imported, Severity, import},
};
use serde::Serialize;

use crate::{
    ExitStatus,
    arguments::Format,
    findings::{self, ReadArguments},
    host::Host,
    output,
};

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// A client's configuration file
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) read: ReadArguments,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// Prints the configuration on standard output and all that is to be said of it beside it; fails where a server, or what
/// holds for all of them, is left out.
pub(crate) fn run(arguments: &ImportArguments) -> ExitStatus {
    let read = arguments.read.read(std::slice::from_ref(&arguments.file));
    let (documents, options) = match read {
        Ok(read) => read,
        Err(error) => {
            output::error(&error.to_string());
            return (&error).into();
        }
    };
    let Some(document) = documents.first() else {
        return ExitStatus::Failed;
    };
    let imported = import(document, &options, &Host::capture());
    match arguments.format {
        Format::Json => print_json(&imported),
        Format::Text => {
            if imported.dialect.is_some() {
                output::line(imported.config.trim_end());
            }
            findings::print(&documents, &imported.diagnostics, &options);
            report(&imported);
        }
    }
    let is_of_all = |found: &Diagnostic| found.severity == Severity::Error && found.server.is_none();
    let is_whole = imported.left_out.is_empty() && !imported.diagnostics.iter().any(is_of_all);
    if imported.dialect.is_some() && is_whole {
        ExitStatus::Done
    } else {
        ExitStatus::BadConfig
    }
}

fn report(imported: &Imported) {
    let note = |text: String| output::note(&output::safe(&text));
    for field in &imported.fields {
        let of = field
            .server
            .as_deref()
            .map(|server| format!("{server}: "))
            .unwrap_or_default();
        let what = match &field.fate {
            Fate::Carried { to } if *to == field.field => "carried".to_owned(),
            Fate::Carried { to } => format!("carried, as {to}"),
            Fate::Converted { to, how } => format!("converted to {to}: {how}"),
            Fate::Dropped { why } => format!("dropped: {why}"),
        };
        note(format!("line {}: {of}{}: {what}", field.line, field.field));
    }
    for (server, rules) in &imported.egress {
        let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
        let rules = match rules.as_slice() {
            [] => "nothing yet: its url has no value on this machine".to_owned(),
            rules => rules.join(", "),
        };
        note(format!("egress: {server} may reach {rules}"));
    }
    for server in &imported.left_out {
        note(format!("left out: {server}"));
    }
    for set in &imported.to_set {
        let of = match set.server.as_str() {
            "" => String::new(),
            server => format!(" of {server}"),
        };
        note(format!(
            "set {} to the secret of {}{of}, line {}",
            set.variable, set.field, set.line
        ));
    }
}

fn print_json(imported: &Imported) {
    #[derive(Serialize)]
    struct Report<'a> {
        dialect: Option<&'a str>,
        config: &'a str,
        egress: std::collections::BTreeMap<&'a str, Vec<String>>,
        fields: &'a [portcullis::config::FieldReport],
        to_set: &'a [portcullis::config::ToSet],
        left_out: &'a [String],
        diagnostics: &'a [portcullis::Diagnostic],
    }
    let egress = imported.egress.iter().map(|(server, rules)| {
        let rules = rules.iter().map(ToString::to_string).collect();
        (server.as_str(), rules)
    });
    output::json(&Report {
        dialect: imported.dialect.map(|dialect| dialect.as_str()),
        config: &imported.config,
        egress: egress.collect(),
        fields: &imported.fields,
        to_set: &imported.to_set,
        left_out: &imported.left_out,
        diagnostics: &imported.diagnostics,
    });
}
