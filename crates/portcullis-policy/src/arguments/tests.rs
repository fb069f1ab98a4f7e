use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn tags(text: &str) -> Result<Vec<(String, String)>, Refusal> {
    super::tags(text, &TagKeys::All)
}

/// The tags without those of types, as `path=text`.
fn check(text: &str, expected: &[&str]) {
    let tags = tags(text).unwrap();
    let leaves: Vec<_> = tags
        .iter()
        .filter(|(path, _)| !path.ends_with("#type"))
        .map(|(path, text)| format!("{path}={text}"))
        .collect();
    assert_eq!(leaves, expected, "{text}");
}

fn check_refused(text: &str, code: ReasonCode, told: &str) {
    let (actual, message) = tags(text).unwrap_err();
    assert_eq!(actual, code, "{message}");
    assert!(message.contains(told), "{message}");
}

#[test]
fn leaves_have_paths_and_numbers_keep_their_text() {
    check("{}", &[]);
    check(
        r#" { "a" : { "b" : [ 1.50 , "x" ] } , "c" : null } "#,
        &["a.b[0]=1.50", "a.b[1]=x", "c=null"],
    );
    check(
        r#"{"n":[12345678901234567890123,1e999,-0,0.10,1E+2],"t":true,"f":false}"#,
        &[
            "n[0]=12345678901234567890123",
            "n[1]=1e999",
            "n[2]=-0",
            "n[3]=0.10",
            "n[4]=1E+2",
            "t=true",
            "f=false",
        ],
    );
    check(
        r#"{"s":"a\"b\\\"\u00e9\n","q\\":"\\"}"#,
        &["s=a\"b\\\"é\n", "q\\=\\"],
    );
    check(
        r#"{"__entity":{"type":"Mcp::Tier","id":"full_access"}}"#,
        &["__entity.type=Mcp::Tier", "__entity.id=full_access"],
    );
}

#[test]
fn keys_that_would_read_as_a_path_are_quoted() {
    check(r#"{"a.b":1,"a":{"b":2}}"#, &[r#"["a.b"]=1"#, "a.b=2"]);
    check(
        r#"{"x":{"":1,"[0]":2,"a#type":3,"\"]":4}}"#,
        &[r#"x[""]=1"#, r#"x["[0]"]=2"#, r#"x["a#type"]=3"#, r#"x["\"]"]=4"#],
    );
}

#[test]
fn every_leaf_and_container_has_its_type() {
    let tags: std::collections::HashMap<_, _> = tags(r#"{"o":{},"a":[],"s":"","n":1,"b":true,"z":null}"#)
        .unwrap()
        .into_iter()
        .collect();
    for (path, kind) in [
        ("", "object"),
        ("o", "object"),
        ("a", "array"),
        ("s", "string"),
        ("n", "number"),
        ("b", "boolean"),
        ("z", "null"),
    ] {
        assert_eq!(
            tags.get(&format!("{path}#type")).map(String::as_str),
            Some(kind),
            "{path}"
        );
    }
    assert_eq!(tags.len(), 7 + 4);
}

#[test]
fn what_cannot_be_decided_on_is_refused_with_its_code() {
    for text in [
        "",
        "null",
        "[]",
        "\"x\"",
        "{",
        r#"{"a":NaN}"#,
        r#"{"a":1}x"#,
        r#"{"a":"\ud800"}"#,
        r#"{a:1}"#,
        r#"{"a":1,}"#,
    ] {
        check_refused(text, ReasonCode::DenyArgumentsInvalid, "not a JSON object");
    }
    check_refused(r#"{"a":1,"a":1}"#, ReasonCode::DenyArgumentsDuplicateKey, "`a`");
    check_refused(
        r#"{"x":[{"a":1,"\u0061":2}]}"#,
        ReasonCode::DenyArgumentsDuplicateKey,
        "`x[0].a`",
    );
    // It goes into events: no more of it than a person reads, and nothing that a terminal obeys.
    let long = format!("\u{1b}{}", "k".repeat(100_000));
    let (_, told) = tags(
        &serde_json::json!({ &long: 1 })
            .to_string()
            .replace("}", &format!(",{}:2}}", json!(&long))),
    )
    .unwrap_err();
    assert!(told.len() < 300 && told.contains(r"`\u{1b}kk"), "{told}");
    let padded = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8));
    assert!(tags(&padded(MAX_BYTES)).is_ok());
    check_refused(
        &padded(MAX_BYTES + 1),
        ReasonCode::DenyArgumentsTooLarge,
        "1048577 bytes",
    );
    let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
    assert!(tags(&nested(MAX_DEPTH)).is_ok());
    check_refused(&nested(MAX_DEPTH + 1), ReasonCode::DenyArgumentsTooDeep, "64");
    check_refused(
        &nested(MAX_BYTES / 2 - 10),
        ReasonCode::DenyArgumentsTooDeep,
        "64",
    );
}

#[test]
fn a_long_key_over_a_long_array_does_not_grow_with_the_square() {
    let text = format!(r#"{{"{}":[{}0]}}"#, "k".repeat(500_000), "0,".repeat(250_000));
    check_refused(&text, ReasonCode::DenyArgumentsTooLarge, "paths");
}

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[\"\\\\a.\\[\\]#é]{0,4}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map("[\"\\\\ab01.\\[\\]#]{0,4}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn places(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(places).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(places).sum::<usize>(),
        _ => 2,
    }
}

proptest! {
    #[test]
    fn no_two_places_share_a_path(value in json_values(), pretty in any::<bool>()) {
        let value = json!({ "a": value });
        let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
        let tags = tags(&text).unwrap();
        let paths: BTreeSet<_> = tags.iter().map(|(path, _)| path).collect();
        prop_assert_eq!(paths.len(), tags.len(), "{:?}", tags);
        prop_assert_eq!(tags.len(), places(&value));
    }

    #[test]
    fn no_text_panics(text in "[{}\\[\\]\",:0a\\\\ ]{0,20}") {
        let _ = tags(&text);
    }
}
