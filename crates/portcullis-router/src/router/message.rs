use std::sync::Arc;

use portcullis_supervisor::{SupervisorEvent, ToolList};
use portcullis_types::{CapabilityId, ServerId};

use crate::pins::{Looked, ToolPin};

/// What the router's actor is told.
pub(crate) enum RouterMessage {
    /// The supervisor says something that is no listing.
    Supervisor(SupervisorEvent),
    /// A server's tools were listed, and looked up.
    Tools {
        /// Which server.
        server: ServerId,
        /// Grows with each listing of this server.
        version: u64,
        /// What it offers.
        list: Arc<ToolList>,
        /// What that comes to beside what was trusted.
        looked: Looked,
    },
    /// A tool that was not trusted stands otherwise now: somebody approved it, perhaps in another process.
    Pinned {
        /// Which tool.
        capability: CapabilityId,
        /// Where it stands. It counts only for the definition of this hash.
        pin: ToolPin,
    },
    /// Other policies took over.
    PoliciesSwapped,
}
