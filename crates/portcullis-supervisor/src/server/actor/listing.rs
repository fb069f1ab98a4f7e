//! A server's tools: when they are listed anew, and who is told of them.

use std::{sync::Arc, time::Duration};

use portcullis_lifecycle::{Event, Relist, Relisting, State};
use ractor::ActorRef;
use tokio::{task::JoinSet, time::sleep_until};

use super::ServerState;
use crate::{
    connect::shown,
    events::SupervisorEvent,
    server::message::ServerMessage,
    tools::{ToolList, list_tools},
    upstream::{Ready, Slot},
};

impl ServerState {
    /// Puts what happened to the tools of the current connection to the pure machine, and does what it says.
    pub(super) fn relist(
        &mut self,
        myself: &ActorRef<ServerMessage>,
        generation: u64,
        happened: impl FnOnce(&mut Relist, Duration) -> Vec<Relisting>,
    ) {
        if !self.is_current(generation) {
            return;
        }
        for command in happened(&mut self.relist, self.epoch.elapsed()) {
            match command {
                Relisting::List => self.list(myself, generation),
                Relisting::WakeAt(at) => {
                    let (actor, at) = (myself.clone(), self.epoch + at);
                    self.relist_timer = JoinSet::new();
                    self.relist_timer.spawn(async move {
                        sleep_until(at).await;
                        let _ = actor.send_message(ServerMessage::ListDue { generation });
                    });
                }
            }
        }
    }

    fn list(&mut self, myself: &ActorRef<ServerMessage>, generation: u64) {
        let Some(current) = &self.current else { return };
        let peer = current.connection.peer.clone();
        let upstream = self.arguments.upstream.clone();
        let params = current.params.clone();
        let (stderr, complaint) = (current.stderr.clone(), current.complaint.clone());
        let actor = myself.clone();
        self.listing = JoinSet::new();
        self.listing.spawn(async move {
            let result = list_tools(&peer, upstream.spec(), params.as_deref()).await;
            let broken = result.as_ref().err().filter(|error| error.ends_the_connection());
            let message = match broken {
                Some(error) => ServerMessage::Event(Event::Lost {
                    generation,
                    reason: error.to_string(),
                }),
                None => ServerMessage::Listed {
                    generation,
                    result: result.map_err(|error| error.told(|said| shown(said, &stderr, &complaint))),
                },
            };
            let _ = actor.send_message(message);
        });
    }

    pub(super) fn listed(
        &mut self,
        myself: &ActorRef<ServerMessage>,
        generation: u64,
        result: Result<ToolList, String>,
    ) {
        if !self.is_current(generation) {
            return;
        }
        let (well, ttl) = match result {
            Ok(list) => {
                self.version = self.arguments.upstream.shared().next_version();
                let (ttl, tools) = (list.ttl, Arc::new(list));
                self.publish_tools(&tools);
                self.publish_ready(tools);
                (true, ttl)
            }
            // The tools that were known stay.
            Err(error) => {
                tracing::warn!(server = %self.arguments.upstream.id(), %error, "a new listing failed");
                (false, None)
            }
        };
        self.relist(myself, generation, |relist, now| relist.listed(now, well, ttl));
    }

    pub(super) fn publish_tools(&self, tools: &Arc<ToolList>) {
        self.arguments.upstream.shared().keep(tools);
        let _ = self.arguments.events.send(SupervisorEvent::Tools {
            server: self.arguments.upstream.id().clone(),
            version: self.version,
            list: Arc::clone(tools),
        });
    }

    pub(super) fn publish_ready(&self, tools: Arc<ToolList>) {
        if let (Some(current), State::Ready) = (&self.current, self.machine.state()) {
            let connection = Arc::clone(&current.connection);
            let ready = Ready {
                connection,
                tools,
                version: self.version,
            };
            self.arguments.upstream.shared().publish(Slot::Ready(ready));
        }
    }
}
