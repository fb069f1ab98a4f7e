use serde::Deserialize;
use serde_json::value::RawValue;

use super::{envelope::Envelope, nesting};
use crate::{
    Frame, Id, Unusable, WireError,
    excerpt::{REASON_CHARS, excerpt},
    id::{IdValue, whole_number},
};

/// serde_json reads 127 levels, and a request is read whole by whoever serves it.
const MAX_REQUEST_DEPTH: usize = 127;

/// What the JSON object `text`, whose members are `envelope`, is in JSON-RPC; `None` where it is something else.
pub(super) fn classify(envelope: &Envelope<'_>, text: &str, max_depth: usize) -> Option<Frame> {
    if envelope.result.is_some() || envelope.error.is_some() {
        reply(envelope, text, max_depth)
    } else if envelope.method.is_some() {
        request(envelope, text, max_depth)
    } else {
        let id = envelope.jsonrpc.and(envelope.id)?;
        let id = IdValue::read(id.get()).usable().cloned();
        Some(Frame::Unusable {
            id,
            reason: Unusable::NoResultNorError,
        })
    }
}

fn reply(envelope: &Envelope<'_>, text: &str, max_depth: usize) -> Option<Frame> {
    let id = envelope.id.map(|raw| IdValue::read(raw.get()));
    let usable = id.as_ref().and_then(IdValue::usable).cloned();
    if envelope.jsonrpc.is_none() {
        // A log line has an id and an error too. A reply without the mark is one only if it is nothing but a reply.
        let more = envelope.others || envelope.method.is_some() || envelope.params.is_some();
        if more || usable.is_none() {
            return None;
        }
    }
    let outcome = outcome(envelope, id.as_ref(), text, max_depth);
    Some(match (outcome, usable) {
        (Ok(Outcome::Result(result)), Some(id)) => Frame::Response {
            id,
            result: result.get().into(),
        },
        (Ok(Outcome::Result(_)), None) => Frame::Unusable {
            id: None,
            reason: no_id(envelope, id.as_ref()),
        },
        (Ok(Outcome::Error(error)), id) => Frame::Error { id, error },
        // With two ids, either may be the wrong one to blame.
        (Err(reason @ Unusable::Duplicate { member: "id" }), _) => Frame::Unusable { id: None, reason },
        (Err(reason), id) => Frame::Unusable { id, reason },
    })
}

enum Outcome<'a> {
    Result(&'a RawValue),
    Error(WireError),
}

fn outcome<'a>(
    envelope: &Envelope<'a>,
    id: Option<&IdValue>,
    text: &str,
    max_depth: usize,
) -> Result<Outcome<'a>, Unusable> {
    if let Some(member) = envelope.duplicate {
        return Err(Unusable::Duplicate { member });
    }
    if envelope.method.is_some() {
        return Err(Unusable::MethodInReply);
    }
    if id == Some(&IdValue::Bad) {
        return Err(no_id(envelope, id));
    }
    if nesting::exceeds(text, max_depth) {
        return Err(Unusable::TooDeep { limit: max_depth });
    }
    // JSON-RPC 1.0 wrote both members, one of them null: nothing is lost by leaving that one out.
    let is_null = |raw: &&RawValue| raw.get() == "null";
    match (envelope.result, envelope.error.filter(|raw| !is_null(raw))) {
        (Some(result), Some(_)) if !is_null(&result) => Err(Unusable::ResultAndError),
        (_, Some(error)) => wire_error(error).map(Outcome::Error),
        (Some(result), None) => Ok(Outcome::Result(result)),
        (None, None) => Err(Unusable::NoResultNorError),
    }
}

fn no_id(envelope: &Envelope<'_>, id: Option<&IdValue>) -> Unusable {
    match (id, envelope.id) {
        (Some(IdValue::Null), _) => Unusable::NullId,
        (_, Some(raw)) => Unusable::BadId { id: short(raw.get()) },
        (_, None) => Unusable::NoId,
    }
}

#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

fn wire_error(raw: &RawValue) -> Result<WireError, Unusable> {
    let refuse = || Unusable::BadError {
        error: short(raw.get()),
    };
    // An array would be read as the members in order.
    let object = raw.get().starts_with('{');
    let body: ErrorBody<'_> = serde_json::from_str(raw.get())
        .ok()
        .filter(|_| object)
        .ok_or_else(refuse)?;
    let message = body.message.map(|raw| text_of(raw.get())).unwrap_or_default();
    let code = body.code.map(RawValue::get);
    match code.and_then(|raw| whole_number(raw.trim_matches('"'))) {
        Some(code) => Ok(WireError {
            code,
            message,
            data: body.data.map(|raw| raw.get().into()),
        }),
        None => Err(Unusable::BadErrorCode {
            code: code.map(short),
            message: short(&message),
        }),
    }
}

/// The string that `raw` writes; the raw text where it is no string or has a lone surrogate.
fn text_of(raw: &str) -> String {
    serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned())
}

fn request(envelope: &Envelope<'_>, text: &str, max_depth: usize) -> Option<Frame> {
    let raw = envelope.method?.get();
    let method: Result<String, _> = serde_json::from_str(raw);
    let is_named = |like: fn(&str) -> bool| method.as_deref().is_ok_and(like);
    // A log line has a method too (`GET`). Without the mark, only what looks like MCP's own is taken.
    let looks_like_mcp = is_named(|method| method == "ping" || method.contains('/'));
    if envelope.jsonrpc.is_none() && (envelope.others || !looks_like_mcp) {
        return None;
    }
    let id = match envelope.id.map(|raw| IdValue::read(raw.get())) {
        None => None,
        Some(IdValue::Usable(id)) => Some(id),
        // Some servers write every member of a notification.
        Some(IdValue::Null) if is_named(|method| method.starts_with("notifications/")) => None,
        Some(IdValue::Null | IdValue::Bad) => return None,
    };
    let limit = max_depth.min(MAX_REQUEST_DEPTH);
    let reason = match (envelope.duplicate, method) {
        // Of two ids, either may be the one that is waited with.
        (Some("id"), _) => return None,
        (Some(member), _) => Unusable::Duplicate { member },
        (None, Err(_)) => Unusable::BadMethod { method: short(raw) },
        (None, Ok(_)) if nesting::exceeds(text, limit) => Unusable::TooDeep { limit },
        (None, Ok(method)) => {
            let message = whole_message(envelope, id.as_ref(), text);
            return Some(match id {
                Some(id) => Frame::Request { id, method, message },
                None => Frame::Notification { method, message },
            });
        }
    };
    // Without an id nobody waits for an answer.
    Some(Frame::BadRequest { id: id?, reason })
}

/// `text` where its envelope is as JSON-RPC wants it; else the message written anew from its members.
fn whole_message(envelope: &Envelope<'_>, id: Option<&Id>, text: &str) -> Box<str> {
    let id = id.map(ToString::to_string);
    let same_id = match (envelope.id.map(RawValue::get), &id) {
        (None, None) => true,
        (Some(raw), Some(id)) => raw == id || raw.starts_with('"'),
        _ => false,
    };
    if same_id && envelope.jsonrpc.is_some_and(|raw| raw.get() == "\"2.0\"") {
        return text.into();
    }
    let mut message = String::from("{\"jsonrpc\":\"2.0\"");
    let members = [
        ("id", id.as_deref()),
        ("method", envelope.method.map(RawValue::get)),
        ("params", envelope.params.map(RawValue::get)),
    ];
    for (name, raw) in members {
        if let Some(raw) = raw {
            message.extend([",\"", name, "\":", raw]);
        }
    }
    message.push('}');
    message.into()
}

fn short(text: &str) -> String {
    excerpt(text.as_bytes(), REASON_CHARS)
}
