//! Memory is told of the whole process, so the one test that looks at it has a process of its own.
#![cfg(target_os = "linux")]

use portcullis_blobs::MemStore;
use portcullis_router::{ShapeOptions, shape};

const REPLY_BYTES: usize = 4 << 20;

/// A few copies of the reply are made, and nothing many times as large as a block, or a member, for each of them.
#[tokio::test]
async fn a_reply_of_a_million_parts_takes_little_more_memory_than_its_text() {
    let memory_kib = |field: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib
    };
    for (before, part, after) in [
        (r#"{"content":["#, "1", "]}"),
        (r#"{"content":["#, r#"{"type":"text"}"#, "]}"),
        (r#"{"content":[{"type":"text","#, r#""":0"#, "}]}"),
        (
            r#"{"content":[{"type":"resource","resource":{"blob":"","#,
            r#""":0"#,
            "}}]}",
        ),
        ("{", r#""":0"#, "}"),
        (
            r#"{"content":[{"type":"image","data":"QUJDREVG"}],"structuredContent":["#,
            r#""QUJDREVG""#,
            "]}",
        ),
        (
            r#"{"content":[{"type":"image","data":"QUJDREVG"},{"type":"text","text":""#,
            "data:;base64,QUJDREVG ",
            r#""}]}"#,
        ),
    ] {
        let parts = format!("{part},").repeat(REPLY_BYTES / (part.len() + 1));
        let raw = format!("{before}{parts}{part}{after}");
        let at_first = memory_kib("VmRSS:");
        let store = MemStore::default();
        let shaped = shape(&raw, &store, &ShapeOptions::default()).await.unwrap();
        assert!(shaped.spilled && shaped.size_bytes >= raw.len());
        let grew = memory_kib("VmHWM:").saturating_sub(at_first) * 1024 / raw.len();
        assert!(grew < 8, "`{before}{part}`: {grew} times the reply");
    }
}
