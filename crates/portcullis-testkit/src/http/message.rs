use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::script::MAX_LINE_BYTES;

/// The most that the head of a request may take, in bytes.
const MAX_HEAD_BYTES: u64 = 64 * 1024;

/// What of a request's head is heeded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) session: Option<String>,
    /// The connection ends after this request.
    pub(super) close: bool,
    length: u64,
}

/// What of a JSON-RPC message is heeded.
#[derive(Debug, Deserialize)]
pub(super) struct JsonRpc {
    #[serde(default)]
    pub(super) id: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) method: Option<String>,
}

/// The next request and its body; none at the end of the connection.
pub(super) fn read_request(reader: &mut impl BufRead) -> io::Result<Option<(Head, Vec<u8>)>> {
    let mut head = Head::default();
    let mut limited = reader.by_ref().take(MAX_HEAD_BYTES);
    let mut first = true;
    loop {
        let mut line = String::new();
        if limited.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if first {
            head.method = line.split(' ').next().unwrap_or_default().to_owned();
            first = false;
        } else if line.is_empty() {
            break;
        } else if let Some((name, value)) = line.split_once(':') {
            head.field(&name.to_ascii_lowercase(), value.trim());
        }
    }
    if head.length > MAX_LINE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = Vec::new();
    reader.by_ref().take(head.length).read_to_end(&mut body)?;
    Ok(Some((head, body)))
}

impl Head {
    fn field(&mut self, name: &str, value: &str) {
        match name {
            "content-length" => self.length = value.parse().unwrap_or(u64::MAX),
            "mcp-session-id" => self.session = Some(value.to_owned()),
            "connection" => self.close = value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
}
