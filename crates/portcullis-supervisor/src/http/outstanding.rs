use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use portcullis_wire::Id;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, RequestId};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{client::HttpTerms, param::ParamCache};
use crate::{counters::WireCounters, ticket::Ticket};

/// How long a reply that was claimed may be on its way to the SDK, its long strings being put back included.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// How many requests are remembered, where the server may not have more calls at once: a request whose reply never
/// comes is forgotten when so many others have come after it.
const MOST: usize = 4_096;

/// How many are remembered beside the calls that the server may have at once.
const BESIDE: usize = 64;

/// How many ids of requests that are over are remembered.
const MOST_RETIRED: usize = 1_024;

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
    /// Those that were answered, cancelled or given up. A reply to one of them is late, and says nothing of others.
    retired: VecDeque<Retired>,
}

/// A request that is over.
struct Retired {
    id: RequestId,
    /// Cancelled once the SDK has its reply, where that was claimed.
    arrived: Option<CancellationToken>,
}

/// What is known of a request that waits.
#[derive(Clone, Default)]
pub(crate) struct Waiting {
    /// Its result goes up as raw text.
    pub(crate) raw_result: bool,
    /// It waits for as long as the connection stands.
    pub(crate) subscribes: bool,
    /// The last event of the stream that answers it, where that has an id.
    pub(crate) last_event: Option<String>,
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

    /// Whether nobody waits for its reply any more.
    fn is_over(&self, now: Instant) -> bool {
        self.is_given_up() || self.until.is_some_and(|until| until <= now)
    }
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
                let waiting = Waiting {
                    raw_result: is_raw(&request.request),
                    subscribes: matches!(request.request, ClientRequest::SubscriptionsListenRequest(_)),
                    last_event: None,
                    ticket: ticket(message).cloned(),
                    until: match ticket(message) {
                        Some(ticket) => ticket.over_at(),
                        None => Instant::now().checked_add(self.patience),
                    },
                };
                let mut all = self.lock();
                // A call that is sent again keeps its id.
                all.retired.retain(|retired| retired.id != request.id);
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
        let (id, waiting) = all.take(&exact(id), Some(&arrived)).or_else(|| {
            let number = RequestId::Number(id.as_number()?);
            all.take(&number, Some(&arrived))
        })?;
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
        let retired = all.retired.iter().rfind(|retired| retired.id == *id);
        retired.and_then(|retired| retired.arrived.clone())
    }

    /// Whether `id` is that of a request that is over.
    pub(crate) fn is_retired(&self, id: &Id) -> bool {
        let all = self.lock();
        let is_retired = |id: &RequestId| all.retired.iter().any(|retired| retired.id == *id);
        is_retired(&exact(id))
            || id
                .as_number()
                .is_some_and(|number| is_retired(&RequestId::Number(number)))
    }

    /// Whether `asked` is the only request that somebody waits for, subscriptions aside: then it can be blamed for a reply that
    /// names none.
    pub(crate) fn is_alone(&self, asked: &RequestId) -> bool {
        let all = self.lock();
        let mut others = all
            .waiting
            .iter()
            .filter(|(_, waiting)| !waiting.subscribes && !waiting.is_given_up());
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
        self.lock().take(id, None)
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

    /// The stream that answers a request came to this event.
    pub(crate) fn at_event(&self, asked: &RequestId, event: &str) {
        let mut all = self.lock();
        if let Some((_, waiting)) = all.waiting.iter_mut().rfind(|(found, _)| found == asked) {
            waiting.last_event = Some(event.to_owned());
        }
    }

    /// The request whose stream broke off after this event.
    pub(crate) fn broken_off_at(&self, event: &str) -> Option<RequestId> {
        let all = self.lock();
        let mut all = all.waiting.iter();
        all.rfind(|(_, waiting)| waiting.last_event.as_deref() == Some(event))
            .map(|(id, _)| id.clone())
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
    fn take(&mut self, id: &RequestId, arrived: Option<&CancellationToken>) -> Option<(RequestId, Waiting)> {
        let at = self.waiting.iter().rposition(|(found, _)| found == id)?;
        let taken = self.waiting.remove(at);
        self.retire(id.clone(), arrived.cloned());
        taken
    }

    /// Forgets one that nobody waits for, or else the oldest. A subscription stands for as long as its connection.
    fn make_room(&mut self) {
        let now = Instant::now();
        let over = self
            .waiting
            .iter()
            .position(|(_, waiting)| !waiting.subscribes && waiting.is_over(now));
        let oldest = || self.waiting.iter().position(|(_, waiting)| !waiting.subscribes);
        if let Some((id, _)) = over.or_else(oldest).and_then(|at| self.waiting.remove(at)) {
            self.retire(id, None);
        }
    }

    fn retire(&mut self, id: RequestId, arrived: Option<CancellationToken>) {
        if self.retired.len() >= MOST_RETIRED {
            self.retired.pop_front();
        }
        self.retired.push_back(Retired { id, arrived });
    }
}

fn exact(id: &Id) -> RequestId {
    match id {
        Id::Number(number) => RequestId::Number(*number),
        Id::String(text) => RequestId::String(text.as_str().into()),
    }
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
mod tests {
    use super::*;
    use rmcp::model::{
        CallToolRequest, CallToolRequestParams, ListToolsRequest, PingRequest, SubscriptionFilter,
        SubscriptionsListenRequest, SubscriptionsListenRequestParams,
    };

    fn note(all: &Outstanding, request: ClientRequest, id: i64) {
        all.note(&ClientJsonRpcMessage::request(request, RequestId::Number(id)));
    }

    #[test]
    fn a_request_is_claimed_once_by_its_id_or_its_ids_text() {
        let all = Outstanding::default();
        note(
            &all,
            ClientRequest::ListToolsRequest(ListToolsRequest::default()),
            1,
        );
        note(&all, ClientRequest::PingRequest(PingRequest::default()), 2);
        assert!(all.claim(&Id::Number(3)).is_none());
        let (id, waiting, _) = all.claim(&Id::String("1".to_owned())).unwrap();
        assert_eq!((id, waiting.raw_result), (RequestId::Number(1), true));
        assert!(all.claim(&Id::Number(1)).is_none());
        assert!(!all.claim(&Id::Number(2)).unwrap().1.raw_result);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_on_its_way_is_waited_for_but_not_for_ever() {
        let all = Outstanding::default();
        note(&all, ClientRequest::PingRequest(PingRequest::default()), 1);
        let (id, _, on_its_way) = all.claim(&Id::Number(1)).unwrap();
        let began = Instant::now();
        timeout(ARRIVES_WITHIN * 2, all.arrived(&id)).await.unwrap();
        assert_eq!(began.elapsed(), ARRIVES_WITHIN);
        drop(on_its_way);
        all.arrived(&id).await;
        assert_eq!(began.elapsed(), ARRIVES_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_up_without_a_word_is_not_waited_for_for_ever() {
        let all = Outstanding::default();
        note(&all, ClientRequest::PingRequest(PingRequest::default()), 1);
        assert!(all.awaits());
        tokio::time::advance(all.patience - Duration::from_millis(1)).await;
        assert!(all.awaits());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!all.awaits());
    }

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let all = Outstanding::default();
        for id in 0..5_000 {
            note(&all, ClientRequest::PingRequest(PingRequest::default()), id);
        }
        assert_eq!(all.lock().waiting.len(), MOST);
        assert!(all.is_retired(&Id::Number(0)) && all.lock().retired.len() <= MOST_RETIRED);
        assert!(all.claim(&Id::Number(4_999)).is_some());
        assert!(all.claim(&Id::Number(0)).is_none());
    }

    /// Else the answer of a call that is forgotten would be nobody's.
    #[test]
    fn as_many_are_remembered_as_the_server_may_have_and_what_is_over_goes_first() {
        let all = Outstanding {
            most: 4,
            ..Outstanding::default()
        };
        let listen =
            SubscriptionsListenRequest::new(SubscriptionsListenRequestParams::new(SubscriptionFilter::new()));
        note(&all, ClientRequest::SubscriptionsListenRequest(listen), 0);
        let tickets = [1, 2, 3].map(|id| {
            let ticket = Arc::<Ticket>::default();
            let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
            call.extensions.insert(Arc::clone(&ticket));
            note(&all, ClientRequest::CallToolRequest(call), id);
            ticket
        });
        let [_, second, _] = &tickets;
        second.give_up();
        for (next, forgotten) in [(4, 2), (5, 1), (6, 3)] {
            note(&all, ClientRequest::PingRequest(PingRequest::default()), next);
            assert!(all.is_retired(&Id::Number(forgotten)), "{forgotten} for {next}");
            assert_eq!(all.lock().waiting.len(), 4);
        }
        assert!(all.waiting(&RequestId::Number(0)).is_some());
    }

    #[test]
    fn what_is_over_is_known_as_such_and_one_that_waits_alone_as_that() {
        let all = Outstanding::default();
        for id in 1..=2 {
            note(&all, ClientRequest::PingRequest(PingRequest::default()), id);
        }
        assert!(!all.is_alone(&RequestId::Number(1)));
        all.forget(&RequestId::Number(1));
        assert!(all.is_alone(&RequestId::Number(2)) && !all.is_alone(&RequestId::Number(1)));
        for (id, retired) in [
            (Id::Number(1), true),
            (Id::String("1".into()), true),
            (Id::Number(2), false),
            (Id::Number(9), false),
        ] {
            assert_eq!(all.is_retired(&id), retired, "{id}");
        }
        // A subscription waits for ever, and is no call.
        let listen =
            SubscriptionsListenRequest::new(SubscriptionsListenRequestParams::new(SubscriptionFilter::new()));
        note(&all, ClientRequest::SubscriptionsListenRequest(listen), 3);
        assert!(all.is_alone(&RequestId::Number(2)));
        assert!(all.awaits());
        all.forget(&RequestId::Number(2));
        assert!(!all.awaits());
        // A call whose caller is gone waits for nobody, whether or not the server was told.
        let ticket = Arc::<Ticket>::default();
        let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
        call.extensions.insert(Arc::clone(&ticket));
        note(&all, ClientRequest::CallToolRequest(call), 4);
        note(&all, ClientRequest::PingRequest(PingRequest::default()), 5);
        assert!(!all.is_alone(&RequestId::Number(5)));
        ticket.give_up();
        assert!(all.is_alone(&RequestId::Number(5)));
        all.forget(&RequestId::Number(5));
        assert!(!all.awaits());
        // Sent once more, it waits again.
        note(&all, ClientRequest::PingRequest(PingRequest::default()), 1);
        assert!(!all.is_retired(&Id::Number(1)));
    }
}
