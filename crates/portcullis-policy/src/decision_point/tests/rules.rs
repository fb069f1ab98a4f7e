//! Rules, the policies that they compile to and the text of these say the same.

use portcullis_types::CapabilityId;
use proptest::prelude::*;

use super::*;
use crate::{
    compile_rules,
    pattern::{
        Pattern,
        tests::{capabilities, pattern_texts},
    },
};

/// The same rules as the text they compile to.
fn recompiled(name: &str, rules: &str) -> DecisionPoint {
    let text = compile_rules(&file(name, rules)).unwrap();
    DecisionPoint::load(&[file(&name.replace(".rules", ".cedar"), &text)])
        .unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn compiled_text_answers_as_the_rules_do() {
    let rules = "default ask\nallow mcp.github.*\nask mcp.*.delete_*\nalways ask mcp.mail.send\ndeny mcp.shell.*\ndeny mcp.github.x*y\nallow host.*\n";
    let direct = DecisionPoint::load(&[file("t.rules", rules)]).unwrap();
    let again = recompiled("t.rules", rules);
    let ids = |point: &DecisionPoint| {
        point
            .policies()
            .iter()
            .map(|p| (p.id.clone(), p.description.clone()))
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(ids(&direct), ids(&again));
    for id in [
        "mcp.github.a",
        "mcp.github.xyy",
        "mcp.b.delete_x",
        "mcp.mail.send",
        "mcp.shell.delete_x",
        "host.a.b",
        "mcp.z.z",
    ] {
        for tier in Tier::ALL {
            let (one, two) = (
                ask(&direct, &tool(id), tier, "{}"),
                ask(&again, &tool(id), tier, "{}"),
            );
            assert_eq!(
                (one.answer, one.code, one.approver),
                (two.answer, two.code, two.approver)
            );
        }
    }
    insta::assert_snapshot!("compiled_rules", compile_rules(&file("t.rules", rules)).unwrap());
}

/// Names that would mean something else if they were pasted into a policy's text.
#[test]
fn hostile_names_stay_names() {
    for name in [
        r#"x" || true || ""#,
        r#"x"); permit (principal, action, resource); //"#,
        r"\u{2a}",
        r"\x2a",
        r"a\",
        r#"\""#,
        "}{",
        "// x",
        "?principal",
        "a'b",
    ] {
        let id = format!("mcp.a.{name}");
        for (pattern, prefix) in [
            (id.clone(), ""),
            (format!("{id}*"), ""),
            (format!("mcp.*.*{name}*"), "pre"),
        ] {
            // An ending backslash and a star would be a literal star.
            if name.ends_with('\\') && pattern.ends_with('*') {
                continue;
            }
            let rules = format!("default ask\ndeny {}", serde_json::Value::from(pattern.as_str()));
            let direct = DecisionPoint::load(&[file("t.rules", &rules)]).unwrap();
            let again = recompiled("t.rules", &rules);
            for point in [&direct, &again] {
                assert_eq!(point.policies().len(), 3 + 2, "{pattern}");
                let decide = |id: &str| ask(point, &tool(id), Tier::Plan, "{}").answer;
                assert_eq!(
                    decide(&format!("mcp.a.{prefix}{name}")),
                    Answer::Deny,
                    "{pattern}"
                );
                assert_eq!(decide("mcp.a.other"), Answer::Ask, "{pattern}");
            }
        }
    }
}

/// What a set of rules comes to by their description alone, with no Cedar: the strictest of the rules that mean the
/// call, else the default.
fn by_hand(
    rules: &[(&str, Pattern, Option<&str>)],
    default_ask: bool,
    id: &CapabilityId,
    argument: Option<&str>,
    tier: Tier,
) -> Answer {
    let full_access = tier == Tier::FullAccess;
    let meant = rules.iter().filter(|(_, pattern, when)| {
        pattern.matches(id) && when.is_none_or(|wanted| argument == Some(wanted))
    });
    let answers = meant.map(|(verb, ..)| match *verb {
        "allow" => Answer::Allow,
        "ask" if full_access => Answer::Allow,
        "ask" | "always ask" => Answer::Ask,
        _ => Answer::Deny,
    });
    let default = match (default_ask, full_access) {
        (false, _) => Answer::Deny,
        (true, true) => Answer::Allow,
        (true, false) => Answer::Ask,
    };
    answers.max().unwrap_or(default)
}

/// `PORTCULLIS_RULES_CASES` sets how many sets of rules are tried, each with 12 questions.
fn rule_sets() -> ProptestConfig {
    #[expect(
        clippy::disallowed_methods,
        reason = "the length of the run is the runner's to say"
    )]
    let given = std::env::var("PORTCULLIS_RULES_CASES");
    ProptestConfig::with_cases(given.map_or(40, |text| text.parse().expect("a number")))
}

proptest! {
    #![proptest_config(rule_sets())]

    #[test]
    fn rules_their_policies_and_the_compiled_text_agree(
        drafts in prop::collection::vec(
            (
                prop::sample::select(vec!["allow", "ask", "always ask", "deny"]),
                pattern_texts().prop_filter("a rule is one line", |text| !text.contains('\n')),
                prop::option::weighted(0.3, "[ab\"\\\\]{0,2}"),
            ),
            1..5,
        ),
        default_ask: bool,
        questions in prop::collection::vec((capabilities(), prop::option::of("[ab\"\\\\]{0,2}"), prop::sample::select(Tier::ALL.to_vec())), 12),
    ) {
        let mut text = String::from(if default_ask { "default ask\n" } else { "default deny\n" });
        let mut rules = Vec::new();
        for (verb, pattern, when) in &drafts {
            let condition = when.as_ref().map(|value| format!(" when arg.k == {}", serde_json::Value::from(value.as_str())));
            let quoted = serde_json::Value::from(pattern.as_str());
            text.push_str(&format!("{verb} {quoted}{}\n", condition.unwrap_or_default()));
            rules.push((*verb, pattern.parse::<Pattern>().unwrap(), when.as_deref()));
        }
        let direct = DecisionPoint::load(&[file("t.rules", &text)]).unwrap();
        let again = recompiled("t.rules", &text);
        for (id, argument, tier) in questions {
            let tool = ToolFacts { capability: id.clone(), ..tool("mcp.a.b") };
            let arguments = argument.as_ref().map_or_else(|| "{}".to_owned(), |value| serde_json::json!({"k": value}).to_string());
            let expected = by_hand(&rules, default_ask, &id, argument.as_deref(), tier);
            prop_assert_eq!(ask(&direct, &tool, tier, &arguments).answer, expected, "{} of {} with {}", &text, &id, &arguments);
            prop_assert_eq!(ask(&again, &tool, tier, &arguments).answer, expected, "{} of {} with {}, from text", &text, &id, &arguments);
        }
    }
}
