//! What frames become. None of their text is in the log: it may hold what the server was given.

use std::borrow::Cow;

use portcullis_wire::{Decoder, Frame, Id, Limits, MAX_MESSAGES_PER_LINE};
use rmcp::model::{
    ClientJsonRpcMessage, CustomResult, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage, ServerResult,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    messages::{Message, OnOneLine},
    outstanding::{OnItsWay, Outstanding, Waiting},
};
use crate::{
    said::excerpt,
    service::{invalid, is_heeded, unreadable},
    strings::{PUT_BACK, put_back},
    ticket::WireFault,
    transport::{Restored, restore},
};

/// The errors in a body that lies in memory, no more than one line may have messages. One is read after the other, and
/// whatever else the body holds is dropped as it is read: of noise there may be a frame for every other byte.
pub(crate) fn errors(data: &[u8]) -> impl Iterator<Item = Frame> + use<> {
    let mut decoder = Decoder::new(Limits::default());
    decoder.feed(&OnOneLine::default().flat(data));
    decoder.finish();
    std::iter::from_fn(move || decoder.next_frame())
        .filter(|frame| matches!(frame, Frame::Error { .. }))
        .take(MAX_MESSAGES_PER_LINE)
}

/// As [`translate`]. The long strings of a call's result go beside it; every other message gets its own back before.
pub(crate) async fn translate_message(
    (frame, strings): Message,
    outstanding: &Outstanding,
) -> Option<Translated> {
    if strings.is_empty() {
        return translate(frame, outstanding);
    }
    if let Frame::Response { id, result } = frame {
        // Claimed first: the same id may be answered on another stream at the same time, and whoever brings strings is
        // whoever brings the result.
        let Some((asked, waiting, on_its_way)) = outstanding.claim(&id) else {
            return unclaimed(&id, outstanding);
        };
        let reply = match &waiting.ticket {
            Some(ticket) => {
                ticket.bring(strings);
                result_message(asked, &waiting, result)
            }
            None => match put_back(result.into(), strings, Instant::now() + PUT_BACK).await {
                Ok(result) => result_message(asked, &waiting, result.into()),
                Err(why) => Stray::unusable(why).blame((asked, waiting)),
            },
        };
        return Some(Translated::Up(reply, Some(on_its_way)));
    }
    match restore(frame, strings).await {
        Restored::Frame(frame) => translate(frame, outstanding),
        Restored::BadReply { id, why } => unusable(outstanding, id.as_ref(), why),
        Restored::BadRequest { id, method, why } => {
            Some(Translated::Back(refusal(id, unreadable(&method, &why))))
        }
        Restored::BadNotification { .. } => {
            tracing::debug!("dropped a notification with long strings");
            None
        }
    }
}

/// A frame as the message that the SDK is to see, or as the answer to it; `None` where there is nothing to see.
pub(crate) fn translate(frame: Frame, outstanding: &Outstanding) -> Option<Translated> {
    match frame {
        Frame::Response { id, result } => match outstanding.claim(&id) {
            Some((id, waiting, on_its_way)) => Some(Translated::Up(
                result_message(id, &waiting, result),
                Some(on_its_way),
            )),
            None => unclaimed(&id, outstanding),
        },
        Frame::Error { id, error } => {
            let data = error.data.and_then(|data| serde_json::from_str(&data).ok());
            let code = i32::try_from(error.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
            let error = ErrorData::new(ErrorCode(code), error.message, data);
            match id.as_ref().and_then(|id| outstanding.claim(id)) {
                Some((id, _, on_its_way)) => Some(Translated::Up(
                    ServerJsonRpcMessage::error(error, Some(id)),
                    Some(on_its_way),
                )),
                None => stray(
                    outstanding,
                    id.as_ref(),
                    Stray {
                        error,
                        unusable: false,
                    },
                ),
            }
        }
        Frame::Unusable { id, reason } => unusable(outstanding, id.as_ref(), reason.to_string()),
        Frame::Overlong { limit } => {
            let reason = format!("the reply is longer than {limit} bytes");
            stray(outstanding, None, Stray::unusable(reason))
        }
        Frame::Request { id, method, message } => Some(match serde_json::from_str(&message) {
            Ok(message) => Translated::Up(message, None),
            Err(error) => Translated::Back(refusal(id, unreadable(&method, &error))),
        }),
        Frame::BadRequest { id, reason } => Some(Translated::Back(refusal(id, invalid(&reason)))),
        Frame::Notification { method, .. } if !is_heeded(&method) => {
            outstanding.counters.unheeded();
            None
        }
        Frame::Notification { method, message } => match serde_json::from_str(&message) {
            Ok(message) => Some(Translated::Up(message, None)),
            Err(_) => {
                tracing::debug!(%method, "dropped a notification that does not parse");
                None
            }
        },
        Frame::Noise { text } => {
            tracing::debug!(bytes = text.len(), "dropped data that are not JSON-RPC");
            None
        }
    }
}

/// What becomes of a frame.
pub(crate) enum Translated {
    /// The SDK is to see it. Where it is a reply, what comes with it is held until the SDK has it.
    Up(ServerJsonRpcMessage, Option<OnItsWay>),
    /// The server is to be told this.
    Back(ClientJsonRpcMessage),
    /// It is a reply to nobody who waits. Whom it may be blamed on is for the reader of the stream to say: on the
    /// request that the stream answers, once no reply of its own can come, or at once where no other request waits.
    Stray(Stray),
}

/// A reply that names no request that waits, and none that is over.
pub(crate) struct Stray {
    error: ErrorData,
    /// It is the reply that is wrong; otherwise it is the server's error, and only its id is.
    unusable: bool,
}

impl Stray {
    pub(crate) fn unusable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            error: ErrorData::new(ErrorCode::INTERNAL_ERROR, reason, None),
            unusable: true,
        }
    }

    /// The end of a request whose reply this must have been.
    pub(crate) fn blame(self, (id, waiting): (RequestId, Waiting)) -> ServerJsonRpcMessage {
        if let (Some(ticket), true) = (waiting.ticket, self.unusable) {
            ticket.fail(WireFault::Unusable(self.error.message.to_string()));
        }
        ServerJsonRpcMessage::error(self.error, Some(id))
    }
}

/// A result for nobody who waits.
fn unclaimed(id: &Id, outstanding: &Outstanding) -> Option<Translated> {
    let id_shown = excerpt(&id.to_string());
    let reason = format!("the reply is for the id `{id_shown}`, which no request has");
    stray(outstanding, Some(id), Stray::unusable(reason))
}

/// A reply that cannot be used.
fn unusable(outstanding: &Outstanding, id: Option<&Id>, reason: String) -> Option<Translated> {
    let reply = Stray::unusable(reason);
    match id.and_then(|id| outstanding.claim(id)) {
        Some((id, waiting, on_its_way)) => {
            outstanding.counters.unusable();
            Some(Translated::Up(reply.blame((id, waiting)), Some(on_its_way)))
        }
        None => stray(outstanding, id, reply),
    }
}

/// A reply that nobody waits for: a late one is dropped, and any other kept for whoever knows more.
fn stray(outstanding: &Outstanding, id: Option<&Id>, reply: Stray) -> Option<Translated> {
    if id.is_some_and(|id| outstanding.is_over(id)) {
        outstanding.counters.unclaimed();
        tracing::debug!("dropped a reply to a request that is over");
        return None;
    }
    Some(Translated::Stray(reply))
}

/// The answer to a request of the server's that the SDK's types cannot hold.
fn refusal(id: Id, error: ErrorData) -> ClientJsonRpcMessage {
    tracing::debug!(code = error.code.0, "refused a request that does not parse");
    let id = match id {
        Id::Number(number) => RequestId::Number(number),
        Id::String(text) => RequestId::String(text.into()),
    };
    ClientJsonRpcMessage::error(error, Some(id))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{counters::WireCounts, http::messages::Messages, tests::logged, transport::Strings};

    #[test]
    fn of_errors_there_are_so_many_and_all_else_is_dropped() {
        let noise = "\nx".repeat(100_000);
        let error = "\n{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-1,\"message\":\"m\"}}";
        for (count, found) in [(0, 0), (1, 1), (3_000, MAX_MESSAGES_PER_LINE)] {
            let body = format!("\"{noise}{}{noise}", error.repeat(count));
            let errors: Vec<_> = errors(body.as_bytes()).collect();
            assert_eq!(errors.len(), found);
            assert!(errors.iter().all(|frame| matches!(frame, Frame::Error { .. })));
        }
    }

    #[test]
    fn a_request_that_cannot_be_read_whole_is_refused_by_its_id() {
        let frame = Frame::BadRequest {
            id: Id::Number(5),
            reason: portcullis_wire::Unusable::TooDeep { limit: 127 },
        };
        let Some(Translated::Back(ClientJsonRpcMessage::Error(refusal))) =
            translate(frame, &Outstanding::default())
        else {
            panic!("it is answered")
        };
        assert_eq!(refusal.id, Some(RequestId::Number(5)));
        assert!(
            refusal.error.message.contains("nested deeper than 127"),
            "{refusal:?}"
        );
    }

    /// It may be what the server was given.
    #[tokio::test]
    async fn nothing_that_a_server_says_is_logged() {
        let (logging, mut lines) = logged();
        let all = Outstanding::default();
        let ping = rmcp::model::ClientRequest::PingRequest(Default::default());
        all.note(&ClientJsonRpcMessage::request(ping, RequestId::Number(5)));
        all.forget(&RequestId::Number(5));
        let said = [
            "s3cret-canary",
            r#"{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"s3cret-canary"}}"#,
            r#"{"jsonrpc":"2.0","id":6,"method":"s3cret-canary","params":7}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":"s3cret-canary"}"#,
        ];
        for said in said {
            let mut messages = Messages::new(1_000, None, &Strings::room());
            messages.read(said.as_bytes()).await.unwrap();
            for message in messages.finish() {
                translate_message(message, &all).await;
            }
            let line = lines.try_recv().expect(said);
            assert!(!line.contains("canary"), "{line}");
        }
        let text = "s3cret-canary".to_owned();
        translate(Frame::Noise { text }, &all);
        assert!(!lines.try_recv().unwrap().contains("canary"));
        drop(logging);
    }

    #[test]
    fn what_is_dropped_is_counted() {
        let all = Outstanding::default();
        let ping = rmcp::model::ClientRequest::PingRequest(Default::default());
        let request = ClientJsonRpcMessage::request(ping, RequestId::Number(5));
        let reply = |id| Frame::Response {
            id: Id::Number(id),
            result: "{}".into(),
        };
        all.note(&request);
        assert!(translate(reply(5), &all).is_some());
        assert_eq!(all.counters.counts(), WireCounts::default());
        // It comes again, late.
        assert!(translate(reply(5), &all).is_none());
        all.note(&request);
        let reason = portcullis_wire::Unusable::NoId;
        let id = Some(Id::Number(5));
        assert!(translate(Frame::Unusable { id, reason }, &all).is_some());
        let made_up = Frame::Notification {
            method: "notifications/made_up".to_owned(),
            message: r#"{"jsonrpc":"2.0","method":"notifications/made_up"}"#.into(),
        };
        assert!(translate(made_up, &all).is_none());
        let counted = WireCounts {
            noise: 0,
            unclaimed: 1,
            unheeded: 1,
            unusable: 1,
        };
        assert_eq!(all.counters.counts(), counted);
    }
}
