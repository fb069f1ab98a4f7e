//! The text of a document, and how pieces of it are shown to people.

pub(crate) use portcullis_types::is_hidden;

use crate::{diagnostic::ByteSpan, value::Span};
pub(crate) use sink::{Change, Sink, Traced, apply};

mod sink;

/// The text of a document, and where its lines and characters lie.
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) text: String,
    /// Bytes of the byte order mark that was taken off.
    base: usize,
    lines: Vec<usize>,
    chars: CharIndex,
}

impl Source {
    pub(crate) fn new(file: &str, text: String, base: usize) -> Self {
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let chars = CharIndex::new(&text);
        Self {
            file: file.to_owned(),
            text,
            base,
            lines,
            chars,
        }
    }

    /// The line and column, in characters, both counted from 1.
    pub(crate) fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let column = self
            .chars
            .char_of(&self.text, offset)
            .saturating_sub(self.chars.char_of(&self.text, start));
        (line, column + 1)
    }

    /// A diagnostic's span in the text without its byte order mark.
    pub(crate) fn own(&self, span: ByteSpan) -> Span {
        let start = span.offset_bytes.saturating_sub(self.base).min(self.text.len());
        Span {
            start,
            end: start + span.length_bytes,
        }
    }

    /// Where the line starts that this byte stands in.
    pub(crate) fn line_start(&self, offset: usize) -> usize {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        self.lines.get(line - 1).copied().unwrap_or(0)
    }

    pub(crate) fn line(&self, span: Span) -> usize {
        self.position(span.start).0
    }

    /// The byte at which the character stands that many characters from the start.
    pub(crate) fn byte_of(&self, char_index: usize) -> usize {
        self.chars.byte_of(&self.text, char_index)
    }
}

/// Where every 128th character starts, so that one line of 4 MiB costs no more than many short ones.
struct CharIndex(Vec<usize>);

impl CharIndex {
    const STEP: usize = 128;

    fn new(text: &str) -> Self {
        Self(
            text.char_indices()
                .step_by(Self::STEP)
                .map(|(at, _)| at)
                .collect(),
        )
    }

    fn byte_of(&self, text: &str, char_index: usize) -> usize {
        let start = self.0.get(char_index / Self::STEP).copied().unwrap_or(text.len());
        let rest = text.get(start..).unwrap_or_default();
        rest.char_indices()
            .nth(char_index % Self::STEP)
            .map_or(text.len(), |(at, _)| start + at)
    }

    fn char_of(&self, text: &str, offset: usize) -> usize {
        let step = self.0.partition_point(|start| *start <= offset).saturating_sub(1);
        let start = self.0.get(step).copied().unwrap_or(0);
        let rest = text.get(start..).unwrap_or_default();
        step * Self::STEP
            + rest
                .char_indices()
                .take_while(|(at, _)| start + at < offset)
                .count()
    }
}

/// The longest name of a server or a field that is repeated in findings and reports, in characters. Without such a
/// limit one long name and many findings under it would make a report that is far larger than the document.
pub(crate) const MAX_NAME: usize = 128;

/// A name as findings and reports repeat it: cut where it is long.
pub(crate) fn short(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((at, _)) => format!("{}…", name.split_at(at).0),
        None => name.to_owned(),
    }
}

/// What a user wrote, in backticks: control characters escaped, and cut where it is long.
pub(crate) fn quote(text: &str) -> String {
    const MAX: usize = 80;
    let mut quoted = String::from("`");
    let mut chars = text.chars();
    chars
        .by_ref()
        .take(MAX)
        .for_each(|c| push_visible(c, &mut quoted));
    if chars.next().is_some() {
        quoted.push('…');
    }
    quoted.push('`');
    quoted
}

fn push_visible(c: char, text: &mut String) {
    if c.is_control() || is_hidden(c) {
        text.extend(c.escape_default());
    } else {
        text.push(c);
    }
}

/// The text with what could do something to a terminal escaped.
pub(crate) fn printable(text: String) -> String {
    if !text.contains(|c: char| c.is_control() || is_hidden(c)) {
        return text;
    }
    let mut printable = String::with_capacity(text.len());
    text.chars().for_each(|c| push_visible(c, &mut printable));
    printable
}

#[cfg(test)]
mod tests;
