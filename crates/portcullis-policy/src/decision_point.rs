use std::fmt;

use cedar_policy::{Authorizer, Decision as CedarDecision, Entities, PolicyId, Request};
use portcullis_types::{
    AgentId, Answer, Approver, Decision, Hash, PolicyRef, ReasonCode, ServerId, Source, Tier,
};

use crate::{
    PolicyErrors, PolicyFile, Preset, ToolFacts, arguments, builtin,
    load::{self, PolicyBase},
    model::{Question, Unfit},
};

/// May this agent make this call?
#[derive(Debug, Clone, Copy)]
pub struct CallQuestion<'a> {
    /// Who asks.
    pub agent: &'a AgentId,
    /// The profile that the agent belongs to.
    pub profile: &'a AgentId,
    /// How freely the agent may act in this session.
    pub tier: Tier,
    /// The tool.
    pub tool: &'a ToolFacts,
    /// The arguments: the JSON text of an object, exactly as it will be sent.
    pub arguments: &'a str,
    /// Now, in milliseconds since 1970-01-01T00:00:00Z.
    pub now_ms: i64,
}

/// May this server ask the user something (MCP 2026-07-28, client/elicitation)?
#[derive(Debug, Clone, Copy)]
pub struct ElicitationQuestion<'a> {
    /// Whose call the server is working on.
    pub agent: &'a AgentId,
    /// The profile that the agent belongs to.
    pub profile: &'a AgentId,
    /// How freely the agent may act in this session.
    pub tier: Tier,
    /// Where the server comes from.
    pub source: Source,
    /// The server that asks.
    pub server: &'a ServerId,
    /// How the server is reached: `stdio`, `http` or `host`.
    pub transport: &'a str,
    /// `form` or `url`.
    pub mode: &'a str,
    /// The host of the address in URL mode; empty in form mode.
    pub host: &'a str,
}

/// Decides what may be called, by Cedar policies. Immutable: new policies make a new decision point.
///
/// The floor and the tiers are always loaded. Whatever fails while deciding denies.
pub struct DecisionPoint {
    base: Option<PolicyBase>,
    digest: Hash,
}

impl DecisionPoint {
    /// The decision point without policies: it denies all, with [`ReasonCode::DenyNoPolicies`].
    #[must_use]
    pub fn deny_all() -> Self {
        Self {
            base: None,
            digest: load::digest(std::iter::empty()),
        }
    }

    /// The decision point of a preset alone.
    ///
    /// # Errors
    /// Never for the presets as they are; the signature is that of [`load`](Self::load).
    pub fn preset(preset: Preset) -> Result<Self, PolicyErrors> {
        Self::load(&[preset.file()])
    }

    /// Loads Cedar files and files of rules, in any order. Files that say nothing deny all.
    ///
    /// # Errors
    /// All that is wrong in all files, in order of file and line: nothing is loaded then.
    pub fn load(files: &[PolicyFile]) -> Result<Self, PolicyErrors> {
        Self::load_over(&builtin::always_loaded(), files)
    }

    fn load_over(always_loaded: &[PolicyFile], files: &[PolicyFile]) -> Result<Self, PolicyErrors> {
        let base = load::load(always_loaded, files)?;
        Ok(Self {
            digest: base.digest,
            base: Some(base),
        })
    }

    /// The hash of all policy texts and the schema; it does not depend on the order of the files.
    #[must_use]
    pub fn digest(&self) -> Hash {
        self.digest
    }

    /// All loaded policies, the floor and tiers included, in order of file and line.
    #[must_use]
    pub fn policies(&self) -> &[PolicyRef] {
        self.base.as_ref().map_or(&[], |base| &base.references)
    }

    /// The answer to a call. For an allow it names the policies that permit; for an ask, those that forbid running
    /// it unattended, or else those that permit the call; for a deny, those that forbid it or failed.
    #[must_use]
    pub fn decide(&self, question: &CallQuestion<'_>) -> Decision {
        let Some(base) = self.base.as_ref().filter(|base| base.says_something) else {
            return Decision::deny(ReasonCode::DenyNoPolicies, None);
        };
        let tags = match arguments::tags(question.arguments) {
            Ok(tags) if base.reads_arguments => tags,
            Ok(_) => Vec::new(),
            Err((code, told)) => return Decision::deny(code, Some(told)),
        };
        let decision = base
            .model
            .call(question, tags)
            .and_then(|asked| base.decide_call(question, &asked));
        decision.unwrap_or_else(|unfit| Decision::deny(ReasonCode::DenyInvalidRequest, Some(unfit)))
    }

    /// Whether a server may ask the user something: allow or deny, never ask.
    #[must_use]
    pub fn decide_elicitation(&self, question: &ElicitationQuestion<'_>) -> Decision {
        let Some(base) = self.base.as_ref().filter(|base| base.says_something) else {
            return Decision::deny(ReasonCode::DenyNoPolicies, None);
        };
        let decision = base.model.elicitation(question).and_then(|asked| {
            let verdict = base.verdict(&asked, "elicit", None)?;
            Ok(if verdict.permitted {
                base.decision(Answer::Allow, ReasonCode::Permitted, &verdict)
            } else {
                base.deny(&verdict)
            })
        });
        decision.unwrap_or_else(|unfit| Decision::deny(ReasonCode::DenyInvalidRequest, Some(unfit)))
    }
}

impl fmt::Debug for DecisionPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionPoint")
            .field("digest", &self.digest)
            .field("policies", &self.policies())
            .finish()
    }
}

/// What Cedar says to one request.
#[derive(Default)]
struct Verdict {
    permitted: bool,
    /// The policies that permit, where it is permitted; else those that forbid.
    reasons: Vec<PolicyId>,
    errors: Vec<(PolicyId, String)>,
}

impl PolicyBase {
    fn decide_call(&self, asked: &CallQuestion<'_>, question: &Question) -> Result<Decision, Unfit> {
        let call = self.verdict(question, "call", None)?;
        if !call.permitted {
            return Ok(self.deny(&call));
        }
        let mut unattended = self.verdict(question, "unattended", None)?;
        if !unattended.errors.is_empty() {
            // What forbids running it unattended would only have asked: it is the failure that denies.
            unattended.reasons.clear();
            return Ok(self.deny(&unattended));
        }
        let under_the_floor = asked.tool.is_under_the_floor();
        // The floor and a changed definition ask here, whatever the policies say: should the policies of the floor
        // ever be missing, nothing runs unattended that must not.
        if unattended.permitted && !under_the_floor && !asked.tool.definition_changed {
            unattended.reasons.extend(call.reasons);
            return Ok(self.decision(Answer::Allow, ReasonCode::Permitted, &unattended));
        }
        let (code, approver) = if under_the_floor {
            (ReasonCode::AskFloor, Approver::PersonOnly)
        } else if asked.tool.definition_changed {
            (ReasonCode::AskDefinitionChanged, Approver::PersonOnly)
        } else if self.asks_in_every_tier(question)? {
            (ReasonCode::AskAlways, Approver::PersonOnly)
        } else {
            (ReasonCode::AskByPolicy, Approver::PersonOrHook)
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

    /// What tells `always ask` from `ask`: not even full access lifts it. Where that cannot be told, it is `always`.
    fn asks_in_every_tier(&self, question: &Question) -> Result<bool, Unfit> {
        let verdict = self.verdict(question, "unattended", Some(Tier::FullAccess))?;
        Ok(!verdict.permitted || !verdict.errors.is_empty())
    }

    /// Puts one request to Cedar; in another tier than the question's where one is given.
    fn verdict(&self, question: &Question, action: &str, tier: Option<Tier>) -> Result<Verdict, Unfit> {
        let request = self.model.request(question, action, tier)?;
        for uid in &question.required {
            if question.entities.get(uid).is_none() {
                return Err(format!("the entity `{uid}` is missing"));
            }
        }
        Ok(self.put(&request, &question.entities))
    }

    fn put(&self, request: &Request, entities: &Entities) -> Verdict {
        let response = Authorizer::new().is_authorized(request, &self.policies, entities);
        let errors = response.diagnostics().errors().map(|error| {
            let cedar_policy::AuthorizationError::PolicyEvaluationError(error) = error;
            (error.policy_id().clone(), error.inner().to_string())
        });
        let errors: Vec<_> = errors.collect();
        Verdict {
            // A forbid that fails is skipped by Cedar, so a permit next to it would win.
            permitted: response.decision() == CedarDecision::Allow && errors.is_empty(),
            reasons: match response.decision() {
                CedarDecision::Allow if !errors.is_empty() => Vec::new(),
                _ => response.diagnostics().reason().cloned().collect(),
            },
            errors,
        }
    }

    fn deny(&self, verdict: &Verdict) -> Decision {
        let code = match (verdict.reasons.is_empty(), verdict.errors.is_empty()) {
            (false, _) => ReasonCode::DenyByPolicy,
            (true, false) => ReasonCode::DenyEvaluationError,
            (true, true) => ReasonCode::DenyByDefault,
        };
        self.decision(Answer::Deny, code, verdict)
    }

    fn decision(&self, answer: Answer, code: ReasonCode, verdict: &Verdict) -> Decision {
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

#[cfg(test)]
mod tests;
