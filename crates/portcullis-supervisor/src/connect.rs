//! From a spec to a live connection: resolve, spawn or reach, shake hands, list tools, each with its deadline.

mod era;
mod handshake;
mod process;
mod watched;

use std::{fmt, future::ready, path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;

use portcullis_config::{Sources, TransportSpec};
use portcullis_egress::EgressRules;
use thiserror::Error;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit},
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    asking::Asking,
    connection::Connection,
    elicitation::ElicitationResponder,
    environment::{SpawnPlan, UnresolvedField},
    error::seconds,
    http::{Complaint, HttpError, HttpTerms, ParamCache, connect_http},
    service::ClientService,
    spawn::{ProcessHandle, Spawner, StopSequence},
    stderr::StderrRing,
    strings::StringSpool,
    tools::ToolList,
    transport::StdioTransport,
    upstream::Upstream,
};
pub(crate) use era::{Era, EraMemory};
pub(crate) use handshake::shown;
use handshake::{Handshake, Link};
pub(crate) use process::longest_turn;
use process::{close_when_it_ends, spawn, turn};
use watched::Watched;

/// How long the newer era's `server/discover` may take before the older handshake is tried. The SDK's own probe
/// has a fixed 10 s.
const DISCOVER_WAIT: Duration = Duration::from_secs(2);

/// What every connection of a hub shares.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) spawner: Arc<dyn Spawner>,
    pub(crate) sources: Arc<dyn Sources + Send + Sync>,
    pub(crate) elicitation: Option<Arc<dyn ElicitationResponder>>,
    pub(crate) stop: StopSequence,
    /// What holds for every server, beside its own rules.
    pub(crate) egress: Option<EgressRules>,
    /// Who takes the long strings of results; of each server its own [share](StringSpool::share).
    pub(crate) spool: Option<Arc<dyn StringSpool>>,
    /// Holds a task for each child that is not gone yet, and for each attempt to connect.
    pub(crate) children: TaskTracker,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("spawner", &self.spawner)
            .finish_non_exhaustive()
    }
}

/// A connection that shook hands and listed its tools. Dropped, it ends: its process too.
pub(crate) struct Established {
    pub(crate) connection: Arc<Connection>,
    pub(crate) tools: ToolList,
    pub(crate) tools_changed: Arc<Notify>,
    /// What the next connection is to know.
    pub(crate) memory: EraMemory,
    pub(crate) process: Option<ProcessHandle>,
    pub(crate) stderr: StderrRing,
    /// What the HTTP client last heard that was no answer.
    pub(crate) complaint: Complaint,
    /// Who is to be told which arguments go into headers; none where none do.
    pub(crate) params: Option<Arc<ParamCache>>,
}

impl Drop for Established {
    fn drop(&mut self) {
        self.connection.gate.shut();
        self.connection.closed.cancel();
    }
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Unresolved(#[from] UnresolvedField),
    #[error("{0}")]
    Spawn(std::io::Error),
    #[error(
        "cannot start `{}`: it is no absolute path; install it where its definition looks for it, or write its whole path",
        .0.display()
    )]
    NotAbsolute(PathBuf),
    #[error("its process before this one is still there {} after it was told to stop", seconds(*.0))]
    StillThere(Duration),
    #[error("{0}")]
    Http(HttpError),
    #[error("the handshake took over {}{}", seconds(*.after), said(.stderr))]
    TimedOut { after: Duration, stderr: Option<String> },
    #[error("the handshake failed: {reason}{}", said(.stderr))]
    Handshake { reason: String, stderr: Option<String> },
    #[error("{reason}{}", .heard.as_ref().map(|heard| format!(": {heard}")).unwrap_or_default())]
    List { reason: String, heard: Option<String> },
}

fn said(stderr: &Option<String>) -> String {
    stderr
        .as_ref()
        .map(|line| format!("; it wrote `{line}`"))
        .unwrap_or_default()
}

/// Connects to a server. `memory` is what earlier connections told, the error's other half what is to be remembered
/// after this one. `complaint` is where
/// the HTTP client says what it hears that is no answer.
pub(crate) async fn connect(
    upstream: &Upstream,
    generation: u64,
    memory: EraMemory,
    around: &Surroundings,
    complaint: &Complaint,
) -> Result<Established, (ConnectError, EraMemory)> {
    let spec = upstream.spec();
    let mut deadline = Instant::now() + spec.timeouts.connect;
    let attempts = memory.attempts(spec.protocol);
    let mut silent = false;
    let mut failure = None;
    for (at, era) in attempts.iter().enumerate() {
        let before = Instant::now();
        let turn = match turn(upstream, around).await {
            Ok(turn) => turn,
            Err(error) => return Err((error, memory)),
        };
        // The end of the process before takes nothing off this one's time.
        deadline += before.elapsed();
        let last = at + 1 == attempts.len();
        let until = if last {
            deadline
        } else {
            deadline.min(Instant::now() + DISCOVER_WAIT.min(spec.timeouts.connect / 2))
        };
        complaint.begin();
        match attempt(upstream, generation, *era, until, around, turn, complaint.clone()).await {
            Ok(mut established) => {
                established.memory = memory.came_up(*era, silent);
                return Ok(established);
            }
            // What no other handshake can mend.
            Err(
                error @ (ConnectError::Unresolved(_)
                | ConnectError::Spawn(_)
                | ConnectError::NotAbsolute(_)
                | ConnectError::StillThere(_)
                | ConnectError::List { .. }),
            ) => return Err((error, EraMemory::default())),
            Err(error) => {
                silent |= !last && matches!(error, ConnectError::TimedOut { .. });
                failure = Some(error);
            }
        }
    }
    let failure = failure.unwrap_or(ConnectError::TimedOut {
        after: spec.timeouts.connect,
        stderr: None,
    });
    let memory = memory.failed(silent, &failure);
    Err((failure, memory))
}

/// One fresh connection with one handshake. Boxed: the compiler cannot see that the future is `Send` for every
/// lifetime of what it borrows otherwise.
fn attempt<'a>(
    upstream: &'a Upstream,
    generation: u64,
    era: Era,
    until: Instant,
    around: &'a Surroundings,
    turn: Option<OwnedSemaphorePermit>,
    complaint: Complaint,
) -> BoxFuture<'a, Result<Established, ConnectError>> {
    let spec = upstream.spec();
    let closed = CancellationToken::new();
    let client = ClientService {
        server: spec.id.clone(),
        asking: Arc::new(Asking::new(around.elicitation.clone())),
        progress: Arc::default(),
        tools_changed: Arc::default(),
        closed: closed.clone(),
    };
    let begun = Instant::now();
    let handshake = Handshake {
        begun,
        generation,
        era,
        until,
        upstream: upstream.clone(),
        client,
    };
    let patience = spec.timeouts.connect.max(spec.timeouts.list);
    match &spec.transport {
        TransportSpec::Stdio(stdio) => Box::pin(async move {
            let plan = SpawnPlan::resolve(stdio, around.sources.as_ref()).map(|mut plan| {
                plan.limits = spec.limits.process;
                plan
            });
            let Ok(spawned) = timeout_at(until, spawn(plan?, around, turn)).await else {
                return Err(ConnectError::TimedOut {
                    after: until - begun,
                    stderr: None,
                });
            };
            let (spawned, secrets) = spawned?;
            let stderr = StderrRing::drain(spawned.stderr, secrets, spawned.process.watch());
            close_when_it_ends(&spawned.process, closed.clone());
            let counters = Arc::clone(&upstream.shared().wire);
            let transport = StdioTransport::new(spawned.stdout, spawned.stdin, counters, closed.clone())
                .with_spool(around.spool.clone())
                .with_secrets_of(stderr.clone())
                .with_patience(patience);
            let link = Link {
                closed,
                process: Some(spawned.process),
                stderr,
                complaint,
                params: None,
            };
            let shaking: BoxFuture<'static, _> = Box::pin(handshake.shake(transport, link));
            shaking.await
        }),
        TransportSpec::Http(http) => {
            let params = Arc::<ParamCache>::default();
            let terms = HttpTerms {
                hub: around.egress.clone(),
                log: upstream.shared().egress.clone(),
                closed: closed.clone(),
                tools_changed: Arc::clone(&handshake.client.tools_changed),
                calls_in_flight: usize::try_from(spec.limits.calls_in_flight).unwrap_or(usize::MAX),
                patience,
                complaint: complaint.clone(),
                spool: around.spool.clone(),
                counters: Arc::clone(&upstream.shared().wire),
                params: Arc::clone(&params),
            };
            match connect_http(http, around.sources.as_ref(), terms) {
                Ok(transport) => {
                    let transport = Watched::new(transport, closed.clone(), complaint.clone());
                    let link = Link {
                        closed,
                        process: None,
                        stderr: StderrRing::default(),
                        complaint,
                        params: Some(params),
                    };
                    Box::pin(handshake.shake(transport, link))
                }
                Err(error) => Box::pin(ready(Err(ConnectError::Http(error)))),
            }
        }
    }
}
