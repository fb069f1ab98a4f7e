//! Decisions on calls: each by one snapshot of the policies, on the tool as it stands.

use std::sync::Arc;

use portcullis_policy::{CallQuestion, DecisionPoint, Explanation};
use portcullis_types::{Answer, Decision, ReasonCode};
use tokio::time::Instant;

use crate::{
    catalog::CatalogTool,
    clock,
    dispatch::{Call, Dispatch},
    event::{DecidedBy, Event},
    pins::PinStanding,
};

/// A decision, and the policies that it was made by.
pub(crate) struct Decided {
    pub(crate) explanation: Box<Explanation>,
    pub(crate) policies: Arc<DecisionPoint>,
}

impl Dispatch {
    /// The decision on `tool` for the default caller, with no arguments and no event.
    pub(crate) fn outlook(&self, tool: &CatalogTool) -> Decision {
        let question = CallQuestion {
            agent: &self.options.agent,
            profile: &self.options.profile_of(&self.options.agent),
            tier: self.options.tier,
            tool: &tool.facts,
            arguments: "{}",
            now_ms: clock::unix_ms(),
        };
        answer(&self.policies.current(), tool, &question)
    }

    /// What `policies` say of a call, with no event.
    pub(crate) fn decision(&self, policies: &DecisionPoint, call: &Call, tool: &CatalogTool) -> Decision {
        answer(policies, tool, &call.question(tool))
    }

    /// Whether the policies that decided are still those that decide.
    pub(crate) fn is_in_force(&self, decided: &Decided) -> bool {
        Arc::ptr_eq(&self.policies.current(), &decided.policies)
    }

    /// Whether the policies that decided still say the same, since a policy may go by the time, and leave it to the same
    /// to approve. An approval that is kept may have ended or been taken back while the call `waited`; to look for it
    /// takes time as well, in which it stands but the policies' time may end.
    pub(crate) fn still_holds(
        &self,
        call: &Call,
        tool: &CatalogTool,
        decided: &Decided,
        waited: bool,
    ) -> bool {
        let recalled = call.runs_by_what_is_kept();
        if !waited && !recalled {
            return true;
        }
        let (then, now) = (
            &decided.explanation.decision,
            self.decision(&decided.policies, call, tool),
        );
        let same = (now.answer, now.code, now.approver) == (then.answer, then.code, then.approver);
        same && !(waited && recalled)
    }

    /// One decision by one snapshot of the policies, and whether an approval that is kept answers it, as far as that is
    /// found by the deadline.
    pub(crate) async fn decide(&self, call: &mut Call, tool: &CatalogTool, deadline: Instant) -> Decided {
        let policies = self.policies.current();
        let question = call.question(tool);
        let decision = answer(&policies, tool, &question);
        let explanation = policies.explain_decided(&question, decision, call.arguments_hash);
        let decided = Decided {
            explanation: Box::new(explanation),
            policies,
        };
        if decided.explanation.decision.answer == Answer::Ask && !call.is_granted(tool, &decided) {
            self.recall(call, tool, &decided, deadline).await;
        }
        self.events.tell(Event::Permission {
            call: call.number,
            capability: call.capability.clone(),
            agent: call.agent.clone(),
            tier: call.tier,
            arguments_hash: call.arguments_hash,
            decision: decided.explanation.clone(),
            policy_digest: decided.policies.digest(),
            by: call.granted_by(tool, &decided).unwrap_or(DecidedBy::Policies),
        });
        decided
    }
}

impl Call {
    /// Whether somebody who may has approved this very call.
    pub(crate) fn is_granted(&self, tool: &CatalogTool, decided: &Decided) -> bool {
        self.granted_by(tool, decided).is_some()
    }

    /// Who let it run, where the policies ask.
    pub(crate) fn granted_by(&self, tool: &CatalogTool, decided: &Decided) -> Option<DecidedBy> {
        let asks = decided.explanation.decision.answer == Answer::Ask;
        let grant = self
            .grant
            .as_ref()
            .filter(|grant| asks && grant.holds(tool, decided));
        grant.map(|grant| grant.by)
    }

    fn question<'a>(&'a self, tool: &'a CatalogTool) -> CallQuestion<'a> {
        CallQuestion {
            agent: &self.agent,
            profile: &self.profile,
            tier: self.tier,
            tool: &tool.facts,
            arguments: &self.arguments,
            now_ms: clock::unix_ms(),
        }
    }
}

/// What the policies say, unless it cannot be told what the tool is.
fn answer(policies: &DecisionPoint, tool: &CatalogTool, question: &CallQuestion<'_>) -> Decision {
    let code = match &tool.pin.standing {
        PinStanding::Unknown(why) => {
            return Decision::deny(ReasonCode::DenyPinUnknown, Some(why.to_string()));
        }
        PinStanding::New => ReasonCode::AskDefinitionNew,
        PinStanding::CommandChanged => ReasonCode::AskCommandChanged,
        PinStanding::Trusted | PinStanding::Changed => ReasonCode::AskDefinitionChanged,
    };
    let mut decision = policies.decide(question);
    // Policies know one word for a tool that is not what was trusted.
    if decision.code == ReasonCode::AskDefinitionChanged {
        decision.code = code;
    }
    decision
}
