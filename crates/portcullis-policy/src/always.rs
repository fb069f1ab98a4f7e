//! A person's "always" as a policy that can be read, reviewed and committed.

use std::collections::BTreeMap;

use cedar_policy::{Policy, pst};
use chrono::{DateTime, SecondsFormat};
use portcullis_types::{AgentId, CapabilityId, Hash};

use crate::{
    PolicyError, PolicyErrors, PolicyFile, PolicyProblem,
    rules::{entity, entity_type},
};

/// What was allowed for good, and where that comes from.
#[derive(Debug, Clone, Copy)]
pub struct AlwaysAllow<'a> {
    /// The tool, and no other.
    pub capability: &'a CapabilityId,
    /// The agent that asked, and no other.
    pub agent: &'a AgentId,
    /// The person who said so.
    pub by: &'a str,
    /// The number of the call that was asked about.
    pub call: u64,
    /// The hash of that call's arguments.
    pub arguments_hash: Hash,
    /// When, in milliseconds since 1970-01-01T00:00:00Z.
    pub at_ms: i64,
}

/// How much of a tool's name stands in the file's name, in characters.
const SHOWN_NAME: usize = 40;

impl AlwaysAllow<'_> {
    /// The file to be written into the folder of policies: one static policy, formatted, that permits this agent to
    /// call this tool unattended. Its name ends in the time. Whether the answer holds is for all policies together to
    /// say: a forbid stands above it.
    ///
    /// # Errors
    /// What keeps the policy from being written down; never for what a capability can be called.
    pub fn policy(&self) -> Result<PolicyFile, PolicyErrors> {
        let id = self.id();
        let name = format!("{id}.cedar");
        let failed =
            |error: String| PolicyErrors(vec![PolicyError::new(&name, 1, PolicyProblem::Internal(error))]);
        let policy = self.built(&id).map_err(|error| failed(error.to_string()))?;
        let file = PolicyFile {
            name: name.clone(),
            text: policy.to_string(),
        };
        let text = crate::format::pretty(&file, &file.text)?;
        let head = "// Written when a person chose \"always\". Edit or delete it like any other policy.\n";
        Ok(PolicyFile {
            name,
            text: format!("{head}{text}"),
        })
    }

    fn id(&self) -> String {
        let name = format!("{}-{}", self.capability.server(), self.capability.tool());
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        };
        let name: String = name.chars().map(plain).take(SHOWN_NAME).collect();
        // Two tools whose names are cut or cleaned into one have two files all the same.
        let whole = Hash::of(format!("{}\n{}", self.capability, self.agent).as_bytes()).to_string();
        let digest: String = whole.chars().take(8).collect();
        let at = self.at(SecondsFormat::Millis).replace(['-', ':', '.'], "");
        format!("always-{name}-{digest}-{at}")
    }

    fn at(&self, format: SecondsFormat) -> String {
        let at = DateTime::from_timestamp_millis(self.at_ms).unwrap_or_default();
        at.to_rfc3339_opts(format, true)
    }

    fn built(&self, id: &str) -> Result<Policy, Box<dyn std::error::Error>> {
        let description = format!(
            "Always allowed by {} at {}, when asked about call {} with arguments {}.",
            self.by.escape_default(),
            self.at(SecondsFormat::Secs),
            self.call,
            self.arguments_hash
        );
        let annotations = [
            ("id", id),
            ("description", description.as_str()),
            ("untested", "a person's word, not a rule of the reviewers'"),
        ];
        let annotations: BTreeMap<_, _> = annotations
            .into_iter()
            .map(|(name, value)| (name.to_owned(), pst::SmolStr::from(value)))
            .collect();
        let only = |uid| pst::EntityOrSlot::Entity(uid);
        let action = entity_type("Action")?;
        let actions = vec![entity(&action, "call"), entity(&action, "unattended")];
        let template = pst::Template::new(
            id,
            pst::Effect::Permit,
            pst::PrincipalConstraint::Eq(only(entity(&entity_type("Agent")?, self.agent.as_str()))),
            pst::ActionConstraint::In(actions),
            pst::ResourceConstraint::Eq(only(entity(&entity_type("Tool")?, &self.capability.to_string()))),
        )
        .with_annotations(annotations);
        Ok(Policy::from_pst(pst::Policy::Static(template.try_into()?))?)
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::{Answer, Tier};

    use super::*;
    use crate::{CallQuestion, DecisionPoint, ToolFacts, format_policies};

    /// What `rules` and an "always" for `allowed` say of a call of `asked` by `agent`.
    fn answer(rules: &str, allowed: &str, asked: &str, agent: &str) -> Answer {
        let allowed: CapabilityId = allowed.parse().unwrap();
        let always = AlwaysAllow {
            capability: &allowed,
            agent: &AgentId::default(),
            by: "ann \"x\"\n",
            call: 7,
            arguments_hash: Hash::of(b"{}"),
            at_ms: 1_790_000_000_000,
        };
        let file = always.policy().unwrap();
        assert_eq!(format_policies(&file).unwrap(), file.text, "it is formatted");
        let rules = PolicyFile {
            name: "t.rules".to_owned(),
            text: rules.to_owned(),
        };
        let policies = DecisionPoint::load(&[rules, file]).unwrap();
        let agent = agent.parse().unwrap();
        let tool = ToolFacts::from_definition(asked.parse().unwrap(), "stdio", "{}", true);
        policies
            .decide(&CallQuestion {
                agent: &agent,
                profile: &AgentId::default(),
                tier: Tier::RequestApproval,
                tool: &tool,
                arguments: "{}",
                now_ms: 0,
            })
            .answer
    }

    #[test]
    fn it_holds_for_this_tool_and_this_agent_alone() {
        let hostile = "mcp.a.x\"] ) ; permit(principal,action,resource); //*";
        for name in ["mcp.a.x", "mcp.a.x y*?/ü", hostile] {
            assert_eq!(
                answer("default ask", name, name, "default"),
                Answer::Allow,
                "{name}"
            );
            assert_eq!(
                answer("default deny", name, name, "default"),
                Answer::Allow,
                "{name}: it needs no other permit"
            );
            assert_eq!(answer("default ask", name, "mcp.a.other", "default"), Answer::Ask);
            assert_eq!(answer("default ask", name, name, "other"), Answer::Ask, "{name}");
            assert_eq!(
                answer("deny mcp.a.*", name, name, "default"),
                Answer::Deny,
                "{name}"
            );
            assert_eq!(
                answer("ask mcp.a.*", name, name, "default"),
                Answer::Ask,
                "{name}"
            );
        }
    }

    /// A name that cannot be read for what it is cannot be allowed for good: the policy does not load.
    #[test]
    fn a_name_with_what_cannot_be_seen_is_not_written() {
        for name in ["mcp.a.x\ny", "mcp.a.x\u{202e}y", "mcp.a.x\u{200b}"] {
            let capability: CapabilityId = name.parse().unwrap();
            let always = AlwaysAllow {
                capability: &capability,
                agent: &AgentId::default(),
                by: "ann",
                call: 1,
                arguments_hash: Hash::of(b"{}"),
                at_ms: 0,
            };
            assert!(
                always
                    .policy()
                    .and_then(|file| DecisionPoint::load(&[file]))
                    .is_err(),
                "{name:?}"
            );
        }
    }

    /// Names are cut and cleaned, and two answers may be given in one moment.
    #[test]
    fn each_tool_and_each_agent_has_a_file_of_its_own() {
        let long = "x".repeat(100);
        let tools = ["a.b", "a-b", "A.b", &format!("{long}1"), &format!("{long}2")];
        let mut names = std::collections::BTreeSet::new();
        for (tool, agent) in tools.iter().flat_map(|tool| [(tool, "one"), (tool, "two")]) {
            let always = AlwaysAllow {
                capability: &format!("mcp.s.{tool}").parse().unwrap(),
                agent: &agent.parse().unwrap(),
                by: "ann",
                call: 1,
                arguments_hash: Hash::of(b"{}"),
                at_ms: 0,
            };
            let name = always.policy().unwrap().name;
            assert!(name.len() < 100, "{name}");
            names.insert(name);
        }
        assert_eq!(names.len(), 2 * tools.len(), "{names:?}");
    }

    #[test]
    fn it_says_where_it_comes_from() {
        let capability = "mcp.notes.write".parse().unwrap();
        let always = AlwaysAllow {
            capability: &capability,
            agent: &AgentId::default(),
            by: "ann\n\u{202e}",
            call: 7,
            arguments_hash: Hash::of(b"{}"),
            at_ms: 1_790_000_000_123,
        };
        let file = always.policy().unwrap();
        assert!(file.name.starts_with("always-notes-write-"), "{}", file.name);
        assert!(file.name.ends_with("-20260921T141320123Z.cedar"), "{}", file.name);
        let said = r"Always allowed by ann\n\u{202e} at 2026-09-21T14:13:20Z, when asked about call 7 with arguments ";
        let text = file.text.clone();
        let policies = DecisionPoint::load(std::slice::from_ref(&file)).unwrap();
        let mut described = policies
            .policies()
            .iter()
            .map(|policy| policy.description.as_str());
        assert!(
            described.any(|description| description.starts_with(said)),
            "{text}"
        );
        assert!(
            file.text.contains("principal == Mcp::Agent::\"default\""),
            "{}",
            file.text
        );
    }
}
