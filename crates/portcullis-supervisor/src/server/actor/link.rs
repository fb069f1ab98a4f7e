//! A server's connection: made, watched over and closed.

use std::{sync::Arc, time::Duration};

use portcullis_lifecycle::{Event, Relist, State};
use ractor::ActorRef;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{LIST_QUIET, ServerState};
use crate::{
    connect::{Established, connect},
    http::Complaint,
    server::message::ServerMessage,
};

/// How long the exit of a process may take to be seen after its connection ended.
const EXIT_SEEN: Duration = Duration::from_millis(200);
/// How often the actor hears that the tools changed, at most: a server may say so far more often than the actor can
/// take note of it.
const CHANGES_EVERY: Duration = Duration::from_millis(10);

impl ServerState {
    pub(super) fn connect(&mut self, myself: &ActorRef<ServerMessage>, generation: u64) {
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
            let complaint = Complaint::default();
            let message = match connect(&upstream, generation, era, &around, &complaint).await {
                Ok(established) => ServerMessage::Established {
                    generation,
                    established: Box::new(established),
                },
                Err((error, memory)) => {
                    leave_alone(&actor, generation, &complaint);
                    ServerMessage::ConnectFailed {
                        generation,
                        memory,
                        reason: error.to_string(),
                    }
                }
            };
            let _ = actor.send_message(message);
        }));
    }

    pub(super) fn established(
        &mut self,
        myself: &ActorRef<ServerMessage>,
        generation: u64,
        established: Established,
    ) {
        if generation != self.machine.generation() || *self.machine.state() != State::Connecting {
            // Too late: dropping it ends it.
            return;
        }
        self.era = established.memory;
        self.watch(myself, generation, &established);
        self.version = self.arguments.upstream.shared().next_version();
        self.relist = Relist::new(LIST_QUIET);
        self.calls_seen = 0;
        let tools = Arc::new(established.tools.clone());
        self.current = Some(established);
        let ttl = tools.ttl;
        self.relist(myself, generation, |relist, now| relist.fresh_for(now, ttl));
        // The tools first: whoever hears that the server is ready finds them.
        self.publish_tools(&tools);
        self.on(myself, Event::Connected { generation });
        self.publish_ready(tools);
    }

    /// Watches over a connection: its end, and its tools.
    fn watch(&mut self, myself: &ActorRef<ServerMessage>, generation: u64, established: &Established) {
        let closed = established.connection.closed.clone();
        let (stderr, complaint, ended) = (
            established.stderr.clone(),
            established.complaint.clone(),
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
            if let Some(heard) = complaint.why_ended() {
                reason.push_str(&format!(": {heard}"));
            }
            leave_alone(&actor, generation, &complaint);
            let _ = actor.send_message(ServerMessage::Event(Event::Lost { generation, reason }));
        });
        let (changed, actor) = (Arc::clone(&established.tools_changed), myself.clone());
        self.link.spawn(tell_changes(changed, move || {
            let _ = actor.send_message(ServerMessage::ToolsChanged { generation });
        }));
    }

    pub(super) fn close(&mut self, generation: u64) {
        self.link = JoinSet::new();
        if self
            .current
            .as_ref()
            .is_some_and(|current| current.connection.generation == generation)
        {
            // Ends the connection at once; its process is stopped in the background, and tracked.
            self.current = None;
            self.listing = JoinSet::new();
            self.relist_timer = JoinSet::new();
        }
    }

    pub(super) fn is_current(&self, generation: u64) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.connection.generation == generation)
    }
}

/// Tells the machine how long the server asked to be left alone, where it did.
fn leave_alone(actor: &ActorRef<ServerMessage>, generation: u64, complaint: &Complaint) {
    if let Some(wait) = complaint.left_alone_for() {
        let event = Event::LeaveAlone { generation, wait };
        let _ = actor.send_message(ServerMessage::Event(event));
    }
}

/// Tells of each change, the last one always. Of those that come quickly one after the other, some are told together.
async fn tell_changes(changed: Arc<Notify>, tell: impl Fn()) {
    loop {
        changed.notified().await;
        tell();
        sleep(CHANGES_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A mailbox has no bound: whoever fills it must be slower than its actor.
    #[tokio::test(start_paused = true)]
    async fn a_flood_of_changes_is_a_few_messages_and_the_last_change_is_told() {
        let (changed, told) = (Arc::<Notify>::default(), Arc::<AtomicU32>::default());
        let count = Arc::clone(&told);
        let telling = tokio::spawn(tell_changes(Arc::clone(&changed), move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        for _ in 0..1_000 {
            changed.notify_one();
            sleep(Duration::from_millis(1)).await;
        }
        sleep(CHANGES_EVERY).await;
        let flood = told.load(Ordering::Relaxed);
        assert!((50..=101).contains(&flood), "{flood}");
        changed.notify_one();
        sleep(CHANGES_EVERY).await;
        assert_eq!(told.load(Ordering::Relaxed), flood + 1);
        telling.abort();
    }
}
