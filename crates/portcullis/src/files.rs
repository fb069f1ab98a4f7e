use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use portcullis_config::Document;
use portcullis_policy::{PolicyFile, Seal};
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

/// Reads the `*.cedar` and `*.rules` files of a folder, in order of name. Each is named as it is called in the folder,
/// so that a policy is told by the same name wherever the folder lies.
///
/// # Errors
/// [`HubError::Read`] for what cannot be read, [`HubError::NoPolicies`] where there is none.
pub fn read_policies(folder: &Path) -> Result<Vec<PolicyFile>, HubError> {
    Ok(PolicyFolder::new(folder).files()?)
}

/// Reads the files of a folder that end in one of `endings`, in order of name, each under its name in the folder. A
/// link counts as what it leads to; what is hidden is left out.
///
/// # Errors
/// [`HubError::Read`] for the first that cannot be read, is no plain file, is over 4 MiB, or whose name or text is
/// not UTF-8; and for a folder of over 10,000 files or 64 MiB.
pub fn read_texts(folder: &Path, endings: &[&str]) -> Result<Vec<PolicyFile>, HubError> {
    Ok(portcullis_router::read_texts(folder, endings)?)
}

/// Reads the seal of a folder of policies, if it has one.
///
/// # Errors
/// [`HubError::Read`] where it cannot be read, and [`HubError::Policies`] where it is no seal.
pub fn read_seal(folder: &Path) -> Result<Option<Seal>, HubError> {
    Ok(PolicyFolder::new(folder).seal()?)
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
