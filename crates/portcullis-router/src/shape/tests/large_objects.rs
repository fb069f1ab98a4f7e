//! Objects of more members than are taken apart.

use super::*;

/// So many members that an object with one more is too large, with a comma behind each.
fn many() -> String {
    "\"k\":0,".repeat(65_536)
}

/// Shaped where it need not be spilled.
fn handed_on(raw: &str) -> Shaped {
    let options = ShapeOptions {
        max_reply_bytes: 8 << 20,
        ..ShapeOptions::default()
    };
    let shaped = try_shape(raw, options).unwrap();
    assert!(!shaped.shaped.spilled);
    shaped
}

fn left_inline(left_inline: usize) -> ShapeFlags {
    ShapeFlags {
        left_inline,
        ..ShapeFlags::default()
    }
}

#[test]
fn a_result_is_read_as_a_value_and_still_says_that_its_tool_failed() {
    for (last, is_error) in [
        (r#""isError":true"#, true),
        (r#""isError":false,"is\u0045rror":true"#, true),
        (r#""isError":"yes","content":[]"#, true),
        (r#""isError":true,"isError":false"#, false),
        (r#""isError":null"#, false),
        (r#""content":[{"isError":true}]"#, false),
    ] {
        let raw = format!("{{{}{last}}}", many());
        let spilled = shaped(&raw);
        let stored: Value = serde_json::from_slice(&spilled.blob(0)).unwrap();
        let whole = handed_on(&raw);
        for (shaped, document) in [(&spilled, &stored), (&whole, &whole.result)] {
            assert_eq!(document["content"][0]["text"], raw, "{last}");
            assert!(shaped.shaped.flags.repaired);
            assert_eq!(shaped.shaped.is_error, is_error, "{last}");
            assert_eq!(
                shaped.result.get("isError") == Some(&json!(true)),
                is_error,
                "{last}"
            );
        }
    }
}

#[test]
fn a_binary_block_stays_but_for_meta_and_is_flagged() {
    let (many, png) = (many(), png());
    for kind in ["image", "audio"] {
        let block = |meta: &str| format!(r#"{{"type":"{kind}",{many}{meta}"data":"{png}"}}"#);
        let result = handed_on(&format!(r#"{{"content":[{}]}}"#, block(r#""_meta":{"a":1},"#))).shaped;
        assert_eq!(result.result.get(), format!(r#"{{"content":[{}]}}"#, block("")));
        assert_eq!(result.flags, left_inline(1));
    }
}

#[test]
fn a_resource_stays_but_for_meta_and_is_flagged_where_it_is_binary() {
    let many = many();
    for (holds, left) in [
        (format!(r#""blob":"{}""#, png()), 1),
        (r#""text":"words","blob":"""#.to_owned(), 0),
    ] {
        let large_resource =
            |meta: &str| format!(r#"{{"type":"resource",{meta}"resource":{{{many}{meta}{holds}}}}}"#);
        let large_block =
            |meta: &str| format!(r#"{{"type":"resource",{many}{meta}"resource":{{{meta}{holds}}}}}"#);
        let list = |meta: &str| format!(r#"[{},{}]"#, large_resource(meta), large_block(meta));
        let content = format!(r#"{{"content":{}}}"#, list(r#""_meta":{"a":1},"#));
        let result = handed_on(&content).shaped;
        assert_eq!(result.result.get(), format!(r#"{{"content":{}}}"#, list("")));
        assert_eq!(result.flags, left_inline(2 * left));
    }
}

/// What is replaced in any text is replaced there too, and in a block of unknown type `_meta` is content.
#[test]
fn other_blocks_are_what_they_are_in_any_size() {
    let (many, (bytes, text)) = (many(), large(4_000));
    let raw = format!(
        r#"[{{"type":"text",{many}"_meta":1,"text":"data:image/png;base64,{text}"}},{{"type":"x",{many}"_meta":1}}]"#
    );
    let shaped = handed_on(&raw);
    assert_eq!(shaped.blob(0), bytes);
    let blocks = format!(
        r#"[{{"type":"text",{many}"text":"{}"}},{{"type":"x",{many}"_meta":1}}]"#,
        shaped.reference(0)
    );
    assert_eq!(shaped.shaped.result.get(), format!(r#"{{"content":{blocks}}}"#));
    let flags = ShapeFlags {
        repaired: true,
        ..ShapeFlags::default()
    };
    assert_eq!(shaped.shaped.flags, flags);
}
