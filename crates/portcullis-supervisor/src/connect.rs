//! From a spec to a live connection: resolve, spawn or reach, shake hands, list tools, each with its deadline.

use std::{fmt, future::ready, sync::Arc, time::Duration};

use futures::future::BoxFuture;

use portcullis_config::{Protocol, Sources, StdioSpec, TransportSpec};
use portcullis_egress::EgressRules;
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage},
    service::{ClientInitializeError, ClientLifecycleMode, serve_client_with_lifecycle_and_ct},
    transport::Transport,
};
use secrecy::SecretString;
use thiserror::Error;
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    connection::Connection,
    elicitation::ElicitationResponder,
    environment::{SpawnPlan, UnresolvedField},
    gate::Gate,
    http::{Complaint, HttpError, HttpTerms, connect_http},
    listen::watch_tools,
    service::ClientService,
    spawn::{ProcessHandle, SpawnedProcess, Spawner, StopSequence},
    stderr::StderrRing,
    tools::{ListError, ToolLimit, ToolList, list_tools},
    transport::{OUTPUT_CLOSED, StdioTransport, WireCounters},
    upstream::Upstream,
};

/// How long the newer era's `server/discover` may take before the older handshake is tried. The SDK's own probe
/// has a fixed 10 s.
const DISCOVER_WAIT: Duration = Duration::from_secs(2);

/// How long what a child wrote before its end may take to be read from a pipe that something else holds open.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// What every connection of a hub shares.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) spawner: Arc<dyn Spawner>,
    pub(crate) sources: Arc<dyn Sources + Send + Sync>,
    pub(crate) elicitation: Option<Arc<dyn ElicitationResponder>>,
    pub(crate) stop: StopSequence,
    /// What holds for every server, beside its own rules.
    pub(crate) egress: Option<EgressRules>,
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

/// A connection that shook hands and listed its tools. Dropped, it ends: its process too.
pub(crate) struct Established {
    pub(crate) connection: Arc<Connection>,
    pub(crate) tools: ToolList,
    pub(crate) tools_changed: Arc<Notify>,
    pub(crate) era: Era,
    pub(crate) process: Option<ProcessHandle>,
    pub(crate) stderr: StderrRing,
}

impl Established {
    /// Whether arguments go into headers here, which tools may then only name properly: over HTTP, in the newer era.
    pub(crate) fn promotes_headers(&self) -> bool {
        self.era == Era::Modern && self.process.is_none()
    }
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
    #[error("{0}")]
    Http(HttpError),
    #[error("the handshake took over {} s{}", .after.as_secs_f64(), said(.stderr))]
    TimedOut { after: Duration, stderr: Option<String> },
    #[error("the handshake failed: {reason}{}", said(.stderr))]
    Handshake { reason: String, stderr: Option<String> },
    #[error("{0}")]
    List(#[from] ListError),
}

fn said(stderr: &Option<String>) -> String {
    stderr
        .as_ref()
        .map(|line| format!("; it wrote `{line}`"))
        .unwrap_or_default()
}

/// Connects to a server. `known` is the era that an earlier connection found; it is tried first.
pub(crate) async fn connect(
    upstream: &Upstream,
    generation: u64,
    known: Option<Era>,
    around: &Surroundings,
) -> Result<Established, ConnectError> {
    let spec = upstream.spec();
    let deadline = Instant::now() + spec.timeouts.connect;
    let attempts: &[Era] = match (spec.protocol, known) {
        (Protocol::Modern, _) => &[Era::Modern],
        (Protocol::Initialize, _) | (Protocol::Auto, Some(Era::Legacy)) => &[Era::Legacy],
        (Protocol::Auto, _) => &[Era::Modern, Era::Legacy],
    };
    let mut failure = None;
    for (at, era) in attempts.iter().enumerate() {
        let last = at + 1 == attempts.len();
        let until = if last {
            deadline
        } else {
            deadline.min(Instant::now() + DISCOVER_WAIT)
        };
        match attempt(upstream, generation, *era, until, around).await {
            Ok(established) => return Ok(established),
            // What no other handshake can mend.
            Err(error @ (ConnectError::Unresolved(_) | ConnectError::Spawn(_) | ConnectError::List(_))) => {
                return Err(error);
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or(ConnectError::TimedOut {
        after: spec.timeouts.connect,
        stderr: None,
    }))
}

/// One fresh connection with one handshake. Boxed: the compiler cannot see that the future is `Send` for every
/// lifetime of what it borrows otherwise.
fn attempt<'a>(
    upstream: &'a Upstream,
    generation: u64,
    era: Era,
    until: Instant,
    around: &'a Surroundings,
) -> BoxFuture<'a, Result<Established, ConnectError>> {
    let spec = upstream.spec();
    let closed = CancellationToken::new();
    let client = ClientService {
        server: spec.id.clone(),
        elicitation: around.elicitation.clone(),
        progress: Arc::default(),
        tools_changed: Arc::default(),
    };
    let handshake = Handshake {
        generation,
        era,
        until,
        list: spec.timeouts.list,
        tools: ToolLimit::of(spec),
        client,
    };
    match &spec.transport {
        TransportSpec::Stdio(stdio) => Box::pin(async move {
            let begun = Instant::now();
            let Ok(spawned) = timeout_at(until, spawn(stdio, around)).await else {
                return Err(ConnectError::TimedOut {
                    after: until - begun,
                    stderr: None,
                });
            };
            let (spawned, secrets) = spawned?;
            let stderr = StderrRing::drain(spawned.stderr, secrets);
            close_when_it_ends(&spawned.process, closed.clone());
            let counters = Arc::<WireCounters>::default();
            let transport = StdioTransport::new(spawned.stdout, spawned.stdin, counters, closed.clone());
            let link = Link {
                closed,
                process: Some(spawned.process),
                stderr,
                complaint: Complaint::default(),
            };
            let shaking: BoxFuture<'static, _> = Box::pin(handshake.shake(transport, link));
            shaking.await
        }),
        TransportSpec::Http(http) => {
            let complaint = Complaint::default();
            let terms = HttpTerms {
                hub: around.egress.clone(),
                log: upstream.shared().egress.clone(),
                closed: closed.clone(),
                tools_changed: Arc::clone(&handshake.client.tools_changed),
                patience: spec.timeouts.connect.max(spec.timeouts.list),
                complaint: complaint.clone(),
            };
            match connect_http(http, around.sources.as_ref(), terms) {
                Ok(transport) => {
                    let transport = Watched {
                        inner: transport,
                        closed: closed.clone(),
                    };
                    let link = Link {
                        closed,
                        process: None,
                        stderr: StderrRing::default(),
                        complaint,
                    };
                    Box::pin(handshake.shake(transport, link))
                }
                Err(error) => Box::pin(ready(Err(ConnectError::Http(error)))),
            }
        }
    }
}

/// What comes with a transport.
struct Link {
    closed: CancellationToken,
    process: Option<ProcessHandle>,
    stderr: StderrRing,
    /// What the HTTP client last heard that was no answer.
    complaint: Complaint,
}

/// What a handshake is made with.
struct Handshake {
    generation: u64,
    era: Era,
    until: Instant,
    list: Duration,
    tools: ToolLimit,
    client: ClientService,
}

impl Handshake {
    async fn shake<T: Transport<RoleClient> + 'static>(
        self,
        transport: T,
        link: Link,
    ) -> Result<Established, ConnectError> {
        let (server, elicitation) = (self.client.server.clone(), self.client.elicitation.clone());
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
        let begun = Instant::now();
        let serving =
            serve_client_with_lifecycle_and_ct(self.client, transport, mode, CancellationToken::new());
        let running = match timeout_at(self.until, serving).await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return Err(link.handshake_failed(error).await),
            Err(_) => {
                return Err(ConnectError::TimedOut {
                    after: self.until - begun,
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
        let promotes_headers = self.era == Era::Modern && link.process.is_none();
        let offers_tools = running
            .peer()
            .peer_info()
            .is_some_and(|info| info.capabilities.tools.is_some());
        let tools = match offers_tools {
            true => list_tools(running.peer(), self.list, self.tools, promotes_headers).await?,
            false => ToolList::default(),
        };
        let peer = running.peer().clone();
        if self.era == Era::Modern && tells_changes {
            tokio::spawn(watch_tools(
                peer.clone(),
                Arc::clone(&tools_changed),
                link.closed.clone(),
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
            elicitation,
        };
        Ok(Established {
            connection: Arc::new(connection),
            tools,
            tools_changed,
            era: self.era,
            process: link.process,
            stderr: link.stderr,
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
            reason,
            stderr: self.stderr.last_line(),
        }
    }
}

/// Starts the process; gives with it the values that must not be shown.
async fn spawn(
    stdio: &StdioSpec,
    around: &Surroundings,
) -> Result<(SpawnedProcess, Vec<SecretString>), ConnectError> {
    let mut plan = SpawnPlan::resolve(stdio, around.sources.as_ref())?;
    let spawned = around
        .spawner
        .spawn(&plan, around.stop)
        .await
        .map_err(ConnectError::Spawn)?;
    let mut ended = spawned.process.watch();
    around.children.spawn(async move {
        // An error means that who waits for it is gone, and the process with it.
        let _ = ended.wait_for(Option::is_some).await;
    });
    Ok((spawned, std::mem::take(&mut plan.secrets)))
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

/// A transport that says when it has ended, and ends when that is said elsewhere: over HTTP the SDK's own does
/// neither. Its end is what ends the session at the server.
struct Watched<T> {
    inner: T,
    closed: CancellationToken,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let message = tokio::select! {
            message = self.inner.receive() => message,
            () = self.closed.cancelled() => None,
        };
        if message.is_none() {
            self.closed.cancel();
        }
        message
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.closed.cancel();
        self.inner.close().await
    }
}
