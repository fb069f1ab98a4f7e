//! Why an answer came out as it did, and what would have to be different.

mod nearest;

use std::fmt;

use cedar_policy::PolicyId;
use portcullis_types::{AgentId, CapabilityId, Decision, Hash, PolicyRef, ReasonCode, Tier};
use serde::Serialize;

use crate::{CallQuestion, DecisionPoint, load::PolicyBase, model::Action};

/// A decision with all that a person needs to understand it. The same structure stands in the event of a decision, in
/// the error that a caller gets, and in what `portcullis policy explain --format json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What was asked for.
    pub capability: CapabilityId,
    /// Who asked.
    pub agent: AgentId,
    /// The profile that the agent belongs to.
    pub profile: AgentId,
    /// How freely the agent may act.
    pub tier: Tier,
    /// blake3 over the arguments.
    pub arguments_hash: Hash,
    /// Which policies were in force.
    pub policy_digest: Hash,
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
    /// What the decision's code means, in one sentence.
    pub meaning: &'static str,
    /// For an ask: what keeps the call from running unattended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The policy that came nearest to permitting what no policy permits: the call, or running it unattended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestPolicy>,
}

/// A policy that would have permitted, had it applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NearestPolicy {
    /// The policy.
    pub policy: PolicyRef,
    /// What kept it from applying, each as a sentence.
    pub unmet: Vec<String>,
}

/// Where the nearest policy is looked for.
#[derive(Clone, Copy)]
enum Search {
    /// Among those that the index has for this very tool.
    Tool,
    /// Among all.
    All,
}

impl DecisionPoint {
    /// The decision on a call, explained. It is made anew, and takes time that grows with the number of policies: it
    /// is for people, not for each call.
    #[must_use]
    pub fn explain(&self, question: &CallQuestion<'_>) -> Explanation {
        let hash = Hash::of(question.arguments.as_bytes());
        self.explained(question, self.decide(question), hash, Search::All)
    }

    /// The same for a decision that was made on this question, for each call: what takes time that grows with the
    /// number of policies is left out, which is the nearest policy where it is not about this very tool.
    /// `arguments_hash` is blake3 over the arguments' text.
    #[must_use]
    pub fn explain_decided(
        &self,
        question: &CallQuestion<'_>,
        decision: Decision,
        arguments_hash: Hash,
    ) -> Explanation {
        self.explained(question, decision, arguments_hash, Search::Tool)
    }

    fn explained(
        &self,
        question: &CallQuestion<'_>,
        decision: Decision,
        arguments_hash: Hash,
        search: Search,
    ) -> Explanation {
        let base = self.base();
        let unattended_is_forbidden = base.is_some_and(|base| base.any_forbids(&decision.policies));
        let nobody_permits = match decision.code {
            ReasonCode::DenyByDefault => Some(Action::Call),
            ReasonCode::AskByPolicy | ReasonCode::AskAlways if !unattended_is_forbidden => {
                Some(Action::Unattended)
            }
            _ => None,
        };
        let nearest = base
            .zip(nobody_permits)
            .and_then(|(base, action)| base.nearest(question, action, search));
        Explanation {
            capability: question.tool.capability.clone(),
            agent: question.agent.clone(),
            profile: question.profile.clone(),
            tier: question.tier,
            arguments_hash,
            policy_digest: self.digest(),
            meaning: decision.code.describe().1,
            missing: missing(question, &decision, unattended_is_forbidden),
            decision,
            nearest,
        }
    }
}

impl PolicyBase {
    fn any_forbids(&self, policies: &[PolicyRef]) -> bool {
        policies.iter().any(|reference| {
            let policy = self.policies.policy(&PolicyId::new(&reference.id));
            policy.is_some_and(|policy| policy.effect() == cedar_policy::Effect::Forbid)
        })
    }
}

fn missing(question: &CallQuestion<'_>, decision: &Decision, forbidden: bool) -> Option<String> {
    let told = match decision.code {
        ReasonCode::AskFloor if question.tool.requires_user_interaction => {
            "a person's answer, each time anew: the tool requires user interaction"
        }
        ReasonCode::AskFloor => "a person's answer, each time anew: the tool's auto-approve is switched off",
        ReasonCode::AskDefinitionChanged => "a person's approval of the changed definition",
        ReasonCode::AskDefinitionNew => "a person's approval of the tool, which is new",
        ReasonCode::AskCommandChanged => "a person's approval of what the tool's server is started with now",
        ReasonCode::AskAlways if forbidden => {
            "a person's answer: a policy forbids running it unattended in every tier"
        }
        ReasonCode::AskByPolicy if forbidden => {
            "somebody's answer, or the tier `full_access`: a policy forbids running it unattended in this tier"
        }
        ReasonCode::AskAlways => "a policy that permits running it unattended, or a person's answer",
        ReasonCode::AskByPolicy => {
            "a policy that permits running it unattended, the tier `full_access`, or somebody's answer"
        }
        _ => return None,
    };
    Some(told.to_owned())
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            capability, decision, ..
        } = self;
        writeln!(f, "{capability}: {} ({})", decision.answer, decision.code)?;
        writeln!(f, "  {}", self.meaning)?;
        writeln!(
            f,
            "  asked by `{}` of `{}`, tier `{}`",
            self.agent, self.profile, self.tier
        )?;
        writeln!(
            f,
            "  arguments {}, policies {}",
            self.arguments_hash, self.policy_digest
        )?;
        for policy in &decision.policies {
            writeln!(f, "  decided by {policy}: {}", policy.description)?;
        }
        for error in &decision.errors {
            writeln!(f, "  error: {error}")?;
        }
        if let Some(missing) = &self.missing {
            writeln!(f, "  missing: {missing}")?;
        }
        if let Some(NearestPolicy { policy, unmet }) = &self.nearest {
            writeln!(f, "  nearest: {policy}: {}", policy.description)?;
            for unmet in unmet {
                writeln!(f, "    but {unmet}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PolicyFile, ToolFacts};

    const RULES: &str = "allow mcp.files.read when arg.path == \"/srv\"\nask mcp.files.write\nalways ask mcp.mail.send\nallow mcp.git.*\n";
    const CEDAR: &str = "@id(\"night\")\n@description(\"By the night agents, at night.\")\npermit (principal in Mcp::Profile::\"night\", action == Mcp::Action::\"call\", resource == Mcp::Tool::\"mcp.night.run\")\nwhen { context.now.toTime() < duration(\"6h\") && resource.readOnly }\nunless { context.args.hasTag(\"force\") };\n";

    fn explained(capability: &str, arguments: &str, tier: Tier) -> Explanation {
        let files = [("t.rules", RULES), ("n.cedar", CEDAR)].map(|(name, text)| PolicyFile {
            name: name.to_owned(),
            text: text.to_owned(),
        });
        let agent = AgentId::default();
        let tool = ToolFacts::from_definition(capability.parse().unwrap(), "stdio", "{}", true);
        DecisionPoint::load(&files).unwrap().explain(&CallQuestion {
            agent: &agent,
            profile: &agent,
            tier,
            tool: &tool,
            arguments,
            now_ms: 1_785_239_999_999,
        })
    }

    #[test]
    fn for_each_call_only_what_is_about_the_tool_is_looked_at() {
        let file = PolicyFile {
            name: "t.rules".to_owned(),
            text: RULES.to_owned(),
        };
        let point = DecisionPoint::load(&[file]).unwrap();
        let agent = AgentId::default();
        for (capability, nearest) in [("mcp.files.read", Some("t.rules#L1")), ("mcp.files.list", None)] {
            let tool = ToolFacts::from_definition(capability.parse().unwrap(), "stdio", "{}", true);
            let question = CallQuestion {
                agent: &agent,
                profile: &agent,
                tier: Tier::Plan,
                tool: &tool,
                arguments: "{}",
                now_ms: 0,
            };
            let whole = point.explain(&question);
            let quick = point.explain_decided(&question, point.decide(&question), Hash::of(b"{}"));
            let id = quick.nearest.as_ref().map(|nearest| nearest.policy.id.as_str());
            assert_eq!(id, nearest, "{quick}");
            assert!(whole.nearest.is_some());
            let without_nearest = |explanation| Explanation {
                nearest: None,
                ..explanation
            };
            assert_eq!(
                without_nearest(quick),
                without_nearest(whole),
                "all else is the same"
            );
        }
    }

    #[track_caller]
    fn check(capability: &str, arguments: &str, tier: Tier, expected: &[&str]) {
        let text = explained(capability, arguments, tier).to_string();
        for expected in expected {
            assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_deny_by_default_names_the_nearest_policy_and_what_it_lacked() {
        check(
            "mcp.files.read",
            r#"{"path":"/etc"}"#,
            Tier::Plan,
            &[
                "mcp.files.read: deny (deny.default)",
                "nearest: t.rules:1 (t.rules#L1): allow mcp.files.read when",
                "but `context.args.getTag(\"path\") == \"/srv\"` does not hold",
            ],
        );
        check(
            "mcp.files.list",
            "{}",
            Tier::Plan,
            &[
                "nearest: t.rules:2 (t.rules#L2.call)",
                "but it is about `mcp.files.write` alone",
            ],
        );
        check(
            "mcp.night.run",
            r#"{"force":1}"#,
            Tier::Plan,
            &[
                "nearest: n.cedar:1 (night)",
                "but it is for `principal in Mcp::Profile::\"night\"`, and `default` of `default` asks",
                "but `context.now.toTime() < duration(\"6h\")` does not hold",
                "but the exception `context.args.hasTag(\"force\")` holds",
            ],
        );
    }

    #[test]
    fn an_ask_names_the_missing_step() {
        check(
            "mcp.files.write",
            "{}",
            Tier::Plan,
            &[
                "ask (ask.policy)",
                "decided by t.rules:2",
                "missing: somebody's answer, or the tier `full_access`",
            ],
        );
        check(
            "mcp.mail.send",
            "{}",
            Tier::FullAccess,
            &[
                "ask (ask.always)",
                "decided by t.rules:3",
                "missing: a person's answer: a policy forbids",
            ],
        );
    }

    /// Where a forbid stands in the way no permit would help, and what full access would do is no policy that lacks
    /// something.
    #[test]
    fn the_nearest_policy_is_one_that_would_help() {
        let nearest = |rules: &str, tool: &str| {
            let file = PolicyFile {
                name: "t.rules".to_owned(),
                text: rules.to_owned(),
            };
            let agent = AgentId::default();
            let tool = ToolFacts::from_definition(tool.parse().unwrap(), "stdio", "{}", true);
            let explanation = DecisionPoint::load(&[file]).unwrap().explain(&CallQuestion {
                agent: &agent,
                profile: &agent,
                tier: Tier::Plan,
                tool: &tool,
                arguments: "{}",
                now_ms: 0,
            });
            (
                explanation.decision.code,
                explanation.nearest.map(|nearest| nearest.policy.id),
            )
        };
        let rules = "default ask\nask mcp.a.x\nallow mcp.a.x when arg.k == \"v\"\n";
        assert_eq!(nearest(rules, "mcp.a.x"), (ReasonCode::AskByPolicy, None));
        let other = Some("t.rules#L3".to_owned());
        assert_eq!(nearest(rules, "mcp.a.y"), (ReasonCode::AskByPolicy, other));
        assert_eq!(nearest("default ask", "mcp.a.x"), (ReasonCode::AskByPolicy, None));
    }

    /// A hub tells the kinds of what is not trusted apart; policies know one word for all.
    #[test]
    fn each_ask_names_what_is_missing() {
        let point = DecisionPoint::load(&[]).unwrap();
        let agent = AgentId::default();
        let tool = ToolFacts::from_definition("mcp.a.b".parse().unwrap(), "stdio", "{}", false);
        let question = CallQuestion {
            agent: &agent,
            profile: &agent,
            tier: Tier::Plan,
            tool: &tool,
            arguments: "{}",
            now_ms: 0,
        };
        for code in ReasonCode::ALL {
            let decision = Decision::deny(code, None);
            let explanation = point.explain_decided(&question, decision, Hash::of(b"{}"));
            let asks = code.as_str().starts_with("ask.");
            assert_eq!(explanation.missing.is_some(), asks, "{code}");
        }
    }

    #[test]
    fn the_json_has_the_fields_of_the_decision() {
        let explanation = explained("mcp.git.log", "{}", Tier::Plan);
        let json = serde_json::to_value(&explanation).unwrap();
        let decision = serde_json::to_value(&explanation.decision).unwrap();
        for (key, value) in decision.as_object().unwrap() {
            assert_eq!(json.get(key), Some(value));
        }
        assert_eq!(json.get("capability").unwrap(), "mcp.git.log");
        assert!(json.get("nearest").is_none() && json.get("missing").is_none());
    }
}
