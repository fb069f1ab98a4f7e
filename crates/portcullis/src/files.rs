use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use portcullis_config::Document;
use portcullis_policy::{DecisionPoint, PolicyErrors, PolicyFile, Seal};

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

/// Reads the `*.cedar` and `*.rules` files of a folder, in order of name. Each is named as it is called in the folder,
/// so that a policy is told by the same name wherever the folder lies.
///
/// # Errors
/// [`HubError::Read`] for what cannot be read, [`HubError::NoPolicies`] where there is none.
pub fn read_policies(folder: &Path) -> Result<Vec<PolicyFile>, HubError> {
    let files = read_texts(folder, &["cedar", "rules"])?;
    if files.is_empty() {
        Err(HubError::NoPolicies(folder.to_owned()))
    } else {
        Ok(files)
    }
}

/// Reads the files of a folder that end in one of `endings`, in order of name, each under its name in the folder. A
/// link counts as what it leads to; what is hidden is left out, as editors and version control keep their own there.
///
/// # Errors
/// [`HubError::Read`] for the first that cannot be read, is no plain file, is over 4 MiB, or whose name or text is
/// not UTF-8.
pub fn read_texts(folder: &Path, endings: &[&str]) -> Result<Vec<PolicyFile>, HubError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| HubError::Read { path, source }
    };
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if !ending.is_some_and(|ending| endings.contains(&ending)) {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(&path)(invalid("its name is not UTF-8".to_owned())))?;
        if name.starts_with('.') {
            continue;
        }
        if name.contains(char::is_control) {
            return Err(failed(&path)(invalid(
                "its name holds a control character".to_owned(),
            )));
        }
        let bytes = read_plain(&path)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let error = error.utf8_error();
            failed(&path)(invalid(format!("its text is not UTF-8: {error}")))
        })?;
        files.push(PolicyFile {
            name: name.to_owned(),
            text,
        });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// Reads the seal of a folder of policies, if it has one.
///
/// # Errors
/// [`HubError::Read`] where it cannot be read, and [`HubError::Policies`] where it is no seal.
pub fn read_seal(folder: &Path) -> Result<Option<Seal>, HubError> {
    match read_plain(&folder.join(Seal::FILE_NAME)) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).parse()?)),
        Err(HubError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same, held to the folder's seal: where there is one, the files must be those that were sealed; with `sealed`
/// there must be one.
fn read_reviewed_policies(folder: &Path, sealed: bool) -> Result<Vec<PolicyFile>, HubError> {
    let files = read_policies(folder)?;
    match read_seal(folder)? {
        Some(seal) => seal.check(&files)?,
        None if sealed => return Err(Seal::missing().into()),
        None => {}
    }
    Ok(files)
}

/// Loads the policies of a folder, held to its seal. What is wrong is told with the folder in front, so that the file
/// can be opened from where one is.
pub(crate) fn load_reviewed_policies(folder: &Path, sealed: bool) -> Result<DecisionPoint, HubError> {
    let loaded = read_reviewed_policies(folder, sealed)
        .and_then(|files| DecisionPoint::load(&files).map_err(HubError::Policies));
    loaded.map_err(|error| match error {
        HubError::Policies(PolicyErrors(mut errors)) => {
            for error in &mut errors {
                error.file = folder.join(&error.file).display().to_string();
            }
            HubError::Policies(PolicyErrors(errors))
        }
        other => other,
    })
}

/// As [`read`], for what is found in a folder: a pipe there that nobody writes to would be waited for without end.
fn read_plain(path: &Path) -> Result<Vec<u8>, HubError> {
    let failed = |source| HubError::Read {
        path: path.to_owned(),
        source,
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file");
        return Err(failed(source));
    }
    read(path)
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
    use std::os::unix::{ffi::OsStrExt, fs::symlink};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
    fn write(path: &Path, text: &[u8]) {
        fs::write(path, text).unwrap();
    }

    #[test]
    fn files_are_named_as_they_are_called_in_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(&at("b.rules"), b"deny mcp.b.*");
        write(&at("elsewhere.txt"), b"// a");
        symlink(at("elsewhere.txt"), at("a.cedar")).unwrap();
        write(&at(".hidden.rules"), b"allow mcp.*");
        symlink(at("nowhere"), at(".#b.rules")).unwrap();
        let files = read_policies(folder.path()).unwrap();
        let found: Vec<_> = files
            .iter()
            .map(|file| (file.name.as_str(), file.text.as_str()))
            .collect();
        assert_eq!(found, [("a.cedar", "// a"), ("b.rules", "deny mcp.b.*")]);
    }

    /// Lays out one file by `make` and reads the folder.
    fn refused(make: impl FnOnce(&Path)) -> String {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("good.rules"), b"default ask");
        make(folder.path());
        read_policies(folder.path()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_plain_text_is_refused_with_its_name() {
        let told = refused(|folder| write(&folder.join("x.rules"), b"allow mcp.\xff"));
        assert!(told.contains("x.rules`: its text is not UTF-8"), "{told}");
        let told = refused(|folder| write(&folder.join(std::ffi::OsStr::from_bytes(b"x\xff.rules")), b""));
        assert!(told.contains("its name is not UTF-8"), "{told}");
        let told = refused(|folder| write(&folder.join("x\n.rules"), b""));
        assert!(told.contains("its name holds a control character"), "{told}");
        let told = refused(|folder| write(&folder.join("x.cedar"), &vec![b' '; 4 * 1024 * 1024 + 1]));
        assert!(told.contains("x.cedar`: it is over 4 MiB"), "{told}");
        let told = refused(|folder| symlink(folder.join("nowhere"), folder.join("x.rules")).unwrap());
        assert!(told.contains("x.rules`: No such file"), "{told}");
        let told = refused(|folder| symlink("/dev/zero", folder.join("x.rules")).unwrap());
        assert!(told.contains("x.rules`: it is no plain file"), "{told}");
        let told = refused(|folder| symlink(folder, folder.join("x.rules")).unwrap());
        assert!(told.contains("x.rules`: it is no plain file"), "{told}");
    }

    #[test]
    fn a_folder_is_held_to_its_seal() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| write(&folder.path().join(name), text.as_bytes());
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
