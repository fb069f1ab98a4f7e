use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use portcullis_config::{ServerSpec, Timeouts};
use portcullis_egress::{EgressCounters, EgressLog};
use portcullis_types::ServerId;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};

use crate::{
    connection::Connection,
    error::CallFault,
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
    pub(crate) slot: watch::Sender<Slot>,
    /// A call wants the server although it is not ready.
    pub(crate) demand: Notify,
    /// Where the connections of all its lives are counted.
    pub(crate) egress: EgressLog,
    /// The version of the newest listing. Here and not with the actor, so that it grows through all of them.
    listings: AtomicU64,
}

impl Shared {
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
        /// The state, as events name it.
        state: &'static str,
        /// Why.
        reason: String,
    },
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
    pub(crate) fn new(spec: ServerSpec, egress: EgressLog) -> Self {
        // A disabled server goes through no change that would be published.
        let slot = if spec.enabled {
            Slot::Waiting
        } else {
            Slot::Down {
                state: "disabled",
                reason: "disabled by the configuration".to_owned(),
            }
        };
        let (slot, _) = watch::channel(slot);
        Self(Arc::new(Shared {
            spec,
            slot,
            demand: Notify::new(),
            egress,
            listings: AtomicU64::new(0),
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

    /// What it has done over HTTP so far: requests, connections, refusals. All zero for a child process.
    #[must_use]
    pub fn egress(&self) -> EgressCounters {
        self.0.egress.counters()
    }

    /// Its current connection, with a listing not older than `version`. Waits until `deadline` while one may come;
    /// asking makes an idle server connect, and has a parked one tried again.
    ///
    /// # Errors
    /// [`CallFault::Unavailable`] where none will come, [`CallFault::TimedOut`] where none came.
    pub async fn ready(&self, deadline: Instant, version: u64) -> Result<Ready, CallFault> {
        let began = Instant::now();
        let mut slot = self.0.slot.subscribe();
        let mut asked = false;
        loop {
            match &*slot.borrow_and_update() {
                Slot::Ready(ready) if ready.version >= version && !ready.connection.closed.is_cancelled() => {
                    return Ok(ready.clone());
                }
                Slot::Down { state, reason } => {
                    // This call fails at once; a parked server is tried again for those that come after it.
                    self.0.demand.notify_one();
                    return Err(CallFault::Unavailable {
                        state,
                        reason: reason.clone(),
                    });
                }
                _ if !asked => {
                    self.0.demand.notify_one();
                    asked = true;
                }
                _ => {}
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
        let reply = self.call_raw(tool, arguments, deadlines).await?;
        reply
            .whole()
            .await
            .map_err(|reason| CallFault::BadReply { reason })
    }

    /// The same, for who gave a [`StringSpool`](crate::StringSpool): strings over 64 KiB come beside the result.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_raw(
        &self,
        tool: &str,
        arguments: Arc<str>,
        deadlines: Timeouts,
    ) -> Result<RawReply, CallFault> {
        self.connection.call(tool, arguments, deadlines).await
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
