//! The one tree that every dialect reads, whatever text it came from.

use std::collections::HashMap;

use crate::{
    Code,
    source::{Source, quote},
};

pub(crate) mod json;
pub(crate) mod toml;
pub(crate) mod yaml;

/// A stretch of the text, in bytes; `start <= end`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Something with the place where it was written.
#[derive(Debug, Clone)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) node: Node,
    pub(crate) span: Span,
}

/// Numbers and booleans keep their text: `0x10` given as an argument is passed on as it was written.
#[derive(Debug)]
pub(crate) enum Node {
    Null,
    Bool { value: bool, text: String },
    Number(String),
    Text(String),
    List(Vec<Value>),
    Object(Object),
}

/// The members in the order of the text. A key that stands again is not a member: it is kept apart, and whoever
/// is configured by the object is refused.
#[derive(Debug, Default)]
pub(crate) struct Object {
    pub(crate) members: Vec<Member>,
    pub(crate) duplicates: Vec<Duplicate>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) key: Spanned<String>,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) struct Duplicate {
    pub(crate) key: Spanned<String>,
    pub(crate) first: Span,
}

/// Why a text could not become a tree.
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Problem {
    fn too_deep(span: Span, max_depth: usize) -> Self {
        Self {
            code: Code::TooDeep,
            span,
            message: format!("lists and objects stand more than {max_depth} deep in each other"),
            help: "no configuration is that deep: check that this is the right file".to_owned(),
        }
    }
}

impl Value {
    /// What it is, for a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self.node {
            Node::Null => "null",
            Node::Bool { .. } => "a boolean",
            Node::Number(_) => "a number",
            Node::Text(_) => "a text",
            Node::List(_) => "a list",
            Node::Object(_) => "an object",
        }
    }

    /// A text, or a number or boolean as it was written.
    pub(crate) fn scalar(&self) -> Option<&str> {
        match &self.node {
            Node::Text(text) | Node::Number(text) | Node::Bool { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Every key that stands twice in an object, here or below. Depth is bounded by the parsers.
    pub(crate) fn duplicates<'v>(&'v self, found: &mut Vec<&'v Duplicate>) {
        match &self.node {
            Node::List(items) => items.iter().for_each(|item| item.duplicates(found)),
            Node::Object(object) => {
                found.extend(&object.duplicates);
                object
                    .members
                    .iter()
                    .for_each(|member| member.value.duplicates(found));
            }
            _ => {}
        }
    }
}

impl Object {
    /// Whether a member stands twice, or something in it does: of the two one is left out.
    pub(crate) fn says_twice(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        let is_meant = |key: &Spanned<String>| is_meant(&key.value);
        let mut inside = Vec::new();
        for member in self.members.iter().filter(|member| is_meant(&member.key)) {
            member.value.duplicates(&mut inside);
        }
        !inside.is_empty() || self.duplicates.iter().any(|twice| is_meant(&twice.key))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.key.value == key)
    }
}

/// Takes members one by one and keeps those apart whose key was there before.
#[derive(Default)]
struct ObjectBuilder {
    object: Object,
    /// Where each key stood first; empty as long as there are so few members that looking at all is quicker.
    seen: HashMap<String, Span>,
}

impl ObjectBuilder {
    const FEW: usize = 16;

    fn add(&mut self, key: Spanned<String>, value: Value) {
        match self.first(&key.value) {
            Some(first) => self.object.duplicates.push(Duplicate { key, first }),
            None => {
                let members = &mut self.object.members;
                if members.len() == Self::FEW {
                    let known = members.iter().map(|member| &member.key);
                    self.seen.extend(known.map(|key| (key.value.clone(), key.span)));
                }
                if members.len() >= Self::FEW {
                    self.seen.insert(key.value.clone(), key.span);
                }
                members.push(Member { key, value });
            }
        }
    }

    fn first(&self, key: &str) -> Option<Span> {
        if self.seen.is_empty() {
            self.object.get(key).map(|member| member.key.span)
        } else {
            self.seen.get(key).copied()
        }
    }
}

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    Json,
    Yaml,
    Toml,
}

impl Notation {
    /// The name's extension says so, or else the first characters.
    pub(crate) fn of(source: &Source) -> Self {
        let extension = source
            .file
            .rsplit_once('.')
            .map(|(_, extension)| extension.to_ascii_lowercase());
        match extension.as_deref() {
            Some("json" | "jsonc" | "json5") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            Some("toml") => Self::Toml,
            _ if looks_like_toml(&source.text) => Self::Toml,
            _ if source.text.trim_start().starts_with(['{', '[', '/']) => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// Reads a text into the tree, whatever way it is written in.
pub(crate) fn parse(source: &Source, max_depth: usize) -> Result<Option<Value>, Problem> {
    match Notation::of(source) {
        Notation::Json => json::parse(source, max_depth),
        Notation::Yaml => yaml::parse(source, max_depth),
        Notation::Toml => toml::parse(source, max_depth),
    }
}

/// Whether the first line that says something is a table's name in brackets, or `name = value`.
fn looks_like_toml(text: &str) -> bool {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '"');
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(line) = first else { return false };
    match line.strip_prefix('[') {
        Some(rest) => {
            let rest = rest.strip_prefix('[').unwrap_or(rest);
            let name = rest.split(']').next().unwrap_or_default();
            // `["a"]` and `[1]` are lists.
            name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(bare)
                && rest.len() > name.len()
        }
        None => line.split_once('=').is_some_and(|(name, value)| {
            let name = name.trim();
            !name.is_empty()
                && name.chars().all(bare)
                && value.trim_start().starts_with(|c: char| {
                    c.is_ascii_digit() || matches!(c, '"' | '\'' | '[' | '{' | 't' | 'f' | '-')
                })
        }),
    }
}

/// The message for a key that stands twice.
pub(crate) fn duplicate_message(duplicate: &Duplicate, source: &Source) -> String {
    let key = quote(&duplicate.key.value);
    format!(
        "{key} stands twice in one object: on line {} and here",
        source.line(duplicate.first)
    )
}
