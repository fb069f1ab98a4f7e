//! One server's actor: turns messages into events, asks the pure machine, carries out its commands.

mod actor;
mod message;
mod standing;

pub(crate) use actor::{ServerActor, ServerArguments};
pub(crate) use message::ServerMessage;
pub(crate) use standing::Standing;
