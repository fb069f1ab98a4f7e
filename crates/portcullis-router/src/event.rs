mod word;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use portcullis_egress::{EgressOutcome, EgressRecord, RefusalCode};
use portcullis_policy::Explanation;
use portcullis_supervisor::ServerState;
use portcullis_types::{AgentId, CapabilityId, Hash, PolicyRef, ServerId, Tier};
use serde::{Serialize, Serializer};
use tokio::sync::broadcast;

pub use self::word::{
    AnsweredBy, ApprovalAnswer, CallEnd, ConnectionOutcome, DecidedBy, ElicitationAnswer, ElicitationMode,
    PinChange, ReloadOutcome,
};

use crate::{
    catalog::Unlisted,
    clock,
    shape::{BlobInfo, ShapeFlags},
};

/// How many events a slow listener may fall behind before it misses some, and is told so.
const BACKLOG: usize = 4_096;

/// One event, as it is told: one line of JSON.
#[derive(Debug, Clone, Serialize)]
pub struct EventRecord {
    /// Counts from 1 in each hub, without gaps.
    pub seq: u64,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What happens in a hub. Closed: the names are stable. Arguments and results never stand in it, hashes and
/// references do.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all_fields = "snake_case")]
pub enum Event {
    /// A server's state changed.
    #[serde(rename = "server.state")]
    ServerState {
        /// Which server.
        server: ServerId,
        /// The state before.
        from: ServerState,
        /// The state now.
        to: ServerState,
        /// Why.
        reason: String,
        /// Its process, where it is a child that is up.
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
    },
    /// The catalog has a new snapshot.
    #[serde(rename = "catalog.changed")]
    CatalogChanged {
        /// How many tools it offers.
        tools: usize,
        /// Which tools the configuration restricts that are not among those of their server.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        unlisted: Vec<Unlisted>,
        /// What was dropped while listing, and why, each with its server's id in front.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        reports: Vec<String>,
    },
    /// The decision point answered.
    #[serde(rename = "permission")]
    Permission {
        /// Which call; all events of one call share it.
        call: u64,
        /// What is to be called.
        capability: CapabilityId,
        /// Who calls.
        agent: AgentId,
        /// In which tier.
        tier: Tier,
        /// blake3 over the arguments' text.
        arguments_hash: Hash,
        /// The answer and its reasons, as `portcullis policy explain --format json` tells them.
        decision: Box<Explanation>,
        /// Which policies were in force.
        policy_digest: Hash,
        /// Who decided.
        by: DecidedBy,
    },
    /// Somebody was asked.
    #[serde(rename = "approval")]
    Approval {
        /// Which call.
        call: u64,
        /// What is to be called.
        capability: CapabilityId,
        /// What came of it.
        answer: ApprovalAnswer,
        /// Who answered.
        by: AnsweredBy,
        /// The person's name.
        #[serde(skip_serializing_if = "Option::is_none")]
        person: Option<String>,
        /// Until when the same call runs without a question, in milliseconds since the Unix epoch.
        #[serde(skip_serializing_if = "Option::is_none")]
        holds_until_ms: Option<i64>,
        /// The file of the policy that was written.
        #[serde(skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
        /// Why the question was over before anybody answered it; or why the answer is not kept, may be kept yet, or, with
        /// `policy`, may not outlast a power cut. The call itself is approved all the same, by the policies that asked.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The folder of policies was read again.
    #[serde(rename = "policy.reload")]
    PolicyReload {
        /// What became of it.
        outcome: ReloadOutcome,
        /// Which policies are in force now.
        policy_digest: Hash,
        /// Which were before.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<Hash>,
        /// Policies that forbid and are gone, by their places in the old texts.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        no_longer_forbidden: Vec<PolicyRef>,
        /// What is wrong, a sentence each.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        errors: Vec<String>,
    },
    /// Tools, or what their server is started with, were compared with what was trusted.
    #[serde(rename = "pin")]
    Pin {
        /// Which server.
        server: ServerId,
        /// How they stand.
        state: PinChange,
        /// Which, and what they are.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pins: Vec<PinnedTool>,
        /// Why it cannot be told.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A call goes to its server.
    #[serde(rename = "tool.call")]
    ToolCall {
        /// Which call.
        call: u64,
        /// What is called.
        capability: CapabilityId,
        /// blake3 over the arguments' text.
        arguments_hash: Hash,
    },
    /// A call ended.
    #[serde(rename = "tool.result")]
    ToolResult {
        /// Which call.
        call: u64,
        /// What was called.
        capability: CapabilityId,
        /// How.
        outcome: CallEnd,
        /// What went wrong, for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// From the call's arrival to its end.
        duration_ms: u64,
        /// The size of the result after binary content was replaced.
        size_bytes: usize,
        /// What went to the store.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        blobs: Vec<BlobInfo>,
        /// What a reader should know before trusting the text: hidden characters, references that are not ours,
        /// what had to be repaired. Left out where there is nothing to say.
        #[serde(skip_serializing_if = "ShapeFlags::is_clear")]
        flags: ShapeFlags,
    },
    /// A connection to a server over HTTP was allowed, refused, or did not come to be.
    #[serde(rename = "egress")]
    Egress {
        /// Which server's.
        server: ServerId,
        /// `scheme://host:port`.
        target: String,
        /// What became of it.
        outcome: ConnectionOutcome,
        /// The rule that allowed it.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// The address of the connection, or the one that was refused.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<IpAddr>,
        /// The proxy that it went through, as `scheme://host:port`; the address is the proxy's then.
        #[serde(skip_serializing_if = "Option::is_none")]
        proxy: Option<String>,
        /// The code of the refusal, as docs/egress.md lists them.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "refusal_code")]
        code: Option<RefusalCode>,
        /// Why it was refused or failed, for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A server asked the user something.
    #[serde(rename = "elicitation")]
    Elicitation {
        /// Which server.
        server: ServerId,
        /// In which way.
        mode: ElicitationMode,
        /// How it ended.
        answer: ElicitationAnswer,
    },
}

/// A pin, as events name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PinnedTool {
    /// The tool's name; none where it is what the server is started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The hash of what was seen.
    pub hash: Hash,
    /// The hash of what was trusted, where that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<Hash>,
}

impl Event {
    /// What a server's HTTP client tells.
    pub(crate) fn egress(server: ServerId, record: EgressRecord) -> Self {
        let (outcome, code, reason) = match record.outcome {
            EgressOutcome::Allowed => (ConnectionOutcome::Allowed, None, None),
            EgressOutcome::Refused(refusal) => {
                let why = refusal.to_string();
                (ConnectionOutcome::Refused, Some(refusal.kind()), Some(why))
            }
            EgressOutcome::Failed(why) => (ConnectionOutcome::Failed, None, Some(why)),
        };
        Self::Egress {
            server,
            target: record.target,
            outcome,
            rule: record.rule,
            address: record.address,
            proxy: record.proxy,
            code,
            reason,
        }
    }
}

fn refusal_code<S: Serializer>(code: &Option<RefusalCode>, serializer: S) -> Result<S::Ok, S::Error> {
    code.map(RefusalCode::as_str).serialize(serializer)
}

/// Where events go. Cheap to clone; telling never waits.
#[derive(Debug, Clone)]
pub struct EventBus {
    /// The number of the last event.
    // INVARIANT: held while an event is handed to the listeners, so that all of them hear in the order of the numbers.
    seq: Arc<Mutex<u64>>,
    listeners: broadcast::Sender<Arc<EventRecord>>,
}

impl Default for EventBus {
    fn default() -> Self {
        Self {
            seq: Arc::default(),
            listeners: broadcast::channel(BACKLOG).0,
        }
    }
}

impl EventBus {
    /// A listener for all events from now on.
    #[must_use]
    pub fn listen(&self) -> EventStream {
        EventStream(self.listeners.subscribe())
    }

    pub(crate) fn tell(&self, event: Event) {
        let mut last = self.seq.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        // Nobody listening is no failure.
        let _ = self.listeners.send(Arc::new(EventRecord {
            seq: *last,
            at_ms: clock::unix_ms(),
            event,
        }));
    }
}

/// The events of a hub, in order.
#[derive(Debug)]
pub struct EventStream(broadcast::Receiver<Arc<EventRecord>>);

impl EventStream {
    /// The next event, or `None` once the hub is gone. A listener that fell too far behind goes on with the
    /// oldest event that is still there: the gap shows in `seq`.
    pub async fn next(&mut self) -> Option<Arc<EventRecord>> {
        loop {
            match self.0.recv().await {
                Ok(record) => return Some(record),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "a listener fell behind and missed events");
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// The next event that has already happened, without waiting.
    pub fn try_next(&mut self) -> Option<Arc<EventRecord>> {
        loop {
            match self.0.try_recv() {
                Ok(record) => return Some(record),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
