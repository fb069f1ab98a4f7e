use portcullis_supervisor::SupervisorEvent;

/// What the router's actor is told.
pub(crate) enum RouterMessage {
    /// The supervisor says something.
    Supervisor(SupervisorEvent),
}
