use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use crate::env_file;

/// What references are resolved against. The caller decides what there is to see.
pub trait Sources {
    /// The value of an environment variable; `None` where it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of a file, for `${file:/path}`; `None` where it cannot be read.
    fn file(&self, path: &str) -> Option<String>;

    /// A secret of the system's keyring, for `${keyring:service/account}`; `None` where there is none, or no
    /// keyring.
    fn keyring(&self, service: &str, account: &str) -> Option<SecretString> {
        let _ = (service, account);
        None
    }

    /// Whether [`keyring`](Self::keyring) looks anywhere at all: where it does not, whoever refers to an entry is
    /// told so.
    fn has_keyring(&self) -> bool {
        false
    }
}

/// A reference that has no value. Names the reference, never a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// `${env:X}` or `${X}`, and X is not set.
    #[error("the variable `{0}` is not set")]
    Variable(String),
    /// `${file:/path}`, and the file cannot be read.
    #[error("the file `{0}` cannot be read")]
    File(String),
    /// `${keyring:service/account}`, and the keyring has no such entry, or there is no keyring.
    #[error("the keyring has no entry `{0}`, or cannot be read")]
    Keyring(String),
    /// `envFile`, and the file no longer sets the variable.
    #[error("the file `{path}` does not set `{name}`")]
    EnvFile {
        /// The file.
        path: String,
        /// The variable.
        name: String,
    },
    /// A text that its references make longer than [`Template::MAX_BYTES`].
    #[error("with what it refers to it comes to more than {} bytes", Template::MAX_BYTES)]
    TooLong,
    /// A reference of a kind that is not supported.
    #[error(
        "the reference `{0}` is of no kind that is resolved here: use `${{env:NAME}}`, `${{file:/path}}` or \
         `${{keyring:service/account}}`"
    )]
    Kind(String),
}

/// A text that may hold references such as `${env:TOKEN}`. They are resolved when the server starts, and the
/// result is a secret: it is never printed.
///
/// `Debug` shows neither the literal parts nor the references' values: a literal may be a secret as well.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable { name: String, default: Option<String> },
    File(String),
    Keyring { service: String, account: String },
    EnvFile { path: String, name: String },
    Unknown(String),
}

impl Template {
    /// The longest text that references may make, in bytes: no argument, variable or header is that long, and one
    /// that refers to a long file a thousand times would fill the memory.
    pub const MAX_BYTES: usize = 1024 * 1024;

    /// Reads `${env:X}`, `${X}`, `${X:-default}`, `${file:/path}`, `${keyring:service/account}`. Anything else in `${…}` is a reference that
    /// will not resolve; a `$` without a brace is text, and so is an unclosed `${`.
    #[must_use]
    pub fn parse(source: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = source;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((inside, next)) = after.split_once('}') else {
                break;
            };
            if !before.is_empty() {
                parts.push(Part::Literal(before.to_owned()));
            }
            parts.push(Part::reference(inside));
            rest = next;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Self {
            source: source.to_owned(),
            parts,
        }
    }

    /// The text as it is, with no references in it.
    #[must_use]
    pub fn literal(text: &str) -> Self {
        Self {
            source: text.to_owned(),
            parts: vec![Part::Literal(text.to_owned())],
        }
    }

    /// The value that a file of `NAME=value` lines has for a variable. Read when the server starts, as all
    /// references are.
    #[must_use]
    pub fn env_file(path: &str, name: &str) -> Self {
        Self {
            source: format!("${{envFile:{path}#{name}}}"),
            parts: vec![Part::EnvFile {
                path: path.to_owned(),
                name: name.to_owned(),
            }],
        }
    }

    /// The text as it was written. It may hold a literal secret: never print it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it holds a reference.
    #[must_use]
    pub fn has_references(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Literal(_)))
    }

    /// Whether a literal part of it, or the default of a reference, is such.
    pub(crate) fn any_literal(&self, is: impl Fn(&str) -> bool) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Literal(text) => is(text),
            Part::Variable { default, .. } => default.as_deref().is_some_and(&is),
            _ => false,
        })
    }

    /// Whether a reference in it has a default that says something.
    pub(crate) fn has_defaults(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, Part::Variable { default: Some(default), .. } if !default.is_empty()))
    }

    /// The names of the variables that it refers to, those with a default included.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }

    /// The paths of the files that it refers to.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::File(path) => Some(path.as_str()),
            _ => None,
        })
    }

    /// The keyring entries that it refers to, as `service/account`.
    pub fn keyring_entries(&self) -> impl Iterator<Item = String> {
        self.parts.iter().filter_map(|part| match part {
            Part::Keyring { service, account } => Some(format!("{service}/{account}")),
            _ => None,
        })
    }

    /// Every reference that has no value, where [`resolve`](Self::resolve) stops at the first.
    #[must_use]
    pub fn unresolved(&self, sources: &dyn Sources) -> Vec<ResolveError> {
        let mut bytes = 0_usize;
        let mut errors = Vec::new();
        for part in &self.parts {
            let mut text = String::new();
            errors.extend(part.append(sources, &mut text).err());
            bytes = bytes.saturating_add(text.len());
            if bytes > Self::MAX_BYTES && self.has_references() {
                errors.push(ResolveError::TooLong);
                break;
            }
        }
        errors
    }

    /// The values of its references alone, each by itself: whoever prints what came of the text leaves them out.
    #[must_use]
    pub fn referred_values(&self, sources: &dyn Sources) -> Vec<SecretString> {
        let value = |part: &Part| {
            let mut text = String::new();
            part.append(sources, &mut text).ok()?;
            Some(SecretString::from(text))
        };
        self.parts
            .iter()
            .filter(|part| !matches!(part, Part::Literal(_)))
            .filter_map(value)
            .collect()
    }

    /// The text with each reference replaced by its value.
    ///
    /// # Errors
    /// [`ResolveError`] for the first reference that has no value, or where the text becomes too long.
    pub fn resolve(&self, sources: &dyn Sources) -> Result<SecretString, ResolveError> {
        let mut text = String::new();
        for part in &self.parts {
            part.append(sources, &mut text)?;
            if text.len() > Self::MAX_BYTES && self.has_references() {
                return Err(ResolveError::TooLong);
            }
        }
        Ok(SecretString::from(text))
    }
}

impl Part {
    fn append(&self, sources: &dyn Sources, text: &mut String) -> Result<(), ResolveError> {
        match self {
            Self::Literal(literal) => text.push_str(literal),
            Self::Variable { name, default } => {
                let value = sources.variable(name).or_else(|| default.clone());
                text.push_str(&value.ok_or_else(|| ResolveError::Variable(name.clone()))?);
            }
            Self::File(path) => {
                let value = sources
                    .file(path)
                    .ok_or_else(|| ResolveError::File(path.clone()))?;
                // A file made with an editor ends in a newline that is not part of the secret.
                text.push_str(value.trim_end_matches(['\r', '\n']));
            }
            Self::Keyring { service, account } => {
                let value = sources
                    .keyring(service, account)
                    .ok_or_else(|| ResolveError::Keyring(format!("{service}/{account}")))?;
                text.push_str(value.expose_secret());
            }
            Self::EnvFile { path, name } => {
                let file = sources
                    .file(path)
                    .ok_or_else(|| ResolveError::File(path.clone()))?;
                let value = env_file::value(&file, name);
                text.push_str(value.ok_or_else(|| ResolveError::EnvFile {
                    path: path.clone(),
                    name: name.clone(),
                })?);
            }
            Self::Unknown(reference) => return Err(ResolveError::Kind(reference.clone())),
        }
        Ok(())
    }

    fn reference(inside: &str) -> Self {
        if let Some(path) = inside.strip_prefix("file:") {
            return Self::File(path.to_owned());
        }
        if let Some((service, account)) = inside
            .strip_prefix("keyring:")
            .and_then(|entry| entry.split_once('/'))
            .filter(|(service, account)| !service.is_empty() && !account.is_empty())
        {
            return Self::Keyring {
                service: service.to_owned(),
                account: account.to_owned(),
            };
        }
        let body = inside.strip_prefix("env:").unwrap_or(inside);
        let (name, default) = match body.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (body, None),
        };
        if is_variable(name) {
            Self::Variable {
                name: name.to_owned(),
                default,
            }
        } else {
            Self::Unknown(format!("${{{inside}}}"))
        }
    }
}

/// Whether a text is a name of a variable, as POSIX has it.
pub(crate) fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_references() {
            "Template(with references)"
        } else {
            "Template(literal)"
        })
    }
}

#[cfg(test)]
mod tests;
