use std::fmt;

use secrecy::SecretString;
use thiserror::Error;

/// What references are resolved against. The caller decides what there is to see.
pub trait Sources {
    /// The value of an environment variable; `None` where it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of a file, for `${file:/path}`; `None` where it cannot be read.
    fn file(&self, path: &str) -> Option<String>;
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
    /// A reference of a kind that is not supported.
    #[error("the reference `{0}` is of no kind that is resolved here: use `${{env:NAME}}` or `${{file:/path}}`")]
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
    Unknown(String),
}

impl Template {
    /// Reads `${env:X}`, `${X}`, `${X:-default}`, `${file:/path}`. Anything else in `${…}` is a reference that
    /// will not resolve; a `$` without a brace is text, and so is an unclosed `${`.
    #[must_use]
    pub fn parse(source: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = source;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((inside, next)) = after.split_once('}') else { break };
            if !before.is_empty() {
                parts.push(Part::Literal(before.to_owned()));
            }
            parts.push(Part::reference(inside));
            rest = next;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Self { source: source.to_owned(), parts }
    }

    /// The text as it is, with no references in it.
    #[must_use]
    pub fn literal(text: &str) -> Self {
        Self { source: text.to_owned(), parts: vec![Part::Literal(text.to_owned())] }
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

    /// The text with each reference replaced by its value.
    ///
    /// # Errors
    /// [`ResolveError`] for the first reference that has no value.
    pub fn resolve(&self, sources: &dyn Sources) -> Result<SecretString, ResolveError> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Variable { name, default } => {
                    let value = sources.variable(name).or_else(|| default.clone());
                    text.push_str(&value.ok_or_else(|| ResolveError::Variable(name.clone()))?);
                }
                Part::File(path) => {
                    let value = sources.file(path).ok_or_else(|| ResolveError::File(path.clone()))?;
                    // A file made with an editor ends in a newline that is not part of the secret.
                    text.push_str(value.trim_end_matches(['\r', '\n']));
                }
                Part::Unknown(reference) => return Err(ResolveError::Kind(reference.clone())),
            }
        }
        Ok(SecretString::from(text))
    }
}

impl Part {
    fn reference(inside: &str) -> Self {
        if let Some(path) = inside.strip_prefix("file:") {
            return Self::File(path.to_owned());
        }
        let body = inside.strip_prefix("env:").unwrap_or(inside);
        let (name, default) = match body.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (body, None),
        };
        let legal = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if legal { Self::Variable { name: name.to_owned(), default } } else { Self::Unknown(format!("${{{inside}}}")) }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_references() { "Template(with references)" } else { "Template(literal)" })
    }
}
