//! What the end-to-end tests share: a folder of their own, the program with a deadline, servers' definitions, and
//! the end of processes seen as an event.
//!
//! The tests stand in `e2e/`, one idea a file. They use the program as people do, by its command line and its
//! output, and the hub as embedders do. Nothing waits for a time to pass: what is waited for is an event, a line or
//! the end of a process, and [`DEADLINE`] only ends a test that would hang.
//!
//! Deliberately absent: mocks. Servers are real, or scripted ones in processes of their own.

mod client;
mod folder;
mod process;
mod program;
mod servers;
mod terminal;

use std::time::Duration;

pub use client::Client;
pub use folder::Folder;
pub use process::{check_gone, is_gone, pids, wait_until_gone};
pub use program::{Finished, Program, Running};
pub use servers::{mcp_servers, pair, real, scripted};

/// Nothing that works takes so long, on a busy machine either.
pub const DEADLINE: Duration = Duration::from_secs(30);
