//! What a policy's syntax tree tells about it before any request is there.

use std::collections::BTreeSet;

use cedar_policy::{Policy, pst};
use cedar_policy_core::ast;

use crate::{arguments::TagKeys, model::Action};

/// The parts of a policy.
#[derive(Debug, Clone)]
pub(crate) struct Syntax {
    /// It permits; else it forbids.
    pub(crate) permits: bool,
    /// Which questions it is about.
    pub(crate) actions: Vec<Action>,
    pub(crate) any_principal: bool,
    pub(crate) resource: ResourceScope,
    /// What must hold besides, in the order in which it is evaluated: Cedar has made one condition of all clauses.
    pub(crate) clauses: Vec<pst::Clause>,
    pub(crate) reads: Reads,
}

/// Which tools the scope of a policy is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResourceScope {
    Any,
    /// One tool, by its capability id.
    Tool(String),
    /// The tools of one server, by `<source>.<server>`.
    Server(String),
    /// No tool at all.
    NoTool,
    /// Something that is left to Cedar.
    Open,
}

/// What the conditions of a policy look at besides the agent and the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reads {
    pub(crate) arguments: bool,
    /// Which tags of the arguments.
    pub(crate) tags: TagKeys,
    pub(crate) arguments_hash: bool,
    pub(crate) now: bool,
    /// Which question is put, or in which tier.
    pub(crate) question: bool,
}

impl Reads {
    pub(crate) const NOTHING: Self = Self {
        arguments: false,
        tags: TagKeys::NONE,
        arguments_hash: false,
        now: false,
        question: false,
    };

    pub(crate) const ALL: Self = Self {
        arguments: true,
        tags: TagKeys::All,
        arguments_hash: true,
        now: true,
        question: true,
    };

    pub(crate) fn extend(&mut self, other: &Self) {
        self.arguments |= other.arguments;
        self.tags.extend(&other.tags);
        self.arguments_hash |= other.arguments_hash;
        self.now |= other.now;
        self.question |= other.question;
    }

    /// Whether the answer can differ from call to call.
    pub(crate) fn depend_on_the_call(&self) -> bool {
        self.arguments || self.arguments_hash || self.now || self.tags != TagKeys::NONE
    }

    fn of(clauses: &[pst::Clause]) -> Self {
        let mut reads = Self::NOTHING;
        for pst::Clause::When(expr) | pst::Clause::Unless(expr) in clauses {
            reads.walk(expr);
        }
        reads
    }

    fn walk(&mut self, expr: &pst::Expr) {
        use pst::Expr;
        match expr {
            Expr::Literal(pst::Literal::EntityUID(uid)) => self.arguments |= is(&uid.ty, "Args"),
            Expr::Literal(_) | Expr::Slot(_) => {}
            Expr::Var(var) => {
                match var {
                    // All of the context at once, however it is used.
                    pst::Var::Context => self.extend(&Self::ALL),
                    pst::Var::Action => self.question = true,
                    _ => {}
                }
            }
            Expr::GetAttr { expr, attr } if **expr == Expr::Var(pst::Var::Context) => match attr.as_str() {
                "tier" => self.question = true,
                "args" => self.arguments = true,
                "argsHash" => self.arguments_hash = true,
                "now" => self.now = true,
                _ => self.extend(&Self::ALL),
            },
            Expr::BinaryOp { op, left, right } => {
                if matches!(op, pst::BinaryOp::GetTag | pst::BinaryOp::HasTag) {
                    self.arguments = true;
                    self.tags.extend(&tag_keys(right));
                }
                self.walk(left);
                self.walk(right);
            }
            Expr::UnaryOp { expr, .. }
            | Expr::GetAttr { expr, .. }
            | Expr::HasAttr { expr, .. }
            | Expr::Like { expr, .. } => self.walk(expr),
            Expr::Is { expr, in_expr, .. } => {
                self.walk(expr);
                in_expr.iter().for_each(|inner| self.walk(inner));
            }
            Expr::IfThenElse {
                cond,
                then_expr,
                else_expr,
            } => [cond, then_expr, else_expr]
                .map(|expr| self.walk(expr))
                .into_iter()
                .collect(),
            Expr::Set(items) => items.iter().for_each(|item| self.walk(item)),
            Expr::Record(fields) => fields.values().for_each(|value| self.walk(value)),
            _ => self.extend(&Self::ALL),
        }
    }
}

/// Only arguments have tags, so the key alone says which is read.
fn tag_keys(key: &pst::Expr) -> TagKeys {
    match key {
        pst::Expr::Literal(pst::Literal::String(key)) => TagKeys::These(BTreeSet::from([key.to_string()])),
        _ => TagKeys::All,
    }
}

impl Syntax {
    /// The parts of `policy`.
    ///
    /// # Errors
    /// What the library says, should it not give the tree of what it parsed itself.
    pub(crate) fn of(policy: &Policy) -> Result<Self, String> {
        let tree = tree(policy)?;
        let body = tree.body();
        Ok(Self {
            permits: body.effect == pst::Effect::Permit,
            actions: actions(&body.action),
            any_principal: body.principal == pst::PrincipalConstraint::Any,
            resource: resource(&body.resource),
            clauses: body.clauses().clone(),
            reads: Reads::of(body.clauses()),
        })
    }

    pub(crate) fn is_about(&self, action: Action) -> bool {
        self.actions.contains(&action)
    }
}

/// What a policy says, whatever its id, its annotations and its place: two that say the same have the same text.
///
/// # Errors
/// As [`Syntax::of`].
pub(crate) fn said(policy: &Policy) -> Result<String, String> {
    let tree = tree(policy)?;
    let body = tree.body();
    let scope = (&body.principal, &body.action, &body.resource);
    Ok(format!("{:?} {scope:?} {:?}", body.effect, body.clauses()))
}

fn tree(policy: &Policy) -> Result<pst::StaticPolicy, String> {
    // `Policy::to_pst` parses the text of the policy once more, which takes longer than all else that is done
    // with it; the tree that decides is there already.
    let tree: &ast::Policy = policy.as_ref();
    match pst::Policy::try_from(tree.clone()).map_err(|error| error.to_string())? {
        pst::Policy::Static(tree) => Ok(tree),
        _ => Err("it is linked to a template".to_owned()),
    }
}

/// Whether `ty` is the model's entity type of this name.
pub(crate) fn is(ty: &pst::EntityType, name: &str) -> bool {
    let namespace = ty.0.namespace.as_slice();
    ty.0.id.as_str() == name && namespace.iter().map(pst::Id::as_str).eq(["Mcp"])
}

fn actions(constraint: &pst::ActionConstraint) -> Vec<Action> {
    let named = |uids: &[pst::EntityUID]| {
        let known = Action::ALL.into_iter();
        known
            .filter(|action| {
                uids.iter()
                    .any(|uid| is(&uid.ty, "Action") && uid.eid == action.as_str())
            })
            .collect()
    };
    match constraint {
        pst::ActionConstraint::Eq(uid) => named(std::slice::from_ref(uid)),
        pst::ActionConstraint::In(uids) => named(uids),
        pst::ActionConstraint::Any => Action::ALL.to_vec(),
    }
}

fn resource(constraint: &pst::ResourceConstraint) -> ResourceScope {
    use pst::{EntityOrSlot::Entity, ResourceConstraint};
    // A tool is in itself and in its server, and in nothing else.
    let within = |uid: &pst::EntityUID| {
        if is(&uid.ty, "Tool") {
            ResourceScope::Tool(uid.eid.to_string())
        } else if is(&uid.ty, "Server") {
            ResourceScope::Server(uid.eid.to_string())
        } else {
            ResourceScope::Open
        }
    };
    match constraint {
        ResourceConstraint::Any => ResourceScope::Any,
        ResourceConstraint::Eq(Entity(uid)) if is(&uid.ty, "Tool") => {
            ResourceScope::Tool(uid.eid.to_string())
        }
        ResourceConstraint::Eq(Entity(_)) => ResourceScope::NoTool,
        ResourceConstraint::In(Entity(uid)) => within(uid),
        ResourceConstraint::Is(ty) if is(ty, "Tool") => ResourceScope::Any,
        ResourceConstraint::IsIn(ty, Entity(uid)) if is(ty, "Tool") => within(uid),
        ResourceConstraint::Is(_) | ResourceConstraint::IsIn(..) => ResourceScope::NoTool,
        ResourceConstraint::Eq(_) | ResourceConstraint::In(_) => ResourceScope::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(condition: &str, expected: &Reads) {
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        let policy: Policy = text.parse().unwrap();
        assert_eq!(Syntax::of(&policy).unwrap().reads, *expected, "{condition}");
    }

    fn tags(keys: &[&str]) -> Reads {
        Reads {
            arguments: true,
            tags: TagKeys::These(keys.iter().map(|key| (*key).to_owned()).collect()),
            ..Reads::NOTHING
        }
    }

    #[test]
    fn what_a_condition_reads_is_found_wherever_it_stands() {
        check(
            r#"resource.name == "x" && principal == Mcp::Agent::"a""#,
            &Reads::NOTHING,
        );
        for asked in [
            r#"context.tier == Mcp::Tier::"plan""#,
            r#"action == Mcp::Action::"call""#,
        ] {
            check(
                asked,
                &Reads {
                    question: true,
                    ..Reads::NOTHING
                },
            );
        }
        check(
            r#"context.args.hasTag("a") && context.args.getTag("b") == "c""#,
            &tags(&["a", "b"]),
        );
        check(r#"context["\u{61}rgs"].hasTag("a")"#, &tags(&["a"]));
        check(r#"Mcp::Args::"call".hasTag("a")"#, &tags(&["a"]));
        check(r#"context.args == Mcp::Args::"call""#, &tags(&[]));
        check(
            r#"(if true then context else context).args.hasTag("a")"#,
            &Reads::ALL,
        );
        check(r#"context has args"#, &Reads::ALL);
        check(
            r#"context.args.hasTag(resource.name)"#,
            &Reads {
                arguments: true,
                tags: TagKeys::All,
                ..Reads::NOTHING
            },
        );
        check(
            r#"[1, 2].contains(3) || {a: context.now}.a < datetime("2026-07-28")"#,
            &Reads {
                now: true,
                ..Reads::NOTHING
            },
        );
        check(
            r#"resource is Mcp::Tool in [resource] && (if context.argsHash like "a*" then true else false)"#,
            &Reads {
                arguments_hash: true,
                ..Reads::NOTHING
            },
        );
    }
}
