use portcullis_lifecycle::Event;
use portcullis_types::ServerId;
use ractor::RpcReplyPort;

/// What the root is told.
pub(crate) enum RootMessage {
    /// Start the actor of this server (again).
    Start(ServerId),
    /// Stop all servers for good; answered when each has been told.
    Stop(RpcReplyPort<()>),
    /// What is ordered for one server.
    Order(ServerId, Event),
    /// Passes a message on to one server's actor.
    #[cfg(test)]
    Forward(ServerId, crate::server::ServerMessage),
}
