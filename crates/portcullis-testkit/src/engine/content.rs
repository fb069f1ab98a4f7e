//! Results of calls (MCP, section "Tool Result").

use serde_json::{Map, Value, json};

use crate::{base64, pseudo_random};

/// The members of a result.
pub(super) type Members = Map<String, Value>;

pub(super) fn text(text: &str) -> Members {
    blocks(vec![text_block(text)])
}

pub(super) fn failure(message: &str) -> Members {
    let mut members = text(message);
    members.insert("isError".to_owned(), true.into());
    members
}

pub(super) fn blocks(blocks: Vec<Value>) -> Members {
    Members::from_iter([("content".to_owned(), blocks.into())])
}

pub(super) fn structured(value: &Value) -> Members {
    let mut members = text(&value.to_string());
    members.insert("structuredContent".to_owned(), value.clone());
    members
}

pub(super) fn image(bytes: u64, seed: u64, media_type: &str) -> Members {
    blocks(vec![
        json!({"type": "image", "data": encoded(media_type, bytes, seed), "mimeType": media_type}),
    ])
}

pub(super) fn audio(bytes: u64, seed: u64) -> Members {
    let media_type = "audio/wav";
    blocks(vec![
        json!({"type": "audio", "data": encoded(media_type, bytes, seed), "mimeType": media_type}),
    ])
}

pub(super) fn embedded_blob(bytes: u64, seed: u64) -> Members {
    let media_type = "application/octet-stream";
    let blob = encoded(media_type, bytes, seed);
    let resource = json!({"uri": format!("scripted://blob/{seed}"), "mimeType": media_type, "blob": blob});
    blocks(vec![json!({"type": "resource", "resource": resource})])
}

pub(super) fn twin(bytes: u64, seed: u64) -> Members {
    let media_type = "image/png";
    let data = encoded(media_type, bytes, seed);
    let mut members = blocks(vec![
        json!({"type": "image", "data": data, "mimeType": media_type}),
    ]);
    let value = json!({"image": {"data": data, "mimeType": media_type}});
    members.insert("structuredContent".to_owned(), value);
    members
}

pub(super) fn unknown_block() -> Members {
    blocks(vec![
        text_block("before"),
        json!({"type": "resource_link", "uri": "scripted://notes/1", "name": "a note"}),
        json!({"type": "video", "uri": "scripted://film/1", "frames": 24}),
        text_block("after"),
    ])
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn encoded(media_type: &str, bytes: u64, seed: u64) -> String {
    base64(&pseudo_random(
        media_type,
        usize::try_from(bytes).unwrap_or(usize::MAX),
        seed,
    ))
}
