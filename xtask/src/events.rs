//! docs/events.md says what the code says: it is written from the comments of the router's `Event`, and this test fails
//! on drift.

#![expect(
    clippy::disallowed_methods,
    reason = "a page is written only where its author asks for it"
)]

use std::fs;

use syn::{Attribute, Expr, ExprLit, Fields, File, Item, ItemEnum, Lit, Meta};

use crate::workspace::Root;

const HEAD: &str = "# Events

What happens in a hub, as `Hub::events` tells it and `portcullis demo --format json` prints it: one line of JSON each.
Every event has `seq`, which counts from 1 in each hub, without gaps; `at_ms`, milliseconds since the Unix epoch; and
`event`, its kind. The kinds are stable. Arguments and results never stand in an event; hashes and references do.

This page is generated from `crates/portcullis-router/src/event.rs`; `cargo test -p xtask` writes nothing and fails where
the two differ, and `PORTCULLIS_BLESS=1 cargo test -p xtask` writes it.
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

/// The name that serde gives, and whether the field may be left out.
fn serde(attributes: &[Attribute]) -> (Option<String>, bool) {
    let (mut name, mut is_left_out) = (None, false);
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
        let parsed = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                name = Some(meta.value()?.parse::<syn::LitStr>()?.value());
            } else {
                is_left_out |= meta.path.is_ident("skip_serializing_if");
                let _: Option<syn::LitStr> = meta.value()?.parse().ok();
            }
            Ok(())
        });
        parsed.unwrap();
    }
    (name, is_left_out)
}

fn page(events: &ItemEnum) -> String {
    let mut page = HEAD.to_owned();
    for variant in &events.variants {
        let kind = serde(&variant.attrs)
            .0
            .unwrap_or_else(|| panic!("`{}` has no name", variant.ident));
        let meaning = comment(&variant.attrs);
        page.push_str(&format!(
            "\n## `{kind}`\n\n{meaning}\n\n| Field | Meaning |\n| --- | --- |\n"
        ));
        let Fields::Named(fields) = &variant.fields else {
            panic!("`{kind}` has no names for its fields")
        };
        for field in &fields.named {
            let (name, is_left_out) = serde(&field.attrs);
            let name = name.or_else(|| Some(field.ident.as_ref()?.to_string())).unwrap();
            let meaning = comment(&field.attrs);
            assert!(!meaning.is_empty(), "`{kind}.{name}`");
            let optional = if is_left_out { " (not always there)" } else { "" };
            page.push_str(&format!("| `{name}`{optional} | {meaning} |\n"));
        }
    }
    page
}

#[test]
fn the_page_is_the_code() {
    let root = Root::of_this_checkout().unwrap();
    let text = fs::read_to_string(root.join("crates/portcullis-router/src/event.rs")).unwrap();
    let file: File = syn::parse_file(&text).unwrap();
    let events = file.items.iter().find_map(|item| match item {
        Item::Enum(found) if found.ident == "Event" => Some(found),
        _ => None,
    });
    let page = page(events.unwrap());
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
