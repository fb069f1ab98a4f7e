//! Takes edits of a folder of policies once they are whole.
//!
//! The folder is looked at, not listened to: what the file system says of each file shows edits in place, renames,
//! links that are turned around and folders that come and go, on every file system. Notifications would save half of
//! a wait that is wanted anyway, and need all this for the file systems without them.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::{
    policies::Policies,
    policy_folder::{FolderStamp, PolicyFolder},
};

/// When a folder that stood still is read once more. Some file systems tell times in seconds: an edit in the same
/// second as the reading leaves no other trace.
const SECOND_LOOK: Duration = Duration::from_secs(3);
/// Of the time, looking at the folder takes at most one part in so many.
const SHARE: u32 = 20;

/// However little is waited for, the folder is not looked at without end.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// When a folder has stood still. Pure: the time is told.
#[derive(Debug)]
struct Stillness {
    still: Duration,
    seen: FolderStamp,
    since: Duration,
    /// What was taken last.
    taken: FolderStamp,
    second_look: Option<Duration>,
}

impl Stillness {
    /// A folder that looks like `taken`, which was read when it did.
    fn new(still: Duration, taken: FolderStamp) -> Self {
        Self {
            still,
            seen: taken.clone(),
            since: Duration::ZERO,
            taken,
            second_look: Some(SECOND_LOOK),
        }
    }

    /// Whether the folder, which looks so now, is to be read.
    fn is_due(&mut self, stamp: FolderStamp, now: Duration) -> bool {
        if stamp != self.seen {
            self.seen = stamp;
            self.since = now;
            return false;
        }
        if now.saturating_sub(self.since) < self.still {
            return false;
        }
        if self.seen != self.taken {
            self.taken = self.seen.clone();
            self.second_look = Some(now + SECOND_LOOK);
            return true;
        }
        let due = self.second_look.is_some_and(|at| at <= now);
        if due {
            self.second_look = None;
        }
        due
    }

    /// It was written to while it was read: it has not stood still.
    fn moved(&mut self, now: Duration) {
        self.taken = FolderStamp::Files(Vec::new());
        self.since = now;
    }
}

/// Watches until the policies are gone. `first` is how the folder looked before it was read.
pub(crate) async fn watch(policies: Weak<Policies>, folder: PolicyFolder, first: FolderStamp) {
    let began = Instant::now();
    let still = folder.standing_still();
    let mut stillness = Stillness::new(still, first);
    let mut pause = (still / 2).max(SHORTEST_PAUSE);
    loop {
        sleep(pause).await;
        let Some(policies) = policies.upgrade() else {
            return;
        };
        let looked_at = folder.clone();
        let before = began.elapsed();
        let Ok(stamp) = spawn_blocking(move || looked_at.stamp()).await else {
            continue;
        };
        let now = began.elapsed();
        pause = (still / 2).max((now - before) * SHARE).max(SHORTEST_PAUSE);
        if stillness.is_due(stamp.clone(), now) && policies.reload(Some(stamp)).await.is_none() {
            stillness.moved(began.elapsed());
        }
    }
}

/// Starts to watch, where that is wanted.
pub(crate) fn start(policies: &Arc<Policies>) {
    let Some(folder) = policies.folder().filter(|folder| folder.is_watched()).cloned() else {
        return;
    };
    // Never a stamp of a folder: what was loaded at the start is compared with what is there now.
    let first = FolderStamp::Files(Vec::new());
    tokio::spawn(watch(Arc::downgrade(policies), folder, first));
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn stamp(number: u64) -> FolderStamp {
        let file = (number, None, (number, 0, 0));
        FolderStamp::Files(vec![("a".into(), Some(file))])
    }

    /// Looks at what the folder was at each 100 ms; gives when it was read, in the same unit.
    fn check(looks: impl IntoIterator<Item = FolderStamp>, expected: &[u32]) {
        let mut stillness = Stillness::new(Duration::from_millis(500), stamp(0));
        stillness.second_look = None;
        let unit = Duration::from_millis(100);
        let read: Vec<_> = (0..)
            .zip(looks)
            .filter_map(|(at, stamp)| stillness.is_due(stamp, unit * at).then_some(at))
            .collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn an_edit_is_taken_once_it_has_stood_still() {
        check((0..40).map(|_| stamp(0)), &[]);
        // At 3 it changes, at 8 it has stood still for 500 ms; 3 s later it is looked at once more.
        check((0..60).map(|at| stamp(u64::from(at >= 3))), &[8, 38]);
    }

    #[test]
    fn many_quick_edits_are_taken_as_one() {
        check((0..600).map(|at| stamp(at.min(500))), &[505, 535]);
    }

    #[test]
    fn a_folder_that_vanishes_for_a_moment_is_not_read_meanwhile() {
        let gone = || FolderStamp::Unreadable(io::ErrorKind::NotFound);
        let looks = (0..20).map(|at| if (3..6).contains(&at) { gone() } else { stamp(0) });
        check(looks, &[]);
        let looks = (0..20).map(|at| if at >= 3 { gone() } else { stamp(0) });
        check(looks, &[8]);
    }
}
