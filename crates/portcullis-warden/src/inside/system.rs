//! The only unsafe code: fork, what runs between a fork and the program it is for, and closing what is not ours.

#![expect(
    unsafe_code,
    reason = "fork, a hook before exec, and descriptors without an owner: no safe call does these"
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
