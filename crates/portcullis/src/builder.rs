mod parts;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use portcullis_blobs::{BlobStore, FsOptions, TagName};
use portcullis_config::{
    Diagnostic, Document, Environment, HostEnvironment, Normalized, Options, ServerSpec, Settings, normalize,
};
use portcullis_egress::EgressRules;
use portcullis_policy::{PolicyFile, Preset};
use portcullis_router::{
    ApprovalHandler, BlobTag, Collector, ElicitationHandler, Keeping, Router, RouterError, RouterOptions,
    ShapeOptions,
};
use portcullis_state::{FirstSight, State};
use portcullis_supervisor::LifecycleOptions;
use portcullis_types::{AgentId, EgressRule, Tier};
use tokio::task::spawn_blocking;

use crate::{Hub, HubError, stored};
use parts::{Kept, Policies, SharedEnvironment, Store};

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
    static_policies: bool,
    store: Store,
    blob_options: Option<FsOptions>,
    blob_tag: Option<TagName>,
    blob_tag_life: Option<Duration>,
    blob_retention: Option<Duration>,
    shape: Option<ShapeOptions>,
    approval: Option<Arc<dyn ApprovalHandler>>,
    elicitation: Option<Arc<dyn ElicitationHandler>>,
    agent: AgentId,
    profiles: Option<BTreeMap<AgentId, AgentId>>,
    tier: Option<Tier>,
    environment: Option<Arc<dyn Environment + Send + Sync>>,
    lifecycle: Option<LifecycleOptions>,
    state: Kept,
    first_sight: FirstSight,
    approval_wait: Option<Duration>,
    approval_hold: Option<Duration>,
    egress: Option<Vec<EgressRule>>,
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

    /// Whether edits of the folder of policies are taken while the hub runs, once each file has stood still for half a
    /// second. They are by default. What cannot be loaded is told in an event, and the policies in force stay.
    pub fn watch_policies(mut self, watch: bool) -> Self {
        self.static_policies = !watch;
        self
    }

    /// How long somebody may take to approve a call, 120 s by default; the server's deadline begins after that.
    pub fn approval_wait(mut self, wait: Duration) -> Self {
        self.approval_wait = Some(wait);
        self
    }

    /// How long an approval holds that a person gives for a while, 1 h by default.
    pub fn approval_hold(mut self, hold: Duration) -> Self {
        self.approval_hold = Some(hold);
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

    /// A folder for what outlives a run: what was trusted of each tool, so that one that changed is asked about.
    /// Several hubs may share it. Without one it is kept in memory: each run trusts tools as it sees them first.
    pub fn state_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state = Kept::Folder(folder.into());
        self
    }

    /// The same, opened by the host.
    pub fn state(mut self, state: Arc<State>) -> Self {
        self.state = Kept::Given(state);
        self
    }

    /// What becomes of a tool that was never seen before: trusted as it is, or approved by a person first.
    pub fn first_sight(mut self, first_sight: FirstSight) -> Self {
        self.first_sight = first_sight;
        self
    }

    /// How the store of this hub's own behaves, be it [a folder](Self::blob_dir) or memory: how large a blob may be, how
    /// much all of them may take, and in a folder what outlasts a power cut. A result that the store does not take
    /// fails its call and no other. A store that was [given](Self::blob_store) stays as it is.
    ///
    /// This counts before what the documents say under `blobs`, all of it.
    pub fn blob_options(mut self, options: FsOptions) -> Self {
        self.blob_options = Some(options);
        self
    }

    /// Keeps all that this hub stores under a name, such as [`TagName::session`] of a conversation's id, so that it
    /// outlives the hub until [`BlobStore::untag`] lets it go. Without a name it stays for as long as the hub is there,
    /// and then for the retention of the next collection.
    pub fn blob_tag(mut self, name: TagName) -> Self {
        self.blob_tag = Some(name);
        self
    }

    /// For how long what is stored is kept under its [name](Self::blob_tag), counted from when it was stored last: for
    /// good by default. This counts before `blobs.sessionSeconds` of the documents.
    pub fn blob_tag_life(mut self, life: Duration) -> Self {
        self.blob_tag_life = Some(life);
        self
    }

    /// Collects, as the hub starts and then every hour, what nothing keeps and was stored longer ago than this. Without
    /// it `blobs.retentionSeconds` counts, where the documents agree on it and the store is not
    /// [the host's own](Self::blob_store); without either the host collects when it likes, by [`BlobStore::gc`]. What
    /// this hub itself stored is kept by it until it ends.
    pub fn blob_retention(mut self, retention: Duration) -> Self {
        self.blob_retention = Some(retention);
        self
    }

    /// How results are shaped: limits, and what happens above them. This counts before what the documents say under
    /// `results`, all of it.
    pub fn shape(mut self, shape: ShapeOptions) -> Self {
        self.shape = Some(shape);
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

    /// Which profile each agent belongs to, for policies that are about profiles; all others belong to `default`. Before
    /// what the documents say.
    pub fn profiles(mut self, profiles: BTreeMap<AgentId, AgentId>) -> Self {
        self.profiles = Some(profiles);
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
    /// side. A document's entry with an error is left out; see [`Hub::diagnostics`]. Limits that hold for the whole hub,
    /// agents' profiles and the tier are another matter: where those cannot be read, or two documents give other profiles,
    /// and they are not given in code, nothing is started.
    ///
    /// # Errors
    /// [`HubError`]: a document gave no server that can be used, or its limits, its agents, its tier, the policies or the
    /// store cannot be.
    pub async fn start(self) -> Result<Hub, HubError> {
        let in_code = InCode::of(&self);
        let environment = self
            .environment
            .unwrap_or_else(|| Arc::new(HostEnvironment::capture()));
        let Normalized {
            mut specs,
            diagnostics,
            mut settings,
            ..
        } = normalize(&self.documents, &self.options, environment.as_ref());
        let from_documents = !self.documents.is_empty();
        specs.extend(self.servers);
        if specs.is_empty() && from_documents {
            return Err(HubError::NoServers(diagnostics));
        }
        let is_own_store = !matches!(self.store, Store::Given(_));
        if let Some(lost) = in_code.lost(&settings) {
            return Err(lost(diagnostics));
        }
        let named_agents = settings.agents.take().map(|setting| setting.value);
        let retention = self
            .blob_retention
            .or_else(|| stored::retention(&settings).filter(|_| is_own_store));
        let named = settings
            .policies
            .map(|setting| beside(&setting.origin.file, &setting.value));
        let (policies, folder) = self.policies.load(named, self.sealed, !self.static_policies)?;
        let options = self
            .blob_options
            .unwrap_or_else(|| stored::blob_options(&settings.blobs));
        let store = self.store.open(options)?;
        let state = match self.state {
            Kept::Memory => None,
            Kept::Folder(folder) => Some(Arc::new(
                spawn_blocking(move || State::open(&folder))
                    .await
                    .map_err(|error| RouterError::Start(error.to_string()))??,
            )),
            Kept::Given(state) => Some(state),
        };
        let collected = Arc::clone(&store);
        let life = self.blob_tag_life.or(stored::value(&settings.blobs.session));
        let defaults = Keeping::default();
        let sources = SharedEnvironment(environment);
        let router = Router::start(
            specs,
            RouterOptions {
                policies: Arc::new(policies),
                policy_folder: folder,
                store,
                blob_tag: self.blob_tag.map(|name| BlobTag { name, life }),
                shape: self
                    .shape
                    .unwrap_or_else(|| stored::shape_options(&settings.results)),
                approval: self.approval,
                elicitation: self.elicitation,
                agent: self.agent,
                tier: self
                    .tier
                    .or(settings.tier.map(|setting| setting.value))
                    .unwrap_or_default(),
                profiles: self.profiles.or(named_agents).unwrap_or_default(),
                sources: Arc::new(sources),
                keeping: Keeping {
                    state,
                    first_sight: self.first_sight,
                    approval_wait: self.approval_wait.unwrap_or(defaults.approval_wait),
                    approval_hold: self.approval_hold.unwrap_or(defaults.approval_hold),
                },
                lifecycle: self.lifecycle,
                egress: self.egress.map(EgressRules::new),
            },
        )
        .await?;
        let collector = retention.map(|retention| Collector::start(collected, retention));
        Ok(Hub::new(router, diagnostics, collector))
    }
}

/// What of that which holds for all servers the host says in code, so that the documents' word on it does not count.
struct InCode {
    limits: bool,
    profiles: bool,
    tier: bool,
}

impl InCode {
    fn of(builder: &HubBuilder) -> Self {
        let has_store = builder.blob_options.is_some() || matches!(builder.store, Store::Given(_));
        Self {
            limits: has_store && builder.shape.is_some(),
            profiles: builder.profiles.is_some(),
            tier: builder.tier.is_some(),
        }
    }

    /// As what a hub is refused, whose documents say what holds for all servers and cannot be read.
    fn lost(&self, settings: &Settings) -> Option<fn(Vec<Diagnostic>) -> HubError> {
        if settings.limits_unread && !self.limits {
            Some(HubError::LimitsUnread)
        } else if settings.agents_unread && !self.profiles {
            Some(HubError::AgentsUnread)
        } else if settings.tier_unread && !self.tier {
            Some(HubError::TierUnread)
        } else {
            None
        }
    }
}

/// `folder` as a document means it: relative to the document's own folder.
fn beside(document: &str, folder: &Path) -> PathBuf {
    Path::new(document).parent().unwrap_or(Path::new("")).join(folder)
}

#[cfg(test)]
mod tests;
