//! The signals of warden and keepers, as a descriptor.

use std::io;

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};

/// Takes SIGCHLD, and blocks those with which a person or a service manager ends programs: warden and keepers end
/// when the hub does, and not before. Keepers inherit both, and a descriptor reads the signals of its reader.
pub(super) fn taken() -> io::Result<SignalFd> {
    let mut blocked = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        blocked.add(signal);
    }
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    blocked.add(Signal::SIGCHLD);
    blocked.thread_block()?;
    Ok(SignalFd::with_flags(
        &children,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// Reads what is there, so that the descriptor speaks again at the next signal.
pub(super) fn drain(signals: &SignalFd) {
    while let Ok(Some(_)) = signals.read_signal() {}
}
