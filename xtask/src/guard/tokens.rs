//! The walk over tokens that no syntax tree exists for: `json!`, definitions of macros, arguments of attributes.

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};

use super::collect::literal_text;
use super::visitor::{PROSE, Visitor};

/// Checks names, strings, keys of capabilities objects (`"capabilities": { "roots": {} }`) and fields
/// (`caps.roots`).
pub(super) fn walk(visitor: &mut Visitor<'_>, stream: TokenStream) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let token = |at: Option<usize>| at.and_then(|at| tokens.get(at));
    for (at, tree) in tokens.iter().enumerate() {
        let before = token(at.checked_sub(1));
        let two_before = token(at.checked_sub(2));
        match tree {
            TokenTree::Ident(name) => {
                visitor.identifier(&name.to_string(), name.span());
                let of_capabilities = before.is_some_and(|before| is_punctuation(before, '.'))
                    && matches!(two_before, Some(TokenTree::Ident(base)) if visitor.is_capabilities(&base.to_string()));
                if of_capabilities {
                    visitor.capability(&name.to_string(), name.span());
                }
            }
            TokenTree::Literal(literal) => visitor.literal(&syn::Lit::new(literal.clone())),
            TokenTree::Group(group) if is_prose(before, two_before, group) => {}
            TokenTree::Group(group) => {
                let about = before.is_some_and(|before| is_punctuation(before, ':'))
                    && two_before
                        .and_then(name_of)
                        .is_some_and(|key| visitor.is_capabilities(&key));
                let joined = before.is_some_and(|before| is_punctuation(before, '!'))
                    && matches!(two_before, Some(TokenTree::Ident(name)) if name == "concat");
                if joined {
                    visitor.text(&self::joined(group.stream()), group.span());
                }
                visitor.inside(about, |visitor| walk(visitor, group.stream()));
            }
            TokenTree::Punct(_) => {}
        }
    }
}

/// The strings of a `concat!`, put together.
pub(super) fn joined(stream: TokenStream) -> String {
    stream
        .into_iter()
        .filter_map(|tree| {
            if let TokenTree::Literal(literal) = tree {
                text_of(literal)
            } else {
                None
            }
        })
        .collect()
}

/// Whether a name or string among the tokens is one that `is_one` looks for.
pub(super) fn mention(stream: TokenStream, is_one: &dyn Fn(&str) -> bool) -> bool {
    stream.into_iter().any(|tree| match tree {
        TokenTree::Group(group) => mention(group.stream(), is_one),
        tree => name_of(&tree).is_some_and(|name| is_one(&name)),
    })
}

fn name_of(tree: &TokenTree) -> Option<String> {
    match tree {
        TokenTree::Ident(name) => Some(name.to_string()),
        TokenTree::Literal(literal) => text_of(literal.clone()),
        _ => None,
    }
}

fn text_of(literal: Literal) -> Option<String> {
    literal_text(&syn::Lit::new(literal))
}

fn is_punctuation(tree: &TokenTree, wanted: char) -> bool {
    matches!(tree, TokenTree::Punct(punctuation) if punctuation.as_char() == wanted)
}

/// `#[doc = "…"]` and the like: a comment inside a macro arrives as such an attribute.
fn is_prose(before: Option<&TokenTree>, two_before: Option<&TokenTree>, group: &Group) -> bool {
    let hash = |tree: Option<&TokenTree>| tree.is_some_and(|tree| is_punctuation(tree, '#'));
    let inner = before.is_some_and(|before| is_punctuation(before, '!')) && hash(two_before);
    group.delimiter() == Delimiter::Bracket
        && (hash(before) || inner)
        && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if PROSE.iter().any(|prose| name == prose))
}
