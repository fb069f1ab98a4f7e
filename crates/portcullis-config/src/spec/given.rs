//! Servers that a host gives in code.

use std::path::PathBuf;

use portcullis_types::ServerId;
use url::Url;

use super::{HttpSpec, ServerSpec, StdioSpec, TransportSpec};
use crate::{Egress, Template};

impl ServerSpec {
    /// A server of which no more is said: what a document gives that says no more. What differs is set afterwards.
    ///
    /// ```
    /// use portcullis_config::{Protocol, ServerSpec, StdioSpec};
    ///
    /// let notes = ServerSpec {
    ///     protocol: Protocol::Initialize,
    ///     ..ServerSpec::new("notes".parse()?, StdioSpec::new("/usr/bin/notes", ["--stdio"]))
    /// };
    /// assert!(notes.enabled);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(id: ServerId, transport: impl Into<TransportSpec>) -> Self {
        Self {
            display_name: id.to_string(),
            id,
            description: None,
            transport: transport.into(),
            timeouts: Default::default(),
            protocol: Default::default(),
            enabled: true,
            disabled_tools: Default::default(),
            disabled_auto_approve_tools: Default::default(),
            isolation: Default::default(),
            limits: Default::default(),
            profile: Default::default(),
            origin: Default::default(),
        }
    }
}

impl StdioSpec {
    /// A program by its absolute path, with arguments that are taken word for word: nothing in them is a reference. Its
    /// environment is the stated base, and its working directory the hub's.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, args: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let args = args.into_iter();
        Self {
            program: program.into(),
            args: args.map(|arg| Template::literal(arg.as_ref())).collect(),
            env: Default::default(),
            inherit_env: Default::default(),
            cwd: None,
        }
    }
}

impl HttpSpec {
    /// An endpoint that may connect where `egress` allows it, and sends no headers of its own.
    #[must_use]
    pub fn new(url: Url, egress: impl Into<Egress>) -> Self {
        Self {
            url,
            headers: Default::default(),
            egress: egress.into(),
            proxy: None,
            root_certificates: Vec::new(),
        }
    }
}

impl From<StdioSpec> for TransportSpec {
    fn from(spec: StdioSpec) -> Self {
        Self::Stdio(spec)
    }
}

impl From<HttpSpec> for TransportSpec {
    fn from(spec: HttpSpec) -> Self {
        Self::Http(spec)
    }
}
