//! The only place that writes files: lines appended to those that a script names.

use std::{fs::File, io::Write, path::Path};

use crate::Error;

/// Appends a line in one write and waits until the disk has it, so that it outlives a crash right after.
pub(crate) fn append_line(path: &Path, line: &str) -> Result<(), Error> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a scripted server leaves traces for the test that runs it"
    )]
    let options = File::options().create(true).append(true).clone();
    let append = || {
        let mut file = options.open(path)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    };
    append().map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}
