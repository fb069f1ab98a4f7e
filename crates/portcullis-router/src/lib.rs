//! Catalog, decision, dispatch and events: the enforcement point of the hub.
//!
//! The [`Router`] stands on a supervisor. Its actor keeps the [`Catalog`] and publishes a snapshot with each
//! change; a call reads the snapshot, asks the decision point, has it approved where it must be asked, goes
//! straight to the server's connection and shapes the result. Everything that happens is told as an [`Event`].
//!
//! Deliberately absent: how servers are started and restarted (the supervisor), what the policies mean (the
//! decision point), how the hub is offered to others (the gateway).
//!
//! ```no_run
//! use portcullis_router::{CallRequest, Router, RouterOptions};
//!
//! # async fn example(specs: Vec<portcullis_config::ServerSpec>, options: RouterOptions) -> Result<(), Box<dyn std::error::Error>> {
//! let router = Router::start(specs, options).await?;
//! for tool in router.settled().await.tools() {
//!     println!("{} is {} to the model", tool.capability, tool.alias);
//! }
//! let outcome = router.call(CallRequest::new("mcp.files.read".parse()?, r#"{"path":"a.txt"}"#)).await?;
//! println!("{}", outcome.result.result);
//! router.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod router;

mod catalog;
mod definition;
mod pins;

mod policies;
mod policy_folder;
mod watcher;

mod call;
mod call_code;
mod decide;
mod dispatch;
mod error;

mod admission;
mod approval;
mod approve;
mod elicit;
mod shape;
mod spool;

mod clock;
mod collector;
mod event;

pub use approval::{
    AlwaysOffer, ApprovalHandler, ApprovalRequest, ElicitationHandler, HookAnswer, PersonAnswer,
};
pub use call::{CallOutcome, CallRequest};
pub use call_code::CallCode;
pub use catalog::{Catalog, CatalogTool, ServerStatus, Unlisted};
pub use collector::Collector;
pub use error::{CallError, RouterError};
pub use event::{
    AnsweredBy, ApprovalAnswer, CallEnd, ConnectionOutcome, DecidedBy, ElicitationAnswer, ElicitationMode,
    Event, EventBus, EventRecord, EventStream, PinChange, PinnedTool, ReloadOutcome,
};
pub use pins::{Keeping, PinStanding, ToolPin};
pub use policies::PolicyReload;
pub use policy_folder::{PolicyFolder, PolicyFolderError, read_texts};
pub use router::{BlobTag, Router, RouterOptions};
pub use shape::{BlobInfo, Oversize, ShapeError, ShapeFlags, ShapeOptions, ShapedResult, is_hidden, shape};
