//! The policy that came nearest to permitting, and what kept it from applying.

use std::sync::Arc;

use cedar_policy::{Context, Policy, PolicySet, PrincipalConstraint, pst};
use portcullis_types::{Hash, PolicyRef};

use super::{NearestPolicy, Search};
use crate::{
    CallQuestion,
    arguments::{self, TagKeys},
    load::{IndexedPolicy, PolicyBase},
    model::{Action, Unfit, World},
    resolve::Subject,
    syntax::ResourceScope,
    verdict,
};

/// How many policies are looked at closely, of those whose scopes come nearest.
const MAX_LOOKED_AT: usize = 32;

/// A call as Cedar sees it.
struct Asked {
    world: World,
    action: Action,
    context: Context,
}

/// How far a policy's scope is from the tool, where the policy stands, and the policy.
type Near<'p> = (usize, &'p PolicyRef, &'p IndexedPolicy);

impl PolicyBase {
    /// Among the policies that permit `action`, the one of which the fewest parts did not hold; one about this very
    /// tool before any other.
    pub(super) fn nearest(
        &self,
        question: &CallQuestion<'_>,
        action: Action,
        search: Search,
    ) -> Option<NearestPolicy> {
        let subject = Subject::new(question.tool);
        let permits = self.permits(question, &subject, action, search);
        let asked = match permits.as_slice() {
            [] => return None,
            permits => self.asked(question, action, &tags_of(permits)).ok()?,
        };
        permits
            .into_iter()
            .map(|(distance, place, policy)| {
                (self.unmet(question, &asked, &subject, policy), distance, place)
            })
            .min_by_key(|(unmet, distance, _)| (*distance > 0, unmet.len(), *distance))
            .map(|(unmet, _, place)| NearestPolicy {
                policy: place.clone(),
                unmet,
            })
    }

    /// The policies that permit `action` and whose scopes come nearest to the tool.
    fn permits(
        &self,
        question: &CallQuestion<'_>,
        subject: &Subject<'_>,
        action: Action,
        search: Search,
    ) -> Vec<Near<'_>> {
        let positions = match search {
            Search::All => (0..self.indexed.len()).collect(),
            Search::Tool => self.index.candidates(subject, question.tool.capability.tool()),
        };
        let mut permits: Vec<_> = positions
            .into_iter()
            .filter_map(|position| self.indexed.get(position))
            .filter(|policy| policy.syntax.permits && policy.syntax.is_about(action))
            .filter_map(|policy| {
                Some((
                    distance(subject, &policy.syntax.resource),
                    self.places.get(policy.policy.id())?,
                    policy,
                ))
            })
            // What full access means is told as a missing step, not as a policy that lacked something.
            .filter(|(_, place, _)| !place.file.starts_with(crate::builtin::FOLDER) || action == Action::Call)
            .collect();
        permits.sort_by(|(near, a, _), (far, b, _)| {
            (near, &a.file, a.line, &a.id).cmp(&(far, &b.file, b.line, &b.id))
        });
        permits.truncate(MAX_LOOKED_AT);
        permits
    }

    /// The call with those of its arguments that are `read`. All of them can be half a million, each of which takes its
    /// time to become a tag, and a model chooses how many there are.
    fn asked(&self, question: &CallQuestion<'_>, action: Action, read: &TagKeys) -> Result<Asked, Unfit> {
        let tags = arguments::tags(question.arguments, read).map_err(|(_, told)| told)?;
        let world = self
            .model
            .world(question.agent, question.profile, question.tool)?;
        let hash = Hash::of(question.arguments.as_bytes());
        Ok(Asked {
            world: self.model.with_arguments(&world, tags)?,
            action,
            context: self
                .model
                .call_context(question.tier, Some(&hash), Some(question.now_ms))?,
        })
    }

    fn unmet(
        &self,
        question: &CallQuestion<'_>,
        asked: &Asked,
        subject: &Subject<'_>,
        policy: &IndexedPolicy,
    ) -> Vec<String> {
        let mut unmet = Vec::new();
        unmet.extend(scope(subject, &policy.syntax.resource));
        unmet.extend(principal(question, &policy.policy));
        for clause in policy.clauses() {
            let told = match clause {
                pst::Clause::When(condition) => self.first_unmet(asked, condition),
                pst::Clause::Unless(exception) => match self.holds(asked, exception) {
                    Ok(false) => None,
                    Ok(true) => Some(format!("the exception `{exception}` holds")),
                    Err(error) => Some(format!("the exception `{exception}` fails: {error}")),
                },
            };
            unmet.extend(told);
        }
        unmet
    }

    /// The first part of a conjunction that does not hold: those behind it may rely on it.
    fn first_unmet(&self, asked: &Asked, condition: &Arc<pst::Expr>) -> Option<String> {
        if let pst::Expr::BinaryOp {
            op: pst::BinaryOp::And,
            left,
            right,
        } = condition.as_ref()
        {
            let left = self.first_unmet(asked, left);
            return left.or_else(|| self.first_unmet(asked, right));
        }
        match self.holds(asked, condition) {
            Ok(true) => None,
            Ok(false) => Some(format!("`{condition}` does not hold")),
            Err(error) => Some(format!("`{condition}` fails: {error}")),
        }
    }

    /// Whether a condition holds, as Cedar says.
    fn holds(&self, asked: &Asked, condition: &Arc<pst::Expr>) -> Result<bool, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let probe = pst::Template::new(
            "probe",
            pst::Effect::Permit,
            pst::PrincipalConstraint::Any,
            pst::ActionConstraint::Any,
            pst::ResourceConstraint::Any,
        );
        let probe = probe
            .try_with_clauses([pst::Clause::When(Arc::clone(condition))])
            .map_err(|error| text(&error))?;
        let probe = pst::Policy::Static(probe.try_into().map_err(|error| text(&error))?);
        let probe = Policy::from_pst(probe).map_err(|error| text(&error))?;
        let policies = PolicySet::from_policies([probe]).map_err(|error| text(&error))?;
        let request = self
            .model
            .request(&asked.world, asked.action, asked.context.clone())?;
        let (permits, _, errors) = verdict::put(&policies, &request, &asked.world.entities);
        match errors.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(!permits.is_empty()),
        }
    }
}

/// Which tags of the arguments these policies read.
fn tags_of(policies: &[Near<'_>]) -> TagKeys {
    let mut read = TagKeys::NONE;
    policies
        .iter()
        .for_each(|(_, _, policy)| read.extend(&policy.syntax.reads.tags));
    read
}

/// How far the scope is from the tool; 0 where it is in it. The longer the names begin alike, the nearer.
fn distance(subject: &Subject<'_>, scope: &ResourceScope) -> usize {
    let apart = |one: &str, other: &str| {
        let alike = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        one.len().max(other.len()) - alike
    };
    match scope {
        ResourceScope::Any | ResourceScope::Open => 0,
        ResourceScope::Tool(id) => apart(id, subject.capability()),
        ResourceScope::Server(id) => apart(id, subject.server()),
        ResourceScope::NoTool => usize::MAX,
    }
}

fn scope(subject: &Subject<'_>, scope: &ResourceScope) -> Option<String> {
    match scope {
        ResourceScope::Tool(id) if id != subject.capability() => Some(format!("it is about `{id}` alone")),
        ResourceScope::Server(id) if id != subject.server() => {
            Some(format!("it is about the tools of `{id}` alone"))
        }
        ResourceScope::NoTool => Some("it is about no tools".to_owned()),
        _ => None,
    }
}

fn principal(question: &CallQuestion<'_>, policy: &Policy) -> Option<String> {
    let CallQuestion { agent, profile, .. } = question;
    let is = |uid: &cedar_policy::EntityUid, kind: &str, id: &str| {
        uid.type_name().to_string() == format!("Mcp::{kind}") && uid.id().unescaped() == id
    };
    let is_agent = |uid| is(uid, "Agent", agent.as_str());
    let within = |uid| is_agent(uid) || is(uid, "Profile", profile.as_str());
    let (applies, told) = match policy.principal_constraint() {
        PrincipalConstraint::Any | PrincipalConstraint::Is(_) => return None,
        PrincipalConstraint::Eq(uid) => (is_agent(&uid), format!("principal == {uid}")),
        PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => {
            (within(&uid), format!("principal in {uid}"))
        }
    };
    (!applies).then(|| format!("it is for `{told}`, and `{agent}` of `{profile}` asks"))
}

#[cfg(test)]
mod tests {
    use portcullis_types::{AgentId, Tier};

    use super::*;
    use crate::{DecisionPoint, PolicyFile, ToolFacts};

    /// How many tags the arguments of a call become where the nearest of these rules is looked for; the reason that
    /// it does not apply is the same in any case.
    #[track_caller]
    fn check(rules: &str, arguments: &str, read: &[&str], unmet: Option<&str>) {
        let file = PolicyFile {
            name: "t.rules".to_owned(),
            text: rules.to_owned(),
        };
        let point = DecisionPoint::load(&[file]).unwrap();
        let (base, agent) = (point.base().unwrap(), AgentId::default());
        let tool = ToolFacts::from_definition("mcp.a.t".parse().unwrap(), "stdio", "{}", true);
        let question = CallQuestion {
            agent: &agent,
            profile: &agent,
            tier: Tier::default(),
            tool: &tool,
            arguments,
            now_ms: 0,
        };
        let subject = Subject::new(&tool);
        let permits = base.permits(&question, &subject, Action::Call, Search::All);
        assert_eq!(
            tags_of(&permits),
            TagKeys::These(read.iter().map(ToString::to_string).collect())
        );
        let nearest = base.nearest(&question, Action::Call, Search::All);
        let told = nearest.as_ref().and_then(|nearest| nearest.unmet.first());
        assert_eq!(told.map(String::as_str), unmet);
    }

    #[test]
    fn of_many_policies_some_are_looked_at_closely() {
        let rules: String = (0..100)
            .map(|n| format!("allow mcp.a.t when arg.k == \"{n}\"\n"))
            .collect();
        let file = PolicyFile {
            name: "t.rules".to_owned(),
            text: rules,
        };
        let point = DecisionPoint::load(&[file]).unwrap();
        let (base, agent) = (point.base().unwrap(), AgentId::default());
        let tool = ToolFacts::from_definition("mcp.a.t".parse().unwrap(), "stdio", "{}", true);
        let question = CallQuestion {
            agent: &agent,
            profile: &agent,
            tier: Tier::default(),
            tool: &tool,
            arguments: "{}",
            now_ms: 0,
        };
        for search in [Search::All, Search::Tool] {
            let permits = base.permits(&question, &Subject::new(&tool), Action::Call, search);
            assert_eq!(permits.len(), MAX_LOOKED_AT);
        }
    }

    #[test]
    fn who_asks_counts_as_the_agent_and_as_of_the_profile() {
        let (agent, profile): (AgentId, AgentId) = ("bot".parse().unwrap(), "night".parse().unwrap());
        let tool = ToolFacts::from_definition("mcp.a.t".parse().unwrap(), "stdio", "{}", true);
        let question = CallQuestion {
            agent: &agent,
            profile: &profile,
            tier: Tier::default(),
            tool: &tool,
            arguments: "{}",
            now_ms: 0,
        };
        for (scope, applies) in [
            ("principal == Mcp::Agent::\"bot\"", true),
            ("principal == Mcp::Agent::\"night\"", false),
            ("principal in Mcp::Profile::\"night\"", true),
            ("principal in Mcp::Profile::\"bot\"", false),
            ("principal is Mcp::Agent in Mcp::Profile::\"night\"", true),
            ("principal is Mcp::Agent", true),
        ] {
            let policy = format!("permit ({scope}, action, resource);").parse().unwrap();
            let told = (!applies).then(|| format!("it is for `{scope}`, and `bot` of `night` asks"));
            assert_eq!(principal(&question, &policy), told);
        }
    }

    /// Half a million of them take seconds.
    #[test]
    fn arguments_that_no_policy_reads_become_no_tags() {
        let many = format!(r#"{{"many":[{}0],"path":"/etc"}}"#, "0,".repeat(1_000));
        check("deny mcp.b.*\n", &many, &[], None);
        check(
            "allow mcp.a.t when arg.path == \"/srv\"\nallow mcp.b.u when arg.mode == \"r\"\n",
            &many,
            &["mode", "path"],
            Some("`context.args.getTag(\"path\") == \"/srv\"` does not hold"),
        );
    }
}
