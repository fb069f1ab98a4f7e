//! How deep the conditions of a policy stand in each other. Cedar's parser, its validator and whatever else walks them
//! call themselves for each level: the validator takes what is too deep for its stack for valid, and others end the
//! process. So a text is looked through before it is parsed, and what was parsed before it is used.

mod text;

use std::thread;

use cedar_policy::Policy;
use cedar_policy_core::ast::{self, Expr, ExprKind};

use crate::{PolicyError, PolicyErrors, PolicyProblem};
pub(crate) use text::check as check_text;

/// The most levels. A row of 100 `||` has as many.
const MAX_DEPTH: usize = 100;

/// Room for the parser, which knows no such limit: 2 MiB hold some hundred levels.
const STACK_BYTES: usize = 256 << 20;

/// Runs `work` on `file` (all of them where it is empty) where its stack is large enough for any file that
/// [`check_text`] lets pass. What is not done to its end is an error.
pub(crate) fn with_room<T: Send>(
    file: &str,
    work: impl FnOnce() -> Result<T, PolicyErrors> + Send,
) -> Result<T, PolicyErrors> {
    on_stack_of(STACK_BYTES, file, work)
}

fn on_stack_of<T: Send>(
    bytes: usize,
    file: &str,
    work: impl FnOnce() -> Result<T, PolicyErrors> + Send,
) -> Result<T, PolicyErrors> {
    let done = thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(bytes).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| PolicyProblem::NoThread(error.to_string()))?;
        thread.join().map_err(|_| ended())
    });
    done.unwrap_or_else(|problem| Err(PolicyErrors(vec![PolicyError::new(file, 1, problem)])))
}

/// What was not looked at to its end is not used.
pub(crate) fn ended() -> PolicyProblem {
    PolicyProblem::Internal("reading the policies came to no end".to_owned())
}

/// Whether a policy's conditions stand too deep in each other. Looked at without recursion.
fn is_too_deep(policy: &Policy) -> bool {
    let tree: &ast::Policy = policy.as_ref();
    let mut found: Vec<(&Expr, usize)> = tree
        .non_scope_constraints()
        .map(|all| (all, 1))
        .into_iter()
        .collect();
    while let Some((expr, depth)) = found.pop() {
        if depth > MAX_DEPTH {
            return true;
        }
        children(expr, |child| found.push((child, depth + 1)));
    }
    false
}

/// Refuses so many conditions in a row, each of which stands deeper than the one before, ahead of making a tree of them.
pub(crate) fn check_row(conditions: usize) -> Result<(), PolicyProblem> {
    match conditions > MAX_DEPTH {
        true => Err(PolicyProblem::TooDeep(MAX_DEPTH)),
        false => Ok(()),
    }
}

/// Refuses a policy whose conditions stand too deep in each other.
pub(crate) fn check(policy: &Policy) -> Result<(), PolicyProblem> {
    match is_too_deep(policy) {
        true => Err(PolicyProblem::TooDeep(MAX_DEPTH)),
        false => Ok(()),
    }
}

fn children<'e>(expr: &'e Expr, mut child: impl FnMut(&'e Expr)) {
    match expr.expr_kind() {
        ExprKind::Lit(_) | ExprKind::Unknown(_) | ExprKind::Slot(_) | ExprKind::Var(_) => {}
        ExprKind::If {
            test_expr,
            then_expr,
            else_expr,
        } => [test_expr, then_expr, else_expr]
            .map(|part| child(part))
            .into_iter()
            .collect(),
        ExprKind::And { left, right } | ExprKind::Or { left, right } => {
            child(left);
            child(right);
        }
        ExprKind::BinaryApp { arg1, arg2, .. } => {
            child(arg1);
            child(arg2);
        }
        ExprKind::UnaryApp { arg: inner, .. }
        | ExprKind::GetAttr { expr: inner, .. }
        | ExprKind::HasAttr { expr: inner, .. }
        | ExprKind::ExtHasAttr { expr: inner, .. }
        | ExprKind::Like { expr: inner, .. }
        | ExprKind::Is { expr: inner, .. } => child(inner),
        ExprKind::ExtensionFunctionApp { args: items, .. } | ExprKind::Set(items) => {
            items.iter().for_each(child)
        }
        ExprKind::Record(fields) => fields.values().for_each(child),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::{AgentId, ReasonCode, Tier};

    use crate::{CallQuestion, DecisionPoint, PolicyFile, ToolFacts, compile_rules, format_policies};

    /// What keeps a condition from being loaded.
    fn problem(name: &str, text: &str) -> Option<String> {
        let file = PolicyFile {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let loaded = DecisionPoint::load(std::slice::from_ref(&file));
        if name.ends_with(".cedar") {
            let formatted = format_policies(&file).err().map(|errors| errors.to_string());
            let invalid = loaded
                .as_ref()
                .err()
                .is_some_and(|errors| errors.to_string().contains("type"));
            assert_eq!(formatted.is_some(), loaded.is_err() && !invalid, "{formatted:?}");
        }
        loaded.err().map(|errors| errors.to_string())
    }

    fn cedar(condition: &str) -> String {
        format!(
            "@id(\"deep\") @description(\"d\") forbid (principal, action == Mcp::Action::\"call\", resource) when {{ {condition} }};"
        )
    }

    #[track_caller]
    fn check(condition: &str, told: Option<&str>) {
        let problem = problem("a.cedar", &cedar(condition));
        match told {
            Some(told) => assert!(
                problem.as_ref().is_some_and(|problem| problem.contains(told)),
                "{problem:?}"
            ),
            None => assert_eq!(problem, None),
        }
    }

    #[test]
    fn what_stands_too_deep_is_refused_whatever_the_validator_says() {
        const DEEP: &str = "stand more than 100 deep";
        let row = |terms: usize, term: &str| vec![term; terms].join(" || ");
        check(&row(90, r#"resource.name == "a""#), None);
        // Brackets alone are no levels of what is evaluated.
        check(&format!("{}true{}", "(".repeat(2_000), ")".repeat(2_000)), None);
        // A wrong type is found up to the limit, and nothing behind it is taken for right.
        let wrong = |terms: usize| {
            format!(
                r#"resource.readOnly == "no" || {}"#,
                row(terms, r#"resource.name == "a""#)
            )
        };
        check(&wrong(90), Some("type"));
        for terms in [150, 5_000] {
            check(&wrong(terms), Some(DEEP));
            check(&row(terms, r#"resource.name == "a""#), Some(DEEP));
            check(&vec![r#"resource.name == "a""#; terms].join(" && "), Some(DEEP));
        }
        check(
            &format!(
                "{}true{}",
                "if true then (".repeat(300),
                ") else false".repeat(300)
            ),
            Some(DEEP),
        );
        check(
            &format!("{}resource.readOnly{}", "(!".repeat(300), ")".repeat(300)),
            Some(DEEP),
        );
        check(
            &format!("[{}1{}].isEmpty()", "[".repeat(300), "]".repeat(300)),
            Some(DEEP),
        );
    }

    /// On a test's thread, which has no more room than a runtime's.
    #[test]
    fn what_is_let_in_is_decided() {
        let row = vec![r#"resource.name == "b""#; 97].join(" || ");
        let files = [("a.cedar", cedar(&row)), ("a.rules", "allow mcp.*".to_owned())];
        let files = files.map(|(name, text)| PolicyFile {
            name: name.to_owned(),
            text,
        });
        let point = DecisionPoint::load(&files).unwrap();
        let agent = AgentId::default();
        for (tool, code) in [("b", ReasonCode::DenyByPolicy), ("c", ReasonCode::Permitted)] {
            let capability = format!("mcp.a.{tool}").parse().unwrap();
            let explained = point.explain(&CallQuestion {
                agent: &agent,
                profile: &agent,
                tier: Tier::RequestApproval,
                tool: &ToolFacts::from_definition(capability, "stdio", "{}", true),
                arguments: "{}",
                now_ms: 0,
            });
            assert_eq!(explained.decision.code, code, "{explained:?}");
        }
    }

    #[test]
    fn a_rule_of_many_conditions_is_held_to_the_same() {
        let rule = |count: usize| {
            let all: Vec<_> = (0..count).map(|n| format!("arg.k{n} == \"v\"")).collect();
            format!("allow mcp.a.* when {}", all.join(" and "))
        };
        let file = |count: usize| PolicyFile {
            name: "a.rules".to_owned(),
            text: rule(count),
        };
        assert_eq!(problem("a.rules", &rule(20)), None);
        compile_rules(&file(20)).unwrap();
        for many in [101, 2_000, 200_000] {
            let told = problem("a.rules", &rule(many)).unwrap_or_default();
            assert!(
                told.contains("a.rules:1: conditions stand more than 100 deep"),
                "{told}"
            );
        }
        let error = compile_rules(&file(2_000)).unwrap_err().to_string();
        assert!(error.contains("a.rules:1: "), "{error}");
    }

    /// At the limit and beyond it, in each of the ways in which a level may be written. Without the limit each of the
    /// second ends the process.
    #[test]
    fn a_text_that_the_parser_has_no_room_for_is_not_parsed() {
        const LONG: &str = "more than 20000 operators";
        // One bracket is that of the condition.
        let most = super::text::MAX_BRACKETS - 1;
        let mut nested = vec![
            ("(", ")"),
            ("[", "]"),
            ("{a: ", "}"),
            ("ip(", ")"),
            ("resource.contains(", ")"),
        ];
        nested.extend([
            ("if (", ") then true else true"),
            ("[if true then ", " else 1]"),
            ("(!!!!(", "))"),
        ]);
        for (open, close) in nested {
            let brackets = if open.ends_with("!(") { 2 } else { 1 };
            let levels = |count: usize| {
                let count = count / brackets;
                format!("{}true{}", open.repeat(count), close.repeat(count))
            };
            let told = problem("a.cedar", &cedar(&levels(most)));
            assert!(
                !told.is_some_and(|told| told.contains("2048") || told.contains(LONG)),
                "{open}"
            );
            for beyond in [most + brackets, 5_000, 1_000_000 / (open.len() + close.len())] {
                check(
                    &levels(beyond),
                    Some("a.cedar:1: conditions stand more than 2048 deep"),
                );
            }
        }
        // What stands before a row, one link of it with its operators, what stands behind, and once more for each link.
        let chains = [
            ("", "if true then true else ", 1, "true", ""),
            ("", "if true then ", 1, "true", " else true"),
            ("", "resource.readOnly || ", 2, "true", ""),
            ("", "resource.readOnly && ", 2, "true", ""),
            ("", "1 + ", 1, "1 == 1", ""),
            ("", "1 * ", 1, "1 == 1", ""),
            ("resource", ".a", 1, " == 1", ""),
            ("resource", "[\"a\"]", 1, " == 1", ""),
            ("resource", ".a()", 2, " == 1", ""),
        ];
        for (head, link, operators, end, again) in chains {
            let chain = |count: usize| format!("{head}{}{end}{}", link.repeat(count), again.repeat(count));
            // As many as leave room for the brackets around them, and for those of the policy.
            let few = (super::text::MAX_OPERATORS - super::text::MAX_BRACKETS - 10) / operators;
            let inner = format!("{}{}{}", "(".repeat(most - 10), chain(few), ")".repeat(most - 10));
            let told = problem("a.cedar", &cedar(&inner));
            assert!(!told.is_some_and(|told| told.contains(LONG)), "{link}");
            for beyond in [super::text::MAX_OPERATORS, 4_000_000 / (link.len() + again.len())] {
                check(&chain(beyond), Some(LONG));
            }
        }
    }

    /// Neither is a fault of the policies, and both leave them unused.
    #[test]
    fn a_thread_that_cannot_be_had_and_one_that_ends_early_are_told() {
        let told = |bytes| {
            let lost = super::on_stack_of(bytes, "a.cedar", || panic!("it ends early"));
            let lost: Result<(), _> = lost;
            lost.unwrap_err().to_string()
        };
        let none = told(1 << 60);
        assert!(
            none.contains("a.cedar:1: no thread") && none.contains("ulimit -v"),
            "{none}"
        );
        assert!(told(1 << 20).contains("came to no end"));
    }
}
