use std::sync::Arc;

use portcullis_supervisor::{SupervisorEvent, ToolList};
use portcullis_types::{CapabilityId, ServerId};

use crate::pins::{Looked, PinNews, ToolPin};

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
    /// A tool that was not trusted was looked up once more, and stands otherwise now: somebody approved it, perhaps in
    /// another process, or it could not be told before.
    Pinned {
        /// Which tool.
        capability: CapabilityId,
        /// Where it stands. It counts only for the definition of this hash.
        pin: ToolPin,
        /// What the state had not seen before. It is told whatever the tool is by now.
        news: Vec<PinNews>,
    },
    /// Other policies took over.
    PoliciesSwapped,
}
