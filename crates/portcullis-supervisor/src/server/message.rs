use portcullis_lifecycle::Event;
use ractor::RpcReplyPort;

use crate::{connect::Established, tools::ToolList};

/// What a server's actor is told. Each message about a connection carries its generation: what comes late, about
/// a connection that is no more, is dropped.
pub(crate) enum ServerMessage {
    /// An event for the machine: a timer, a demand, an order.
    Event(Event),
    /// A connection came up.
    Established {
        generation: u64,
        established: Box<Established>,
    },
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
}
