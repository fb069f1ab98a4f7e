//! Results whose strings of more than `LIMIT` bytes left them, as the wire takes them out.
use std::sync::Arc;

use portcullis_supervisor::StringSpool;

use super::*;
use crate::{
    shape::{replace, spooled::Spools},
    spool::{Outcome, Spool, Spooled},
};

const LIMIT: usize = 2_000;

fn spool(store: &Arc<dyn BlobStore>, raw: &str) -> Spooled {
    let mut writer = Spool::new(Arc::clone(store)).begin();
    raw.as_bytes().chunks(700).for_each(|piece| writer.write(piece));
    writer
        .finish()
        .into_any()
        .downcast::<Outcome>()
        .unwrap()
        .0
        .unwrap()
}

/// `result` with markers, and what stood in their places.
fn taken(store: &Arc<dyn BlobStore>, result: &str) -> (String, Spools) {
    let (mut json, mut done, mut strings) = (String::new(), 0, Vec::new());
    for token in crate::shape::json::strings(result).filter(|token| token.raw.len() > LIMIT + 2) {
        let marker = format!("portcullis-string-{:032x}", strings.len());
        json.push_str(result.get(done..token.start).unwrap());
        json.push_str(&format!("\"{marker}\""));
        done = token.start + token.raw.len();
        strings.push((
            marker,
            spool(store, token.raw.get(1..token.raw.len() - 1).unwrap()),
        ));
    }
    json.push_str(result.get(done..).unwrap());
    (json, Spools::new(strings))
}

fn shape_taken(
    result: &str,
    options: &ShapeOptions,
) -> (Result<ShapedResult, ShapeError>, Arc<dyn BlobStore>) {
    let store: Arc<dyn BlobStore> = Arc::new(MemStore::default());
    let (json, mut spools) = taken(&store, result);
    let shaped = spools
        .prepare(json)
        .and_then(|json| replace(&json, spools, options))
        .and_then(|unstored| block_on(unstored.store(store.as_ref(), || Ok(()))));
    (shaped, store)
}

/// The same comes out as where everything lies in memory: result, list of blobs, size, flags.
#[track_caller]
fn check(result: &str) {
    check_from(ShapeOptions::default().data_url_min_bytes, result);
}

/// The same, where data URLs and base64 go to the store from so many bytes on.
#[track_caller]
fn check_from(data_url_min_bytes: usize, result: &str) {
    for (max_reply_bytes, oversize) in [
        (usize::MAX, Oversize::Spill),
        (4_000, Oversize::Spill),
        (4_000, Oversize::Reject),
    ] {
        let options = ShapeOptions {
            max_reply_bytes,
            oversize,
            data_url_min_bytes,
        };
        let plain_store: Arc<dyn BlobStore> = Arc::new(MemStore::default());
        let plain = block_on(shape(result, plain_store.as_ref(), &options));
        let (taken, store) = shape_taken(result, &options);
        let shown: String = result.chars().take(200).collect();
        match (taken, plain) {
            (Ok(taken), Ok(plain)) => {
                assert_eq!(taken.result.get(), plain.result.get(), "{shown}");
                assert_eq!(taken.blobs, plain.blobs, "{shown}");
                assert_eq!(
                    (taken.size_bytes, taken.spilled, taken.is_error, taken.flags),
                    (plain.size_bytes, plain.spilled, plain.is_error, plain.flags),
                    "{shown}"
                );
                for info in &taken.blobs {
                    let content = block_on(store.get(info.blob)).unwrap();
                    assert_eq!(content, block_on(plain_store.get(info.blob)).unwrap());
                    assert_eq!(content.len() as u64, info.size_bytes);
                }
            }
            (Err(taken), Err(plain)) => assert_eq!(taken.to_string(), plain.to_string(), "{shown}"),
            (taken, plain) => panic!("{shown}: {taken:?} is {plain:?}"),
        }
    }
}

fn png(size: usize) -> String {
    let noise = (0..size).map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8);
    let bytes: Vec<u8> = b"\x89PNG\r\n\x1a\n".iter().copied().chain(noise).collect();
    base64_simd::STANDARD.encode_to_string(bytes)
}

#[test]
fn binary_blocks_are_the_same_whatever_the_order_of_their_keys() {
    let (image, other) = (png(300_000), png(5_000));
    check(&format!(
        r#"{{"content":[{{"type":"image","mimeType":"image/png","data":"{image}"}}]}}"#
    ));
    check(&format!(
        r#"{{"content":[{{"data":"{image}","mimeType":"image/jpeg","type":"image"}}]}}"#
    ));
    check(&format!(
        r#"{{"isError":true,"content":[{{"data":"{other}","annotations":{{"a":1}},"type":"audio"}}]}}"#
    ));
    check(&format!(
        r#"{{"content":[{{"resource":{{"blob":"{other}","uri":"file:///a.bin"}},"type":"resource"}},{{"type":"image","data":"{image}"}}]}}"#
    ));
    check(&format!(r#"{{"content":{{"type":"image","data":"{other}"}}}}"#));
}

#[test]
fn twins_and_data_urls_are_found() {
    let (image, other) = (png(300_000), png(5_000));
    check(&format!(
        r#"{{"structuredContent":{{"picture":"{image}","list":["{other}"]}},"content":[{{"type":"image","data":"{image}"}}]}}"#
    ));
    check(&format!(
        r#"{{"content":[{{"type":"text","text":"{{\"data\": \"{image}\"}}"}},{{"type":"image","data":"{image}"}},{{"type":"text","text":"{image}"}}]}}"#
    ));
    check(&format!(
        r#"{{"content":[{{"type":"text","text":"data:image/png;base64,{image}"}}]}}"#
    ));
    check(&format!(
        r#"{{"content":[{{"type":"text","text":"see ![x](data:image/png;base64,{image}) and more"}}],"structuredContent":["data:;base64,{other}"]}}"#
    ));
}

/// Whether both left the result, or one of them, or none.
#[test]
fn what_structured_content_alone_tells_is_known_in_text_too() {
    let image = png(9_000);
    let url = format!("data:image/jpeg;base64,{image}");
    for (structured, text) in [
        (json!({"data": image}), json!({"data": image}).to_string()),
        (json!({"data": image, "mimeType": "image/jpeg"}), image.clone()),
        (json!({"a": image, "b": image, "url": url}), url.clone()),
        (
            json!([{"mediaType": "image/gif", "url": url}]),
            format!("see {url} and {image}."),
        ),
        (json!({"url": url}), image.clone()),
        (json!({"mimeType": image, "data": image}), image.clone()),
        (
            json!({"data": image, "mimeType": "x".repeat(3_000)}),
            String::new(),
        ),
    ] {
        let text = json!({"type": "text", "text": text});
        for content in [
            json!([text]),
            json!([text, text]),
            json!([{"type": "image", "data": image}, text]),
        ] {
            check(&json!({"content": content, "structuredContent": structured}).to_string());
            check(&format!(
                r#"{{"structuredContent":{structured},"content":{content}}}"#
            ));
        }
    }
    // Short enough to stay, and longer only for its escapes, which text would lose.
    let short = png(1_400);
    let long = short.replacen('A', r"\u0041", 40);
    assert!(short.len() < LIMIT && long.len() > LIMIT);
    for (structured, text) in [(&short, &long), (&long, &short), (&long, &long)] {
        for (structured, text) in [
            (structured.clone(), text.clone()),
            (format!("data:image/jpeg;base64,{structured}"), text.clone()),
            (structured.clone(), format!("data:image/jpeg;base64,{text}")),
            (structured.clone(), format!("{text}.")),
        ] {
            let content = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
            let structured =
                format!(r#"{{"data":["{structured}"],"b":{{"mimeType":"x/y","c":"{structured}"}}}}"#);
            for min_bytes in [1_000, short.len()] {
                check_from(
                    min_bytes,
                    &format!(r#"{{"content":{content},"structuredContent":{structured}}}"#),
                );
            }
        }
    }
}

/// Such text is no base64 as a whole, and comes back before it is looked through.
#[test]
fn json_within_text_is_read_with_its_escapes() {
    let image = png(9_000).replace('/', r"\/").replace('+', r"\u002B");
    let (url, block) = (format!(r"data:image\/png;base64,{image}"), png(9_000));
    for written in [url.clone(), format!(r#"{{"a":"{image}","b":"{url}"}}"#)] {
        let text = json!({"type": "text", "text": written});
        for content in [
            json!([text]),
            json!([text, {"type": "image", "data": block}]),
            json!([{"type": "image", "data": written}, text]),
        ] {
            check(&json!({"content": content, "structuredContent": [written]}).to_string());
        }
    }
}

/// Also where that is more than what a line may hold.
#[test]
fn short_data_urls_and_base64_stay_whatever_way_they_came() {
    let (png, other) = (png(6_000), png(6_300));
    let url = format!("data:image/png;base64,{png}");
    let result = json!({
        "content": [{"type": "text", "text": url}],
        "structuredContent": {"picture": other, "url": url},
    });
    for min_bytes in [url.len(), other.len()]
        .into_iter()
        .flat_map(|bytes| [bytes, bytes + 1])
    {
        check_from(min_bytes, &result.to_string());
    }
    let options = ShapeOptions {
        max_reply_bytes: usize::MAX,
        data_url_min_bytes: other.len() + 1,
        ..ShapeOptions::default()
    };
    let (shaped, _) = shape_taken(&result.to_string(), &options);
    let shaped = shaped.unwrap();
    assert_eq!(shaped.blobs, []);
    let shown: Value = serde_json::from_str(shaped.result.get()).unwrap();
    assert_eq!(shown["structuredContent"], result["structuredContent"]);
    // A twin of what is stored anyway is its reference, as ever.
    let block = json!({"type": "image", "mimeType": "image/png", "data": png});
    let twins = json!({"content": [block], "structuredContent": {"picture": png, "url": url}});
    check_from(url.len() + 1, &twins.to_string());
    // In a text of its own, a short one may be equal by chance.
    let block = json!({"type": "image", "data": png});
    let twins = json!({"content": [block, {"type": "text", "text": png}, {"type": "text", "text": url}]});
    for min_bytes in [png.len(), png.len() + 1, url.len() + 1] {
        check_from(min_bytes, &twins.to_string());
    }
}

#[test]
fn text_stays_text_and_what_only_looks_binary_too() {
    let (image, words) = (
        png(9_000),
        r#"many \ud83d\ude00 words \u001b[31m and \\ \" é "#.repeat(500),
    );
    check(&format!(r#"{{"content":[{{"type":"text","text":"{words}"}}]}}"#));
    check(&format!(r#"{{"content":[{{"type":"text","text":"{image}"}}]}}"#));
    check(&format!(
        r#"{{"content":[],"structuredContent":{{"{image}":"{words}","x":"{}"}}}}"#,
        "deadbeef".repeat(2_000)
    ));
    // Of no known type, with no place for binary content, or not what it claims.
    check(&format!(
        r#"{{"content":[{{"type":"video","data":"{image}"}}],"extra":"{image}"}}"#
    ));
    check(&format!(
        r#"{{"content":[{{"type":"image","mimeType":"{image}","data":"{words}"}}]}}"#
    ));
    check(&format!(
        r#"{{"content":[{{"type":"image","data":["{image}"]}}],"resultType":"{image}"}}"#
    ));
    check(&format!(
        r#"{{"content":[{{"type":"{image}","text":"{image}"}}]}}"#
    ));
}

#[test]
fn lenient_base64_in_a_binary_block_is_still_read() {
    let image = png(9_000);
    let lines: Vec<&str> = image
        .as_bytes()
        .chunks(76)
        .map(|line| str::from_utf8(line).unwrap())
        .collect();
    check(&format!(
        r#"{{"content":[{{"type":"image","data":"{}"}}]}}"#,
        lines.join("\\r\\n")
    ));
    check(&format!(
        r#"{{"content":[{{"type":"image","data":"{}"}}]}}"#,
        image.trim_end_matches('=')
    ));
    check(&format!(
        r#"{{"content":[{{"type":"image","data":"{}"}}]}}"#,
        image.replace('+', "-").replace('/', "_")
    ));
}

#[test]
fn data_urls_in_binary_blocks_and_twins_of_them_are_found() {
    let (image, other) = (png(9_000), png(3_000));
    let (first, rest) = image.split_at(76);
    let wrapped = format!("{first}\\n{rest}");
    for data in [
        format!("data:image/png;base64,{image}"),
        format!("Data:image\\/png;base64,{image}"),
        format!("data:;base64,{wrapped}"),
        format!("data:image/png;base64,{}", image.trim_end_matches('=')),
        format!("data:image/png,{image}"),
        format!(" data:image/png;base64,{image}"),
        format!("data:image/png;base64,{image},{other}"),
        wrapped,
    ] {
        check(&format!(
            r#"{{"content":[{{"type":"text","text":"{data} and {image}"}},{{"type":"image","data":"{data}","_meta":{{}}}}],"structuredContent":["{image}","{data}","data:;base64,{image}"]}}"#
        ));
        check(&format!(
            r#"{{"content":[{{"type":"resource","resource":{{"blob":"{data}","text":"{image}","_meta":1}}}}],"structuredContent":"{image}"}}"#
        ));
    }
}

#[test]
fn results_that_are_no_results_are_repaired_the_same() {
    let (image, words) = (png(9_000), "many words ".repeat(500));
    for result in [
        format!("\"{image}\""),
        format!("[\"{words}\"]"),
        format!(r#"{{"content":"{words}"}}"#),
        format!(r#"{{"content":"{image}"}}"#),
        format!(r#"{{"content":{{"data":"{image}","x":"{words}"}}}}"#),
        format!(r#"[{{"type":"image","data":"{image}"}}]"#),
        format!(r#"{{"content":[{{"type":"text","text":"{words}"}}],"content":null,"isError":"{words}"}}"#),
    ] {
        check(&result);
    }
}

/// It never lies in memory: it is stored as it came, and what hides in it is counted all the same.
#[test]
fn text_beyond_what_fits_into_memory_is_spilled_as_it_came() {
    let url = format!("data:image/png;base64,{}", png(6_000));
    let mut words = "many words, and more of them. ".repeat((64 << 20) / 30);
    words.push_str(r"\u001b[2J \u202e \udb40\udc41 ");
    words.push_str(&url);
    let before = format!("before {url} {}", "x".repeat(3_000));
    let result = format!(
        r#"{{"content":[{{"type":"text","text":"{before}"}},{{"type":"text","text":"{words}"}}],"structuredContent":{{"t":"{url}"}}}}"#
    );
    let (shaped, store) = shape_taken(&result, &ShapeOptions::default());
    let shaped = shaped.unwrap();
    let flags = ShapeFlags {
        left_inline: 1,
        control: 1,
        bidi: 1,
        tags: 1,
        ..ShapeFlags::default()
    };
    assert_eq!((shaped.spilled, shaped.flags), (true, flags));
    let [picture, whole] = &shaped.blobs[..] else {
        panic!("{:?}", shaped.blobs)
    };
    // What fits is looked through, before it or after it.
    let expected = result.replacen(&url, &picture.blob.to_string(), 1);
    let before_last = expected.rsplit_once(&url).unwrap().0;
    let expected = format!("{before_last}{}\"}}}}", picture.blob);
    let stored = block_on(store.get(whole.blob)).unwrap();
    assert_eq!(stored.len(), shaped.size_bytes);
    assert!(stored == expected.as_bytes());

    let refused = ShapeOptions {
        oversize: Oversize::Reject,
        ..ShapeOptions::default()
    };
    assert!(matches!(
        shape_taken(&result, &refused).0,
        Err(ShapeError::TooLarge { .. })
    ));
    // More than the hub ever puts back into memory, whatever it is told.
    let handed_on = ShapeOptions {
        max_reply_bytes: usize::MAX,
        ..ShapeOptions::default()
    };
    assert!(matches!(
        shape_taken(&result, &handed_on).0,
        Err(ShapeError::TooLarge {
            limit_bytes: 0x400_0000,
            ..
        })
    ));
}

/// It cannot become the text of a block, so that it is stored with what holds it as it came.
#[test]
fn a_value_that_does_not_fit_into_memory_is_spilled_as_it_is() {
    let words = "many words, and more of them. ".repeat((64 << 20) / 30 + 1);
    let members = "\"k\":0,".repeat(65_536);
    for (result, is_error) in [
        (format!(r#"{{"content":{{"words":"{words}"}}}}"#), false),
        (format!(r#"{{{members}"isError":true,"words":"{words}"}}"#), true),
    ] {
        let (shaped, store) = shape_taken(&result, &ShapeOptions::default());
        let shaped = shaped.unwrap();
        assert_eq!(
            (shaped.spilled, shaped.is_error, shaped.flags.repaired),
            (true, is_error, true)
        );
        let stored = block_on(store.get(shaped.blobs[0].blob)).unwrap();
        assert_eq!(stored.len(), shaped.size_bytes);
        let expected = if is_error {
            format!(r#"{{"content":{result},"isError":true}}"#)
        } else {
            result.clone()
        };
        assert!(stored == expected.as_bytes());

        let refused = ShapeOptions {
            oversize: Oversize::Reject,
            ..ShapeOptions::default()
        };
        let error = shape_taken(&result, &refused).0.unwrap_err();
        assert!(
            matches!(error, ShapeError::TooLarge { limit_bytes, .. } if limit_bytes == refused.max_reply_bytes)
        );
    }
}

/// It need not come back to be looked at.
#[test]
fn base64_beyond_what_fits_into_memory_is_stored_all_the_same() {
    let image = png(52 << 20);
    let result = format!(r#"{{"content":[],"structuredContent":{{"picture":"{image}"}}}}"#);
    let (shaped, store) = shape_taken(&result, &ShapeOptions::default());
    let shaped = shaped.unwrap();
    assert_eq!((shaped.spilled, shaped.flags), (false, ShapeFlags::default()));
    let [picture] = &shaped.blobs[..] else {
        panic!("{:?}", shaped.blobs)
    };
    assert_eq!(picture.media_type, "image/png");
    assert_eq!(picture.size_bytes, (52 << 20) + 8);
    assert_eq!(
        block_on(store.size_bytes(picture.blob)).unwrap(),
        Some(picture.size_bytes)
    );
}

/// A marker of the server's own is no more than its text.
#[test]
fn a_forged_marker_stays_text() {
    let image = png(9_000);
    let forged = "portcullis-string-ffffffffffffffffffffffffffffffff";
    check(&format!(
        r#"{{"content":[{{"type":"text","text":"{forged}"}},{{"type":"image","data":"{image}"}},{{"type":"text","text":"\"{forged}\""}}]}}"#
    ));
}
