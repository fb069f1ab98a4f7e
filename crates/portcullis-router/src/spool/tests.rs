use portcullis_blobs::{FsOptions, FsStore, Limits, MemStore};

use super::{
    places::{MAX_FILES, MAX_OF_ONE},
    *,
};

fn write(spool: &Spool, raw: &[u8], chunk: usize) -> Result<Spooled, SpoolFault> {
    let mut writer = spool.begin();
    raw.chunks(chunk).for_each(|piece| writer.write(piece));
    writer.finish().into_any().downcast::<Outcome>().unwrap().0
}

fn text(spooled: &Spooled) -> Vec<u8> {
    let mut text = Vec::new();
    spooled
        .text(|piece| {
            text.extend_from_slice(piece);
            Ok::<_, SpoolFault>(())
        })
        .unwrap();
    assert_eq!(spooled.text_bytes(), text.len() as u64);
    text
}

/// What `raw` is taken for, and that it is the same text when it is put back: to the letter where it is text, with
/// canonical base64's escapes spelled out else. The same in pieces of all sizes, in memory and in files.
#[track_caller]
fn check(raw: &[u8], kind: &str) {
    let folder = tempfile::tempdir().unwrap();
    let files = FsStore::open(&folder.path().join("blobs"), FsOptions::default()).unwrap();
    for store in [
        Arc::new(MemStore::default()) as Arc<dyn BlobStore>,
        Arc::new(files),
    ] {
        let spool = Spool::new(store);
        let small: &[usize] = if raw.len() < 10_000 { &[1, 7] } else { &[] };
        for &chunk in small.iter().chain(&[4096, raw.len()]) {
            let spooled = write(&spool, raw, chunk).unwrap();
            let found = match &spooled.kind {
                Kind::Text => "text",
                Kind::Base64 => "base64",
                Kind::DataUrl { .. } => "data url",
            };
            let shown = String::from_utf8_lossy(&raw[..raw.len().min(80)]).into_owned();
            assert_eq!(found, kind, "{shown} in pieces of {chunk}");
            let back = text(&spooled);
            // What was decoded comes back without the escapes that it may have had.
            if kind == "text" && !raw.windows(6).any(|escape| escape == br"\u003D") {
                assert!(back == raw, "{shown} in pieces of {chunk}");
            }
            let unquote = |raw: &[u8]| {
                let raw = String::from_utf8(raw.to_vec()).unwrap();
                serde_json::from_str::<String>(&format!("\"{raw}\""))
            };
            // Half a surrogate pair is no text, and stays as it was written.
            if let Ok(meant) = unquote(raw) {
                assert!(unquote(&back).unwrap() == meant, "{shown} in pieces of {chunk}");
                if kind == "base64" {
                    let bytes = STANDARD.decode_to_vec(&meant).unwrap();
                    assert_eq!(spooled.size_bytes(), bytes.len() as u64);
                    assert_eq!(spooled.blob(), BlobRef(portcullis_blobs::Hash::of(&bytes)));
                    assert!(bytes.starts_with(spooled.head()));
                }
            }
        }
    }
}

/// Bytes whose base64 holds every character of the alphabet.
fn noise(size: usize) -> Vec<u8> {
    (0..size)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8)
        .collect()
}

fn base64(size: usize) -> String {
    STANDARD.encode_to_string(noise(size))
}

#[test]
fn canonical_base64_is_decoded_however_it_is_escaped() {
    for size in [600, 601, 602, 70_000, 300_001] {
        let plain = base64(size);
        check(plain.as_bytes(), "base64");
        check(plain.replace('/', "\\/").as_bytes(), "base64");
        check(
            plain.replace('+', "\\u002B").replace('=', "\\u003d").as_bytes(),
            "base64",
        );
    }
}

#[test]
fn what_is_not_canonical_is_text_from_its_first_letter_on() {
    for size in [600, 300_000] {
        let plain = base64(size);
        for text in [
            format!("{plain}="),
            format!("{plain}A"),
            format!("{plain}AB"),
            format!("{plain}ABC"),
            format!("{plain}AB=="),
            format!("{plain}QR=="),
            format!("{plain}QQ==QQ=="),
            format!("{plain}QQ\\u003D=A"),
            format!("{plain} "),
            format!("{plain}!{plain}"),
            format!("{plain}A\\n{plain}"),
            format!("{plain}AB\\u000aCD"),
            format!("{plain}AB\\u20acCD"),
            format!("{plain}A\\ud83d\\ude00{plain}"),
            format!("{plain}\\ud83d"),
            format!("{plain}AB😀{plain}"),
            format!("-{plain}"),
            format!("{}_-", base64(size)),
        ] {
            check(text.as_bytes(), "text");
        }
    }
    check(
        r"plain words and \ud83d\ude00 and \\ and \/ "
            .repeat(9_000)
            .as_bytes(),
        "text",
    );
}

#[test]
fn a_data_url_is_told_from_its_beginning() {
    for size in [600, 300_000] {
        let plain = base64(size);
        for head in [
            "data:image/png;base64,",
            "data:;base64,",
            "DATA:text/plain;charset=utf-8;BASE64,",
            "data:image\\/svg\\u002bxml;base64,",
        ] {
            check(format!("{head}{plain}").as_bytes(), "data url");
            check(format!("{head}{plain}!").as_bytes(), "text");
        }
        for head in [
            "data:image/png,",
            "data: image/png;base64,",
            "see data:image/png;base64,",
            ",",
        ] {
            check(format!("{head}{plain}").as_bytes(), "text");
        }
    }
}

fn in_folder(limits: Limits) -> (tempfile::TempDir, Spool) {
    let folder = tempfile::tempdir().unwrap();
    let options = FsOptions {
        limits,
        ..FsOptions::default()
    };
    let store = FsStore::open(&folder.path().join("blobs"), options).unwrap();
    (folder, Spool::new(Arc::new(store)))
}

fn files(folder: &tempfile::TempDir) -> usize {
    let scratch = folder.path().join("blobs/tmp");
    std::fs::read_dir(scratch).map_or(0, Iterator::count)
}

/// What nobody wants leaves no file and no blob: broken off, dropped when whole, and text that was base64 before.
#[test]
fn what_is_dropped_leaves_nothing() {
    let (folder, spool) = in_folder(Limits::default());
    let raw = base64(1 << 20);
    let mut writer = spool.begin();
    writer.write(raw.as_bytes());
    assert_eq!(files(&folder), 1);
    drop(writer);
    drop(write(&spool, raw.as_bytes(), 65_536).unwrap());
    drop(write(&spool, format!("{raw}!").as_bytes(), 65_536).unwrap());
    assert_eq!(files(&folder), 0);
    let blobs = folder.path().join("blobs/blake3");
    assert_eq!(std::fs::read_dir(blobs).unwrap().count(), 0);
    assert_eq!(spool.files.free(), (MAX_FILES, MAX_OF_ONE));
}

#[test]
fn a_store_that_takes_no_more_says_so_and_keeps_nothing() {
    let limits = Limits {
        max_blob_bytes: 500_000,
        quota_bytes: Some(700_000),
    };
    let (folder, spool) = in_folder(limits);
    let raw = base64(600_000);
    // At once, however long the string still is.
    let mut writer = spool.begin();
    base64(900_000)
        .as_bytes()
        .chunks(65_536)
        .for_each(|piece| writer.write(piece));
    assert_eq!((files(&folder), spool.files.free().1), (0, MAX_OF_ONE));
    drop(writer);
    assert!(matches!(
        write(&spool, raw.as_bytes(), 65_536),
        Err(SpoolFault::Store(BlobError::TooLarge { limit_bytes: 500_000 }))
    ));
    let raw = base64(400_000);
    let first = write(&spool, raw.as_bytes(), 65_536).unwrap();
    assert!(matches!(
        write(&spool, raw.as_bytes(), 65_536),
        Err(SpoolFault::Store(BlobError::Quota { .. }))
    ));
    assert_eq!(files(&folder), 1);
    first.publish().unwrap();
    assert_eq!(files(&folder), 0);
}

/// One server's strings fail its own results where there are too many, and no other's, however long they are left
/// without an end. What all have together is bounded too.
#[test]
fn each_server_has_a_share_of_the_files() {
    let (folder, spool) = in_folder(Limits::default());
    let raw = base64(200_000);
    let fill = |server: &Spool| -> Vec<_> {
        (0..MAX_OF_ONE)
            .map(|_| {
                let mut writer = server.begin();
                writer.write(raw.as_bytes());
                writer
            })
            .collect()
    };
    let crowded = |server: &Spool| write(server, raw.as_bytes(), 65_536).unwrap_err().to_string();
    let servers: Vec<_> = (0..5).map(|_| spool.of_one()).collect();
    let (greedy, other) = (servers.first().unwrap(), servers.last().unwrap());

    let open = fill(greedy);
    assert_eq!(files(&folder), MAX_OF_ONE);
    assert_eq!(
        crowded(greedy),
        "more than 64 long strings of this server wait in files: call again later"
    );
    // Those that fit into memory need no place, and another server has its own.
    write(greedy, base64(90_000).as_bytes(), 65_536).unwrap();
    write(other, raw.as_bytes(), 65_536).unwrap();

    let all: Vec<_> = servers.get(1..4).unwrap().iter().map(fill).collect();
    assert_eq!(
        crowded(other),
        "more than 256 long strings of all servers wait in files: call again later"
    );
    drop((open, all));
    write(greedy, raw.as_bytes(), 65_536).unwrap();
    write(other, raw.as_bytes(), 65_536).unwrap();
    assert_eq!(files(&folder), 0);
    assert_eq!(greedy.files.free(), (MAX_FILES, MAX_OF_ONE));
}

/// Its text has the place of what was decoded.
#[test]
fn what_turns_out_to_be_text_needs_no_second_place() {
    let (folder, spool) = in_folder(Limits::default());
    let raw = base64(200_000);
    let open: Vec<_> = (1..MAX_OF_ONE)
        .map(|_| write(&spool, raw.as_bytes(), 65_536).unwrap())
        .collect();
    let text = write(&spool, format!("{raw}!").as_bytes(), 65_536).unwrap();
    assert!(matches!(text.kind, Kind::Text));
    assert_eq!((files(&folder), spool.files.free().1), (MAX_OF_ONE, 0));
    drop((open, text));
    assert_eq!(spool.files.free(), (MAX_FILES, MAX_OF_ONE));
}

#[test]
fn a_file_that_somebody_cut_short_is_told() {
    let (folder, spool) = in_folder(Limits::default());
    let spooled = write(&spool, base64(400_000).as_bytes(), 65_536).unwrap();
    let mut scratch = std::fs::read_dir(folder.path().join("blobs/tmp")).unwrap();
    let name = scratch.next().unwrap().unwrap().path();
    #[expect(clippy::disallowed_methods, reason = "a test damages a file")]
    let file = std::fs::OpenOptions::new().write(true).open(name).unwrap();
    file.set_len(100_000).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(spooled.text(|_| Ok(()))));
    let told = told.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    assert!(matches!(told, Err(SpoolFault::Store(_))), "{told:?}");
}
