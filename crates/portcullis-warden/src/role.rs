//! Which part this process plays: the host, or the warden that a host has executed.

use std::{path::PathBuf, sync::OnceLock};

/// The program that acts as the warden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The program that runs now; its `main` has called [`init`].
    Itself,
    /// A program whose `main` calls [`init`], such as `portcullis-warden` or `portcullis`. An absolute path.
    Path(PathBuf),
}

/// What the host said in `main`.
static PROGRAM: OnceLock<Program> = OnceLock::new();

/// The first thing in `main`, before any thread is started. Where this process was executed as a warden, it is one
/// from here on, and this function never returns; in a host it only notes that the program can be executed so.
///
/// ```
/// portcullis_warden::init();
/// # #[cfg(target_os = "linux")]
/// assert_eq!(portcullis_warden::program(), Some(&portcullis_warden::Program::Itself));
/// ```
pub fn init() {
    #[cfg(target_os = "linux")]
    {
        crate::inside::become_warden_if_asked();
        let _ = PROGRAM.set(Program::Itself);
    }
}

/// In place of [`init`], where another program is to be the warden: `program` is its absolute path. Whatever was said
/// first stands.
///
/// ```
/// portcullis_warden::init_with("/usr/libexec/portcullis-warden");
/// ```
pub fn init_with(program: impl Into<PathBuf>) {
    // Elsewhere there is no warden, whatever its path.
    if cfg!(target_os = "linux") {
        let _ = PROGRAM.set(Program::Path(program.into()));
    }
}

/// What [`init`] or [`init_with`] said; none where neither was called, or where the system allows no warden.
#[must_use]
pub fn program() -> Option<&'static Program> {
    PROGRAM.get()
}
