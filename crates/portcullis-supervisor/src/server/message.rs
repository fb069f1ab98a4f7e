use portcullis_lifecycle::Event;
use ractor::RpcReplyPort;

use super::desired::Order;
use crate::{
    connect::{EraMemory, Established},
    tools::ToolList,
};

/// What a server's actor is told. Each message about a connection carries its generation: what comes late, about
/// a connection that is no more, is dropped.
pub(crate) enum ServerMessage {
    /// An event for the machine: a timer, a demand.
    Event(Event),
    /// What somebody wants of the server.
    Order(Order),
    /// A connection came up.
    Established {
        generation: u64,
        established: Box<Established>,
    },
    /// No connection came up.
    ConnectFailed {
        generation: u64,
        /// What the next attempt is to know.
        memory: EraMemory,
        reason: String,
    },
    /// The last call in flight on a connection that takes no more has ended.
    Drained { generation: u64 },
    /// The time to list the tools may have come.
    ListDue { generation: u64 },
    /// The server says that its tools changed.
    ToolsChanged { generation: u64 },
    /// A listing ended.
    Listed {
        generation: u64,
        result: Result<ToolList, String>,
    },
    /// Stop for good; answered when the server has been told.
    Stop(RpcReplyPort<()>),
    /// Fails the actor, to show that its neighbours do not notice.
    #[cfg(test)]
    Panic,
    /// How many tasks the actor holds.
    #[cfg(test)]
    Tasks(tokio::sync::oneshot::Sender<usize>),
}
