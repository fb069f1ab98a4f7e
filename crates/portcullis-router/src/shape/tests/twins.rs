//! Binary content that stands in a result more than once.

use super::*;

#[test]
fn report_54_base64_repeated_in_structured_content_is_stored_once() {
    let (bytes, text) = large(200_000);
    let block = json!({"type": "image", "data": text, "mimeType": "image/png"});
    let structured = json!({"shots": [[{"data": text, "mimeType": "image/png"}]], "url": format!("data:image/png;base64,{text}")});
    let as_text = json!({"type": "text", "text": structured.to_string()});
    // Whatever the order of the keys and the blocks; without a block, too.
    let contents = [
        json!([block, as_text]),
        json!([as_text, block]),
        json!([as_text]),
        json!([as_text, {"type": "text", "text": text}]),
        json!({"type": "text", "text": structured.to_string()}),
    ];
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

/// A picture that is told from others by a number.
fn picture(number: usize) -> String {
    let bytes = [PNG, &[0; 4_000], &number.to_le_bytes()].concat();
    STANDARD.encode_to_string(bytes)
}

fn blob_of(text: &str) -> BlobRef {
    BlobRef(Hash::of(&base64::canonical(text).unwrap()))
}

fn blobs(shaped: &Shaped) -> Vec<BlobRef> {
    shaped.shaped.blobs.iter().map(|info| info.blob).collect()
}

/// What text repeats may be told to be binary by structured content alone, also where it is a value and no block.
#[test]
fn what_structured_content_alone_tells_is_known_in_text_too() {
    let text = picture(1);
    let words = base64_simd::STANDARD.encode_to_string("no known kind ".repeat(400));
    let written = |data: &str, words: &str| json!({"list": [{"words": words}, [words]], "data": data});
    let structured = json!({"words": words, "url": format!("data:;base64,{words}"), "data": text});
    let (picture, other) = (blob_of(&text).to_string(), blob_of(&words).to_string());
    for content in [
        json!([{"type": "text", "text": written(&text, &words).to_string()}]),
        written(&text, &words),
    ] {
        let content = shaped(json!({"content": content, "structuredContent": structured}));
        let shown = content.result["content"][0]["text"].as_str().unwrap();
        let shown: Value = serde_json::from_str(shown).unwrap();
        assert_eq!(shown, written(&picture, &other));
        let expected = json!({"words": other, "url": other, "data": picture});
        assert_eq!(content.result["structuredContent"], expected);
        assert_eq!(content.shaped.blobs.len(), 2);
    }
}

#[test]
fn blobs_come_in_the_order_of_their_places_and_those_of_content_first() {
    let [block, url, both, last, first] = [1, 2, 3, 4, 5].map(picture);
    let inner = json!({"url": format!("data:image/png;base64,{url}"), "both": both});
    let shaped = shaped(json!({
        "structuredContent": {"a": first, "b": [both, last], "c": block},
        "content": [{"type": "text", "text": inner.to_string()}, {"type": "image", "data": block}],
    }));
    let expected = [block, url, both, first, last].map(|text| blob_of(&text));
    assert_eq!(blobs(&shaped), expected);
    for (info, at) in shaped.shaped.blobs.iter().zip(0..) {
        assert_eq!(BlobRef(Hash::of(&shaped.blob(at))), info.blob);
    }
}

/// What has its first place in content has the first room; the rest of what is there stays to the letter.
#[test]
fn what_is_learned_ahead_takes_no_more_room_than_there_is() {
    let pictures: Vec<String> = (0..MAX_PUTS + 3).map(picture).collect();
    let (used, last) = (&pictures[..2], &pictures[MAX_PUTS - 1]);
    let url = |text: &String| json!({"type": "text", "text": format!("data:image/png;base64,{text}")});
    let own = [picture(MAX_PUTS + 10), picture(MAX_PUTS + 11)];
    let shaped = shaped(json!({
        "content": [url(&own[0]), {"type": "text", "text": json!({"k": last}).to_string()}, url(&own[1])],
        "structuredContent": pictures,
    }));
    let known = blobs(&shaped);
    assert_eq!(known[..3], [&own[0], last, &own[1]].map(|text| blob_of(text)));
    assert_eq!(known[3..5], [&used[0], &used[1]].map(|text| blob_of(text)));
    // And the whole, which is spilled.
    assert_eq!(known.len(), MAX_PUTS + 1);
    let stored: Value = serde_json::from_slice(&shaped.blob(MAX_PUTS)).unwrap();
    let list = stored["structuredContent"].as_array().unwrap();
    for (shown, text) in list.iter().zip(&pictures) {
        let blob = blob_of(text);
        let expected = if known.contains(&blob) {
            blob.to_string()
        } else {
            text.clone()
        };
        assert_eq!(shown, &json!(expected));
    }
    let left_inline = pictures
        .iter()
        .filter(|text| !known.contains(&blob_of(text)))
        .count();
    assert_eq!(left_inline, 5);
    assert_eq!(
        shaped.shaped.flags,
        ShapeFlags {
            left_inline,
            ..ShapeFlags::default()
        }
    );
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
        // Written in the same way as a whole.
        let raw = format!(r#"{{"content":[{words}],"structuredContent":{written}}}"#);
        let shaped = shaped(raw);
        let reference = shaped.reference(0);
        let expected = json!({"picture": {"data": reference, "url": reference}});
        assert_eq!(shaped.result["structuredContent"], expected);
        let text = shaped.result["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, expected.to_string());
        assert_eq!(shaped.shaped.blobs.len(), 1);
    }
}

/// What no text can have (half a surrogate pair) is in a string beside it: the rest is looked through all the same.
#[test]
fn a_string_that_is_no_text_has_its_content_replaced_and_stays_to_the_letter() {
    let (bytes, text) = large(5_000);
    let escaped = text.replace('/', r"\/");
    let raw = format!(
        r#"{{"content":[{{"type":"text","text":"\ud800 a\n\"data:image\/png;base64,{escaped}\" é\u00e9\\"}}]}}"#
    );
    let store = MemStore::default();
    let shaped = block_on(shape(&raw, &store, &ShapeOptions::default())).unwrap();
    let blob = shaped.blobs[0].blob;
    assert_eq!(block_on(store.get(blob)).unwrap(), bytes);
    let expected = format!(r#"{{"content":[{{"type":"text","text":"\ud800 a\n\"{blob}\" é\u00e9\\"}}]}}"#);
    assert_eq!(shaped.result.get(), expected);
}

/// A reference is longer than the shortest text that it stands for.
#[test]
fn so_many_references_are_written_and_what_is_left_is_flagged() {
    let small = STANDARD.encode_to_string(b"small!");
    let image = json!({"type": "image", "data": small, "mimeType": "image/png"});
    let (many, most) = (70_000, 65_536);
    let list = format!(r#""{small}","#).repeat(many);
    let texts = format!("data:;base64,{small} ").repeat(many);
    for (structured, text) in [(format!("[{list}0]"), "x".to_owned()), ("[]".to_owned(), texts)] {
        let raw = format!(
            r#"{{"content":[{image},{{"type":"text","text":{}}}],"structuredContent":{structured}}}"#,
            json!(text)
        );
        let options = ShapeOptions {
            max_reply_bytes: 64 << 20,
            ..ShapeOptions::default()
        };
        let shaped = try_shape(&raw, options).unwrap();
        let json = shaped.shaped.result.get();
        let blob = shaped.shaped.blobs[0].blob.to_string();
        // Beside those of its own block.
        let own = shaped.result["content"][0].to_string().matches(&blob).count();
        assert_eq!(json.matches(&blob).count() - own, most);
        assert!(json.contains(&small) && shaped.shaped.flags.left_inline >= 1);
    }
}

/// The digits of a name may be base64 of something else.
#[test]
fn the_name_of_a_blob_is_nothing_else() {
    let picture = png();
    let name = blob_of(&picture).0.to_string();
    let raw = json!({"content": [
        {"type": "image", "data": picture, "mimeType": "image/png"},
        {"type": "image", "data": name, "mimeType": "image/png"},
    ]});
    let options = ShapeOptions {
        data_url_min_bytes: 1,
        ..ShapeOptions::default()
    };
    let shaped = try_shape(&raw.to_string(), options).unwrap();
    let uris: Vec<_> = (0..2)
        .map(|at| shaped.result["content"][at]["uri"].clone())
        .collect();
    assert_eq!(uris, [json!(shaped.reference(0)), json!(shaped.reference(1))]);
}
