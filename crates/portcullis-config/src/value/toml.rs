//! TOML 1.0, from the parser's own tree with spans; keys are put back into the order of the text.

use toml::de::{DeTable, DeValue};

use super::{Duplicate, Member, Node, Object, Problem, Span, Spanned, Value};
use crate::{Code, source::Source};

/// Most keys that stand twice and are named one by one.
const MAX_DUPLICATES: usize = 64;

/// `Ok(None)` where there is nothing but white space and comments.
pub(crate) fn parse(source: &Source, max_depth: usize) -> Result<Option<Value>, Problem> {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let mut duplicates = Vec::new();
    for error in &errors {
        let span = error.span().map_or(Span::default(), span);
        match error.message() {
            "duplicate key" => duplicates.push(span),
            "recursion limit" | "cannot recurse further; max recursion depth met" => {
                return Err(Problem::too_deep(span, max_depth));
            }
            message => return Err(syntax(message, span)),
        }
    }
    let whole = table.span();
    let mut root = object(
        &source.text,
        table.get_ref(),
        max_depth,
        max_depth,
        span(whole.clone()),
    )?;
    // Each is searched for in the whole tree: a text of nothing else would take for ever.
    if let Some(span) = duplicates.get(MAX_DUPLICATES) {
        return Err(syntax("too many keys stand twice", *span));
    }
    for duplicate in duplicates {
        attach(&source.text, &mut root, duplicate)?;
    }
    if root.members.is_empty() && root.duplicates.is_empty() {
        return Ok(None);
    }
    Ok(Some(Value {
        node: Node::Object(root),
        span: span(whole),
    }))
}

fn object(
    text: &str,
    table: &DeTable<'_>,
    left: usize,
    max_depth: usize,
    whole: Span,
) -> Result<Object, Problem> {
    let left = left
        .checked_sub(1)
        .ok_or_else(|| Problem::too_deep(whole, max_depth))?;
    let mut members = Vec::with_capacity(table.len());
    for (key, item) in table.iter() {
        let key = Spanned {
            value: key.get_ref().to_string(),
            span: span(key.span()),
        };
        members.push(Member {
            value: value(text, item, left, max_depth)?,
            key,
        });
    }
    members.sort_by_key(|member| member.key.span.start);
    Ok(Object {
        members,
        duplicates: Vec::new(),
    })
}

fn value(
    text: &str,
    item: &toml::Spanned<DeValue<'_>>,
    left: usize,
    max_depth: usize,
) -> Result<Value, Problem> {
    let place = span(item.span());
    // Numbers and dates are passed on as they were written.
    let written = || {
        text.get(place.start..place.end)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let node = match item.get_ref() {
        DeValue::String(string) => Node::Text(string.to_string()),
        // The underscores of `10_000` are for people alone.
        DeValue::Integer(_) | DeValue::Float(_) => Node::Number(written().replace('_', "")),
        DeValue::Datetime(_) => Node::Text(written()),
        DeValue::Boolean(value) => Node::Bool {
            value: *value,
            text: value.to_string(),
        },
        DeValue::Array(items) => {
            let left = left
                .checked_sub(1)
                .ok_or_else(|| Problem::too_deep(place, max_depth))?;
            let items = items.iter().map(|item| value(text, item, left, max_depth));
            Node::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => Node::Object(object(text, table, left, max_depth, place)?),
    };
    Ok(Value { node, span: place })
}

/// The parser says where a key stands again, and not where it stood first: that is the last one of its name
/// before it.
fn attach(text: &str, root: &mut Object, again: Span) -> Result<(), Problem> {
    let written = text.get(again.start..again.end).unwrap_or_default();
    let name = written.trim().trim_matches(['"', '\'']).to_owned();
    let Some(first) = last_before(root, &name, again.start) else {
        return Err(syntax("a key stands twice", again));
    };
    let Some(owner) = owner(root, first) else {
        return Err(syntax("a key stands twice", again));
    };
    owner.duplicates.push(Duplicate {
        key: Spanned {
            value: name,
            span: again,
        },
        first,
    });
    Ok(())
}

fn last_before(object: &Object, name: &str, before: usize) -> Option<Span> {
    let own = object
        .members
        .iter()
        .filter(|member| member.key.value == name && member.key.span.start < before)
        .map(|member| member.key.span);
    let below = object
        .members
        .iter()
        .filter_map(|member| last_in(&member.value, name, before));
    own.chain(below).max_by_key(|span| span.start)
}

fn last_in(value: &Value, name: &str, before: usize) -> Option<Span> {
    match &value.node {
        Node::Object(object) => last_before(object, name, before),
        Node::List(items) => items
            .iter()
            .filter_map(|item| last_in(item, name, before))
            .max_by_key(|span| span.start),
        _ => None,
    }
}

/// The object of the key that stands there.
fn owner(object: &mut Object, key: Span) -> Option<&mut Object> {
    if object.members.iter().any(|member| member.key.span == key) {
        return Some(object);
    }
    object
        .members
        .iter_mut()
        .find_map(|member| owner_in(&mut member.value, key))
}

fn owner_in(value: &mut Value, key: Span) -> Option<&mut Object> {
    match &mut value.node {
        Node::Object(object) => owner(object, key),
        Node::List(items) => items.iter_mut().find_map(|item| owner_in(item, key)),
        _ => None,
    }
}

fn span(range: std::ops::Range<usize>) -> Span {
    Span {
        start: range.start,
        end: range.end.max(range.start),
    }
}

fn syntax(message: &str, span: Span) -> Problem {
    Problem {
        code: Code::Syntax,
        span,
        message: format!("this is not TOML: {message}"),
        help:
            "mend the text here; texts stand in quotes, and a table's name in brackets: `[mcp_servers.name]`"
                .to_owned(),
    }
}
