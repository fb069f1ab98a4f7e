//! One thing that a chore found wrong, where, and what to do about it.

use std::fmt;

/// Shown as `path:line:column: what`, which editors and terminals turn into a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// From the root of the checkout.
    pub(crate) path: String,
    /// Line and column, both counted from 1; 0 where the finding is about the whole file.
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) what: String,
    pub(crate) help: String,
}

impl Finding {
    /// A finding about a whole file.
    pub(crate) fn file(path: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: 0,
            column: 0,
            what: what.into(),
            help: help.into(),
        }
    }

    /// The same finding, at a line.
    pub(crate) fn at(self, line: usize, column: usize) -> Self {
        Self { line, column, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.path)?;
        if self.line > 0 {
            write!(formatter, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(formatter, ":{}", self.column)?;
        }
        write!(formatter, ": {}\n    help: {}", self.what, self.help)
    }
}
