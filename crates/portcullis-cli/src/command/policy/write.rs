//! Files that a person asked to have written, beside the policies that they keep under version control.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use portcullis::{
    PolicyFile,
    policy::{COMPILED_FOLDER, DecisionPoint, PolicyErrors, Seal, compiled_text, format_policies},
};

use super::folder;
use crate::{ExitStatus, output};

/// What a file should hold, by its path inside the folder.
type Wanted = (String, String);

pub(super) fn format(folder: &Path, check: bool) -> Result<ExitStatus, ExitStatus> {
    let files = folder::policies(folder)?;
    let wanted = each(&files, |file| Ok((file.name.clone(), format_policies(file)?)))?;
    settle(folder, &wanted, check)
}

pub(super) fn compile(folder: &Path, check: bool) -> Result<ExitStatus, ExitStatus> {
    let mut files = folder::policies(folder)?;
    files.retain(|file| file.name.ends_with(".rules"));
    let wanted = compiled(&files)?;
    if !wanted.is_empty() && !check {
        make_folder(&folder.join(COMPILED_FOLDER))
            .map_err(|error| unwritable(&folder.join(COMPILED_FOLDER), &error))?;
    }
    settle(folder, &wanted, check)
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

pub(super) fn seal(folder: &Path) -> Result<ExitStatus, ExitStatus> {
    let files = folder::policies(folder)?;
    // What does not load is not worth a seal.
    DecisionPoint::load(&files).map_err(|errors| refused(&errors))?;
    let text = Seal::of(&files).to_string();
    settle(folder, &[(Seal::FILE_NAME.to_owned(), text)], false)
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
fn settle(folder: &Path, wanted: &[Wanted], check: bool) -> Result<ExitStatus, ExitStatus> {
    let mut status = ExitStatus::Done;
    for (name, text) in wanted {
        let path = folder.join(name);
        if fs::read_to_string(&path).is_ok_and(|found| found == *text) {
            continue;
        }
        if check {
            output::line(&format!("{name}: would be written anew"));
            status = ExitStatus::BadConfig;
        } else {
            write(&path, text).map_err(|error| unwritable(&path, &error))?;
            output::line(&format!("{name}: written"));
        }
    }
    Ok(status)
}

fn unwritable(path: &Path, error: &io::Error) -> ExitStatus {
    output::error(&format!("`{}` cannot be written: {error}", path.display()));
    ExitStatus::Failed
}

/// Whole or not at all: a policy file that is cut between two policies would still load.
fn write(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().unwrap_or(Path::new("."));
    let permissions =
        fs::metadata(path).map_or_else(|_| fs::Permissions::from_mode(0o644), |found| found.permissions());
    let mut file = tempfile::Builder::new()
        .permissions(permissions)
        .tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a folder in the person's own repository, which the state is not to know"
    )]
    fs::create_dir_all(path)
}
