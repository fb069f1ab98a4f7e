//! What loads and decides, but may not mean what its author thinks.

mod catalog;
mod rules;

use std::fmt;

use cedar_policy::Policy;
use cedar_policy_core::ast::{self, Expr, ExprKind, PatternElem};
use portcullis_types::{CapabilityId, PolicyRef};
use serde::Serialize;

use crate::{
    DecisionPoint, PolicyErrors, PolicyFile, load::IndexedPolicy, model::Action, syntax::ResourceScope,
};

/// One thing that a reviewer should look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The file, as it was named when it was given.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// Which lint.
    pub lint: Lint,
    /// What was found.
    pub message: String,
}

/// The lints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Lint {
    /// A wildcard in the id of an entity, where it is an ordinary character.
    LiteralWildcard,
    /// A star written as an escape: in `like` it is a wildcard nevertheless, and in a rule it is no star at all.
    EscapedWildcard,
    /// A wildcard in a server's name that grants: it is open to servers that are not there yet.
    ServerWildcard,
    /// The joined id is compared with wildcards, which cross from the server's name into the tool's.
    JoinedName,
    /// A policy that names no action, and so is about elicitation, resources and prompts as well.
    Unscoped,
    /// A rule that another rule leaves without effect.
    Shadowed,
    /// The catalog has no such server.
    UnknownServer,
    /// The catalog has no such tool.
    UnknownTool,
    /// No tool of the catalog is meant.
    MatchesNothing,
}

impl Lint {
    /// All lints.
    pub const ALL: [Self; 9] = [
        Self::LiteralWildcard,
        Self::EscapedWildcard,
        Self::ServerWildcard,
        Self::JoinedName,
        Self::Unscoped,
        Self::Shadowed,
        Self::UnknownServer,
        Self::UnknownTool,
        Self::MatchesNothing,
    ];

    /// The lint's stable name, and what to do about it.
    #[must_use]
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::LiteralWildcard => (
                "literal-wildcard",
                "in Cedar, write `resource in Mcp::Server::\"…\"` for a whole server, and match names and arguments by `like`; in a \
                 rule's pattern, write `*` for any run of characters; a star that is meant is compared by `==` in Cedar",
            ),
            Self::EscapedWildcard => (
                "escaped-wildcard",
                "write `*` for any run of characters and `\\*` for a star",
            ),
            Self::ServerWildcard => (
                "server-wildcard",
                "name the servers that are meant, one rule each",
            ),
            Self::JoinedName => (
                "joined-name",
                "compare `resource.server` and `resource.name`, each apart",
            ),
            Self::Unscoped => (
                "unscoped",
                "name the actions: `action in [Mcp::Action::\"call\", Mcp::Action::\"unattended\"]`",
            ),
            Self::Shadowed => ("shadowed", "remove it, or the one that outdoes it"),
            Self::UnknownServer => ("unknown-server", "correct the name, or remove the policy"),
            Self::UnknownTool => ("unknown-tool", "correct the name, or remove the policy"),
            Self::MatchesNothing => ("matches-nothing", "correct the pattern, or remove the policy"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, help) = self.lint.describe();
        write!(
            f,
            "{}:{}: {} [{name}]\n  help: {help}",
            self.file, self.line, self.message
        )
    }
}

impl Finding {
    fn at(place: &PolicyRef, lint: Lint, message: String) -> Self {
        Self {
            file: place.file.clone(),
            line: place.line,
            lint,
            message,
        }
    }
}

/// Looks for what may not mean what its author thinks; with a catalog of tools, also for what means nothing in it.
///
/// ```
/// use portcullis_policy::{Lint, PolicyFile, lint};
///
/// let rules = "allow mcp.git*.*\n";
/// let findings = lint(&[PolicyFile { name: "team.rules".into(), text: rules.into() }], None)?;
/// assert_eq!(findings[0].lint, Lint::ServerWildcard);
/// # Ok::<(), portcullis_policy::PolicyErrors>(())
/// ```
///
/// # Errors
/// What keeps the files from loading.
pub fn lint(files: &[PolicyFile], catalog: Option<&[CapabilityId]>) -> Result<Vec<Finding>, PolicyErrors> {
    let point = DecisionPoint::load(files)?;
    let mut findings = Vec::new();
    for file in files {
        findings.extend(escaped_wildcards(file));
        if file.name.ends_with(".rules") {
            findings.extend(rules::lint(file, catalog));
        }
    }
    findings.extend(rules::shadowed(files));
    for (place, policy) in point.base().into_iter().flat_map(|base| base.placed()) {
        if place.file.ends_with(".cedar") && !place.file.starts_with(crate::builtin::FOLDER) {
            findings.extend(of_cedar(place, policy));
            findings.extend(
                catalog
                    .into_iter()
                    .flat_map(|catalog| catalog::unknown(place, policy, catalog)),
            );
        }
    }
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Found in the text: once parsed, an escaped star and a bare one are the same.
fn escaped_wildcards(file: &PolicyFile) -> impl Iterator<Item = Finding> + '_ {
    let lines = (1..).zip(file.text.lines());
    lines
        .filter(|(_, text)| has_escaped_star(text))
        .map(|(line, _)| Finding {
            file: file.name.clone(),
            line,
            lint: Lint::EscapedWildcard,
            message: "a star is written as an escape, which reads as a literal star and is none".to_owned(),
        })
}

fn has_escaped_star(text: &str) -> bool {
    let braced = text.split("\\u{").skip(1).filter_map(|rest| rest.split_once('}'));
    let is_star = |digits: &str| u32::from_str_radix(digits, 16) == Ok(u32::from('*'));
    let mut short = text.split("\\x").skip(1).chain(text.split("\\u").skip(1));
    braced
        .into_iter()
        .any(|(digits, _)| is_star(&digits.replace('_', "")))
        || short.any(|rest| rest.get(..2).is_some_and(is_star) || rest.get(..4).is_some_and(is_star))
}

fn of_cedar(place: &PolicyRef, indexed: &IndexedPolicy) -> Vec<Finding> {
    let IndexedPolicy { policy, syntax, .. } = indexed;
    let mut findings = Vec::new();
    let mut report = |lint, message| findings.push(Finding::at(place, lint, message));
    for uid in literals(policy) {
        if uid.1.contains('*') {
            report(
                Lint::LiteralWildcard,
                format!("in `{}::\"{}\"` the `*` is an ordinary character", uid.0, uid.1),
            );
        }
    }
    if syntax.actions.len() == Action::ALL.len() {
        report(
            Lint::Unscoped,
            "it names no action, and so is about elicitation, resources and prompts as well".to_owned(),
        );
    }
    if is_compared(policy, "cap") {
        report(
            Lint::JoinedName,
            "it compares `resource.cap` by `like`, where a `*` crosses from the server's name into the tool's".to_owned(),
        );
    }
    if syntax.permits && is_compared(policy, "server") {
        report(
            Lint::ServerWildcard,
            "it permits by the beginning of a server's name, so that a server added later may be meant"
                .to_owned(),
        );
    }
    findings
}

/// Whether a policy compares this attribute of the tool with wildcards, but for one that any text matches.
fn is_compared(policy: &Policy, wanted: &str) -> bool {
    let tree: &ast::Policy = policy.as_ref();
    let all = tree.non_scope_constraints().into_iter();
    all.flat_map(Expr::subexpressions).any(|expr| {
        let ExprKind::Like { expr, pattern } = expr.expr_kind() else {
            return false;
        };
        let ExprKind::GetAttr { expr, attr } = expr.expr_kind() else {
            return false;
        };
        let is_wild = |element: &PatternElem| *element == PatternElem::Wildcard;
        attr == wanted
            && matches!(expr.expr_kind(), ExprKind::Var(ast::Var::Resource))
            && pattern.iter().any(is_wild)
            && !pattern.iter().all(is_wild)
    })
}

/// The tools and servers that a policy names, by type and id.
fn literals(policy: &Policy) -> Vec<(&'static str, String)> {
    let uids = policy.entity_literals().into_iter();
    uids.filter_map(|uid| {
        let kind = match uid.type_name().to_string().as_str() {
            "Mcp::Tool" => "Mcp::Tool",
            "Mcp::Server" => "Mcp::Server",
            _ => return None,
        };
        Some((kind, uid.id().unescaped().to_owned()))
    })
    .collect()
}

/// Whether a scope is about all tools.
fn is_about_all(scope: &ResourceScope) -> bool {
    matches!(scope, ResourceScope::Any | ResourceScope::Open)
}

#[cfg(test)]
mod tests;
