//! Messages that are no call's result, and get their long strings back before the SDK sees them.

use portcullis_wire::{Frame, Id, WireError, marker_tag};
use tokio::time::Instant;

use super::strings::Strings;
use crate::{
    service::is_heeded,
    strings::{LongString, PUT_BACK, put_back},
};

/// What became of such a message.
#[derive(Debug)]
pub(crate) enum Restored {
    Frame(Frame),
    BadReply { id: Option<Id>, why: String },
    BadRequest { id: Id, method: String, why: String },
    BadNotification { method: String, why: String },
}

/// The strings whose markers stand in `frame`, if somebody is to see them.
pub(crate) fn claim(frame: &Frame, strings: &mut Strings) -> Vec<LongString> {
    match frame {
        // It is dropped, and getting its strings back would hold up what comes after it.
        Frame::Notification { method, .. } if !is_heeded(method) => Vec::new(),
        Frame::Response { result: text, .. }
        | Frame::Request { message: text, .. }
        | Frame::Notification { message: text, .. } => strings.claim(text),
        Frame::Error { error, .. } => {
            let mut claimed = strings.claim(&error.message);
            claimed.append(&mut strings.claim(error.data.as_deref().unwrap_or_default()));
            claimed
        }
        Frame::BadRequest { .. } | Frame::Unusable { .. } | Frame::Noise { .. } | Frame::Overlong { .. } => {
            Vec::new()
        }
    }
}

/// `frame` with `strings` back in their places. What is not done in time is as bad as what cannot be done.
pub(crate) async fn restore(frame: Frame, strings: Vec<LongString>) -> Restored {
    let until = Instant::now() + PUT_BACK;
    match frame {
        Frame::Response { id, result } => match put_back(result.into(), strings, until).await {
            Ok(result) => Restored::Frame(Frame::Response {
                id,
                result: result.into(),
            }),
            Err(why) => Restored::BadReply { id: Some(id), why },
        },
        Frame::Error { id, error } => match whole_error(error, strings, until).await {
            Ok(error) => Restored::Frame(Frame::Error { id, error }),
            Err(why) => Restored::BadReply { id, why },
        },
        Frame::Request { id, method, message } => match put_back(message.into(), strings, until).await {
            Ok(message) => Restored::Frame(Frame::Request {
                id,
                method,
                message: message.into(),
            }),
            Err(why) => Restored::BadRequest { id, method, why },
        },
        Frame::Notification { method, message } => match put_back(message.into(), strings, until).await {
            Ok(message) => Restored::Frame(Frame::Notification {
                method,
                message: message.into(),
            }),
            Err(why) => Restored::BadNotification { method, why },
        },
        other => Restored::Frame(other),
    }
}

async fn whole_error(
    error: WireError,
    strings: Vec<LongString>,
    until: Instant,
) -> Result<WireError, String> {
    let WireError { code, message, data } = error;
    let (in_message, in_data): (Vec<_>, Vec<_>) = strings
        .into_iter()
        .partition(|string| message.contains(&string.marker()));
    // The message was read as a string already, where it is one.
    let is_marker = !in_message.is_empty() && marker_tag(&message).is_some();
    let message = if is_marker {
        let raw = put_back(format!("\"{message}\""), in_message, until).await?;
        serde_json::from_str(&raw).unwrap_or(raw)
    } else {
        put_back(message, in_message, until).await?
    };
    let data = match data {
        Some(data) => Some(put_back(data.into(), in_data, until).await?.into()),
        None => None,
    };
    Ok(WireError { code, message, data })
}
