use std::process::ExitCode;

use portcullis::{CallError, HubError};

/// What the program ends with. Closed: the numbers are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A configuration or a policy is wrong.
    BadConfig = 3,
    /// The policies, or whoever was asked, denied the call.
    Denied = 4,
    /// The call needs approval and nobody was there to give it.
    NeedsApproval = 5,
    /// A server failed, or its tool said that it did.
    Upstream = 6,
    /// A deadline passed.
    TimedOut = 7,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status as u8)
    }
}

impl From<&HubError> for ExitStatus {
    fn from(error: &HubError) -> Self {
        match error {
            HubError::Read { .. }
            | HubError::NoPolicies(_)
            | HubError::NoServers(_)
            | HubError::LimitsUnread(_)
            | HubError::AgentsUnread(_)
            | HubError::Policies(_) => Self::BadConfig,
            HubError::Blobs(_) | HubError::State(_) | HubError::Router(_) => Self::Failed,
        }
    }
}

impl From<&CallError> for ExitStatus {
    fn from(error: &CallError) -> Self {
        match error.code() {
            "denied" | "refused" | "disabled" => Self::Denied,
            "needs-approval" => Self::NeedsApproval,
            "timed-out" => Self::TimedOut,
            "not-a-capability" | "unknown-server" | "unknown-tool" => Self::Usage,
            "result" => Self::Failed,
            _ => Self::Upstream,
        }
    }
}
