//! Work in parts, with which a second thread helps if one comes in time.

use std::{
    iter,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use tokio::time::Instant;

use super::helper::{Helpers, soon};

/// How long a part that a helper has begun is waited for: it is a moment's work, and a disk that takes longer is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Parts that are being worked on by whoever is free. Nobody waits for a helper that has begun nothing: a machine
/// that is busy elsewhere costs no more than working alone.
pub(super) struct Parts<P, R> {
    own: Arc<Shared<P, R>>,
    done: mpsc::Receiver<R>,
    results: Vec<R>,
    count: usize,
    is_asked: bool,
}

struct Shared<P, R> {
    /// In reverse order, so that the first goes first.
    todo: Mutex<Vec<P>>,
    work: Box<dyn Fn(P) -> R + Send + Sync>,
    /// Whether a helper has come.
    is_helped: AtomicBool,
    tell: mpsc::Sender<R>,
}

impl<P: Send + 'static, R: Send + 'static> Parts<P, R> {
    /// Lets a helper begin, where one is free.
    pub(super) fn begin(
        helpers: &Helpers,
        mut parts: Vec<P>,
        work: impl Fn(P) -> R + Send + Sync + 'static,
    ) -> Self {
        let count = parts.len();
        parts.reverse();
        let (tell, done) = mpsc::channel();
        let own = Arc::new(Shared {
            todo: Mutex::new(parts),
            work: Box::new(work),
            is_helped: AtomicBool::new(false),
            tell,
        });
        let mut parts = Self {
            own,
            done,
            results: Vec::with_capacity(count),
            count,
            is_asked: false,
        };
        let step = parts.helper();
        parts.is_asked = helpers.ask(move || while step() {});
        parts
    }

    /// Whether a helper is here or on its way.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Whether a helper is here.
    pub(super) fn is_helped(&self) -> bool {
        self.own.is_helped.load(Ordering::Relaxed)
    }

    /// Does the next part here.
    pub(super) fn step(&self) {
        self.own.step();
    }

    /// Does the next part; `false` where there is none. A helper that comes late must not hold what the work needs, an
    /// open file perhaps, when all is done or given up.
    fn helper(&self) -> impl Fn() -> bool + Send + 'static + use<P, R> {
        let shared = Arc::downgrade(&self.own);
        move || {
            shared.upgrade().is_some_and(|shared| {
                shared.is_helped.store(true, Ordering::Relaxed);
                shared.step()
            })
        }
    }

    /// Whether every part is done.
    pub(super) fn is_done(&mut self) -> bool {
        self.results.extend(self.done.try_iter());
        self.results.len() == self.count
    }

    /// Does what nobody has begun and waits for what somebody has. In no order; `None` where a helper came to grief or
    /// hangs.
    pub(super) fn finish(self) -> Option<Vec<R>> {
        self.finish_within(PATIENCE)
    }

    /// The same without waiting, where all is done by `deadline` or begun then and done a moment later. `None` where it is
    /// not, and what was done is dropped.
    pub(super) fn finish_by(mut self, deadline: Instant) -> Option<Vec<R>> {
        while Instant::now() < deadline {
            if !self.own.step() {
                // A helper is at the last ones.
                return soon(|| self.is_done().then_some(())).map(|()| self.results);
            }
        }
        None
    }

    fn finish_within(self, patience: Duration) -> Option<Vec<R>> {
        let Self {
            own,
            done,
            mut results,
            count,
            ..
        } = self;
        while own.step() {}
        // A helper that ends early is noticed by nobody being left who could tell.
        drop(own);
        let next = || soon(|| done.try_recv().ok()).or_else(|| done.recv_timeout(patience).ok());
        results.extend(iter::from_fn(next).take(count - results.len()));
        (results.len() == count).then_some(results)
    }
}

impl<P, R> Shared<P, R> {
    /// Does the next part. `false` where there is none, or nobody listens any more and so nobody needs it.
    fn step(&self) -> bool {
        // The list is free again before the work begins.
        let next = self.todo().pop();
        next.is_some_and(|part| self.tell.send((self.work)(part)).is_ok())
    }

    fn todo(&self) -> MutexGuard<'_, Vec<P>> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::fs::helper::tests::{ready, wait_for};

    fn sorted(parts: Parts<u32, u32>) -> Option<Vec<u32>> {
        let mut results = parts.finish()?;
        results.sort_unstable();
        Some(results)
    }

    #[test]
    fn with_a_helper_and_without_all_is_done_once() {
        for helpers in [Some(Helpers::at_most(0)), ready(1), ready(3)]
            .into_iter()
            .flatten()
        {
            for count in [0, 1, 2, 3, 1_000] {
                let parts = Parts::begin(&helpers, (0..count).collect(), |part| part * 10);
                let expected: Vec<_> = (0..count).map(|part| part * 10).collect();
                assert_eq!(sorted(parts), Some(expected));
            }
        }
    }

    /// What the work holds may be a file, and each read that ended would leave one open.
    #[test]
    fn a_helper_that_comes_late_holds_nothing_and_is_not_waited_for() {
        let helpers = Helpers::at_most(0);
        let file = Arc::new(());
        for is_finished in [true, false] {
            let held = Arc::clone(&file);
            let parts = Parts::begin(&helpers, vec![1, 2, 3], move |part| {
                let _ = &held;
                part
            });
            let late = parts.helper();
            if is_finished {
                assert_eq!(sorted(parts), Some(vec![1, 2, 3]));
            } else {
                drop(parts);
            }
            assert_eq!(Arc::strong_count(&file), 1);
            assert!(!late());
        }
    }

    /// Parts of which a helper has begun one, with which it does `deed` first. `None` where nobody can help.
    fn begun_by_a_helper(deed: impl Fn() + Send + Sync + 'static) -> Option<Parts<u32, u32>> {
        let helpers = ready(1)?;
        let (begun, has_begun) = mpsc::channel();
        let here = thread::current().id();
        let parts = Parts::begin(&helpers, vec![1, 2, 3], move |part| {
            if thread::current().id() != here {
                begun.send(()).unwrap();
                deed();
            }
            part
        });
        has_begun.recv_timeout(PATIENCE).unwrap();
        Some(parts)
    }

    /// What waits until the sender is gone.
    fn hanging() -> (impl Fn() + Send + Sync + 'static, mpsc::Sender<()>) {
        let (release, released) = mpsc::channel();
        let released = Mutex::new(released);
        (move || wait_for(&released.lock().unwrap()), release)
    }

    #[test]
    fn what_a_helper_has_begun_is_waited_for() {
        let (hangs, release) = hanging();
        let Some(parts) = begun_by_a_helper(hangs) else {
            return;
        };
        let releasing = thread::spawn(move || drop(release));
        assert_eq!(sorted(parts), Some(vec![1, 2, 3]));
        releasing.join().unwrap();
    }

    #[test]
    fn a_helper_that_comes_to_grief_is_an_error_and_no_wait() {
        let Some(parts) = begun_by_a_helper(|| panic!("as this test wants")) else {
            return;
        };
        assert_eq!(sorted(parts), None);
    }

    #[test]
    fn a_helper_that_hangs_is_not_waited_for_for_ever() {
        let (hangs, release) = hanging();
        let Some(parts) = begun_by_a_helper(hangs) else {
            return;
        };
        assert_eq!(parts.finish_within(Duration::from_millis(10)), None);
        drop(release);
    }

    #[test]
    fn what_is_not_done_in_time_is_given_up_and_nobody_is_waited_for() {
        let now = Instant::now();
        let parts = || Parts::begin(&Helpers::at_most(0), vec![1, 2, 3], |part| part);
        assert_eq!(parts().finish_by(now + PATIENCE), Some(vec![1, 2, 3]));
        assert_eq!(parts().finish_by(now), None);

        let (hangs, release) = hanging();
        let Some(parts) = begun_by_a_helper(hangs) else {
            return;
        };
        assert_eq!(parts.finish_by(now + PATIENCE), None);
        assert!(now.elapsed() < PATIENCE);
        drop(release);
    }
}
