use std::fmt;

use serde::Serialize;

/// The answer to "may this call run?". Ordered: the most restrictive is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The call runs without anyone being asked.
    Allow,
    /// Somebody is asked first; see [`Approver`].
    Ask,
    /// The call does not run.
    Deny,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}

/// Who may turn an ask into an allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Approver {
    /// A person, or the host's approval hook.
    PersonOrHook,
    /// A person only: under the floor, for a changed definition, and under `always ask`.
    PersonOnly,
}

/// Why an answer came out as it did. Closed: the codes are stable and documented in docs/reason-codes.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonCode {
    /// Policies permit the call, unattended.
    Permitted,
    /// Policies permit the call but nothing permits it unattended.
    AskByPolicy,
    /// A policy forbids running the call unattended, and not even full access lifts it.
    AskAlways,
    /// The tool requires user interaction, or its auto-approve is off.
    AskFloor,
    /// The tool's definition changed since it was trusted.
    AskDefinitionChanged,
    /// The tool was never trusted, and first sight is not enough.
    AskDefinitionNew,
    /// What the tool's server is started with changed since it was trusted.
    AskCommandChanged,
    /// No policy permits the call.
    DenyByDefault,
    /// A policy forbids the call.
    DenyByPolicy,
    /// A policy failed while it was evaluated.
    DenyEvaluationError,
    /// No policies are loaded.
    DenyNoPolicies,
    /// The request did not fit the schema, or an entity was missing.
    DenyInvalidRequest,
    /// The arguments are not a JSON object, or not JSON.
    DenyArgumentsInvalid,
    /// A key stands twice in one object of the arguments.
    DenyArgumentsDuplicateKey,
    /// The arguments are over 1 MiB.
    DenyArgumentsTooLarge,
    /// The arguments are nested over 64 deep.
    DenyArgumentsTooDeep,
    /// It cannot be told whether the tool is what was trusted.
    DenyPinUnknown,
}

impl ReasonCode {
    /// All codes, in the order of the documentation.
    pub const ALL: [Self; 17] = [
        Self::Permitted,
        Self::AskByPolicy,
        Self::AskAlways,
        Self::AskFloor,
        Self::AskDefinitionChanged,
        Self::AskDefinitionNew,
        Self::AskCommandChanged,
        Self::DenyByDefault,
        Self::DenyByPolicy,
        Self::DenyEvaluationError,
        Self::DenyNoPolicies,
        Self::DenyInvalidRequest,
        Self::DenyArgumentsInvalid,
        Self::DenyArgumentsDuplicateKey,
        Self::DenyArgumentsTooLarge,
        Self::DenyArgumentsTooDeep,
        Self::DenyPinUnknown,
    ];

    /// The stable code, and what it means in one sentence.
    #[must_use]
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Permitted => ("permitted", "policies permit the call, unattended"),
            Self::AskByPolicy => ("ask.policy", "policies permit the call, but not unattended"),
            Self::AskAlways => (
                "ask.always",
                "a policy forbids running the call unattended, in full access too",
            ),
            Self::AskFloor => (
                "ask.floor",
                "the tool requires user interaction or its auto-approve is off",
            ),
            Self::AskDefinitionChanged => (
                "ask.definition-changed",
                "the tool's definition changed since it was trusted",
            ),
            Self::AskDefinitionNew => (
                "ask.definition-new",
                "the tool is new, and nobody has approved it yet",
            ),
            Self::AskCommandChanged => (
                "ask.command-changed",
                "what the tool's server is started with changed since it was trusted",
            ),
            Self::DenyByDefault => ("deny.default", "no policy permits the call"),
            Self::DenyByPolicy => ("deny.policy", "a policy forbids the call"),
            Self::DenyEvaluationError => ("deny.evaluation-error", "a policy failed while it was evaluated"),
            Self::DenyNoPolicies => ("deny.no-policies", "no policies are loaded"),
            Self::DenyInvalidRequest => ("deny.invalid-request", "the request does not fit the schema"),
            Self::DenyArgumentsInvalid => ("deny.arguments-invalid", "the arguments are not a JSON object"),
            Self::DenyArgumentsDuplicateKey => (
                "deny.arguments-duplicate-key",
                "a key stands twice in one object of the arguments",
            ),
            Self::DenyArgumentsTooLarge => ("deny.arguments-too-large", "the arguments are over 1 MiB"),
            Self::DenyArgumentsTooDeep => {
                ("deny.arguments-too-deep", "the arguments are nested over 64 deep")
            }
            Self::DenyPinUnknown => (
                "deny.pin-unknown",
                "it cannot be told whether the tool is what was trusted",
            ),
        }
    }

    /// The stable code alone.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.describe().0
    }
}

impl Serialize for ReasonCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a policy that decided can be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PolicyRef {
    /// Its `@id`.
    pub id: String,
    /// The file it stands in, as it was named when it was loaded.
    pub file: String,
    /// Its first line, counted from 1.
    pub line: usize,
    /// Its `@description`.
    pub description: String,
}

impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} ({})", self.file, self.line, self.id)
    }
}

/// A decision: an answer with its reasons. A deny is a value like the others, not an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The answer.
    pub answer: Answer,
    /// Why, as a stable code.
    pub code: ReasonCode,
    /// Who may approve, where the answer is ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approver: Option<Approver>,
    /// The policies that decided, in order of file and line; empty for a deny by default.
    pub policies: Vec<PolicyRef>,
    /// What went wrong while deciding; never empty where an error denies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

impl Decision {
    /// A deny for which no policy is to blame.
    #[must_use]
    pub fn deny(code: ReasonCode, error: Option<String>) -> Self {
        Self {
            answer: Answer::Deny,
            code,
            approver: None,
            policies: Vec::new(),
            errors: error.into_iter().collect(),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.answer, self.code.describe().1)?;
        for policy in &self.policies {
            write!(f, "; {policy}")?;
        }
        for error in &self.errors {
            write!(f, "; {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_most_restrictive_answer_is_the_greatest() {
        assert_eq!(
            [Answer::Ask, Answer::Deny, Answer::Allow].into_iter().max(),
            Some(Answer::Deny)
        );
        assert!(Answer::Ask > Answer::Allow);
    }

    #[test]
    fn codes_are_unique() {
        let codes: HashSet<_> = ReasonCode::ALL.into_iter().map(ReasonCode::as_str).collect();
        assert_eq!(codes.len(), ReasonCode::ALL.len());
    }
}
