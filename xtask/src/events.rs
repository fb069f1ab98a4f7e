//! docs/events.md says what the code says: it is written from the comments of the router's `Event` and of the sets of
//! words in it, and this test fails on drift.

#![expect(
    clippy::disallowed_methods,
    reason = "a page is written only where its author asks for it"
)]

use std::fs;

use syn::{Attribute, Expr, ExprLit, Field, Fields, Item, ItemEnum, Lit, LitStr, Meta, Type, Variant};

use crate::workspace::Root;

const HEAD: &str = "# Events

What happens in a hub, as `Hub::events` tells it and `portcullis demo --format json` prints it: one line of JSON each.
Every event but the demo's own steps (`demo.step`) has `seq`, which counts from 1 in each hub, without gaps; `at_ms`,
milliseconds since the Unix epoch; and `event`, its kind. The kinds are stable, and so are the words that a field is told
to have: there are no others.
Arguments and results never stand in an event; hashes and references do.

This page is generated from `crates/portcullis-router/src/event.rs`, `event/word.rs` beside it and the states of
`crates/portcullis-lifecycle/src/state.rs`; `cargo test -p xtask` writes nothing and fails where they differ, and
`PORTCULLIS_BLESS=1 cargo test -p xtask` writes it.
";

/// What stands in comments of that kind, as one line.
fn comment(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// What serde is told of a variant, a field or a set of words.
#[derive(Default)]
struct Serde {
    name: Option<String>,
    case: Option<String>,
    is_left_out: bool,
    is_untagged: bool,
}

fn serde(attributes: &[Attribute]) -> Serde {
    let mut told = Serde::default();
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
        let parsed = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                told.name = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.path.is_ident("rename_all") {
                told.case = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.path.is_ident("untagged") {
                told.is_untagged = true;
            } else {
                told.is_left_out |= meta.path.is_ident("skip_serializing_if");
                let _: Option<LitStr> = meta.value()?.parse().ok();
            }
            Ok(())
        });
        parsed.unwrap();
    }
    told
}

/// The set of words that a field is of, if it is of one.
fn words_of<'a>(field: &Field, words: &'a [ItemEnum]) -> Option<&'a ItemEnum> {
    let Type::Path(path) = &field.ty else { return None };
    let name = &path.path.segments.last()?.ident;
    words.iter().find(|set| set.ident == *name)
}

/// The words of a set as they are written, each with what it means.
fn told(set: &ItemEnum) -> String {
    let joint = match serde(&set.attrs).case.as_deref() {
        Some("kebab-case") => '-',
        Some("snake_case") => '_',
        other => panic!("`{}` is written in {other:?}", set.ident),
    };
    let words: Vec<_> = set.variants.iter().map(|variant| word(variant, joint)).collect();
    match words.as_slice() {
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
        [] => panic!("`{}` has no words", set.ident),
    }
}

fn word(variant: &Variant, joint: char) -> String {
    let meaning = comment(&variant.attrs);
    let meaning = meaning.trim_end_matches('.');
    let (first, rest) = meaning.split_at(1);
    let meaning = first.to_lowercase() + rest;
    if serde(&variant.attrs).is_untagged {
        return meaning;
    }
    format!("`{}` ({meaning})", joined(&variant.ident.to_string(), joint))
}

/// The words of a variant's name as serde writes them.
fn joined(name: &str, joint: char) -> String {
    let mut written = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !written.is_empty() {
            written.push(joint);
        }
        written.extend(letter.to_lowercase());
    }
    written
}

fn page(events: &ItemEnum, words: &[ItemEnum]) -> String {
    let mut page = HEAD.to_owned();
    for variant in &events.variants {
        let kind = serde(&variant.attrs)
            .name
            .unwrap_or_else(|| panic!("`{}` has no name", variant.ident));
        let meaning = comment(&variant.attrs);
        page.push_str(&format!(
            "\n## `{kind}`\n\n{meaning}\n\n| Field | Meaning |\n| --- | --- |\n"
        ));
        let Fields::Named(fields) = &variant.fields else {
            panic!("`{kind}` has no names for its fields")
        };
        for field in &fields.named {
            let Serde {
                name, is_left_out, ..
            } = serde(&field.attrs);
            let name = name.or_else(|| Some(field.ident.as_ref()?.to_string())).unwrap();
            let mut meaning = comment(&field.attrs);
            assert!(!meaning.is_empty(), "`{kind}.{name}`");
            if let Some(set) = words_of(field, words) {
                meaning = format!("{}: {}.", meaning.trim_end_matches('.'), told(set));
            }
            let optional = if is_left_out { " (not always there)" } else { "" };
            page.push_str(&format!("| `{name}`{optional} | {meaning} |\n"));
        }
    }
    page
}

#[test]
fn the_page_is_the_code() {
    let root = Root::of_this_checkout().unwrap();
    let enums = |path: &str| -> Vec<ItemEnum> {
        let text = fs::read_to_string(root.join(path)).unwrap();
        let items = syn::parse_file(&text).unwrap().items.into_iter();
        items
            .filter_map(|item| match item {
                Item::Enum(found) => Some(found),
                _ => None,
            })
            .collect()
    };
    let events = enums("crates/portcullis-router/src/event.rs");
    let events = events.iter().find(|found| found.ident == "Event").unwrap();
    let words = [
        enums("crates/portcullis-router/src/event/word.rs"),
        enums("crates/portcullis-lifecycle/src/state.rs"),
    ]
    .concat();
    let page = page(events, &words);
    let path = root.join("docs/events.md");
    if std::env::var_os("PORTCULLIS_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap_or_default(),
        page,
        "run it with `PORTCULLIS_BLESS=1`"
    );
}
