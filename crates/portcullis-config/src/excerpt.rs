//! The lines that diagnostics are about, with what may be a secret left out.
//!
//! Shown of a document are the names of fields, numbers where they are settings, the values of a few fields that never
//! hold a secret, and references; everything else is an ellipsis. Where the text could not be read, nothing but names is
//! shown.

use std::{cell::RefCell, fmt::Write};

use crate::{
    Diagnostic, Document, Options, Severity,
    normalize::read_text,
    secrets,
    source::Source,
    value::{self, Node, Span, Value},
};

/// Fields whose texts are words of a format or names, and no secrets.
const SHOWN: [&str; 19] = [
    "type",
    "transport",
    "transportType",
    "name",
    "id",
    "command",
    "cmd",
    "cwd",
    "protocol",
    "profile",
    "tier",
    "isolation",
    "source",
    "inheritEnv",
    "inheritEnvironment",
    "env_keys",
    "env_vars",
    "disabledTools",
    "allowedHosts",
];

/// Widest excerpt, in characters.
const WIDEST: usize = 100;

/// Prints diagnostics of one document as a compiler does: what, where, the line underlined, and what to do.
///
/// ```
/// use portcullis_config::{Document, Excerpts, NoEnvironment, Options, normalize};
///
/// let options = Options::default();
/// let document = Document::new("a.json", r#"{"mcpServers": {"a": {"url": "https://a.example", "typ": "http"}}}"#);
/// let found = normalize(std::slice::from_ref(&document), &options, &NoEnvironment).diagnostics;
/// assert_eq!(Excerpts::new(&document, &options).render(&found[0], false), concat!(
///     "warning[unknown-field]: `typ` is no field of a server: it is dropped\n",
///     " --> a.json:1:51\n",
///     "  |\n",
///     "1 | {\"mcpServers\": {\"a\": {\"url\": …, \"typ\": …}}}\n",
///     "  |                                 ^^^^^\n",
///     "  = help: did you mean `type`?\n",
/// ));
/// ```
pub struct Excerpts {
    source: Source,
    /// What may be shown, and the texts that otherwise may not; each in the order of the document.
    shown: Vec<Span>,
    hidden: Vec<Span>,
    /// The line that was shown last: a document may be one long line, with all its findings in it.
    last: RefCell<Option<Line>>,
}

/// A line as it may be shown.
struct Line {
    start: usize,
    end: usize,
    /// Where each character stands, and what is shown of it. Of characters side by side that are not shown, the
    /// first alone is here, as an ellipsis.
    cells: Vec<(usize, char)>,
    indent: usize,
}

impl Excerpts {
    /// Reads the document once, for any number of diagnostics.
    #[must_use]
    pub fn new(document: &Document, options: &Options) -> Self {
        let (source, parsed) = match read_text(document, options) {
            Ok(source) => {
                let parsed = value::parse(&source, options.max_depth).ok().flatten();
                (source, parsed)
            }
            Err(refused) => (refused.0, None),
        };
        let mut excerpts = Self {
            shown: Vec::new(),
            hidden: Vec::new(),
            last: RefCell::new(None),
            source,
        };
        match parsed {
            Some(root) => excerpts.collect("", &root, options),
            None => excerpts.shown = keys_of_text(&excerpts.source.text),
        }
        excerpts.shown.sort_by_key(|span| span.start);
        excerpts.hidden.sort_by_key(|span| span.start);
        excerpts
    }

    /// The diagnostic with its line; `colour` says whether a terminal will show it.
    #[must_use]
    pub fn render(&self, diagnostic: &Diagnostic, colour: bool) -> String {
        let paint = |code: &'static str, text: &str| match colour {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        };
        let (kind, mark) = match diagnostic.severity {
            Severity::Error => ("1;31", "error"),
            Severity::Warning => ("1;33", "warning"),
        };
        let head = paint(kind, &format!("{mark}[{}]", diagnostic.code));
        let number = diagnostic.line.to_string();
        let margin = " ".repeat(number.len());
        let bar = paint("34", "|");
        let mut text = format!("{head}: {}\n", diagnostic.message);
        let file = crate::source::printable(diagnostic.file.clone());
        let (line, column) = (diagnostic.line, diagnostic.column);
        let _ = writeln!(text, "{margin}{} {file}:{line}:{column}", paint("34", "-->"));
        if let Some((excerpt, from, length)) = self.excerpt(diagnostic) {
            let under = paint(kind, &"^".repeat(length.max(1)));
            let _ = writeln!(text, "{margin} {bar}");
            let _ = writeln!(text, "{} {bar} {excerpt}", paint("34", &number));
            let _ = writeln!(text, "{margin} {bar} {}{under}", " ".repeat(from));
        }
        let help = paint("36", "help");
        let _ = writeln!(text, "{margin} {} {help}: {}", paint("34", "="), diagnostic.help);
        text
    }

    /// The line as it may be shown, and where in it to underline how much.
    fn excerpt(&self, diagnostic: &Diagnostic) -> Option<(String, usize, usize)> {
        let span = self.source.own(diagnostic.span);
        let start = self.source.line_start(span.start);
        let mut last = self.last.borrow_mut();
        let line = match last.take().filter(|line| line.start == start) {
            Some(line) => line,
            None => self.line(start)?,
        };
        let window = line.window(span);
        *last = Some(line);
        window
    }

    fn line(&self, start: usize) -> Option<Line> {
        let text = self.source.text.get(start..)?.lines().next()?;
        let mut cells: Vec<(usize, char)> = Vec::new();
        for (at, c) in text.char_indices() {
            let at = start + at;
            match self.shown(at, c) {
                Some(c) => cells.push((at, c)),
                // One ellipsis, however long what it stands for is.
                None if cells.last().is_some_and(|(_, last)| *last == '…') => {}
                None => cells.push((at, '…')),
            }
        }
        let indent = cells.iter().take_while(|(_, c)| *c == ' ').count();
        Some(Line {
            start,
            end: start + text.len(),
            cells,
            indent,
        })
    }

    fn shown(&self, at: usize, c: char) -> Option<char> {
        let within = |spans: &[Span]| {
            let next = spans.partition_point(|span| span.start <= at);
            next.checked_sub(1)
                .and_then(|last| spans.get(last))
                .is_some_and(|span| at < span.end)
        };
        let safe = !c.is_control() && !crate::source::is_hidden(c);
        if c == '\t' || c == ' ' {
            Some(' ')
        } else {
            let structure = "{}[]():,=\"'#-".contains(c) && !within(&self.hidden);
            (safe && within(&self.shown) || structure).then_some(c)
        }
    }

    fn collect(&mut self, key: &str, value: &Value, options: &Options) {
        match &value.node {
            Node::Null | Node::Bool { .. } => self.shown.push(value.span),
            // A secret may have digits alone.
            Node::Number(_) => {
                let is_setting = !matches!(key, "" | "args" | "default") && !secrets::name(key, options);
                let kind = if is_setting {
                    &mut self.shown
                } else {
                    &mut self.hidden
                };
                kind.push(value.span);
            }
            Node::Text(text) => {
                let plain = !text.contains(char::is_whitespace) || key == "cwd";
                if SHOWN.contains(&key) && plain && !secrets::looks_secret(text) && !text.contains(['@', '='])
                {
                    self.shown.push(value.span);
                } else {
                    self.hidden.push(value.span);
                    self.references(value.span);
                }
            }
            Node::List(items) => {
                // In a list the program's arguments stand beside it.
                let key = if matches!(key, "command" | "cmd") { "" } else { key };
                items.iter().for_each(|item| self.collect(key, item, options));
            }
            Node::Object(object) => {
                for duplicate in &object.duplicates {
                    self.shown.push(duplicate.key.span);
                }
                for member in &object.members {
                    self.shown.push(member.key.span);
                    // What stands under a variable's or a header's name is no field, whatever it is called.
                    let free = ["env", "envs", "environment", "headers", "http_headers"].contains(&key);
                    let key = if free { "" } else { member.key.value.as_str() };
                    self.collect(key, &member.value, options);
                }
            }
        }
    }

    /// Shows references, which name a value and do not hold it; one with a default may.
    fn references(&mut self, span: Span) {
        let text = self.source.text.get(span.start..span.end).unwrap_or_default();
        let mut at = span.start;
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let start = at + before.len();
            let Some((inside, next)) = after.split_once('}') else {
                break;
            };
            let end = start + inside.len() + 3;
            let name = |b: u8| b.is_ascii_alphanumeric() || b"_:/.-".contains(&b);
            if inside.bytes().all(name) && !inside.contains(":-") && inside.len() <= 64 {
                self.shown.push(Span { start, end });
            }
            at = end;
            rest = next;
        }
    }
}

impl std::fmt::Debug for Excerpts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The text may hold secrets.
        write!(f, "Excerpts(of `{}`)", self.source.file)
    }
}

impl Line {
    /// As much of the line as shows what is underlined, and where in it to underline how much.
    fn window(&self, span: Span) -> Option<(String, usize, usize)> {
        if self.cells.len() == self.indent {
            return None;
        }
        let place = |at: usize| self.cells.partition_point(|(start, _)| *start < at);
        let (from, to) = (place(span.start), place(span.end.min(self.end)));
        // What is underlined may start inside of what an ellipsis stands for: it has one of its own then.
        let splits = from > 0
            && span.start < self.end
            && self.cells.get(from - 1).is_some_and(|(_, c)| *c == '…')
            && self.cells.get(from).is_none_or(|(start, _)| *start > span.start);
        let to = (to + usize::from(splits)).max(from + 1);
        let indent = self.indent.min(from);
        let first = if to.saturating_sub(indent) <= WIDEST {
            indent
        } else {
            from.saturating_sub(WIDEST / 4)
        };
        let before = self.cells.get(first..from)?.iter();
        let after = self.cells.get(from..)?.iter();
        let own = splits.then_some('…');
        let shown: String = before
            .map(|(_, c)| *c)
            .chain(own)
            .chain(after.map(|(_, c)| *c))
            .take(WIDEST)
            .collect();
        let from = from - first;
        let to = (to - first).min(WIDEST);
        Some((shown.trim_end().to_owned(), from, to.saturating_sub(from).max(1)))
    }
}

/// The names of fields in a text that could not be read: quoted before a colon, or bare at the start of a line.
fn keys_of_text(text: &str) -> Vec<Span> {
    const LONGEST: usize = 40;
    let name = |b: &u8| b.is_ascii_alphanumeric() || b"_-$".contains(b);
    let mut keys = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_start_matches([' ', '\t', '-', '[']);
        let at = line.len() - bare.len();
        let length = bare.bytes().take_while(name).count();
        let after = bare.get(length..).unwrap_or_default().trim_start();
        if length > 0 && length <= LONGEST && after.starts_with([':', '=', ']']) {
            let start = start + at;
            keys.push(Span {
                start,
                end: start + length,
            });
        }
        let mut rest = line;
        while let Some((_, after)) = rest.split_once('"') {
            let length = after.bytes().take_while(name).count();
            let next = after.get(length..).unwrap_or_default();
            let is_key = next
                .strip_prefix('"')
                .is_some_and(|next| next.trim_start().starts_with(':'));
            if is_key && length <= LONGEST {
                let start = start + line.len() - after.len();
                keys.push(Span {
                    start,
                    end: start + length,
                });
            }
            rest = next;
        }
        start += line.len();
    }
    keys
}
