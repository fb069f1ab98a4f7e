use std::collections::HashMap;

use crate::{
    Code, Diagnostic, Fate, FieldReport, Severity,
    diagnostic::ByteSpan,
    unread::Unread,
    value::{Problem, Span, Spanned},
};

/// Most findings of one document that are kept, of each severity: nobody reads more, and a hostile document could
/// otherwise make a list far larger than itself.
const MAX_DIAGNOSTICS: usize = 1_000;

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

/// What was done to a field after it had been read.
pub(crate) struct Change {
    /// Where the server's entry stands: names may come twice.
    pub(crate) entry: usize,
    /// The field of the own format.
    pub(crate) to: String,
    pub(crate) how: &'static str,
}

/// What became of a field, and in which entry it stands; `None` outside of servers.
pub(crate) struct Traced {
    pub(crate) entry: Option<usize>,
    pub(crate) report: FieldReport,
}

/// Most keys of one document for which a near one is looked for.
const MAX_SUGGESTIONS: usize = 256;
/// How often a name that restricts is looked for.
const MAX_LOOKS_FOR_LIMITS: usize = 2_048;

/// Collects the findings of one document.
pub(crate) struct Sink<'s> {
    source: &'s Source,
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    /// Those of the errors that are the document's own, and not this machine's.
    own_errors: usize,
    warnings: usize,
    server: Option<Entered>,
    fields: Option<Vec<Traced>>,
    changes: Vec<Change>,
    suggestions: usize,
    looks_for_limits: usize,
    /// What the document may say for all servers, and is not used.
    pub(crate) unread: Unread,
}

/// The server that findings stand in.
struct Entered {
    /// As [`short`] has it: it is repeated in each finding. `None` where the document gives it none.
    name: Option<String>,
    entry: usize,
    line: usize,
}

impl<'s> Sink<'s> {
    pub(crate) fn new(source: &'s Source) -> Self {
        Self {
            source,
            diagnostics: Vec::new(),
            errors: 0,
            own_errors: 0,
            warnings: 0,
            server: None,
            fields: None,
            changes: Vec::new(),
            suggestions: 0,
            looks_for_limits: 0,
            unread: Unread::default(),
        }
    }

    /// The same, which also keeps what became of each field.
    pub(crate) fn tracing(source: &'s Source, trace: bool) -> Self {
        Self {
            fields: trace.then(Vec::new),
            ..Self::new(source)
        }
    }

    pub(crate) fn source(&self) -> &'s Source {
        self.source
    }

    /// Says which server the findings that follow stand in.
    pub(crate) fn enter(&mut self, server: Option<&Spanned<String>>) {
        self.server = server.map(|server| Entered {
            name: (!server.value.is_empty()).then(|| short(&server.value)),
            entry: server.span.start,
            line: self.source.line(server.span),
        });
    }

    /// Whether a near key may still be looked for: that takes longer than all else that is done with a key.
    pub(crate) fn may_suggest(&mut self) -> bool {
        self.suggestions += 1;
        self.suggestions <= MAX_SUGGESTIONS
    }

    /// The same for names that restrict: of those more is at stake, and they are few.
    pub(crate) fn may_look_for_limits(&mut self) -> bool {
        self.looks_for_limits += 1;
        self.looks_for_limits <= MAX_LOOKS_FOR_LIMITS
    }

    /// Whether anybody wants to know what became of the fields.
    pub(crate) fn is_tracing(&self) -> bool {
        self.fields.is_some()
    }

    /// Says what became of a field.
    pub(crate) fn field(&mut self, path: &str, span: Span, fate: Fate) {
        let Some(fields) = &mut self.fields else { return };
        let (line, column) = self.source.position(span.start);
        let server = self.server.as_ref();
        fields.push(Traced {
            entry: server.map(|server| server.entry),
            report: FieldReport {
                server: server.and_then(|server| server.name.clone()),
                server_line: server.map_or(0, |server| server.line),
                field: printable(short_path(path)),
                file: self.source.file.clone(),
                line,
                column,
                fate,
            },
        });
    }

    /// Says that a field was changed after it had been read.
    pub(crate) fn change(&mut self, change: Change) {
        if self.is_tracing() {
            self.changes.push(change);
        }
    }

    /// Takes what was said of the fields, in the order of the text.
    pub(crate) fn take_fields(&mut self) -> Vec<Traced> {
        let mut fields = self.fields.take().unwrap_or_default();
        apply(&self.changes, &mut fields);
        fields.sort_by_key(|field| (field.report.line, field.report.column));
        fields
    }

    /// How many errors there were so far: whoever reads a server compares before and after.
    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    /// The same, of those that would be there on any machine.
    pub(crate) fn own_errors(&self) -> usize {
        self.own_errors
    }

    pub(crate) fn error(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Severity::Error, code, span, message.into(), help.into());
    }

    /// An error that a text could not become a tree.
    pub(crate) fn problem(&mut self, problem: Problem) {
        self.error(problem.code, problem.span, problem.message, problem.help);
    }

    pub(crate) fn warning(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Severity::Warning, code, span, message.into(), help.into());
    }

    pub(crate) fn report(
        &mut self,
        severity: Severity,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        match severity {
            Severity::Error => self.error(code, span, message, help),
            Severity::Warning => self.warning(code, span, message, help),
        }
    }

    /// All findings, in the order of the text.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by(|a, b| {
            (a.span.offset_bytes, a.severity, a.code).cmp(&(b.span.offset_bytes, b.severity, b.code))
        });
        self.diagnostics
    }

    fn push(&mut self, severity: Severity, code: Code, span: Span, message: String, help: String) {
        let (count, kind) = match severity {
            Severity::Error => (&mut self.errors, "errors"),
            Severity::Warning => (&mut self.warnings, "warnings"),
        };
        *count += 1;
        self.own_errors += usize::from(severity == Severity::Error && !code.is_of_the_machine());
        let (code, message, help) = match *count - 1 {
            ..MAX_DIAGNOSTICS => (code, message, help),
            MAX_DIAGNOSTICS => (
                Code::TooManyDiagnostics,
                format!("only the first {MAX_DIAGNOSTICS} {kind} of this document are shown"),
                "mend these first, then check again".to_owned(),
            ),
            _ => return,
        };
        // Names reach a help text unquoted, and a parser's own message may hold a piece of the document.
        let [message, help] = [message, help].map(printable);
        let (line, column) = self.source.position(span.start);
        let span = ByteSpan {
            offset_bytes: span.start + self.source.base,
            length_bytes: span.end.saturating_sub(span.start),
        };
        let file = self.source.file.clone();
        let server = self.server.as_ref().and_then(|server| server.name.clone());
        self.diagnostics.push(Diagnostic {
            severity,
            code,
            file,
            line,
            column,
            span,
            server,
            message,
            help,
        });
    }
}

/// Adds to the fields' fates what was done to them after they had been read.
pub(crate) fn apply(changes: &[Change], fields: &mut [Traced]) {
    let mut known: HashMap<(usize, &str), Vec<&'static str>> = HashMap::new();
    for change in changes {
        let hows = known.entry((change.entry, &change.to)).or_default();
        if !hows.contains(&change.how) {
            hows.push(change.how);
        }
    }
    for Traced { entry, report } in fields {
        let Some(entry) = entry else { continue };
        let (to, before) = match &report.fate {
            Fate::Carried { to } => (to, None),
            Fate::Converted { to, how } => (to, Some(how.as_str())),
            Fate::Dropped { .. } => continue,
        };
        // A field that becomes several is changed when one of these is.
        let hows: Vec<_> = to
            .split(", ")
            .filter_map(|to| known.get(&(*entry, to)))
            .flatten()
            .copied()
            .collect();
        if !hows.is_empty() {
            let how = before.into_iter().chain(hows).collect::<Vec<_>>().join("; ");
            report.fate = Fate::Converted { to: to.clone(), how };
        }
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

/// The end of a path of many parts: what stands there says most.
fn short_path(path: &str) -> String {
    const MAX: usize = 3 * MAX_NAME;
    let from = path.len().saturating_sub(MAX);
    let at = (from..path.len()).find(|at| path.is_char_boundary(*at));
    match path.split_at_checked(at.unwrap_or_default()) {
        Some((before, end)) if !before.is_empty() => format!("…{end}"),
        _ => path.to_owned(),
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

/// Characters that a terminal does not show, or that turn the rest of its line around, such as U+202E.
pub(crate) fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
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
