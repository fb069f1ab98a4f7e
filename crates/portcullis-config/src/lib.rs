//! Server configurations in many dialects, normalised to one [`ServerSpec`], or told exactly what is wrong.
//!
//! ```
//! use portcullis_config::{Document, NoEnvironment, Options, normalize};
//!
//! let document = Document::new("mcp.json", r#"{"mcpServers": {
//!     "docs": {"url": "https://docs.example.com/mcp"},
//!     "gone": {"comand": "npx"},
//! }}"#);
//! let normalized = normalize(&[document], &Options::default(), &NoEnvironment);
//!
//! // A bad server is left out and named; the others stay.
//! assert_eq!(normalized.specs.len(), 1);
//! assert_eq!(normalized.specs[0].id.as_str(), "docs");
//! let found: Vec<_> = normalized.diagnostics.iter().map(ToString::to_string).collect();
//! assert_eq!(found, [
//!     "mcp.json:3:5: error[no-transport]: the server has neither a `command` nor a `url`\n  \
//!      help: add `command` (a program to start) or `url` (a streamable HTTP endpoint)",
//!     "mcp.json:3:14: warning[unknown-field]: `comand` is no field of a server: it is dropped\n  \
//!      help: did you mean `command`?",
//! ]);
//! ```
//!
//! Dialects, told apart by the document's shape: Portcullis' own (`mcp: {servers: […]}`, as YAML or JSON) and
//! `mcpServers` (desktop clients). Each reads the same tree, whatever text it came from, into the same draft; a
//! draft is judged by the rules of its [`Profile`].
//!
//! Deliberately absent: any process, network, clock or file access of its own (what it needs from outside comes
//! through [`Environment`]); any async runtime; any knowledge of MCP messages or of policies.

mod build;
mod diagnostic;
mod dialect;
mod document;
mod draft;
mod environment;
mod fields;
mod normalize;
mod secrets;
mod source;
mod spec;
mod template;
mod value;

pub use diagnostic::{ByteSpan, Code, Diagnostic, Severity};
pub use document::{Document, Options, Profile};
pub use environment::{Environment, HostEnvironment, NoEnvironment};
pub use normalize::{Normalized, Setting, Settings, normalize};
pub use spec::{HttpSpec, Origin, Protocol, ServerSpec, StdioSpec, Timeouts, TransportSpec};
pub use template::{ResolveError, Sources, Template};
