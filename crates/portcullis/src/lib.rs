//! Portcullis, the MCP client hub that you embed: many MCP servers behind one door, each supervised on its own,
//! every tool call decided by a Cedar policy, every large or binary result kept out of the model's context.
//!
//! A [`Hub`] is built from documents that people have (`mcpServers` files, Portcullis' own YAML) or from specs in
//! code, and from policies. Without policies it denies every call.
//!
//! ```
//! use portcullis::{Document, Hub, Preset};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = r#"{"mcpServers": {"notes": {"command": "/usr/bin/env", "args": ["true"]}}}"#;
//! let hub = Hub::builder()
//!     .document(Document::new("mcp.json", servers))
//!     .preset(Preset::AskByDefault)
//!     .start()
//!     .await?;
//!
//! // `env true` is no MCP server: it is tried a few times, then parked, and calls say so at once.
//! let error = hub.call("mcp.notes.read", &serde_json::json!({"title": "keys"})).await.unwrap_err();
//! assert_eq!(error.code(), "unavailable");
//! assert!(hub.tools().is_empty());
//! hub.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A host's `main` calls [`warden::init`] first of all, before it starts a thread or an async runtime; without it,
//! what leaves a server's process group survives.
//!
//! One server for one turn needs no hub: [`connect`] gives a [`Connection`] to it, without policies in front.
//!
//! Its parts can be had alone, without the SDK: features `config`, `policy` and `blobs`.

/// The README's example is run as a test.
#[cfg(all(doctest, feature = "hub"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(feature = "hub")]
mod builder;
#[cfg(feature = "hub")]
mod error;
#[cfg(feature = "hub")]
mod files;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod stored;

pub use portcullis_types::{
    AgentId, Alias, Answer, Approver, BlobRef, CapabilityId, Decision, EgressRule, Hash, ParseError,
    PolicyRef, ReasonCode, ServerId, Source, Tier,
};

#[cfg(feature = "blobs")]
pub use portcullis_blobs as blobs;
#[cfg(feature = "config")]
pub use portcullis_config as config;
#[cfg(feature = "policy")]
pub use portcullis_policy as policy;
/// Call [`warden::init`] first in `main`, before any thread is started, and nothing that a server starts survives it
/// or the hub. Linux.
#[cfg(feature = "hub")]
pub use portcullis_warden as warden;

#[cfg(feature = "config")]
pub use portcullis_config::{Diagnostic, Document, ServerSpec};
#[cfg(feature = "policy")]
pub use portcullis_policy::{PolicyFile, Preset};

#[cfg(feature = "hub")]
pub use builder::HubBuilder;
#[cfg(feature = "hub")]
pub use error::HubError;
#[cfg(feature = "hub")]
pub use files::{read_documents, read_policies, read_seal, read_texts};
#[cfg(feature = "hub")]
pub use hub::Hub;
#[cfg(feature = "hub")]
pub use portcullis_router::{
    AlwaysOffer, AnsweredBy, ApprovalAnswer, ApprovalHandler, ApprovalRequest, BlobInfo, CallCode, CallEnd,
    CallError, CallOutcome, CallRequest, Catalog, CatalogTool, ConnectionOutcome, DecidedBy,
    ElicitationAnswer, ElicitationHandler, ElicitationMode, Event, EventRecord, EventStream, HookAnswer,
    Oversize, PersonAnswer, PinChange, PinStanding, PinnedTool, PolicyFolder, PolicyFolderError,
    PolicyReload, ReloadOutcome, ServerStatus, ShapeOptions, ShapedResult, ToolPin, Unlisted, is_hidden,
};
#[cfg(feature = "hub")]
pub use portcullis_state::{
    Approval, ApprovedCall, FirstSight, Pin, PinnedText, State, StateError, Trusting,
};
#[cfg(feature = "hub")]
pub use portcullis_supervisor::{
    AgentTool, CallFault, CancellationToken, Connection, ElicitationReply, ElicitationRequest,
    LifecycleOptions, ServerState, SupervisorError, SupervisorOptions, connect, with_connection,
};
