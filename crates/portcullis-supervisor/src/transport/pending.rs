use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::model::RequestId;
use tokio::time::Instant;

use crate::{issued::Issued, ticket::Ticket};

/// The requests that wait for a reply, with what is needed to give one up or to fail it, and which ids others have had
/// before.
#[derive(Default)]
pub(super) struct Pending(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: HashMap<RequestId, PendingRequest>,
    issued: Issued,
}

pub(super) struct PendingRequest {
    pub(super) raw_result: bool,
    /// Whether its reply is what comes next: a reply without a known id may be its.
    pub(super) answers: bool,
    pub(super) ticket: Option<Arc<Ticket>>,
    /// Until when somebody may wait for it.
    pub(super) until: Option<Instant>,
}

impl Pending {
    pub(super) fn insert(&self, id: RequestId, request: PendingRequest) {
        let mut state = self.lock();
        state.issued.note(&id);
        state.waiting.insert(id, request);
    }

    /// Gives a request up: its reply, should one come, is late.
    pub(super) fn remove(&self, id: &RequestId) {
        self.lock().take(id);
    }

    /// The ticket of the request that `id` answers, where it is a call that waits; `Some(None)` for other requests.
    pub(super) fn waiting(&self, id: &RequestId) -> Option<Option<Arc<Ticket>>> {
        let state = self.lock();
        let found = state.waiting.get(id).or_else(|| state.waiting.get(&number(id)?));
        found.map(|request| request.ticket.clone())
    }

    /// The request that `id` answers. Some servers send a number's text back: `"7"` for `7`.
    pub(super) fn claim(&self, id: &RequestId) -> Option<(RequestId, PendingRequest)> {
        let mut state = self.lock();
        state.take(id).or_else(|| state.take(&number(id)?))
    }

    /// The only request whose reply may come.
    pub(super) fn claim_only(&self) -> Option<(RequestId, PendingRequest)> {
        let mut state = self.lock();
        let mut answering = state.waiting.iter().filter(|(_, request)| request.answers);
        let (Some((id, _)), None) = (answering.next(), answering.next()) else {
            return None;
        };
        let id = id.clone();
        state.take(&id)
    }

    /// Whether somebody waits for a reply now. Of what is no call it is not always known that nobody does any more.
    pub(super) fn awaits(&self) -> bool {
        let now = Instant::now();
        let state = self.lock();
        let mut waiting = state.waiting.values();
        waiting.any(|request| {
            let is_given_up = request.ticket.as_ref().is_some_and(|ticket| ticket.is_given_up());
            request.answers && !is_given_up && request.until.is_none_or(|until| now < until)
        })
    }

    /// Whether a reply with `id` that nobody waits for is late: some request has had that id.
    pub(super) fn is_late(&self, id: &RequestId) -> bool {
        let state = self.lock();
        state.issued.holds(id) || number(id).is_some_and(|number| state.issued.holds(&number))
    }

    pub(super) fn drain(&self) -> Vec<(RequestId, PendingRequest)> {
        self.lock().waiting.drain().collect()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock, and the maps are valid at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, id: &RequestId) -> Option<(RequestId, PendingRequest)> {
        self.waiting.remove_entry(id)
    }
}

fn number(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::String(text) => Some(RequestId::Number(text.parse().ok()?)),
        RequestId::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(answers: bool) -> PendingRequest {
        PendingRequest {
            raw_result: true,
            answers,
            ticket: None,
            until: None,
        }
    }

    #[test]
    fn a_reply_is_late_however_long_ago_its_request_was() {
        let pending = Pending::default();
        assert!(!pending.is_late(&RequestId::Number(0)));
        for number in 0..2_000 {
            let id = RequestId::Number(number);
            pending.insert(id.clone(), request(true));
            assert!(pending.claim(&id).is_some() && pending.claim(&id).is_none());
        }
        for number in [0, 2, 1_999] {
            assert!(pending.is_late(&RequestId::Number(number)), "{number}");
            assert!(pending.is_late(&RequestId::String(number.to_string().into())));
        }
        // Nobody has had these.
        for id in [
            RequestId::Number(2_000),
            RequestId::Number(-1),
            RequestId::String("2000".into()),
            RequestId::String("x".into()),
        ] {
            assert!(!pending.is_late(&id), "{id}");
        }
    }

    #[test]
    fn a_subscription_beside_a_call_does_not_make_two_that_wait() {
        let pending = Pending::default();
        pending.insert(RequestId::Number(1), request(false));
        assert!(pending.claim_only().is_none());
        pending.insert(RequestId::Number(2), request(true));
        assert_eq!(pending.claim_only().unwrap().0, RequestId::Number(2));
        assert_eq!(pending.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_up_without_a_word_is_waited_for_no_longer_than_it_may_take() {
        let pending = Pending::default();
        pending.insert(RequestId::Number(1), request(false));
        assert!(
            !pending.awaits(),
            "a subscription waits for nothing that comes now"
        );
        let until = Some(Instant::now() + Duration::from_secs(3));
        pending.insert(
            RequestId::Number(2),
            PendingRequest {
                until,
                ..request(true)
            },
        );
        assert!(pending.awaits());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(!pending.awaits());
        let ticket = Arc::<Ticket>::default();
        pending.insert(
            RequestId::Number(3),
            PendingRequest {
                ticket: Some(Arc::clone(&ticket)),
                ..request(true)
            },
        );
        assert!(pending.awaits());
        ticket.give_up();
        assert!(!pending.awaits());
    }
}
