//! YAML 1.2, core schema, without what makes a small text large or two texts one: no anchors, no aliases, no
//! tags but the core ones, one document.
//!
//! Read from the parser's events, so nothing here recurses and the depth is checked as it grows.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::{Node, ObjectBuilder, Problem, Span, Spanned, Value};
use crate::{Code, source::Source};

/// `Ok(None)` where there is nothing but white space and comments.
pub(crate) fn parse(source: &Source, max_depth: usize) -> Result<Option<Value>, Problem> {
    let mut parser = Parser::new_from_str(&source.text);
    let mut builder = Builder {
        source,
        max_depth,
        frames: Vec::new(),
        root: None,
        documents: 0,
    };
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.on(event, builder.span(span))?,
            Err(error) => return Err(builder.syntax(&error)),
        }
    }
    // A document of comments alone has one empty scalar.
    Ok(builder
        .root
        .filter(|root| !(matches!(root.node, Node::Null) && root.span.start == root.span.end)))
}

struct Builder<'s> {
    source: &'s Source,
    max_depth: usize,
    frames: Vec<Frame>,
    root: Option<Value>,
    documents: usize,
}

enum Frame {
    List {
        start: usize,
        items: Vec<Value>,
    },
    Object {
        start: usize,
        builder: ObjectBuilder,
        key: Option<Spanned<String>>,
    },
}

impl Builder<'_> {
    fn on(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(refuse(
                        span,
                        "a second document starts here",
                        "write one document in one file",
                    ));
                }
                Ok(())
            }
            Event::Alias(_) => Err(refuse(
                span,
                "an alias (`*name`) is not read",
                "write the value out",
            )),
            Event::Scalar(text, style, anchor, tag) => {
                no_anchor(anchor, span)?;
                let node = scalar(&text, style, tag.as_deref(), span)?;
                self.value(Value { node, span }, &text)
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(anchor, tag.as_deref(), "seq", span)?;
                self.frames.push(Frame::List {
                    start: span.start,
                    items: Vec::new(),
                });
                Ok(())
            }
            Event::MappingStart(anchor, tag) => {
                self.open(anchor, tag.as_deref(), "map", span)?;
                let builder = ObjectBuilder::default();
                self.frames.push(Frame::Object {
                    start: span.start,
                    builder,
                    key: None,
                });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (start, node) = match self.frames.pop() {
                    Some(Frame::List { start, items }) => (start, Node::List(items)),
                    Some(Frame::Object { start, builder, .. }) => (start, Node::Object(builder.object)),
                    None => return Ok(()),
                };
                self.value(
                    Value {
                        node,
                        span: Span {
                            start,
                            end: span.end.max(start),
                        },
                    },
                    "",
                )
            }
        }
    }

    fn open(&self, anchor: usize, tag: Option<&Tag>, own: &str, span: Span) -> Result<(), Problem> {
        no_anchor(anchor, span)?;
        if tag.is_some_and(|tag| !(tag.is_yaml_core_schema() && tag.suffix == own)) {
            return Err(refuse_tag(span));
        }
        if let Some(Frame::Object { key: None, .. }) = self.frames.last() {
            return Err(refuse(
                span,
                "a list or an object is used as a key",
                "use a plain text as the key",
            ));
        }
        if self.frames.len() >= self.max_depth {
            Err(Problem::too_deep(span, self.max_depth))
        } else {
            Ok(())
        }
    }

    /// `text` is the value as it was written, should it be a key.
    fn value(&mut self, value: Value, text: &str) -> Result<(), Problem> {
        match self.frames.last_mut() {
            None => self.root = Some(value),
            Some(Frame::List { items, .. }) => items.push(value),
            Some(Frame::Object { builder, key, .. }) => match key.take() {
                Some(key) => builder.add(key, value),
                None => {
                    *key = Some(Spanned {
                        value: text.to_owned(),
                        span: value.span,
                    })
                }
            },
        }
        Ok(())
    }

    fn span(&self, span: saphyr_parser::Span) -> Span {
        let start = self.offset(&span.start);
        Span {
            start,
            end: self.offset(&span.end).max(start),
        }
    }

    fn offset(&self, marker: &Marker) -> usize {
        self.source.byte_of(marker.index())
    }

    fn syntax(&self, error: &saphyr_parser::ScanError) -> Problem {
        let start = self.offset(error.marker());
        Problem {
            code: Code::Syntax,
            span: Span { start, end: start },
            message: format!("this is not YAML: {}", error.info()),
            help: "mend the text here; check the indentation, and quote texts that hold `: ` or ` #`"
                .to_owned(),
        }
    }
}

fn no_anchor(anchor: usize, span: Span) -> Result<(), Problem> {
    if anchor == 0 {
        return Ok(());
    }
    Err(refuse(
        span,
        "an anchor (`&name`) is not read",
        "write the value out where it is used",
    ))
}

fn refuse(span: Span, message: &str, help: &str) -> Problem {
    Problem {
        code: Code::YamlFeature,
        span,
        message: message.to_owned(),
        help: help.to_owned(),
    }
}

fn refuse_tag(span: Span) -> Problem {
    refuse(
        span,
        "this tag is not read",
        "leave the tag out; quote the value where it is meant as text",
    )
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Result<Node, Problem> {
    if let Some(tag) = tag {
        let core = tag.is_yaml_core_schema();
        return match tag.suffix.as_str() {
            "str" if core => Ok(Node::Text(text.to_owned())),
            "int" | "float" | "bool" | "null" if core => Ok(plain(text)),
            _ => Err(refuse_tag(span)),
        };
    }
    Ok(if matches!(style, ScalarStyle::Plain) {
        plain(text)
    } else {
        Node::Text(text.to_owned())
    })
}

/// The core schema of YAML 1.2.2, section 10.3.2.
fn plain(text: &str) -> Node {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Node::Null,
        "true" | "True" | "TRUE" => Node::Bool {
            value: true,
            text: text.to_owned(),
        },
        "false" | "False" | "FALSE" => Node::Bool {
            value: false,
            text: text.to_owned(),
        },
        _ if is_number(text) => Node::Number(text.to_owned()),
        _ => Node::Text(text.to_owned()),
    }
}

fn is_number(text: &str) -> bool {
    if let Some(digits) = text.strip_prefix("0x") {
        return !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return !digits.is_empty() && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
    }
    let digit = text.bytes().any(|b| b.is_ascii_digit());
    // Rust's own reader takes exactly the core schema's floats, and the words `inf` and `nan`, which have no digit.
    digit && text.parse::<f64>().is_ok()
}
