//! The codes of calls that have no result.

use portcullis_supervisor::CallFault;

use crate::CallError;

/// Why a call has no result, as events and machine-readable output name it. Closed: the codes are stable and
/// documented in docs/call-errors.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each says what it is in `describe`, as the page has it"
)]
pub enum CallCode {
    NotACapability,
    UnknownServer,
    UnknownTool,
    Disabled,
    BadArguments,
    Denied,
    NeedsApproval,
    Refused,
    Busy,
    Unavailable,
    NotSent,
    LoginNeeded,
    Overloaded,
    OutcomeUnknown,
    TimedOut,
    Cancelled,
    UpstreamError,
    BadReply,
    Result,
}

impl CallCode {
    /// All codes: first those of calls that no server heard of.
    pub const ALL: [Self; 19] = [
        Self::NotACapability,
        Self::UnknownServer,
        Self::UnknownTool,
        Self::Disabled,
        Self::BadArguments,
        Self::Denied,
        Self::NeedsApproval,
        Self::Refused,
        Self::Busy,
        Self::Unavailable,
        Self::NotSent,
        Self::LoginNeeded,
        Self::Overloaded,
        Self::OutcomeUnknown,
        Self::TimedOut,
        Self::Cancelled,
        Self::UpstreamError,
        Self::BadReply,
        Self::Result,
    ];

    /// The stable code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.describe().0
    }

    /// The stable code, whether the server may have acted, and what it means.
    #[must_use]
    pub fn describe(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::NotACapability => (
                "not-a-capability",
                "no",
                "what was asked for is no `mcp.SERVER.TOOL`",
            ),
            Self::UnknownServer => ("unknown-server", "no", "no server of that name is configured"),
            Self::UnknownTool => ("unknown-tool", "no", "the server is up and offers no such tool"),
            Self::Disabled => ("disabled", "no", "the configuration disables the tool"),
            Self::BadArguments => (
                "bad-arguments",
                "no",
                "the arguments are not the JSON text of an object",
            ),
            Self::Denied => ("denied", "no", "the policies deny it"),
            Self::NeedsApproval => (
                "needs-approval",
                "no",
                "somebody would have to approve it, and nobody is there or answered in time",
            ),
            Self::Refused => ("refused", "no", "whoever was asked refused"),
            Self::Busy => (
                "busy",
                "no",
                "as many calls as are admitted wait for the server already",
            ),
            Self::Unavailable => (
                "unavailable",
                "no",
                "the server is not there: it starts anew, is parked, or is disabled",
            ),
            Self::NotSent => (
                "not-sent",
                "no",
                "nothing of it was sent: it is safe to send it again",
            ),
            Self::LoginNeeded => ("login-needed", "no", "the server wants a login first"),
            Self::Overloaded => ("overloaded", "no", "the server turns calls away for now"),
            Self::OutcomeUnknown => (
                "outcome-unknown",
                "perhaps",
                "it was sent and no reply can come; it is never sent again",
            ),
            Self::TimedOut => (
                "timed-out",
                "perhaps",
                "its time passed; the message says whether it was sent, and then the server was told to stop",
            ),
            Self::Cancelled => (
                "cancelled",
                "perhaps",
                "the caller took it back; the message says whether it was sent, and then the server was told to stop",
            ),
            Self::UpstreamError => (
                "upstream-error",
                "perhaps",
                "the server answered with a JSON-RPC error",
            ),
            Self::BadReply => ("bad-reply", "perhaps", "the server's reply cannot be used"),
            Self::Result => (
                "result",
                "yes",
                "it ran, and its result cannot be shaped, stored, or handed on in its size",
            ),
        }
    }
}

impl From<&CallError> for CallCode {
    fn from(error: &CallError) -> Self {
        match error {
            CallError::NotACapability(_) => Self::NotACapability,
            CallError::UnknownServer { .. } => Self::UnknownServer,
            CallError::UnknownTool { .. } => Self::UnknownTool,
            CallError::Disabled(_) => Self::Disabled,
            CallError::Denied { .. } => Self::Denied,
            CallError::NeedsApproval { .. } => Self::NeedsApproval,
            CallError::Refused { .. } => Self::Refused,
            CallError::Busy { .. } => Self::Busy,
            CallError::Upstream { fault, .. } => fault.into(),
            CallError::Result { .. } => Self::Result,
        }
    }
}

impl From<&CallFault> for CallCode {
    fn from(fault: &CallFault) -> Self {
        match fault {
            CallFault::NotSent { .. } => Self::NotSent,
            CallFault::OutcomeUnknown { .. } => Self::OutcomeUnknown,
            CallFault::TimedOut { .. } => Self::TimedOut,
            CallFault::Rpc { .. } => Self::UpstreamError,
            CallFault::BadReply { .. } => Self::BadReply,
            CallFault::LoginNeeded { .. } => Self::LoginNeeded,
            CallFault::Overloaded { .. } => Self::Overloaded,
            CallFault::Unavailable { .. } => Self::Unavailable,
            CallFault::Cancelled { .. } => Self::Cancelled,
            CallFault::BadArguments { .. } => Self::BadArguments,
            CallFault::UnknownTool { disabled: false, .. } => Self::UnknownTool,
            CallFault::UnknownTool { disabled: true, .. } => Self::Disabled,
        }
    }
}
