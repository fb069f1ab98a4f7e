use std::{collections::BTreeMap, sync::Arc};

use portcullis_router::{CallError, CallRequest, Catalog, Router};
use portcullis_types::{CapabilityId, Hash};
use rmcp::{
    RoleServer, ServerHandler, Service,
    model::{
        CallToolRequest, ClientNotification, ClientRequest, CustomResult, ErrorCode, ErrorData,
        Implementation, ListToolsRequest, ProtocolVersion, ServerCapabilities, ServerConfig, ServerResult,
    },
    service::{NotificationContext, RequestContext},
};
use serde_json::{Value, value::RawValue};

use crate::{GatewayOptions, reply, transport::RawArguments};

/// The methods that are answered, by this or by the SDK.
const KNOWN: [&str; 4] = ["tools/call", "tools/list", "ping", "subscriptions/listen"];

/// The server side of the hub. What concerns tools passes as raw JSON; the rest of the protocol is the SDK's.
pub(crate) struct Gateway {
    router: Arc<Router>,
    options: GatewayOptions,
    protocol: Protocol,
}

/// The SDK's handler for everything but tools.
struct Protocol;

impl ServerHandler for Protocol {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("portcullis", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Tools of several servers behind one door. Each call is decided by policy: one that is denied or needs \
                 a person's approval says so, and repeating it does not change the answer.",
            )
    }
}

impl Gateway {
    pub(crate) fn new(router: Arc<Router>, options: GatewayOptions) -> Self {
        Self {
            router,
            options,
            protocol: Protocol,
        }
    }

    /// MCP 2026-07-28, server features, tools: listing. One page: the catalog is in memory.
    async fn list(&self, request: ListToolsRequest, modern: bool) -> Result<ServerResult, ErrorData> {
        if request.params.is_some_and(|params| params.cursor.is_some()) {
            return Err(ErrorData::invalid_params(
                "no cursor was given out: all tools are on the first page",
                None,
            ));
        }
        let catalog = self.router.settled_within(self.options.list_wait).await;
        raw_result(reply::tool_list(&catalog, modern))
    }

    /// MCP 2026-07-28, server features, tools: calling. A refusal is a result that is an error, so that the model
    /// reads its reason; a name that nobody offers is an error of the protocol.
    async fn call(
        &self,
        request: CallToolRequest,
        context: RequestContext<RoleServer>,
        modern: bool,
    ) -> Result<ServerResult, ErrorData> {
        let name = request.params.name.as_ref();
        let capability = self.capability(name).await?;
        let arguments = match context.extensions.get::<RawArguments>() {
            Some(RawArguments(raw)) => raw.to_string(),
            None => request
                .params
                .arguments
                .map(|map| Value::Object(map).to_string())
                .unwrap_or_default(),
        };
        let called = self.router.call(CallRequest::new(capability, arguments));
        let outcome = tokio::select! {
            outcome = called => outcome,
            // Dropping the call tells its server.
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the call was cancelled", None)),
        };
        match outcome {
            Ok(outcome) => raw_result(reply::outcome(&outcome.result.result, modern)),
            Err(
                CallError::UnknownServer { .. }
                | CallError::UnknownTool { .. }
                | CallError::NotACapability(_),
            ) => Err(unknown(name)),
            Err(error) => raw_result(reply::refusal(&error, modern)),
        }
    }
}

impl Gateway {
    /// What `name` stands for: an alias, or an id. Only where it is neither are servers waited for that are still on
    /// their first way up: a call to one that is there never waits for another.
    async fn capability(&self, name: &str) -> Result<CapabilityId, ErrorData> {
        let known = |catalog: &Catalog| catalog.resolve_alias(name).cloned().or_else(|| name.parse().ok());
        if let Some(capability) = known(&self.router.catalog()) {
            return Ok(capability);
        }
        known(&*self.router.settled_within(self.options.list_wait).await).ok_or_else(|| unknown(name))
    }
}

impl Service<RoleServer> for Gateway {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let modern = context
            .protocol_version()
            .is_some_and(|version| !version.has_initialize());
        match request {
            ClientRequest::ListToolsRequest(request) => self.list(request, modern).await,
            ClientRequest::CallToolRequest(request) => self.call(request, context, modern).await,
            // To the SDK a request whose parameters it cannot read is one of a method that it does not know.
            ClientRequest::CustomRequest(request) if KNOWN.contains(&request.method.as_str()) => {
                let method = request.method;
                Err(ErrorData::invalid_params(
                    format!("the parameters of `{method}` are not as the protocol has them"),
                    None,
                ))
            }
            other => Service::<RoleServer>::handle_request(&self.protocol, other, context).await,
        }
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Service::<RoleServer>::handle_notification(&self.protocol, notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        Service::<RoleServer>::get_info(&self.protocol)
    }

    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        Service::<RoleServer>::supported_protocol_versions(&self.protocol)
    }
}

/// What a client can tell apart: aliases and definitions.
pub(crate) fn offered(catalog: &Catalog) -> BTreeMap<String, Hash> {
    catalog
        .tools()
        .map(|tool| (tool.alias.to_string(), Hash::of(tool.definition.as_bytes())))
        .collect()
}

fn unknown(name: &str) -> ErrorData {
    ErrorData::new(
        ErrorCode::INVALID_PARAMS,
        format!("no tool is called `{name}`; list the tools for their names"),
        None,
    )
}

/// Raw text in the place of a result; the transport below writes it as it is.
fn raw_result(raw: Result<Box<RawValue>, serde_json::Error>) -> Result<ServerResult, ErrorData> {
    match raw {
        Ok(raw) => Ok(ServerResult::CustomResult(CustomResult::new(Value::String(
            raw.get().to_owned(),
        )))),
        Err(error) => Err(ErrorData::internal_error(
            format!("the result cannot be written: {error}"),
            None,
        )),
    }
}
