use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use portcullis_types::ServerId;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::elicitation::{ElicitationResponder, WAIT, elicit};

/// How many questions of one connection a person is shown at once.
const SHOWN: usize = 4;
/// How many may be open at once, those that wait for their turn included; what is more is declined at once.
const OPEN: usize = 64;

/// The questions that one connection's server has asked, and who answers them.
pub(crate) struct Asking {
    responder: Option<Arc<dyn ElicitationResponder>>,
    turns: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: usize,
    /// Those that the server asked by a request of its own, so that nobody knows which call they belong to.
    unbound: usize,
    /// When the last of these was closed.
    closed: Option<Instant>,
}

/// Which calls a question holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The one that is answered with it.
    ItsOwn,
    /// It may be any of those in flight.
    Any,
}

impl Asking {
    pub(crate) fn new(responder: Option<Arc<dyn ElicitationResponder>>) -> Self {
        Self {
            responder,
            turns: Semaphore::new(SHOWN),
            state: Mutex::default(),
        }
    }

    /// Whether anybody can answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.responder.is_some()
    }

    /// The answer to one question: at once where nobody can answer or too many are open, else within its time.
    pub(crate) async fn ask(
        &self,
        server: &ServerId,
        params: Option<ElicitRequestParams>,
        holds: Holds,
    ) -> ElicitResult {
        let Some(responder) = &self.responder else {
            return ElicitResult::new(ElicitationAction::Decline);
        };
        let Some(_open) = self.open(holds) else {
            tracing::warn!(%server, "more than {OPEN} questions at once; the rest is declined");
            return ElicitResult::new(ElicitationAction::Decline);
        };
        let answered = async {
            let _turn = self.turns.acquire().await;
            elicit(server, responder, params).await
        };
        match timeout(WAIT, answered).await {
            Ok(result) => result,
            Err(_) => {
                tracing::warn!(%server, "nobody answered a question within {} s", WAIT.as_secs());
                ElicitResult::new(ElicitationAction::Cancel)
            }
        }
    }

    /// A call's idle deadline `idle` has come: the one that takes its place, where a person was or is being asked
    /// meanwhile. `patience` is how long the call may be silent.
    pub(crate) fn renews(&self, idle: Instant, patience: Duration) -> Option<Instant> {
        let state = self.lock();
        if state.unbound > 0 {
            // Not over yet: looked at again then, at the latest a moment after the question's own time.
            return Some(Instant::now() + patience.min(WAIT));
        }
        let later = state.closed? + patience;
        (later > idle).then_some(later)
    }

    fn open(&self, holds: Holds) -> Option<Open<'_>> {
        let mut state = self.lock();
        if state.open == OPEN {
            return None;
        }
        state.open += 1;
        state.unbound += usize::from(holds == Holds::Any);
        Some(Open { asking: self, holds })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock, and the counts are valid at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking")
            .field("responder", &self.responder)
            .finish_non_exhaustive()
    }
}

/// One open question; closed when dropped, however it ends.
struct Open<'a> {
    asking: &'a Asking,
    holds: Holds,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.asking.lock();
        state.open -= 1;
        if self.holds == Holds::Any {
            state.unbound -= 1;
            state.closed = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::BoxFuture;

    use super::*;
    use crate::elicitation::{ElicitationReply, ElicitationRequest};

    /// Takes its time, and counts how many it is asked at once.
    #[derive(Debug, Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
        asked: AtomicUsize,
    }

    impl ElicitationResponder for Slow {
        fn respond(&self, _: ServerId, _: ElicitationRequest) -> BoxFuture<'_, ElicitationReply> {
            Box::pin(async {
                let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(now, Ordering::Relaxed);
                self.asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.now.fetch_sub(1, Ordering::Relaxed);
                ElicitationReply::Accept(None)
            })
        }
    }

    fn question() -> Option<ElicitRequestParams> {
        serde_json::from_value(serde_json::json!({
            "mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}
        }))
        .ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_questions_reaches_a_person_a_few_at_a_time_and_the_rest_is_declined() {
        let slow = Arc::new(Slow::default());
        let asking = Asking::new(Some(Arc::clone(&slow) as Arc<dyn ElicitationResponder>));
        let server: ServerId = "s".parse().unwrap();
        let all = (0..1_000).map(|_| asking.ask(&server, question(), Holds::Any));
        let answers = futures::future::join_all(all).await;
        let accepted = answers
            .iter()
            .filter(|answer| answer.action == ElicitationAction::Accept)
            .count();
        assert_eq!((accepted, slow.asked.load(Ordering::Relaxed)), (OPEN, OPEN));
        assert_eq!(slow.most.load(Ordering::Relaxed), SHOWN);
        assert_eq!(asking.lock().open, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_question_holds_up_idle_deadlines_and_one_of_a_round_does_not() {
        let asking = Asking::new(None);
        let patience = Duration::from_secs(10);
        let idle = Instant::now() + patience;
        assert_eq!(asking.renews(idle, patience), None);
        let own = asking.open(Holds::ItsOwn);
        assert_eq!(asking.renews(idle, patience), None);
        drop(own);
        let any = asking.open(Holds::Any);
        tokio::time::advance(Duration::from_secs(8)).await;
        assert!(asking.renews(idle, patience) > Some(idle));
        drop(any);
        assert_eq!(
            asking.renews(idle, patience),
            Some(Instant::now() + patience),
            "the server has its whole time again"
        );
        tokio::time::advance(Duration::from_secs(30)).await;
        let idle = Instant::now();
        assert_eq!(asking.renews(idle, patience), None, "that was long ago");
    }

    /// Never answers, and notes that it is not asked any more.
    #[derive(Debug, Default)]
    struct Absent(Arc<AtomicUsize>);

    struct Gone(Arc<AtomicUsize>);

    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl ElicitationResponder for Absent {
        fn respond(&self, _: ServerId, _: ElicitationRequest) -> BoxFuture<'_, ElicitationReply> {
            let gone = Gone(Arc::clone(&self.0));
            Box::pin(async move {
                let _gone = gone;
                std::future::pending().await
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_answers_is_over_in_time_and_whoever_was_asked_hears_it() {
        let ended = Arc::new(AtomicUsize::new(0));
        let asking = Asking::new(Some(Arc::new(Absent(Arc::clone(&ended)))));
        let began = Instant::now();
        let answer = asking.ask(&"s".parse().unwrap(), question(), Holds::Any).await;
        assert_eq!(answer.action, ElicitationAction::Cancel);
        assert_eq!(
            (began.elapsed(), ended.load(Ordering::Relaxed), asking.lock().open),
            (WAIT, 1, 0)
        );
    }
}
