use std::{collections::BTreeSet, fmt};

use portcullis_types::{Hash, PolicyRef};

use crate::{
    DecisionPoint, PolicyErrors, PolicyFile, Seal,
    load::{IndexedPolicy, PolicyBase},
    syntax::said,
};

/// What new policy texts come to, beside the policies in force.
///
/// Whoever holds the decision point swaps it for that of [`Changed`](Self::Changed) in one step, and tells the rest.
#[derive(Debug)]
pub enum Reload {
    /// The texts are those in force.
    Unchanged,
    /// All is well: these policies take over.
    Changed(Box<Reloaded>),
    /// Something is wrong: the policies in force stay.
    Refused(PolicyErrors),
}

/// Policies that take over, and what is different about them.
#[derive(Debug)]
pub struct Reloaded {
    /// The new decision point.
    pub policies: DecisionPoint,
    /// The hash of the policies that go.
    pub digest_before: Hash,
    /// Policies that forbid and are gone without another that says the same; to be announced, since what they
    /// refused may now be done. They are told by their places in the old texts.
    pub vanished_forbids: Vec<PolicyRef>,
}

impl Reload {
    /// Loads `files` to take over from `current`; with a seal, only if they are what was sealed.
    #[must_use]
    pub fn of(current: &DecisionPoint, files: &[PolicyFile], seal: Option<&Seal>) -> Self {
        let loaded = match seal.map_or(Ok(()), |seal| seal.check(files)) {
            Ok(()) => DecisionPoint::load(files),
            Err(errors) => Err(errors),
        };
        match loaded {
            Err(errors) => Self::Refused(errors),
            Ok(policies) if policies.digest() == current.digest() => Self::Unchanged,
            Ok(policies) => Self::Changed(Box::new(Reloaded {
                digest_before: current.digest(),
                vanished_forbids: vanished_forbids(current, &policies),
                policies,
            })),
        }
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "policies {} take over from {}",
            self.policies.digest(),
            self.digest_before
        )?;
        for policy in &self.vanished_forbids {
            write!(f, "; no longer forbidden: {policy}: {}", policy.description)?;
        }
        Ok(())
    }
}

/// By what they say, not by their ids: a rule that moved to another line did not vanish.
fn vanished_forbids(before: &DecisionPoint, after: &DecisionPoint) -> Vec<PolicyRef> {
    let forbids = |base: &PolicyBase| {
        let forbids = base.indexed.iter().filter(|policy| !policy.syntax.permits);
        let said = forbids.map(|IndexedPolicy { policy, .. }| {
            // One that cannot be told says nothing that another does.
            let said = said(policy).unwrap_or_else(|_| policy.to_string());
            (said, policy.id().clone())
        });
        said.collect::<Vec<_>>()
    };
    let kept: BTreeSet<_> = after
        .base()
        .map(forbids)
        .unwrap_or_default()
        .into_iter()
        .map(|(said, _)| said)
        .collect();
    let Some(base) = before.base() else {
        return Vec::new();
    };
    let vanished = forbids(base).into_iter().filter(|(said, _)| !kept.contains(said));
    let mut places: Vec<_> = vanished
        .filter_map(|(_, id)| base.places.get(&id).cloned())
        .collect();
    crate::load::in_order(&mut places);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(rules: &str) -> Vec<PolicyFile> {
        vec![PolicyFile {
            name: "t.rules".to_owned(),
            text: rules.to_owned(),
        }]
    }

    #[track_caller]
    fn check(before: &str, after: &str, expected: &str) {
        let current = DecisionPoint::load(&files(before)).unwrap();
        let told = match Reload::of(&current, &files(after), None) {
            Reload::Unchanged => "unchanged".to_owned(),
            Reload::Refused(errors) => format!("refused: {}", errors.0[0].problem),
            Reload::Changed(new) => {
                let lines = new.vanished_forbids.iter().map(ToString::to_string);
                lines.collect::<Vec<_>>().join(", ")
            }
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn a_forbid_that_vanished_is_told_and_one_that_moved_is_not() {
        check("deny mcp.a.*", "deny mcp.a.*", "unchanged");
        check("deny mcp.a.*", "default ask\n\ndeny mcp.a.*", "");
        check(
            "default ask\ndeny mcp.a.*",
            "default ask",
            "t.rules:2 (t.rules#L2)",
        );
        check(
            "always ask mcp.a.*",
            "ask mcp.a.*",
            "t.rules:1 (t.rules#L1.person)",
        );
        check("allow mcp.a.*", "default deny", "");
    }

    /// Whom and what a policy is about is part of what it says.
    #[test]
    fn a_forbid_that_is_for_another_now_has_vanished() {
        let forbid = |principal: &str, resource: &str| {
            format!(
                "@id(\"f\") @description(\"d\")\nforbid ({principal}, action == Mcp::Action::\"elicit\", {resource});"
            )
        };
        let cedar = |text: String| {
            vec![PolicyFile {
                name: "t.cedar".to_owned(),
                text,
            }]
        };
        let (anyone, anything) = ("principal", "resource");
        let pairs = [
            (
                ("principal == Mcp::Agent::\"a\"", anything),
                ("principal == Mcp::Agent::\"b\"", anything),
            ),
            (
                ("principal in Mcp::Profile::\"a\"", anything),
                ("principal == Mcp::Agent::\"a\"", anything),
            ),
            (
                (anyone, "resource == Mcp::Server::\"mcp.a\""),
                (anyone, "resource == Mcp::Server::\"mcp.b\""),
            ),
        ];
        for (before, after) in pairs {
            let current = DecisionPoint::load(&cedar(forbid(before.0, before.1))).unwrap();
            let vanished = |after: String| match Reload::of(&current, &cedar(after), None) {
                Reload::Changed(new) => new.vanished_forbids.len(),
                other => panic!("{other:?}"),
            };
            assert_eq!(vanished(forbid(after.0, after.1)), 1, "{before:?} {after:?}");
            assert_eq!(
                vanished(format!("\n{}", forbid(before.0, before.1))),
                0,
                "it moved"
            );
        }
    }

    #[test]
    fn what_is_wrong_changes_nothing() {
        check(
            "deny mcp.a.*",
            "dney mcp.a.*",
            "refused: `dney mcp.a.*` is not a rule",
        );
        let current = DecisionPoint::load(&files("deny mcp.a.*")).unwrap();
        let seal = Seal::of(&files("deny mcp.a.*")).unwrap();
        let reload = Reload::of(&current, &files("allow mcp.a.*"), Some(&seal));
        assert!(matches!(reload, Reload::Refused(errors) if errors.to_string().contains("sealed")));
    }
}
