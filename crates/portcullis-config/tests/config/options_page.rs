//! The page that lists the options, generated from the schema.

use serde_json::Value;

use crate::{
    machine::committed,
    schema::{schema, sorted},
};

/// What is listed, in this order: a type of the schema, and the header of its fields.
const PARTS: &[(&str, &str)] = &[
    ("Mcp", "Of the hub, under `mcp`"),
    ("Results", "Of results, under `mcp.results`"),
    ("Blobs", "Of the store, under `mcp.blobs`"),
    ("Server", "Of each server, in `mcp.servers`"),
    ("Timeouts", "Its `timeouts`"),
    ("Limits", "Its `limits`"),
    ("ProxyLogin", "A `proxy` with a login"),
];

/// The value of a field that has fields of its own.
const BELOW: &str = "see below";

#[test]
fn the_page_of_options_is_the_one_that_is_generated() {
    let schema = sorted(schema());
    let mut page = String::from(
        "# Options of a configuration\n\n\
         Every field of Portcullis' own format, in YAML, JSON or TOML. An editor gets the same from \
         [the schema](schema/portcullis.schema.json).\n\n\
         This page is generated from the schema, and a test holds it to it.\n",
    );
    for (of, header) in PARTS {
        page.push_str(&format!(
            "\n## {header}\n\n| Option | Value | Meaning |\n| --- | --- | --- |\n"
        ));
        let part = &schema["$defs"][of];
        let properties = part["properties"].as_object().unwrap();
        assert!(!properties.is_empty(), "{of}");
        for (name, field) in properties {
            let required = part["required"]
                .as_array()
                .is_some_and(|all| all.contains(&name.as_str().into()));
            let must = if required { ", must be there" } else { "" };
            let meaning = field["description"].as_str().unwrap().replace('\n', " ");
            page.push_str(&format!(
                "| `{name}` | {}{must} | {meaning} |\n",
                value(field, &schema)
            ));
        }
    }
    // Each type with fields of its own is listed.
    for (name, kind) in schema["$defs"].as_object().unwrap() {
        let is_listed = PARTS.iter().any(|(of, _)| of == name);
        assert!(
            is_listed || kind["properties"].is_null(),
            "`{name}` is not on the page"
        );
    }
    committed("docs/options.md", &page);
}

/// What a field takes, in words.
fn value(field: &Value, schema: &Value) -> String {
    if let Some(reference) = field["$ref"].as_str() {
        return value(schema.pointer(reference.trim_start_matches('#')).unwrap(), schema);
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(any) = field[choice].as_array() {
            let words: Vec<_> = any
                .iter()
                .filter(|one| one["type"] != "null")
                .map(|one| value(one, schema))
                .collect();
            return words.join(" or ");
        }
    }
    if let Some(word) = field["const"].as_str() {
        return format!("`{word}`");
    }
    if let Some(words) = field["enum"].as_array() {
        let words: Vec<_> = words
            .iter()
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"))
            .collect();
        return words.join(", ");
    }
    let kinds: Vec<_> = match &field["type"] {
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .filter(|kind| *kind != "null")
            .collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    match kinds.as_slice() {
        ["string"] => "text".to_owned(),
        ["boolean"] => "`true` or `false`".to_owned(),
        ["number"] => "number".to_owned(),
        ["integer"] => match (field["minimum"].as_u64(), field["maximum"].as_u64()) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (least, _) => format!("{} or more", least.unwrap_or_default()),
        },
        ["array"] => match value(&field["items"], schema).as_str() {
            BELOW => format!("list, {BELOW}"),
            each => format!("list of {each}"),
        },
        ["object"] if field["properties"].is_object() => BELOW.to_owned(),
        ["object"] => format!(
            "names, each with {}",
            value(&field["additionalProperties"], schema)
        ),
        _ => panic!("{field} is of no kind that the page knows"),
    }
}
