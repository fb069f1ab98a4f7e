use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use portcullis_egress::{EgressError, GuardedResponse};
use rmcp::{
    model::{RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::SseError,
};
use sse_stream::Sse;
use tokio::{task::consume_budget, time::Instant};

use super::{
    client::{Back, GuardedHttp},
    event_id::EventId,
    events::{Event, EventParser, EventSink, EventTooLarge},
    messages::{Message, Messages, PIECE_BYTES, Refused},
    outstanding::OnItsWay,
    reply::{Stray, Translated, translate_message},
};
use crate::ticket::WireFault;

/// The longest line of an event that is none of data, in bytes. An id goes back as a header, of which all together have
/// so many.
const LINE_BYTES: usize = 64 << 10;

/// The longest that a server may have the client wait before it goes on with a stream, in milliseconds: as long as it may
/// ask to be left alone.
const MOST_RETRY_MS: u64 = 300_000;

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
            StreamOf::Resumed(asked, longest) => (Some(asked), longest, true),
            StreamOf::Nobody => (None, None, false),
        };
        let stream = Events {
            body: answer.into_stream(silence).boxed(),
            chunk: Bytes::new(),
            parser: EventParser::new(LINE_BYTES),
            received: Received {
                messages: self.messages(most_bytes),
                events: VecDeque::new(),
                refused: None,
            },
            client: self.clone(),
            standing: asked.is_none(),
            asked,
            back,
            ready: Vec::new(),
            on_their_way: Vec::new(),
            stray: None,
            resumable,
            any: false,
            opened: Instant::now(),
            phase: Phase::Open,
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
    /// It goes on where the stream that answers this request broke off, and may be silent for so long.
    Resumed(RequestId, Option<Duration>),
    /// It answers none, and may be opened again and again.
    Nobody,
}

/// A stream of events on its way to the SDK.
struct Events {
    body: BoxStream<'static, Result<Bytes, EgressError>>,
    /// What came of the body and is not read yet. A piece is read once all events of the one before are dealt with: a
    /// compressed body may bring a million of them at once.
    chunk: Bytes,
    parser: EventParser,
    received: Received,
    client: GuardedHttp,
    asked: Option<RequestId>,
    back: Back,
    /// Events to give before the next is read, the last one first.
    ready: Vec<Sse>,
    /// The replies among them, until the SDK comes back for what is next.
    on_their_way: Vec<OnItsWay>,
    /// The first reply that came for nobody, while others than `asked` waited as well.
    stray: Option<Stray>,
    /// An event had an id: the SDK goes on after it, on another stream.
    resumable: bool,
    /// A message came.
    any: bool,
    opened: Instant,
    standing: bool,
    phase: Phase,
}

/// What came out of the stream.
struct Received {
    messages: Messages,
    /// Events to look at, with what is in them.
    events: VecDeque<(Event, Vec<Message>)>,
    /// Why no more is read.
    refused: Option<Refused>,
}

impl EventSink for Received {
    fn data(&mut self, data: &[u8]) -> Result<(), EventTooLarge> {
        self.messages.feed(data).map_err(|refused| {
            self.refused = Some(refused);
            EventTooLarge
        })
    }

    fn event(&mut self, event: Event) {
        let messages = self.messages.finish();
        self.events.push_back((event, messages));
    }
}

enum Phase {
    Open,
    /// Nothing more comes; with the error, where there was one.
    Ending(Option<String>),
    Over,
}

impl Events {
    async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        loop {
            // One server's flood gives the others their turn.
            consume_budget().await;
            if let Some(ready) = self.ready.pop() {
                return Some(Ok(ready));
            }
            // Whoever asks for more has dealt with what there was.
            self.on_their_way.clear();
            if let Some((event, messages)) = self.received.events.pop_front() {
                self.resumable |= event.id.is_some();
                self.ready = self.rewrite(event, messages).await;
                self.ready.reverse();
                continue;
            }
            match &self.phase {
                Phase::Open => self.read().await,
                Phase::Ending(_) => {
                    let Phase::Ending(error) = std::mem::replace(&mut self.phase, Phase::Over) else {
                        return None;
                    };
                    let reason = error
                        .as_deref()
                        .unwrap_or("the server ended the stream before its reply");
                    match self.ended(reason).await {
                        Some(blamed) => self.ready.push(blamed),
                        None => return error.map(|error| Err(SseError::Body(error.into()))),
                    }
                }
                Phase::Over => return None,
            }
        }
    }

    async fn read(&mut self) {
        if self.chunk.is_empty() {
            match self.body.next().await {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => {
                    self.phase = Phase::Ending(Some(self.client.failed(error).to_string()));
                    return;
                }
                None => self.phase = Phase::Ending(None),
            }
        }
        let piece = self.chunk.split_to(self.chunk.len().min(PIECE_BYTES));
        let parsed = match self.phase {
            Phase::Open => self.parser.feed(&piece, &mut self.received),
            _ => self.parser.finish(&mut self.received),
        };
        let read = match parsed {
            Ok(()) => self.received.messages.hand_over().await,
            Err(EventTooLarge) => Err(self.received.refused.unwrap_or(Refused::TooLarge)),
        };
        if let Err(refused) = read {
            self.refuse(refused);
        }
    }

    /// The stream is read no further.
    fn refuse(&mut self, refused: Refused) {
        let reason = match refused {
            Refused::TooLarge => "the server sent an event that is larger than allowed".to_owned(),
            Refused::Hangs => refused.to_string(),
        };
        // Whatever else came for nobody, this is what ends the stream.
        self.stray = Some(Stray::unusable(reason.clone()));
        self.resumable = false;
        self.phase = Phase::Ending(Some(reason));
    }

    /// One event may hold several messages, or none; its id and retry reach the SDK in any case.
    async fn rewrite(&mut self, event: Event, messages: Vec<Message>) -> Vec<Sse> {
        let mut rewritten = Vec::new();
        if matches!(event.event.as_deref(), None | Some("" | "message")) {
            for message in messages {
                match translate_message(message, &self.client.outstanding).await {
                    Some(Translated::Up(message, on_its_way)) => {
                        rewritten.extend(event_of(&message));
                        self.on_their_way.extend(on_its_way);
                    }
                    Some(Translated::Back(answer)) => self.client.answer_back(self.back.clone(), answer),
                    Some(Translated::Stray(stray)) => rewritten.extend(self.stray(stray)),
                    None => {}
                }
            }
        }
        self.any |= !rewritten.is_empty();
        if rewritten.is_empty() {
            rewritten.push(Sse::default());
        }
        if let Some(last) = rewritten.last_mut() {
            let asked = self.asked.clone();
            last.id = event.id.map(|id| EventId { asked, id }.to_sdk());
            last.retry = event.retry.map(|wait_ms| wait_ms.min(MOST_RETRY_MS));
        }
        rewritten
    }

    /// A reply for nobody who waits. It is that of the request which this stream answers, if no other waits; where
    /// others do, their reply may have gone astray, and this stream's own may yet come.
    fn stray(&mut self, stray: Stray) -> Option<Sse> {
        let outstanding = &self.client.outstanding;
        let Some(asked) = self.asked.as_ref() else {
            outstanding.counters.unclaimed();
            return None;
        };
        if !outstanding.is_alone(asked) {
            outstanding.counters.unclaimed();
            self.stray.get_or_insert(stray);
            return None;
        }
        outstanding.counters.unusable();
        event_of(&stray.blame(outstanding.take(asked)?))
    }

    /// Tells a call that waits on this stream why nothing more will come; not where the SDK may yet go on. Where its
    /// reply came on another stream, that is heard first.
    async fn ended(&mut self, reason: &str) -> Option<Sse> {
        if self.standing {
            self.client.standing.ended(self.any, self.opened.elapsed());
        }
        if self.resumable {
            return None;
        }
        // Nothing of it is left: one that is over must not keep others from being the only one that waits.
        let asked = self.asked.as_ref()?;
        let Some((id, waiting)) = self.client.outstanding.take(asked) else {
            self.client.outstanding.arrived(asked).await;
            return None;
        };
        if let Some(stray) = self.stray.take() {
            return event_of(&stray.blame((id, waiting)));
        }
        if let Some(ticket) = waiting.ticket {
            ticket.fail(WireFault::Closed(reason.to_owned()));
        }
        None
    }
}

/// A message as an event of its own. `None` where it cannot be written, which no message read from JSON is.
pub(super) fn event_of(message: &ServerJsonRpcMessage) -> Option<Sse> {
    Some(Sse::default().data(serde_json::to_string(message).ok()?))
}
