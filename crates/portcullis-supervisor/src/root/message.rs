use portcullis_types::ServerId;
use ractor::RpcReplyPort;

use crate::server::Order;

/// What the root is told.
pub(crate) enum RootMessage {
    /// Start the actor of this server (again).
    Start(ServerId),
    /// Stop all servers for good; answered when each has been told.
    Stop(RpcReplyPort<()>),
    /// What is ordered for one server.
    Order(ServerId, Order),
    /// Passes a message on to one server's actor.
    #[cfg(test)]
    Forward(ServerId, crate::server::ServerMessage),
}
