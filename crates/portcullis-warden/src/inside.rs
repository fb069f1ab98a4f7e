//! What runs in the warden's process and in its keepers'. All of it has one thread and forks only from there.

mod children;
mod execute;
mod keeper;
mod serve;
mod signals;
mod sweep;
mod system;

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use nix::sys::signalfd::SignalFd;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{getpid, set_child_subreaper, setsid},
};

use crate::channel;

/// Exit codes of a warden; nobody but a person with `strace` sees them.
const UNUSABLE: i32 = 2;

/// Where this process was executed as a warden, acts as one and exits.
pub(crate) fn become_warden_if_asked() {
    let mut arguments = std::env::args_os();
    let named = arguments.next().is_some_and(|name| name == channel::NAME);
    if !(named
        && arguments
            .next()
            .is_some_and(|argument| argument == channel::ARGUMENT))
    {
        return;
    }
    let code = match act() {
        Ok(()) => 0,
        // The hub sees that nobody answers, and says what that means.
        Err(_) => UNUSABLE,
    };
    std::process::exit(code);
}

/// What warden and keepers watch over besides their sockets.
struct Post {
    /// The hub's pidfd, where the kernel has them.
    hub: Option<OwnedFd>,
    /// Speaks when a child has ended.
    signals: SignalFd,
}

fn act() -> io::Result<()> {
    // Whatever the host left open for its children is not ours: a pipe held open here would never end elsewhere.
    system::close_all_but_standard();
    system::ignore_nothing();
    let requests = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let greeting = channel::receive(&requests)?;
    if !matches!(greeting.bytes.as_slice(), [channel::HELLO, _]) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let answer = |code: usize| {
        channel::send(
            &requests,
            &[channel::VERSION, u8::try_from(code).unwrap_or(u8::MAX)],
            &[],
        )
    };
    // A terminal's signals and its end are for the hub.
    let _ = setsid();
    // A folder that the hub was started in can be unmounted; an order names each server's.
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"portcullis-ward");
    if children::listed().is_err() {
        return answer(1);
    }
    if !system::has_one_thread() {
        return answer(2);
    }
    let (Ok(signals), Ok(())) = (signals::taken(), set_child_subreaper(Some(getpid()))) else {
        return answer(3);
    };
    answer(0)?;
    let hub = greeting.descriptors.into_iter().next();
    serve::serve(requests, Post { hub, signals })
}

/// Waits until one of `descriptors` has something to say, its end included, or `wait` is over; says which have.
fn wait_for<const N: usize>(
    descriptors: [Option<&dyn AsFd>; N],
    wait: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled: Vec<PollFd<'_>> = descriptors
        .iter()
        .flatten()
        .map(|source| PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN))
        .collect();
    let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
    match poll(&mut polled, wait.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut told = polled.iter().map(|polled| !polled.revents().is_empty());
    Ok(descriptors.map(|source| source.is_some() && told.next() == Some(true)))
}
