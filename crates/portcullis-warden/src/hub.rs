//! The hub's side: starts a warden and asks it for keepers.

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt},
    process::{PidfdFlags, getpid, pidfd_open},
};

use crate::{Error, Program, channel};

/// How long a program may take to become a warden. It takes a few milliseconds.
const START_WAIT: Duration = Duration::from_secs(10);

/// A running warden. Dropped, it takes no more requests and ends when its last keeper has; keepers that are at work
/// go on until their sockets close.
#[derive(Debug)]
pub struct Warden {
    socket: Option<OwnedFd>,
    child: Option<Child>,
}

/// What is on the hub's side of a keeper. Closing `control` stops the server; so does the hub's end, however it
/// comes.
#[derive(Debug)]
pub struct Launch {
    /// The server's standard input.
    pub stdin: PipeWriter,
    /// The server's standard output.
    pub stdout: PipeReader,
    /// The server's standard error.
    pub stderr: PipeReader,
    /// Takes an encoded [`Order`](crate::Order) and perhaps [`STOP`](crate::STOP), gives
    /// [`Report`](crate::Report)s.
    pub control: UnixStream,
}

impl Warden {
    /// Executes `program` as a warden and waits, at most 10 s, until it answers. It takes a few milliseconds; in
    /// async code call it where blocking is allowed.
    ///
    /// # Errors
    /// [`Error::Execute`], [`Error::NotAWarden`], [`Error::Version`] and [`Error::Refused`] for what the program
    /// does, [`Error::System`] for what the operating system refuses.
    pub fn start(program: &Program) -> Result<Self, Error> {
        let program = match program {
            // Also right where the file was replaced or removed since.
            Program::Itself => PathBuf::from("/proc/self/exe"),
            Program::Path(path) => path.clone(),
        };
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(system("make a socket pair"))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(START_WAIT))
            .map_err(system("set a deadline"))?;
        // Before the program runs: it finds the greeting there. Kernels before 5.3 have no pidfd; then the socket
        // alone tells the hub's end.
        let hub = pidfd_open(getpid(), PidfdFlags::empty()).ok();
        let descriptors: Vec<_> = hub.iter().map(AsFd::as_fd).collect();
        channel::send(&socket, &[channel::HELLO, channel::VERSION], &descriptors).map_err(|source| {
            Error::System {
                what: "send a greeting",
                source,
            }
        })?;
        let child = execute(&program, theirs)?;
        let mut warden = Self {
            socket: Some(socket),
            child: Some(child),
        };
        if let Err(error) = warden.check_answer(&program) {
            // It may be any program, and stay for good.
            let _ = warden.child.as_mut().map(Child::kill);
            return Err(error);
        }
        Ok(warden)
    }

    /// The warden's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Asks for a keeper, and returns without waiting for it. Nothing runs before the keeper has read an order.
    ///
    /// # Errors
    /// [`Error::Gone`] where the warden has ended, [`Error::Busy`] where it does not keep up, [`Error::System`]
    /// where pipes cannot be made.
    pub fn launch(&self) -> Result<Launch, Error> {
        let pipe = || {
            io::pipe().map_err(|source| Error::System {
                what: "make a pipe",
                source,
            })
        };
        let ((their_stdin, stdin), (stdout, their_stdout), (stderr, their_stderr)) =
            (pipe()?, pipe()?, pipe()?);
        let (control, their_control) = UnixStream::pair().map_err(|source| Error::System {
            what: "make a socket pair",
            source,
        })?;
        let theirs = [
            their_stdin.as_fd(),
            their_stdout.as_fd(),
            their_stderr.as_fd(),
            their_control.as_fd(),
        ];
        let socket = self.socket.as_ref().ok_or(Error::Gone)?;
        match channel::send(socket, &[channel::KEEPER], &theirs) {
            Ok(()) => Ok(Launch {
                stdin,
                stdout,
                stderr,
                control,
            }),
            Err(source) => Err(match Errno::from_io_error(&source) {
                Some(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Error::Gone,
                Some(Errno::AGAIN | Errno::TOOMANYREFS) => Error::Busy,
                _ => Error::System {
                    what: "pass descriptors",
                    source,
                },
            }),
        }
    }

    fn check_answer(&self, program: &Path) -> Result<(), Error> {
        let program = || program.to_owned();
        let answer = self
            .socket
            .as_ref()
            .and_then(|socket| channel::receive(socket).ok())
            .unwrap_or_default();
        match answer.bytes.as_slice() {
            [channel::VERSION, 0] => Ok(()),
            [channel::VERSION, refusal] => {
                let reason = channel::REFUSALS.get(usize::from(*refusal) - 1);
                Err(Error::Refused {
                    reason: reason.copied().unwrap_or("it does not say why"),
                })
            }
            [_, _] => Err(Error::Version { program: program() }),
            _ => Err(Error::NotAWarden { program: program() }),
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // Its end tells the warden to take no more.
        self.socket = None;
        if let Some(mut child) = self.child.take() {
            // A thread, since nobody else may wait for it and a dead child that nobody waits for stays as a zombie.
            // It ends with the last keeper, some seconds from now; where no thread can be had the zombie goes with
            // this process.
            let reaper = thread::Builder::new()
                .name("warden-reaper".into())
                .stack_size(64 * 1024);
            let _ = reaper.spawn(move || child.wait());
        }
    }
}

/// Executes `program` as a warden, `socket` being its standard input. Never with `pre_exec`, which would make this a
/// fork of the whole host.
fn execute(program: &Path, socket: OwnedFd) -> Result<Child, Error> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the door through which the warden itself is started"
    )]
    let mut command = Command::new(program);
    command
        .arg0(channel::NAME)
        .arg(channel::ARGUMENT)
        .env_clear()
        .stdin(Stdio::from(File::from(socket)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // The host may need this to find its own libraries.
    #[expect(
        clippy::disallowed_methods,
        reason = "what the loader of this very program was told"
    )]
    if let Some(folders) = std::env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", folders);
    }
    command.spawn().map_err(|source| Error::Execute {
        program: program.to_owned(),
        source,
    })
}

fn system(what: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::System {
        what,
        source: errno.into(),
    }
}
