//! What a hub is made of, as it was given or is by default.

use std::{path::PathBuf, sync::Arc};

use portcullis_blobs::{BlobError, BlobStore, FsOptions, FsStore, MemStore};
use portcullis_config::{Environment, SecretString, Sources};
use portcullis_policy::{DecisionPoint, PolicyFile, Preset};
use portcullis_router::PolicyFolder;
use portcullis_state::State;

use crate::HubError;

/// Where the policies come from.
#[derive(Default)]
pub(super) enum Policies {
    /// What the documents name, else none: all is denied.
    #[default]
    Documents,
    Folder(PathBuf),
    Files(Vec<PolicyFile>),
    Preset(Preset),
}

impl Policies {
    /// Loads them, from the folder that the documents name where nothing else is said.
    pub(super) fn load(
        self,
        named: Option<PathBuf>,
        sealed: bool,
        watched: bool,
    ) -> Result<(DecisionPoint, Option<PolicyFolder>), HubError> {
        Ok(match (self, named) {
            (Self::Folder(folder), _) | (Self::Documents, Some(folder)) => {
                let folder = PolicyFolder::new(folder).sealed(sealed).watched(watched);
                (folder.load()?, Some(folder))
            }
            (Self::Files(files), _) => (DecisionPoint::load(&files)?, None),
            (Self::Preset(preset), _) => (DecisionPoint::preset(preset)?, None),
            (Self::Documents, None) => (DecisionPoint::deny_all(), None),
        })
    }
}

/// Where results are stored.
#[derive(Default)]
pub(super) enum Store {
    #[default]
    Memory,
    Folder(PathBuf),
    Given(Arc<dyn BlobStore>),
}

impl Store {
    pub(super) fn open(self, options: FsOptions) -> Result<Arc<dyn BlobStore>, BlobError> {
        Ok(match self {
            Self::Memory => Arc::new(MemStore::new(options.limits)),
            Self::Folder(folder) => Arc::new(FsStore::open(&folder, options)?),
            Self::Given(store) => store,
        })
    }
}

/// Where it is kept which tools were trusted.
#[derive(Default)]
pub(super) enum Kept {
    #[default]
    Memory,
    Folder(PathBuf),
    Given(Arc<State>),
}

/// The environment as the supervisor wants it.
pub(super) struct SharedEnvironment(pub(super) Arc<dyn Environment + Send + Sync>);

impl Sources for SharedEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.variable(name)
    }

    fn file(&self, path: &str) -> Option<String> {
        self.0.file(path)
    }

    fn keyring(&self, service: &str, account: &str) -> Option<SecretString> {
        self.0.keyring(service, account)
    }

    fn has_keyring(&self) -> bool {
        self.0.has_keyring()
    }
}
