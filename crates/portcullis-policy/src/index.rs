//! Which policies can be about a tool, found in time that does not grow with their number.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use cedar_policy::pst::{self, BinaryOp, Expr};

use crate::{
    resolve::Subject,
    syntax::{ResourceScope, Syntax},
};

/// The longest prefix of a tool's name that is looked up, in bytes.
const MAX_PREFIX_BYTES: usize = 32;

/// Policies by what their scopes and first conditions demand of a tool.
///
/// A policy that is not found for a tool is not satisfied by it and does not fail on it: scopes cannot fail, and a
/// condition counts only where nothing that could fail is evaluated before it.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_tool: HashMap<String, Vec<usize>>,
    by_server: HashMap<String, Vec<usize>>,
    /// By the beginning of the tool's name, on whatever server.
    by_prefix: HashMap<String, Vec<usize>>,
    /// The lengths of these beginnings, in bytes.
    prefix_bytes: HashSet<usize>,
    anywhere: Vec<usize>,
}

impl Index {
    /// Indexes policies by their positions.
    pub(crate) fn of<'s>(policies: impl Iterator<Item = &'s Syntax>) -> Self {
        let mut index = Self::default();
        for (position, policy) in policies.enumerate() {
            let bucket = match &policy.resource {
                ResourceScope::NoTool => continue,
                ResourceScope::Tool(id) => index.by_tool.entry(id.clone()).or_default(),
                ResourceScope::Server(id) => index.by_server.entry(id.clone()).or_default(),
                ResourceScope::Open => &mut index.anywhere,
                ResourceScope::Any => match demanded_prefix(policy) {
                    Some(prefix) => {
                        index.prefix_bytes.insert(prefix.len());
                        index.by_prefix.entry(prefix).or_default()
                    }
                    None => &mut index.anywhere,
                },
            };
            bucket.push(position);
        }
        index
    }

    /// The positions of all policies that can be about the tool, in order.
    pub(crate) fn candidates(&self, subject: &Subject<'_>, name: &str) -> Vec<usize> {
        let mut found = self.anywhere.clone();
        found.extend(self.by_tool.get(subject.capability()).into_iter().flatten());
        found.extend(self.by_server.get(subject.server()).into_iter().flatten());
        for bytes in &self.prefix_bytes {
            let bucket = name.get(Range {
                start: 0,
                end: *bytes,
            });
            found.extend(
                bucket
                    .and_then(|prefix| self.by_prefix.get(prefix))
                    .into_iter()
                    .flatten(),
            );
        }
        found.sort_unstable();
        found
    }
}

/// How the name of a tool must begin for the policy to be satisfied, or to fail.
fn demanded_prefix(policy: &Syntax) -> Option<String> {
    let Some(pst::Clause::When(first)) = policy.clauses.first() else {
        return None;
    };
    let mut conjuncts = Vec::new();
    flatten(first, &mut conjuncts);
    conjuncts
        .into_iter()
        .map_while(text_comparison)
        .filter(|(attr, _)| *attr == "name")
        .map(|(_, prefix)| cut(prefix))
        .find(|prefix| !prefix.is_empty())
}

fn flatten<'e>(expr: &'e Expr, into: &mut Vec<&'e Expr>) {
    match expr {
        Expr::BinaryOp {
            op: BinaryOp::And,
            left,
            right,
        } => {
            flatten(left, into);
            flatten(right, into);
        }
        other => into.push(other),
    }
}

/// `resource.x == "…"` or `resource.x like "…"`, which cannot fail on a tool: the attribute and how it must begin.
fn text_comparison(expr: &Expr) -> Option<(&str, String)> {
    match expr {
        Expr::BinaryOp {
            op: BinaryOp::Eq,
            left,
            right,
        } => match right.as_ref() {
            Expr::Literal(pst::Literal::String(text)) => Some((attribute(left)?, text.to_string())),
            _ => None,
        },
        Expr::Like { expr, pattern } => {
            let literal = pattern.iter().map_while(|element| match element {
                pst::PatternElem::Char(character) => Some(*character),
                pst::PatternElem::Wildcard => None,
            });
            Some((attribute(expr)?, literal.collect()))
        }
        _ => None,
    }
}

fn attribute(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::GetAttr { expr, attr } if **expr == Expr::Var(pst::Var::Resource) => {
            matches!(attr.as_str(), "cap" | "source" | "server" | "name").then_some(attr.as_str())
        }
        _ => None,
    }
}

fn cut(mut prefix: String) -> String {
    prefix.truncate(prefix.floor_char_boundary(MAX_PREFIX_BYTES));
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolFacts;

    fn check(policies: &[&str], capability: &str, expected: &[usize]) {
        let syntaxes: Vec<_> = policies
            .iter()
            .map(|text| Syntax::of(&text.parse().unwrap()).unwrap())
            .collect();
        let index = Index::of(syntaxes.iter());
        let tool = ToolFacts::from_definition(capability.parse().unwrap(), "stdio", "{}", true);
        let found = index.candidates(&Subject::new(&tool), tool.capability.tool());
        assert_eq!(found, expected, "{capability}");
    }

    #[test]
    fn scopes_and_prefixes_lead_to_their_policies() {
        let when = |condition: &str| format!("permit (principal, action, resource) when {{ {condition} }};");
        let prefix = when(r#"resource.source == "mcp" && resource.name like "delete_*""#);
        let exact = when(r#"resource.name == "é""#);
        let hidden = when(r#"principal has x && resource.name like "delete_*""#);
        let open = when(r#"resource.name like "*""#);
        let long = when(&format!(r#"resource.name like "{}*""#, "é".repeat(20)));
        let policies = [
            "permit (principal, action, resource == Mcp::Tool::\"mcp.a.b\");",
            "permit (principal, action, resource in Mcp::Server::\"mcp.a\");",
            "permit (principal, action, resource is Mcp::Tool in Mcp::Tool::\"mcp.a.b\");",
            "permit (principal, action, resource is Mcp::Server);",
            &prefix,
            &exact,
            &hidden,
            &open,
            &long,
        ];
        check(&policies, "mcp.a.b", &[0, 1, 2, 6, 7]);
        check(&policies, "host.a.b", &[6, 7]);
        check(&policies, "mcp.z.delete_x", &[4, 6, 7]);
        check(&policies, "mcp.z.delete", &[6, 7]);
        check(&policies, "mcp.z.é", &[5, 6, 7]);
        check(&policies, &format!("mcp.z.{}", "é".repeat(20)), &[5, 6, 7, 8]);
    }
}
