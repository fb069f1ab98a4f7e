//! One server's actor: turns messages into events, asks the pure machine, carries out its commands.

mod actor;
mod desired;
mod message;

pub(crate) use actor::{ServerActor, ServerArguments};
pub(crate) use desired::{Desired, Order};
pub(crate) use message::ServerMessage;
