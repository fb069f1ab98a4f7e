//! Rules as Cedar policies, built as syntax trees: whatever a pattern holds, it stays one literal.

use std::{collections::BTreeMap, sync::Arc};

use cedar_policy::{Policy, pst};
use portcullis_types::PolicyRef;

use super::{ArgumentIs, Rule, Verb, parse};
use crate::{
    PolicyError, PolicyErrors, PolicyFile, PolicyProblem, depth,
    pattern::{Glob, Pattern, Piece, ServerPattern},
    source::LoadedPolicy,
};

/// The policies of a file of rules, and the line of its `default`, if it has one.
#[derive(Default)]
pub(crate) struct CompiledRules {
    pub(crate) policies: Vec<LoadedPolicy>,
    pub(crate) defaults: Vec<usize>,
}

/// What the policies of rules are made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To be decided by. Their ids and descriptions stand in their references alone: the library parses the name of
    /// each annotation anew, which costs as much as all else about a policy.
    Decide,
    /// To be read, with their annotations.
    Read,
}

/// Compiles the rules of a file, as far as they are rules; all that is wrong goes to `errors`.
pub(crate) fn compile(file: &PolicyFile, errors: &mut Vec<PolicyError>) -> CompiledRules {
    compile_for(Purpose::Decide, file, errors)
}

fn compile_for(purpose: Purpose, file: &PolicyFile, errors: &mut Vec<PolicyError>) -> CompiledRules {
    let (rules, wrong) = parse(file);
    errors.extend(wrong);
    let mut compiled = CompiledRules::default();
    let names = match Names::new() {
        Ok(names) => names,
        Err(error) => {
            let problem = PolicyProblem::Internal(format!("the rules cannot be compiled: {error}"));
            errors.push(PolicyError::new(&file.name, 1, problem));
            return compiled;
        }
    };
    for (line, rule) in rules {
        if matches!(rule, Rule::DefaultDeny | Rule::DefaultAsk) {
            compiled.defaults.push(line);
        }
        for draft in drafts(&rule) {
            match draft.policy(&names, purpose, file, line, &rule) {
                Ok(policy) => compiled.policies.push(policy),
                Err(problem) => errors.push(PolicyError::new(&file.name, line, problem)),
            }
        }
    }
    compiled
}

/// The Cedar text of a file of rules, formatted, so that it can be read, reviewed and committed.
///
/// Each policy keeps the id that the rule has when the file is loaded itself: the file's name and the line.
///
/// # Errors
/// All that is wrong in the file, each with its line.
pub fn compile_rules(file: &PolicyFile) -> Result<String, PolicyErrors> {
    crate::depth::with_room(&file.name, || text_of(file))
}

fn text_of(file: &PolicyFile) -> Result<String, PolicyErrors> {
    let mut errors = Vec::new();
    crate::source::check_text(file, &mut errors);
    let compiled = compile_for(Purpose::Read, file, &mut errors);
    if !errors.is_empty() {
        return Err(PolicyErrors(errors));
    }
    // Each apart: laying out a text takes time that grows with the square of its length.
    let each = compiled.policies.iter();
    let texts: Result<Vec<_>, _> = each
        .map(|loaded| crate::format::pretty(file, &loaded.policy.to_string()))
        .collect();
    Ok(texts?.join("\n"))
}

/// The types of the schema's entities, each name parsed once for a file.
struct Names {
    action: pst::EntityType,
    server: pst::EntityType,
    tier: pst::EntityType,
    tool: pst::EntityType,
}

impl Names {
    fn new() -> Result<Self, pst::PstConstructionError> {
        Ok(Self {
            action: entity_type("Action")?,
            server: entity_type("Server")?,
            tier: entity_type("Tier")?,
            tool: entity_type("Tool")?,
        })
    }
}

/// One policy of a rule, before it has a place.
struct Draft<'r> {
    /// What tells the policies of one rule apart, at the end of the id.
    suffix: &'static str,
    effect: pst::Effect,
    actions: &'r [&'static str],
    scope: Scope,
    /// What the arguments must be.
    conditions: &'r [ArgumentIs],
    /// `full_access` lifts it.
    lifted_by_full_access: bool,
}

/// Which resources a policy is about: a constraint that an index can use, and what it cannot say.
#[derive(Clone)]
enum Scope {
    Any,
    Tool(String),
    Server(String),
    When {
        server: Option<String>,
        all_of: Vec<(&'static str, Glob)>,
    },
}

const CALL: &[&str] = &["call"];
const UNATTENDED: &[&str] = &["unattended"];
const BOTH: &[&str] = &["call", "unattended"];

fn drafts(rule: &Rule) -> Vec<Draft<'_>> {
    use pst::Effect::{Forbid, Permit};
    let conditions = match rule {
        Rule::Tools(.., conditions) => conditions.as_slice(),
        _ => &[],
    };
    let draft = |suffix, effect, actions, scope: &Scope, lifted_by_full_access| Draft {
        suffix,
        effect,
        actions,
        scope: scope.clone(),
        conditions,
        lifted_by_full_access,
    };
    match rule {
        Rule::DefaultDeny => Vec::new(),
        Rule::DefaultAsk => vec![draft("", Permit, CALL, &Scope::Any, false)],
        Rule::Tools(verb, pattern, _) => {
            let scope = tools(pattern);
            match verb {
                Verb::Allow => vec![draft("", Permit, BOTH, &scope, false)],
                Verb::Deny => vec![draft("", Forbid, BOTH, &scope, false)],
                Verb::Ask | Verb::AlwaysAsk => vec![
                    draft(".call", Permit, CALL, &scope, false),
                    draft(".person", Forbid, UNATTENDED, &scope, *verb == Verb::Ask),
                ],
            }
        }
        Rule::Servers {
            permit,
            question,
            servers: pattern,
        } => {
            let effect = if *permit { Permit } else { Forbid };
            vec![draft(
                "",
                effect,
                std::slice::from_ref(question),
                &servers(pattern),
                false,
            )]
        }
    }
}

fn tools(pattern: &Pattern) -> Scope {
    let Pattern {
        servers: ServerPattern { source, name },
        tool,
    } = pattern;
    let source = source.as_str();
    match (name.literal(), tool.literal()) {
        (Some(server), Some(tool)) => Scope::Tool(format!("{source}.{server}.{tool}")),
        (Some(server), None) if tool.is_any() => Scope::Server(format!("{source}.{server}")),
        (Some(server), None) => Scope::When {
            server: Some(format!("{source}.{server}")),
            all_of: vec![("name", tool.clone())],
        },
        (None, _) => {
            let mut all_of = vec![("source", Glob::of(source))];
            let parts = [("server", name), ("name", tool)];
            all_of.extend(
                parts
                    .into_iter()
                    .filter(|(_, glob)| !glob.is_any())
                    .map(|(attr, glob)| (attr, glob.clone())),
            );
            Scope::When { server: None, all_of }
        }
    }
}

fn servers(pattern: &ServerPattern) -> Scope {
    let source = pattern.source.as_str();
    if let Some(name) = pattern.name.literal() {
        return Scope::Server(format!("{source}.{name}"));
    }
    let mut all_of = vec![("source", Glob::of(source))];
    if !pattern.name.is_any() {
        all_of.push(("name", pattern.name.clone()));
    }
    Scope::When { server: None, all_of }
}

impl Draft<'_> {
    fn policy(
        &self,
        names: &Names,
        purpose: Purpose,
        file: &PolicyFile,
        line: usize,
        rule: &Rule,
    ) -> Result<LoadedPolicy, PolicyProblem> {
        let id = format!("{}#L{line}{}", file.name, self.suffix);
        let description = rule.to_string();
        depth::check_row(self.conditions.len())?;
        let policy = self.tree(names, purpose, &id, &description);
        let policy = policy
            .map_err(|error| PolicyProblem::Internal(format!("the rule cannot be compiled: {error}")))?;
        let reference = PolicyRef {
            id,
            file: file.name.clone(),
            line,
            description,
        };
        LoadedPolicy::new(policy, reference)
    }

    fn tree(
        &self,
        names: &Names,
        purpose: Purpose,
        id: &str,
        description: &str,
    ) -> Result<Policy, pst::PstConstructionError> {
        let mut template = self.template(names, id)?;
        if purpose == Purpose::Read {
            template = template.with_annotations(BTreeMap::from([
                ("id".to_owned(), pst::SmolStr::from(id)),
                ("description".to_owned(), pst::SmolStr::from(description)),
            ]));
        }
        Policy::from_pst(pst::Policy::Static(template.try_into()?))
    }

    fn template(&self, names: &Names, id: &str) -> Result<pst::Template, pst::PstConstructionError> {
        let actions: Vec<_> = self
            .actions
            .iter()
            .map(|action| entity(&names.action, action))
            .collect();
        let action = match actions.as_slice() {
            [one] => pst::ActionConstraint::Eq(one.clone()),
            _ => pst::ActionConstraint::In(actions),
        };
        let mut clauses = Vec::new();
        clauses.extend(
            self.condition()
                .map(|condition| pst::Clause::When(Arc::new(condition))),
        );
        if self.lifted_by_full_access {
            clauses.push(pst::Clause::Unless(Arc::new(is_full_access(names))));
        }
        pst::Template::new(
            id,
            self.effect,
            pst::PrincipalConstraint::Any,
            action,
            self.scope.constraint(names),
        )
        .try_with_clauses(clauses)
    }
}

impl Draft<'_> {
    /// `resource.a == "…" && resource.b like "…" && …`, then what the arguments must be; nothing for nothing. What
    /// reads the tool alone stands first, so that an index can use it.
    fn condition(&self) -> Option<pst::Expr> {
        let of_the_tool = match &self.scope {
            Scope::When { all_of, .. } => all_of.as_slice(),
            _ => &[],
        };
        let of_the_tool = of_the_tool.iter().map(|(attr, glob)| matches_glob(attr, glob));
        let of_the_arguments = self.conditions.iter().flat_map(has_the_text);
        of_the_tool
            .chain(of_the_arguments)
            .reduce(|left, right| binary(pst::BinaryOp::And, left, right))
    }
}

impl Scope {
    fn constraint(&self, names: &Names) -> pst::ResourceConstraint {
        use pst::{EntityOrSlot::Entity, ResourceConstraint};
        match self {
            Self::Any | Self::When { server: None, .. } => ResourceConstraint::Any,
            Self::Tool(id) => ResourceConstraint::Eq(Entity(entity(&names.tool, id))),
            Self::Server(id) | Self::When { server: Some(id), .. } => {
                ResourceConstraint::In(Entity(entity(&names.server, id)))
            }
        }
    }
}

/// `context.args.hasTag("…") && context.args.getTag("…") == "…"`
fn has_the_text(condition: &ArgumentIs) -> [pst::Expr; 2] {
    let args = || attribute(pst::Var::Context, "args");
    let has = binary(pst::BinaryOp::HasTag, args(), text(&condition.path));
    let tag = binary(pst::BinaryOp::GetTag, args(), text(&condition.path));
    [has, binary(pst::BinaryOp::Eq, tag, text(&condition.value))]
}

fn binary(op: pst::BinaryOp, left: pst::Expr, right: pst::Expr) -> pst::Expr {
    let (left, right) = (Arc::new(left), Arc::new(right));
    pst::Expr::BinaryOp { op, left, right }
}

fn text(text: &str) -> pst::Expr {
    pst::Expr::Literal(pst::Literal::String(text.into()))
}

fn matches_glob(attr: &str, glob: &Glob) -> pst::Expr {
    let expr = attribute(pst::Var::Resource, attr);
    if let Some(name) = glob.literal() {
        return binary(pst::BinaryOp::Eq, expr, text(&name));
    }
    let pattern = glob.pieces().iter().map(|piece| match piece {
        Piece::Char(character) => pst::PatternElem::Char(*character),
        Piece::Any => pst::PatternElem::Wildcard,
    });
    pst::Expr::Like {
        expr: Arc::new(expr),
        pattern: pattern.collect(),
    }
}

fn is_full_access(names: &Names) -> pst::Expr {
    let full_access = pst::Expr::Literal(pst::Literal::EntityUID(entity(&names.tier, "full_access")));
    binary(
        pst::BinaryOp::Eq,
        attribute(pst::Var::Context, "tier"),
        full_access,
    )
}

fn attribute(of: pst::Var, attr: &str) -> pst::Expr {
    pst::Expr::GetAttr {
        expr: Arc::new(pst::Expr::Var(of)),
        attr: attr.into(),
    }
}

/// The type of this name in the schema.
pub(crate) fn entity_type(name: &str) -> Result<pst::EntityType, pst::PstConstructionError> {
    pst::Name::qualified(["Mcp"], name).map(pst::EntityType::from_name)
}

/// The entity of this type and id.
pub(crate) fn entity(ty: &pst::EntityType, id: &str) -> pst::EntityUID {
    pst::EntityUID {
        ty: ty.clone(),
        eid: id.into(),
    }
}
