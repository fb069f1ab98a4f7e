//! What a server sends, frame by frame: to whom it goes, or which call it fails.

use portcullis_wire::{Frame, Id};
use rmcp::model::{
    ClientJsonRpcMessage, CustomResult, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage, ServerResult,
};
use serde_json::Value;

use super::{
    Outgoing, Phase, StdioTransport,
    pending::PendingRequest,
    restore::{Restored, claim, restore},
};
use crate::{
    encode::encode_message,
    said::excerpt,
    service::{invalid, is_heeded, unreadable},
    ticket::WireFault,
};

impl<R> StdioTransport<R> {
    pub(super) fn accept(&mut self, frame: Frame) {
        match frame {
            Frame::Response { id, result } => self.accept_result(&request_id(id), result),
            Frame::Error { id, error } => {
                let data = error.data.and_then(|data| serde_json::from_str(&data).ok());
                let code = i32::try_from(error.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
                let error = ErrorData::new(ErrorCode(code), error.message, data);
                self.fail(id.map(request_id), error, None);
            }
            Frame::Unusable { id, reason } => self.fail_unusable(id.map(request_id), reason.to_string()),
            Frame::Request { id, method, message } => match serde_json::from_str(&message) {
                Ok(message) => self.inbound.push_back(message),
                Err(error) => self.refuse(id, unreadable(&method, &error)),
            },
            Frame::BadRequest { id, reason } => self.refuse(id, invalid(&reason)),
            Frame::Notification { method, .. } if !is_heeded(&method) => {
                self.counters.unheeded();
            }
            Frame::Notification { method, message } => match serde_json::from_str(&message) {
                Ok(message) => self.inbound.push_back(message),
                Err(error) => {
                    let told = || excerpt(&self.stderr.without_secrets(&error.to_string()));
                    tracing::debug!(%method, error = told(), "dropped a notification that does not parse");
                }
            },
            Frame::Noise { text } => {
                self.counters.noise();
                let shown = || self.stderr.excerpt_without_secrets(&text);
                tracing::debug!(text = shown(), "dropped a line that is not JSON-RPC");
            }
            Frame::Overlong { limit } => {
                self.phase = Phase::Ending(format!("a line is longer than {limit} bytes"));
            }
        }
    }

    fn accept_result(&mut self, id: &RequestId, result: Box<str>) {
        let Some((id, request)) = self.pending.claim(id) else {
            self.misdirected(id);
            return;
        };
        self.pace.replied();
        if request.raw_result {
            let raw = ServerResult::CustomResult(CustomResult(Value::String(result.into())));
            self.inbound.push_back(ServerJsonRpcMessage::response(raw, id));
            return;
        }
        match serde_json::from_str::<ServerResult>(&result) {
            Ok(result) => self.inbound.push_back(ServerJsonRpcMessage::response(result, id)),
            Err(error) => {
                let error = ErrorData::new(
                    ErrorCode::PARSE_ERROR,
                    format!("the result is not valid: {error}"),
                    None,
                );
                self.inbound
                    .push_back(ServerJsonRpcMessage::error(error, Some(id)));
            }
        }
    }

    /// Fails the call that `id` names. A reply without an id can be blamed on a call only when exactly one waits.
    fn fail(&mut self, id: Option<RequestId>, error: ErrorData, fault: Option<WireFault>) {
        let claimed = match &id {
            Some(id) => self.pending.claim(id),
            None => self.pending.claim_only(),
        };
        let Some((own, request)) = claimed else {
            match id {
                Some(id) => self.misdirected(&id),
                None => {
                    self.counters.unclaimed();
                }
            }
            return;
        };
        self.blame(own, request, error, fault);
    }

    /// A reply to nobody. One whose id was in use before, however long ago, is late; any other is blamed on a call where exactly one
    /// waits: it is the reply to that one, under a wrong id.
    fn misdirected(&mut self, id: &RequestId) {
        let only = if self.pending.is_late(id) {
            None
        } else {
            self.pending.claim_only()
        };
        let Some((own, request)) = only else {
            self.counters.unclaimed();
            return;
        };
        self.counters.unusable();
        let shown = excerpt(&id.to_string());
        let text = format!("it carries the id `{shown}`, which is not that of the call");
        let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, text.clone(), None);
        self.blame(own, request, error, Some(WireFault::Unusable(text)));
    }

    fn blame(&mut self, id: RequestId, request: PendingRequest, error: ErrorData, fault: Option<WireFault>) {
        self.pace.replied();
        if let Some(ticket) = request.ticket {
            // Blamed for what cannot be its reply, a call that was not written yet is not written at all.
            ticket.withdraw();
            if let Some(fault) = fault {
                ticket.fail(fault);
            }
        }
        self.inbound
            .push_back(ServerJsonRpcMessage::error(error, Some(id)));
    }

    /// Answers a request of the server's that does not reach the SDK.
    fn refuse(&self, id: Id, error: ErrorData) {
        tracing::debug!(code = error.code.0, "refused a request that does not parse");
        if let Ok(bytes) = encode_message(&ClientJsonRpcMessage::error(error, Some(request_id(id)))) {
            let _ = self.outbound.push(Outgoing::new(bytes, None), true);
        }
    }

    /// Fails everything that still waits. Called once the writer is gone, so each ticket's state is final.
    pub(super) fn fail_all(&mut self, reason: &str) {
        for (id, request) in self.pending.drain() {
            if let Some(ticket) = request.ticket {
                ticket.fail(WireFault::Closed(reason.to_owned()));
            }
            let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, reason.to_owned(), None);
            self.inbound
                .push_back(ServerJsonRpcMessage::error(error, Some(id)));
        }
    }

    /// The frame, where its long strings go with its call or it has none. Others come back once they have theirs.
    pub(super) fn without_strings(&mut self, frame: Frame) -> Option<Frame> {
        let strings = self.decoder.taker();
        if strings.are_none() {
            return Some(frame);
        }
        let claimed = claim(&frame, strings);
        let are_taken = strings.are_taken();
        if claimed.is_empty() {
            return Some(frame);
        }
        let Frame::Response { id, .. } = &frame else {
            self.restoring.push_back(Box::pin(restore(frame, claimed)));
            return None;
        };
        let id = request_id(id.clone());
        match self.pending.waiting(&id) {
            // Nobody waits for it.
            None => Some(frame),
            Some(None) => {
                self.restoring.push_back(Box::pin(restore(frame, claimed)));
                None
            }
            Some(Some(ticket)) if are_taken => {
                ticket.bring(claimed);
                Some(frame)
            }
            Some(Some(_)) => {
                let size = claimed
                    .iter()
                    .map(|string| string.size_bytes)
                    .max()
                    .unwrap_or_default();
                let text =
                    format!("a string of {size} bytes stands in it, and there is no store for such strings");
                self.fail_unusable(Some(id), text);
                None
            }
        }
    }

    fn fail_unusable(&mut self, id: Option<RequestId>, text: String) {
        self.counters.unusable();
        let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, text.clone(), None);
        self.fail(id, error, Some(WireFault::Unusable(text)));
    }

    pub(super) fn accept_restored(&mut self, restored: Restored) {
        match restored {
            Restored::Frame(frame) => self.accept(frame),
            Restored::BadReply { id, why } => self.fail_unusable(id.map(request_id), why),
            Restored::BadRequest { id, method, why } => self.refuse(id, unreadable(&method, &why)),
            Restored::BadNotification { method, why } => {
                tracing::debug!(%method, %why, "dropped a notification with long strings");
            }
        }
    }
}

fn request_id(id: Id) -> RequestId {
    match id {
        Id::Number(number) => RequestId::Number(number),
        Id::String(text) => RequestId::String(text.into()),
    }
}
