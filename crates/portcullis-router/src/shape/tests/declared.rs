//! What structured content declares of what is binary in it.

use super::*;

#[track_caller]
fn check(raw: &str, media_type: &str, declared: Option<&str>) {
    let shaped = shaped(raw).shaped;
    let [info] = &shaped.blobs[..] else {
        panic!("{:?}", shaped.blobs)
    };
    let found = (info.media_type.as_str(), info.declared_media_type.as_deref());
    let shown: String = raw
        .chars()
        .filter(|c| !c.is_ascii_uppercase())
        .take(300)
        .collect();
    assert_eq!(found, (media_type, declared), "{shown}");
}

/// `object` as structured content, with a picture for each `$`: alone, repeated in text before it and after it.
#[track_caller]
fn check_structured(object: &str, declared: Option<&str>) {
    let text = large(5_000).1;
    let object = object.replace('$', &text);
    let repeated = json!([{"type": "text", "text": object}]);
    for raw in [
        format!(r#"{{"content":[],"structuredContent":{object}}}"#),
        format!(r#"{{"structuredContent":[[],{{"x":{object}}}],"content":[]}}"#),
        format!(r#"{{"structuredContent":{object},"content":{repeated}}}"#),
        format!(r#"{{"content":{repeated},"structuredContent":{object}}}"#),
    ] {
        check(&raw, "image/png", declared);
    }
}

#[test]
fn the_type_beside_it_counts_wherever_it_stands() {
    let jpeg = Some("image/jpeg");
    check_structured(r#"{"data":"$"}"#, None);
    check_structured(r#"{"data":"$","mimeType":"image/png"}"#, None);
    check_structured(r#"{"data":"$","mimeType":"image/jpeg"}"#, jpeg);
    check_structured(
        r#"{"mimeType":"image/jpeg","a":[{"mimeType":"x/y"}],"data":"$"}"#,
        jpeg,
    );
    check_structured(r#"{"mediaType":"image/jpeg","data":"$"}"#, jpeg);
    check_structured(
        r#"{"mediaType":"x/y","data":"$","mime\u0054ype":"image\/jpeg"}"#,
        jpeg,
    );
    check_structured(r#"{"mimeType":"x/y","data":"$","mimeType":"image/jpeg"}"#, jpeg);
    check_structured(r#"{"mimeType":7,"mediaType":"image/jpeg","data":"$"}"#, jpeg);
    check_structured(r#"{"mimeType":" ","mediaType":"image/jpeg","data":"$"}"#, jpeg);
    check_structured(
        r#"{"mimeType":"image/jpeg","url":"data:image/png;base64,$"}"#,
        jpeg,
    );
    // The first of all that differ.
    check_structured(
        r#"[{"mimeType":"image/png","a":"$"},{"b":"$","mimeType":"image/jpeg"},{"c":"$","mimeType":"x/y"}]"#,
        jpeg,
    );
    check_structured(r#"[{"a":"$"},{"b":"$","mimeType":"image/jpeg"}]"#, jpeg);
    // However often the same is said before in other words.
    let same: String = (0..9)
        .map(|n| format!(r#"{{"a":"$","mimeType":"image/png; a={n}"}},"#))
        .collect();
    let first = r#"{"mimeType":"image/png","a":"$"}"#;
    check_structured(
        &format!(r#"[{first},{same}{{"b":"$","mimeType":"image/jpeg"}}]"#),
        jpeg,
    );
}

#[test]
fn the_type_of_something_else_does_not() {
    check_structured(r#"{"mimeType":"image/jpeg","data":["$"]}"#, None);
    check_structured(
        r#"{"mimeType":"image/jpeg","data":{"mimeType":null,"of":"$"}}"#,
        None,
    );
    check_structured(r#"{"data":"$","other":{"mimeType":"image/jpeg"}}"#, None);
    check_structured(r#"{"data":"$","mimeType":"image/jpeg","mimeType":["x"]}"#, None);
    check_structured(r#"["mimeType","image/jpeg","$"]"#, None);
    check_structured(
        r#"{"mimeType":"text/html","page":"<img src='data:image/png;base64,$'>"}"#,
        None,
    );
    check_structured(r#"{"mimeType":"$","mediaType":"x/y"}"#, None);
}

/// The block's own comes first, and what differs from it is recorded all the same.
#[test]
fn a_twin_of_a_block_is_declared_twice() {
    let text = large(5_000).1;
    for (block, structured, declared) in [
        (Some("image/png"), "image/png", None),
        (Some("image/png"), "image/jpeg", Some("image/jpeg")),
        (None, "image/jpeg", Some("image/jpeg")),
        (Some("x/y"), "image/jpeg", Some("x/y")),
    ] {
        let raw = json!({
            "structuredContent": {"data": text, "mimeType": structured},
            "content": [{"type": "image", "data": text, "mimeType": block}],
        });
        check(&raw.to_string(), "image/png", declared);
    }
    let raw = json!({
        "structuredContent": {"data": text, "mimeType": "image/gif"},
        "content": [{"type": "text", "text": format!("data:image/jpeg;base64,{text}")}],
    });
    check(&raw.to_string(), "image/png", Some("image/jpeg"));
}

#[test]
fn a_declared_type_of_any_length_is_cut() {
    let raw = json!({"structuredContent": {"data": large(5_000).1, "mimeType": "a".repeat(10_000)}});
    let shaped = shaped(raw).shaped;
    assert_eq!(
        shaped.blobs[0].declared_media_type.as_deref(),
        Some("a".repeat(255).as_str())
    );
}

/// It is only looked for where readers of JSON still go.
#[test]
fn an_object_that_lies_very_deep_declares_nothing() {
    let object = json!({"data": large(5_000).1, "mimeType": "image/jpeg"}).to_string();
    for (depth, declared) in [(100, Some("image/jpeg")), (10_000, None)] {
        let deep = format!("{}{object}{}", "[".repeat(depth), "]".repeat(depth));
        let raw = format!(r#"{{"content":[],"structuredContent":[{deep},{{"mimeType":"x/y"}}]}}"#);
        let shaped = block_on(shape(&raw, &MemStore::default(), &ShapeOptions::default())).unwrap();
        assert_eq!(
            shaped.blobs[0].declared_media_type.as_deref(),
            declared,
            "{depth}"
        );
    }
}
