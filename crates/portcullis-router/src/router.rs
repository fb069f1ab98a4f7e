//! The router's actor: hears what the supervisor says, and publishes the catalog and the events.

mod actor;
mod handle;
mod lanes;
mod message;

pub(crate) use message::RouterMessage;

pub use handle::{BlobTag, Router, RouterOptions};
