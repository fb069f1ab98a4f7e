//! The names of things in Portcullis: servers, capabilities and their aliases, content hashes, decisions; and which
//! characters of a text are hidden.
//!
//! Deliberately absent: any logic beyond parsing and printing, any IO, any async runtime. Most crates
//! depend on this one, so it stays small.
//!
//! ```
//! use portcullis_types::CapabilityId;
//!
//! // A tool name may hold anything, dots included: an id is split at its first two dots.
//! let id: CapabilityId = "mcp.github.issues.create".parse()?;
//! assert_eq!(id.server().as_str(), "github");
//! assert_eq!(id.tool(), "issues.create");
//! assert!(id.alias().as_str().len() <= 64);
//! # Ok::<(), portcullis_types::ParseError>(())
//! ```

mod alias;
mod capability;
mod decision;
mod egress_rule;
mod error;
mod hash;
mod hidden;
mod server_id;
mod tier;

pub use alias::Alias;
pub use capability::{CapabilityId, Source};
pub use decision::{Answer, Approver, Decision, PolicyRef, ReasonCode};
pub use egress_rule::{EgressRule, HostPattern};
pub use error::ParseError;
pub use hash::{BlobRef, Hash};
pub use hidden::is_hidden;
pub use server_id::ServerId;
pub use tier::{AgentId, Tier};
