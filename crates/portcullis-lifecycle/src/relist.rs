use std::time::Duration;

/// When a server's tools are listed anew: soon after it says that they changed, and when its list is no longer fresh.
///
/// A burst of changes costs two listings at most, one at its start and one once it is quiet, and the last change is
/// never lost, also where a listing fails. Like the machine it is pure: the shell says what happened and when, and
/// carries out what comes back.
///
/// ```
/// use std::time::Duration;
/// use portcullis_lifecycle::{Relist, Relisting};
///
/// let at = Duration::from_millis;
/// let mut relist = Relist::new(at(500));
/// assert_eq!(relist.changed(at(0)), [Relisting::List]);
/// assert_eq!(relist.changed(at(100)), []);
/// assert_eq!(relist.listed(at(150), true, None), [Relisting::WakeAt(at(600))]);
/// assert_eq!(relist.tick(at(600)), [Relisting::List]);
/// ```
#[derive(Debug)]
pub struct Relist {
    quiet: Duration,
    /// A listing runs.
    running: bool,
    /// Something changed that no listing has begun after.
    dirty: bool,
    burst: Option<Burst>,
    /// When the list stops being fresh.
    stale_at: Option<Duration>,
    /// Listings that failed in a row.
    failures: u32,
}

/// Changes that come one upon the other.
#[derive(Debug, Clone, Copy)]
struct Burst {
    began: Duration,
    /// The last change, or the last listing that failed.
    last: Duration,
    quiet: Duration,
}

/// What the shell has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relisting {
    /// List now, and report [`Relist::listed`].
    List,
    /// Call [`Relist::tick`] at this time. Replaces the time named before.
    WakeAt(Duration),
}

/// A burst that lasts longer than so many times the quiet that would end it counts as several: its tools would
/// otherwise never be seen.
const LONGEST_BURST: u32 = 60;
/// The least time between two listings for want of freshness.
const FRESH_AT_LEAST: Duration = Duration::from_secs(10);
/// A listing that fails again and again is tried after so many times the quiet at most, as a power of two.
const MOST_DOUBLINGS: u32 = 6;

impl Burst {
    fn due(&self) -> Duration {
        let longest = self.quiet.saturating_mul(LONGEST_BURST);
        self.last
            .saturating_add(self.quiet)
            .min(self.began.saturating_add(longest))
    }
}

impl Relist {
    /// For a connection whose tools have just been listed. `quiet` is how long nothing must change for a burst to be
    /// over.
    #[must_use]
    pub fn new(quiet: Duration) -> Self {
        Self {
            quiet,
            running: false,
            dirty: false,
            burst: None,
            stale_at: None,
            failures: 0,
        }
    }

    /// The server says at `now` that its tools changed.
    pub fn changed(&mut self, now: Duration) -> Vec<Relisting> {
        let mut out = Vec::new();
        // One that is over begins anew, although its end was not dealt with yet: a listing runs, or the tick is late.
        self.burst.take_if(|burst| burst.due() <= now);
        let (quiet, fresh) = (self.quiet, self.burst.is_none());
        let burst = self.burst.get_or_insert(Burst {
            began: now,
            last: now,
            quiet,
        });
        burst.last = now;
        self.dirty = true;
        if fresh && !self.running {
            self.list(&mut out);
        }
        self.arm(&mut out);
        out
    }

    /// The time that [`Relisting::WakeAt`] named has come. One too early or too many does no harm.
    pub fn tick(&mut self, now: Duration) -> Vec<Relisting> {
        let mut out = Vec::new();
        if self.burst.is_some_and(|burst| burst.due() <= now) && !self.running {
            self.burst = None;
            if self.dirty {
                self.list(&mut out);
            }
        }
        if self.stale_at.is_some_and(|at| at <= now) && !self.running && self.burst.is_none() {
            self.list(&mut out);
        }
        self.arm(&mut out);
        out
    }

    /// A listing ended at `now`: well, and then fresh for `ttl` where the server says so, or not.
    pub fn listed(&mut self, now: Duration, well: bool, ttl: Option<Duration>) -> Vec<Relisting> {
        let mut out = Vec::new();
        self.running = false;
        if well {
            self.failures = 0;
            self.stale_at = stale_at(now, ttl);
        } else {
            // What was to be seen has not been seen: once more, a while later.
            self.failures = self.failures.saturating_add(1);
            let doublings = self.failures.min(MOST_DOUBLINGS);
            self.dirty = true;
            self.burst = Some(Burst {
                began: now,
                last: now,
                quiet: self.quiet.saturating_mul(2_u32.saturating_pow(doublings)),
            });
        }
        if self.burst.is_some_and(|burst| burst.due() <= now) {
            return self.tick(now);
        }
        self.arm(&mut out);
        out
    }

    /// The list that the shell has is of `now`, and fresh for `ttl`; with none, until something changes.
    pub fn fresh_for(&mut self, now: Duration, ttl: Option<Duration>) -> Vec<Relisting> {
        self.stale_at = stale_at(now, ttl);
        let mut out = Vec::new();
        self.arm(&mut out);
        out
    }

    fn list(&mut self, out: &mut Vec<Relisting>) {
        self.running = true;
        self.dirty = false;
        self.stale_at = None;
        out.push(Relisting::List);
    }

    /// While a listing runs its end is waited for, and a burst's end with it.
    fn arm(&self, out: &mut Vec<Relisting>) {
        if self.running {
            return;
        }
        let burst = self.burst.map(|burst| burst.due());
        if let Some(at) = burst.into_iter().chain(self.stale_at).min() {
            out.push(Relisting::WakeAt(at));
        }
    }
}

fn stale_at(now: Duration, ttl: Option<Duration>) -> Option<Duration> {
    ttl.map(|ttl| now.saturating_add(ttl.max(FRESH_AT_LEAST)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUIET: Duration = Duration::from_millis(500);

    /// The machine with its shell: a listing takes so long, and notes what the server's tools were when it began.
    struct World {
        relist: Relist,
        now: u64,
        wake: Option<u64>,
        takes: u64,
        ends: Option<(u64, bool)>,
        /// How often the tools changed, and how much of that the last listing that went well has seen.
        changes: u32,
        seen: u32,
        begun: Vec<(u64, u32)>,
    }

    impl World {
        fn new(takes: u64) -> Self {
            Self {
                relist: Relist::new(QUIET),
                now: 0,
                wake: None,
                takes,
                ends: None,
                changes: 0,
                seen: 0,
                begun: Vec::new(),
            }
        }

        fn carry_out(&mut self, out: Vec<Relisting>, well: bool) {
            for command in out {
                match command {
                    Relisting::List => {
                        assert!(self.ends.is_none(), "one listing at a time");
                        self.begun.push((self.now, self.changes));
                        self.ends = Some((self.now + self.takes, well));
                    }
                    Relisting::WakeAt(at) => self.wake = Some(u64::try_from(at.as_millis()).unwrap()),
                }
            }
        }

        fn changed(&mut self, well: bool) {
            self.changes += 1;
            let out = self.relist.changed(Duration::from_millis(self.now));
            self.carry_out(out, well);
        }

        /// Lets time pass, with all that is due meanwhile.
        fn pass(&mut self, millis: u64, well: bool) {
            let end = self.now + millis;
            loop {
                let ends = self.ends.map(|(at, _)| at);
                let Some(next) = ends.into_iter().chain(self.wake).min().filter(|at| *at <= end) else {
                    break;
                };
                self.now = self.now.max(next);
                let now = Duration::from_millis(self.now);
                let out = match self.ends {
                    Some((at, well)) if at <= self.now => {
                        self.ends = None;
                        if well {
                            self.seen = self.begun.last().unwrap().1;
                        }
                        self.relist.listed(now, well, None)
                    }
                    _ => {
                        self.wake = None;
                        self.relist.tick(now)
                    }
                };
                self.carry_out(out, well);
            }
            self.now = end;
        }
    }

    /// Report 27: a burst, one each so often, some during the listing.
    #[test]
    fn a_burst_costs_two_listings_and_the_last_change_is_seen() {
        for (gap, count, takes) in [
            (0, 200, 30),
            (100, 40, 30),
            (499, 20, 30),
            (10, 100, 2_000),
            (1, 1, 30),
        ] {
            let mut world = World::new(takes);
            for _ in 0..count {
                world.changed(true);
                world.pass(gap, true);
            }
            world.pass(60_000, true);
            assert!(world.begun.len() <= 2, "{gap} ms apart: {:?}", world.begun);
            assert_eq!(world.seen, count, "{gap} ms apart");
        }
        // Far enough apart to be bursts of their own: one listing each.
        let mut world = World::new(30);
        for _ in 0..20 {
            world.changed(true);
            world.pass(1_100, true);
        }
        assert_eq!(world.begun.len(), 20);
    }

    /// Else its end would be listed for, and then the new burst twice.
    #[test]
    fn a_change_that_finds_the_burst_before_over_begins_one_of_its_own() {
        let seconds = Duration::from_secs;
        let mut relist = Relist::new(QUIET);
        assert_eq!(relist.changed(seconds(0)), [Relisting::List]);
        // While that listing runs, and far longer than a burst lasts.
        assert_eq!(relist.changed(seconds(1)), []);
        assert_eq!(relist.changed(seconds(40)), []);
        let end = seconds(40) + QUIET;
        assert_eq!(relist.listed(seconds(40), true, None), [Relisting::WakeAt(end)]);
        assert_eq!(relist.tick(end), [Relisting::List]);
        assert_eq!(relist.listed(end, true, None), []);
    }

    #[test]
    fn a_burst_without_end_does_not_hide_the_tools_for_ever() {
        let mut world = World::new(30);
        for _ in 0..3_000 {
            world.changed(true);
            world.pass(100, true);
        }
        let bursts = 300_000 / (500 * u64::from(LONGEST_BURST));
        let most = usize::try_from(2 * (bursts + 1)).unwrap();
        assert!((10..=most).contains(&world.begun.len()), "{}", world.begun.len());
    }

    #[test]
    fn a_listing_that_fails_is_made_again_ever_more_slowly() {
        let mut world = World::new(0);
        world.changed(false);
        world.pass(600_000, false);
        let tries = world.begun.len();
        assert!((10..40).contains(&tries), "{tries}");
        world.pass(60_000, true);
        assert_eq!(world.seen, 1);
    }

    #[test]
    fn a_list_is_fresh_for_as_long_as_its_server_says() {
        let seconds = Duration::from_secs;
        let mut relist = Relist::new(QUIET);
        assert_eq!(
            relist.fresh_for(seconds(0), Some(seconds(60))),
            [Relisting::WakeAt(seconds(60))]
        );
        assert_eq!(relist.tick(seconds(59)), [Relisting::WakeAt(seconds(60))]);
        assert_eq!(relist.tick(seconds(60)), [Relisting::List]);
        // What is never fresh is not asked for without a pause.
        assert_eq!(
            relist.listed(seconds(61), true, Some(Duration::ZERO)),
            [Relisting::WakeAt(seconds(71))]
        );
        assert_eq!(relist.tick(seconds(71)), [Relisting::List]);
        assert_eq!(relist.listed(seconds(72), true, None), []);
    }

    proptest! {
        /// Whatever comes when: one listing at a time, two at most for a burst, and in the end all is seen.
        #[test]
        fn nothing_is_lost_and_little_is_listed(
            takes in 0_u64..1_500,
            steps in proptest::collection::vec((0_u64..1_200, any::<bool>()), 0..200),
        ) {
            let mut world = World::new(takes);
            let mut bursts = 0;
            let mut last = None;
            for (gap, well) in &steps {
                if last.is_none_or(|last| world.now - last >= 500) {
                    bursts += 1;
                }
                last = Some(world.now);
                world.changed(*well);
                world.pass(*gap, *well);
            }
            world.pass(600_000, true);
            prop_assert_eq!(world.seen, world.changes);
            if steps.iter().all(|(_, well)| *well) {
                prop_assert!(world.begun.len() <= 2 * bursts, "{} for {bursts}", world.begun.len());
            }
        }
    }
}
