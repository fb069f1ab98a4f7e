mod link;
mod listing;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use portcullis_lifecycle::{Command, Event, Machine, Options, Relist, State, Transition};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use rand::RngExt;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{desired::Desired, message::ServerMessage};
use crate::{
    connect::{EraMemory, Established, Surroundings},
    events::SupervisorEvent,
    upstream::{Slot, Upstream},
};

/// How long nothing must change for a burst of `list_changed` to be over.
const LIST_QUIET: Duration = Duration::from_millis(500);

pub(crate) struct ServerActor;

/// What a server's actor is started with, the first time and again after a failure.
#[derive(Clone)]
pub(crate) struct ServerArguments {
    pub(crate) upstream: Upstream,
    /// What was ordered for it so far.
    pub(crate) desired: Desired,
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
    era: EraMemory,
    version: u64,
    relist: Relist,
    /// The connection whose calls in flight are waited for.
    // INVARIANT: set exactly while the machine was told of calls that have not ended.
    draining: Option<u64>,
    /// How many calls the connection had taken when that was last asked.
    calls_seen: u64,
    /// The attempt to connect, and the watch over the connection.
    // INVARIANT: no set is given task after task. It keeps those that have ended, and as much memory for each as it took
    // while it ran.
    link: JoinSet<()>,
    /// The listing at hand; there is one at a time.
    listing: JoinSet<()>,
    timer: JoinSet<()>,
    relist_timer: JoinSet<()>,
    _demand: JoinSet<()>,
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
        let shared = arguments.upstream.shared();
        // What was told before by another actor, or by whoever read the configuration, is not told again.
        let is_known_to_be_off =
            arguments.desired == Desired::Off && shared.is_down_as(State::Disabled.name());
        let machine = Machine::new(
            arguments.lifecycle.clone(),
            || rand::rng().random_range(0.0..1.0),
            !is_known_to_be_off,
        );
        // Before any call that waits can ask for the server: it may be one that is not to be started.
        myself.send_message(ServerMessage::Event(arguments.desired.first_event()))?;
        let mut demand = JoinSet::new();
        let (shared, actor) = (Arc::clone(arguments.upstream.shared()), myself.clone());
        demand.spawn(async move {
            loop {
                shared.demand.notified().await;
                let _ = actor.send_message(ServerMessage::Event(Event::Demand));
            }
        });
        Ok(ServerState {
            arguments,
            machine,
            epoch: Instant::now(),
            current: None,
            era: EraMemory::default(),
            version: 0,
            relist: Relist::new(LIST_QUIET),
            draining: None,
            calls_seen: 0,
            link: JoinSet::new(),
            listing: JoinSet::new(),
            timer: JoinSet::new(),
            relist_timer: JoinSet::new(),
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
            ServerMessage::Order(order) => {
                state.on(&myself, order.event());
                if *state.machine.state() == State::Draining {
                    // What follows may be another than before.
                    state.publish_draining();
                }
            }
            ServerMessage::Established {
                generation,
                established,
            } => {
                state.established(&myself, generation, *established);
            }
            ServerMessage::ConnectFailed {
                generation,
                memory,
                reason,
            } => {
                if generation == state.machine.generation() {
                    state.era = memory;
                }
                state.on(&myself, Event::ConnectFailed { generation, reason });
            }
            ServerMessage::ToolsChanged { generation } => {
                state.relist(&myself, generation, Relist::changed);
            }
            ServerMessage::ListDue { generation } => state.relist(&myself, generation, Relist::tick),
            ServerMessage::Listed { generation, result } => state.listed(&myself, generation, result),
            ServerMessage::Drained { generation } => {
                if state.draining == Some(generation) {
                    state.draining = None;
                    state.on(&myself, Event::CallEnded);
                }
            }
            ServerMessage::Stop(reply) => {
                state.on(&myself, Event::Stop);
                let _ = reply.send(());
            }
            #[cfg(test)]
            ServerMessage::Panic => panic!("a test asked for it"),
            #[cfg(test)]
            ServerMessage::Tasks(reply) => {
                let sets = [&state.link, &state.listing, &state.timer, &state.relist_timer];
                let _ = reply.send(sets.map(JoinSet::len).into_iter().sum());
            }
        }
        Ok(())
    }
}

impl ServerState {
    /// Puts one event to the machine and carries out its commands.
    fn on(&mut self, myself: &ActorRef<ServerMessage>, event: Event) {
        let now = self.epoch.elapsed();
        let mut commands = VecDeque::new();
        match event {
            Event::Tick if self.machine.is_idle_due(now) && !self.shut_unused() => {
                // Calls pass no mailbox, so the machine hears of them when it wants to know: before it acts.
                commands.extend(self.machine.on(Event::CallStarted, now));
                commands.extend(self.machine.on(Event::CallEnded, now));
            }
            Event::Restart | Event::Disable | Event::Drain if *self.machine.state() == State::Ready => {
                commands.extend(self.begin_draining(myself, now));
            }
            _ => {}
        }
        commands.extend(self.machine.on(event, now));
        while let Some(command) = commands.pop_front() {
            match command {
                Command::Connect { generation } => self.connect(myself, generation),
                Command::Close { generation } => {
                    self.close(generation);
                    if self.draining == Some(generation) {
                        // Its calls end with it, whether they have been waited for or not.
                        self.draining = None;
                        commands.extend(self.machine.on(Event::CallEnded, now));
                    }
                }
                Command::WakeAt(at) => self.wake_at(myself, at),
                Command::Announce(transition) => self.announce(transition),
            }
        }
    }

    /// Shuts a connection that is to be closed for want of calls. False where one was made since this was last asked,
    /// or is just being made: that one keeps it open, and whoever comes after finds it shut and asks for another.
    fn shut_unused(&mut self) -> bool {
        let used = self.was_called();
        let Some(current) = &self.current else {
            return true;
        };
        !used && current.connection.gate.shut_if_empty()
    }

    /// From now on no call enters the connection; the machine is told of those that are inside.
    fn begin_draining(&mut self, myself: &ActorRef<ServerMessage>, now: Duration) -> Vec<Command> {
        let Some(current) = &self.current else {
            return Vec::new();
        };
        let connection = Arc::clone(&current.connection);
        connection.gate.shut();
        if connection.gate.inside() == 0 {
            return Vec::new();
        }
        let generation = connection.generation;
        self.draining = Some(generation);
        let actor = myself.clone();
        self.link.spawn(async move {
            connection.gate.emptied().await;
            let _ = actor.send_message(ServerMessage::Drained { generation });
        });
        self.machine.on(Event::CallStarted, now)
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

    fn wake_at(&mut self, myself: &ActorRef<ServerMessage>, at: Duration) {
        self.timer = JoinSet::new();
        // What no clock can tell never comes.
        let Some(at) = self.epoch.checked_add(at) else {
            return;
        };
        let actor = myself.clone();
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
        if let Some(slot) = match to {
            // Published by `publish_ready`, together with its tools.
            State::Ready => None,
            // Published by `publish_draining`: what follows may change while it lasts.
            State::Draining => None,
            // A probe may well fail like those before it: what was said of the parked server still stands.
            State::Connecting if probing => None,
            State::Connecting | State::BackingOff { .. } | State::Idle => Some(Slot::Waiting),
            State::Parked { .. } | State::Disabled | State::Stopped => Some(Slot::Down {
                state: to.name(),
                reason: reason.clone(),
            }),
        } {
            self.arguments.upstream.shared().publish(slot);
        }
        let server = self.arguments.upstream.id().clone();
        tracing::debug!(%server, %from, %to, %reason, "server state");
        let _ = self.arguments.events.send(SupervisorEvent::State {
            server,
            from: from.name(),
            to: to.name(),
            reason,
            pid,
        });
    }

    /// Calls wait for the end of a drain where another connection follows; else there is nothing to wait for.
    fn publish_draining(&self) {
        let slot = match self.machine.comes_back() {
            true => Slot::Waiting,
            false => Slot::Down {
                state: State::Draining.name(),
                reason: "it ends once its calls in flight have".to_owned(),
            },
        };
        self.arguments.upstream.shared().publish(slot);
    }
}

impl Drop for ServerState {
    fn drop(&mut self) {
        // Whoever waits for this server hears that it is not there; a new actor will say more.
        self.arguments.upstream.shared().publish_lost();
    }
}
