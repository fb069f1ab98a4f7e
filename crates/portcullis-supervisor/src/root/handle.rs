use std::{collections::BTreeMap, sync::Arc, time::Duration};

use portcullis_config::{ServerSpec, Sources, Timeouts};
use portcullis_egress::{EgressLog, EgressRules};
use portcullis_lifecycle::Options;
use portcullis_types::ServerId;
use ractor::{Actor, ActorRef, call_t};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::TaskTracker;

use super::{actor::RootActor, message::RootMessage};
use crate::{
    connect::{Surroundings, longest_turn},
    elicitation::ElicitationResponder,
    error::SupervisorError,
    events::SupervisorEvent,
    server::{Desired, Order, ServerArguments},
    spawn::{Spawner, StopSequence, default_spawner},
    strings::StringSpool,
    upstream::Upstream,
};

/// What a supervisor is started with.
#[derive(Clone)]
pub struct SupervisorOptions {
    /// Restart, back-off, parking, idling. The time of `connect_within` begins where a server's own deadlines end.
    pub lifecycle: Options,
    /// How children are stopped.
    pub stop: StopSequence,
    /// How children are started: through a warden where `main` called `portcullis_warden::init()`, else in process
    /// groups.
    pub spawner: Arc<dyn Spawner>,
    /// What references are resolved against: the hub's environment and files.
    pub sources: Arc<dyn Sources + Send + Sync>,
    /// Who answers elicitations; with none, each is declined at once.
    pub elicitation: Option<Arc<dyn ElicitationResponder>>,
    /// Where the hub as a whole may connect: no server gets what these do not allow, whatever its own rules say.
    /// With none, each server's own rules stand alone.
    pub egress: Option<EgressRules>,
    /// Who takes strings of more than 64 KiB out of children's results. With none, a result that holds one fails its
    /// call, naming the size.
    pub spool: Option<Arc<dyn StringSpool>>,
}

impl SupervisorOptions {
    /// The defaults, with references resolved against `sources`.
    #[must_use]
    pub fn new(sources: Arc<dyn Sources + Send + Sync>) -> Self {
        Self {
            lifecycle: Options::default(),
            stop: StopSequence::default(),
            spawner: default_spawner(),
            sources,
            elicitation: None,
            egress: None,
            spool: None,
        }
    }
}

/// All supervised servers of one hub. Dropped, it stops them in the background; [`shutdown`](Self::shutdown)
/// waits until their processes are gone.
#[derive(Debug)]
pub struct Supervisor {
    root: ActorRef<RootMessage>,
    upstreams: BTreeMap<ServerId, Upstream>,
    children: TaskTracker,
    grace: Duration,
}

impl Supervisor {
    /// Starts an actor per spec; they connect side by side. `events` hears of every change, and is dropped when the
    /// supervisor has ended, whoever still holds an [`Upstream`].
    ///
    /// # Errors
    /// [`SupervisorError::Duplicate`] where two specs have one id, [`SupervisorError::Start`] where the root
    /// cannot be started.
    pub async fn start(
        specs: Vec<ServerSpec>,
        options: SupervisorOptions,
        events: mpsc::UnboundedSender<SupervisorEvent>,
    ) -> Result<Self, SupervisorError> {
        let children = TaskTracker::new();
        let around = Surroundings {
            spawner: options.spawner,
            sources: options.sources,
            elicitation: options.elicitation,
            stop: options.stop,
            egress: options.egress,
            spool: options.spool,
            children: children.clone(),
        };
        let mut upstreams = BTreeMap::new();
        let mut arguments = Vec::new();
        for spec in specs {
            // Weak, since the log lasts for as long as anybody knows the server, and events end with the supervisor.
            let (id, tell) = (spec.id.clone(), events.downgrade());
            let egress = EgressLog::new(move |record| {
                if let Some(tell) = tell.upgrade() {
                    let server = id.clone();
                    let _ = tell.send(SupervisorEvent::Egress { server, record });
                }
            });
            let upstream = Upstream::new(spec, egress);
            if upstreams
                .insert(upstream.id().clone(), upstream.clone())
                .is_some()
            {
                return Err(SupervisorError::Duplicate(upstream.id().clone()));
            }
            arguments.push(ServerArguments {
                lifecycle: behind_the_deadlines_of(&upstream, options.stop, &options.lifecycle),
                desired: Desired::of_spec(upstream.spec().enabled),
                upstream,
                around: Surroundings {
                    spool: around.spool.as_ref().map(|spool| spool.share()),
                    ..around.clone()
                },
                events: events.clone(),
            });
        }
        let (root, _) = Actor::spawn(None, RootActor, arguments)
            .await
            .map_err(|error| SupervisorError::Start(error.to_string()))?;
        // Stop sequence, and a second for the operating system.
        let grace = options.stop.longest().saturating_add(Duration::from_secs(1));
        Ok(Self {
            root,
            upstreams,
            children,
            grace,
        })
    }

    /// The server called `id`.
    #[must_use]
    pub fn upstream(&self, id: &ServerId) -> Option<&Upstream> {
        self.upstreams.get(id)
    }

    /// All servers, by id.
    #[must_use]
    pub fn upstreams(&self) -> &BTreeMap<ServerId, Upstream> {
        &self.upstreams
    }

    /// Stops every server and waits until their processes are gone, within the stop sequence's time.
    ///
    /// # Errors
    /// [`SupervisorError::Lingering`] where some were still there.
    pub async fn shutdown(&self) -> Result<(), SupervisorError> {
        let millis = u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX);
        let _ = call_t!(self.root, RootMessage::Stop, millis);
        let _ = self.root.stop_and_wait(None, Some(self.grace)).await;
        self.children.close();
        timeout(self.grace, self.children.wait())
            .await
            .map_err(|_| SupervisorError::Lingering(self.grace))
    }

    /// Starts a server anew, as after a change of what it reads at its start. Calls in flight may end first, for a
    /// while; those that come meanwhile wait for the new connection within their deadline.
    ///
    /// # Errors
    /// [`SupervisorError::Unknown`] where no server is called so.
    pub fn restart(&self, id: &ServerId) -> Result<(), SupervisorError> {
        self.order(id, Order::Restart)
    }

    /// Switches a server on or off, until the supervisor ends. One that is switched off ends once its calls in flight
    /// have; new ones fail at once.
    ///
    /// # Errors
    /// [`SupervisorError::Unknown`] where no server is called so.
    pub fn set_enabled(&self, id: &ServerId, enabled: bool) -> Result<(), SupervisorError> {
        self.order(id, if enabled { Order::Enable } else { Order::Disable })
    }

    /// Ends a server for good, once its calls in flight have ended; new ones fail at once.
    ///
    /// # Errors
    /// [`SupervisorError::Unknown`] where no server is called so.
    pub fn drain(&self, id: &ServerId) -> Result<(), SupervisorError> {
        self.order(id, Order::Drain)
    }

    fn order(&self, id: &ServerId, order: Order) -> Result<(), SupervisorError> {
        if !self.upstreams.contains_key(id) {
            return Err(SupervisorError::Unknown(id.clone()));
        }
        self.root
            .send_message(RootMessage::Order(id.clone(), order))
            .map_err(|_| SupervisorError::Stopped)
    }

    #[cfg(test)]
    pub(crate) fn forward(&self, id: &ServerId, message: crate::server::ServerMessage) {
        let _ = self.root.send_message(RootMessage::Forward(id.clone(), message));
    }
}

/// An attempt ends by the deadlines of its server, however long those are: what is behind them must not come first. Nor
/// may it before the processes have ended that it waits for, one for each of its two handshakes.
fn behind_the_deadlines_of(upstream: &Upstream, stop: StopSequence, lifecycle: &Options) -> Options {
    let Timeouts { connect, list, .. } = upstream.timeouts();
    let turns = longest_turn(stop).saturating_mul(2);
    let later = |within: Duration| {
        let deadlines = connect.saturating_add(list).saturating_add(turns);
        within.saturating_add(deadlines)
    };
    Options {
        connect_within: lifecycle.connect_within.map(later),
        ..lifecycle.clone()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Before the actors get to it: who holds an `Upstream` hears it at once.
        for upstream in self.upstreams.values() {
            upstream.shared().publish_stopped("its hub is gone");
        }
        self.root.stop(None);
    }
}
