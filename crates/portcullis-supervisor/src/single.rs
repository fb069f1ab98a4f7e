//! One server without a hub: for a turn of an agent that opens it, calls its tools and closes it again.

use std::{collections::BTreeSet, fmt, sync::Arc};

use portcullis_config::ServerSpec;
use portcullis_lifecycle::ServerState;
use portcullis_types::{CapabilityId, ServerId};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    deadline::CallDeadline,
    error::{CallFault, SupervisorError},
    events::SupervisorEvent,
    root::{Supervisor, SupervisorOptions},
    strings::InMemory,
    tools::ToolDefinition,
    upstream::Upstream,
};

/// How many of its names an unknown tool's error shows.
const NAMES_SHOWN: usize = 20;

/// A connection to one server. It is supervised as every other: where the server crashes between two calls, the next
/// one finds it again.
///
/// Dropped, it ends in the background with all that the server started; [`close`](Self::close) waits for that. With no
/// policies in front of it, it allows every call: who may call what is the caller's to know.
pub struct Connection {
    tools: Tools,
    supervisor: Supervisor,
}

/// Connects to the server of `spec` and lists its tools.
///
/// ```no_run
/// use std::sync::Arc;
/// use portcullis_config::{HostEnvironment, ServerSpec};
/// use portcullis_supervisor::{CancellationToken, SupervisorOptions, connect};
///
/// # async fn example(spec: ServerSpec) -> Result<(), Box<dyn std::error::Error>> {
/// let options = SupervisorOptions::new(Arc::new(HostEnvironment::capture()));
/// let connection = connect(spec, options).await?;
/// let cancel = CancellationToken::new();
/// for tool in connection.agent_tools() {
///     println!("{}: {}", tool.name(), tool.description());
/// }
/// let result = connection.call("read", r#"{"path":"a.txt"}"#, &cancel).await?;
/// println!("{result}");
/// connection.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Without a [`spool`](SupervisorOptions::spool), results are whole in memory: strings of over 64 KiB up to 64 MiB at a
/// time.
///
/// # Errors
/// [`SupervisorError::Connect`] with the reason where no connection comes about at the first attempt, and nothing is
/// left of it: that takes a server that will not end the time of the [stop sequence](crate::StopSequence).
/// [`SupervisorError::Start`] where the supervisor cannot be started.
pub async fn connect(
    spec: ServerSpec,
    mut options: SupervisorOptions,
) -> Result<Connection, SupervisorError> {
    options.spool.get_or_insert_with(|| Arc::new(InMemory::default()));
    let (server, disabled) = (spec.id.clone(), Arc::new(spec.disabled_tools.clone()));
    let failed = |reason: String| SupervisorError::Connect {
        server: server.clone(),
        reason,
    };
    if !spec.enabled {
        return Err(failed("it is disabled by its definition".to_owned()));
    }
    let (tell, mut heard) = mpsc::unbounded_channel();
    let supervisor = Supervisor::start(vec![spec], options, tell).await?;
    let upstream = supervisor
        .upstream(&server)
        .cloned()
        .ok_or(SupervisorError::Stopped)?;
    if let Err(reason) = first_attempt(&upstream, &mut heard).await {
        if let Err(error) = supervisor.shutdown().await {
            // Why there is no connection counts for more.
            tracing::warn!(%server, %error, "what could not be connected to was not ended in time");
        }
        return Err(failed(reason));
    }
    let tools = Tools { upstream, disabled };
    Ok(Connection { tools, supervisor })
}

/// Waits until the server is ready, or its first attempt has failed; then why.
async fn first_attempt(
    upstream: &Upstream,
    heard: &mut mpsc::UnboundedReceiver<SupervisorEvent>,
) -> Result<(), String> {
    let within = upstream.timeouts().connect + upstream.timeouts().list;
    // An attempt has deadlines of its own, so one of these comes.
    while let Some(event) = heard.recv().await {
        match event {
            SupervisorEvent::State {
                to: ServerState::Ready,
                ..
            } => break,
            SupervisorEvent::State {
                to:
                    ServerState::BackingOff | ServerState::Parked | ServerState::Disabled | ServerState::Stopped,
                reason,
                ..
            } => return Err(reason),
            _ => {}
        }
    }
    let ready = upstream.ready(Instant::now() + within, 0).await;
    ready.map(drop).map_err(|fault| fault.to_string())
}

/// Connects, has `turn` use the connection, and closes it, whether the turn went well or not. The turn has its results at
/// once; what it gives is given on once nothing of the server is left, which takes one that will not end the time of the
/// [stop sequence](crate::StopSequence). Who cannot wait for that drops a [`Connection`] of its own.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use portcullis_config::{HostEnvironment, ServerSpec};
/// use portcullis_supervisor::{CallFault, CancellationToken, SupervisorOptions, with_connection};
///
/// # async fn example(spec: ServerSpec) -> Result<(), Box<dyn std::error::Error>> {
/// let options = SupervisorOptions::new(Arc::new(HostEnvironment::capture()));
/// let result = with_connection(spec, options, async |connection| {
///     connection.call("read", "{}", &CancellationToken::new()).await
/// })
/// .await?;
/// # let _: Result<String, CallFault> = result;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`SupervisorError`] where it cannot be connected to. What `turn` gives is given on as it is.
pub async fn with_connection<T>(
    spec: ServerSpec,
    options: SupervisorOptions,
    turn: impl AsyncFnOnce(&Connection) -> T,
) -> Result<T, SupervisorError> {
    let connection = connect(spec, options).await?;
    let result = turn(&connection).await;
    if let Err(error) = connection.close().await {
        // The turn's own result counts for more.
        tracing::warn!(%error, "a connection was not closed in time");
    }
    Ok(result)
}

impl Connection {
    /// The server's id.
    #[must_use]
    pub fn id(&self) -> &ServerId {
        self.tools.upstream.id()
    }

    /// What the server offers now, without the tools that its definition disables; what it offered last, where it is
    /// away.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolDefinition> {
        self.tools.list()
    }

    /// What is to be known of what it offers: which tools its definition disables that it does not have, and what of its
    /// list was dropped, and why. A sentence each.
    #[must_use]
    pub fn reports(&self) -> Vec<String> {
        let tools = self.tools.upstream.tools();
        let unlisted = tools.unlisted.iter().map(ToString::to_string);
        unlisted.chain(tools.reports.iter().cloned()).collect()
    }

    /// Calls `tool` with `arguments`, the JSON text of an object (an empty text stands for `{}`), and gives the JSON
    /// text of the result as the server wrote it. Once `cancel` is cancelled the server is told, once, and the call
    /// ends.
    ///
    /// # Errors
    /// [`CallFault`], which says whether the server may have acted; [`CallFault::UnknownTool`] at once, without asking
    /// the server, for a tool that it does not offer.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &str,
        cancel: &CancellationToken,
    ) -> Result<String, CallFault> {
        self.tools.call(tool, arguments, cancel).await
    }

    /// The server's tools as an agent's loop wants them. They hold on to nothing: once the connection is closed or
    /// dropped, their calls fail.
    #[must_use]
    pub fn agent_tools(&self) -> Vec<AgentTool> {
        let tools = self.tools();
        tools
            .iter()
            .filter_map(|tool| AgentTool::new(tool, &self.tools))
            .collect()
    }

    /// Ends the server and waits until nothing of it is left.
    ///
    /// # Errors
    /// [`SupervisorError::Lingering`] where it was still there when the stop sequence's time was over.
    pub async fn close(self) -> Result<(), SupervisorError> {
        self.supervisor.shutdown().await
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", self.id())
            .finish_non_exhaustive()
    }
}

/// One tool, ready for an agent's loop: what a model must be told of it, and the call.
#[derive(Clone)]
pub struct AgentTool {
    name: String,
    tool: String,
    description: String,
    input_schema: Value,
    tools: Tools,
}

impl AgentTool {
    fn new(definition: &ToolDefinition, tools: &Tools) -> Option<Self> {
        #[derive(Deserialize)]
        struct Shape {
            #[serde(rename = "inputSchema")]
            input_schema: Value,
        }
        let capability = CapabilityId::mcp(tools.upstream.id().clone(), &definition.name).ok()?;
        let shape: Shape = serde_json::from_str(&definition.definition).ok()?;
        Some(Self {
            name: capability.alias().as_str().to_owned(),
            tool: definition.name.clone(),
            description: definition.description.clone().unwrap_or_default(),
            input_schema: shape.input_schema,
            tools: tools.clone(),
        })
    }

    /// The name for the model: at most 64 of `[A-Za-z0-9_-]`, the same in every run, and no two tools share one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that the server gave it, which may hold any character.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// What the server says of it; empty where it says nothing. Data, never instruction.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn input_schema(&self) -> &Value {
        &self.input_schema
    }

    /// Calls it; see [`Connection::call`].
    ///
    /// # Errors
    /// [`CallFault`], which says whether the server may have acted.
    pub async fn call(&self, arguments: &str, cancel: &CancellationToken) -> Result<String, CallFault> {
        self.tools.call(&self.tool, arguments, cancel).await
    }
}

impl fmt::Debug for AgentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTool")
            .field("name", &self.name)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

/// What may be called of a server.
#[derive(Clone)]
struct Tools {
    upstream: Upstream,
    disabled: Arc<BTreeSet<String>>,
}

impl Tools {
    fn list(&self) -> Vec<ToolDefinition> {
        let known = self.upstream.tools();
        let enabled = |tool: &&ToolDefinition| !self.disabled.contains(&tool.name);
        known.tools.iter().filter(enabled).cloned().collect()
    }

    async fn call(
        &self,
        tool: &str,
        arguments: &str,
        cancel: &CancellationToken,
    ) -> Result<String, CallFault> {
        let known = self.upstream.tools();
        if self.disabled.contains(tool) || !known.tools.iter().any(|known| known.name == tool) {
            return Err(self.unknown(tool));
        }
        let within = CallDeadline::from_now(self.upstream.timeouts());
        let arguments = match arguments.trim() {
            "" => "{}",
            given => given,
        };
        self.upstream
            .call_until_cancelled(tool, arguments.into(), within, cancel)
            .await
    }

    fn unknown(&self, tool: &str) -> CallFault {
        let tools = self.list();
        let mut offered: Vec<String> = tools
            .iter()
            .take(NAMES_SHOWN)
            .map(|tool| format!("`{}`", tool.name.escape_debug()))
            .collect();
        if tools.len() > NAMES_SHOWN {
            offered.push(format!("and {} more", tools.len() - NAMES_SHOWN));
        }
        CallFault::UnknownTool {
            tool: tool.to_owned(),
            disabled: self.disabled.contains(tool),
            offered: offered.join(", "),
        }
    }
}

/// Whether `text` is the JSON text of an object.
pub(crate) fn check_arguments(text: &str) -> Result<(), CallFault> {
    let reason = match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) if raw.get().starts_with('{') => return Ok(()),
        Ok(_) => "they are JSON, but no object".to_owned(),
        Err(error) => format!("they are no JSON: {error}"),
    };
    Err(CallFault::BadArguments { reason })
}
