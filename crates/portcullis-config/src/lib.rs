//! Server configurations in many dialects, normalised to one [`ServerSpec`].

mod spec;
mod template;

pub use spec::{HttpSpec, Origin, Protocol, ServerSpec, StdioSpec, Timeouts, TransportSpec};
pub use template::{ResolveError, Sources, Template};
