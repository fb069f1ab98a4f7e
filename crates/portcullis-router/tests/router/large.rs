//! Results that are too large for a line: they reach the store while they arrive.

use std::path::Path;

use portcullis_blobs::{FsOptions, FsStore, GcOptions, Limits};
use portcullis_router::Oversize;
use portcullis_testkit::{Behaviour, Tool, pseudo_random};
use serde_json::{Value, json};

use super::{odd_store::OddStore, *};

const MIB: u64 = 1 << 20;

async fn on_disk(folder: &Path, limits: Limits, shape: ShapeOptions, script: &Script) -> Rig {
    let options = FsOptions {
        limits,
        ..FsOptions::default()
    };
    let store = Arc::new(FsStore::open(&folder.join("blobs"), options).unwrap());
    Rig::start_on(
        store,
        shape,
        scripted(script),
        "default deny\nallow mcp.s.*\n",
        None,
    )
    .await
}

/// How many files are being written.
fn scratch(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("blobs/tmp")).map_or(0, Iterator::count)
}

fn json_of(outcome: &CallOutcome) -> Value {
    serde_json::from_str(outcome.result.result.get()).unwrap()
}

#[tokio::test]
async fn large_pictures_sounds_and_blobs_become_references() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::new("s")
        .tool(Tool::new("image", Behaviour::image(3 * MIB, 7)))
        .tool(Tool::new(
            "audio",
            Behaviour::Audio {
                bytes: 3 * MIB,
                seed: 8,
            },
        ))
        .tool(Tool::new(
            "blob",
            Behaviour::EmbeddedBlob {
                bytes: 3 * MIB,
                seed: 9,
            },
        ))
        .tool(Tool::new(
            "twin",
            Behaviour::Twin {
                bytes: 3 * MIB,
                seed: 10,
            },
        ));
    let rig = on_disk(folder.path(), Limits::default(), ShapeOptions::default(), &script).await;
    for (tool, media_type, seed) in [
        ("image", "image/png", 7),
        ("audio", "audio/wav", 8),
        ("blob", "application/octet-stream", 9),
        ("twin", "image/png", 10),
    ] {
        let outcome = rig.call(tool, "{}").await.unwrap();
        let [info] = &outcome.result.blobs[..] else {
            panic!("{tool}: {:?}", outcome.result.blobs)
        };
        assert_eq!(info.size_bytes, 3 * MIB, "{tool}");
        let content = rig.router.store().get(info.blob).await.unwrap();
        assert!(content == pseudo_random(media_type, 3 << 20, seed), "{tool}");
        assert_eq!(info.media_type, media_type, "{tool}");
        let result = json_of(&outcome);
        assert_eq!(
            result["content"][0]["uri"],
            info.blob.to_string(),
            "{tool}: {result}"
        );
        if tool == "twin" {
            let twin = &result["structuredContent"]["image"]["data"];
            assert_eq!(*twin, info.blob.to_string(), "{result}");
        }
        assert!(!outcome.result.spilled, "{tool}");
    }
    assert_eq!(scratch(folder.path()), 0);
}

/// What a hub stores is held by it for as long as it is there, and kept under its name afterwards.
#[tokio::test]
async fn what_results_put_is_kept_by_the_hub_and_by_its_name() {
    let options = GcOptions {
        retention: Duration::ZERO,
        ..GcOptions::at(1)
    };
    let (ours, others) = (Arc::new(MemStore::default()), Behaviour::image(100_000, 7));
    let script = Script::new("s").tool(Tool::new("image", others));
    let shape = ShapeOptions::default();
    let rules = "default deny\nallow mcp.s.*\n";
    let rig = Rig::start_on(Arc::clone(&ours) as _, shape, scripted(&script), rules, None).await;
    let outcome = rig.call("image", "{}").await.unwrap();
    let blob = outcome.result.blobs[0].blob;
    let tags = ours.tags().await.unwrap();
    assert_eq!(
        tags.iter()
            .map(|tag| (tag.name.as_str(), tag.blob))
            .collect::<Vec<_>>(),
        [("session:router", blob)]
    );
    // Without its name the hub's own session holds it.
    ours.untag(tags[0].name.clone(), None).await.unwrap();
    assert_eq!(ours.gc(options.clone()).await.unwrap().removed, 0);
    ours.tag(tags[0].clone()).await.unwrap();
    rig.router.shutdown().await.unwrap();
    drop(rig);
    assert_eq!(ours.gc(options.clone()).await.unwrap().removed, 0);
    ours.untag(tags[0].name.clone(), None).await.unwrap();
    let gone = async {
        while ours.gc(options.clone()).await.unwrap().removed == 0 {
            tokio::task::yield_now().await
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
}

/// Each blob of a result, that of a spilled reply too.
#[tokio::test]
async fn all_that_a_result_stores_is_kept_under_the_hubs_name() {
    let picture = |seed| base64_simd::STANDARD.encode_to_string(pseudo_random("image/png", 900, seed));
    let raw = json!({"content": [
        {"type": "image", "data": picture(1)},
        {"type": "image", "data": picture(2)},
        {"type": "text", "text": "x".repeat(70_000)},
    ]});
    let script = Script::new("s").tool(Tool::new("result", Behaviour::Raw(raw.to_string())));
    let rig = Rig::start(&script, "default deny\nallow mcp.s.*\n", None).await;
    let outcome = rig.call("result", "{}").await.unwrap();
    let mut blobs: Vec<_> = outcome.result.blobs.iter().map(|info| info.blob).collect();
    let tags = rig.router.store().tags().await.unwrap();
    let mut tagged: Vec<_> = tags.iter().map(|tag| tag.blob).collect();
    blobs.sort();
    tagged.sort();
    assert_eq!((blobs.len(), blobs), (3, tagged));
}

#[tokio::test]
async fn long_text_is_handed_on_spilled_or_refused_and_never_cut() {
    let words = "many words, some of them \u{202e}odd\u{1f600} ".repeat(10_000);
    let arguments = json!({"a": words}).to_string();
    let result = json!({"content": [{"type": "text", "text": arguments}]});
    let script = Script::new("s").tool(Tool::new("text", Behaviour::Echo));
    let start = async |max_reply_bytes, oversize| {
        let shape = ShapeOptions {
            max_reply_bytes,
            oversize,
            ..ShapeOptions::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let rig = on_disk(folder.path(), Limits::default(), shape, &script).await;
        let outcome = rig.call("text", &arguments).await;
        assert_eq!(scratch(folder.path()), 0);
        (folder, rig, outcome)
    };

    let (_folder, _rig, outcome) = start(16 << 20, Oversize::Spill).await;
    assert_eq!(json_of(&outcome.unwrap()), result);

    let (_folder, rig, outcome) = start(64 << 10, Oversize::Spill).await;
    let outcome = outcome.unwrap();
    assert!(outcome.result.spilled && outcome.result.result.get().len() < 2_000);
    let whole = rig
        .router
        .store()
        .get(outcome.result.blobs[0].blob)
        .await
        .unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&whole).unwrap(), result);
    assert_eq!(outcome.result.flags.bidi, 10_000);

    let (_folder, rig, outcome) = start(64 << 10, Oversize::Reject).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("bytes, above the limit of 65536"), "{error}");
    assert_eq!(rig.router.store().stats().await.unwrap().blobs, 0);
}

/// A blob over the limit fails its own call, says so, and leaves nothing; calls beside and after it are answered.
/// What may not be in a result does not come by way of an error.
#[tokio::test]
async fn a_large_error_is_stored_and_its_start_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let message = format!("no: {}", "x".repeat(100_000));
    let refuses = Behaviour::JsonRpcError {
        code: -32000,
        message: message.clone(),
    };
    let script = Script::new("s").tool(Tool::new("refuses", refuses));
    let rig = on_disk(folder.path(), Limits::default(), ShapeOptions::default(), &script).await;
    let error = rig.call("refuses", "{}").await.unwrap_err();
    assert_eq!(error.code(), "upstream-error");
    let told = error.to_string();
    assert!(
        told.len() < 1_000 && told.contains("error -32000: no: xxx"),
        "{told}"
    );
    let (_, blob) = told.split_once("stored whole as ").unwrap();
    let content = rig
        .router
        .store()
        .get(blob.trim_end_matches(')').parse().unwrap())
        .await
        .unwrap();
    let whole: Value = serde_json::from_slice(&content).unwrap();
    assert!(whole["error"]["message"] == message);
}

#[tokio::test]
async fn what_the_store_does_not_take_fails_that_call_alone() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        max_blob_bytes: 2 * MIB,
        quota_bytes: Some(3 * MIB),
    };
    let script = Script::new("s")
        .tool(Tool::new("large", Behaviour::image(3 * MIB, 7)))
        .tool(Tool::new("first", Behaviour::image(2 * MIB, 8)))
        .tool(Tool::new("second", Behaviour::image(2 * MIB, 9)))
        .tool(Tool::new("echo", Behaviour::Echo));
    let rig = on_disk(folder.path(), limits, ShapeOptions::default(), &script).await;
    let (large, echo) = futures::join!(rig.call("large", "{}"), rig.call("echo", r#"{"a":1}"#));
    let error = large.unwrap_err().to_string();
    assert!(error.contains("larger than the 2097152 bytes"), "{error}");
    echo.unwrap();
    rig.call("first", "{}").await.unwrap();
    let error = rig.call("second", "{}").await.unwrap_err().to_string();
    assert!(error.contains("quota of 3145728 bytes"), "{error}");
    rig.call("echo", "{}").await.unwrap();
    assert_eq!(scratch(folder.path()), 0);
    assert_eq!(rig.router.store().stats().await.unwrap().blobs, 1);
}

/// What happened at the server stays true.
#[tokio::test]
async fn a_string_whose_thread_came_to_grief_is_lost_with_its_call_alone() {
    let mut store = OddStore::new(|_| false);
    store.panics = true;
    let script = Script::new("s")
        .tool(Tool::new("large", Behaviour::image(3 * MIB, 7)))
        .tool(Tool::new("echo", Behaviour::Echo));
    let rules = "default deny\nallow mcp.s.*\n";
    let rig = Rig::start_on(
        Arc::new(store),
        ShapeOptions::default(),
        scripted(&script),
        rules,
        None,
    )
    .await;
    let error = rig.call("large", "{}").await.unwrap_err();
    assert_eq!(error.code(), "result");
    let told = error.to_string();
    assert!(
        told.contains("the tool was called, but its result, or a long string of it, was lost"),
        "{told}"
    );
    rig.call("echo", "{}").await.unwrap();
}

/// A call that nobody waits for any more leaves no file and no blob.
#[tokio::test]
async fn a_cancelled_call_leaves_nothing_of_its_picture() {
    let folder = tempfile::tempdir().unwrap();
    let late = Behaviour::LateReply {
        ms: 100,
        then: Box::new(Behaviour::image(3 * MIB, 7)),
    };
    let script = Script::new("s")
        .tool(Tool::new("late", late))
        .tool(Tool::new("echo", Behaviour::Echo));
    let rig = on_disk(folder.path(), Limits::default(), ShapeOptions::default(), &script).await;
    let waited = timeout(Duration::from_millis(20), rig.call("late", "{}")).await;
    assert!(waited.is_err());
    // The late reply comes before or after this one, on the same pipe.
    rig.call("late", "{}").await.unwrap();
    let gone = async {
        while scratch(folder.path()) > 0 {
            rig.call("echo", "{}").await.unwrap();
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    assert_eq!(rig.router.store().stats().await.unwrap().blobs, 1);
}

/// However its server writes it: escapes, the data before their type, alone in structured content, under a wrong type.
/// The event tells both types where they differ.
#[tokio::test]
async fn a_picture_is_found_however_its_server_writes_it() {
    let bytes = pseudo_random("image/png", 51_000, 7);
    let plain = base64_simd::STANDARD.encode_to_string(&bytes);
    let escaped = plain.replace('/', "\\/").replacen('+', "\\u002B", 500);
    let png = json!("image/png");
    for (raw, declared) in [
        (
            format!(r#"{{"content":[{{"data":"{escaped}","mimeType":"image/png","type":"image"}}]}}"#),
            &json!(null),
        ),
        (
            format!(r#"{{"content":[{{"type":"image","data":"{plain}","mimeType":"image/jpeg"}}]}}"#),
            &json!("image/jpeg"),
        ),
        (
            format!(
                r#"{{"content":[{{"type":"image","data":"{}"}}]}}"#,
                plain.trim_end_matches('=')
            ),
            &json!(null),
        ),
        (
            format!(r#"{{"structuredContent":{{"picture":"{escaped}"}},"content":[]}}"#),
            &json!(null),
        ),
        (
            format!(r#"{{"content":[{{"text":"data:image\/png;base64,{escaped}","type":"text"}}]}}"#),
            &json!(null),
        ),
    ] {
        let script = Script::new("s").tool(Tool::new("image", Behaviour::Raw(raw)));
        let mut rig = Rig::start(&script, "default deny\nallow mcp.s.*\n", None).await;
        let outcome = rig.call("image", "{}").await.unwrap();
        let [info] = &outcome.result.blobs[..] else {
            panic!("{:?}", outcome.result.blobs)
        };
        let content = rig.router.store().get(info.blob).await.unwrap();
        assert!(content == bytes && !outcome.result.spilled);
        let result = outcome.result.result.get();
        assert!(
            result.contains(&info.blob.to_string()) && result.len() < 400,
            "{result}"
        );
        let told = rig.told();
        let blob = &told.last().unwrap()["blobs"][0];
        assert_eq!((&blob["mediaType"], &blob["declaredMediaType"]), (&png, declared));
    }
}
