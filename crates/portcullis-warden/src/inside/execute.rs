//! Executes a server's program, in the working directory that the keeper is in.

use std::{
    ffi::{CString, OsStr},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    process::Command,
};

use nix::{
    libc::POSIX_SPAWN_SETSID,
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp},
    sys::signal::{SigSet, Signal},
};
use rustix::{io::Errno, process::Pid};

use super::system;
use crate::{Limits, Order};

/// Returns once the program is being executed, with a session and a process group of its own, no signal blocked and
/// none ignored. The keeper's copies of the pipes are closed then.
pub(super) fn execute(order: &Order, pipes: [OwnedFd; 3]) -> io::Result<Pid> {
    if order.limits == Limits::default() {
        match execute_directly(order, &pipes) {
            // A script without `#!`: `execvp(3)` has the shell read it, `posix_spawnp(3)` does not.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOEXEC) => {}
            done => return done,
        }
    }
    execute_by_fork(order, pipes)
}

/// By `posix_spawn(3)`, which makes no copy of this process: a start takes one fork, the keeper's, and not two. It
/// knows nothing of limits.
fn execute_directly(order: &Order, pipes: &[OwnedFd; 3]) -> io::Result<Pid> {
    let mut actions = PosixSpawnFileActions::init()?;
    for (pipe, standard) in pipes.iter().zip(0..) {
        actions.add_dup2(pipe.as_raw_fd(), standard)?;
    }
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigmask(&SigSet::empty())?;
    // The one that this process ignores, as each program of the standard library does; what is ignored is inherited.
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::from_bits_retain(POSIX_SPAWN_SETSID.into()),
    )?;
    let program = text([order.program.as_os_str()])?;
    let mut arguments = vec![program.clone()];
    for argument in &order.args {
        arguments.push(text([argument.as_os_str()])?);
    }
    let mut environment = Vec::with_capacity(order.environment.len());
    for (name, value) in &order.environment {
        environment.push(text([name.as_os_str(), OsStr::new("="), value.as_os_str()])?);
    }
    let pid = posix_spawnp(&program, &actions, &attributes, &arguments, &environment)?;
    Pid::from_raw(pid.as_raw()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// With a copy of this process that limits itself before it executes the program, or has the shell read it.
fn execute_by_fork(order: &Order, [stdin, stdout, stderr]: [OwnedFd; 3]) -> io::Result<Pid> {
    #[expect(clippy::disallowed_methods, reason = "this is the door for spawning")]
    let mut command = Command::new(&order.program);
    command
        .args(&order.args)
        .env_clear()
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr);
    for (name, value) in &order.environment {
        command.env(name, value);
    }
    system::prepare(&mut command, order.limits);
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// The parts in one, as the system takes it.
fn text<const N: usize>(parts: [&OsStr; N]) -> io::Result<CString> {
    let bytes = parts.map(OsStrExt::as_bytes).concat();
    // As the kernel says it where it reads such a text.
    CString::new(bytes).map_err(|_| io::Error::from(Errno::INVAL))
}
