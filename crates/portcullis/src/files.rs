use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use portcullis_config::Document;
use portcullis_policy::{PolicyFile, Seal};

use crate::HubError;

/// The largest configuration or policy file that is read, in bytes. What is larger is none.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Reads configuration documents from their files.
///
/// # Errors
/// [`HubError::Read`] for the first file that cannot be read, or is over 4 MiB.
pub fn read_documents(paths: &[PathBuf]) -> Result<Vec<Document>, HubError> {
    paths
        .iter()
        .map(|path| Ok(Document::new(path.display().to_string(), read(path)?)))
        .collect()
}

/// Reads the `*.cedar` and `*.rules` files of a folder, by name.
///
/// # Errors
/// [`HubError::Read`] for what cannot be read, [`HubError::NoPolicies`] where there is none.
pub fn read_policies(folder: &Path) -> Result<Vec<PolicyFile>, HubError> {
    let failed = |source| HubError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if !matches!(ending, Some("cedar" | "rules")) {
            continue;
        }
        let text = String::from_utf8(read(&path)?).map_err(|error| HubError::Read {
            path: path.clone(),
            source: io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()),
        })?;
        files.push(PolicyFile {
            name: path.display().to_string(),
            text,
        });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    if files.is_empty() {
        Err(HubError::NoPolicies(folder.to_owned()))
    } else {
        Ok(files)
    }
}

/// The same, held to the folder's seal: where there is one, the files must be those that were sealed; with `sealed`
/// there must be one.
pub(crate) fn read_reviewed_policies(folder: &Path, sealed: bool) -> Result<Vec<PolicyFile>, HubError> {
    let files = read_policies(folder)?;
    let path = folder.join(Seal::FILE_NAME);
    match read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).parse::<Seal>()?.check(&files)?,
        Err(HubError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            if sealed {
                return Err(Seal::missing().into());
            }
        }
        Err(error) => return Err(error),
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, HubError> {
    let failed = |source| HubError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    fs::File::open(path)
        .map_err(failed)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is over 4 MiB",
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_to_its_seal() {
        let folder = tempfile::tempdir().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("team.rules", "deny mcp.shell.*\n");
        assert_eq!(read_reviewed_policies(folder.path(), false).unwrap().len(), 1);
        let told = read_reviewed_policies(folder.path(), true)
            .unwrap_err()
            .to_string();
        assert!(told.contains("not sealed"), "{told}");
        write(
            Seal::FILE_NAME,
            &Seal::of(&read_policies(folder.path()).unwrap()).to_string(),
        );
        assert_eq!(read_reviewed_policies(folder.path(), true).unwrap().len(), 1);
        write("team.rules", "# deny mcp.shell.*\n");
        for sealed in [true, false] {
            let told = read_reviewed_policies(folder.path(), sealed)
                .unwrap_err()
                .to_string();
            assert!(
                told.contains("team.rules:1: this file is not the one that was sealed"),
                "{told}"
            );
        }
    }
}
