//! The router's actor: hears what the supervisor says, and publishes the catalog and the events.

mod actor;
mod handle;
mod message;

pub use handle::{Router, RouterOptions};
