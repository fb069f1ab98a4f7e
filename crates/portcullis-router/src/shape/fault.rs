//! Errors that a server answers with: no more of them is handed on than of a result.

use portcullis_supervisor::{CallFault, RawReply};
use portcullis_types::ServerId;

use super::{json::ObjectWriter, work::Shaping};

/// How much of an error that is too large is shown, in characters.
const SHOWN_CHARS: usize = 400;

impl Shaping {
    /// The same fault, where it is no error of the server's or one that is not larger than a reply may be. A larger one goes
    /// where such replies go, and its message says where that is, or why it is nowhere.
    pub(crate) async fn fault(&self, server: &ServerId, fault: CallFault) -> CallFault {
        let CallFault::Rpc { code, message, data } = fault else {
            return fault;
        };
        let size_bytes = message.len() + data.as_ref().map_or(0, String::len);
        let limit_bytes = self.options().max_reply_bytes;
        if size_bytes <= limit_bytes {
            return CallFault::Rpc { code, message, data };
        }
        let mut error = ObjectWriter::new();
        error.member("code", &code.to_string());
        error.text_member("message", &message);
        if let Some(data) = &data {
            error.member("data", data);
        }
        let mut reply = ObjectWriter::new();
        reply.member("error", &error.finish());
        let reply = RawReply {
            json: reply.finish(),
            strings: Vec::new(),
        };
        let what_became_of_it = match self.shape(server, reply).await.map(|shaped| shaped.blobs) {
            Ok(blobs) => match blobs.last() {
                Some(info) => format!("so it was stored whole as {}", info.blob),
                None => "and was left out".to_owned(),
            },
            Err(why) => format!("and was left out: {why}"),
        };
        let shown: String = message.chars().take(SHOWN_CHARS).collect();
        let mark = if shown.len() < message.len() { "…" } else { "" };
        CallFault::Rpc {
            code,
            message: format!(
                "{shown}{mark} (the error has {size_bytes} bytes, above the limit of {limit_bytes}, {what_became_of_it})"
            ),
            data: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portcullis_blobs::{BlobRef, BlobStore, MemStore};
    use serde_json::{Value, json};

    use super::*;
    use crate::shape::{Oversize, ShapeOptions};

    fn error(message: &str, data: Option<&str>) -> CallFault {
        CallFault::Rpc {
            code: -7,
            message: message.to_owned(),
            data: data.map(str::to_owned),
        }
    }

    /// The message and the data that a fault has then, with `oversize` for what has more than 1,000 bytes.
    async fn told(
        store: &Arc<dyn BlobStore>,
        oversize: Oversize,
        fault: CallFault,
    ) -> (String, Option<String>) {
        let server: ServerId = "s".parse().unwrap();
        let options = ShapeOptions {
            max_reply_bytes: 1_000,
            oversize,
            ..ShapeOptions::default()
        };
        let shaping = Shaping::new([server.clone()].iter(), Arc::clone(store), options, None);
        match shaping.fault(&server, fault).await {
            CallFault::Rpc {
                code: -7,
                message,
                data,
            } => (message, data),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_error_is_handed_on_stored_whole_or_left_out() {
        let store: Arc<dyn BlobStore> = Arc::new(MemStore::default());
        let small = ("m".repeat(500), Some(format!("\"{}\"", "d".repeat(498))));
        for oversize in [Oversize::Spill, Oversize::Reject] {
            let fault = error(&small.0, small.1.as_deref());
            assert_eq!(told(&store, oversize, fault).await, small);
        }
        let (message, data) = ("é".repeat(600), r#"{"n":1.10}"#);
        let shown = format!(
            "{}… (the error has 1210 bytes, above the limit of 1000, ",
            "é".repeat(SHOWN_CHARS)
        );
        let (left_out, none) = told(&store, Oversize::Reject, error(&message, Some(data))).await;
        assert!(
            left_out.starts_with(&format!("{shown}and was left out: ")) && none.is_none(),
            "{left_out}"
        );
        let (stored, none) = told(&store, Oversize::Spill, error(&message, Some(data))).await;
        let blob = stored.strip_prefix(&format!("{shown}so it was stored whole as "));
        let blob: BlobRef = blob.unwrap().trim_end_matches(')').parse().unwrap();
        let content = store.get(blob).await.unwrap();
        assert!(
            str::from_utf8(&content).unwrap().contains("1.10"),
            "to the letter"
        );
        let whole: Value = serde_json::from_slice(&content).unwrap();
        assert_eq!(whole["error"]["message"], json!(message));
        assert_eq!((&whole["error"]["code"], none), (&json!(-7), None));
    }

    /// What a result may not carry in its text does not come by way of an error.
    #[tokio::test]
    async fn any_other_fault_stays() {
        let store: Arc<dyn BlobStore> = Arc::new(MemStore::default());
        let server: ServerId = "s".parse().unwrap();
        let shaping = Shaping::new([server.clone()].iter(), store, ShapeOptions::default(), None);
        let fault = CallFault::BadReply {
            reason: "x".repeat(100_000),
        };
        assert_eq!(shaping.fault(&server, fault.clone()).await, fault);
    }
}
