use std::{collections::BTreeSet, path::PathBuf};

use crate::Dialect;

/// A document to read: its name, for diagnostics, and its bytes as they are on disk.
///
/// The name's extension (`.json`, `.jsonc`, `.yaml`, `.yml`, `.toml`) says how it is written; without one the
/// first characters do. JSON may hold comments and trailing commas, and either may start with a byte order mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What diagnostics and [`Origin`](crate::Origin)s call it: its path, as the user gave it.
    pub name: String,
    /// The content.
    pub bytes: Vec<u8>,
    /// Whose shape it has; `None` to tell from the shape itself.
    pub dialect: Option<Dialect>,
    /// The plugin that brought it, if one did: the origin of its servers then.
    pub plugin: Option<String>,
}

impl Document {
    /// A document of that name and content.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            bytes: bytes.into(),
            dialect: None,
            plugin: None,
        }
    }

    /// The same, read as that dialect has it.
    #[must_use]
    pub fn in_dialect(self, dialect: Dialect) -> Self {
        Self {
            dialect: Some(dialect),
            ..self
        }
    }

    /// The same, brought by a plugin.
    #[must_use]
    pub fn of_plugin(self, plugin: impl Into<String>) -> Self {
        Self {
            plugin: Some(plugin.into()),
            ..self
        }
    }
}

/// How much a document may ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Documents that people wrote for a desktop client: a bare program name is looked up, a literal secret is
    /// accepted with a warning.
    #[default]
    Desktop,
    /// Definitions that a host hands over: absolute programs, no capability in `env`, inherited variables from an
    /// allowed list only, timeouts of 1,000 to 300,000 ms (60,000 by default), at most 8 servers in one call.
    Strict,
}

/// Limits and rules of one [`normalize`](crate::normalize) call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The profile. A document may ask for a stricter one (`profile: strict`), never for a laxer one.
    pub profile: Profile,
    /// The variables that a document in the strict profile may inherit. Each counts as carrying a capability.
    pub allowed_inherited_env_keys: BTreeSet<String>,
    /// Words that make a variable's name carry a capability, in upper case; whole words of the name, split at
    /// `_`, are compared without regard to case.
    pub capability_words: BTreeSet<String>,
    /// The most servers in one call, over all documents; `None` for 8 in strict documents and no limit in others.
    pub max_servers: Option<usize>,
    /// The largest document, in bytes.
    pub max_document_bytes: usize,
    /// How deep lists and objects may stand in each other.
    pub max_depth: usize,
    /// What `${workspaceFolder}` of editors' documents means: an absolute path. Without it, that reference has no
    /// value.
    pub workspace_folder: Option<PathBuf>,
    /// Whether [`Normalized::fields`](crate::Normalized::fields) is filled.
    pub trace: bool,
}

impl Options {
    /// The most servers that strict documents may define in one call.
    pub const STRICT_MAX_SERVERS: usize = 8;
}

impl Default for Options {
    fn default() -> Self {
        let words = [
            "APIKEY",
            "AUTH",
            "AUTHORIZATION",
            "BEARER",
            "COOKIE",
            "CREDENTIAL",
            "CREDENTIALS",
            "KEY",
            "KEYS",
            "PASSPHRASE",
            "PASSWD",
            "PASSWORD",
            "PASSWORDS",
            "SECRET",
            "SECRETS",
            "TOKEN",
            "TOKENS",
        ];
        Self {
            profile: Profile::Desktop,
            allowed_inherited_env_keys: BTreeSet::new(),
            capability_words: words.into_iter().map(str::to_owned).collect(),
            max_servers: None,
            max_document_bytes: 4 * 1024 * 1024,
            max_depth: 64,
            workspace_folder: None,
            trace: false,
        }
    }
}
