//! The hub offered as one MCP server: what a client that is used to single servers sees of it.
//!
//! Tools are listed under their aliases, with the definitions that their servers wrote, less `_meta` and `execution`. A
//! call's arguments pass word for word, and so does each member of its result as the router shaped it: both are raw JSON
//! text below the SDK. What the policies deny, or what somebody would
//! have to approve, is told to the model as a result that is an error, with its reason.
//!
//! Deliberately absent: decisions, of which the router makes all; the progress of calls, which renews their time and is not
//! passed on; HTTP, which comes with a later version.
//!
//! ```no_run
//! # async fn example(router: std::sync::Arc<portcullis_router::Router>) -> Result<(), portcullis_gateway::GatewayError> {
//! // Until the client closes its end.
//! let options = portcullis_gateway::GatewayOptions::default();
//! portcullis_gateway::serve(router, options, tokio::io::empty(), tokio::io::sink()).await
//! # }
//! ```

mod error;
mod reply;
mod service;
mod transport;

use std::{sync::Arc, time::Duration};

use portcullis_router::Router;
use rmcp::{ServiceExt, service::ServerInitializeError};
use tokio::io::{AsyncRead, AsyncWrite};

pub use crate::error::GatewayError;
use crate::{service::Gateway, transport::GatewayTransport};

/// What a host may choose of how its hub is offered.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// How long the first listing of the tools waits for servers that are on their first way up; what comes later is
    /// told by `notifications/tools/list_changed`, which not every client heeds. One second by default.
    pub list_wait: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            list_wait: Duration::from_secs(1),
        }
    }
}

/// Serves `router` to the client at the other end of `input` and `output` until it closes `input`.
///
/// # Errors
/// [`GatewayError`] where there was no handshake (a client that leaves before it is no error), and where the client
/// takes no answer any more although it has not closed its end.
pub async fn serve(
    router: Arc<Router>,
    options: GatewayOptions,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), GatewayError> {
    let gateway = Gateway::new(Arc::clone(&router), options);
    let transport = GatewayTransport::new(input, output);
    // From before its first request on: what changes behind the client's back is told, however early it lists.
    let mut changes = router.catalog_changes();
    let mut offered = service::offered(&changes.borrow_and_update());
    let lost = transport.lost();
    let lost = move || lost.get().map(|why| GatewayError::Output(why.clone()));
    let running = match gateway.serve(transport).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_)) => return lost().map_or(Ok(()), Err),
        Err(error) => return Err(lost().unwrap_or(GatewayError::Handshake(Box::new(error)))),
    };
    let peer = running.peer().clone();
    let watch = tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            let now = service::offered(&changes.borrow_and_update());
            // A server that comes and goes with the same tools is no change to a client.
            if now != offered && peer.notify_tool_list_changed().await.is_err() {
                break;
            }
            offered = now;
        }
    });
    let ended = running.waiting().await;
    watch.abort();
    match (lost(), ended) {
        (Some(lost), _) => Err(lost),
        (None, Ok(_)) => Ok(()),
        (None, Err(error)) => Err(GatewayError::Task(error.to_string())),
    }
}
