//! How results and their store are configured, in the file and in code: limits that hold, errors that name them, and
//! what is kept for how long.

use std::time::{Duration, SystemTime};

use portcullis::{
    Document, Hub, HubBuilder, Oversize, PolicyFile, ShapeOptions,
    blobs::{BlobStore, Bytes, FsOptions, FsStore, Limits, TagName},
};
use portcullis_e2e::{DEADLINE, Folder, scripted};
use portcullis_testkit::{Behaviour, Script, Tool};
use serde_json::{Value, json};

use crate::{SCRIPTED, portcullis};

const RULES: &str = "default deny\nallow mcp.notes.*\n";

/// A configuration of Portcullis' own with one server and `more` for the hub.
fn configuration(more: &Value) -> String {
    let script = Script::new("notes")
        .tool(Tool::new("small", Behaviour::image(70_000, 1)))
        .tool(Tool::new("other", Behaviour::image(70_000, 2)))
        .tool(Tool::new("large", Behaviour::image(300_000, 3)))
        .tool(Tool::new("long", Behaviour::Text("words ".repeat(2_000))))
        .tool(Tool::new("read", Behaviour::Text("bread".to_owned())));
    let mut server = scripted(SCRIPTED, &script);
    server["name"] = json!("notes");
    let mut mcp = json!({"servers": [server], "policies": "policies"});
    for (name, value) in more.as_object().unwrap() {
        mcp[name] = value.clone();
    }
    json!({ "mcp": mcp }).to_string()
}

fn written(more: &Value) -> Folder {
    let folder = Folder::new();
    folder.rules(RULES);
    folder.write("portcullis.json", configuration(more));
    folder
}

fn builder(more: &Value) -> HubBuilder {
    Hub::builder()
        .document(Document::new("portcullis.json", configuration(more)))
        .policy_files([PolicyFile {
            name: "test.rules".to_owned(),
            text: RULES.to_owned(),
        }])
}

async fn call(hub: &Hub, tool: &str) -> Result<portcullis::CallOutcome, String> {
    let called = tokio::time::timeout(DEADLINE, hub.call(&format!("mcp.notes.{tool}"), &json!({}))).await;
    called.unwrap().map_err(|error| error.to_string())
}

#[test]
fn limits_in_the_file_refuse_a_result_and_name_themselves() {
    let folder = written(&json!({
        "blobs": {"quotaBytes": 100_000, "maxBlobBytes": 80_000, "durability": "none"},
        "results": {"maxReplyBytes": 4_000, "oversize": "reject"},
    }));
    let run = |tool: &str| {
        let capability = format!("mcp.notes.{tool}");
        portcullis(&folder, &["call", &capability, "--config", "portcullis.json"])
            .with("--blobs", folder.path("blobs"))
            .run()
    };
    run("small").exits(0);
    for (tool, told) in [
        ("other", "quota of 100000 bytes"),
        ("large", "the 80000 bytes that one blob may have"),
        ("long", "above the limit of 4000"),
    ] {
        let refused = run(tool).exits(1);
        assert!(refused.stderr.contains(told), "{tool}: {}", refused.stderr);
    }
    let read = run("read").exits(0);
    assert!(read.stdout.contains("bread"), "{}", read.stdout);
}

#[test]
fn a_limit_that_cannot_be_read_opens_nothing() {
    for (blobs, why) in [
        (json!({"quotaBytes": "1 GB"}), "`quotaBytes` is a text"),
        (json!({"quotaByte": 1}), "did you mean `quotaBytes`?"),
    ] {
        let folder = written(&json!({"blobs": blobs}));
        for arguments in [
            ["check", "portcullis.json"].as_slice(),
            &["call", "mcp.notes.read", "--config", "portcullis.json"],
            &["blobs", "gc", "--blobs", ".", "--config", "portcullis.json"],
        ] {
            let refused = portcullis(&folder, arguments).run().exits(3);
            let told = format!("{}{}", refused.stdout, refused.stderr);
            assert!(told.contains(why), "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_goes_on_after_a_result_that_its_store_did_not_take() {
    let limited = json!({"blobs": {"quotaBytes": 100_000}});
    for in_memory in [true, false] {
        let folder = Folder::new();
        let mut builder = builder(&limited);
        if !in_memory {
            builder = builder.blob_dir(folder.path("blobs"));
        }
        let hub = builder.start().await.unwrap();
        assert_eq!(hub.diagnostics(), []);
        let first = call(&hub, "small").await.unwrap();
        let error = call(&hub, "other").await.unwrap_err();
        assert!(error.contains("quota of 100000 bytes"), "{error}");
        call(&hub, "read").await.unwrap();
        let info = &first.result.blobs[0];
        assert_eq!(hub.blob(info.blob).await.unwrap().len() as u64, info.size_bytes);
        hub.shutdown().await.unwrap();
    }
}

/// What a host gives in code counts before the documents, and without either all is as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_in_code_count_before_the_file() {
    let file = json!({
        "blobs": {"quotaBytes": 100, "maxBlobBytes": 100},
        "results": {"maxReplyBytes": 1_000, "oversize": "reject"},
    });
    let hub = builder(&file).start().await.unwrap();
    call(&hub, "small").await.unwrap_err();
    call(&hub, "long").await.unwrap_err();
    hub.shutdown().await.unwrap();

    let limits = Limits {
        max_blob_bytes: 100_000,
        quota_bytes: None,
    };
    let options = FsOptions {
        limits,
        ..FsOptions::default()
    };
    let shape = ShapeOptions {
        max_reply_bytes: 1_000,
        oversize: Oversize::Spill,
        ..ShapeOptions::default()
    };
    for more in [&file, &json!({})] {
        let hub = builder(more)
            .blob_options(options)
            .shape(shape)
            .start()
            .await
            .unwrap();
        call(&hub, "small").await.unwrap();
        let error = call(&hub, "large").await.unwrap_err();
        assert!(
            error.contains("the 100000 bytes that one blob may have"),
            "{error}"
        );
        assert!(call(&hub, "long").await.unwrap().result.spilled);
        hub.shutdown().await.unwrap();
    }
    let hub = builder(&json!({})).start().await.unwrap();
    call(&hub, "large").await.unwrap();
    assert!(!call(&hub, "long").await.unwrap().result.spilled);
    hub.shutdown().await.unwrap();
}

/// What a newer version has laid out is neither read nor written by this one.
#[test]
fn a_store_of_a_newer_version_is_refused() {
    let folder = Folder::new();
    drop(FsStore::open(&folder.path("blobs"), FsOptions::default()).unwrap());
    let format = folder.path("blobs/format");
    std::fs::write(&format, "portcullis-blobs 2\n").unwrap();
    folder.write("hub.json", configuration(&json!({})));
    folder.rules(RULES);
    let call = ["call", "mcp.notes.large", "--config", "hub.json"];
    for arguments in [&["blobs", "ls"][..], &["blobs", "gc"], &call] {
        let refused = portcullis(&folder, arguments).args(["--blobs", "blobs"]).run();
        assert_ne!(refused.code, Some(0), "{arguments:?}");
        assert!(
            refused.stderr.contains("newer"),
            "{arguments:?}: {}",
            refused.stderr
        );
    }
    assert_eq!(std::fs::read_to_string(format).unwrap(), "portcullis-blobs 2\n");
    assert_eq!(
        walk(&folder.path("blobs/blake3")),
        Vec::<std::path::PathBuf>::new()
    );
}

/// Whoever waits sees how far it is; what reads the output of the program does not.
#[test]
fn long_work_on_the_store_is_followed_at_a_terminal() {
    const SIZE: u64 = 1 << 30;
    let folder = Folder::new();
    drop(FsStore::open(&folder.path("blobs"), FsOptions::default()).unwrap());
    let shard = folder.path("blobs/blake3/00");
    std::fs::create_dir_all(&shard).unwrap();
    let verify = || portcullis(&folder, &["blobs", "verify", "--blobs", "blobs"]);
    for at_terminal in [true, false] {
        // Nothing but length, so that it takes no room of the disk; and it is not what its name says.
        let file = std::fs::File::create_new(shard.join("00".repeat(32))).unwrap();
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        file.set_len(SIZE).unwrap();
        let finished = match at_terminal {
            true => verify().run_at_terminal(&[]),
            false => verify().run(),
        };
        let finished = finished.exits(1);
        assert_eq!(
            finished.stderr.contains("verifying [#"),
            at_terminal,
            "{}",
            finished.stderr
        );
        assert!(finished.stderr.contains("moved to"), "{}", finished.stderr);
    }
}

/// A store with a blob that nothing keeps, put so many hours ago, for each of `hours`.
async fn littered<const N: usize>(folder: &Folder, hours: [u64; N]) -> [portcullis::BlobRef; N] {
    let mut blobs = Vec::new();
    let mut known = Vec::new();
    for hours in hours {
        // Each with a store of its own, whose session ends with it.
        let store = FsStore::open(&folder.path("blobs"), FsOptions::default()).unwrap();
        let content = format!("of {hours} hours ago");
        blobs.push(store.put(Bytes::from(content)).await.unwrap().blob);
        drop(store);
        let before = SystemTime::now() - Duration::from_secs(3_600 * hours);
        for file in walk(&folder.path("blobs/blake3")) {
            if !known.contains(&file) {
                std::fs::File::open(&file).unwrap().set_modified(before).unwrap();
                known.push(file);
            }
        }
    }
    assert_eq!(known.len(), N);
    blobs.try_into().unwrap()
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    folders
        .iter()
        .flat_map(|folder| walk(folder))
        .chain(files)
        .collect()
}

async fn until_gone(store: &dyn BlobStore, blob: portcullis::BlobRef) {
    let gone = async {
        while store.size_bytes(blob).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_told_a_retention_collects_by_it() {
    let folder = Folder::new();
    let [younger, older] = littered(&folder, [2, 20]).await;
    for (seconds, goes) in [(10_000, older), (3_600, younger)] {
        let more = json!({"blobs": {"retentionSeconds": seconds}});
        let there = FsStore::open(&folder.path("blobs"), FsOptions::default()).unwrap();
        assert!(there.size_bytes(younger).await.unwrap().is_some(), "{seconds}");
        let hub = builder(&more)
            .blob_dir(folder.path("blobs"))
            .start()
            .await
            .unwrap();
        until_gone(hub.store().as_ref(), goes).await;
        hub.shutdown().await.unwrap();
    }
    // One that is told nothing of it leaves the store alone, and one that is told in code collects.
    let [old] = littered(&folder, [30]).await;
    let hub = builder(&json!({}))
        .blob_dir(folder.path("blobs"))
        .start()
        .await
        .unwrap();
    call(&hub, "read").await.unwrap();
    assert!(hub.store().size_bytes(old).await.unwrap().is_some());
    hub.shutdown().await.unwrap();
    let hub = builder(&json!({"blobs": {"retentionSeconds": 1_000_000}}))
        .blob_dir(folder.path("blobs"))
        .blob_retention(Duration::from_secs(60))
        .start()
        .await
        .unwrap();
    until_gone(hub.store().as_ref(), old).await;
    hub.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_program_collects_by_the_retention_of_the_file() {
    for (seconds, removed) in [(3_600, 1), (10_000, 0)] {
        let folder = written(&json!({"blobs": {"retentionSeconds": seconds}}));
        littered(&folder, [2]).await;
        let gc = |more: &[&str]| {
            let arguments = [&["blobs", "gc", "--dry-run", "--format", "json"], more].concat();
            let finished = portcullis(&folder, &arguments)
                .with("--blobs", folder.path("blobs"))
                .run()
                .exits(0);
            serde_json::from_str::<Value>(&finished.stdout).unwrap()["removed"].clone()
        };
        assert_eq!(gc(&["--config", "portcullis.json"]), removed);
        assert_eq!(gc(&["--config", "portcullis.json", "--retention", "1h"]), 1);
        assert_eq!(gc(&[]), 0);
    }
}

#[tokio::test]
async fn what_a_session_stored_is_kept_under_its_name_for_as_long_as_the_file_says() {
    for (more, lasts) in [
        (json!({}), None),
        (json!({"blobs": {"sessionSeconds": 600}}), Some(600_000)),
    ] {
        let folder = written(&more);
        let before = i64::try_from(
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_millis(),
        )
        .unwrap();
        let arguments = [
            "call",
            "mcp.notes.small",
            "--config",
            "portcullis.json",
            "--session",
            "t1",
        ];
        portcullis(&folder, &arguments)
            .with("--blobs", folder.path("blobs"))
            .run()
            .exits(0);
        let store = FsStore::open(&folder.path("blobs"), FsOptions::default()).unwrap();
        let tags = store.tags().await.unwrap();
        assert_eq!(tags.len(), 1);
        assert_eq!(tags[0].name, TagName::session("t1").unwrap());
        let left = tags[0].expires_ms.map(|expires_ms| expires_ms - before);
        assert_eq!(left.is_some(), lasts.is_some());
        if let (Some(left), Some(lasts)) = (left, lasts) {
            assert!((lasts..lasts + 60_000).contains(&left), "{left}");
        }
    }
    let folder = written(&json!({}));
    let arguments = [
        "call",
        "mcp.notes.small",
        "--config",
        "portcullis.json",
        "--session",
        "../t",
    ];
    let refused = portcullis(&folder, &arguments).run().exits(2);
    assert!(
        refused.stderr.contains("cannot be the name of a tag"),
        "{}",
        refused.stderr
    );
}
