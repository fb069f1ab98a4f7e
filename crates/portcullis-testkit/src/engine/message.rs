//! Messages, as far as a server must understand them: ids and parameters stay raw text.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

/// Whatever the client sends: a request, a notification, or the answer to a request of ours.
#[derive(Deserialize)]
#[serde(expecting = "a JSON-RPC message, which is an object")]
pub(super) struct Incoming<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl<'a> Incoming<'a> {
    /// Reads one line; the error says what is wrong with it.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, String> {
        // The parser would take an array for the members in their order; batches are gone since 2025-06-18.
        if line.trim_ascii_start().starts_with(b"[") {
            return Err("an array".to_owned());
        }
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }

    /// The raw answer to a request of ours, as the text of a JSON object with `result` or `error`.
    pub(super) fn answer(&self) -> String {
        match (self.result, self.error) {
            (_, Some(error)) => format!(r#"{{"error":{error}}}"#),
            (Some(result), None) => format!(r#"{{"result":{result}}}"#),
            (None, None) => "{}".to_owned(),
        }
    }

    /// The raw `requestId` of a cancellation.
    pub(super) fn request_id(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        serde_json::from_str::<Cancelled<'_>>(self.params?.get())
            .ok()
            .map(|params| params.request_id.get())
    }
}

/// A request, with the parts of its parameters that any method may have.
pub(super) struct Request<'a> {
    /// The raw id.
    pub(super) id: &'a str,
    pub(super) method: &'a str,
    pub(super) params: Params<'a>,
    /// What `_meta` says of the request's revision (MCP 2026-07-28, section "Per-request metadata").
    pub(super) meta_version: Option<String>,
    /// The raw progress token.
    pub(super) progress_token: Option<&'a str>,
}

/// The parameters of those methods that a server knows, all of them optional here.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Params<'a> {
    pub(super) name: Option<String>,
    pub(super) cursor: Option<String>,
    pub(super) protocol_version: Option<String>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input_responses: Option<&'a RawValue>,
    pub(super) notifications: Option<Value>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

impl<'a> Request<'a> {
    /// Parameters that do not fit are taken as none at all: each method then refuses what it misses.
    pub(super) fn new(id: &'a str, method: &'a str, params: Option<&'a RawValue>) -> Self {
        let mut params: Params<'_> = params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        let meta = params.meta.take().unwrap_or_default();
        Self {
            id,
            method,
            params,
            meta_version: meta.version,
            progress_token: meta.progress_token.map(RawValue::get),
        }
    }
}

/// A reply with this raw result.
pub(super) fn result_frame(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// An error reply.
pub(super) fn error_frame(id: &str, code: i64, message: &str, data: Option<Value>) -> String {
    let mut error = json!({"code": code, "message": message});
    if let (Some(data), Some(members)) = (data, error.as_object_mut()) {
        members.insert("data".to_owned(), data);
    }
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}
