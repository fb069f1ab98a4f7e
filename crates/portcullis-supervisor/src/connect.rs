//! From a spec to a live connection: resolve, spawn or reach, shake hands, list tools, each with its deadline.

mod watched;

use std::{fmt, future::ready, path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;

use portcullis_config::{Protocol, Sources, TransportSpec};
use portcullis_egress::EgressRules;
use rmcp::{
    RoleClient,
    model::ProtocolVersion,
    service::{ClientInitializeError, ClientLifecycleMode, serve_client_with_lifecycle_and_ct},
    transport::Transport,
};
use secrecy::SecretString;
use thiserror::Error;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    asking::Asking,
    connection::Connection,
    elicitation::ElicitationResponder,
    environment::{SpawnPlan, UnresolvedField},
    gate::Gate,
    http::{Complaint, HttpError, HttpTerms, ParamCache, connect_http},
    listen::watch_tools,
    service::ClientService,
    spawn::{ProcessHandle, SpawnedProcess, Spawner, StopSequence},
    stderr::StderrRing,
    strings::StringSpool,
    tools::{ToolList, list_tools},
    transport::{OUTPUT_CLOSED, StdioTransport},
    upstream::Upstream,
};
use watched::Watched;

/// How long the newer era's `server/discover` may take before the older handshake is tried. The SDK's own probe
/// has a fixed 10 s.
const DISCOVER_WAIT: Duration = Duration::from_secs(2);

/// How long what a child wrote before its end may take to be read from a pipe that something else holds open.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// How long after its stop sequence a process may take to be gone.
const DEATH_WAIT: Duration = Duration::from_secs(6);

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

/// Which handshake a server was found to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2026-07-28: `server/discover`.
    Modern,
    /// Up to 2025-11-25: `initialize`.
    Legacy,
}

/// What earlier connections told of the handshake that a server speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EraMemory {
    known: Option<Era>,
    /// Connections in a row that came up in the older era after the newer one's question was left unanswered: once
    /// may be a slow start, twice is how the server is.
    silences: u8,
    /// The server was slow to answer the newer era's question and refuses the older handshake: the question is put
    /// once more, with all the time that there is.
    patient: bool,
}

impl EraMemory {
    fn attempts(self, protocol: Protocol) -> &'static [Era] {
        match (protocol, self.known) {
            (Protocol::Modern, _) => &[Era::Modern],
            (Protocol::Initialize, _) | (Protocol::Auto, Some(Era::Legacy)) => &[Era::Legacy],
            (Protocol::Auto, _) if self.patient => &[Era::Modern],
            (Protocol::Auto, _) => &[Era::Modern, Era::Legacy],
        }
    }

    /// What is remembered after a connection of `era`; `silent` says that the newer era's question went unanswered.
    fn came_up(self, era: Era, silent: bool) -> Self {
        let silences = if silent {
            self.silences.saturating_add(1)
        } else {
            0
        };
        Self {
            known: (!silent || silences > 1).then_some(era),
            silences,
            // It was slow, and will be again.
            patient: self.patient && era == Era::Modern,
        }
    }

    /// What is remembered after a connection that failed: nothing, since the server may be another one by now.
    fn failed(self, silent: bool, error: &ConnectError) -> Self {
        Self {
            patient: silent && !self.patient && matches!(error, ConnectError::Handshake { .. }),
            ..Self::default()
        }
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
    #[error("its process before this one is still there {} s after it was told to stop", .0.as_secs_f64())]
    StillThere(Duration),
    #[error("{0}")]
    Http(HttpError),
    #[error("the handshake took over {} s{}", .after.as_secs_f64(), said(.stderr))]
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

/// The turn to start this server's process: it comes when the one before is gone with all that the hub can see of it.
/// None for a server that is no process.
async fn turn(
    upstream: &Upstream,
    around: &Surroundings,
) -> Result<Option<OwnedSemaphorePermit>, ConnectError> {
    if matches!(upstream.spec().transport, TransportSpec::Http(_)) {
        return Ok(None);
    }
    let most = around.stop.after_eof + around.stop.after_term + DEATH_WAIT;
    let turns = Arc::clone(&upstream.shared().turn);
    match timeout(most, turns.acquire_owned()).await {
        Ok(turn) => Ok(turn.ok()),
        Err(_) => Err(ConnectError::StillThere(most)),
    }
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
    match &spec.transport {
        TransportSpec::Stdio(stdio) => Box::pin(async move {
            let plan = SpawnPlan::resolve(stdio, around.sources.as_ref()).map(|mut plan| {
                plan.limits = spec.limits.process;
                plan
            });
            let Ok(spawned) = timeout_at(until, spawn(plan?, around, turn)).await else {
                return Err(ConnectError::TimedOut {
                    after: in_millis(until - begun),
                    stderr: None,
                });
            };
            let (spawned, secrets) = spawned?;
            let stderr = StderrRing::drain(spawned.stderr, secrets, spawned.process.watch());
            close_when_it_ends(&spawned.process, closed.clone());
            let counters = Arc::clone(&upstream.shared().wire);
            let transport = StdioTransport::new(spawned.stdout, spawned.stdin, counters, closed.clone())
                .with_spool(around.spool.clone());
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
                patience: spec.timeouts.connect.max(spec.timeouts.list),
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

/// The time that was given, without the moment that passed before it was counted.
fn in_millis(given: Duration) -> Duration {
    Duration::from_millis((given.as_secs_f64() * 1e3).round() as u64)
}

/// What comes with a transport.
struct Link {
    closed: CancellationToken,
    process: Option<ProcessHandle>,
    stderr: StderrRing,
    /// What the HTTP client last heard that was no answer.
    complaint: Complaint,
    /// Over HTTP, who puts arguments into headers.
    params: Option<Arc<ParamCache>>,
}

/// What a handshake is made with.
struct Handshake {
    begun: Instant,
    generation: u64,
    era: Era,
    until: Instant,
    upstream: Upstream,
    client: ClientService,
}

impl Handshake {
    async fn shake<T: Transport<RoleClient> + 'static>(
        self,
        transport: T,
        link: Link,
    ) -> Result<Established, ConnectError> {
        let (server, asking) = (self.client.server.clone(), Arc::clone(&self.client.asking));
        let (progress, tools_changed) = (
            Arc::clone(&self.client.progress),
            Arc::clone(&self.client.tools_changed),
        );
        let mode = match self.era {
            Era::Modern => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::NO_INITIALIZE],
            },
            Era::Legacy => ClientLifecycleMode::Initialize,
        };
        let serving =
            serve_client_with_lifecycle_and_ct(self.client, transport, mode, CancellationToken::new());
        let running = match timeout_at(self.until, serving).await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return Err(link.handshake_failed(error).await),
            Err(_) => {
                return Err(ConnectError::TimedOut {
                    after: in_millis(self.until - self.begun),
                    stderr: link.stderr.last_line(),
                });
            }
        };
        let tells_changes = running.peer().peer_info().is_some_and(|info| {
            info.capabilities
                .tools
                .as_ref()
                .is_some_and(|tools| tools.list_changed == Some(true))
        });
        // In the newer era alone, and tools may then only name them properly.
        let params = link.params.clone().filter(|_| self.era == Era::Modern);
        let offers_tools = running
            .peer()
            .peer_info()
            .is_some_and(|info| info.capabilities.tools.is_some());
        let tools = match offers_tools {
            true => list_tools(running.peer(), self.upstream.spec(), params.as_deref())
                .await
                .map_err(|error| ConnectError::List {
                    reason: link.without_secrets(&error.to_string()),
                    heard: link.complaint.last(),
                })?,
            false => ToolList::default(),
        };
        let peer = running.peer().clone();
        // Over HTTP a subscription is held even where it tells nothing: its end is what shows that the server is gone.
        if self.era == Era::Modern && (tells_changes || link.process.is_none()) {
            tokio::spawn(watch_tools(
                peer.clone(),
                Arc::clone(&tools_changed),
                link.closed.clone(),
                tells_changes,
            ));
        }
        // The SDK's loop ends with its transport and not before: every pending call hears from the transport how the
        // connection ended.
        tokio::spawn(running.waiting());
        let connection = Connection {
            generation: self.generation,
            peer,
            gate: Gate::default(),
            progress,
            closed: link.closed,
            server,
            asking,
        };
        Ok(Established {
            connection: Arc::new(connection),
            tools,
            tools_changed,
            memory: EraMemory::default(),
            process: link.process,
            stderr: link.stderr,
            complaint: link.complaint,
            params,
        })
    }
}

impl Link {
    /// The error for people: how the child ended, where it did, and the last thing it wrote.
    async fn handshake_failed(&self, error: ClientInitializeError) -> ConnectError {
        let mut reason = match &error {
            // What the HTTP client heard says more than the name of its failure.
            _ if self.complaint.last().is_some() => self.complaint.last().unwrap_or_default(),
            ClientInitializeError::JsonRpcError(error) if error.message != OUTPUT_CLOSED => {
                format!(
                    "the server answered with error {}: {}",
                    error.code.0, error.message
                )
            }
            other => other.to_string(),
        };
        // A server that answered did not end by itself: it is stopped because of its answer.
        let ended = match error {
            ClientInitializeError::JsonRpcError(error) => error.message == OUTPUT_CLOSED,
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => true,
            _ => false,
        };
        if let Some(process) = self.process.as_ref().filter(|_| ended) {
            // A child that exits closes its pipes a moment before its exit is seen.
            if let Ok(how) = timeout(Duration::from_millis(200), process.ended()).await {
                reason = format!("the server ended ({how})");
            }
        }
        ConnectError::Handshake {
            reason: self.without_secrets(&reason),
            stderr: self.stderr.last_line(),
        }
    }

    /// What the server said, without the values that it was given.
    fn without_secrets(&self, text: &str) -> String {
        self.complaint.without_secrets(&self.stderr.without_secrets(text))
    }
}

/// Starts the process; gives with it the values that must not be shown. `turn` is held until the process is gone,
/// also where nobody waits for it any more.
async fn spawn(
    mut plan: SpawnPlan,
    around: &Surroundings,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<(SpawnedProcess, Vec<SecretString>), ConnectError> {
    // A bare name would be looked up in whichever PATH the spawner has, and a relative path in whichever directory. The
    // configuration has looked it up; that of a server that was switched off may have found nothing.
    if !plan.program.is_absolute() {
        return Err(ConnectError::NotAbsolute(plan.program));
    }
    let secrets = std::mem::take(&mut plan.secrets);
    let (spawner, stop) = (Arc::clone(&around.spawner), around.stop);
    let (tell, told) = oneshot::channel();
    around.children.spawn(async move {
        match spawner.spawn(&plan, stop).await {
            Ok(spawned) => {
                let mut ended = spawned.process.watch();
                // Where nobody waits for it any more it is dropped right here, and so stopped.
                let _ = tell.send(Ok(spawned));
                // An error means that who waits for it is gone, and the process with it.
                let _ = ended.wait_for(Option::is_some).await;
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        }
        drop(turn);
    });
    let spawned = told
        .await
        .unwrap_or_else(|_| Err(std::io::Error::other("the hub is ending")));
    Ok((spawned.map_err(ConnectError::Spawn)?, secrets))
}

/// A child that is gone while something that left its group holds the pipe open would otherwise never be seen.
fn close_when_it_ends(process: &ProcessHandle, closed: CancellationToken) {
    let mut ended = process.watch();
    tokio::spawn(async move {
        let _ = ended.wait_for(Option::is_some).await;
        // What it wrote last is still in the pipe: the end of the stream comes first, as a rule.
        let _ = timeout(LAST_WORDS, closed.cancelled()).await;
        closed.cancel();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> ConnectError {
        ConnectError::Handshake {
            reason: "no".to_owned(),
            stderr: None,
        }
    }

    fn late() -> ConnectError {
        ConnectError::TimedOut {
            after: DISCOVER_WAIT,
            stderr: None,
        }
    }

    #[test]
    fn an_era_that_was_found_is_tried_alone_and_one_that_was_guessed_at_twice() {
        let auto = |memory: EraMemory| memory.attempts(Protocol::Auto);
        let both: &[Era] = &[Era::Modern, Era::Legacy];
        let fresh = EraMemory::default();
        assert_eq!(auto(fresh), both);
        assert_eq!(auto(fresh.came_up(Era::Legacy, false)), [Era::Legacy]);
        // The newer era falls back all the same: it costs nothing where it answers.
        assert_eq!(auto(fresh.came_up(Era::Modern, false)), both);
        // A question that was left unanswered may have come too early.
        let once = fresh.came_up(Era::Legacy, true);
        assert_eq!(auto(once), both);
        assert_eq!(auto(once.came_up(Era::Legacy, true)), [Era::Legacy]);
        assert_eq!(auto(once.came_up(Era::Modern, false)), both);
    }

    #[test]
    fn a_failure_forgets_the_era_and_a_slow_newer_server_is_given_all_the_time_once() {
        let known = EraMemory::default().came_up(Era::Legacy, false);
        assert_eq!(known.failed(false, &refused()), EraMemory::default());
        assert_eq!(known.failed(false, &late()), EraMemory::default());
        let patient = EraMemory::default().failed(true, &refused());
        assert_eq!(patient.attempts(Protocol::Auto), [Era::Modern]);
        assert_eq!(patient.failed(true, &refused()), EraMemory::default());
        let found = patient.came_up(Era::Modern, false);
        assert_eq!(found.attempts(Protocol::Auto), [Era::Modern]);
        assert_eq!(EraMemory::default().failed(true, &late()), EraMemory::default());
    }
}
