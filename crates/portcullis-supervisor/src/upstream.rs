use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use portcullis_config::{ServerSpec, Timeouts};
use portcullis_egress::{EgressCounters, EgressLog};
use portcullis_lifecycle::ServerState;
use portcullis_types::ServerId;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::{Connection, cancelled_by},
    counters::{WireCounters, WireCounts},
    deadline::{CallDeadline, NEVER},
    error::CallFault,
    single::check_arguments,
    strings::RawReply,
    tools::{ToolDefinition, ToolList},
};

/// One server, as callers see it: the way to its current connection, whichever that is. Cheap to clone; it
/// outlives restarts of the server and of its actor.
#[derive(Debug, Clone)]
pub struct Upstream(Arc<Shared>);

/// What callers and the server's actor share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) spec: ServerSpec,
    /// Published by the actor, read by callers without asking it.
    // INVARIANT: what is stopped stays stopped.
    slot: watch::Sender<Slot>,
    /// A call wants the server although it is not ready.
    pub(crate) demand: Notify,
    /// Where the connections of all its lives are counted.
    pub(crate) egress: EgressLog,
    /// Where what was dropped is counted, on all of them.
    pub(crate) wire: Arc<WireCounters>,
    /// The version of the newest listing. Here and not with the actor, so that it grows through all of them.
    listings: AtomicU64,
    /// The newest listing: what is known of its tools while it is away.
    listed: Mutex<Arc<ToolList>>,
    /// One process at a time: who starts one holds the turn until that process is gone.
    pub(crate) turn: Arc<Semaphore>,
}

impl Shared {
    /// Keeps the newest listing.
    pub(crate) fn keep(&self, tools: &Arc<ToolList>) {
        // No code panics while it holds the lock.
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(tools);
    }

    /// Says where the server stands from now on.
    pub(crate) fn publish(&self, slot: Slot) {
        self.slot.send_if_modified(|current| {
            let stopped = current.is_down_as(ServerState::Stopped);
            if !stopped {
                *current = slot;
            }
            !stopped
        });
    }

    /// The server is over: whoever waits hears it at once, and whatever its actor still says is not heard.
    pub(crate) fn publish_stopped(&self, reason: &str) {
        self.publish(Slot::Down {
            state: ServerState::Stopped,
            reason: reason.to_owned(),
        });
    }

    /// Its connection is gone, with the actor that held it; a new one will say more.
    pub(crate) fn publish_lost(&self) {
        if matches!(&*self.slot.borrow(), Slot::Ready(_)) {
            self.publish(Slot::Waiting);
        }
    }

    /// Whether callers were told last that it is down, and in `state`.
    pub(crate) fn is_down_as(&self, state: ServerState) -> bool {
        self.slot.borrow().is_down_as(state)
    }

    /// The version of a listing that has just ended.
    pub(crate) fn next_version(&self) -> u64 {
        self.listings.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Where the server stands for somebody who wants to call it.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    /// Calls go straight through.
    Ready(Ready),
    /// A connection may come: calls wait within their deadline.
    Waiting,
    /// None will come by itself: calls fail at once.
    Down {
        /// The state.
        state: ServerState,
        /// Why.
        reason: String,
    },
}

impl Slot {
    fn is_down_as(&self, expected: ServerState) -> bool {
        matches!(self, Self::Down { state, .. } if *state == expected)
    }
}

/// A connection that takes calls, with the tools that were listed on it.
#[derive(Debug, Clone)]
pub struct Ready {
    pub(crate) connection: Arc<Connection>,
    /// What the server offers.
    pub(crate) tools: Arc<ToolList>,
    /// Grows with each listing.
    pub(crate) version: u64,
}

impl Upstream {
    pub(crate) fn new(mut spec: ServerSpec, egress: EgressLog) -> Self {
        for timeout in [&mut spec.timeouts.connect, &mut spec.timeouts.list] {
            *timeout = NEVER.min(*timeout);
        }
        // A disabled server goes through no change that would be published.
        let slot = if spec.enabled {
            Slot::Waiting
        } else {
            Slot::Down {
                state: ServerState::Disabled,
                reason: "disabled by the configuration".to_owned(),
            }
        };
        let (slot, _) = watch::channel(slot);
        Self(Arc::new(Shared {
            turn: Arc::new(Semaphore::new(1)),
            spec,
            slot,
            demand: Notify::new(),
            egress,
            wire: Arc::default(),
            listings: AtomicU64::new(0),
            listed: Mutex::default(),
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// The server's id.
    #[must_use]
    pub fn id(&self) -> &ServerId {
        &self.0.spec.id
    }

    /// What it was configured to be.
    #[must_use]
    pub fn spec(&self) -> &ServerSpec {
        &self.0.spec
    }

    /// Its deadlines.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        self.0.spec.timeouts
    }

    /// What it offered when it was last asked; nothing before it was. Kept while it is away: where it is idle or
    /// backing off, calls wait for it within their deadline.
    #[must_use]
    pub fn tools(&self) -> Arc<ToolList> {
        Arc::clone(&self.0.listed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What it has done over HTTP so far: requests, connections, refusals. All zero for a child process.
    #[must_use]
    pub fn egress(&self) -> EgressCounters {
        self.0.egress.counters()
    }

    /// What of its output was dropped so far: noise, late replies, and others that nobody could use.
    #[must_use]
    pub fn dropped(&self) -> WireCounts {
        self.0.wire.counts()
    }

    /// Its current connection, with a listing not older than `version`. Waits until `deadline` while one may come;
    /// asking makes an idle server connect, and has a parked one tried again.
    ///
    /// # Errors
    /// [`CallFault::Unavailable`] where none will come, [`CallFault::TimedOut`] where none came.
    pub async fn ready(&self, deadline: Instant, version: u64) -> Result<Ready, CallFault> {
        let began = Instant::now();
        let mut slot = self.0.slot.subscribe();
        loop {
            match &*slot.borrow_and_update() {
                Slot::Ready(ready) if ready.version >= version && !ready.connection.closed.is_cancelled() => {
                    return Ok(ready.clone());
                }
                Slot::Down { state, reason } => {
                    // This call fails at once; a parked server is tried again for those that come after it.
                    self.0.demand.notify_one();
                    return Err(CallFault::Unavailable {
                        state: *state,
                        reason: reason.clone(),
                    });
                }
                // Each time: a connection may have come and gone unseen.
                _ => self.0.demand.notify_one(),
            }
            if timeout_at(deadline, slot.changed()).await.is_err() {
                return Err(CallFault::TimedOut {
                    after: deadline - began,
                    sent: false,
                });
            }
        }
    }
}

impl Upstream {
    /// Calls `tool` with `arguments`, the JSON text of an object, on whichever connection there is or comes within
    /// the deadline. A call of which nothing was sent goes out on the next connection; one that was sent never again.
    ///
    /// # Errors
    /// [`CallFault`], which says whether the server may have acted.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Arc<str>,
        within: CallDeadline,
    ) -> Result<String, CallFault> {
        self.call_on_some_connection(tool, arguments, within, None).await
    }

    /// As [`call`](Self::call), and ends once `cancel` is cancelled: then the server is told, once, where it has seen
    /// the call.
    ///
    /// # Errors
    /// [`CallFault`], which says whether the server may have acted.
    pub async fn call_until_cancelled(
        &self,
        tool: &str,
        arguments: Arc<str>,
        within: CallDeadline,
        cancel: &CancellationToken,
    ) -> Result<String, CallFault> {
        let called = self.call_on_some_connection(tool, arguments, within, Some(cancel));
        if cancel.is_cancelled() {
            return Err(CallFault::Cancelled { sent: false });
        }
        called.await
    }

    async fn call_on_some_connection(
        &self,
        tool: &str,
        arguments: Arc<str>,
        within: CallDeadline,
        cancel: Option<&CancellationToken>,
    ) -> Result<String, CallFault> {
        check_arguments(&arguments)?;
        // After a failure only a newer connection will do, and each has a listing of its own.
        let mut at_least = 0;
        loop {
            let ready = tokio::select! {
                biased;
                () = cancelled_by(cancel) => return Err(CallFault::Cancelled { sent: false }),
                ready = self.ready(within.first(), at_least) => ready?,
            };
            let arguments = Arc::clone(&arguments);
            match ready.connection.call(tool, arguments, within, cancel).await {
                Err(CallFault::NotSent { .. }) if Instant::now() < within.first() => {
                    at_least = ready.version() + 1;
                }
                answer => return whole(answer?, within, cancel).await,
            }
        }
    }
}

impl Ready {
    /// Calls `tool` with `arguments`, the JSON text of an object; gives the JSON text of the result as the server
    /// wrote it. Sent once, and never again by this.
    ///
    /// # Errors
    /// [`CallFault`], which says whether the server may have acted.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Arc<str>,
        deadlines: Timeouts,
    ) -> Result<String, CallFault> {
        let within = CallDeadline::from_now(deadlines);
        let reply = self.call_raw(tool, arguments, within).await?;
        whole(reply, within, None).await
    }

    /// As [`call`](Self::call), for a call that has begun before, and may have waited or been tried already. Where a
    /// [`StringSpool`](crate::StringSpool) was given, strings over 64 KiB come beside the result.
    ///
    /// # Errors
    /// [`CallFault`], which says whether the server may have acted.
    pub fn call_raw<'a>(
        &'a self,
        tool: &'a str,
        arguments: Arc<str>,
        within: CallDeadline,
    ) -> impl Future<Output = Result<RawReply, CallFault>> + Send + 'a {
        self.connection.call(tool, arguments, within, None)
    }

    /// Which listing [`tool`](Self::tool) answers from; grows with each.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The definition of `tool` on this connection.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&ToolDefinition> {
        self.tools.tools.iter().find(|tool| tool.name == name)
    }
}

/// The reply in one text, its long strings in their places. The call that it answers is not over before.
async fn whole(
    reply: RawReply,
    within: CallDeadline,
    cancel: Option<&CancellationToken>,
) -> Result<String, CallFault> {
    if reply.strings.is_empty() {
        return Ok(reply.json);
    }
    let whole = tokio::select! {
        biased;
        () = cancelled_by(cancel) => return Err(CallFault::Cancelled { sent: true }),
        whole = timeout_at(within.end(), reply.whole()) => whole,
    };
    whole
        .map_err(|_| CallFault::TimedOut {
            after: within.cap(),
            sent: true,
        })?
        .map_err(|reason| CallFault::BadReply { reason })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portcullis_config::StdioSpec;

    use super::*;

    /// Who waits sees the last of several changes only.
    #[tokio::test(start_paused = true)]
    async fn who_waits_asks_again_where_a_connection_came_and_went_unseen() {
        let none: [&str; 0] = [];
        let spec = ServerSpec::new("s".parse().unwrap(), StdioSpec::new("/bin/true", none));
        let upstream = Upstream::new(spec, EgressLog::new(|_| {}));
        let waits = upstream.clone();
        let until = Instant::now() + Duration::from_secs(60);
        let waiting = tokio::spawn(async move { waits.ready(until, 0).await });
        for _ in 0..3 {
            let asked = timeout_at(until, upstream.shared().demand.notified());
            asked.await.expect("it asks for a connection");
            upstream.shared().publish(Slot::Waiting);
        }
        upstream.shared().publish_stopped("it is over");
        let fault = waiting.await.unwrap().unwrap_err();
        assert!(
            matches!(
                fault,
                CallFault::Unavailable {
                    state: ServerState::Stopped,
                    ..
                }
            ),
            "{fault:?}"
        );
    }
}
