use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    time::Duration,
};

use portcullis_types::ServerId;
use url::Url;

use crate::{Egress, Options, Profile, Template, secrets};

mod fingerprint;
mod given;

/// One MCP server, whatever dialect it was written in: all that the supervisor needs to start or reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// Unique in a hub.
    pub id: ServerId,
    /// The name as the document has it.
    pub display_name: String,
    /// What the document says of it, for people.
    pub description: Option<String>,
    /// How it is started or reached.
    pub transport: TransportSpec,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Which era of the protocol it speaks.
    pub protocol: Protocol,
    /// False where the document disables it: it is listed, and never started.
    pub enabled: bool,
    /// Raw names of tools that are not offered; a call of one is refused as disabled.
    pub disabled_tools: BTreeSet<String>,
    /// Raw names of tools that always ask (the floor).
    pub disabled_auto_approve_tools: BTreeSet<String>,
    /// Who shares its connection.
    pub isolation: Isolation,
    /// How much of it there may be.
    pub limits: Limits,
    /// The rules that it was judged by. With more tools than the limit, a strict server's connection fails, and of
    /// a desktop one the first tools stay.
    pub profile: Profile,
    /// Where it was written.
    pub origin: Origin,
}

/// How a server is started or reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportSpec {
    /// A child process, spoken to on its standard input and output.
    Stdio(StdioSpec),
    /// A streamable HTTP endpoint.
    Http(HttpSpec),
}

/// A child process. Its environment is the stated base, then `inherit_env`, then `env`; nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioSpec {
    /// An absolute path.
    pub program: PathBuf,
    /// Arguments; references are resolved at spawn.
    pub args: Vec<Template>,
    /// Variables set for it.
    pub env: BTreeMap<String, Template>,
    /// Names of variables that are taken over from the hub's environment.
    pub inherit_env: BTreeSet<String>,
    /// Its working directory; the hub's own where none is given.
    pub cwd: Option<PathBuf>,
}

impl StdioSpec {
    /// The secrets that stand in the arguments themselves, so far as they can be told: what follows an option that
    /// is called after a secret, and what looks like one. Whoever shows what a program says leaves them out.
    #[must_use]
    pub fn secrets_in_args(&self) -> Vec<&str> {
        let options = Options::default();
        let mut found = Vec::new();
        let mut wants_secret = false;
        for arg in self.args.iter().map(Template::source) {
            let is_option = arg.starts_with('-');
            if wants_secret && !is_option {
                found.push(arg);
            } else if let Some((_, value)) =
                secrets::in_argument(arg, &options).and_then(|from| arg.split_at_checked(from))
            {
                found.push(secrets::after_scheme(value));
            }
            wants_secret = is_option && !arg.contains('=') && secrets::name(arg, &options);
        }
        found
    }
}

/// A streamable HTTP endpoint.
///
/// `Debug` shows the url as [`shown_url`](Self::shown_url) does.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpSpec {
    /// `http` or `https`.
    pub url: Url,
    /// Headers sent with each request; references are resolved when the connection is made.
    pub headers: BTreeMap<String, Template>,
    /// Where it may connect. The guarded client refuses everything else.
    pub egress: Egress,
    /// The proxy that it is reached through. One of the environment is never used.
    pub proxy: Option<Box<ProxySpec>>,
    /// Files of root certificates in PEM, by absolute paths, that are trusted beside the system's. They are read when
    /// the connection is made.
    pub root_certificates: Vec<PathBuf>,
}

/// A proxy. It is used where [`HttpSpec::egress`] allows it as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySpec {
    /// `http` or `https`, a host and a port.
    pub url: Url,
    /// Who the proxy is told that this is; a reference is resolved when the connection is made.
    pub username: Option<Template>,
    /// The password of that user.
    pub password: Option<Template>,
}

impl HttpSpec {
    /// The url as it may be shown: values of its query, and parts of its path that look like a secret, are left
    /// out.
    #[must_use]
    pub fn shown_url(&self) -> String {
        let mut shown = self.url.origin().ascii_serialization();
        for part in self.url.path().split('/').skip(1) {
            shown.push('/');
            shown.push_str(if crate::secrets::looks_secret(part) {
                "…"
            } else {
                part
            });
        }
        for ((name, _), separator) in self
            .url
            .query_pairs()
            .zip(std::iter::once('?').chain(std::iter::repeat('&')))
        {
            shown.push(separator);
            shown.push_str(if crate::secrets::looks_secret(&name) {
                "…"
            } else {
                &name
            });
            shown.push_str("=…");
        }
        shown
    }
}

impl fmt::Debug for HttpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSpec")
            .field("url", &self.shown_url())
            .field("headers", &self.headers)
            .field("egress", &self.egress)
            .field("proxy", &self.proxy)
            .field("root_certificates", &self.root_certificates)
            .finish()
    }
}

/// Deadlines of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From spawn to the end of the handshake.
    pub connect: Duration,
    /// For all pages of a list together.
    pub list: Duration,
    /// For a call without progress; progress renews it.
    pub call: Duration,
    /// For a call, however much it progresses.
    pub call_max: Duration,
}

impl Timeouts {
    /// The default of a server that says nothing: 30 s, and ten times that as a call's cap.
    pub const DEFAULT: Duration = Duration::from_secs(30);

    /// Connect, list and call share `each`; a call's cap is ten times that.
    #[must_use]
    pub fn uniform(each: Duration) -> Self {
        Self {
            connect: each,
            list: each,
            call: each,
            call_max: each.saturating_mul(10),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::uniform(Self::DEFAULT)
    }
}

/// Which era of the protocol a server is spoken to in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// `server/discover` first, `initialize` on a fresh connection where that fails; remembered.
    #[default]
    Auto,
    /// Revision 2026-07-28 only: stateless, `server/discover`.
    Modern,
    /// Revision 2025-11-25 or older: `initialize`.
    Initialize,
}

/// Who shares a server's connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All sessions of the hub.
    #[default]
    Shared,
    /// Nobody: each session has its own.
    PerSession,
}

/// How much of a server there may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls at one time.
    pub calls_in_flight: u32,
    /// Calls that wait for their turn; the next is refused as busy.
    pub calls_waiting: u32,
    /// Tools that it may list.
    pub tools: u32,
    /// What its process may use.
    pub process: ProcessLimits,
}

/// What a child process may use at most, and each process that it starts, counted for itself; none is set by default.
/// They hold on Linux, where the hub has a warden; elsewhere a server with such a limit is not started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Address space, in bytes.
    pub memory_bytes: Option<u64>,
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// Processes and threads of the user that it runs as, those of other programs counted.
    pub processes: Option<u64>,
    /// Processor time, in seconds.
    pub cpu_seconds: Option<u64>,
    /// The size of any file that it writes, in bytes.
    pub file_bytes: Option<u64>,
}

/// What the process may use is shown where it is limited: most are not.
impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Limits");
        shown
            .field("calls_in_flight", &self.calls_in_flight)
            .field("calls_waiting", &self.calls_waiting)
            .field("tools", &self.tools);
        if self.process != ProcessLimits::default() {
            shown.field("process", &self.process);
        }
        shown.finish()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls_in_flight: 64,
            calls_waiting: 1_024,
            tools: 256,
            process: ProcessLimits::default(),
        }
    }
}

/// Where a server was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The document's name, as the caller gave it.
    pub file: String,
    /// The entry's first line, counted from 1; 0 where a host gave it in code.
    pub line: usize,
    /// The plugin that declares it, where one does.
    pub plugin: Option<String>,
}

#[cfg(test)]
mod tests;
