use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use portcullis_egress::{EgressError, GuardedResponse};
use rmcp::{
    model::{RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::SseError,
};
use sse_stream::Sse;

use super::{
    client::{GuardedError, GuardedHttp, LONGEST_CALL},
    events::{Event, EventParser},
    reply::{fail, frames, translate},
};
use crate::ticket::WireFault;

impl GuardedHttp {
    /// A stream of events whose data are rewritten for the SDK, which parses them itself.
    ///
    /// `asked` is the request that the stream answers; `standing` streams answer none and may be opened again and
    /// again.
    pub(super) fn events(
        &self,
        answer: GuardedResponse,
        asked: Option<RequestId>,
        most_bytes: usize,
        standing: bool,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        let stream = Events {
            // A stream may be silent for as long as nothing happens; the kernel's keep-alive finds a dead peer, and
            // a call's own deadline a server that has forgotten it.
            body: answer
                .into_stream(if asked.is_some() { Some(LONGEST_CALL) } else { None })
                .boxed(),
            parser: EventParser::new(most_bytes),
            client: self.clone(),
            asked,
            ready: Vec::new(),
            resumable: false,
            any: false,
            standing,
            over: false,
        };
        futures::stream::unfold(stream, |mut stream| async move {
            let next = stream.next().await?;
            Some((next, stream))
        })
        .boxed()
    }
}

/// A stream of events on its way to the SDK.
struct Events {
    body: BoxStream<'static, Result<Bytes, EgressError>>,
    parser: EventParser,
    client: GuardedHttp,
    asked: Option<RequestId>,
    /// Events to give before the next is read, the last one first.
    ready: Vec<Sse>,
    /// An event had an id: the SDK goes on after it, on another stream.
    resumable: bool,
    any: bool,
    standing: bool,
    over: bool,
}

impl Events {
    async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        loop {
            if let Some(ready) = self.ready.pop() {
                return Some(Ok(ready));
            }
            if let Some(event) = self.parser.next_event() {
                self.any = true;
                self.resumable |= event.id.is_some();
                self.ready = self.rewrite(event);
                self.ready.reverse();
                continue;
            }
            if self.over {
                return None;
            }
            match self.body.next().await {
                Some(Ok(chunk)) => {
                    if self.parser.feed(&chunk).is_err() {
                        self.over = true;
                        let reason = "the server sent an event that is larger than allowed";
                        let failed = fail(&self.client.outstanding, None, self.asked.as_ref(), reason);
                        match failed.as_ref().and_then(event_of) {
                            Some(event) => self.ready.push(event),
                            None => return Some(Err(SseError::Body(reason.into()))),
                        }
                    }
                }
                Some(Err(error)) => {
                    self.over = true;
                    let error = GuardedError(error);
                    self.ended(&error.to_string());
                    return Some(Err(SseError::Body(error.into())));
                }
                None => {
                    self.over = true;
                    self.parser.finish();
                    self.ended("the server ended the stream before its reply");
                }
            }
        }
    }

    /// One event may hold several messages, or none; its id and retry reach the SDK in any case.
    fn rewrite(&self, event: Event) -> Vec<Sse> {
        let mut rewritten: Vec<Sse> = match &event.data {
            Some(data) if matches!(event.event.as_deref(), None | Some("" | "message")) => frames(data)
                .into_iter()
                .filter_map(|frame| translate(frame, &self.client.outstanding, self.asked.as_ref()))
                .filter_map(|message| event_of(&message))
                .collect(),
            _ => Vec::new(),
        };
        if rewritten.is_empty() {
            rewritten.push(Sse::default());
        }
        if let Some(last) = rewritten.last_mut() {
            last.id = event.id;
            last.retry = event.retry;
        }
        rewritten
    }

    /// Tells a call that waits on this stream why nothing more will come; not where the SDK may yet go on.
    fn ended(&self, reason: &str) {
        if self.standing {
            if self.any {
                self.client.barren.store(0, Ordering::Relaxed);
            } else {
                self.client.barren.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.resumable {
            return;
        }
        let waiting = self
            .asked
            .as_ref()
            .and_then(|id| self.client.outstanding.waiting(id));
        if let Some(ticket) = waiting.and_then(|waiting| waiting.ticket) {
            ticket.fail(WireFault::Closed(reason.to_owned()));
        }
    }
}

/// A message as an event of its own. `None` where it cannot be written, which no message read from JSON is.
pub(super) fn event_of(message: &ServerJsonRpcMessage) -> Option<Sse> {
    Some(Sse::default().data(serde_json::to_string(message).ok()?))
}
