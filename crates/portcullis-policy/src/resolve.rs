//! Conditions that read only the tool and the tier, resolved without Cedar.
//!
//! What is said here is what Cedar would say, or nothing: only comparisons that cannot fail are looked at, and as
//! soon as something else comes first in the order of evaluation, the answer is left to Cedar.

use std::borrow::Cow;

use cedar_policy::pst::{self, BinaryOp, Expr};
use portcullis_types::Tier;

use crate::{
    ToolFacts,
    pattern::{Piece, matches_pieces},
    syntax::{ResourceScope, Syntax, is},
};

/// A tool, and the tier where it is known.
pub(crate) struct Subject<'t> {
    tool: &'t ToolFacts,
    /// The ids of the tool's entity and of its server's.
    capability: String,
    server: String,
    tier: Option<Tier>,
}

impl<'t> Subject<'t> {
    pub(crate) fn new(tool: &'t ToolFacts) -> Self {
        let id = &tool.capability;
        Self {
            tool,
            capability: id.to_string(),
            server: format!("{}.{}", id.source().as_str(), id.server()),
            tier: None,
        }
    }

    pub(crate) fn capability(&self) -> &str {
        &self.capability
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn in_tier(&mut self, tier: Tier) -> &Self {
        self.tier = Some(tier);
        self
    }

    /// Takes the tier back. What is resolved without one is the same in each.
    pub(crate) fn in_no_tier(&mut self) {
        self.tier = None;
    }

    /// Whether the policy is satisfied, whoever asks for whatever; `None` where that is for Cedar to say.
    pub(crate) fn resolve(&self, policy: &Syntax) -> Option<bool> {
        let in_scope = match &policy.resource {
            ResourceScope::Any => true,
            ResourceScope::Tool(id) => *id == self.capability,
            ResourceScope::Server(id) => *id == self.server,
            ResourceScope::NoTool => false,
            ResourceScope::Open => return None,
        };
        if !in_scope {
            return Some(false);
        }
        for clause in &policy.clauses {
            let holds = match clause {
                pst::Clause::When(expr) => self.flag(expr)?,
                pst::Clause::Unless(expr) => !self.flag(expr)?,
            };
            if !holds {
                return Some(false);
            }
        }
        // Scopes cannot fail, so a condition that does not hold settles it before the principal is looked at.
        policy.any_principal.then_some(true)
    }

    fn flag(&self, expr: &Expr) -> Option<bool> {
        match expr {
            Expr::Literal(pst::Literal::Bool(flag)) => Some(*flag),
            Expr::GetAttr { expr, attr } if is_resource(expr) => self.tool.flag(attr),
            Expr::UnaryOp {
                op: pst::UnaryOp::Not,
                expr,
            } => self.flag(expr).map(|flag| !flag),
            Expr::BinaryOp { op, left, right } => self.operation(*op, left, right),
            Expr::Like { expr, pattern } => {
                let pieces = pattern.iter().map(|element| match element {
                    pst::PatternElem::Char(character) => Piece::Char(*character),
                    pst::PatternElem::Wildcard => Piece::Any,
                });
                Some(matches_pieces(pieces, &self.text(expr)?))
            }
            Expr::Is {
                expr,
                entity_type,
                in_expr,
            } if is_resource(expr) => match in_expr {
                _ if !is(entity_type, "Tool") => Some(false),
                Some(inner) => self.is_in(inner),
                None => Some(true),
            },
            Expr::IfThenElse {
                cond,
                then_expr,
                else_expr,
            } => self.flag(if self.flag(cond)? { then_expr } else { else_expr }),
            _ => None,
        }
    }

    fn operation(&self, op: BinaryOp, left: &Expr, right: &Expr) -> Option<bool> {
        match op {
            // The right side is evaluated only where the left one does not settle it.
            BinaryOp::And => match self.flag(left)? {
                false => Some(false),
                true => self.flag(right),
            },
            BinaryOp::Or => match self.flag(left)? {
                true => Some(true),
                false => self.flag(right),
            },
            BinaryOp::Eq => self.equal(left, right),
            BinaryOp::NotEq => self.equal(left, right).map(|equal| !equal),
            BinaryOp::In if is_resource(left) => self.is_in(right),
            BinaryOp::Contains => {
                let Expr::Set(items) = left else { return None };
                let wanted = self.text(right)?;
                let items: Option<Vec<_>> = items.iter().map(|item| self.text(item)).collect();
                Some(items?.contains(&wanted))
            }
            _ => None,
        }
    }

    fn equal(&self, left: &Expr, right: &Expr) -> Option<bool> {
        if let (Some(left), Some(right)) = (self.text(left), self.text(right)) {
            return Some(left == right);
        }
        if let (Some(left), Some(right)) = (self.entity(left), self.entity(right)) {
            return Some(left == right);
        }
        Some(self.flag(left)? == self.flag(right)?)
    }

    /// Whether the tool is in the entity, or in one of the set.
    fn is_in(&self, of: &Expr) -> Option<bool> {
        if let Expr::Set(items) = of {
            let found: Option<Vec<_>> = items.iter().map(|item| self.is_in(item)).collect();
            return Some(found?.contains(&true));
        }
        match of {
            Expr::Literal(pst::Literal::EntityUID(uid)) if is(&uid.ty, "Tool") => {
                Some(uid.eid == self.capability)
            }
            Expr::Literal(pst::Literal::EntityUID(uid)) if is(&uid.ty, "Server") => {
                Some(uid.eid == self.server)
            }
            _ => None,
        }
    }

    fn text<'e>(&'e self, expr: &'e Expr) -> Option<Cow<'e, str>> {
        match expr {
            Expr::Literal(pst::Literal::String(text)) => Some(Cow::Borrowed(text.as_str())),
            Expr::GetAttr { expr, attr } if is_resource(expr) => match attr.as_str() {
                "cap" => Some(Cow::Borrowed(self.capability.as_str())),
                attr => self.tool.text(attr).map(Cow::Borrowed),
            },
            _ => None,
        }
    }

    /// The type's name and the id of an entity of the model.
    fn entity<'e>(&'e self, expr: &'e Expr) -> Option<(&'static str, &'e str)> {
        match expr {
            Expr::Var(pst::Var::Resource) => Some(("Tool", &self.capability)),
            Expr::Literal(pst::Literal::EntityUID(uid)) => {
                let known = ["Tool", "Server", "Tier"].into_iter();
                known
                    .filter(|name| is(&uid.ty, name))
                    .map(|name| (name, uid.eid.as_str()))
                    .next()
            }
            Expr::GetAttr { expr, attr } if **expr == Expr::Var(pst::Var::Context) && attr == "tier" => {
                Some(("Tier", self.tier?.as_str()))
            }
            _ => None,
        }
    }
}

fn is_resource(expr: &Expr) -> bool {
    *expr == Expr::Var(pst::Var::Resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(condition: &str, expected: Option<bool>) {
        let tool = ToolFacts::from_definition(
            "mcp.github.get_issue".parse().unwrap(),
            "stdio",
            r#"{"annotations":{"readOnlyHint":true}}"#,
            true,
        );
        let mut subject = Subject::new(&tool);
        subject.in_tier(Tier::Plan);
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        let syntax = Syntax::of(&text.parse().unwrap()).unwrap();
        assert_eq!(subject.resolve(&syntax), expected, "{condition}");
    }

    #[test]
    fn what_cannot_fail_is_resolved_in_cedars_order() {
        check(r#"resource.name == "get_issue""#, Some(true));
        check(r#""get_issue" != resource.name"#, Some(false));
        check(
            r#"resource.name like "get_*" && resource.server like "git*""#,
            Some(true),
        );
        check(r#"resource.cap like "mcp.*.get_\*""#, Some(false));
        check("resource.readOnly && !resource.idempotent", Some(true));
        check(
            r#"resource in [Mcp::Server::"mcp.x", Mcp::Server::"mcp.github"]"#,
            Some(true),
        );
        check(r#"resource is Mcp::Tool in Mcp::Server::"mcp.x""#, Some(false));
        check(r#"resource == Mcp::Tool::"mcp.github.get_issue""#, Some(true));
        check(r#"context.tier == Mcp::Tier::"plan""#, Some(true));
        check(r#"["a", "get_issue"].contains(resource.name)"#, Some(true));
        check(
            r#"if resource.readOnly then false else principal has x"#,
            Some(false),
        );
        let fails = "9223372036854775807 + 1 == 0";
        check(fails, None);
        check(&format!("{fails} && resource.destructive == false"), None);
        check(&format!("resource.idempotent && {fails}"), Some(false));
        check(&format!("resource.readOnly || {fails}"), Some(true));
        check(&format!("resource.readOnly && {fails}"), None);
        check(r#"principal == Mcp::Agent::"a""#, None);
        check(
            r#"resource.source == "host" && context.args.hasTag("a")"#,
            Some(false),
        );
    }
}
