//! The only unsafe code: fork, what runs between a fork and the program it is for, closing what is not ours, and what
//! signals do.

#![expect(
    unsafe_code,
    reason = "fork, a hook before exec, descriptors without an owner, and signals: no safe call does these"
)]

use std::{fs, io, os::unix::process::CommandExt, process::Command};

use nix::{sys::signal::SigSet, unistd::ForkResult};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit, setsid};

use crate::Limits;

/// Closes each descriptor above the standard three.
pub(super) fn close_all_but_standard() {
    // SAFETY: this runs first of all in a process that was executed to be a warden. No code of ours has opened a
    // descriptor yet, and the host's code, which might own some from a constructor, does not run in this process.
    let closed = unsafe { nix::libc::syscall(nix::libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9.
    let Ok(listing) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<i32> = listing
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for descriptor in open {
        // SAFETY: as above; the listing's own descriptor is closed already, and closing it again is an error without
        // effect, since nothing was opened since.
        unsafe { nix::libc::close(descriptor) };
    }
}

/// Lets each signal that the host ignores do again what it does by itself. What is ignored is inherited, by this process
/// and by each that it starts: servers would be deaf to it, and where it is SIGCHLD no end of a child would be seen here.
/// SIGPIPE stays: the standard library has each program ignore it, and what spawns the servers sees to it.
pub(super) fn ignore_nothing() {
    for signal in 1..=nix::libc::SIGRTMAX() {
        if signal == nix::libc::SIGPIPE {
            continue;
        }
        // SAFETY: `old` is a plain struct of integers, for which zeroes are a value; both calls are given a pointer to it,
        // or none. Numbers that are no signal, or none that can be changed, are refused without effect. The default
        // action runs no code of this program.
        unsafe {
            let mut old: nix::libc::sigaction = std::mem::zeroed();
            if nix::libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0
                && old.sa_sigaction == nix::libc::SIG_IGN
            {
                nix::libc::signal(signal, nix::libc::SIG_DFL);
            }
        }
    }
}

/// Whether this process has one thread, which is what makes [`fork`] sound.
pub(super) fn has_one_thread() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Forks. The child gets `None`.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: a fork leaves the child with the calling thread alone, so locks that another thread holds would stay
    // locked. A warden has one thread: `has_one_thread` was asked before it answered the hub, and neither it nor a
    // keeper starts one.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Child => Ok(None),
        ForkResult::Parent { child } => Pid::from_raw(child.as_raw())
            .map(Some)
            .ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

/// Has `command`'s program begin with a session and a process group of its own, with no signal blocked, and within
/// `limits`.
pub(super) fn prepare(command: &mut Command, limits: Limits) {
    let before_exec = move || {
        setsid()?;
        // The keeper's own mask would be inherited.
        SigSet::empty().thread_set_mask()?;
        set_limits(limits)
    };
    // SAFETY: the hook runs in a forked child of a process with one thread, and makes system calls alone: it neither
    // allocates nor takes a lock.
    unsafe { command.pre_exec(before_exec) };
}

fn set_limits(limits: Limits) -> io::Result<()> {
    let resources = [
        Resource::As,
        Resource::Nofile,
        Resource::Nproc,
        Resource::Cpu,
        Resource::Fsize,
        Resource::Core,
    ];
    for (resource, wanted) in resources.into_iter().zip(limits.fields()) {
        let Some(wanted) = wanted else { continue };
        // Nobody but root may raise a limit, so a wish above the hub's own is that one.
        let most = getrlimit(resource)
            .maximum
            .map_or(wanted, |most| most.min(wanted));
        setrlimit(
            resource,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )?;
    }
    Ok(())
}
