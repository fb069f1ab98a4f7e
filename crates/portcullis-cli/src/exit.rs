use std::process::ExitCode;

use portcullis::{CallCode, CallError, HubError};

macro_rules! statuses {
    ($($variant:ident $number:literal $name:literal $when:literal,)*) => {
        /// What the program ends with. Closed: the numbers are stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum ExitStatus {
            $(#[doc = concat!($when, ".")] $variant = $number,)*
        }

        impl ExitStatus {
            /// All of them, by their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name, and when a command ends so.
            #[must_use]
            pub fn describe(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$variant => ($name, $when),)*
                }
            }
        }
    };
}

statuses! {
    Done 0 "done" "what was asked for is done; `policy explain`: allow",
    Failed 1 "failed" "the store, the state or the output failed; `blobs verify` found damage; an interrupt",
    Usage 2 "usage" "the command line is wrong, or no such server or tool is there",
    BadConfig 3 "bad config or policy"
        "a configuration or a policy is wrong: `check` and `policy check` found an error, or nothing was started",
    Denied 4 "denied"
        "the policies, the configuration or whoever was asked denied the call; `policy explain`: deny",
    NeedsApproval 5 "needs approval"
        "somebody would have to approve the call and nobody was there; `policy explain`: ask",
    Upstream 6 "upstream failed" "the server failed, or its tool said that it did; `tools`: no server is up",
    TimedOut 7 "timed out" "a deadline passed",
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
            | HubError::TierUnread(_)
            | HubError::Policies(_) => Self::BadConfig,
            HubError::Blobs(_) | HubError::State(_) | HubError::Router(_) => Self::Failed,
        }
    }
}

impl From<&CallError> for ExitStatus {
    fn from(error: &CallError) -> Self {
        match CallCode::from(error) {
            CallCode::Denied | CallCode::Refused | CallCode::Disabled => Self::Denied,
            CallCode::NeedsApproval => Self::NeedsApproval,
            CallCode::TimedOut => Self::TimedOut,
            CallCode::NotACapability | CallCode::UnknownServer | CallCode::UnknownTool => Self::Usage,
            CallCode::Result => Self::Failed,
            CallCode::BadArguments
            | CallCode::Busy
            | CallCode::Unavailable
            | CallCode::NotSent
            | CallCode::LoginNeeded
            | CallCode::Overloaded
            | CallCode::OutcomeUnknown
            | CallCode::Cancelled
            | CallCode::UpstreamError
            | CallCode::BadReply => Self::Upstream,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the README is what the program ends with.
    #[test]
    fn the_readme_has_all_of_them() {
        let readme = include_str!("../../../README.md");
        let row = |status: &ExitStatus| {
            let (name, when) = status.describe();
            format!("| {} | {name} | {when} |\n", *status as u8)
        };
        let table: String = ExitStatus::ALL.iter().map(row).collect();
        assert!(
            readme.contains(&table),
            "README.md is to have this table:\n{table}"
        );
    }
}
