//! Fields of one type each; a value of another is an error.

use super::{Fields, member_path};
use crate::{
    Code, Fate,
    source::{Sink, quote},
    value::{Member, Node, Span, Spanned, Value},
};

/// A name and its value, each with its place.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) name: Spanned<String>,
    pub(crate) value: Spanned<String>,
}

impl<'t> Fields<'t> {
    pub(crate) fn text(&mut self, name: &'static str, sink: &mut Sink<'_>) -> Option<Spanned<String>> {
        let member = self.take(name)?;
        match &member.value.node {
            Node::Text(text) if text.contains('\0') => {
                let message = format!("`{name}` holds a NUL character");
                sink.error(
                    Code::BadValue,
                    member.value.span,
                    message,
                    "no program can be given one: take it out",
                );
                None
            }
            Node::Text(text) => Some(Spanned {
                value: text.clone(),
                span: member.value.span,
            }),
            _ => {
                let help = match member.value.node {
                    Node::List(_) if name == "command" => {
                        "`command` is the program alone: put the rest into `args`"
                    }
                    _ => "write a text, in quotes where it looks like something else",
                };
                wrong_type(name, "a text", &member.value, help, sink);
                None
            }
        }
    }

    pub(crate) fn boolean(&mut self, name: &'static str, sink: &mut Sink<'_>) -> Option<Spanned<bool>> {
        let member = self.take(name)?;
        match member.value.node {
            Node::Bool { value, .. } => Some(Spanned {
                value,
                span: member.value.span,
            }),
            _ => {
                wrong_type(
                    name,
                    "`true` or `false`",
                    &member.value,
                    "write `true` or `false`, without quotes",
                    sink,
                );
                None
            }
        }
    }

    /// A number as it was written, and where.
    fn written_number(
        &mut self,
        name: &'static str,
        help: &str,
        sink: &mut Sink<'_>,
    ) -> Option<(&'t str, Span)> {
        let member = self.take(name)?;
        if let Node::Number(text) = &member.value.node {
            return Some((text, member.value.span));
        }
        wrong_type(name, "a number", &member.value, help, sink);
        None
    }

    /// A whole number from 1 to `max`.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        max: u64,
        sink: &mut Sink<'_>,
    ) -> Option<Spanned<u64>> {
        let (text, span) = self.written_number(name, "write a whole number, without quotes", sink)?;
        match text.parse::<u64>() {
            Ok(value) if (1..=max).contains(&value) => Some(Spanned { value, span }),
            _ => {
                let message = format!("`{name}` is {}", quote(text));
                sink.error(
                    Code::BadValue,
                    span,
                    message,
                    format!("write a whole number from 1 to {max}"),
                );
                None
            }
        }
    }

    /// A time in seconds, a fraction allowed, as milliseconds from 1 to `max`.
    pub(crate) fn seconds(
        &mut self,
        name: &'static str,
        max: u64,
        sink: &mut Sink<'_>,
    ) -> Option<Spanned<u64>> {
        let help = "write a number of seconds, without quotes";
        let (text, span) = self.written_number(name, help, sink)?;
        let value = milliseconds(text).filter(|value| (1..=max).contains(value));
        if value.is_none() {
            let message = format!("`{name}` is {}", quote(text));
            let help = format!("write a number of seconds, above 0 and up to {}", max / 1_000);
            sink.error(Code::BadValue, span, message, help);
        }
        value.map(|value| Spanned { value, span })
    }

    /// A list of texts; numbers and booleans in it are taken as they were written.
    pub(crate) fn texts(&mut self, name: &'static str, sink: &mut Sink<'_>) -> Vec<Spanned<String>> {
        let Some(member) = self.take(name) else {
            return Vec::new();
        };
        let Node::List(items) = &member.value.node else {
            wrong_type(
                name,
                "a list of texts",
                &member.value,
                "write a list: `[\"one\", \"two\"]`",
                sink,
            );
            return Vec::new();
        };
        let mut texts = Vec::with_capacity(items.len());
        for (item, place) in items.iter().zip(1..) {
            let whose = format!("item {place} of `{name}`");
            texts.extend(scalar(item, &whose, sink));
        }
        texts
    }

    /// An object of texts; numbers and booleans in it are taken as they were written.
    pub(crate) fn pairs(&mut self, name: &'static str, sink: &mut Sink<'_>) -> Vec<Pair> {
        self.pairs_as(name, name, sink)
    }

    /// The same of a field that the own format calls `to`.
    pub(crate) fn pairs_as(&mut self, name: &'static str, to: &str, sink: &mut Sink<'_>) -> Vec<Pair> {
        let Some(member) = self.take(name) else {
            return Vec::new();
        };
        let Node::Object(object) = &member.value.node else {
            let help = "write it as `NAME: value` pairs";
            wrong_type(name, "an object of texts", &member.value, help, sink);
            return Vec::new();
        };
        let mut pairs = Vec::with_capacity(object.members.len());
        for Member { key, value } in &object.members {
            let whose = format!("{} in `{name}`", quote(&key.value));
            if sink.is_tracing() {
                let fate = Fate::carried(member_path(to, &key.value));
                self.inner.push((member_path(name, &key.value), key.span, fate));
            }
            pairs.extend(scalar(value, &whose, sink).map(|value| Pair {
                name: key.clone(),
                value,
            }));
        }
        pairs
    }
}

fn scalar(value: &Value, whose: &str, sink: &mut Sink<'_>) -> Option<Spanned<String>> {
    match value.scalar() {
        Some(text) if text.contains('\0') => {
            let message = format!("{whose} holds a NUL character");
            sink.error(
                Code::BadValue,
                value.span,
                message,
                "no program can be given one: take it out",
            );
            None
        }
        Some(text) => Some(Spanned {
            value: text.to_owned(),
            span: value.span,
        }),
        None => {
            let message = format!("{whose} is {}, and a text is wanted", value.kind());
            sink.error(Code::WrongType, value.span, message, "write a text, in quotes");
            None
        }
    }
}

fn wrong_type(name: &str, wanted: &str, value: &Value, help: &str, sink: &mut Sink<'_>) {
    let message = format!("`{name}` is {}, and {wanted} is wanted", value.kind());
    sink.error(Code::WrongType, value.span, message, help);
}

/// A decimal number of seconds in milliseconds, cut to whole ones.
fn milliseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000)?
        .checked_add(fraction.parse().ok()?)
}
