//! The folder and the file, before the database opens them: nobody else may have a hand in either.

use std::{
    fs::{DirBuilder, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::StateError;

/// Makes `folder` and the file `name` in it, where they are not there, and looks at both. Gives the file's path with
/// all links of the folders above resolved: those are the user's own affair, and the database follows none.
pub(super) fn prepare(folder: &Path, name: &str) -> Result<PathBuf, StateError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StateError::Open { path, source }
    };
    if folder.symlink_metadata().is_err() {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(failed(folder))?;
    }
    let found = folder.symlink_metadata().map_err(failed(folder))?;
    if !found.is_dir() {
        return Err(insecure(
            folder,
            "it is no folder, or a link: name the folder itself",
        ));
    }
    check_owner(folder, &found)?;
    if found.mode() & 0o022 != 0 {
        return Err(insecure(
            folder,
            "others may write to the folder: take that from them (`chmod 700`)",
        ));
    }
    let path = folder.canonicalize().map_err(failed(folder))?.join(name);
    let file = open(&path).map_err(|source| match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => insecure(
            &path,
            "the file is a link: put what it leads to in its place, or move it away",
        ),
        _ => failed(&path)(source),
    })?;
    let found = file.metadata().map_err(failed(&path))?;
    if !found.is_file() {
        return Err(insecure(&path, "it is no file: move it away"));
    }
    check_owner(&path, &found)?;
    if found.nlink() > 1 {
        return Err(insecure(&path, "the file has a second name: remove the other"));
    }
    if found.mode() & 0o077 != 0 {
        let mut narrowed = found.permissions();
        narrowed.set_mode(0o600);
        file.set_permissions(narrowed).map_err(failed(&path))?;
    }
    Ok(path)
}

/// The file, made where it is not there; never what a link leads to. A pipe that has its name does not hold us up.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    #[expect(clippy::disallowed_methods, reason = "this is the door for files")]
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed());
    options.open(path)
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), StateError> {
    if found.uid() == rustix::process::geteuid().as_raw() {
        Ok(())
    } else {
        Err(insecure(
            path,
            "it belongs to another user: choose a folder of your own",
        ))
    }
}

fn insecure(path: &Path, why: &'static str) -> StateError {
    StateError::Insecure {
        path: path.to_owned(),
        why,
    }
}
