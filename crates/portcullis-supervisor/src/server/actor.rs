use std::{sync::Arc, time::Duration};

use portcullis_lifecycle::{Command, Event, Machine, Options, State, Transition};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use rand::RngExt;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::message::ServerMessage;
use crate::{
    connect::{Era, Established, Surroundings, connect},
    events::SupervisorEvent,
    tools::{ToolLimit, ToolList, list_tools},
    upstream::{Ready, Slot, Upstream},
};

/// How long the exit of a process may take to be seen after its connection ended.
const EXIT_SEEN: Duration = Duration::from_millis(200);
/// How long a burst of `list_changed` must be quiet before the second listing.
const LIST_QUIET: Duration = Duration::from_millis(500);

pub(crate) struct ServerActor;

/// What a server's actor is started with, the first time and again after a failure.
#[derive(Clone)]
pub(crate) struct ServerArguments {
    pub(crate) upstream: Upstream,
    pub(crate) lifecycle: Options,
    pub(crate) around: Surroundings,
    pub(crate) events: mpsc::UnboundedSender<SupervisorEvent>,
}

/// The actor's state. Dropping it, however the actor ends, ends the connection and its process, its timers and
/// its attempts to connect: `post_stop` does not run after a panic.
pub(crate) struct ServerState {
    arguments: ServerArguments,
    machine: Machine,
    epoch: Instant,
    current: Option<Established>,
    era: Option<Era>,
    version: u64,
    listing: Listing,
    /// How many calls the connection had taken when that was last asked.
    calls_seen: u64,
    /// The attempt to connect, and the watch over the connection.
    link: JoinSet<()>,
    timer: JoinSet<()>,
    _demand: JoinSet<()>,
}

/// `list_changed` storms: one listing runs, and one more follows once the burst is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Quiet,
    Running { again: bool },
}

impl Actor for ServerActor {
    type Msg = ServerMessage;
    type State = ServerState;
    type Arguments = ServerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<ServerMessage>,
        arguments: ServerArguments,
    ) -> Result<ServerState, ActorProcessingErr> {
        let machine = Machine::new(
            arguments.lifecycle.clone(),
            || rand::rng().random_range(0.0..1.0),
            arguments.upstream.spec().enabled,
        );
        let mut demand = JoinSet::new();
        let (shared, actor) = (Arc::clone(arguments.upstream.shared()), myself.clone());
        demand.spawn(async move {
            loop {
                shared.demand.notified().await;
                let _ = actor.send_message(ServerMessage::Event(Event::Demand));
            }
        });
        myself.send_message(ServerMessage::Event(Event::Start))?;
        Ok(ServerState {
            arguments,
            machine,
            epoch: Instant::now(),
            current: None,
            era: None,
            version: 0,
            listing: Listing::Quiet,
            calls_seen: 0,
            link: JoinSet::new(),
            timer: JoinSet::new(),
            _demand: demand,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ServerMessage>,
        message: ServerMessage,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ServerMessage::Event(event) => state.on(&myself, event),
            ServerMessage::Established {
                generation,
                established,
            } => {
                state.established(&myself, generation, *established);
            }
            ServerMessage::ToolsChanged { generation } => state.tools_changed(&myself, generation, false),
            ServerMessage::Listed { generation, result } => state.listed(&myself, generation, result),
            ServerMessage::Stop(reply) => {
                state.on(&myself, Event::Stop);
                let _ = reply.send(());
            }
            #[cfg(test)]
            ServerMessage::Panic => panic!("a test asked for it"),
        }
        Ok(())
    }
}

impl ServerState {
    /// Puts one event to the machine and carries out its commands.
    fn on(&mut self, myself: &ActorRef<ServerMessage>, event: Event) {
        let now = self.epoch.elapsed();
        let mut commands = Vec::new();
        if event == Event::Tick && self.was_called() {
            // Calls pass no mailbox, so the machine hears of them when it wants to know: at its own time to act.
            commands.extend(self.machine.on(Event::CallStarted, now));
            commands.extend(self.machine.on(Event::CallEnded, now));
        }
        commands.extend(self.machine.on(event, now));
        for command in commands {
            match command {
                Command::Connect { generation } => self.connect(myself, generation),
                Command::Close { generation } => self.close(generation),
                Command::WakeAt(at) => self.wake_at(myself, at),
                Command::Announce(transition) => self.announce(transition),
            }
        }
    }

    /// Whether the connection was used since this was last asked.
    fn was_called(&mut self) -> bool {
        let Some(current) = &self.current else {
            return false;
        };
        let entered = current.connection.gate.entered();
        let more = entered != std::mem::replace(&mut self.calls_seen, entered);
        more || current.connection.gate.inside() > 0
    }

    fn connect(&mut self, myself: &ActorRef<ServerMessage>, generation: u64) {
        let (upstream, around, era) = (
            self.arguments.upstream.clone(),
            self.arguments.around.clone(),
            self.era,
        );
        let actor = myself.clone();
        self.link = JoinSet::new();
        // Tracked like the children: an attempt that is given up may just have started one.
        let attempts = around.children.clone();
        self.link.spawn(attempts.track_future(async move {
            let message = match connect(&upstream, generation, era, &around).await {
                Ok(established) => ServerMessage::Established {
                    generation,
                    established: Box::new(established),
                },
                Err(error) => ServerMessage::Event(Event::ConnectFailed {
                    generation,
                    reason: error.to_string(),
                }),
            };
            let _ = actor.send_message(message);
        }));
    }

    fn established(&mut self, myself: &ActorRef<ServerMessage>, generation: u64, established: Established) {
        if generation != self.machine.generation() {
            // Too late: dropping it ends it.
            return;
        }
        self.era = Some(established.era);
        self.watch(myself, generation, &established);
        self.version = self.arguments.upstream.shared().next_version();
        self.listing = Listing::Quiet;
        self.calls_seen = 0;
        let tools = Arc::new(established.tools.clone());
        self.current = Some(established);
        // The tools first: whoever hears that the server is ready finds them.
        self.publish_tools(&tools);
        self.on(myself, Event::Connected { generation });
        self.publish_ready(tools);
    }

    /// Watches over a connection: its end, and its tools.
    fn watch(&mut self, myself: &ActorRef<ServerMessage>, generation: u64, established: &Established) {
        let closed = established.connection.closed.clone();
        let (stderr, ended) = (
            established.stderr.clone(),
            established.process.as_ref().map(|process| process.watch()),
        );
        let actor = myself.clone();
        self.link.spawn(async move {
            closed.cancelled().await;
            let how = match ended {
                // The pipes close a moment before the exit is seen.
                Some(mut ended) => match timeout(EXIT_SEEN, ended.wait_for(Option::is_some)).await {
                    Ok(Ok(how)) => how.clone(),
                    _ => None,
                },
                None => None,
            };
            let mut reason = match how {
                Some(how) => format!("the server ended ({how})"),
                None => "the connection ended".to_owned(),
            };
            if let Some(line) = stderr.last_line() {
                reason.push_str(&format!("; it wrote `{line}`"));
            }
            let _ = actor.send_message(ServerMessage::Event(Event::Lost { generation, reason }));
        });
        let (changed, actor) = (Arc::clone(&established.tools_changed), myself.clone());
        self.link.spawn(async move {
            loop {
                changed.notified().await;
                let _ = actor.send_message(ServerMessage::ToolsChanged { generation });
            }
        });
    }

    fn close(&mut self, generation: u64) {
        self.link = JoinSet::new();
        if self
            .current
            .as_ref()
            .is_some_and(|current| current.connection.generation == generation)
        {
            // Ends the connection at once; its process is stopped in the background, and tracked.
            self.current = None;
        }
    }

    fn wake_at(&mut self, myself: &ActorRef<ServerMessage>, at: Duration) {
        let (actor, at) = (myself.clone(), self.epoch + at);
        self.timer = JoinSet::new();
        self.timer.spawn(async move {
            sleep_until(at).await;
            let _ = actor.send_message(ServerMessage::Event(Event::Tick));
        });
    }

    fn announce(&mut self, transition: Transition) {
        let Transition { from, to, reason, .. } = transition;
        let probing = self.machine.is_probing();
        let pid = self
            .current
            .as_ref()
            .and_then(|current| current.process.as_ref())
            .map(|process| process.pid());
        let state = to.as_str();
        if let Some(slot) = match to {
            // Published by `publish_ready`, together with its tools.
            State::Ready => None,
            // A probe may well fail like those before it: what was said of the parked server still stands.
            State::Connecting if probing => None,
            State::Connecting | State::BackingOff { .. } | State::Draining | State::Idle => {
                Some(Slot::Waiting)
            }
            State::Parked { .. } | State::Disabled | State::Stopped => Some(Slot::Down {
                state,
                reason: reason.clone(),
            }),
        } {
            self.arguments.upstream.shared().slot.send_replace(slot);
        }
        let server = self.arguments.upstream.id().clone();
        tracing::debug!(%server, from = from.as_str(), to = state, %reason, "server state");
        let _ = self.arguments.events.send(SupervisorEvent::State {
            server,
            from: from.as_str(),
            to: state,
            reason,
            pid,
        });
    }

    fn publish_tools(&self, tools: &Arc<ToolList>) {
        let _ = self.arguments.events.send(SupervisorEvent::Tools {
            server: self.arguments.upstream.id().clone(),
            version: self.version,
            list: Arc::clone(tools),
        });
    }

    fn publish_ready(&self, tools: Arc<ToolList>) {
        if let (Some(current), State::Ready) = (&self.current, self.machine.state()) {
            let connection = Arc::clone(&current.connection);
            let ready = Ready {
                connection,
                tools,
                version: self.version,
            };
            self.arguments
                .upstream
                .shared()
                .slot
                .send_replace(Slot::Ready(ready));
        }
    }

    /// Lists now, or once more after the listing that runs. `settled` says that the burst is over.
    fn tools_changed(&mut self, myself: &ActorRef<ServerMessage>, generation: u64, settled: bool) {
        let Some(current) = self
            .current
            .as_ref()
            .filter(|current| current.connection.generation == generation)
        else {
            return;
        };
        if let Listing::Running { again } = &mut self.listing {
            *again = true;
            return;
        }
        self.listing = Listing::Running { again: false };
        let (peer, deadline) = (
            current.connection.peer.clone(),
            self.arguments.upstream.timeouts().list,
        );
        let limit = ToolLimit::of(self.arguments.upstream.spec());
        let headers = current.promotes_headers();
        let actor = myself.clone();
        self.link.spawn(async move {
            if settled {
                sleep(LIST_QUIET).await;
            }
            let result = list_tools(&peer, deadline, limit, headers).await;
            let broken = result.as_ref().err().filter(|error| error.ends_the_connection());
            let message = match broken {
                Some(error) => ServerMessage::Event(Event::Lost {
                    generation,
                    reason: error.to_string(),
                }),
                None => ServerMessage::Listed {
                    generation,
                    result: result.map_err(|error| error.to_string()),
                },
            };
            let _ = actor.send_message(message);
        });
    }

    fn listed(
        &mut self,
        myself: &ActorRef<ServerMessage>,
        generation: u64,
        result: Result<ToolList, String>,
    ) {
        if generation != self.machine.generation() {
            return;
        }
        let again = matches!(self.listing, Listing::Running { again: true });
        self.listing = Listing::Quiet;
        match result {
            Ok(list) => {
                self.version = self.arguments.upstream.shared().next_version();
                let tools = Arc::new(list);
                self.publish_tools(&tools);
                self.publish_ready(tools);
            }
            // The tools that were known stay.
            Err(error) => {
                tracing::warn!(server = %self.arguments.upstream.id(), %error, "a new listing failed")
            }
        }
        if again {
            self.tools_changed(myself, generation, true);
        }
    }
}

impl Drop for ServerState {
    fn drop(&mut self) {
        // Whoever waits for this server hears that it is not there; a new actor will say more.
        self.arguments.upstream.shared().slot.send_if_modified(|slot| {
            let ready = matches!(slot, Slot::Ready(_));
            if ready {
                *slot = Slot::Waiting;
            }
            ready
        });
    }
}
