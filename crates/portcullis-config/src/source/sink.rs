//! What was found in a document, and what became of its fields.

use std::collections::{HashMap, HashSet};

use super::{MAX_NAME, Source, printable, short};
use crate::{
    Code, Diagnostic, Fate, FieldReport, Severity,
    diagnostic::ByteSpan,
    unread::Unread,
    value::{Problem, Span, Spanned},
};

/// Most findings of one document that are kept, of each severity: nobody reads more, and a hostile document could
/// otherwise make a list far larger than itself.
const MAX_DIAGNOSTICS: usize = 1_000;

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
    /// Where keys that stand twice cost nothing that is read: they are settings of the client's own.
    of_client: HashSet<usize>,
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
            of_client: HashSet::new(),
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

    /// Says that a key that stands twice is one of the client's own settings.
    pub(crate) fn is_of_client(&mut self, key: Span) {
        self.of_client.insert(key.start + self.source.base);
    }

    /// All findings, in the order of the text.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        for found in &mut self.diagnostics {
            if found.code == Code::DuplicateKey && self.of_client.contains(&found.span.offset_bytes) {
                found.severity = Severity::Warning;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_finding_can_do_anything_to_a_terminal() {
        let source = Source::new("x", String::new(), 0);
        let mut sink = Sink::new(&source);
        sink.warning(Code::Syntax, Span::default(), "a\u{1b}[2Jb", "c\u{202e}d\n");
        let found = &sink.finish()[0];
        assert_eq!(
            (found.message.as_str(), found.help.as_str()),
            ("a\\u{1b}[2Jb", "c\\u{202e}d\\n")
        );
    }

    #[test]
    fn long_names_are_cut_where_they_are_repeated() {
        let long = "ä".repeat(5_000);
        assert_eq!(short(&long).chars().count(), MAX_NAME + 1);
        assert_eq!(short("short"), "short");
        let path = short_path(&format!("{long}.end"));
        assert!(
            path.starts_with('…') && path.ends_with("ä.end") && path.len() <= 3 * MAX_NAME + 3,
            "{path}"
        );
        assert_eq!(short_path("a.b"), "a.b");
        assert_eq!(short_path(""), "");

        let source = Source::new("x", "y".to_owned(), 0);
        let mut sink = Sink::tracing(&source, true);
        let name = Spanned {
            value: long.clone(),
            span: Span::default(),
        };
        sink.enter(Some(&name));
        sink.field(&long, Span::default(), Fate::carried("a"));
        sink.error(Code::Syntax, Span::default(), "no", "yes");
        let field = sink.take_fields().remove(0).report;
        let found = sink.finish().remove(0);
        assert!(field.field.len() < 500, "{}", field.field.len());
        for server in [field.server, found.server] {
            assert!(server.is_some_and(|server| server.len() < 500));
        }
    }

    #[test]
    fn a_flood_of_findings_is_cut_and_said_so() {
        let source = Source::new("x", "y".to_owned(), 0);
        let mut sink = Sink::new(&source);
        for _ in 0..MAX_DIAGNOSTICS + 5 {
            sink.warning(Code::UnknownField, Span { start: 0, end: 1 }, "no", "yes");
        }
        // However many warnings came before it: a document with an error must not pass for a good one.
        for _ in 0..MAX_DIAGNOSTICS + 5 {
            sink.error(Code::Syntax, Span { start: 0, end: 1 }, "no", "yes");
        }
        assert_eq!(sink.errors(), MAX_DIAGNOSTICS + 5);
        let all = sink.finish();
        for severity in [Severity::Error, Severity::Warning] {
            let of = || all.iter().filter(|found| found.severity == severity);
            assert_eq!(of().count(), MAX_DIAGNOSTICS + 1);
            let said = of().filter(|found| found.code == Code::TooManyDiagnostics);
            assert_eq!(said.count(), 1);
        }
    }
}
