//! Syncing once for many.

use std::sync::{Condvar, Mutex, PoisonError};

use rustix::io::{Errno, Result};

/// Lets many writers share one sync: whoever comes while one runs waits for the next, which one of them does for
/// all. Nobody waits for company, so a single writer is as quick as without.
#[derive(Debug, Default)]
pub(crate) struct Committer {
    state: Mutex<State>,
    finished: Condvar,
    /// Somebody waits.
    #[cfg(test)]
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    // INVARIANT: finished <= started <= finished + 1; a sync is running when they differ.
    started: u64,
    finished: u64,
    /// The last one that failed. What it was to bring to the disk may be lost, though the next one succeeds.
    failed: Option<(u64, Errno)>,
    /// How often somebody began to wait for one that another does.
    #[cfg(test)]
    waiting: usize,
}

impl Committer {
    /// Returns when a `sync` that began after this call is done, by whomever.
    pub(crate) fn commit(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = state.started + 1;
        while state.finished < wanted {
            if state.started == state.finished {
                state.started += 1;
                drop(state);
                let done = sync();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.finished = state.started;
                if let Err(errno) = done {
                    state.failed = Some((state.finished, errno));
                }
                self.finished.notify_all();
                break;
            }
            #[cfg(test)]
            self.comes(&mut state);
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.failed {
            Some((at, errno)) if at >= wanted => Err(errno),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc, Barrier,
            atomic::{AtomicU64, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use super::*;

    impl Committer {
        pub(super) fn comes(&self, state: &mut State) {
            state.waiting += 1;
            self.came.notify_all();
        }

        /// Whether so many come to wait.
        fn wait_until_waiting(&self, count: usize) -> bool {
            let state = self.state.lock().unwrap();
            let fewer = |state: &mut State| state.waiting < count;
            let waited = self
                .came
                .wait_timeout_while(state, Duration::from_secs(60), fewer);
            let (_state, waited) = waited.unwrap();
            !waited.timed_out()
        }
    }

    #[test]
    fn those_who_come_during_a_sync_share_the_next() {
        let committer = Arc::new(Committer::default());
        let syncs = Arc::new(AtomicU64::new(0));
        let (release, released) = mpsc::channel::<()>();
        let (begun, first_began) = mpsc::channel();
        let first = std::thread::spawn({
            let committer = Arc::clone(&committer);
            move || {
                committer.commit(|| {
                    begun.send(()).unwrap();
                    released.recv().unwrap();
                    Ok(())
                })
            }
        });
        first_began.recv().unwrap();
        let ready = Arc::new(Barrier::new(9));
        let others: Vec<_> = (0..8)
            .map(|_| {
                let (committer, syncs, ready) =
                    (Arc::clone(&committer), Arc::clone(&syncs), Arc::clone(&ready));
                std::thread::spawn(move || {
                    ready.wait();
                    committer.commit(|| {
                        syncs.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    })
                })
            })
            .collect();
        ready.wait();
        // The first one's sync does not count for them, so none can be done yet.
        assert_eq!(syncs.load(Ordering::SeqCst), 0);
        release.send(()).unwrap();
        first.join().unwrap().unwrap();
        for other in others {
            other.join().unwrap().unwrap();
        }
        // At least one; at most one for each that came too late for it.
        let syncs = syncs.load(Ordering::SeqCst);
        assert!((1..=8).contains(&syncs), "{syncs}");
        let state = committer.state.lock().unwrap();
        assert_eq!((state.started, state.finished), (syncs + 1, syncs + 1));
    }

    /// Who does it is a matter of chance.
    #[test]
    fn a_sync_that_fails_fails_all_that_share_it() {
        let committer = Committer::default();
        let syncs = AtomicU64::new(0);
        let (release, released) = mpsc::channel::<()>();
        let (begun, first_began) = mpsc::channel();
        let others = std::thread::scope(|scope| {
            let committer = &committer;
            scope.spawn(move || {
                let sync = || {
                    begun.send(()).unwrap();
                    released.recv().unwrap();
                    Ok(())
                };
                committer.commit(sync).unwrap();
            });
            first_began.recv().unwrap();
            let fail = || {
                committer.commit(|| {
                    syncs.fetch_add(1, Ordering::SeqCst);
                    Err(Errno::IO)
                })
            };
            let others = [scope.spawn(fail), scope.spawn(fail)];
            let both_wait = committer.wait_until_waiting(2);
            release.send(()).unwrap();
            assert!(both_wait, "they come within the deadline");
            others.map(|other| other.join().unwrap())
        });
        assert_eq!(others, [Err(Errno::IO); 2]);
        assert_eq!(syncs.into_inner(), 1);
    }

    #[test]
    fn a_sync_that_fails_fails_those_it_was_for_and_no_others() {
        let committer = Committer::default();
        assert_eq!(committer.commit(|| Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(committer.commit(|| Ok(())), Ok(()));
    }
}
