use std::sync::Arc;

use portcullis_egress::EgressRecord;
use portcullis_lifecycle::ServerState;
use portcullis_types::ServerId;

use crate::tools::ToolList;

/// What the supervisor tells whoever stands above it. In order, per server.
#[derive(Debug, Clone)]
pub enum SupervisorEvent {
    /// A server's state changed.
    State {
        /// Which server.
        server: ServerId,
        /// The state before.
        from: ServerState,
        /// The state now.
        to: ServerState,
        /// Why.
        reason: String,
        /// The process of the connection, where the server is a child that is up.
        pid: Option<u32>,
    },
    /// A server's tools were listed.
    Tools {
        /// Which server.
        server: ServerId,
        /// Grows with each listing of this server.
        version: u64,
        /// What it offers.
        list: Arc<ToolList>,
    },
    /// A connection to a server over HTTP was made, refused or failed.
    Egress {
        /// Which server's.
        server: ServerId,
        /// Where to, by which rule, at which address, and how it ended.
        record: EgressRecord,
    },
}
