use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use portcullis_egress::{EgressError, GuardedResponse};
use rmcp::{
    model::{RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::SseError,
};
use sse_stream::Sse;
use tokio::time::Instant;

use super::{
    client::{Back, GuardedError, GuardedHttp, MOST_PAUSE},
    events::{Event, EventParser},
    reply::{Translated, fail, frames, translate},
};
use crate::ticket::WireFault;

impl GuardedHttp {
    /// A stream of events whose data are rewritten for the SDK, which parses them itself.
    ///
    /// `back` is where requests of the server's are answered.
    pub(super) fn events(
        &self,
        answer: GuardedResponse,
        reading: StreamOf,
        most_bytes: usize,
        back: Back,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        // A stream may be silent for as long as nothing happens; the kernel's keep-alive finds a dead peer, and a
        // call's own deadline a server that has forgotten it.
        let (asked, silence, resumable) = match reading {
            StreamOf::Request(asked, longest) => (Some(asked), longest, false),
            StreamOf::Resumed(asked) => (Some(asked), None, true),
            StreamOf::Nobody => (None, None, false),
        };
        let stream = Events {
            body: answer.into_stream(silence).boxed(),
            parser: EventParser::new(most_bytes),
            client: self.clone(),
            standing: asked.is_none(),
            asked,
            back,
            ready: Vec::new(),
            resumable,
            any: false,
            opened: Instant::now(),
            over: false,
        };
        futures::stream::unfold(stream, |mut stream| async move {
            let next = stream.next().await?;
            Some((next, stream))
        })
        .boxed()
    }
}

/// Whose a stream is.
pub(super) enum StreamOf {
    /// It answers this request, and may be silent for so long; without end where that is its nature.
    Request(RequestId, Option<Duration>),
    /// It goes on where the stream that answers this request broke off.
    Resumed(RequestId),
    /// It answers none, and may be opened again and again.
    Nobody,
}

/// A stream of events on its way to the SDK.
struct Events {
    body: BoxStream<'static, Result<Bytes, EgressError>>,
    parser: EventParser,
    client: GuardedHttp,
    asked: Option<RequestId>,
    back: Back,
    /// Events to give before the next is read, the last one first.
    ready: Vec<Sse>,
    /// An event had an id: the SDK goes on after it, on another stream.
    resumable: bool,
    /// A message came.
    any: bool,
    opened: Instant,
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
                self.resumable |= event.id.is_some();
                if let (Some(asked), Some(id)) = (&self.asked, &event.id) {
                    self.client.outstanding.at_event(asked, id);
                }
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
    fn rewrite(&mut self, event: Event) -> Vec<Sse> {
        let mut rewritten = Vec::new();
        if let Some(data) = &event.data
            && matches!(event.event.as_deref(), None | Some("" | "message"))
        {
            for frame in frames(data) {
                match translate(frame, &self.client.outstanding, self.asked.as_ref()) {
                    Some(Translated::Up(message)) => rewritten.extend(event_of(&message)),
                    Some(Translated::Back(answer)) => self.client.answer_back(self.back.clone(), answer),
                    None => {}
                }
            }
        }
        self.any |= !rewritten.is_empty();
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
            // One that lived long was of use, though nothing happened on it.
            if self.any || self.opened.elapsed() >= MOST_PAUSE {
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
