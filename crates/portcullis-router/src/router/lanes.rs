//! From the supervisor to the router's actor. Each server has a lane of its own: its events stay in order, and while
//! the pins of one are looked up the others' events go on.

use std::collections::BTreeMap;

use portcullis_supervisor::SupervisorEvent;
use portcullis_types::ServerId;
use ractor::ActorRef;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    task::JoinSet,
};

use super::message::RouterMessage;
use crate::pins::Pinning;

/// Passes on all that is heard until nobody is left to say anything; then the actor tells the rest and ends, also
/// where the hub was dropped.
pub(super) async fn forward(
    mut heard: UnboundedReceiver<SupervisorEvent>,
    actor: ActorRef<RouterMessage>,
    pinning: Pinning,
) {
    let mut lanes: BTreeMap<ServerId, UnboundedSender<SupervisorEvent>> = BTreeMap::new();
    let mut running = JoinSet::new();
    while let Some(event) = heard.recv().await {
        let lane = lanes.entry(server_of(&event).clone()).or_insert_with(|| {
            let (lane, events) = unbounded_channel();
            running.spawn(drive(events, actor.clone(), pinning.clone()));
            lane
        });
        let _ = lane.send(event);
    }
    drop(lanes);
    while running.join_next().await.is_some() {}
    let _ = actor.drain();
}

/// Has the catalog published anew whenever other policies take over: what it is asked changed with them.
pub(super) async fn republish(mut swaps: watch::Receiver<u64>, actor: ActorRef<RouterMessage>) {
    while swaps.changed().await.is_ok() {
        let _ = actor.send_message(RouterMessage::PoliciesSwapped);
    }
}

async fn drive(
    mut events: UnboundedReceiver<SupervisorEvent>,
    actor: ActorRef<RouterMessage>,
    pinning: Pinning,
) {
    while let Some(event) = events.recv().await {
        let message = match event {
            SupervisorEvent::Tools {
                server,
                version,
                list,
            } => RouterMessage::Tools {
                looked: pinning.look(&server, &list.tools).await,
                server,
                version,
                list,
            },
            other => RouterMessage::Supervisor(other),
        };
        let _ = actor.send_message(message);
    }
}

fn server_of(event: &SupervisorEvent) -> &ServerId {
    match event {
        SupervisorEvent::State { server, .. }
        | SupervisorEvent::Tools { server, .. }
        | SupervisorEvent::Egress { server, .. } => server,
    }
}
