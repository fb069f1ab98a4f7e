use std::fmt;

use serde::{Serialize, Serializer};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The server (or the document) that it stands in is not used.
    Error,
    /// It is used, and the user should know.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

macro_rules! codes {
    ($($variant:ident $code:literal $meaning:literal,)*) => {
        /// What a finding is about. Closed: the codes are stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = concat!($meaning, ".")] $variant,)*
        }

        impl Code {
            /// All codes, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable code, and what it means in one sentence.
            #[must_use]
            pub fn describe(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$variant => ($code, $meaning),)*
                }
            }
        }
    };
}

codes! {
    Syntax "syntax" "the text is not JSON, not YAML or not TOML",
    NotUtf8 "not-utf8" "the text is not UTF-8",
    TooLarge "too-large" "the document is larger than the limit",
    TooDeep "too-deep" "lists and objects stand too deep in each other",
    YamlFeature "yaml-feature" "a part of YAML that is not read: anchors, aliases, tags, several documents",
    EmptyDocument "empty-document" "there is nothing in the document",
    UnknownShape "unknown-shape" "the document is of no shape that is known",
    DuplicateKey "duplicate-key" "a key stands twice in one object",
    UnknownField "unknown-field" "a field that means nothing here; an error where it may be meant to restrict something",
    UnsupportedField "unsupported-field" "a field whose meaning is known and which is not read yet",
    IgnoredField "ignored-field" "a field that is read and has no effect",
    WrongType "wrong-type" "a value of another kind than the field takes",
    BadValue "bad-value" "a value that the field does not take",
    MissingField "missing-field" "a field that must be there is not",
    NoTransport "no-transport" "a server has neither a command nor a url",
    TwoTransports "two-transports" "a server has both a command and a url",
    UnknownTransport "unknown-transport" "a server's type is none that is known",
    SseRefused "sse-refused" "a server wants the deprecated HTTP+SSE transport",
    BadUrl "bad-url" "a url that no server can be reached at",
    HostNotAllowed "host-not-allowed" "a url that no allowed host and no egress rule covers",
    PlainHttp "plain-http" "headers go over an unencrypted connection",
    ProgramNotFound "program-not-found" "the program is not there or may not be executed",
    ProgramNotAbsolute "program-not-absolute" "the program is a relative path, or a bare name in the strict profile",
    UnsetReference "unset-reference" "a reference or an inherited variable has no value",
    LiteralSecret "literal-secret" "a secret stands in the document itself",
    ExposedSecret "exposed-secret" "a secret is put where others can read it",
    CapabilityInEnv "capability-in-env" "a variable that carries a capability has its value in a strict document",
    InheritNotAllowed "inherit-not-allowed" "a strict document inherits a variable that the host does not allow",
    DuplicateServer "duplicate-server" "two servers have one id",
    SameServer "same-server" "one server is defined twice: in two documents it is started once, in one document twice",
    TooManyServers "too-many-servers" "more servers than the limit",
    SettingConflict "setting-conflict" "two documents give one hub-wide setting different values",
    AsksLifted "asks-lifted" "a document lets run what the policies would ask about, on every server",
    TooManyDiagnostics "too-many-diagnostics" "more findings than are shown",
}

impl Code {
    /// The stable code alone.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.describe().0
    }

    /// Whether another machine might not find this in the same document.
    pub(crate) fn is_of_the_machine(self) -> bool {
        matches!(
            self,
            Self::ProgramNotFound | Self::ProgramNotAbsolute | Self::UnsetReference
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A stretch of a document, in bytes from its start, a byte order mark included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ByteSpan {
    /// The first byte.
    pub offset_bytes: usize,
    /// How many bytes; 0 for a place between two.
    pub length_bytes: usize,
}

/// One finding: what, where, and what to do. It never holds the value of a variable, header or argument.
///
/// Printed as `file:line:column: error[code]: message` and a line of help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub code: Code,
    /// The document's name.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The text that it is about.
    pub span: ByteSpan,
    /// The server that it stands in, by the name that the document has for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            severity,
            code,
            file,
            line,
            column,
            message,
            help,
            ..
        } = self;
        // Whoever gave the file its name may not be who looks at it.
        let file = crate::source::printable(file.clone());
        write!(
            f,
            "{file}:{line}:{column}: {severity}[{code}]: {message}\n  help: {help}"
        )
    }
}

impl std::error::Error for Diagnostic {}

/// The label is the span alone: whoever prints an excerpt adds the document with `with_source_code`.
impl miette::Diagnostic for Diagnostic {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        let ByteSpan {
            offset_bytes,
            length_bytes,
        } = self.span;
        Some(Box::new(std::iter::once(miette::LabeledSpan::new(
            None,
            offset_bytes,
            length_bytes,
        ))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_in_kebab_case() {
        let codes: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        assert!(codes.iter().all(|code| {
            code.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        }));
    }

    #[test]
    fn a_diagnostic_prints_like_a_compilers_and_serialises_with_its_code() {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            code: Code::NoTransport,
            file: "a.json".to_owned(),
            line: 3,
            column: 5,
            span: ByteSpan {
                offset_bytes: 20,
                length_bytes: 3,
            },
            server: Some("a".to_owned()),
            message: "no way in".to_owned(),
            help: "add one".to_owned(),
        };
        assert_eq!(
            diagnostic.to_string(),
            "a.json:3:5: error[no-transport]: no way in\n  help: add one"
        );
        let hostile = Diagnostic {
            file: "a\u{1b}[2J\n\u{202e}.json".to_owned(),
            ..diagnostic.clone()
        };
        let document = crate::Document::new(hostile.file.clone(), "{}");
        let excerpts = crate::Excerpts::new(&document, &crate::Options::default());
        for printed in [hostile.to_string(), excerpts.render(&hostile, false)] {
            assert!(printed.contains(r"a\u{1b}[2J\n\u{202e}.json:3:5"), "{printed:?}");
        }
        let json = serde_json::to_value(&diagnostic).unwrap();
        assert_eq!(json["code"], "no-transport");
        assert_eq!(json["severity"], "error");
        assert_eq!(json["span"]["offset_bytes"], 20);
        let label = miette::Diagnostic::labels(&diagnostic).unwrap().next().unwrap();
        assert_eq!((label.offset(), label.len()), (20, 3));
    }
}
