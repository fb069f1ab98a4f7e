//! Which policies the decision tables exercise.

use std::collections::{BTreeMap, HashSet};

use portcullis_types::PolicyRef;

use super::CaseReport;
use crate::{DecisionPoint, PolicyErrors, PolicyFile, builtin, source::UNTESTED};

/// Which policies decided in some case. The two policies of one rule count as one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Those that did.
    pub exercised: Vec<PolicyRef>,
    /// Those that did not and are marked: `@untested("why")`, or `# untested: why` behind a rule.
    pub marked: Vec<PolicyRef>,
    /// Those that did not, and nobody says why.
    pub untested: Vec<PolicyRef>,
    /// Those that are marked and did.
    pub marked_in_vain: Vec<PolicyRef>,
}

impl Coverage {
    /// The coverage of `policies` by the decisions of `report`.
    ///
    /// # Errors
    /// What keeps the policies from loading.
    pub fn of(policies: &[PolicyFile], report: &CaseReport) -> Result<Self, PolicyErrors> {
        let point = DecisionPoint::load(policies)?;
        let mut coverage = Self::default();
        let mut places = BTreeMap::new();
        for policy in point.policies() {
            if !policy.file.starts_with(builtin::FOLDER) {
                places.entry(counted_as(policy)).or_insert(policy);
            }
        }
        let decided = report.decided.iter();
        let decided: HashSet<_> = decided.map(counted_as).collect();
        let marked = marked_rules(policies);
        for (unit, policy) in places {
            let is_marked = match unit {
                (.., Some(id)) => point
                    .base()
                    .is_some_and(|base| base.annotation(id, UNTESTED).is_some()),
                (file, line, None) => marked.contains(&(file, line)),
            };
            let into = match (decided.contains(&unit), is_marked) {
                (true, false) => &mut coverage.exercised,
                (true, true) => &mut coverage.marked_in_vain,
                (false, true) => &mut coverage.marked,
                (false, false) => &mut coverage.untested,
            };
            into.push(policy.clone());
        }
        Ok(coverage)
    }

    /// Whether each policy is exercised, or marked with good reason.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.untested.is_empty() && self.marked_in_vain.is_empty()
    }
}

/// What a policy counts as: a rule by its line, with whatever it compiles to, and a Cedar policy for itself.
fn counted_as(policy: &PolicyRef) -> (&str, usize, Option<&str>) {
    let of_cedar = policy.file.ends_with(".cedar");
    (&policy.file, policy.line, of_cedar.then_some(policy.id.as_str()))
}

/// The rules that say in a comment why no case exercises them, by file and line.
fn marked_rules(files: &[PolicyFile]) -> HashSet<(&str, usize)> {
    let rules = files.iter().filter(|file| file.name.ends_with(".rules"));
    let lines = rules.flat_map(|file| {
        let lines = (1..).zip(file.text.lines());
        lines.map(move |(line, text)| (file, line, text))
    });
    lines
        .filter(|(.., text)| crate::rules::is_marked_untested(text))
        .map(|(file, line, _)| (file.name.as_str(), line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_cases;

    fn file(name: &str, text: &str) -> PolicyFile {
        PolicyFile {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_policy_that_never_decides_is_told_unless_it_is_marked() {
        let rules = "ask mcp.a.*\ndeny mcp.b.*\nallow mcp.c.* # untested: comes next week\ndeny mcp.d.* # untested:\n";
        let cedar = "@id(\"one\") @description(\"d\") @untested(\"no agent yet\")\nforbid (principal == Mcp::Agent::\"x\", action == Mcp::Action::\"call\", resource);\n@id(\"two\") @description(\"d\") @untested(\"wrong\")\nforbid (principal, action == Mcp::Action::\"call\", resource in Mcp::Server::\"mcp.e\");";
        let policies = [file("t.rules", rules), file("t.cedar", cedar)];
        let table = "tools: [{tool: mcp.a.x}, {tool: mcp.e.x}]\ncases: [{tool: mcp.a.x, expect: ask}, {tool: mcp.e.x, expect: deny}]";
        let report = run_cases(&[file("t.yaml", table)], &policies);
        assert!(report.passed(), "{report}");
        let coverage = Coverage::of(&policies, &report).unwrap();
        let ids = |policies: &[PolicyRef]| {
            policies
                .iter()
                .map(|policy| policy.id.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&coverage.exercised), ["t.rules#L1.call"]);
        assert_eq!(ids(&coverage.untested), ["t.rules#L2", "t.rules#L4"]);
        assert_eq!(ids(&coverage.marked), ["one", "t.rules#L3"]);
        assert_eq!(ids(&coverage.marked_in_vain), ["two"]);
        assert!(!coverage.is_complete());
    }

    #[test]
    fn policies_of_one_line_count_each_for_itself() {
        let forbid = |server: &str| {
            format!(
                "@id(\"{server}\") @description(\"d\") forbid (principal, action == Mcp::Action::\"call\", resource in Mcp::Server::\"mcp.{server}\");"
            )
        };
        let policies = [file("t.cedar", &format!("{} {}", forbid("a"), forbid("b")))];
        let table = "tools: [{tool: mcp.a.x}]\ncases: [{tool: mcp.a.x, expect: deny}]";
        let report = run_cases(&[file("t.yaml", table)], &policies);
        let coverage = Coverage::of(&policies, &report).unwrap();
        let ids = |policies: &[PolicyRef]| {
            policies
                .iter()
                .map(|policy| policy.id.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (ids(&coverage.exercised), ids(&coverage.untested)),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
    }
}
