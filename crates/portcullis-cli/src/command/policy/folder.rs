//! A folder of policies as it lies on disk.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use portcullis::{HubError, PolicyFile, policy::Seal, read_policies, read_seal, read_texts};

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
