//! The root of the tree: starts a server's actor per spec, and a new one where one fails.

mod actor;
mod handle;
mod message;

pub use handle::{Supervisor, SupervisorOptions};
