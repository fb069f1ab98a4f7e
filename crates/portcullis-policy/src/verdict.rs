//! What Cedar says to the two questions, as one decision.

use cedar_policy::{Authorizer, Decision as CedarDecision, Entities, PolicyId, PolicySet, Request};
use portcullis_types::{Answer, Approver, Decision, ReasonCode, Tier};

use crate::{
    ToolFacts,
    load::{self, PolicyBase},
    model::{Action, Unfit},
};

/// The questions that a decision comes from, in the order in which they are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// May it be called?
    Call,
    /// May it run unattended?
    Unattended,
    /// Might it, in full access? It tells `always ask` from `ask`.
    InFullAccess,
}

impl Step {
    pub(crate) const ALL: [Self; 3] = [Self::Call, Self::Unattended, Self::InFullAccess];

    pub(crate) fn action(self) -> Action {
        match self {
            Self::Call => Action::Call,
            Self::Unattended | Self::InFullAccess => Action::Unattended,
        }
    }

    /// The tier that is asked about, where the call is made in `tier`.
    pub(crate) fn tier(self, tier: Tier) -> Tier {
        match self {
            Self::Call | Self::Unattended => tier,
            Self::InFullAccess => Tier::FullAccess,
        }
    }
}

/// The policies that permit, those that forbid, and what failed.
pub(crate) type Put = (Vec<PolicyId>, Vec<PolicyId>, Vec<(PolicyId, String)>);

/// What Cedar says to one request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) permitted: bool,
    /// The policies that permit, where it is permitted; else those that forbid.
    pub(crate) reasons: Vec<PolicyId>,
    pub(crate) errors: Vec<(PolicyId, String)>,
}

impl Verdict {
    /// The verdict of all policies, where these are the ones that are satisfied and that failed.
    pub(crate) fn of(
        permits: Vec<PolicyId>,
        forbids: Vec<PolicyId>,
        errors: Vec<(PolicyId, String)>,
    ) -> Self {
        let allowed = forbids.is_empty() && !permits.is_empty();
        Self {
            // A forbid that fails is skipped by Cedar, so a permit next to it would win.
            permitted: allowed && errors.is_empty(),
            reasons: match allowed {
                true if errors.is_empty() => permits,
                true => Vec::new(),
                false => forbids,
            },
            errors,
        }
    }
}

/// Puts a request to some of the policies: the permits and forbids that decided, and what failed. Where one forbids,
/// the permits are not told.
pub(crate) fn put(policies: &PolicySet, request: &Request, entities: &Entities) -> Put {
    let response = Authorizer::new().is_authorized(request, policies, entities);
    let errors = response.diagnostics().errors().map(|error| {
        let cedar_policy::AuthorizationError::PolicyEvaluationError(error) = error;
        (error.policy_id().clone(), error.inner().to_string())
    });
    let reasons: Vec<_> = response.diagnostics().reason().cloned().collect();
    match response.decision() {
        CedarDecision::Allow => (reasons, Vec::new(), errors.collect()),
        CedarDecision::Deny => (Vec::new(), reasons, errors.collect()),
    }
}

impl PolicyBase {
    /// The decision on a call of `tool` in `tier`; `verdict` answers one question.
    pub(crate) fn decide_call(
        &self,
        tool: &ToolFacts,
        tier: Tier,
        mut verdict: impl FnMut(Step) -> Result<Verdict, Unfit>,
    ) -> Result<Decision, Unfit> {
        let call = verdict(Step::Call)?;
        if !call.permitted {
            return Ok(self.deny(&call));
        }
        let mut unattended = verdict(Step::Unattended)?;
        if !unattended.errors.is_empty() {
            // What forbids running it unattended would only have asked: it is the failure that denies.
            unattended.reasons.clear();
            return Ok(self.deny(&unattended));
        }
        let under_the_floor = tool.is_under_the_floor();
        // The floor and a changed definition ask here, whatever the policies say: should the policies of the floor
        // ever be missing, nothing runs unattended that must not.
        if unattended.permitted && !under_the_floor && !tool.definition_changed {
            unattended.reasons.extend(call.reasons);
            return Ok(self.decision(Answer::Allow, ReasonCode::Permitted, &unattended));
        }
        let (code, approver) = if under_the_floor {
            (ReasonCode::AskFloor, Approver::PersonOnly)
        } else if tool.definition_changed {
            (ReasonCode::AskDefinitionChanged, Approver::PersonOnly)
        } else {
            // What tells `always ask` from `ask`: not even full access lifts it. Where that cannot be told, it is
            // `always`. In full access itself the question was put above, and not permitted.
            let lifted = match tier {
                Tier::FullAccess => false,
                _ => verdict(Step::InFullAccess)?.permitted,
            };
            if lifted {
                (ReasonCode::AskByPolicy, Approver::PersonOrHook)
            } else {
                (ReasonCode::AskAlways, Approver::PersonOnly)
            }
        };
        let named = if unattended.permitted || unattended.reasons.is_empty() {
            &call
        } else {
            &unattended
        };
        let decision = self.decision(Answer::Ask, code, named);
        Ok(Decision {
            approver: Some(approver),
            ..decision
        })
    }

    pub(crate) fn deny(&self, verdict: &Verdict) -> Decision {
        let code = match (verdict.reasons.is_empty(), verdict.errors.is_empty()) {
            (false, _) => ReasonCode::DenyByPolicy,
            (true, false) => ReasonCode::DenyEvaluationError,
            (true, true) => ReasonCode::DenyByDefault,
        };
        self.decision(Answer::Deny, code, verdict)
    }

    pub(crate) fn decision(&self, answer: Answer, code: ReasonCode, verdict: &Verdict) -> Decision {
        let failed = verdict.errors.iter().map(|(id, _)| id);
        let mut policies: Vec<_> = verdict
            .reasons
            .iter()
            .chain(failed)
            .filter_map(|id| self.places.get(id))
            .cloned()
            .collect();
        load::in_order(&mut policies);
        policies.dedup();
        let mut errors: Vec<_> = verdict
            .errors
            .iter()
            .map(|(id, error)| format!("`{id}`: {error}"))
            .collect();
        errors.sort();
        Decision {
            answer,
            code,
            approver: None,
            policies,
            errors,
        }
    }
}
