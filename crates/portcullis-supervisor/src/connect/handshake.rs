//! From a transport to a connection: the handshake, then the tools.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::ProtocolVersion,
    service::{ClientInitializeError, ClientLifecycleMode, serve_client_with_lifecycle_and_ct},
    transport::Transport,
};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{ConnectError, Era, EraMemory, Established};
use crate::{
    connection::Connection,
    gate::Gate,
    http::{Complaint, ParamCache},
    listen::watch_tools,
    said,
    service::ClientService,
    spawn::ProcessHandle,
    stderr::StderrRing,
    tools::{ToolList, list_tools},
    transport::OUTPUT_CLOSED,
    upstream::Upstream,
};

/// What comes with a transport.
pub(super) struct Link {
    pub(super) closed: CancellationToken,
    pub(super) process: Option<ProcessHandle>,
    pub(super) stderr: StderrRing,
    /// What the HTTP client last heard that was no answer.
    pub(super) complaint: Complaint,
    /// Over HTTP, who puts arguments into headers.
    pub(super) params: Option<Arc<ParamCache>>,
}

/// What a handshake is made with.
pub(super) struct Handshake {
    pub(super) begun: Instant,
    pub(super) generation: u64,
    pub(super) era: Era,
    pub(super) until: Instant,
    pub(super) upstream: Upstream,
    pub(super) client: ClientService,
}

impl Handshake {
    pub(super) async fn shake<T: Transport<RoleClient> + 'static>(
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
                    after: self.until - self.begun,
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
                .map_err(|error| {
                    let reason = error.told(|said| link.shown(said));
                    // Not twice, where that is what failed.
                    let heard = link.complaint.last().filter(|heard| !reason.ends_with(heard));
                    ConnectError::List { reason, heard }
                })?,
            false => ToolList::default().checked_against(self.upstream.spec()),
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
            stderr: link.stderr.clone(),
            complaint: link.complaint.clone(),
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
                    error.code.0,
                    self.shown(&error.message)
                )
            }
            // What the SDK says around it names its types.
            ClientInitializeError::TransportError { error, .. } => self.shown(&error.error.to_string()),
            // Some show what came in the place of an answer.
            other => self.shown(&other.to_string()),
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

    fn shown(&self, said: &str) -> String {
        shown(said, &self.stderr, &self.complaint)
    }
}

/// What a server said, as a person is shown it: short, and without the values that it was given. The hub's own words stay
/// as they are.
pub(crate) fn shown(said: &str, stderr: &StderrRing, complaint: &Complaint) -> String {
    said::shown_without(said, |said| {
        complaint.without_secrets(&stderr.without_secrets(said))
    })
}
