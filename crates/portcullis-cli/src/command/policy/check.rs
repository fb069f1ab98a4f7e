use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;
use portcullis::{
    CapabilityId, ParseError, PolicyFile,
    policy::{COMPILED_FOLDER, Coverage, Finding, PolicyErrors, Seal, lint, run_cases},
};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{folder, write};
use crate::{ExitStatus, arguments::Format, output};

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// The folder of policies, with decision tables in its folder `cases`
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The tools that there are: what `portcullis tools --format json` prints, or a JSON list of ids
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Fail where the folder has no seal
    #[arg(long)]
    sealed: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// All that was found.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Decisions that were compared with what the tables expect.
    decisions: usize,
    exercised: usize,
    untested_by_intent: usize,
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Problem {
    file: String,
    line: usize,
    kind: &'static str,
    message: String,
}

/// A catalog, as `portcullis tools` prints it or as a list of ids.
#[derive(Deserialize)]
#[serde(untagged)]
enum CatalogFile {
    Listing { tools: Vec<Listed> },
    Ids(Vec<String>),
}

#[derive(Deserialize)]
struct Listed {
    capability: String,
}

pub(super) fn run(arguments: &CheckArguments) -> Result<ExitStatus, ExitStatus> {
    let folder = &arguments.folder;
    let files = folder::policies(folder)?;
    let catalog = arguments.catalog.as_deref().map(catalog).transpose()?;
    let mut report = Report::default();
    for (name, help) in folder::not_read(folder) {
        report.add(&name, 1, "not-read", format!("it is not read\n  help: {help}"));
    }
    match folder::seal(folder)? {
        Some(seal) => report.refusals("seal", seal.check(&files)),
        None if arguments.sealed => report.refusals("seal", Err(Seal::missing())),
        None => {}
    }
    match lint(&files, catalog.as_deref()) {
        Ok(findings) => {
            report.findings(&findings);
            report.compiled(folder, &files)?;
            report.cases(&folder::inside(folder, "cases", "yaml")?, &files);
        }
        Err(errors) => report.refusals("policy", Err(errors)),
    }
    match arguments.format {
        Format::Json => output::json(&report),
        Format::Text => report.print(),
    }
    Ok(if report.problems.is_empty() {
        ExitStatus::Done
    } else {
        ExitStatus::BadConfig
    })
}

fn catalog(path: &Path) -> Result<Vec<CapabilityId>, ExitStatus> {
    let text = folder::text(path)?;
    let ids: Result<Vec<_>, String> = match serde_json::from_str(&text) {
        Ok(CatalogFile::Ids(ids)) => ids.iter().map(|id| parsed(id)).collect(),
        Ok(CatalogFile::Listing { tools }) => tools.iter().map(|tool| parsed(&tool.capability)).collect(),
        // What the text as a whole is not says more than which of its forms it has not.
        Err(shape) => Err(serde_json::from_str::<IgnoredAny>(&text)
            .err()
            .unwrap_or(shape)
            .to_string()),
    };
    ids.map_err(|why| {
        output::error(&format!(
            "`{}` is no catalog: {why}; give what `portcullis tools --format json` prints, or a JSON list of ids",
            path.display()
        ));
        ExitStatus::BadConfig
    })
}

fn parsed(id: &str) -> Result<CapabilityId, String> {
    id.parse().map_err(|error: ParseError| error.to_string())
}

impl Report {
    fn add(&mut self, file: &str, line: usize, kind: &'static str, message: String) {
        self.problems.push(Problem {
            file: file.to_owned(),
            line,
            kind,
            message,
        });
    }

    fn refusals(&mut self, kind: &'static str, checked: Result<(), PolicyErrors>) {
        for error in checked.err().into_iter().flat_map(|errors| errors.0) {
            let help = error.problem.help().map(|help| format!("\n  help: {help}"));
            let message = format!("{}{}", error.problem, help.unwrap_or_default());
            self.add(&error.file, error.line, kind, message);
        }
    }

    fn findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            let (name, help) = finding.lint.describe();
            let message = format!("{}\n  help: {help}", finding.message);
            self.add(&finding.file, finding.line, name, message);
        }
    }

    /// What is committed of the rules' meaning must be what they mean.
    fn compiled(&mut self, folder: &Path, files: &[PolicyFile]) -> Result<(), ExitStatus> {
        let found = folder::inside(folder, COMPILED_FOLDER, "cedar")?;
        let mut found: BTreeMap<_, _> = found.into_iter().map(|file| (file.name, file.text)).collect();
        for (name, text) in write::compiled(files)? {
            let told = match found.remove(&name) {
                Some(committed) if committed == text => continue,
                Some(_) => "this is not what the rules compile to",
                None => "what the rules compile to is not committed",
            };
            let message = format!(
                "{told}\n  help: run `portcullis policy rules {}`",
                folder.display()
            );
            self.add(&name, 1, "compiled", message);
        }
        for name in found.into_keys() {
            self.add(
                &name,
                1,
                "compiled",
                "there are no rules of this name\n  help: remove it".to_owned(),
            );
        }
        Ok(())
    }

    fn cases(&mut self, tables: &[PolicyFile], files: &[PolicyFile]) {
        let cases = run_cases(tables, files);
        self.decisions = cases.decisions;
        for failure in &cases.failures {
            self.add(&failure.file, failure.line, "case", failure.message.clone());
        }
        // That the policies load was seen above.
        let Ok(coverage) = Coverage::of(files, &cases) else {
            return;
        };
        self.exercised = coverage.exercised.len();
        self.untested_by_intent = coverage.marked.len();
        for policy in &coverage.untested {
            let message = format!(
                "no case in `cases` exercises `{}`\n  help: add one, or mark it: `@untested(\"why\")`, behind a rule `# untested: why`",
                policy.id
            );
            self.add(&policy.file, policy.line, "untested", message);
        }
        for policy in &coverage.marked_in_vain {
            let message = format!(
                "`{}` is marked as untested, and a case exercises it\n  help: remove the mark",
                policy.id
            );
            self.add(&policy.file, policy.line, "untested", message);
        }
    }

    fn print(&self) {
        for Problem {
            file,
            line,
            kind,
            message,
        } in &self.problems
        {
            output::line(&output::safe(&format!("{file}:{line}: [{kind}] {message}")));
        }
        output::line(&format!(
            "{} decisions compared, {} policies exercised, {} untested by intent, {} problems",
            self.decisions,
            self.exercised,
            self.untested_by_intent,
            self.problems.len()
        ));
    }
}
