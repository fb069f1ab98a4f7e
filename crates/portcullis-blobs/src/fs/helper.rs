//! Threads that help with large content, beside the one that has it to do.
//!
//! A thread that is woken may be put on the processor of the one that woke it, and wait there until that one is done:
//! on a virtual machine the kernel takes an idle processor for one that the host has taken away. So a helper is told
//! first to run elsewhere, on one of the processors that the thread which asks may use itself.

use std::{
    hint,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc},
    thread,
};

/// How many there are at most, on however many processors.
const MOST: usize = 4;
/// How often it is looked whether a helper is done, before it is waited for asleep: 20 to 50 microseconds.
const LOOKS: u32 = 1_000;

/// The helpers of one store, which end with it. They are started when they are first wanted, and asked only while they
/// have nothing else to do: what they do is of use at once or not at all.
#[derive(Debug)]
pub(crate) struct Helpers {
    pool: Arc<Mutex<Pool>>,
    most: usize,
}

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Helper>,
    started: usize,
}

/// Stands for a thread, which sleeps for as long as this lies in the pool.
#[derive(Debug)]
struct Helper {
    // INVARIANT: the thread ends after this is gone, so its number never stands for another.
    thread: place::Thread,
    tell: mpsc::Sender<(Self, Work)>,
}

type Work = Box<dyn FnOnce() + Send>;

impl Default for Helpers {
    /// As many as there are processors beside the one that asks.
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::at_most((processors - 1).min(MOST))
    }
}

impl Helpers {
    pub(super) fn at_most(most: usize) -> Self {
        Self {
            pool: Arc::default(),
            most,
        }
    }

    /// Has `work` done beside this thread, where a helper is free and may run beside it. `false` where none is, and
    /// `work` is dropped. It may begin at any time, and so should look first whether it is still wanted.
    pub(super) fn ask(&self, work: impl FnOnce() + Send + 'static) -> bool {
        let Some(elsewhere) = place::elsewhere() else {
            return false;
        };
        let Some(helper) = self.take_idle() else {
            return false;
        };
        place::keep(&helper.thread, &elsewhere);
        let tell = helper.tell.clone();
        tell.send((helper, Box::new(work))).is_ok()
    }

    /// One that has nothing to do. Where there is none, and there may be more, one is started for the next time.
    fn take_idle(&self) -> Option<Helper> {
        let mut pool = lock(&self.pool);
        let idle = pool.idle.pop();
        if idle.is_none() && pool.started < self.most {
            let own = Arc::downgrade(&self.pool);
            let thread = thread::Builder::new().name("portcullis-blobs".to_owned());
            // Without a thread there is no helper, and all goes on without.
            if thread.spawn(move || serve(&own)).is_ok() {
                pool.started += 1;
            }
        }
        idle
    }
}

/// What a helper does: it lies in the pool until it is told something, for as long as there is a pool.
fn serve(pool: &Weak<Mutex<Pool>>) {
    let (tell, told) = mpsc::channel();
    let mut own = Helper {
        thread: place::this_thread(),
        tell,
    };
    while let Some(pool) = pool.upgrade() {
        lock(&pool).idle.push(own);
        drop(pool);
        let Ok((helper, work)) = told.recv() else {
            return;
        };
        // What the work held is gone then, by which whoever waits for it notices.
        drop(catch_unwind(AssertUnwindSafe(work)));
        own = helper;
    }
}

/// What `attempt` gives in the time that a helper takes for a piece. To wait for it asleep would take longer: being woken
/// alone takes that time.
pub(super) fn soon<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    (0..LOOKS).find_map(|_| {
        let found = attempt();
        if found.is_none() {
            hint::spin_loop();
        }
        found
    })
}

fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(target_os = "linux")]
mod place {
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub(super) type Thread = Pid;

    pub(super) fn this_thread() -> Thread {
        gettid()
    }

    /// The processors this thread may run on but for the one it does run on; `None` where there is no other, or it
    /// cannot be told. It is asked each time, since it can be changed from outside.
    pub(super) fn elsewhere() -> Option<CpuSet> {
        let mut allowed = sched_getaffinity(None).ok()?;
        let here = sched_getcpu();
        if here < CpuSet::MAX_CPU {
            allowed.unset(here);
        }
        (allowed.count() > 0).then_some(allowed)
    }

    /// Has `thread`, which sleeps, run there from now on. Where this is forbidden it runs where the kernel likes.
    pub(super) fn keep(thread: &Thread, there: &CpuSet) {
        let _ = sched_setaffinity(Some(*thread), there);
    }
}

#[cfg(not(target_os = "linux"))]
mod place {
    pub(super) type Thread = ();

    pub(super) fn this_thread() -> Thread {}

    pub(super) fn elsewhere() -> Option<()> {
        Some(())
    }

    pub(super) fn keep(_: &Thread, _: &()) {}
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    use super::*;

    /// So many helpers that have nothing to do. `None` on a machine with one processor, where nobody can help.
    pub(in crate::fs) fn ready(count: usize) -> Option<Helpers> {
        let helpers = Helpers::at_most(count);
        place::elsewhere()?;
        until(|| {
            let mut pool = lock(&helpers.pool);
            if pool.started < count {
                // With what is idle away, another one is started.
                let idle = std::mem::take(&mut pool.idle);
                drop(pool);
                assert!(helpers.take_idle().is_none());
                pool = lock(&helpers.pool);
                pool.idle.extend(idle);
            }
            pool.idle.len() == count
        });
        Some(helpers)
    }

    /// One helper that is asked and does nothing before it is released: by then it is too late.
    pub(in crate::fs) fn late() -> Option<(Helpers, mpsc::Sender<()>, thread::JoinHandle<()>)> {
        place::elsewhere()?;
        let helpers = Helpers::at_most(0);
        let (release, released) = mpsc::channel();
        let pool = Arc::clone(&helpers.pool);
        let helper = thread::spawn(move || {
            let (tell, told) = mpsc::channel();
            lock(&pool).idle.push(Helper {
                thread: place::this_thread(),
                tell,
            });
            wait_for(&released);
            told.recv().unwrap().1();
        });
        until(|| !lock(&helpers.pool).idle.is_empty());
        Some((helpers, release, helper))
    }

    /// Lets others run until it is so, for some seconds at most.
    fn until(is_so: impl Fn() -> bool) {
        assert!((0..10_000_000).any(|_| {
            thread::yield_now();
            is_so()
        }));
    }

    /// What `work` gives, done by a helper.
    fn by_helper<T: Send + 'static>(helpers: &Helpers, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        assert!(helpers.ask(move || drop(tell.send(work()))));
        let result = told.recv().unwrap();
        until(|| !lock(&helpers.pool).idle.is_empty());
        result
    }

    /// Until the other end of `release` is gone.
    pub(in crate::fs) fn wait_for(release: &mpsc::Receiver<()>) {
        let _ = release.recv();
    }

    #[test]
    fn one_that_is_busy_is_not_asked() {
        let Some(helpers) = ready(2) else { return };
        let (release, released) = mpsc::channel::<()>();
        assert!(helpers.ask(move || wait_for(&released)));
        let other = by_helper(&helpers, || thread::current().id());
        assert_ne!(other, thread::current().id());
        let (held, is_held) = mpsc::channel::<()>();
        assert!(helpers.ask(move || wait_for(&is_held)));
        // What is not taken is dropped, with what it holds.
        let file = Arc::new(());
        let kept = Arc::clone(&file);
        assert!(!helpers.ask(move || drop(kept)));
        assert_eq!(Arc::strong_count(&file), 1);
        drop((release, held));
    }

    #[test]
    fn where_there_may_be_none_nobody_comes() {
        let helpers = Helpers::at_most(0);
        assert!(!helpers.ask(|| {}) && !helpers.ask(|| {}));
        assert_eq!(lock(&helpers.pool).started, 0);
    }

    #[test]
    fn one_that_came_to_grief_goes_on_helping() {
        let Some(helpers) = ready(1) else { return };
        let first = by_helper(&helpers, || thread::current().id());
        let (tell, told) = mpsc::channel::<()>();
        assert!(helpers.ask(move || {
            let _tell = tell;
            panic!("as this test wants");
        }));
        // Whoever waits for it is told.
        assert!(told.recv().is_err());
        until(|| !lock(&helpers.pool).idle.is_empty());
        assert_eq!(by_helper(&helpers, || thread::current().id()), first);
    }

    #[test]
    fn they_end_with_their_store_even_at_work() {
        thread_local! {
            static END: RefCell<Option<mpsc::Sender<()>>> = const { RefCell::new(None) };
        }
        for is_at_work in [false, true] {
            let Some(helpers) = ready(1) else { return };
            let (end, ended) = mpsc::channel::<()>();
            by_helper(&helpers, move || END.set(Some(end)));
            let (release, released) = mpsc::channel::<()>();
            if is_at_work {
                assert!(helpers.ask(move || wait_for(&released)));
            }
            drop(helpers);
            drop(release);
            // Gone with the thread.
            assert!(ended.recv().is_err());
        }
    }

    #[cfg(target_os = "linux")]
    mod on_linux {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

        use super::*;

        fn processors(set: &CpuSet) -> Vec<usize> {
            (0..CpuSet::MAX_CPU)
                .filter(|number| set.is_set(*number))
                .collect()
        }

        fn of(processors: &[usize]) -> CpuSet {
            let mut set = CpuSet::new();
            processors.iter().for_each(|number| set.set(*number));
            set
        }

        /// Where the helper may run, and where it does.
        fn place_of_helper(helpers: &Helpers) -> (Vec<usize>, usize) {
            let (allowed, here) = by_helper(helpers, || (sched_getaffinity(None).unwrap(), sched_getcpu()));
            (processors(&allowed), here)
        }

        #[test]
        fn one_runs_elsewhere_and_where_the_caller_may() {
            // On a thread of its own, whose processors this changes.
            let test = thread::spawn(|| {
                let Some(helpers) = ready(1) else { return };
                let all = processors(&sched_getaffinity(None).unwrap());
                let mut seen = 0;
                while seen < 20 {
                    let before = sched_getcpu();
                    let (allowed, here) = place_of_helper(&helpers);
                    assert!(allowed.contains(&here) && allowed.iter().all(|number| all.contains(number)));
                    // It may have been moved meanwhile.
                    if before == sched_getcpu() {
                        assert!(!allowed.contains(&before), "{allowed:?} {before}");
                        seen += 1;
                    }
                }

                // Two of them, then each alone: what the caller may is asked each time.
                let two = &all[..2];
                sched_setaffinity(None, &of(two)).unwrap();
                let (allowed, _) = place_of_helper(&helpers);
                assert!(allowed.len() == 1 && two.contains(&allowed[0]), "{allowed:?}");
                for number in two {
                    sched_setaffinity(None, &of(&[*number])).unwrap();
                    assert!(!helpers.ask(|| {}));
                }
                sched_setaffinity(None, &of(&all)).unwrap();
                let (allowed, _) = place_of_helper(&helpers);
                assert_eq!(allowed.len(), all.len() - 1);
            });
            test.join().unwrap();
        }
    }
}
