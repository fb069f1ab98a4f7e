use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use portcullis_lifecycle::ServerState;
use portcullis_types::ServerId;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent, call_t};

use super::message::RootMessage;
use crate::server::{ServerActor, ServerArguments, ServerMessage};

/// How long after its actor failed a server is given a new one.
const RESPAWN_AFTER: Duration = Duration::from_millis(200);
/// How long one server's actor may take to take note of a stop, in milliseconds.
const STOP_NOTE_MS: u64 = 1_000;

pub(crate) struct RootActor;

pub(crate) struct RootState {
    arguments: BTreeMap<ServerId, ServerArguments>,
    running: HashMap<ActorId, (ServerId, ActorRef<ServerMessage>)>,
    stopping: bool,
}

impl Actor for RootActor {
    type Msg = RootMessage;
    type State = RootState;
    type Arguments = Vec<ServerArguments>;

    async fn pre_start(
        &self,
        myself: ActorRef<RootMessage>,
        servers: Vec<ServerArguments>,
    ) -> Result<RootState, ActorProcessingErr> {
        let arguments: BTreeMap<_, _> = servers
            .into_iter()
            .map(|server| (server.upstream.id().clone(), server))
            .collect();
        for id in arguments.keys() {
            myself.send_message(RootMessage::Start(id.clone()))?;
        }
        Ok(RootState {
            arguments,
            running: HashMap::new(),
            stopping: false,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<RootMessage>,
        message: RootMessage,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RootMessage::Start(id) => state.start(&myself, &id).await,
            RootMessage::Stop(reply) => {
                state.stopping = true;
                let servers: Vec<_> = state.running.values().map(|(_, actor)| actor.clone()).collect();
                // Told side by side, outside this handler: one that is slow holds up nobody.
                tokio::spawn(async move {
                    let told = servers.iter().map(|actor| async move {
                        let _ = call_t!(actor, ServerMessage::Stop, STOP_NOTE_MS);
                        actor.stop(None);
                    });
                    futures::future::join_all(told).await;
                    let _ = reply.send(());
                });
            }
            RootMessage::Order(id, order) => {
                if let Some(arguments) = state.arguments.get_mut(&id) {
                    arguments.desired = arguments.desired.after(order);
                }
                state.forward(&id, ServerMessage::Order(order));
            }
            #[cfg(test)]
            RootMessage::Forward(id, message) => state.forward(&id, message),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<RootMessage>,
        event: SupervisionEvent,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                if let Some((id, _)) = state.running.remove(&cell.get_id()) {
                    tracing::error!(server = %id, %error, "a server's actor failed; unless the server has ended it gets a new one");
                    myself.send_after(RESPAWN_AFTER, move || RootMessage::Start(id));
                }
            }
            SupervisionEvent::ActorTerminated(cell, ..) => {
                state.running.remove(&cell.get_id());
            }
            _ => {}
        }
        Ok(())
    }
}

impl Drop for RootState {
    fn drop(&mut self) {
        // However the root ends, nobody starts its servers again.
        for server in self.arguments.values() {
            server.upstream.shared().publish_stopped("its hub is gone");
        }
    }
}

impl RootState {
    /// Passes `message` on. Where the actor just fails, or has, what lasts of an order is in its successor's arguments.
    fn forward(&self, id: &ServerId, message: ServerMessage) {
        if let Some((_, actor)) = self.running.values().find(|(server, _)| server == id) {
            let _ = actor.send_message(message);
        }
    }

    async fn start(&mut self, myself: &ActorRef<RootMessage>, id: &ServerId) {
        let Some(arguments) = self.arguments.get(id) else {
            return;
        };
        if self.stopping || arguments.upstream.shared().is_down_as(ServerState::Stopped) {
            return;
        }
        // A server's `pre_start` touches neither network nor processes, so this wait is short. Never a name: the
        // registry is global to the process, and two hubs would collide in it.
        match Actor::spawn_linked(None, ServerActor, arguments.clone(), myself.get_cell()).await {
            Ok((actor, _)) => {
                self.running.insert(actor.get_id(), (id.clone(), actor));
            }
            Err(error) => {
                tracing::error!(server = %id, %error, "a server's actor could not be started; trying again");
                let id = id.clone();
                myself.send_after(RESPAWN_AFTER, move || RootMessage::Start(id));
            }
        }
    }
}
