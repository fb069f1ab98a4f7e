//! Streamable HTTP below the SDK's transport, through the guarded client.
//!
//! What the SDK would lose or stumble over ends here, as on stdio: results of `tools/call` and `tools/list` go up as
//! raw text, and a reply that cannot be used fails its own call. The SDK's worker keeps what is left: sessions, the
//! resumption of streams, the order of the handshake. (MCP 2026-07-28, base protocol, transports.)

mod client;
mod complaint;
mod connect;
mod event_id;
mod events;
mod get;
mod messages;
mod outstanding;
mod param;
mod post;
mod refused;
mod reply;
mod retry_after;
mod standing;
mod stream;

pub(crate) use client::{HttpTerms, guarded};
pub(crate) use complaint::Complaint;
pub(crate) use connect::{HttpError, connect_http};
pub(crate) use param::{ParamCache, param_headers};

#[cfg(test)]
mod tests;
