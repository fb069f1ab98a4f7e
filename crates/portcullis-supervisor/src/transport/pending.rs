use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::model::RequestId;
use tokio::time::Instant;

use crate::ticket::Ticket;

/// How many ids are remembered that nobody waits for any more.
const RETIRED: usize = 1_024;

/// The requests that wait for a reply, with what is needed to give one up or to fail it, and the ids of the last ones
/// that do not wait any more.
#[derive(Default)]
pub(super) struct Pending(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: HashMap<RequestId, PendingRequest>,
    retired: VecDeque<RequestId>,
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
        self.lock().waiting.insert(id, request);
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

    /// Whether somebody waited for `id` not long ago.
    pub(super) fn is_retired(&self, id: &RequestId) -> bool {
        let state = self.lock();
        let number = number(id);
        state
            .retired
            .iter()
            .any(|retired| retired == id || number.as_ref() == Some(retired))
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
        let found = self.waiting.remove_entry(id)?;
        if self.retired.len() == RETIRED {
            self.retired.pop_front();
        }
        self.retired.push_back(found.0.clone());
        Some(found)
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
    fn the_last_ids_are_remembered_and_no_more_than_those() {
        let pending = Pending::default();
        let ids = (0..2_000).map(RequestId::Number);
        for id in ids {
            pending.insert(id.clone(), request(true));
            assert!(!pending.is_retired(&id));
            assert!(pending.claim(&id).is_some() && pending.claim(&id).is_none());
        }
        assert!(pending.is_retired(&RequestId::Number(1_999)) && pending.is_retired(&RequestId::Number(976)));
        assert!(pending.is_retired(&RequestId::String("1999".into())));
        assert!(!pending.is_retired(&RequestId::Number(975)));
        assert_eq!(pending.lock().retired.len(), RETIRED);
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
