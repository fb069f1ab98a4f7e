use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use portcullis_config::Document;
use portcullis_policy::PolicyFile;
use portcullis_router::PolicyFolder;

use crate::HubError;

/// The largest configuration file that is read, in bytes. What is larger is none.
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
    Ok(PolicyFolder::new(folder).files()?)
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
