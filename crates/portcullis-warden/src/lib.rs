//! A small process that parents the servers of a hub and lets none of their processes survive it.
//!
//! A hub that kills a process group ends neither what left the group (`setsid`, a daemon) nor anything at all once
//! the hub itself was killed. So, on Linux, a hub has one *warden*: the hub's own program, executed once more. Over a
//! Unix socket the hub hands it the ends of three pipes for each server; the warden forks a *keeper*, which becomes a
//! child subreaper, starts the server and then only waits. When the server exits, when the hub says so, when the
//! hub's end of the keeper's socket closes or when the hub's pidfd says that the hub is dead, the keeper ends the
//! server, and then kills each child that it has or inherits until the kernel says that it has none.
//!
//! ```no_run
//! fn main() -> Result<(), portcullis_warden::Error> {
//!     // First of all: where this process is the warden, this never returns.
//!     portcullis_warden::init();
//!     // … the host's own start …
//! #   #[cfg(target_os = "linux")] {
//!     let warden = portcullis_warden::Warden::start(&portcullis_warden::Program::Itself)?;
//!     let launch = warden.launch()?;
//!     // Writes an order to `launch.control`; the server is then behind `launch.stdin` and `launch.stdout`.
//! #   drop(launch); }
//!     Ok(())
//! }
//! ```
//!
//! # What is guaranteed
//!
//! - No descendant of a server outlives it, or the hub, for longer than the stop sequence: daemons, sessions of
//!   their own, processes deaf to SIGTERM, what hangs under a subreaper of the server's. The hub may end in any way.
//! - Only processes that descend from the server are ever signalled: a keeper kills its own children, which cannot
//!   be reaped (nor their ids be given away) behind its back, and the process groups of children that are dead but
//!   not reaped yet. A server has a session of its own, so nobody else is in those groups.
//! - A group is killed in one step, so a fork bomb inside a group ends with it. One whose every process opens a
//!   session of its own is killed generation by generation, quicker than it forks; give such servers a
//!   [`Limits::processes`].
//! - The cost of a call does not change: warden and keeper close their copies of the pipes. The host never forks: it
//!   spawns the warden without `pre_exec`, so its size does not matter. A start takes one fork, the warden's; the
//!   keeper forks once more only for a server with [`Limits`].
//! - A keeper that is killed leaves its orphans to the warden, which kills them. A warden that is killed leaves its
//!   keepers at work, and the hub starts another one.
//!
//! # What is not
//!
//! - The killing of keeper *and* warden. The servers run as the hub's user, so nothing stops them from doing that.
//! - Processes that somebody else starts for the server: a container daemon, systemd, cron, at.
//! - A process that gained privileges (a set-user-ID program) cannot be killed by a warden without them. The keeper
//!   says so after a while and stays until it is gone. The same goes for one that hangs in the kernel.
//! - Systems without `/proc`: the warden refuses to start there.
//!
//! A server runs with the user, the groups and the umask that the hub had when the warden was started, and with no
//! signal ignored or blocked, whatever the hub ignores. Where `main`
//! did not call [`init`] and no path was given ([`init_with`]), a supervisor has process groups alone: what leaves
//! its group then survives.
//!
//! # Other systems
//!
//! There the crate has [`init`], which does nothing, and no warden. macOS has no subreaper, so a supervisor falls back to
//! process groups, which are what it allows. Windows has job objects, which would do, and this crate does not use them:
//! there a supervisor ends the server's process alone. Neither is compiled or tried by this project's CI.
//!
//! # Deliberately absent
//!
//! An async runtime, threads, MCP, and any decision about when a server should run.

mod error;
mod role;

#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod order;
#[cfg(target_os = "linux")]
mod report;

#[cfg(target_os = "linux")]
mod channel;
#[cfg(target_os = "linux")]
mod hub;
#[cfg(target_os = "linux")]
mod inside;

pub use error::Error;
#[cfg(target_os = "linux")]
pub use hub::{Launch, Warden};
#[cfg(target_os = "linux")]
pub use limits::Limits;
#[cfg(target_os = "linux")]
pub use order::{Order, STOP};
#[cfg(target_os = "linux")]
pub use report::{Report, Step};
pub use role::{Program, init, init_with, program};
