//! A folder of policies as it lies on disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use portcullis::{
    PolicyFile,
    policy::{PolicyErrors, Seal},
    read_policies,
};

use crate::{ExitStatus, output};

/// The policies of a folder, under the names that their files have in it.
pub(super) fn policies(folder: &Path) -> Result<Vec<PolicyFile>, ExitStatus> {
    let files = read_policies(folder).map_err(|error| {
        output::error(&error.to_string());
        ExitStatus::from(&error)
    })?;
    let named = files.into_iter().map(|file| PolicyFile {
        name: file.base_name().to_owned(),
        text: file.text,
    });
    Ok(named.collect())
}

/// The seal of a folder, if there is one.
pub(super) fn seal(folder: &Path) -> Result<Option<Seal>, ExitStatus> {
    let path = folder.join(Seal::FILE_NAME);
    match fs::read_to_string(&path) {
        Ok(text) => text.parse().map(Some).map_err(|errors: PolicyErrors| {
            output::error(&errors.to_string());
            ExitStatus::BadConfig
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&path, &error)),
    }
}

/// The files of a folder inside the folder, by name; none where there is no such folder.
pub(super) fn inside(folder: &Path, name: &str, ending: &str) -> Result<Vec<PolicyFile>, ExitStatus> {
    let inner = folder.join(name);
    let entries = match fs::read_dir(&inner) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(&inner, &error)),
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| unreadable(&inner, &error))?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|found| found == ending));
    paths.sort();
    let read = paths.into_iter().map(|path| {
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        let base = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(PolicyFile {
            name: format!("{name}/{base}"),
            text,
        })
    });
    read.collect()
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> ExitStatus {
    output::error(&format!("`{}` cannot be read: {error}", path.display()));
    ExitStatus::BadConfig
}
