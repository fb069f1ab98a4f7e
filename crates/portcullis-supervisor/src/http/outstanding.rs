use std::{
    collections::VecDeque,
    iter, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use portcullis_wire::Id;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, RequestId};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{client::HttpTerms, param::ParamCache};
use crate::{counters::WireCounters, issued::Issued, strings::PUT_BACK, ticket::Ticket};

/// How long a reply that was claimed may be on its way to the SDK, its long strings being put back included.
const ARRIVES_WITHIN: Duration = PUT_BACK.saturating_add(Duration::from_secs(5));

/// How many requests are remembered, where the server may not have more calls at once: a request whose reply never
/// comes is forgotten when so many others have come after it.
const MOST: usize = 4_096;

/// How many are remembered beside the calls that the server may have at once.
const BESIDE: usize = 64;

/// The requests that wait for a reply, on whichever stream it comes.
pub(crate) struct Outstanding {
    requests: Mutex<Requests>,
    /// How many of them are remembered.
    most: usize,
    /// How long the reply to what is no call may be waited for.
    patience: Duration,
    /// What the last listing says of headers.
    pub(crate) params: Arc<ParamCache>,
    /// Where replies that are dropped are counted.
    pub(crate) counters: Arc<WireCounters>,
}

#[derive(Default)]
struct Requests {
    waiting: VecDeque<(RequestId, Waiting)>,
    /// Which ids requests have had, those that are over included. A reply to one of these is late, and says nothing of
    /// others.
    issued: Issued,
    /// Replies that were claimed, each with what is cancelled once the SDK has it.
    // INVARIANT: those that have arrived are gone with the next claim.
    on_their_way: Vec<(RequestId, CancellationToken)>,
}

/// What is known of a request that waits.
#[derive(Clone, Default)]
pub(crate) struct Waiting {
    /// Its result goes up as raw text.
    pub(crate) raw_result: bool,
    /// It waits for as long as the connection stands.
    pub(crate) subscribes: bool,
    /// That stream broke off, and was gone on with.
    pub(crate) goes_on: bool,
    /// What its caller is told through.
    pub(crate) ticket: Option<Arc<Ticket>>,
    /// Until when somebody may wait for its reply.
    pub(crate) until: Option<Instant>,
}

/// A reply on its way to the SDK. Dropped, it has arrived, or never will.
pub(crate) struct OnItsWay {
    id: RequestId,
    _arrives: DropGuard,
}

impl OnItsWay {
    /// The request that it answers.
    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }
}

impl Waiting {
    /// Whether its caller is known to be gone. A subscription has none.
    fn is_given_up(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| ticket.is_given_up())
    }

    /// How long somebody may wait for its reply yet; without end where nobody said so.
    fn left(&self, now: Instant) -> Option<Duration> {
        match self.is_given_up() {
            true => Some(Duration::ZERO),
            false => self.until.map(|until| until.saturating_duration_since(now)),
        }
    }

    /// Whether nobody waits for its reply any more.
    fn is_over(&self, now: Instant) -> bool {
        self.left(now).is_some_and(|left| left.is_zero())
    }
}

/// A request whose stream broke off.
pub(crate) struct BrokenOff {
    pub(crate) id: RequestId,
    /// The stream was gone on with before.
    pub(crate) again: bool,
    /// It stands while nobody calls.
    pub(crate) subscribes: bool,
    /// How long somebody may wait for the reply yet, where that has an end.
    pub(crate) left: Option<Duration>,
}

impl Outstanding {
    pub(crate) fn of(terms: &HttpTerms) -> Self {
        Self {
            requests: Mutex::default(),
            most: terms.calls_in_flight.saturating_add(BESIDE).max(MOST),
            patience: terms.patience,
            params: Arc::clone(&terms.params),
            counters: Arc::clone(&terms.counters),
        }
    }

    /// Remembers a request, or forgets a cancelled one.
    pub(crate) fn note(&self, message: &ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                let subscribes = matches!(request.request, ClientRequest::SubscriptionsListenRequest(_));
                let waiting = Waiting {
                    raw_result: is_raw(&request.request),
                    subscribes,
                    goes_on: false,
                    ticket: ticket(message).cloned(),
                    until: match ticket(message) {
                        Some(ticket) => ticket.over_at(),
                        None if subscribes => None,
                        None => Instant::now().checked_add(self.patience),
                    },
                };
                let mut all = self.lock();
                all.issued.note(&request.id);
                // A call that is sent again keeps its id.
                all.on_their_way.retain(|(id, _)| *id != request.id);
                all.waiting.retain(|(id, _)| *id != request.id);
                if all.waiting.len() >= self.most {
                    all.make_room();
                }
                all.waiting.push_back((request.id.clone(), waiting));
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.forget(id);
                }
            }
            _ => {}
        }
    }

    /// Takes the request that `id` answers. Some servers send a number's text back: `"7"` for `7`. The last of the
    /// three is to be held until the SDK has the reply.
    pub(crate) fn claim(&self, id: &Id) -> Option<(RequestId, Waiting, OnItsWay)> {
        let mut all = self.lock();
        let arrived = CancellationToken::new();
        let (id, waiting) = meant(id).find_map(|id| all.take(&id))?;
        all.on_their_way.retain(|(_, arrived)| !arrived.is_cancelled());
        all.on_their_way.push((id.clone(), arrived.clone()));
        let on_its_way = OnItsWay {
            id: id.clone(),
            _arrives: arrived.drop_guard(),
        };
        Some((id, waiting, on_its_way))
    }

    /// Resolves once no reply to this request is on its way to the SDK: at once, or when whoever claimed one has
    /// handed it over. The end of what was to answer the request must not be told before that, since the SDK takes
    /// the request for lost then. A reply that takes longer than [`ARRIVES_WITHIN`] is waited for no longer.
    pub(crate) async fn arrived(&self, id: &RequestId) {
        if let Some(arrived) = self.arrival(id) {
            let _ = timeout(ARRIVES_WITHIN, arrived.cancelled()).await;
        }
    }

    /// Whether a reply to this request is on its way to the SDK.
    pub(crate) fn is_on_its_way(&self, id: &RequestId) -> bool {
        self.arrival(id).is_some_and(|arrived| !arrived.is_cancelled())
    }

    fn arrival(&self, id: &RequestId) -> Option<CancellationToken> {
        let all = self.lock();
        let found = all.on_their_way.iter().rfind(|(found, _)| found == id);
        found.map(|(_, arrived)| arrived.clone())
    }

    /// The request that waits and that a reply with `id` answers.
    pub(crate) fn named(&self, id: &Id) -> Option<RequestId> {
        let all = self.lock();
        meant(id).find(|id| all.waiting.iter().any(|(found, _)| found == id))
    }

    /// Whether `id` is that of a request that is over, however long ago that was.
    pub(crate) fn is_over(&self, id: &Id) -> bool {
        let all = self.lock();
        meant(id).any(|id| all.issued.holds(&id) && !all.waiting.iter().any(|(found, _)| *found == id))
    }

    /// Whether `asked` is the only request that somebody waits for, subscriptions aside: then it can be blamed for a reply that
    /// names none.
    pub(crate) fn is_alone(&self, asked: &RequestId) -> bool {
        let now = Instant::now();
        let all = self.lock();
        let mut others = all
            .waiting
            .iter()
            .filter(|(_, waiting)| !waiting.subscribes && !waiting.is_over(now));
        others.next().is_some_and(|(id, _)| id == asked) && others.next().is_none()
    }

    /// Whether somebody waits for a reply now, subscriptions aside. Of what is no call it is not always known that nobody
    /// does any more.
    pub(crate) fn awaits(&self) -> bool {
        let now = Instant::now();
        let all = self.lock();
        let mut waiting = all.waiting.iter().map(|(_, waiting)| waiting);
        waiting.any(|waiting| !waiting.subscribes && !waiting.is_over(now))
    }

    /// Takes a request by its own id.
    pub(crate) fn take(&self, id: &RequestId) -> Option<(RequestId, Waiting)> {
        self.lock().take(id)
    }

    /// Looks at a request without taking it.
    #[cfg(test)]
    pub(crate) fn waiting(&self, id: &RequestId) -> Option<Waiting> {
        self.lock()
            .waiting
            .iter()
            .rfind(|(found, _)| found == id)
            .map(|(_, waiting)| waiting.clone())
    }

    /// The request `asked`, whose stream broke off and is to be gone on with; `None` where it is over.
    pub(crate) fn broken_off(&self, asked: &RequestId) -> Option<BrokenOff> {
        let mut all = self.lock();
        let (id, waiting) = all.waiting.iter_mut().rfind(|(found, _)| found == asked)?;
        Some(BrokenOff {
            id: id.clone(),
            again: mem::replace(&mut waiting.goes_on, true),
            subscribes: waiting.subscribes,
            left: waiting.left(Instant::now()),
        })
    }

    pub(crate) fn forget(&self, id: &RequestId) {
        self.take(id);
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        // No code panics while it holds the lock, and the queues are valid at every step.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requests {
    fn take(&mut self, id: &RequestId) -> Option<(RequestId, Waiting)> {
        let at = self.waiting.iter().rposition(|(found, _)| found == id)?;
        self.waiting.remove(at)
    }

    /// Forgets one that nobody waits for, or else the oldest. A subscription stands for as long as its connection.
    fn make_room(&mut self) {
        let now = Instant::now();
        let over = self
            .waiting
            .iter()
            .position(|(_, waiting)| !waiting.subscribes && waiting.is_over(now));
        let oldest = || self.waiting.iter().position(|(_, waiting)| !waiting.subscribes);
        if let Some(at) = over.or_else(oldest) {
            self.waiting.remove(at);
        }
    }
}

/// The ids of requests that a reply with `id` may mean: its own, and the number that it writes as a text.
fn meant(id: &Id) -> impl Iterator<Item = RequestId> {
    let exact = match id {
        Id::Number(number) => RequestId::Number(*number),
        Id::String(text) => RequestId::String(text.as_str().into()),
    };
    iter::once(exact).chain(id.as_number().map(RequestId::Number))
}

#[cfg(test)]
impl Default for Outstanding {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            most: MOST,
            patience: Duration::from_secs(120),
            params: Arc::default(),
            counters: Arc::default(),
        }
    }
}

/// The ticket that travels with a call.
pub(crate) fn ticket(message: &ClientJsonRpcMessage) -> Option<&Arc<Ticket>> {
    match message {
        JsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::CallToolRequest(call) => call.extensions.get::<Arc<Ticket>>(),
            _ => None,
        },
        _ => None,
    }
}

/// How long a call may still take; none for what is no call.
pub(crate) fn left(message: &ClientJsonRpcMessage) -> Option<Duration> {
    ticket(message).and_then(|ticket| ticket.left())
}

fn is_raw(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_) | ClientRequest::ListToolsRequest(_)
    )
}

#[cfg(test)]
mod tests;
