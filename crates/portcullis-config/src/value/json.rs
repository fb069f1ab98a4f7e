//! JSON with comments and trailing commas, and nothing else that JSON has not.

use jsonc_parser::{CollectOptions, ParseOptions, ast, common::Ranged, parse_to_ast};

use super::{Node, ObjectBuilder, Problem, Span, Spanned, Value};
use crate::{Code, source::Source};

/// `Ok(None)` where there is nothing but white space and comments.
pub(crate) fn parse(source: &Source, max_depth: usize) -> Result<Option<Value>, Problem> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match parse_to_ast(&source.text, &CollectOptions::default(), &options) {
        Ok(parsed) => parsed
            .value
            .map(|value| convert(value, max_depth, max_depth))
            .transpose(),
        Err(error) => {
            let range = error.range();
            let span = Span {
                start: range.start,
                end: range.end.max(range.start),
            };
            if matches!(
                error.kind(),
                jsonc_parser::errors::ParseErrorKind::NestingDepthExceeded
            ) {
                return Err(Problem::too_deep(span, max_depth));
            }
            Err(Problem {
                code: Code::Syntax,
                span,
                message: format!("this is not JSON: {}", lower_first(&error.kind().to_string())),
                help: "mend the text here; comments and trailing commas are fine, all else is plain JSON"
                    .to_owned(),
            })
        }
    }
}

fn convert(value: ast::Value<'_>, left: usize, max_depth: usize) -> Result<Value, Problem> {
    let range = value.range();
    let span = Span {
        start: range.start,
        end: range.end,
    };
    let below = || {
        left.checked_sub(1)
            .ok_or_else(|| Problem::too_deep(span, max_depth))
    };
    let node = match value {
        ast::Value::NullKeyword(_) => Node::Null,
        ast::Value::BooleanLit(boolean) => Node::Bool {
            value: boolean.value,
            text: boolean.value.to_string(),
        },
        ast::Value::NumberLit(number) => Node::Number(number.value.to_owned()),
        ast::Value::StringLit(text) => Node::Text(text.value.into_owned()),
        ast::Value::Array(array) => {
            let left = below()?;
            let items = array
                .elements
                .into_iter()
                .map(|item| convert(item, left, max_depth));
            Node::List(items.collect::<Result<_, _>>()?)
        }
        ast::Value::Object(object) => {
            let left = below()?;
            let mut builder = ObjectBuilder::default();
            for property in object.properties {
                let range = property.name.range();
                let key = property.name.into_string();
                let key = Spanned {
                    value: key,
                    span: Span {
                        start: range.start,
                        end: range.end,
                    },
                };
                builder.add(key, convert(property.value, left, max_depth)?);
            }
            Node::Object(builder.object)
        }
    };
    Ok(Value { node, span })
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}
