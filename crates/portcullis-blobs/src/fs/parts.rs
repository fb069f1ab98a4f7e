//! Work in parts, with which a second thread helps if one comes in time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use tokio::runtime::Handle;

/// Parts that are being worked on by whoever is free. Nobody waits for a helper that has begun nothing: a machine
/// that is busy elsewhere costs no more than working alone.
pub(super) struct Parts<P, R> {
    own: Arc<Shared<P, R>>,
    done: mpsc::Receiver<R>,
    count: usize,
}

struct Shared<P, R> {
    /// In reverse order, so that the first goes first.
    todo: Mutex<Vec<P>>,
    work: Box<dyn Fn(P) -> R + Send + Sync>,
    tell: mpsc::Sender<R>,
}

impl<P: Send + 'static, R: Send + 'static> Parts<P, R> {
    /// Lets a thread of the runtime begin, where this one belongs to a runtime.
    pub(super) fn begin(mut parts: Vec<P>, work: impl Fn(P) -> R + Send + Sync + 'static) -> Self {
        let count = parts.len();
        parts.reverse();
        let (tell, done) = mpsc::channel();
        let own = Arc::new(Shared {
            todo: Mutex::new(parts),
            work: Box::new(work),
            tell,
        });
        if let Ok(runtime) = Handle::try_current() {
            // A helper that waits for a thread must not hold what the work needs, an open file perhaps, when all is
            // done or given up.
            let helper = Arc::downgrade(&own);
            drop(
                runtime.spawn_blocking(move || while helper.upgrade().is_some_and(|shared| shared.step()) {}),
            );
        }
        Self { own, done, count }
    }

    /// Whether every part is done or being done.
    pub(super) fn all_begun(&self) -> bool {
        self.own.todo().is_empty()
    }

    /// Does what nobody has begun and waits for what somebody has. In no order; `None` where a helper came to grief.
    pub(super) fn finish(self) -> Option<Vec<R>> {
        let Self { own, done, count } = self;
        while own.step() {}
        // A helper that ends early is noticed by nobody being left who could tell.
        drop(own);
        let results: Vec<R> = done.iter().take(count).collect();
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

    fn sorted(parts: Parts<u32, u32>) -> Option<Vec<u32>> {
        let mut results = parts.finish()?;
        results.sort_unstable();
        Some(results)
    }

    #[test]
    fn without_a_helper_or_with_one_that_never_comes_all_is_done() {
        assert_eq!(
            sorted(Parts::begin(vec![1, 2, 3], |part| part * 10)),
            Some(vec![10, 20, 30])
        );

        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        // The one thread there is does the work itself, so its helper waits for ever.
        let alone = runtime.spawn_blocking(|| sorted(Parts::begin(vec![1, 2, 3], |part| part * 10)));
        assert_eq!(runtime.block_on(alone).unwrap(), Some(vec![10, 20, 30]));
    }

    /// What the work holds may be a file, and each read that ended would leave one open.
    #[test]
    fn a_helper_that_never_came_holds_nothing_afterwards() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        // The one thread there is does the work itself, so its helpers wait.
        let alone = runtime.spawn_blocking(|| {
            let file = Arc::new(());
            for is_finished in [true, false] {
                let held = Arc::clone(&file);
                let parts = Parts::begin(vec![1, 2, 3], move |part| {
                    let _ = &held;
                    part
                });
                if is_finished {
                    assert_eq!(sorted(parts), Some(vec![1, 2, 3]));
                } else {
                    drop(parts);
                }
            }
            Arc::strong_count(&file)
        });
        assert_eq!(runtime.block_on(alone).unwrap(), 1);
    }

    #[test]
    fn what_a_helper_has_begun_is_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let here = thread::current().id();
        let _inside = runtime.enter();
        let parts = Parts::begin(vec![1, 2, 3], move |part: u32| {
            if thread::current().id() != here {
                begun.send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
            }
            part
        });
        has_begun.recv().unwrap();
        let releasing = thread::spawn(move || release.send(()));
        assert_eq!(sorted(parts), Some(vec![1, 2, 3]));
        drop(releasing.join());
    }

    #[test]
    fn a_helper_that_comes_to_grief_is_an_error_and_no_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (begun, has_begun) = mpsc::channel();
        let here = thread::current().id();
        let _inside = runtime.enter();
        let parts = Parts::begin(vec![1, 2, 3], move |part: u32| {
            if thread::current().id() != here {
                begun.send(()).unwrap();
                panic!("as this test wants");
            }
            part
        });
        has_begun.recv().unwrap();
        assert_eq!(sorted(parts), None);
    }
}
