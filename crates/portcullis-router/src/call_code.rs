//! The codes of calls that have no result.

use portcullis_supervisor::CallFault;
use serde::{Serialize, Serializer};

use crate::CallError;

macro_rules! codes {
    ($($variant:ident $code:literal $acted:literal $meaning:literal,)*) => {
        /// Why a call has no result, as events and machine-readable output name it. Closed: the codes are stable and
        /// documented in docs/call-errors.md.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum CallCode {
            $(#[doc = concat!($meaning, ".")] $variant,)*
        }

        impl CallCode {
            /// All codes: first those of calls that no server acted on.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable code, whether the server may have acted, and what it means.
            #[must_use]
            pub fn describe(self) -> (&'static str, &'static str, &'static str) {
                match self {
                    $(Self::$variant => ($code, $acted, $meaning),)*
                }
            }
        }
    };
}

codes! {
    NotACapability "not-a-capability" "no" "what was asked for is no `mcp.SERVER.TOOL`",
    UnknownServer "unknown-server" "no" "no server of that name is configured",
    UnknownTool "unknown-tool" "no" "the server is up and offers no such tool",
    Disabled "disabled" "no" "the configuration disables the tool",
    BadArguments "bad-arguments" "no" "the arguments are not the JSON text of an object",
    Denied "denied" "no" "the policies deny it",
    NeedsApproval "needs-approval" "no" "somebody would have to approve it, and nobody is there or answered in time",
    Refused "refused" "no" "whoever was asked refused",
    Busy "busy" "no" "as many calls as are admitted wait for the server already",
    Unavailable "unavailable" "no" "the server is parked, disabled or stopped",
    NotSent "not-sent" "no" "nothing of it was sent: it is safe to send it again",
    LoginNeeded "login-needed" "no" "the server wants a login first",
    Overloaded "overloaded" "no" "the server turns calls away for now",
    OutcomeUnknown "outcome-unknown" "perhaps" "it was sent and no reply can come; it is never sent again",
    TimedOut "timed-out" "perhaps" "its time passed: the message says whether it was sent, and the server was told to stop then",
    Cancelled "cancelled" "perhaps" "the caller took it back or waits no longer",
    UpstreamError "upstream-error" "perhaps" "the server answered with a JSON-RPC error",
    BadReply "bad-reply" "perhaps" "the server's reply cannot be used",
    Result "result" "yes" "it ran, and its result cannot be shaped, stored, or handed on in its size",
}

impl CallCode {
    /// The stable code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.describe().0
    }
}

impl Serialize for CallCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
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
