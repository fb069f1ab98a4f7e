use std::path::PathBuf;

use portcullis_blobs::BlobError;
use portcullis_config::Diagnostic;
use portcullis_policy::PolicyErrors;
use portcullis_router::{PolicyFolderError, RouterError};
use portcullis_state::StateError;
use thiserror::Error;

/// Why a hub could not be started or stopped.
#[derive(Debug, Error)]
pub enum HubError {
    /// A file that was named cannot be read.
    #[error("cannot read `{}`: {source}", .path.display())]
    Read {
        /// Which file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A folder of policies has none.
    #[error("there is no policy in `{}`: it holds no file that ends in `.cedar` or `.rules`", .0.display())]
    NoPolicies(PathBuf),
    /// No server of the documents can be used.
    #[error("no server can be used{}", why_none(.0))]
    NoServers(Vec<Diagnostic>),
    /// A document that states limits for the whole hub, or may, cannot be read, and the host gives none in code.
    #[error(
        "what a document states, or may state, under `results` or `blobs` cannot be read, and those limits hold for all \
         servers, so none is started: mend the document, or leave it out{}", listed(.0)
    )]
    LimitsUnread(Vec<Diagnostic>),
    /// Which profiles agents belong to cannot be read, or is not used beside a document that cannot be or says otherwise,
    /// and the host does not say it in code.
    #[error(
        "what a document states, or may state, under `agents` is not used, and without it no agent is held to what the \
         policies forbid its profile, so no server is started: mend what cannot be read, and give `agents` in one \
         document only{}", listed(.0)
    )]
    AgentsUnread(Vec<Diagnostic>),
    /// The tier cannot be read, or is not used behind a document that cannot be, and the host does not say it in code.
    #[error(
        "what a document states, or may state, as `tier` is not used, and without it calls that the policies forbid in \
         that tier may be allowed, so no server is started: mend what cannot be read, or give the tier where the hub is \
         started (`--tier`){}", listed(.0)
    )]
    TierUnread(Vec<Diagnostic>),
    /// The policies cannot be loaded; nothing of them is in force.
    #[error("the policies cannot be used:\n{0}")]
    Policies(#[from] PolicyErrors),
    /// The blob store cannot be opened.
    #[error("the blob store cannot be opened: {0}")]
    Blobs(#[from] BlobError),
    /// What outlives a run cannot be opened.
    #[error(transparent)]
    State(#[from] StateError),
    /// The router's say.
    #[error(transparent)]
    Router(#[from] RouterError),
}

impl From<PolicyFolderError> for HubError {
    fn from(error: PolicyFolderError) -> Self {
        match error {
            PolicyFolderError::Read { path, source } => Self::Read { path, source },
            PolicyFolderError::Empty(folder) => Self::NoPolicies(folder),
            PolicyFolderError::Policies(errors) => Self::Policies(errors),
        }
    }
}

fn why_none(diagnostics: &[Diagnostic]) -> String {
    match diagnostics {
        [] => {
            ": the documents have none; write one under `servers`, or name the file that has them".to_owned()
        }
        found => listed(found),
    }
}

fn listed(diagnostics: &[Diagnostic]) -> String {
    diagnostics
        .iter()
        .map(|diagnostic| format!("\n{diagnostic}"))
        .collect()
}
