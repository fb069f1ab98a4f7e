//! The warden itself: forks keepers, and clears up after one that was killed.

use std::{
    collections::BTreeSet,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use super::{Post, keeper, signals, sweep, system, wait_for};
use crate::channel;

/// How long to wait before orphans that would not die are told again.
const AGAIN: Duration = Duration::from_secs(1);

/// Works until the hub is gone, and then until no keeper is left.
pub(super) fn serve(requests: OwnedFd, post: Post) -> io::Result<()> {
    // INVARIANT: the ids of all keepers that were not reaped.
    let mut keepers = BTreeSet::new();
    // None when the hub is gone.
    let mut requests = Some(requests);
    let mut strays = false;
    loop {
        let open = requests.as_ref().map(|requests| requests as &dyn AsFd);
        let hub = post
            .hub
            .as_ref()
            .filter(|_| open.is_some())
            .map(|hub| hub as &dyn AsFd);
        let [requested, hub_ended, child_ended] =
            wait_for([open, hub, Some(&post.signals)], strays.then_some(AGAIN))?;
        if requested {
            take_request(&mut requests, &post, &mut keepers);
        }
        if hub_ended {
            requests = None;
        }
        if child_ended || strays {
            signals::drain(&post.signals);
            strays = clear_up(&mut keepers)?;
        }
        if requests.is_none() && keepers.is_empty() && !strays {
            return Ok(());
        }
    }
}

/// Reaps keepers, and ends what killed ones left behind. Whether there is something that would not die.
fn clear_up(keepers: &mut BTreeSet<i32>) -> io::Result<bool> {
    loop {
        let round = sweep::round(keepers)?;
        for (child, _) in &round.dead {
            keepers.remove(&child.as_raw_pid());
        }
        if round.dead.is_empty() {
            return Ok(round.told > 0);
        }
    }
}

/// Forks a keeper for whom the hub has asked. `requests` is closed where there will be no more.
fn take_request(requests: &mut Option<OwnedFd>, post: &Post, keepers: &mut BTreeSet<i32>) {
    let packet = match requests.as_ref().map(channel::receive) {
        Some(Ok(packet)) if packet.bytes == [channel::KEEPER] => packet,
        _ => {
            *requests = None;
            return;
        }
    };
    let Ok([stdin, stdout, stderr, control]) = <[OwnedFd; 4]>::try_from(packet.descriptors) else {
        // Too many are open. What came is closed, so the hub hears that there is no keeper.
        return;
    };
    match system::fork() {
        Ok(Some(keeper)) => {
            keepers.insert(keeper.as_raw_pid());
        }
        Ok(None) => {
            // The warden alone holds its end of this, so that the hub sees the warden's end.
            *requests = None;
            let control = UnixStream::from(control);
            // A panic must not unwind into the warden's own loop, of which this process has a copy.
            let kept = catch_unwind(AssertUnwindSafe(|| {
                keeper::keep(post, [stdin, stdout, stderr], &control)
            }));
            std::process::exit(i32::from(!matches!(kept, Ok(Ok(())))));
        }
        // As above.
        Err(_) => {}
    }
}
