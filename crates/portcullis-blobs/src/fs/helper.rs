//! Threads that help with large content, beside the one that has it to do.
//!
//! A thread that is woken may be put on the processor of the one that woke it, and wait there until that one is done:
//! on a virtual machine the kernel takes an idle processor for one that the host has taken away. So a helper is told
//! first to wake elsewhere, on one of the processors that the thread which asks may use itself. Awake, it may run on all
//! of these, so that whoever takes its processor away cannot keep it from another that is free.

use std::{
    hint,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc},
    thread,
};

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
    tell: mpsc::Sender<(Self, place::Places, Work)>,
}

type Work = Box<dyn FnOnce() + Send>;

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
        let Some(places) = place::of_caller() else {
            return false;
        };
        let Some(helper) = self.take_idle() else {
            return false;
        };
        if !place::wakes_elsewhere(&helper.thread, &places) {
            lock(&self.pool).idle.push(helper);
            return false;
        }
        let tell = helper.tell.clone();
        tell.send((helper, places, Box::new(work))).is_ok()
    }

    /// One that has nothing to do. Where there is none, and there may be more, one is started for the next time.
    fn take_idle(&self) -> Option<Helper> {
        // Nobody waits for whoever is at it: that would be waiting for a helper.
        let mut pool = self.pool.try_lock().ok()?;
        let idle = pool.idle.pop();
        if idle.is_none() && pool.started < self.most {
            // Tried once: without a thread there is no helper, and all goes on without.
            pool.started += 1;
            drop(pool);
            let own = Arc::downgrade(&self.pool);
            let thread = thread::Builder::new().name("portcullis-blobs".to_owned());
            drop(thread.spawn(move || serve(&own)));
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
        let Ok((helper, places, work)) = told.recv() else {
            return;
        };
        place::settle(&places);
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

    /// Where the one who asks may run, and where of that it does not run now.
    pub(super) struct Places {
        pub(super) all: CpuSet,
        pub(super) elsewhere: CpuSet,
    }

    /// Those of this thread; `None` where there is but one, or they cannot be told. They are asked for each time, since
    /// they can be changed from outside.
    pub(super) fn of_caller() -> Option<Places> {
        let all = sched_getaffinity(None).ok()?;
        let here = sched_getcpu();
        let mut elsewhere = all;
        if here < CpuSet::MAX_CPU {
            elsewhere.unset(here);
        }
        (elsewhere.count() > 0).then_some(Places { all, elsewhere })
    }

    /// Has `thread`, which sleeps, wake elsewhere. `false` where this is forbidden.
    pub(super) fn wakes_elsewhere(thread: &Thread, places: &Places) -> bool {
        sched_setaffinity(Some(*thread), &places.elsewhere).is_ok()
    }

    /// Lets this thread, which has woken, run wherever the one who asked it may.
    pub(super) fn settle(places: &Places) {
        // Where this is forbidden, it runs where it woke.
        let _ = sched_setaffinity(None, &places.all);
    }
}

#[cfg(not(target_os = "linux"))]
mod place {
    pub(super) type Thread = ();

    pub(super) struct Places;

    pub(super) fn this_thread() -> Thread {}

    pub(super) fn of_caller() -> Option<Places> {
        Some(Places)
    }

    pub(super) fn wakes_elsewhere(_: &Thread, _: &Places) -> bool {
        true
    }

    pub(super) fn settle(_: &Places) {}
}

#[cfg(test)]
pub(super) mod tests {
    use std::{cell::RefCell, sync::mpsc::RecvTimeoutError, time::Duration};

    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Whether nobody can help, on a machine with one processor. On any other that would prove nothing.
    fn is_alone() -> bool {
        let is_alone = place::of_caller().is_none();
        let processors = thread::available_parallelism().unwrap().get();
        assert!(!is_alone || processors == 1, "nobody can help on {processors}");
        is_alone
    }

    /// So many helpers that have nothing to do. `None` on a machine with one processor, where nobody can help.
    pub(in crate::fs) fn ready(count: usize) -> Option<Helpers> {
        let helpers = Helpers::at_most(count);
        if is_alone() {
            return None;
        }
        until(|| {
            let mut pool = lock(&helpers.pool);
            if pool.started < count {
                // With what is idle away, another one is started.
                let idle = std::mem::take(&mut pool.idle);
                drop(pool);
                if let Some(helper) = helpers.take_idle() {
                    lock(&helpers.pool).idle.push(helper);
                }
                pool = lock(&helpers.pool);
                pool.idle.extend(idle);
            }
            pool.idle.len() == count
        });
        Some(helpers)
    }

    /// One helper that is asked and does nothing before it is released: by then it is too late.
    pub(in crate::fs) fn late() -> Option<(Helpers, mpsc::Sender<()>, thread::JoinHandle<()>)> {
        if is_alone() {
            return None;
        }
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
            told.recv().unwrap().2();
        });
        until(|| !lock(&helpers.pool).idle.is_empty());
        Some((helpers, release, helper))
    }

    /// Lets others run until it is so.
    fn until(is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }

    /// What `work` gives, done by a helper.
    fn by_helper<T: Send + 'static>(helpers: &Helpers, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        assert!(helpers.ask(move || drop(tell.send(work()))));
        let result = told.recv_timeout(PATIENCE).unwrap();
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
        assert_eq!(told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
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
            assert_eq!(ended.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
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

        /// Where a helper may run that is awake.
        fn places_of_helper(helpers: &Helpers) -> Vec<usize> {
            processors(&by_helper(helpers, || sched_getaffinity(None).unwrap()))
        }

        /// Where one wakes that is asked now; `None` where nobody is asked.
        fn wakes_on(helpers: &Helpers) -> Option<Vec<usize>> {
            let places = place::of_caller()?;
            let helper = helpers.take_idle().unwrap();
            assert!(place::wakes_elsewhere(&helper.thread, &places));
            let wakes_on = processors(&sched_getaffinity(Some(helper.thread)).unwrap());
            lock(&helpers.pool).idle.push(helper);
            Some(wakes_on)
        }

        #[test]
        fn one_wakes_elsewhere_and_runs_where_the_caller_may() {
            // On a thread of its own, whose processors this changes.
            let test = thread::spawn(|| {
                let Some(helpers) = ready(1) else { return };
                let all = processors(&sched_getaffinity(None).unwrap());
                let mut seen = 0;
                while seen < 20 {
                    let before = sched_getcpu();
                    let wakes_on = wakes_on(&helpers).unwrap();
                    // It may have been moved meanwhile.
                    if before == sched_getcpu() {
                        let others = all.iter().copied().filter(|number| *number != before);
                        assert_eq!(wakes_on, others.collect::<Vec<_>>());
                        seen += 1;
                    }
                    assert_eq!(places_of_helper(&helpers), all);
                }
                // Two of them, then each alone: what the caller may is asked each time.
                let two = &all[..2];
                sched_setaffinity(None, &of(two)).unwrap();
                let wakes_on_one = wakes_on(&helpers).unwrap();
                assert!(
                    wakes_on_one.len() == 1 && two.contains(&wakes_on_one[0]),
                    "{wakes_on_one:?}"
                );
                assert_eq!(places_of_helper(&helpers), two);
                for number in two {
                    sched_setaffinity(None, &of(&[*number])).unwrap();
                    assert!(wakes_on(&helpers).is_none() && !helpers.ask(|| {}));
                }
                sched_setaffinity(None, &of(&all)).unwrap();
                assert_eq!(places_of_helper(&helpers), all);
            });
            test.join().unwrap();
        }
    }
}
