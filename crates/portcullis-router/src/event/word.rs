//! The words that stand in events, each field's a closed set. The codes are stable: docs/events.md lists them, written
//! from this file.

use std::fmt;

use serde::Serialize;

use crate::CallCode;

/// Who decided a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    /// The policies, also where they ask and nobody has let it run yet.
    Policies,
    /// Policies that ask, and the host's own code.
    Hook,
    /// Policies that ask, and a person.
    Person,
    /// Policies that ask, and an approval that is kept.
    StoredApproval,
}

/// What came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalAnswer {
    /// The call may run.
    Approved,
    /// It may not.
    Refused,
    /// Nobody is there, nobody answered in time, or the question was over first.
    Unanswered,
}

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnsweredBy {
    /// The host's own code.
    Hook,
    /// A person.
    Person,
    /// Nobody did.
    Nobody,
}

/// What became of a folder of policies that was read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReloadOutcome {
    /// What it holds is in force.
    Taken,
    /// Something is wrong, and the policies in force stay.
    Refused,
    /// What was refused is again what is in force.
    Restored,
}

/// How pins came to stand. In this order they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinChange {
    /// Another was trusted, and a person is needed.
    Changed,
    /// Never trusted, and a person is needed.
    New,
    /// Trusted as it was seen first.
    Recorded,
    /// Somebody trusted it.
    Approved,
    /// It cannot be told, and calls are denied.
    Unknown,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallEnd {
    /// It has a result.
    Ok,
    /// It has one that the tool itself calls an error.
    ToolError,
    /// The code of the error, as docs/call-errors.md lists them.
    #[serde(untagged)]
    Failed(CallCode),
}

/// What became of a connection over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionOutcome {
    /// The rules allowed it.
    Allowed,
    /// They did not.
    Refused,
    /// They did, and it was not made.
    Failed,
}

/// In which way a server asks the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElicitationMode {
    /// For the fields of a form.
    Form,
    /// To go to an address.
    Url,
}

/// How a question to the user ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElicitationAnswer {
    /// The user answered.
    Accepted,
    /// The user would not.
    Declined,
    /// The user let it be.
    Cancelled,
    /// The policies say no.
    Forbidden,
    /// Nobody answered in time, or its call was over first.
    Unanswered,
}

/// As it is written in events: a formatter takes the name of a variant as serde has it.
macro_rules! displayed {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    )*};
}

displayed! {
    DecidedBy ApprovalAnswer AnsweredBy ReloadOutcome PinChange CallEnd ConnectionOutcome ElicitationMode
    ElicitationAnswer
}
