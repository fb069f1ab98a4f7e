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
//! Each [`Dialect`], named or told from the document's shape, reads the same tree, whether its text is JSON, YAML or
//! TOML, into the same draft; a draft is judged by the rules of its [`Profile`]. [`import`] writes a document of any
//! dialect as one of Portcullis' own and says what became of each field, [`diff`] says what a reload has to do, and
//! [`Excerpts`] shows the text that a [`Diagnostic`] is about, without the secrets in it.
//!
//! Deliberately absent: any process, network, clock or file access of its own (what it needs from outside comes
//! through [`Environment`]); any async runtime; any knowledge of MCP messages or of policies.

mod bounded;
mod build;
mod diagnostic;
mod dialect;
mod diff;
mod document;
mod draft;
mod egress;
mod env_file;
mod environment;
mod excerpt;
mod fate;
mod fields;
mod import;
mod network;
mod normalize;
mod results;
mod secrets;
mod source;
mod spec;
mod template;
mod unread;
mod value;

pub use diagnostic::{ByteSpan, Code, Diagnostic, Severity};
pub use dialect::{Dialect, UnknownDialect};
pub use diff::{Diff, diff};
pub use document::{Document, Options, Profile};
pub use egress::Egress;
pub use environment::{Environment, HostEnvironment, NoEnvironment};
pub use excerpt::Excerpts;
pub use fate::{Fate, FieldReport};
pub use import::{Imported, ToSet, import};
pub use normalize::{Normalized, Setting, Settings, normalize};
pub use results::{BlobDurability, BlobSettings, OversizeReplies, ResultSettings};
pub use secrecy::SecretString;
pub use spec::{
    HttpSpec, Isolation, Limits, Origin, ProcessLimits, Protocol, ProxySpec, ServerSpec, StdioSpec, Timeouts,
    TransportSpec,
};
pub use template::{ResolveError, Sources, Template};
