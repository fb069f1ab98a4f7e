//! From the supervisor to the router's actor. Each server has a lane of its own: its events stay in order, and while
//! the pins of one are looked up the others' events go on.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

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
    let mut lanes: BTreeMap<ServerId, Lane> = BTreeMap::new();
    let mut running = JoinSet::new();
    while let Some(event) = heard.recv().await {
        let lane = lanes.entry(server_of(&event).clone()).or_insert_with(|| {
            let (lane, told) = Lane::new();
            let waiting = Arc::clone(&lane.waiting);
            running.spawn(drive(waiting, told, actor.clone(), pinning.clone()));
            lane
        });
        lane.put(event);
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

/// What one server said and was not passed on yet, in order. One listing at most is among it: a server may list 32 MiB
/// again and again while its pins are looked up, and only what it lists now counts.
struct Lane {
    waiting: Arc<Waiting>,
    /// Told once for each event; the lane ends with it.
    tell: UnboundedSender<()>,
}

type Waiting = Mutex<VecDeque<SupervisorEvent>>;

impl Lane {
    fn new() -> (Self, UnboundedReceiver<()>) {
        let (tell, told) = unbounded_channel();
        let waiting = Arc::default();
        (Self { waiting, tell }, told)
    }

    fn put(&self, event: SupervisorEvent) {
        let is_listing = |event: &SupervisorEvent| matches!(event, SupervisorEvent::Tools { .. });
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if is_listing(&event) {
            waiting.retain(|event| !is_listing(event));
        }
        waiting.push_back(event);
        let _ = self.tell.send(());
    }
}

fn next_of(waiting: &Waiting) -> Option<SupervisorEvent> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

async fn drive(
    waiting: Arc<Waiting>,
    mut told: UnboundedReceiver<()>,
    actor: ActorRef<RouterMessage>,
    pinning: Pinning,
) {
    while told.recv().await.is_some() {
        // None where a newer listing took its place.
        let Some(event) = next_of(&waiting) else {
            continue;
        };
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

#[cfg(test)]
mod tests {
    use portcullis_supervisor::{ServerState, ToolList};

    use super::*;

    #[test]
    fn of_listings_only_the_newest_waits_and_all_else_stays_in_order() {
        let (lane, mut told) = Lane::new();
        let server: ServerId = "s".parse().unwrap();
        let list = Arc::new(ToolList::default());
        let state = |to| SupervisorEvent::State {
            server: server.clone(),
            from: ServerState::Connecting,
            to,
            reason: String::new(),
            pid: None,
        };
        lane.put(state(ServerState::Ready));
        for version in 1..=100 {
            lane.put(SupervisorEvent::Tools {
                server: server.clone(),
                version,
                list: Arc::clone(&list),
            });
        }
        lane.put(state(ServerState::Idle));
        assert_eq!(Arc::strong_count(&list), 2);
        let mut seen = Vec::new();
        while told.try_recv().is_ok() {
            seen.extend(next_of(&lane.waiting).map(|event| match event {
                SupervisorEvent::State { to, .. } => to.to_string(),
                SupervisorEvent::Tools { version, .. } => version.to_string(),
                SupervisorEvent::Egress { .. } => "egress".to_owned(),
            }));
        }
        assert_eq!(seen, ["ready", "100", "idle"]);
    }
}
