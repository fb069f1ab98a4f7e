use base64_simd::STANDARD;

use super::*;

fn check(text: &str, place: Place, twin: Option<&str>, expected: &[&str]) {
    let mut twins = Twins::default();
    if let Some(twin) = twin {
        twins.insert(twin.into(), BlobRef(Hash::of(b"twin")));
    }
    let raw = json::text(text);
    let found = in_string(&raw, place, &twins, 64, usize::MAX);
    let found = found.map_or(Vec::new(), |Found { text, finds, .. }| {
        finds
            .iter()
            .map(|find| text.get(find.range.clone()).unwrap().to_owned())
            .collect()
    });
    assert_eq!(found, expected, "{text:?}");
}

#[test]
fn data_urls_are_found_inside_of_text() {
    let url = format!("data:image/png;base64,{}", STANDARD.encode_to_string([7; 64]));
    check(&url, Place::Block, None, &[&url]);
    check(
        &format!("see ![chart]({url}) and <img src=\"{url}\">"),
        Place::Block,
        None,
        &[&url, &url],
    );
    check(&format!("é{url}é"), Place::Structured, None, &[&url]);
    let shouted = url.replace("data:", "DATA:").replace("base64", "BASE64");
    check(&shouted, Place::Block, None, &[&shouted]);
    let bare = url.replace("image/png", "");
    check(&bare, Place::Block, None, &[&bare]);
    let with_parameter = url.replace("png", "png;name=a.png");
    check(
        &format!("data:,x {with_parameter}"),
        Place::Block,
        None,
        &[&with_parameter],
    );
}

#[test]
fn what_only_looks_like_a_data_url_stays() {
    let payload = STANDARD.encode_to_string([7; 64]);
    for text in [
        "data:image/png;base64,QUJD".to_owned(),
        format!("{} data:image/png;base64,QUJDREVGR0hJ", "word ".repeat(20)),
        format!("data:image/png,{payload}"),
        format!("data:image/png,x;base64,{payload}"),
        format!("image/png;base64,{payload}"),
        format!("data:image/png;base64,{}", payload.trim_end_matches('=')),
        format!("data: image/png;base64,{payload}"),
        format!("data:image/png;base64,%2B{payload}"),
        payload,
    ] {
        check(&text, Place::Block, None, &[]);
    }
}

#[test]
fn twins_are_found_whole_in_data_urls_and_in_json_within_text() {
    let long = STANDARD.encode_to_string([7; 64]);
    check(&long, Place::Structured, Some(&long), &[&long]);
    check(
        &format!("{{\"data\": \"{long}\"}}"),
        Place::Block,
        Some(&long),
        &[&long],
    );
    check("QUJDREVG", Place::Structured, Some("QUJDREVG"), &["QUJDREVG"]);
    let url = "data:image/png;base64,QUJDREVG";
    check(&format!("({url})"), Place::Block, Some("QUJDREVG"), &[url]);
    // One that is stored cannot be a part of another find as well.
    check(
        &format!("data:{long};base64,{long}"),
        Place::Block,
        Some(&long),
        &[&long, &long],
    );
    // Short ones inside of text, and very short ones anywhere, may be equal by chance.
    check("say QUJDREVG", Place::Block, Some("QUJDREVG"), &[]);
    check("QUJD", Place::Structured, Some("QUJD"), &[]);
}

#[test]
fn a_whole_structured_string_is_binary_only_if_it_decodes_to_a_known_kind() {
    let png = STANDARD.encode_to_string([b"\x89PNG\r\n\x1a\n".as_slice(), &[1; 64]].concat());
    check(&png, Place::Structured, None, &[&png]);
    check(&png, Place::Block, None, &[]);
    check(&format!(" {png}"), Place::Structured, None, &[]);
    check(&"deadbeef".repeat(64), Place::Structured, None, &[]);
    let html = STANDARD.encode_to_string([b"<html>".as_slice(), &[b' '; 64]].concat());
    check(&html, Place::Structured, None, &[]);
}

/// As writers of JSON have them, when the JSON is a text again.
#[test]
fn escapes_of_json_within_text_are_a_part_of_what_they_stand_in() {
    let bytes: Vec<u8> = (0..64).flat_map(|at| [0xfb, 0xff, 0xbf, at]).collect();
    let payload = STANDARD.encode_to_string([bytes.as_slice(), b"="].concat());
    assert!(payload.contains('/') && payload.contains('+') && payload.ends_with('='));
    let url = format!("data:image/svg+xml;charset=utf-8;base64,{payload}");
    for (slash, plus, equals) in [
        (r"\/", "+", "="),
        (r"\u002F", r"\u002B", r"\u003D"),
        (r"\u002f", r"\u002b", r"\u003d"),
        ("/", r"\u002B", "="),
        // Written twice.
        (r"\\\/", r"\\u002B", "="),
    ] {
        let escape = |text: &str| text.replace('=', equals).replace('+', plus).replace('/', slash);
        let (long, escaped_url) = (escape(&payload), escape(&url));
        for before in ["\"", r"\n", r"\\n", r"\u0022", r"\u003C", r#"\""#, r#"\\\""#] {
            let text = format!("{{\"data\":{before}{long}\",\"url\":{before}{escaped_url}\"}}");
            check(&text, Place::Block, Some(&payload), &[&long, &escaped_url]);
            check(&text, Place::Structured, None, &[&escaped_url]);
        }
        let raw = json::text(&escaped_url);
        let found = in_string(&raw, Place::Block, &Twins::default(), 64, usize::MAX);
        let finds = found.unwrap().finds;
        let declared = Some("image/svg+xml;charset=utf-8".to_owned());
        let bytes = base64::canonical(&payload).unwrap();
        assert_eq!(finds[0].content, Content::New { bytes, declared });
    }
    // Other escapes end it, and so does what only begins as one.
    for other in [r"\n", r"\u000a", r"\u0141", r"\u00", r"\x2F", r"\\", "\\"] {
        let (first, rest) = payload.split_at(4);
        assert!(rest.starts_with('A'));
        let text = format!("{first}{other}{rest}");
        check(&text, Place::Block, Some(&payload), &[]);
    }
}

/// However the text is made, each part of it is looked at a few times at most. That takes milliseconds; to look at all
/// of it again from each part would take many minutes.
#[test]
fn a_text_of_escapes_is_looked_through_in_time() {
    const BYTES: usize = 512 << 10;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let backslashes = "\\".repeat(BYTES);
        let texts = [
            backslashes.clone(),
            format!("AAAA{backslashes}AAAA=={backslashes}="),
            format!("A{}", &"\\".repeat(63)).repeat(BYTES / 64),
            r"\/".repeat(BYTES / 2),
            r"AAAAAAAA\u003D".repeat(BYTES / 14),
            r";base64,\/\/\/\/\/\/\/\/".repeat(BYTES / 24),
            r"\u002".repeat(BYTES / 5),
            format!("data:{}", r"\/;base64,AAAAAAAA".repeat(BYTES / 18)),
        ];
        let mut twins = Twins::default();
        twins.insert("AAAABBBB".into(), BlobRef(Hash::of(b"twin")));
        for text in texts {
            assert!(parts(&text, &twins, 1 << 30, usize::MAX).finds.is_empty());
        }
        tell.send(()).unwrap();
    });
    told.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
}
