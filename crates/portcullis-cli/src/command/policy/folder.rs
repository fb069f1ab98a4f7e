//! A folder of policies as it lies on disk.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use portcullis::{
    HubError, PolicyFile,
    policy::{COMPILED_FOLDER, Seal},
    read_policies, read_seal, read_texts,
};

use crate::{ExitStatus, output};

/// The policies of a folder, under the names that their files have in it.
pub(super) fn policies(folder: &Path) -> Result<Vec<PolicyFile>, ExitStatus> {
    read_policies(folder).map_err(|error| failed(&error))
}

/// The seal of a folder, if there is one.
pub(super) fn seal(folder: &Path) -> Result<Option<Seal>, ExitStatus> {
    read_seal(folder).map_err(|error| failed(&error))
}

/// The files of a folder inside the folder, by name; none where there is no such folder.
pub(super) fn inside(folder: &Path, name: &str, ending: &str) -> Result<Vec<PolicyFile>, ExitStatus> {
    let mut files = match read_texts(&folder.join(name), &[ending]) {
        Ok(files) => files,
        Err(HubError::Read { path, source })
            if source.kind() == io::ErrorKind::NotFound && path == folder.join(name) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(&error)),
    };
    for file in &mut files {
        file.name = format!("{name}/{}", file.name);
    }
    Ok(files)
}

/// What lies in a folder of policies as if it were to be read, and is not: a policy that forbids, in a file whose name is
/// nearly right, forbids nothing. By its name from the folder, with what would be read.
pub(super) fn not_read(folder: &Path) -> Vec<(String, &'static str)> {
    const POLICY: &str = "a policy's file ends in `.rules` or `.cedar`, and lies in the folder itself";
    const TABLE: &str = "a table's file ends in `.yaml`, and lies in the folder `cases` itself";
    let policies = others(folder, "", &["rules", "cedar"]).into_iter();
    let policies = policies.filter(|(name, path)| {
        let is_known = ["cases", COMPILED_FOLDER].contains(&name.as_str());
        !is_known && is_nearly(&["rules", "rule", "cedar"], name, path)
    });
    let tables = others(&folder.join("cases"), "cases/", &["yaml"]).into_iter();
    let tables = tables.filter(|(name, path)| is_nearly(&["yaml", "yml"], name, path));
    let policies = policies.map(|(name, _)| (name, POLICY));
    policies.chain(tables.map(|(name, _)| (name, TABLE))).collect()
}

/// Whether one of `endings` stands in a name, in whatever case, or in one of what lies in a folder.
fn is_nearly(endings: &[&str], name: &str, path: &Path) -> bool {
    let has_one = |name: &str| {
        let mut parts = name.split('.').skip(1);
        parts.any(|part| endings.contains(&part.to_ascii_lowercase().as_str()))
    };
    has_one(name) || path.is_dir() && others(path, "", &[]).iter().any(|(name, _)| has_one(name))
}

/// What lies in a folder and has none of `endings`, in order of name, without what is hidden. What cannot be listed is told
/// where it is read.
fn others(folder: &Path, prefix: &str, endings: &[&str]) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut others: Vec<_> = entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(name, path)| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            !name.starts_with('.') && !ending.is_some_and(|ending| endings.contains(&ending))
        })
        .map(|(name, path)| (format!("{prefix}{name}"), path))
        .collect();
    others.sort();
    others
}

fn failed(error: &HubError) -> ExitStatus {
    output::error(&error.to_string());
    ExitStatus::from(error)
}

/// The most that is read of one file beside the policies, in bytes: the catalog of some thousand tools is a tenth of it.
const MOST_BYTES: u64 = 64 << 20;

/// The text of a file that was named, whatever it is: a device has no end.
pub(super) fn text(path: &Path) -> Result<String, ExitStatus> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
    let why = match read {
        Ok(bytes) if bytes as u64 > MOST_BYTES => format!("it is over {} MiB", MOST_BYTES >> 20),
        Ok(_) => return Ok(text),
        Err(error) => error.to_string(),
    };
    output::error(&format!("`{}` cannot be read: {why}", path.display()));
    Err(ExitStatus::BadConfig)
}
