use portcullis_wire::{Decoder, Frame, Id, Limits};
use rmcp::model::{
    ClientJsonRpcMessage, CustomResult, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage, ServerResult,
};
use serde_json::Value;

use super::outstanding::{Outstanding, Waiting};
use crate::ticket::WireFault;

/// The frames of one body or one event's data. A message may stand on several lines here, as it may not on stdio.
pub(crate) fn frames(data: &[u8]) -> Vec<Frame> {
    let mut decoder = Decoder::new(Limits::default());
    if data.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        decoder.feed(&on_one_line(data));
    } else {
        decoder.feed(data);
    }
    decoder.finish();
    std::iter::from_fn(|| decoder.next_frame()).collect()
}

/// Newlines between tokens become spaces. One inside a string is an error in JSON, and stays for the wire layer to
/// report.
fn on_one_line(data: &[u8]) -> Vec<u8> {
    let (mut in_string, mut escaped) = (false, false);
    let flatten = |byte: &u8| {
        let byte = *byte;
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'\n' | b'\r' if !in_string => return b' ',
            _ => {}
        }
        byte
    };
    data.iter().map(flatten).collect()
}

/// A frame as the message that the SDK is to see, or as the answer to it; `None` where there is nothing to see.
///
/// `asked` is the request that the frame came in answer to, where that is known: a reply that names no request, or
/// one that nobody waits for, can only be its.
pub(crate) fn translate(
    frame: Frame,
    outstanding: &Outstanding,
    asked: Option<&RequestId>,
) -> Option<Translated> {
    let up = match frame {
        Frame::Response { id, result } => match outstanding.claim(&id) {
            Some((id, waiting)) => {
                if waiting.lists_tools {
                    outstanding.params.note(&result);
                }
                Some(result_message(id, &waiting, result))
            }
            None => {
                let reason = format!("the reply is for the id `{id}`, which no request has");
                fail(outstanding, None, asked, &reason)
            }
        },
        Frame::Error { id, error } => {
            let claimed = match id {
                Some(id) => outstanding.claim(&id),
                None => None,
            };
            let (id, _) = claimed.or_else(|| outstanding.take(asked?))?;
            let data = error.data.and_then(|data| serde_json::from_str(&data).ok());
            let code = i32::try_from(error.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
            Some(ServerJsonRpcMessage::error(
                ErrorData::new(ErrorCode(code), error.message, data),
                Some(id),
            ))
        }
        Frame::Unusable { id, reason } => {
            let claimed = id.and_then(|id| outstanding.claim(&id));
            fail(outstanding, claimed, asked, &reason.to_string())
        }
        Frame::Overlong { limit } => fail(
            outstanding,
            None,
            asked,
            &format!("the reply is longer than {limit} bytes"),
        ),
        Frame::Request { id, method, message } => match serde_json::from_str(&message) {
            Ok(message) => Some(message),
            Err(error) => return Some(Translated::Back(refusal(id, &method, &error))),
        },
        Frame::Notification { method, message } => match serde_json::from_str(&message) {
            Ok(message) => Some(message),
            Err(error) => {
                tracing::debug!(%method, %error, "dropped a notification that does not parse");
                None
            }
        },
        Frame::Noise { text } => {
            tracing::debug!(%text, "dropped data that are not JSON-RPC");
            None
        }
    };
    up.map(Translated::Up)
}

/// What becomes of a frame.
pub(crate) enum Translated {
    /// The SDK is to see it.
    Up(ServerJsonRpcMessage),
    /// The server is to be told this.
    Back(ClientJsonRpcMessage),
}

impl Translated {
    /// What the SDK is to see.
    pub(crate) fn up(self) -> Option<ServerJsonRpcMessage> {
        match self {
            Self::Up(message) => Some(message),
            Self::Back(_) => None,
        }
    }
}

/// The answer to a request of the server's that the SDK's types cannot hold.
fn refusal(id: Id, method: &str, error: &serde_json::Error) -> ClientJsonRpcMessage {
    tracing::debug!(%method, %error, "refused a request that does not parse");
    let id = match id {
        Id::Number(number) => RequestId::Number(number),
        Id::String(text) => RequestId::String(text.into()),
    };
    let error = ErrorData::new(
        ErrorCode::INVALID_PARAMS,
        format!("`{method}` does not parse: {error}"),
        None,
    );
    ClientJsonRpcMessage::error(error, Some(id))
}

/// Ends a request with an error that says what was wrong with its reply.
pub(crate) fn fail(
    outstanding: &Outstanding,
    claimed: Option<(RequestId, Waiting)>,
    asked: Option<&RequestId>,
    reason: &str,
) -> Option<ServerJsonRpcMessage> {
    let Some((id, waiting)) = claimed.or_else(|| outstanding.take(asked?)) else {
        tracing::debug!(%reason, "dropped a reply that nobody waits for");
        return None;
    };
    if let Some(ticket) = waiting.ticket {
        ticket.fail(WireFault::Unusable(reason.to_owned()));
    }
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, reason.to_owned(), None);
    Some(ServerJsonRpcMessage::error(error, Some(id)))
}

fn result_message(id: RequestId, waiting: &Waiting, result: Box<str>) -> ServerJsonRpcMessage {
    if waiting.raw_result {
        let raw = ServerResult::CustomResult(CustomResult(Value::String(result.into())));
        return ServerJsonRpcMessage::response(raw, id);
    }
    match serde_json::from_str::<ServerResult>(&result) {
        Ok(result) => ServerJsonRpcMessage::response(result, id),
        Err(error) => {
            let error = ErrorData::new(
                ErrorCode::PARSE_ERROR,
                format!("the result is not valid: {error}"),
                None,
            );
            ServerJsonRpcMessage::error(error, Some(id))
        }
    }
}
