use std::{collections::BTreeMap, sync::Arc, time::Duration};

use portcullis_blobs::{BlobStore, TagName};
use portcullis_config::{ServerSpec, Sources};
use portcullis_egress::EgressRules;
use portcullis_policy::DecisionPoint;
use portcullis_state::{State, StateError, Trusting};
use portcullis_supervisor::{Supervisor, SupervisorOptions};
use portcullis_types::{AgentId, Decision, Hash, Tier};
use ractor::{Actor, ActorRef};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    actor::{RouterActor, RouterArguments},
    lanes,
    message::RouterMessage,
};
use crate::{
    admission::Admission,
    approval::{ApprovalHandler, ElicitationHandler},
    call::{CallOutcome, CallRequest},
    catalog::{Catalog, CatalogTool},
    dispatch::Dispatch,
    elicit::PermittedElicitation,
    error::{CallError, RouterError},
    event::{EventBus, EventStream},
    pins::{Keeping, Pinning},
    policies::{Policies, PolicyReload},
    policy_folder::PolicyFolder,
    shape::{ShapeOptions, Shaping},
    spool::Spool,
    watcher,
};

/// How long the actor may take to tell the last events at a shutdown.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// What a router is started with.
pub struct RouterOptions {
    /// What decides on calls.
    pub policies: Arc<DecisionPoint>,
    /// The folder that they come from: edits of it take over while the router runs, and what a person always allows
    /// is written there.
    pub policy_folder: Option<PolicyFolder>,
    /// Where binary and oversize content goes.
    pub store: Arc<dyn BlobStore>,
    /// How what results put there is kept when the router is gone; with none it is kept while this is there.
    pub blob_tag: Option<BlobTag>,
    /// How results are shaped.
    pub shape: ShapeOptions,
    /// Who answers what must be asked; with none, such calls end in [`CallError::NeedsApproval`].
    pub approval: Option<Arc<dyn ApprovalHandler>>,
    /// Who answers servers' questions; with none, each is declined at once.
    pub elicitation: Option<Arc<dyn ElicitationHandler>>,
    /// Who calls, where the call does not say.
    pub agent: AgentId,
    /// The tier, where the call does not say.
    pub tier: Tier,
    /// The profile that an agent belongs to, for policies that are about profiles; all others belong to `default`.
    pub profiles: BTreeMap<AgentId, AgentId>,
    /// What references in specs are resolved against.
    pub sources: Arc<dyn Sources + Send + Sync>,
    /// What outlives a run: what was trusted of tools.
    pub keeping: Keeping,
    /// Restart, back-off, parking, idling.
    pub lifecycle: Option<portcullis_supervisor::LifecycleOptions>,
    /// Where the hub as a whole may connect over HTTP, above each server's own rules; with none, those stand alone.
    pub egress: Option<EgressRules>,
}

impl RouterOptions {
    /// Nobody answers what must be asked, nothing outlives a run, and every limit is the default.
    #[must_use]
    pub fn new(
        policies: Arc<DecisionPoint>,
        store: Arc<dyn BlobStore>,
        sources: Arc<dyn Sources + Send + Sync>,
    ) -> Self {
        Self {
            policies,
            policy_folder: None,
            store,
            blob_tag: None,
            shape: ShapeOptions::default(),
            approval: None,
            elicitation: None,
            agent: AgentId::default(),
            tier: Tier::default(),
            profiles: BTreeMap::new(),
            sources,
            keeping: Keeping::default(),
            lifecycle: None,
            egress: None,
        }
    }
}

impl RouterOptions {
    /// The profile that `agent` belongs to.
    pub(crate) fn profile_of(&self, agent: &AgentId) -> AgentId {
        self.profiles.get(agent).cloned().unwrap_or_default()
    }
}

/// How a router keeps what it stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobTag {
    /// Under which name.
    pub name: TagName,
    /// For how long since it was stored last; for good with none.
    pub life: Option<Duration>,
}

/// Ties supervisor, policies and store together: the enforcement point. Calls go through it without passing a
/// mailbox; its actor only keeps the catalog.
#[derive(Debug)]
pub struct Router {
    supervisor: Supervisor,
    actor: ActorRef<RouterMessage>,

    dispatch: Dispatch,
    catalog: watch::Receiver<Arc<Catalog>>,
    events: EventBus,
    settle_within: Duration,
}

impl Router {
    /// Starts the servers and the router above them. Returns at once: servers come up side by side.
    ///
    /// # Errors
    /// [`RouterError`] where two specs have one id or an actor cannot be started.
    pub async fn start(specs: Vec<ServerSpec>, mut options: RouterOptions) -> Result<Self, RouterError> {
        // What this hub puts stays for as long as it is there, also in a store that others share.
        options.store = options.store.session();
        let settle_within = settle_within(&specs);
        let events = EventBus::default();
        let pinning = Pinning::new(&options.keeping, &specs)?;
        let policies = Policies::new(
            Arc::clone(&options.policies),
            options.policy_folder.clone(),
            events.clone(),
        );
        let policies = Arc::new(policies);
        let (catalog_writer, catalog) = watch::channel(Arc::new(Catalog::new(specs.iter())));
        let by_id: BTreeMap<_, _> = specs.iter().map(|spec| (spec.id.clone(), spec.clone())).collect();
        let arguments = RouterArguments {
            specs: by_id,
            catalog: catalog_writer,
            events: events.clone(),
        };
        let (actor, _) = Actor::spawn(None, RouterActor, arguments)
            .await
            .map_err(|error| RouterError::Start(error.to_string()))?;

        let mut supervisor_options = SupervisorOptions::new(Arc::clone(&options.sources));
        supervisor_options.lifecycle = options.lifecycle.clone().unwrap_or_default();
        supervisor_options.egress = options.egress.clone();
        supervisor_options.spool = Some(Arc::new(Spool::new(Arc::clone(&options.store))));
        supervisor_options.elicitation =
            PermittedElicitation::responder(&options, &specs, events.clone(), &policies);
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(lanes::forward(heard, actor.clone(), pinning.clone()));
        let admission = Admission::new(specs.iter().map(|spec| (&spec.id, spec.limits)));
        let shaping = Shaping::new(
            specs.iter().map(|spec| &spec.id),
            Arc::clone(&options.store),
            options.shape,
            options.blob_tag.clone(),
        );
        let supervisor = Supervisor::start(specs, supervisor_options, tell).await?;
        watcher::start(&policies);
        tokio::spawn(lanes::republish(policies.swaps(), actor.clone()));
        let dispatch = Dispatch {
            upstreams: supervisor.upstreams().clone(),
            catalog: catalog.clone(),
            admission,
            shaping,
            events: events.clone(),
            pinning,
            policies,
            actor: actor.clone(),
            options,
        };
        Ok(Self {
            supervisor,
            actor,
            dispatch,
            catalog,
            events,
            settle_within,
        })
    }

    /// The current snapshot.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// Waits until each server is ready or has failed once, by its own deadlines; gives the catalog of then.
    pub async fn settled(&self) -> Arc<Catalog> {
        self.settled_within(self.settle_within).await
    }

    /// As [`settled`](Self::settled), but no longer than `budget`.
    pub async fn settled_within(&self, budget: Duration) -> Arc<Catalog> {
        let mut catalog = self.catalog.clone();
        let _ = timeout(budget, catalog.wait_for(|catalog| catalog.is_settled())).await;
        self.catalog()
    }

    /// A receiver that changes with each new snapshot.
    #[must_use]
    pub fn catalog_changes(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.clone()
    }

    /// All events from now on.
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.events.listen()
    }

    /// Who calls, where a call does not say, and in which tier.
    #[must_use]
    pub fn caller(&self) -> (&AgentId, Tier) {
        (&self.dispatch.options.agent, self.dispatch.options.tier)
    }

    /// What decides on calls now.
    #[must_use]
    pub fn policies(&self) -> Arc<DecisionPoint> {
        self.dispatch.policies.current()
    }

    /// The profile that each agent belongs to; all others belong to `default`.
    #[must_use]
    pub fn profiles(&self) -> &BTreeMap<AgentId, AgentId> {
        &self.dispatch.options.profiles
    }

    /// What is wrong with the folder of policies, where it was refused last: the policies in force are older ones.
    #[must_use]
    pub fn policies_refused(&self) -> Vec<String> {
        self.dispatch.policies.refused()
    }

    /// Reads the folder of policies again, at once.
    pub async fn reload_policies(&self) -> PolicyReload {
        let reloaded = self.dispatch.policies.reload(None).await;
        reloaded.unwrap_or(PolicyReload::Unchanged)
    }

    /// The store that results' binary content goes to.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BlobStore> {
        &self.dispatch.options.store
    }

    /// One call: lookup, decision, approval where it is asked, the server, the result's shaping, each with its
    /// events.
    ///
    /// # Errors
    /// [`CallError`], which says who refused or whether the server may have acted.
    pub async fn call(&self, request: CallRequest) -> Result<CallOutcome, CallError> {
        self.dispatch.call(request).await
    }

    /// What the policies say of a tool for the default agent and tier, with no arguments.
    #[must_use]
    pub fn outlook(&self, tool: &CatalogTool) -> Decision {
        self.dispatch.outlook(tool)
    }

    /// What outlives a run. Its methods block: give them a thread that may.
    #[must_use]
    pub fn state(&self) -> &Arc<State> {
        self.dispatch.pinning.state()
    }

    /// Trusts a tool's definition (`mcp.<server>.<tool>`), or what a server is started with (`mcp.<server>`), in the
    /// place of what was trusted before: the one with this hash, which waits. `by` is the person's name.
    ///
    /// # Errors
    /// [`StateError`]: nothing is trusted that was not before.
    pub async fn trust(&self, subject: &str, hash: Hash, by: &str) -> Result<Trusting, StateError> {
        self.dispatch.trust(subject, hash, by).await
    }

    /// Stops all servers and waits until their processes are gone.
    ///
    /// # Errors
    /// [`RouterError::Supervisor`] where some were still there when the stop sequence's time was over.
    pub async fn shutdown(&self) -> Result<(), RouterError> {
        let stopped = self.supervisor.shutdown().await;
        // The last changes of state are still told.
        let _ = self.actor.wait(Some(LAST_EVENTS)).await;
        Ok(stopped?)
    }
}

/// The longest that any server may take to come up or fail, and a little for the actors.
fn settle_within(specs: &[ServerSpec]) -> Duration {
    let longest = specs
        .iter()
        .map(|spec| spec.timeouts.connect.saturating_add(spec.timeouts.list))
        .max();
    longest.unwrap_or_default().saturating_add(Duration::from_secs(1))
}
