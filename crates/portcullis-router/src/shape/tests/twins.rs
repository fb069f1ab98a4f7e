//! Binary content that stands in a result more than once.

use super::*;

#[test]
fn report_54_base64_repeated_in_structured_content_is_stored_once() {
    let (bytes, text) = large(200_000);
    let block = json!({"type": "image", "data": text, "mimeType": "image/png"});
    let structured = json!({"shots": [[{"data": text, "mimeType": "image/png"}]], "url": format!("data:image/png;base64,{text}")});
    let as_text = json!({"type": "text", "text": structured.to_string()});
    // Whatever the order of the keys and the blocks.
    let contents = [json!([block, as_text]), json!([as_text, block])];
    for content in &contents {
        let (content, structured) = (
            format!("\"content\":{content}"),
            format!("\"structuredContent\":{structured}"),
        );
        for raw in [
            format!("{{{content},{structured}}}"),
            format!("{{{structured},{content}}}"),
        ] {
            let shaped = shaped(&raw);
            assert_eq!(shaped.shaped.blobs.len(), 1);
            assert_eq!(shaped.blob(0), bytes);
            let reference = shaped.reference(0);
            let expected =
                json!({"shots": [[{"data": reference, "mimeType": "image/png"}]], "url": reference});
            assert_eq!(shaped.result["structuredContent"], expected);
            let texts = shaped.result["content"].as_array().unwrap().iter();
            let text = texts.filter_map(|block| block["text"].as_str()).next().unwrap();
            assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);
            assert!(!shaped.shaped.spilled);
        }
    }
}

/// PHP writes `\/`, .NET `\u002B`, and each of them both in the result and in the text that repeats it.
#[test]
fn json_within_text_may_be_written_with_escapes() {
    let (bytes, text) = large(20_000);
    assert!(text.contains('+') && text.contains('/') && text.ends_with('='));
    let url = format!("data:image/png;base64,{text}");
    for escapes in [
        [("/", r"\/"), ("+", "+"), ("=", "=")],
        [("/", r"\u002F"), ("+", r"\u002B"), ("=", r"\u003D")],
        [("/", "/"), ("+", r"\u002b"), ("=", r"\u003d")],
    ] {
        let escape = |text: &str| {
            escapes
                .iter()
                .rev()
                .fold(text.to_owned(), |text, (plain, escaped)| {
                    text.replace(plain, escaped)
                })
        };
        let inner = |data: &str, url: &str| format!(r#"{{"picture":{{"data":"{data}","url":"{url}"}}}}"#);
        let written = inner(&escape(&text), &escape(&url));
        let block = json!({"type": "image", "mimeType": "image/png", "data": text});
        let words = json!({"type": "text", "text": written});
        let alone = json!({"type": "text", "text": escape(&url)});
        for content in [
            json!([block, words]),
            json!([words, block, alone]),
            json!([alone]),
        ] {
            let shaped = shaped(json!({ "content": content }));
            assert_eq!(shaped.blob(0), bytes);
            assert_eq!(shaped.shaped.blobs.len(), 1);
            assert_eq!(shaped.shaped.blobs[0].declared_media_type, None);
            let reference = shaped.reference(0);
            for block in shaped.result["content"].as_array().unwrap() {
                if let Some(text) = block["text"].as_str() {
                    assert!(
                        text == inner(&reference, &reference) || text == reference,
                        "{text}"
                    );
                }
            }
            assert!(shaped.shaped.flags.is_clear() && !shaped.shaped.spilled);
        }
    }
}
