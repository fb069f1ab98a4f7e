//! One supervised actor per MCP server: starts it, speaks to it, restarts it, and ends it with all that it started.
//!
//! A root actor holds an actor per server. Each asks the pure machine of `portcullis-lifecycle` what to do and does
//! it; callers go past the actors, through an [`Upstream`], straight to the current connection. Above this crate
//! results are raw JSON text, as the server wrote them.
//!
//! Guarantees: each wait has a deadline. A call that was sent is never sent again, but once over HTTP
//! where the server says that it knows no such session (docs/egress.md). When a server dies, its calls
//! fail at once and no other server notices. Dropping a [`Supervisor`] stops every server in the background,
//! [`Supervisor::shutdown`] waits for their processes to be gone.
//!
//! [`connect`] gives one server alone, for a turn that opens and closes it.
//!
//! On Linux, where the host's `main` calls `portcullis_warden::init()` first, each server's parent is a keeper of
//! a warden, and nothing that a server started survives it or the hub; elsewhere its process group is killed.
//!
//! Deliberately absent: permission, the catalog over several servers, results' content. That is the router's.
//!
//! ```no_run
//! use std::sync::Arc;
//! use portcullis_config::{ServerSpec, Sources};
//! use portcullis_supervisor::{Supervisor, SupervisorOptions};
//! use tokio::{sync::mpsc, time::{Duration, Instant}};
//!
//! # async fn example(specs: Vec<ServerSpec>, host: Arc<dyn Sources + Send + Sync>) -> Result<(), Box<dyn std::error::Error>> {
//! let (events, mut changes) = mpsc::unbounded_channel();
//! let supervisor = Supervisor::start(specs, SupervisorOptions::new(host), events).await?;
//! let server = supervisor.upstream(&"files".parse()?).ok_or("not configured")?;
//! let ready = server.ready(Instant::now() + Duration::from_secs(10), 0).await?;
//! let result = ready.call("read", r#"{"path":"a.txt"}"#.into(), server.timeouts()).await?;
//! # let _ = (result, changes.recv().await);
//! supervisor.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod error;
mod events;

mod root;
mod server;
mod single;
mod upstream;

mod connect;
mod connection;
mod counters;
mod deadline;
mod gate;
mod issued;
mod listen;
mod pace;
mod rounds;
mod said;
mod service;
mod strings;
mod ticket;
mod tools;

mod encode;
mod http;
mod transport;

mod asking;
mod elicitation;
mod environment;
mod spawn;
mod stderr;

pub use counters::WireCounts;
pub use deadline::CallDeadline;
pub use elicitation::{ElicitationReply, ElicitationRequest, ElicitationResponder};
pub use environment::{SpawnPlan, UnresolvedField};
pub use error::{CallFault, SupervisorError};
pub use events::SupervisorEvent;
pub use portcullis_lifecycle::{Options as LifecycleOptions, ServerState};
pub use root::{Supervisor, SupervisorOptions};
pub use single::{AgentTool, Connection, connect, with_connection};
#[cfg(target_os = "linux")]
pub use spawn::WardenSpawner;
pub use spawn::{GroupSpawner, ProcessHandle, SpawnedProcess, Spawner, StopSequence};
pub use stderr::StderrRing;
pub use strings::{LongString, RawReply, SpooledString, StringSpool, StringWriter};
pub use tokio_util::sync::CancellationToken;
pub use tools::{ToolDefinition, ToolList, UnlistedTool};
pub use upstream::{Ready, Upstream};

#[cfg(test)]
mod tests;
