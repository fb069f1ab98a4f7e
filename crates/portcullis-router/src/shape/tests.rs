use base64_simd::STANDARD;
use portcullis_blobs::{BlobError, Bytes, Hash, Limits, MemStore};
use serde_json::{Value, json};

use super::{placing::MAX_PUTS, *};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR and what makes a picture";

struct Shaped {
    shaped: ShapedResult,
    result: Value,
    store: MemStore,
}

impl Shaped {
    fn blob(&self, at: usize) -> Bytes {
        block_on(self.store.get(self.shaped.blobs[at].blob)).unwrap()
    }

    fn reference(&self, at: usize) -> String {
        self.shaped.blobs[at].blob.to_string()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn try_shape(raw: &str, options: ShapeOptions) -> Result<Shaped, ShapeError> {
    let store = MemStore::default();
    let shaped = block_on(shape(raw, &store, &options))?;
    let result = serde_json::from_str(shaped.result.get()).unwrap();
    Ok(Shaped {
        shaped,
        result,
        store,
    })
}

fn shaped(raw: impl ToString) -> Shaped {
    try_shape(&raw.to_string(), ShapeOptions::default()).unwrap()
}

/// A result that shaping must leave as it is, but for what the second text says.
fn check(raw: &str, expected: &str) -> ShapeFlags {
    let shaped = shaped(raw).shaped;
    assert_eq!(shaped.result.get(), expected);
    assert!(shaped.blobs.is_empty() && !shaped.spilled);
    assert_eq!(shaped.size_bytes, expected.len());
    shaped.flags
}

fn png() -> String {
    STANDARD.encode_to_string(PNG)
}

/// Base64 of something that sniffs as a picture, of about `size` bytes.
fn large(size: usize) -> (Vec<u8>, String) {
    let bytes: Vec<u8> = PNG
        .iter()
        .copied()
        .chain((0..size).map(|at| (at * 31 % 253) as u8))
        .collect();
    let text = STANDARD.encode_to_string(&bytes);
    (bytes, text)
}

#[test]
fn what_is_not_binary_stays_to_the_letter() {
    let raw = r#"{"resultType":"complete","structuredContent":{"z":1.50e+2,"a":[12345678901234567890123,{"ü":"\u00fc","a":-0.0}],"a":null},"content":[{"type":"text","text":"A\/B \u0041"}],"isError":false,"x-new":{"k":[1, 2]}}"#;
    assert!(check(raw, raw).is_clear());
}

#[test]
fn report_31_every_kind_of_block_is_kept_in_order() {
    let raw = format!(
        r#"{{"content":[
            {{"type":"text","text":"first"}},
            {{"type":"video","data":"{png}","fps":29.970,"_meta":{{"k":1}}}},
            {{"type":"audio","data":"{audio}","mimeType":"audio/wav","annotations":{{"audience":["user"]}}}},
            {{"type":"resource","resource":{{"uri":"file:///a.png","mimeType":"image/png","blob":"{png}"}}}},
            {{"type":"resource","resource":{{"uri":"file:///a.txt","text":"words"}}}},
            {{"type":"resource_link","uri":"https://example.org/","name":"a page"}},
            {{"type":"image","data":"{png}","mimeType":"image/png"}},
            "no block at all", null, {{"no":"type"}}
        ]}}"#,
        png = png(),
        audio = STANDARD.encode_to_string(b"RIFF\x24\0\0\0WAVEfmt ")
    );
    let shaped = shaped(&raw);
    let content = shaped.result["content"].as_array().unwrap();
    let kinds: Vec<_> = content
        .iter()
        .map(|block| block["type"].as_str().unwrap_or("-"))
        .collect();
    let link = "resource_link";
    assert_eq!(
        kinds,
        ["text", "video", link, link, "resource", link, link, "-", "-", "-"]
    );
    let video = format!(
        r#"{{"type":"video","data":"{}","fps":29.970,"_meta":{{"k":1}}}}"#,
        png()
    );
    assert!(
        shaped.shaped.result.get().contains(&video),
        "an unknown block stays word for word"
    );

    let audio = json!({"type": link, "uri": shaped.reference(0), "name": content[2]["name"],
        "mimeType": "audio/wav", "size": 16, "annotations": {"audience": ["user"]}});
    assert_eq!(content[2], audio);
    assert!(content[2]["name"].as_str().unwrap().starts_with("audio-"));
    let resource = json!({"type": link, "uri": shaped.reference(1), "name": "file:///a.png",
        "mimeType": "image/png", "size": PNG.len()});
    assert_eq!(content[3], resource);
    assert_eq!(content[6]["uri"], shaped.reference(1));
    assert_eq!(
        content[7..],
        [json!("no block at all"), json!(null), json!({"no": "type"})]
    );
    assert_eq!(
        shaped.shaped.blobs.len(),
        2,
        "one blob for the same picture twice"
    );
    assert_eq!(shaped.blob(1), PNG);
    assert!(shaped.shaped.flags.is_clear());
}

#[test]
fn report_31_no_content_at_all() {
    let flags = check(
        r#"{"structuredContent":{"a":1}}"#,
        r#"{"content":[],"structuredContent":{"a":1}}"#,
    );
    assert_eq!(
        flags,
        ShapeFlags {
            repaired: true,
            ..ShapeFlags::default()
        }
    );
    check(
        r#"{"isError":true,"content":null}"#,
        r#"{"isError":true,"content":[]}"#,
    );
    check("{}", r#"{"content":[]}"#);
    check(r#"{"toolResult":[1]}"#, r#"{"content":[],"toolResult":[1]}"#);
}

#[test]
fn report_53_a_reply_above_the_limit_is_spilled_whole() {
    let text = "ä word or two ".repeat(6_000);
    let raw = json!({"content": [{"type": "image", "data": png(), "mimeType": "image/png"},
        {"type": "text", "text": text}], "structuredContent": {"n": 1}, "isError": true, "resultType": "complete"});
    let spilled = shaped(&raw);
    assert!(spilled.shaped.spilled && spilled.shaped.is_error);
    assert_eq!(spilled.result["isError"], true);
    assert_eq!(spilled.result["resultType"], "complete");
    assert!(spilled.shaped.result.get().len() < 1_000);

    let [picture, whole] = &spilled.shaped.blobs[..] else {
        panic!("{:?}", spilled.shaped.blobs)
    };
    assert_eq!(whole.media_type, "application/json");
    let content = &spilled.result["content"];
    assert!(
        content[0]["text"]
            .as_str()
            .unwrap()
            .contains(&whole.blob.to_string())
    );
    assert!(
        content[0]["text"]
            .as_str()
            .unwrap()
            .contains(&spilled.shaped.size_bytes.to_string())
    );
    assert_eq!(
        (&content[1]["type"], &content[1]["uri"]),
        (&json!("resource_link"), &json!(whole.blob))
    );

    // The reference can be read, and holds the whole reply, nothing cut.
    let stored: Value = serde_json::from_slice(&spilled.blob(1)).unwrap();
    assert_eq!(stored["content"][1]["text"], text);
    assert_eq!(stored["content"][0]["uri"], json!(picture.blob));
    assert_eq!(stored["structuredContent"], json!({"n": 1}));
    assert_eq!(spilled.blob(1).len(), spilled.shaped.size_bytes);
}

#[test]
fn the_limit_is_taken_after_replacing_and_is_exact() {
    let raw = json!({"content": [{"type": "image", "data": large(1 << 20).1, "mimeType": "image/png"}]})
        .to_string();
    let size = shaped(&raw).shaped.size_bytes;
    assert!(size < 400);
    for oversize in [Oversize::Spill, Oversize::Reject] {
        let limit = |max_reply_bytes| ShapeOptions {
            max_reply_bytes,
            oversize,
            ..ShapeOptions::default()
        };
        assert!(!try_shape(&raw, limit(size)).unwrap().shaped.spilled);
        match (oversize, try_shape(&raw, limit(size - 1))) {
            (Oversize::Spill, Ok(shaped)) => assert!(shaped.shaped.spilled),
            (
                Oversize::Reject,
                Err(ShapeError::TooLarge {
                    size_bytes,
                    limit_bytes,
                }),
            ) => {
                assert_eq!((size_bytes, limit_bytes), (size, size - 1));
            }
            (_, other) => panic!("{:?}", other.map(|shaped| shaped.result)),
        }
    }
}

#[test]
fn a_small_twin_and_an_escaped_one_are_found_and_a_key_is_not_one() {
    let data = STANDARD.encode_to_string(b"\xff\xff\xffsmall");
    assert!(data.starts_with("////"));
    let escaped = data.replace('/', r"\/").replace('s', r"\u0073");
    let raw = format!(
        r#"{{"structuredContent":{{"{data}":"{data}","a":["{escaped}"]}},"content":[{{"type":"audio","mimeType":"audio/x","data":"{escaped}"}}]}}"#
    );
    let shaped = shaped(&raw);
    assert_eq!(shaped.blob(0), b"\xff\xff\xffsmall".as_slice());
    let reference = shaped.reference(0);
    assert_eq!(
        shaped.result["structuredContent"],
        json!({data: reference, "a": [reference]})
    );
}

#[test]
fn large_base64_in_structured_content_alone_is_stored_if_it_is_of_a_binary_kind() {
    let (bytes, text) = large(10_000);
    let hex = "00ff".repeat(2_000);
    let raw = json!({"content": [], "structuredContent": {"thumb": png(), "hex": hex, "list": [1, text, 2]}});
    let shaped = shaped(&raw);
    assert_eq!(shaped.blob(0), bytes);
    assert_eq!(shaped.shaped.blobs[0].media_type, "image/png");
    let expected = json!({"thumb": png(), "hex": hex, "list": [1, shaped.reference(0), 2]});
    assert_eq!(shaped.result["structuredContent"], expected);
}

#[test]
fn data_urls_in_text_links_and_resources_become_references() {
    let (bytes, text) = large(5_000);
    let url = format!("data:image/png;base64,{text}");
    let raw = json!({"content": [
        {"type": "text", "text": format!("before ![x]({url}) after, and data:image/png;base64,QUJDREVGR0hJ")},
        {"type": "resource_link", "uri": url, "name": "inline"},
        {"type": "resource", "resource": {"uri": "a:b", "text": url, "_meta": {"s": 1}}},
        {"type": "resource", "resource": {"uri": url, "blob": png()}},
        {"type": "custom", "text": url},
    ]});
    let shaped = shaped(&raw);
    let (content, at) = (&shaped.result["content"], |at| shaped.reference(at));
    assert_eq!(shaped.blob(0), PNG);
    assert_eq!(shaped.blob(1), bytes);
    assert_eq!(shaped.shaped.blobs.len(), 2);
    let text = format!(
        "before ![x]({}) after, and data:image/png;base64,QUJDREVGR0hJ",
        at(1)
    );
    assert_eq!(content[0], json!({"type": "text", "text": text}));
    assert_eq!(
        content[1],
        json!({"type": "resource_link", "uri": at(1), "name": "inline"})
    );
    assert_eq!(
        content[2],
        json!({"type": "resource", "resource": {"uri": "a:b", "text": at(1)}})
    );
    assert_eq!(
        (&content[3]["uri"], &content[3]["name"]),
        (&json!(at(0)), &json!(at(1)))
    );
    assert_eq!(content[4]["text"], url, "an unknown block stays word for word");
}

#[test]
fn a_five_mebibyte_image_goes_to_the_store() {
    let (bytes, text) = large(5 << 20);
    let shaped = shaped(json!({"content": [{"type": "image", "data": text, "mimeType": "image/png"}]}));
    assert_eq!(shaped.blob(0), bytes);
    assert!(!shaped.shaped.spilled && shaped.shaped.size_bytes < 400);
    let name = shaped.result["content"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("image-") && name.ends_with(".png"), "{name}");
}

#[test]
fn a_made_up_name_has_the_ending_of_the_type_beside_it() {
    let name_of = |bytes: &[u8], declared: Option<&str>| {
        let resource = json!({"blob": STANDARD.encode_to_string(bytes), "mimeType": declared});
        let result = shaped(json!({"content": [{"type": "resource", "resource": resource}]})).result;
        result["content"][0]["name"].as_str().unwrap().to_owned()
    };
    let begins_as_an_image = b"BMI,weight\n21,63\n";
    assert!(!name_of(begins_as_an_image, Some("text/csv")).contains('.'));
    assert!(name_of(begins_as_an_image, None).ends_with(".bmp"));
    assert!(name_of(PNG, Some("text/csv")).ends_with(".png"));
    let zip = b"PK\x03\x04 and so on";
    assert!(name_of(zip, Some("application/vnd.acme+zip")).ends_with(".zip"));
}

#[test]
fn binary_blocks_that_cannot_be_decoded_stay_and_are_flagged() {
    let raw = concat!(
        r#"{"content":[{"type":"image","mimeType":"image/png"},{"type":"image","data":7},"#,
        r#"{"type":"audio","data":"not base64!","_meta":1},{"type":"resource","resource":{"uri":"a","blob":"Q"}}]}"#
    );
    assert_eq!(
        check(raw, &raw.replace(r#","_meta":1"#, "")),
        ShapeFlags {
            undecoded: 4,
            ..ShapeFlags::default()
        }
    );
}

#[test]
fn the_forms_of_base64_that_servers_send_are_read_and_flagged() {
    let wrapped = png()
        .as_bytes()
        .chunks(20)
        .map(|line| str::from_utf8(line).unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    let url_safe = png().replace('+', "-").replace('/', "_");
    for (data, lenient) in [
        (png(), 0),
        (wrapped, 1),
        (png().trim_end_matches('=').to_owned(), 1),
        (url_safe, 1),
    ] {
        let shaped = shaped(json!({"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}));
        assert_eq!(shaped.blob(0), PNG, "{data}");
        assert_eq!(
            shaped.shaped.flags.lenient_base64,
            usize::from(data != png()) * lenient
        );
    }
}

/// A data URL where base64 belongs is what some servers send. Nothing of it stays, and its type counts where there is no
/// other.
#[test]
fn a_data_url_in_a_binary_block_is_its_bytes() {
    let url = |kind: &str| format!("{kind};base64,{}", png());
    for (data, declared, recorded) in [
        (url("data:image/png"), Some("image/png"), None),
        (url("DATA:"), None, None),
        (url("data:image/jpeg"), None, Some("image/jpeg")),
        (url("data:image/png"), Some("image/jpeg"), Some("image/jpeg")),
        (url("data:image/png").replace("base64,", "base64,\n"), None, None),
    ] {
        for block in [
            json!({"type": "image", "data": data, "mimeType": declared}),
            json!({"type": "resource", "resource": {"uri": "a:b", "blob": data, "mimeType": declared}}),
        ] {
            let shaped = shaped(json!({"content": [block], "structuredContent": [png()]}));
            assert_eq!(shaped.blob(0), PNG, "{data}");
            let info = &shaped.shaped.blobs[0];
            assert_eq!(info.media_type, "image/png");
            assert_eq!(info.declared_media_type.as_deref(), recorded, "{data}");
            let flags = ShapeFlags {
                lenient_base64: 1,
                ..ShapeFlags::default()
            };
            assert_eq!(shaped.shaped.flags, flags);
            assert_eq!(shaped.result["content"][0]["type"], "resource_link");
            assert_eq!(shaped.result["structuredContent"], json!([shaped.reference(0)]));
        }
    }
}

/// Some servers write every field. Text must not become a link to nothing.
#[test]
fn a_text_resource_with_an_empty_blob_is_text() {
    for blob in ["null", "\"\""] {
        let resource = |meta: &str| {
            format!(
                r#"{{"content":[{{"type":"resource","resource":{{"uri":"a:b","text":"words","blob":{blob}{meta}}}}}]}}"#
            )
        };
        assert!(check(&resource(r#","_meta":{}"#), &resource("")).is_clear());
    }
    // Without a text, an empty blob is one.
    let empty = shaped(json!({"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": ""}}]}));
    assert_eq!(empty.blob(0), b"".as_slice());
}

#[test]
fn canonical_base64_is_the_twin_of_what_is_not() {
    let wrapped = png().replacen('S', "S\n", 1);
    assert_ne!(wrapped, png());
    let shaped = shaped(json!({
        "content": [{"type": "image", "data": wrapped}, {"type": "text", "text": "words"}],
        "structuredContent": {"same": png(), "letters": wrapped, "other": png().to_lowercase()},
    }));
    let reference = shaped.reference(0);
    let expected = json!({"same": reference, "letters": reference, "other": png().to_lowercase()});
    assert_eq!(shaped.result["structuredContent"], expected);
    assert_eq!(shaped.shaped.blobs.len(), 1);
}

#[test]
fn empty_data_is_an_empty_blob() {
    let shaped = shaped(
        json!({"content": [{"type": "image", "data": "", "mimeType": "image/png"}], "structuredContent": {"a": ""}}),
    );
    assert_eq!(shaped.blob(0), b"".as_slice());
    assert_eq!(shaped.result["content"][0]["size"], 0);
    assert_eq!(shaped.result["structuredContent"], json!({"a": ""}));
}

#[test]
fn a_media_type_that_is_missing_or_wrong_is_told_from_the_bytes() {
    let block = |declared: &str| json!({"content": [{"type": "image", "data": png(), "mimeType": declared}]});
    let wrong = shaped(block("image/jpeg"));
    let info = BlobInfo {
        media_type: "image/png".into(),
        declared_media_type: Some("image/jpeg".into()),
        ..wrong.shaped.blobs[0].clone()
    };
    assert_eq!(wrong.shaped.blobs, [info]);
    assert_eq!(wrong.result["content"][0]["mimeType"], "image/png");
    let missing = shaped(json!({"content": [{"type": "image", "data": png()}]}));
    assert_eq!(missing.result["content"][0]["mimeType"], "image/png");
    assert_eq!(missing.shaped.blobs[0].declared_media_type, None);
}

#[test]
fn meta_is_stripped_where_the_protocol_has_it_and_nowhere_else() {
    check(
        r#"{"_meta":{"a":1},"content":[{"type":"text","_meta":{"b":1},"text":"t"},{"type":"x","_meta":1}],"structuredContent":{"_meta":2},"\u005fmeta":3}"#,
        r#"{"content":[{"type":"text","text":"t"},{"type":"x","_meta":1}],"structuredContent":{"_meta":2}}"#,
    );
    let shaped = shaped(
        json!({"content": [{"type": "resource", "_meta": {"a": 1}, "note": 1,
        "resource": {"uri": "u", "blob": png(), "_meta": {"b": 1}, "text": "also", "size": 9}}]}),
    );
    let expected = json!({"type": "resource_link", "uri": shaped.reference(0), "name": "u", "mimeType": "image/png",
        "size": PNG.len(), "note": 1, "text": "also"});
    assert_eq!(shaped.result["content"], json!([expected]));
}

#[test]
fn results_of_another_form_lose_nothing() {
    let text = |text: &str| format!(r#"{{"content":[{{"type":"text","text":{}}}]}}"#, json!(text));
    for (raw, expected) in [
        ("null", r#"{"content":[]}"#.to_owned()),
        ("\"words \\u00e9\"", text("words é")),
        ("[1, 2.50]", text("[1, 2.50]")),
        ("12345678901234567890123", text("12345678901234567890123")),
        (r#"[{"type":"text","text":"t"}]"#, text("t")),
        (r#"{"content":"words"}"#, text("words")),
        (r#"{"content":{"type":"text","text":"t"}}"#, text("t")),
        (r#"{"content":{"a":1}}"#, text(r#"{"a":1}"#)),
    ] {
        let flags = check(raw, &expected);
        assert_eq!(
            flags,
            ShapeFlags {
                repaired: true,
                ..ShapeFlags::default()
            },
            "{raw}"
        );
    }
    let bare = shaped(json!({"content": {"type": "image", "data": png()}}));
    assert_eq!(bare.result["content"][0]["uri"], bare.reference(0));
    assert!(matches!(
        try_shape("{\"content\":", ShapeOptions::default()),
        Err(ShapeError::NotJson(_))
    ));
}

#[test]
fn is_error_becomes_a_boolean_and_what_is_neither_is_a_failure() {
    for (raw, is_error) in [
        ("true", true),
        ("false", false),
        ("null", false),
        ("\"true\"", true),
        ("0", true),
    ] {
        let shaped = shaped(format!(r#"{{"content":[],"isError":{raw}}}"#));
        assert_eq!(
            (shaped.shaped.is_error, &shaped.result["isError"]),
            (is_error, &json!(is_error)),
            "{raw}"
        );
        assert_eq!(shaped.shaped.flags.repaired, raw != "true" && raw != "false");
    }
    assert!(!shaped(json!({"content": []})).shaped.is_error);
}

#[test]
fn of_a_field_that_occurs_twice_the_last_stands() {
    let flags = check(
        r#"{"content":[1],"isError":true,"k":1,"content":[2],"k":2,"isError":false}"#,
        r#"{"k":1,"content":[2],"k":2,"isError":false}"#,
    );
    assert_eq!(
        flags,
        ShapeFlags {
            duplicate_keys: true,
            ..ShapeFlags::default()
        }
    );
    let raw = format!(
        r#"{{"content":[{{"type":"text","data":"{0}","type":"image","data":"{0}"}}]}}"#,
        png()
    );
    let shaped = shaped(&raw);
    assert_eq!(shaped.result["content"][0]["type"], "resource_link");
    assert!(!shaped.shaped.result.get().contains(&png()));
}

#[test]
fn hidden_characters_are_flagged_also_where_the_reply_is_spilled() {
    let text = format!("{}\u{1b}[2J\u{202e}\u{e0041}", "word ".repeat(20_000));
    let shaped =
        shaped(json!({"content": [{"type": "text", "text": text}, {"type": "new", "x": "\u{202e}"}]}));
    assert!(shaped.shaped.spilled);
    assert_eq!(
        shaped.shaped.flags,
        ShapeFlags {
            control: 1,
            bidi: 2,
            tags: 1,
            ..ShapeFlags::default()
        }
    );
}

#[test]
fn nesting_of_any_depth_is_neither_lost_nor_fatal() {
    let deep = format!("{}{}{}", "[".repeat(20_000), "1", "]".repeat(20_000));
    let raw = format!(r#"{{"content":[],"structuredContent":{deep}}}"#);
    let shaped = block_on(shape(&raw, &MemStore::default(), &ShapeOptions::default())).unwrap();
    assert_eq!(shaped.result.get(), raw);
}

#[test]
fn a_store_that_is_full_fails_the_result_and_says_so() {
    let store = MemStore::new(Limits {
        quota_bytes: Some(3),
        ..Limits::default()
    });
    let raw = json!({"content": [{"type": "image", "data": png()}]}).to_string();
    let error = block_on(shape(&raw, &store, &ShapeOptions::default())).unwrap_err();
    assert!(
        matches!(error, ShapeError::Store(BlobError::Quota { .. })),
        "{error:?}"
    );
}

/// What was stored stays for as long as its session, so nothing is stored of what is refused anyway, and what a store has
/// no room for comes first.
#[test]
fn a_result_that_fails_leaves_nothing() {
    let raw =
        json!({"content": [{"type": "image", "data": png()}, {"type": "text", "text": "x".repeat(70_000)}]});
    for (quota_bytes, oversize) in [(None, Oversize::Reject), (Some(60_000), Oversize::Spill)] {
        let store = MemStore::new(Limits {
            quota_bytes,
            ..Limits::default()
        });
        let options = ShapeOptions {
            oversize,
            ..ShapeOptions::default()
        };
        block_on(shape(&raw.to_string(), &store, &options)).unwrap_err();
        assert_eq!(block_on(store.stats()).unwrap().blobs, 0, "{oversize:?}");
    }
}

#[test]
fn a_flood_of_tiny_pictures_does_not_become_a_flood_of_files() {
    let block = json!({"type": "image", "data": png(), "mimeType": "image/png"});
    let shaped = shaped(json!({"content": vec![block; MAX_PUTS + 5]}));
    assert_eq!(
        shaped.shaped.flags,
        ShapeFlags {
            left_inline: 5,
            ..ShapeFlags::default()
        }
    );
    assert!(shaped.shaped.spilled);
    let stored: Value = serde_json::from_slice(&shaped.blob(1)).unwrap();
    let kinds: Vec<_> = stored["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| &block["type"])
        .collect();
    assert_eq!(kinds.len(), MAX_PUTS + 5);
    assert_eq!(
        (kinds[MAX_PUTS - 1], kinds[MAX_PUTS]),
        (&json!("resource_link"), &json!("image"))
    );
}

/// They lose what is the server's alone all the same, and text keeps its letters.
#[test]
fn what_has_no_room_in_the_store_stays_to_the_letter_but_for_meta() {
    let (_, text) = large(4_000);
    let block = json!({"type": "image", "data": png(), "_meta": {"secret": 1}});
    let mut content = vec![block; MAX_PUTS + 1];
    content
        .push(json!({"type": "resource", "resource": {"uri": "a:b", "blob": png(), "_meta": {"secret": 1}}}));
    let mut raw = json!({ "content": content }).to_string();
    raw.truncate(raw.len() - "]}".len());
    let last = format!(r#"{{"type":"text","text":"a\/b \u0041 data:image/png;base64,{text}"}}"#);
    raw.push_str(&format!(",{last}]}}"));
    let shaped = shaped(raw);
    assert_eq!(shaped.shaped.flags.left_inline, 3);
    let stored = String::from_utf8(shaped.blob(1).to_vec()).unwrap();
    assert!(!stored.contains("secret"));
    assert!(stored.ends_with(&format!("{last}]}}")));
    assert_eq!(stored.matches(&png()).count(), 2);
}

/// What a server may send is looked at within seconds, also where each of its members could be compared with each other.
#[test]
fn a_binary_resource_of_very_many_members_is_shaped_in_time() {
    let members = |letter: &str| -> String {
        (0..60_000)
            .map(|number| format!(r#","{letter}{number}":0"#))
            .collect()
    };
    let (block, resource, blob) = (members("a"), members("b"), png());
    let raw =
        format!(r#"{{"content":[{{"type":"resource"{block},"resource":{{"blob":"{blob}"{resource}}}}}]}}"#);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(tell.send(shaped(raw).shaped)));
    let shaped = told.recv_timeout(std::time::Duration::from_secs(15)).unwrap();
    assert!(shaped.spilled);
    assert_eq!(shaped.blobs.len(), 2);
}

mod declared;

mod large_objects;

mod spooled;

mod twins;
