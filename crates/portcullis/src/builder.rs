use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis_blobs::{BlobStore, FsOptions, FsStore, MemStore};
use portcullis_config::{Document, Environment, HostEnvironment, Normalized, Options, ServerSpec, normalize};
use portcullis_egress::EgressRules;
use portcullis_policy::{DecisionPoint, PolicyFile, Preset};
use portcullis_router::{ApprovalHandler, ElicitationHandler, Router, RouterOptions, ShapeOptions};
use portcullis_supervisor::LifecycleOptions;
use portcullis_types::{AgentId, EgressRule, Tier};

use crate::{Hub, HubError, files::load_reviewed_policies};

/// Everything that a [`Hub`] can be told before it starts. Each setting has a default that is safe: no policies
/// deny all, no approval handler approves nothing, no elicitation handler declines all.
#[derive(Default)]
#[must_use = "a builder does nothing until it is started"]
pub struct HubBuilder {
    documents: Vec<Document>,
    options: Options,
    servers: Vec<ServerSpec>,
    policies: Policies,
    sealed: bool,
    store: Store,
    shape: ShapeOptions,
    approval: Option<Arc<dyn ApprovalHandler>>,
    elicitation: Option<Arc<dyn ElicitationHandler>>,
    agent: AgentId,
    tier: Option<Tier>,
    environment: Option<Arc<dyn Environment + Send + Sync>>,
    lifecycle: Option<LifecycleOptions>,
    egress: Option<Vec<EgressRule>>,
}

#[derive(Default)]
enum Policies {
    /// What the documents name, else none: all is denied.
    #[default]
    Documents,
    Folder(PathBuf),
    Files(Vec<PolicyFile>),
    Preset(Preset),
}

#[derive(Default)]
enum Store {
    #[default]
    Memory,
    Folder(PathBuf),
    Given(Arc<dyn BlobStore>),
}

impl HubBuilder {
    /// Adds a document that defines servers, in any dialect that is known.
    pub fn document(mut self, document: Document) -> Self {
        self.documents.push(document);
        self
    }

    /// Adds documents; see [`read_documents`](crate::read_documents).
    pub fn documents(mut self, documents: impl IntoIterator<Item = Document>) -> Self {
        self.documents.extend(documents);
        self
    }

    /// How documents are read: the profile, its limits and lists.
    pub fn config_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Adds servers that the host defines in code.
    pub fn servers(mut self, servers: impl IntoIterator<Item = ServerSpec>) -> Self {
        self.servers.extend(servers);
        self
    }

    /// Where the hub as a whole may connect over HTTP: no server gets what these rules do not allow, whatever its own
    /// say. Without this, each server's own rules stand alone. A rule that cannot be read allows nothing.
    pub fn egress(mut self, rules: impl IntoIterator<Item = EgressRule>) -> Self {
        self.egress = Some(rules.into_iter().collect());
        self
    }

    /// The folder of policies: its `*.cedar` and `*.rules` files.
    pub fn policies_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.policies = Policies::Folder(folder.into());
        self
    }

    /// The policies, as texts.
    pub fn policy_files(mut self, files: impl IntoIterator<Item = PolicyFile>) -> Self {
        self.policies = Policies::Files(files.into_iter().collect());
        self
    }

    /// A preset instead of policies of one's own.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.policies = Policies::Preset(preset);
        self
    }

    /// Refuses a folder of policies that has no seal; see `portcullis policy seal`. Where there is a seal, the
    /// policies must be those that were sealed in any case.
    pub fn sealed(mut self, sealed: bool) -> Self {
        self.sealed = sealed;
        self
    }

    /// A folder for results' binary content. Several hubs may share it. Without one it is kept in memory.
    pub fn blob_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.store = Store::Folder(folder.into());
        self
    }

    /// A store of the host's own.
    pub fn blob_store(mut self, store: Arc<dyn BlobStore>) -> Self {
        self.store = Store::Given(store);
        self
    }

    /// How results are shaped: limits, and what happens above them.
    pub fn shape(mut self, shape: ShapeOptions) -> Self {
        self.shape = shape;
        self
    }

    /// Who answers calls that must be asked about.
    pub fn approval(mut self, handler: impl ApprovalHandler + 'static) -> Self {
        self.approval = Some(Arc::new(handler));
        self
    }

    /// Who answers servers' questions to the user.
    pub fn elicitation(mut self, handler: impl ElicitationHandler + 'static) -> Self {
        self.elicitation = Some(Arc::new(handler));
        self
    }

    /// Who calls, where a call does not say.
    pub fn agent(mut self, agent: AgentId) -> Self {
        self.agent = agent;
        self
    }

    /// The tier, where a call does not say; before what the documents say.
    pub fn tier(mut self, tier: Tier) -> Self {
        self.tier = Some(tier);
        self
    }

    /// What variables and files there are for references, programs and children: this process's own by default.
    pub fn environment(mut self, environment: Arc<dyn Environment + Send + Sync>) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Restart, back-off, parking, idling.
    pub fn lifecycle(mut self, lifecycle: LifecycleOptions) -> Self {
        self.lifecycle = Some(lifecycle);
        self
    }

    /// Normalises the documents, loads the policies and starts the servers. Returns at once: they come up side by
    /// side. A document's entry with an error is left out; see [`Hub::diagnostics`].
    ///
    /// # Errors
    /// [`HubError`]: a document gave no server that can be used, or policies or store cannot be.
    pub async fn start(self) -> Result<Hub, HubError> {
        let environment = self
            .environment
            .unwrap_or_else(|| Arc::new(HostEnvironment::capture()));
        let Normalized {
            mut specs,
            diagnostics,
            settings,
            ..
        } = normalize(&self.documents, &self.options, environment.as_ref());
        let from_documents = !self.documents.is_empty();
        specs.extend(self.servers);
        if specs.is_empty() && from_documents {
            return Err(HubError::NoServers(diagnostics));
        }
        let policies = match self.policies {
            Policies::Folder(folder) => load_reviewed_policies(&folder, self.sealed)?,
            Policies::Files(files) => DecisionPoint::load(&files)?,
            Policies::Preset(preset) => DecisionPoint::preset(preset)?,
            Policies::Documents => match settings.policies {
                Some(setting) => {
                    let folder = beside(&setting.origin.file, &setting.value);
                    load_reviewed_policies(&folder, self.sealed)?
                }
                None => DecisionPoint::deny_all(),
            },
        };
        let store: Arc<dyn BlobStore> = match self.store {
            Store::Memory => Arc::new(MemStore::default()),
            Store::Folder(folder) => Arc::new(FsStore::open(&folder, FsOptions::default())?),
            Store::Given(store) => store,
        };
        let sources = SharedEnvironment(environment);
        let router = Router::start(
            specs,
            RouterOptions {
                policies: Arc::new(policies),
                store,
                shape: self.shape,
                approval: self.approval,
                elicitation: self.elicitation,
                agent: self.agent,
                tier: self
                    .tier
                    .or(settings.tier.map(|setting| setting.value))
                    .unwrap_or_default(),
                sources: Arc::new(sources),
                lifecycle: self.lifecycle,
                egress: self.egress.map(EgressRules::new),
            },
        )
        .await?;
        Ok(Hub::new(router, diagnostics))
    }
}

/// `folder` as a document means it: relative to the document's own folder.
fn beside(document: &str, folder: &Path) -> PathBuf {
    Path::new(document).parent().unwrap_or(Path::new("")).join(folder)
}

/// The environment as the supervisor wants it.
struct SharedEnvironment(Arc<dyn Environment + Send + Sync>);

impl portcullis_config::Sources for SharedEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.variable(name)
    }

    fn file(&self, path: &str) -> Option<String> {
        self.0.file(path)
    }

    fn keyring(&self, service: &str, account: &str) -> Option<portcullis_config::SecretString> {
        self.0.keyring(service, account)
    }
}
