//! `portcullis blobs`, as a user runs it.

use std::{path::PathBuf, process::Command};

use portcullis::{
    BlobRef,
    blobs::{BlobStore, Bytes, FsOptions, FsStore, Tag},
};
use rustix::pty;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Ended, ended, program};

struct Fixture {
    parent: TempDir,
    kept: BlobRef,
    loose: BlobRef,
}

impl Fixture {
    /// A store of two blobs that no process holds: one tagged, one not.
    fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let store = FsStore::open(&parent.path().join("blobs"), FsOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let put = |content: &'static [u8]| runtime.block_on(store.put(Bytes::from_static(content))).unwrap();
        let (kept, loose) = (put(b"kept for long").blob, put(b"%PDF-1.7 loose").blob);
        let tag = Tag {
            name: "keep".parse().unwrap(),
            blob: kept,
            expires_ms: None,
        };
        runtime.block_on(store.tag(tag)).unwrap();
        Self { parent, kept, loose }
    }

    /// Where the content of `blob` is.
    fn file(&self, blob: BlobRef) -> PathBuf {
        let name = blob.0.to_string();
        let folder = self.parent.path().join("blobs/blake3");
        folder.join(name.get(..2).unwrap()).join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(&["blobs"]);
        command.args(arguments);
        command.arg("--blobs").arg(self.parent.path().join("blobs"));
        command
    }

    /// What is printed, where it ends with `code`.
    fn check(&self, arguments: &[&str], code: i32) -> String {
        let output = ended(&mut self.command(arguments));
        let Ended { printed, told, .. } = output;
        assert_eq!(output.code, Some(code), "{arguments:?}: {printed}{told}");
        if code == 0 {
            assert_eq!(told, "", "{arguments:?}: nobody watches, so no progress is shown");
        }
        printed + &told
    }

    fn json(&self, arguments: &[&str], code: i32) -> Vec<Value> {
        let arguments = [arguments, &["--format", "json"]].concat();
        let text = self.check(&arguments, code);
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[test]
fn what_is_there_is_listed_counted_and_read() {
    let fixture = Fixture::new();
    let (kept, loose) = (fixture.kept.to_string(), fixture.loose.to_string());
    let text = fixture.check(&["ls"], 0);
    let line = text.lines().find(|line| line.starts_with(&kept)).unwrap();
    assert!(line.contains("13 B") && line.ends_with("keep"), "{text}");
    let lines = fixture.json(&["ls"], 0);
    let line = lines.iter().find(|line| line["blob"] == loose).unwrap();
    assert_eq!((&line["size_bytes"], &line["tags"]), (&json!(14), &json!([])));
    assert!(line["stored_ms"].as_i64().unwrap() > 1_600_000_000_000);

    let stats = &fixture.json(&["stats"], 0)[0];
    assert_eq!(
        (&stats["blobs"], &stats["size_bytes"], &stats["tags"]),
        (&json!(2), &json!(27), &json!(1))
    );
    assert!(fixture.check(&["stats"], 0).contains("2 blobs, 27 B, 1 tags"));

    assert_eq!(fixture.check(&["get", &kept], 0), "kept for long");
    assert_eq!(fixture.check(&["get", &kept, "--range", "5..8"], 0), "for");
    let content = &fixture.json(&["get", &loose], 0)[0];
    assert_eq!(content["media_type"], "application/pdf");
    assert_eq!(content["base64"], "JVBERi0xLjcgbG9vc2U=");
    // A part says where it is from, and nothing of what only the whole tells.
    let part = &fixture.json(&["get", &loose, "--range", "5..14"], 0)[0];
    let expected = json!({"blob": loose, "size_bytes": 14, "from": 5, "base64": "MS43IGxvb3Nl"});
    assert_eq!(*part, expected);
}

#[test]
fn what_is_wrong_is_said_with_a_code() {
    let fixture = Fixture::new();
    let kept = fixture.kept.to_string();
    let missing = format!("blob:blake3:{}", "0".repeat(64));
    assert!(
        fixture
            .check(&["get", &missing], 1)
            .contains("is not in the store")
    );
    assert!(
        fixture
            .check(&["get", &kept, "--range", "5..80"], 2)
            .contains("has 13 bytes")
    );
    assert!(
        fixture
            .check(&["get", &kept, "--range", "8..5"], 2)
            .contains("such as 0..1024")
    );
    assert!(fixture.check(&["get", "picture.png"], 2).contains("picture.png"));
    assert!(
        fixture
            .check(&["gc", "--retention", "soon"], 2)
            .contains("such as 12h")
    );

    let nothing = tempfile::tempdir().unwrap();
    let folder = nothing.path().join("none");
    let refused = |command: &str, message: &str| {
        let Ended { code, told, .. } = ended(program(&["blobs", command, "--blobs"]).arg(&folder));
        assert_eq!(code, Some(2), "{command}");
        assert!(told.contains(message), "{command}: {told}");
    };
    refused("stats", "there is no such folder");
    assert!(!folder.exists(), "to look at a store does not make one");
    // Nor does it in a folder that is there, or take what lies in it for its own.
    std::fs::create_dir_all(folder.join("tmp")).unwrap();
    std::fs::write(folder.join("tmp/precious"), "x").unwrap();
    for command in ["ls", "verify", "gc", "stats"] {
        refused(command, "is not a blob store: it holds `tmp/precious`");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert!(folder.join("tmp/precious").exists());
}

/// What was written by then is not the blob, so it must not end as if all were well.
#[test]
fn a_damaged_blob_is_not_got() {
    for arguments in [&[][..], &["--range", "0..4"], &["--format", "json"]] {
        let fixture = Fixture::new();
        let kept = fixture.kept.to_string();
        std::fs::write(fixture.file(fixture.kept), "kept for wrong").unwrap();
        let told = fixture.check(&[&["get", &kept], arguments].concat(), 1);
        assert!(
            told.contains(&format!("error: blob `{kept}` is damaged")),
            "{told}"
        );
    }
}

#[test]
fn what_is_too_large_for_json_is_got_otherwise() {
    let fixture = Fixture::new();
    let kept = fixture.kept.to_string();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(fixture.file(fixture.kept))
        .unwrap();
    file.set_len((4 << 30) + 1).unwrap();
    let told = fixture.check(&["get", &kept, "--format", "json"], 2);
    assert!(
        told.contains("at most 4.0 GiB") && told.contains("`--range`"),
        "{told}"
    );
}

#[test]
fn a_terminal_is_not_written_to() {
    let fixture = Fixture::new();
    let terminal = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
    pty::grantpt(&terminal).unwrap();
    pty::unlockpt(&terminal).unwrap();
    let name = pty::ptsname(&terminal, Vec::new()).unwrap();
    let screen = std::fs::File::options()
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut command = fixture.command(&["get", &fixture.kept.to_string()]);
    let Ended { code, told, .. } = ended(command.stdout(screen));
    assert_eq!(code, Some(2));
    assert!(told.contains("this is a terminal"), "{told}");
}

#[test]
fn a_tag_is_let_go() {
    let fixture = Fixture::new();
    let (kept, loose) = (fixture.kept.to_string(), fixture.loose.to_string());
    assert!(
        fixture
            .check(&["untag", "kept"], 1)
            .contains("no tag is called `kept`")
    );
    // It is on another.
    let told = fixture.check(&["untag", "keep", &loose], 1);
    assert!(told.contains(&format!("no tag `keep` is on `{loose}`")), "{told}");
    assert!(
        fixture
            .check(&["untag", "no/name"], 2)
            .contains("cannot be the name of a tag")
    );
    let line = &fixture.json(&["untag", "keep", &kept], 0)[0];
    assert_eq!(*line, json!({"name": "keep", "untagged": 1}));
    assert_eq!(fixture.json(&["gc", "--retention", "0"], 0)[0]["removed"], 2);
}

#[test]
fn verify_names_what_is_damaged() {
    let fixture = Fixture::new();
    assert!(
        fixture
            .check(&["verify"], 0)
            .contains("2 blobs (27 B) are what their names say; 0 are not, and 0 could not be read")
    );
    std::fs::write(fixture.file(fixture.loose), "%PDF-1.7 wrong").unwrap();
    let loose = fixture.loose.to_string();
    let report = &fixture.json(&["verify"], 1)[0];
    assert_eq!(report["verified"], 1);
    assert_eq!(report["damaged"][0]["blob"], loose);
    assert_eq!(report["unread"], json!([]));
    // It was set aside, so now it is missing; the other one is still good.
    assert!(
        fixture
            .check(&["verify", &loose], 1)
            .contains("is not in the store")
    );
    assert_eq!(fixture.json(&["stats"], 0)[0]["quarantined"], 1);
    fixture.check(&["verify", &fixture.kept.to_string()], 0);
}

#[test]
fn gc_takes_what_nothing_keeps_and_is_over_its_retention() {
    let fixture = Fixture::new();
    let check = |arguments: &[&str], removed: u64| {
        let report = &fixture.json(&[&["gc"], arguments].concat(), 0)[0];
        assert_eq!(report["removed"], removed, "{arguments:?}: {report}");
    };
    check(&[], 0);
    check(&["--retention", "0", "--dry-run"], 1);

    // Somebody holds it, in another process than the one that collects.
    let store = FsStore::open(&fixture.parent.path().join("blobs"), FsOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let again = runtime
        .block_on(store.put(Bytes::from_static(b"%PDF-1.7 loose")))
        .unwrap();
    assert!(again.existed);
    check(&["--retention", "0"], 0);
    drop(store);

    let text = fixture.check(&["gc", "--retention", "0"], 0);
    assert!(text.contains("2 blobs looked at, 1 removed (14 B)"), "{text}");
    assert_eq!(
        fixture.check(&["get", &fixture.kept.to_string()], 0),
        "kept for long"
    );
}

#[test]
fn gc_refuses_where_the_files_leave_the_retention_open() {
    let fixture = Fixture::new();
    let path = |name: &str| fixture.parent.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    write("short.yaml", "mcp: {servers: [], blobs: {retentionSeconds: 1}}");
    write("long.yaml", "mcp: {servers: [], blobs: {retentionSeconds: 900}}");
    write("bad.yaml", "mcp: {servers: [], blobs: {retentionSeconds: 7d}}");
    write("torn.yaml", "mcp: {servers: [");
    write(
        "elsewhere.yaml",
        "mcp: {servers: [{name: a, command: no-such-program, env: {A: \"${env:NO_SUCH_VARIABLE}\"}}]}",
    );
    let gc = |other: &str, code: i32| {
        let (short, other) = (path("short.yaml"), path(other));
        let orders = [[&short, &other], [&other, &short]];
        let told = orders
            .map(|[first, second]| fixture.check(&["gc", "--config", first, second, "--dry-run"], code));
        told.concat()
    };
    assert!(gc("long.yaml", 3).contains("so nothing is collected by either"));
    assert!(gc("bad.yaml", 3).contains("retentionSeconds"));
    gc("torn.yaml", 3);
    // What only this machine lacks is none of the collector's business.
    gc("elsewhere.yaml", 0);
    let (short, long) = (path("short.yaml"), path("long.yaml"));
    let stated = ["gc", "--config", &short, &long, "--retention", "1h", "--dry-run"];
    fixture.check(&stated, 0);
}
