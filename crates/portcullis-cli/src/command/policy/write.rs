//! Files that a person asked to have written, beside the policies that they keep under version control.

use std::{fs, path::Path};

use portcullis::{
    PolicyFile,
    policy::{COMPILED_FOLDER, DecisionPoint, PolicyErrors, Seal, compiled_text, format_policies},
};
use portcullis_state::{Privacy, StateError, create_folder, replace};
use serde::Serialize;

use super::{WriteArguments, folder};
use crate::{ExitStatus, arguments::Format, output};

/// What a file should hold, by its path inside the folder.
type Wanted = (String, String);

/// What became of a file.
#[derive(Serialize)]
struct Settled<'a> {
    file: &'a str,
    state: &'static str,
}

pub(super) fn format(arguments: &WriteArguments) -> Result<ExitStatus, ExitStatus> {
    let files = folder::policies(&arguments.folder)?;
    let wanted = each(&files, |file| Ok((file.name.clone(), format_policies(file)?)))?;
    settle(&arguments.folder, &wanted, arguments.check, arguments.format)
}

pub(super) fn compile(arguments: &WriteArguments) -> Result<ExitStatus, ExitStatus> {
    let files = folder::policies(&arguments.folder)?;
    let wanted = compiled(&files)?;
    if !wanted.is_empty() && !arguments.check {
        create_folder(&arguments.folder.join(COMPILED_FOLDER), Privacy::Shared).map_err(unwritable)?;
    }
    settle(&arguments.folder, &wanted, arguments.check, arguments.format)
}

/// What the files of rules compile to, and where it is committed.
pub(super) fn compiled(files: &[PolicyFile]) -> Result<Vec<Wanted>, ExitStatus> {
    let rules: Vec<_> = files
        .iter()
        .filter(|file| file.name.ends_with(".rules"))
        .cloned()
        .collect();
    each(&rules, |file| {
        Ok((
            format!("{COMPILED_FOLDER}/{}.cedar", file.name),
            compiled_text(file)?,
        ))
    })
}

pub(super) fn seal(folder: &Path, format: Format) -> Result<ExitStatus, ExitStatus> {
    let files = folder::policies(folder)?;
    // What does not load is not worth a seal.
    DecisionPoint::load(&files).map_err(|errors| refused(&errors))?;
    let seal = Seal::of(&files).map_err(|errors| refused(&errors))?;
    settle(
        folder,
        &[(Seal::FILE_NAME.to_owned(), seal.to_string())],
        false,
        format,
    )
}

fn each(
    files: &[PolicyFile],
    make: impl Fn(&PolicyFile) -> Result<Wanted, PolicyErrors>,
) -> Result<Vec<Wanted>, ExitStatus> {
    files
        .iter()
        .map(|file| make(file).map_err(|errors| refused(&errors)))
        .collect()
}

pub(super) fn refused(errors: &PolicyErrors) -> ExitStatus {
    output::error(&errors.to_string());
    ExitStatus::BadConfig
}

/// Writes what differs; with `check`, tells it and fails.
fn settle(folder: &Path, wanted: &[Wanted], check: bool, format: Format) -> Result<ExitStatus, ExitStatus> {
    let mut settled = Vec::new();
    let outcome = write(folder, wanted, check, &mut settled, replace);
    // Also of a run that failed: what was written by then may be in force already.
    match format {
        Format::Json => output::json(&serde_json::json!({ "files": settled })),
        Format::Text => {
            let told = settled.iter().filter(|settled| settled.state != "unchanged");
            told.for_each(|Settled { file, state }| output::line(&output::safe(&format!("{file}: {state}"))));
        }
    }
    outcome.map_err(unwritable)?;
    let done = !check || settled.iter().all(|settled| settled.state == "unchanged");
    Ok(if done {
        ExitStatus::Done
    } else {
        ExitStatus::BadConfig
    })
}

/// Writes into `folder` with `replace`, unless it is to `check`, and tells of each file what it came to.
fn write<'a>(
    folder: &Path,
    wanted: &'a [Wanted],
    check: bool,
    settled: &mut Vec<Settled<'a>>,
    replace: impl Fn(&Path, &[u8], Privacy) -> Result<(), StateError>,
) -> Result<(), StateError> {
    for (file, text) in wanted {
        let path = folder.join(file);
        let (state, outcome) = match (holds(&path, text), check) {
            (true, _) => ("unchanged", Ok(())),
            (false, true) => ("would be written anew", Ok(())),
            // Whole or not at all: a policy file that is cut between two policies would still load.
            (false, false) => ("written", replace(&path, text.as_bytes(), Privacy::Shared)),
        };
        // What cannot be made sure to last is there all the same.
        if matches!(outcome, Ok(()) | Err(StateError::Unsynced { .. })) {
            settled.push(Settled { file, state });
        }
        outcome?;
    }
    Ok(())
}

/// Whether a file holds this text. What is no plain file is not read: a pipe would be waited for without end.
fn holds(path: &Path, text: &str) -> bool {
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    is_file && fs::read_to_string(path).is_ok_and(|found| found == *text)
}

fn unwritable(error: StateError) -> ExitStatus {
    output::error(&output::chain(&error));
    ExitStatus::Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_is_told_though_it_or_a_later_one_failed() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = ["a", "b", "c"].map(|file| (file.to_owned(), format!("text of {file}")));
        for (fails_at_b, expected) in [(false, &["a", "b"] as &[_]), (true, &["a"])] {
            let mut settled = Vec::new();
            write(
                folder.path(),
                &wanted,
                false,
                &mut settled,
                |path, content, privacy| {
                    let (owned, source) = (path.to_owned(), std::io::ErrorKind::Other.into());
                    match path.ends_with("b") {
                        true if fails_at_b => Err(StateError::Write { path: owned, source }),
                        true => replace(path, content, privacy)
                            .and(Err(StateError::Unsynced { path: owned, source })),
                        false => replace(path, content, privacy),
                    }
                },
            )
            .unwrap_err();
            let told: Vec<_> = settled
                .iter()
                .map(|settled| (settled.file, settled.state))
                .collect();
            let expected: Vec<_> = expected.iter().map(|file| (*file, "written")).collect();
            assert_eq!(told, expected);
            expected
                .iter()
                .for_each(|(file, _)| remove(&folder.path().join(file)));
        }
    }

    fn remove(path: &Path) {
        #[expect(clippy::disallowed_methods, reason = "a test begins anew")]
        fs::remove_file(path).unwrap();
    }
}
