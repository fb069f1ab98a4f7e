use portcullis_types::Approver;

use super::*;
use crate::ToolHints;

mod rules;
mod servers;

fn file(name: &str, text: &str) -> PolicyFile {
    PolicyFile {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

fn tool(capability: &str) -> ToolFacts {
    ToolFacts::from_definition(capability.parse().unwrap(), "stdio", "{}", true)
}

fn ask(point: &DecisionPoint, tool: &ToolFacts, tier: Tier, arguments: &str) -> Decision {
    let agent = AgentId::default();
    let question = CallQuestion {
        agent: &agent,
        profile: &agent,
        tier,
        tool,
        arguments,
        now_ms: 1_785_196_800_000,
    };
    let decision = point.decide(&question);
    assert_eq!(
        decision,
        point.decide_unindexed(&question),
        "the index changes nothing"
    );
    decision
}

/// The ways in which a tool is under the floor, or changed; by the table's columns.
fn columns() -> Vec<(&'static str, ToolFacts)> {
    let plain = tool("mcp.mail.send");
    let interactive = ToolFacts {
        requires_user_interaction: true,
        ..plain.clone()
    };
    let switched_off = ToolFacts {
        auto_approve: false,
        ..plain.clone()
    };
    let both = ToolFacts {
        definition_changed: true,
        ..interactive.clone()
    };
    let changed = ToolFacts {
        definition_changed: true,
        ..plain.clone()
    };
    vec![
        ("plain", plain),
        ("floor", interactive),
        ("floor", switched_off),
        ("floor", both),
        ("changed", changed),
    ]
}

const OVERFLOW: &str = "@id(\"broken\")\n@description(\"fails\")\nforbid (principal, action == Mcp::Action::\"call\", resource) when { 9223372036854775807 + 1 == 0 };\n";
const OVERFLOW_UNATTENDED: &str = "@id(\"broken\")\n@description(\"fails\")\nforbid (principal, action == Mcp::Action::\"unattended\", resource) when { 9223372036854775807 + 1 == 0 };\n";

/// The rows of the table: what the policies say, then the answers in an ordinary tier, in full access, under the
/// floor, and with a changed definition.
fn rows() -> Vec<(&'static str, &'static str, [Answer; 4])> {
    use Answer::{Allow, Ask, Deny};
    vec![
        ("a.rules", "default deny", [Deny, Deny, Deny, Deny]),
        ("a.rules", "default ask", [Ask, Allow, Ask, Ask]),
        ("a.rules", "ask mcp.mail.*", [Ask, Allow, Ask, Ask]),
        ("a.rules", "always ask mcp.mail.*", [Ask, Ask, Ask, Ask]),
        ("a.rules", "allow mcp.mail.*", [Allow, Allow, Ask, Ask]),
        ("a.rules", "deny mcp.mail.*", [Deny, Deny, Deny, Deny]),
        ("a.cedar", OVERFLOW, [Deny, Deny, Deny, Deny]),
        ("a.cedar", OVERFLOW_UNATTENDED, [Deny, Deny, Deny, Deny]),
    ]
}

fn expected_of(cells: [Answer; 4], column: &str, tier: Tier) -> Answer {
    match (column, tier) {
        ("floor", _) => cells[2],
        ("changed", _) => cells[3],
        (_, Tier::FullAccess) => cells[1],
        _ => cells[0],
    }
}

fn check_column(files: &[PolicyFile], cells: [Answer; 4]) {
    let forth = DecisionPoint::load(files).unwrap();
    let reversed: Vec<_> = files.iter().rev().cloned().collect();
    let back = DecisionPoint::load(&reversed).unwrap();
    assert_eq!(forth.digest(), back.digest());
    for tier in Tier::ALL {
        for (column, tool) in columns() {
            let decision = ask(&forth, &tool, tier, "{}");
            assert_eq!(
                decision.answer,
                expected_of(cells, column, tier),
                "{files:?} {column} {tier}: {decision}"
            );
            assert_eq!(
                decision,
                ask(&back, &tool, tier, "{}"),
                "the order of files does not matter"
            );
            let person_only = match decision.code {
                ReasonCode::AskFloor | ReasonCode::AskDefinitionChanged | ReasonCode::AskAlways => {
                    Some(Approver::PersonOnly)
                }
                ReasonCode::AskByPolicy => Some(Approver::PersonOrHook),
                _ => None,
            };
            assert_eq!(decision.approver, person_only);
            if decision.answer == Answer::Ask {
                let code = match column {
                    "floor" => ReasonCode::AskFloor,
                    "changed" => ReasonCode::AskDefinitionChanged,
                    _ if files.iter().any(|file| file.text.starts_with("always")) => ReasonCode::AskAlways,
                    _ => ReasonCode::AskByPolicy,
                };
                assert_eq!(decision.code, code, "{files:?} {column} {tier}");
            }
        }
    }
}

#[test]
fn the_table_of_answers_cell_by_cell() {
    for (name, text, cells) in rows() {
        // A lone failing forbid denies by its failure; beside a permit it must deny as well.
        check_column(&[file(name, text)], cells);
    }
}

/// Any two rows under each default, and any three without one: the most restrictive wins, and a default gives way to
/// any rule.
#[test]
fn mixtures_answer_as_the_most_restrictive_row() {
    let all = rows();
    let rules: Vec<_> = all
        .iter()
        .filter(|(_, text, _)| !text.starts_with("default"))
        .collect();
    for subset in 0_u32..1 << rules.len() {
        let rows: Vec<_> = rules
            .iter()
            .enumerate()
            .filter(|(n, _)| subset & (1 << n) != 0)
            .map(|(_, row)| *row)
            .collect();
        // Both failing policies have the one id.
        let failing = rows.iter().filter(|(name, ..)| *name == "a.cedar").count();
        if !(2..=3).contains(&rows.len()) || failing > 1 {
            continue;
        }
        let cells = [0, 1, 2, 3].map(|cell| rows.iter().map(|(_, _, cells)| cells[cell]).max().unwrap());
        let files: Vec<_> = rows
            .iter()
            .enumerate()
            .map(|(n, (name, text, _))| file(&format!("{n}{name}"), text))
            .collect();
        check_column(&files, cells);
        if rows.len() == 2 {
            for default in ["default deny", "default ask"] {
                check_column(&[&[file("d.rules", default)], files.as_slice()].concat(), cells);
            }
        }
    }
}

#[track_caller]
fn check_named(decision: &Decision, answer: Answer, code: ReasonCode, policies: &[&str]) {
    let named: Vec<_> = decision.policies.iter().map(ToString::to_string).collect();
    assert_eq!(
        (decision.answer, decision.code, named),
        (answer, code, policies.iter().map(|p| (*p).to_owned()).collect()),
        "{decision}"
    );
}

#[test]
fn decisions_name_the_policies_that_decided() {
    let rules = "default ask\nallow mcp.a.*\nask mcp.b.*\nalways ask mcp.c.x\ndeny mcp.d.*\ndeny mcp.*.x_*\n";
    let point = DecisionPoint::load(&[file("t.rules", rules)]).unwrap();
    let plain = Tier::RequestApproval;
    check_named(
        &ask(&point, &tool("mcp.z.y"), plain, "{}"),
        Answer::Ask,
        ReasonCode::AskByPolicy,
        &["t.rules:1 (t.rules#L1)"],
    );
    check_named(
        &ask(&point, &tool("mcp.z.y"), Tier::FullAccess, "{}"),
        Answer::Allow,
        ReasonCode::Permitted,
        &[
            "built-in/tiers.cedar:3 (tier.full-access)",
            "t.rules:1 (t.rules#L1)",
        ],
    );
    check_named(
        &ask(&point, &tool("mcp.a.y"), plain, "{}"),
        Answer::Allow,
        ReasonCode::Permitted,
        &["t.rules:1 (t.rules#L1)", "t.rules:2 (t.rules#L2)"],
    );
    check_named(
        &ask(&point, &tool("mcp.b.y"), plain, "{}"),
        Answer::Ask,
        ReasonCode::AskByPolicy,
        &["t.rules:3 (t.rules#L3.person)"],
    );
    check_named(
        &ask(&point, &tool("mcp.c.x"), Tier::FullAccess, "{}"),
        Answer::Ask,
        ReasonCode::AskAlways,
        &["t.rules:4 (t.rules#L4.person)"],
    );
    check_named(
        &ask(&point, &tool("mcp.d.x_1"), plain, "{}"),
        Answer::Deny,
        ReasonCode::DenyByPolicy,
        &["t.rules:5 (t.rules#L5)", "t.rules:6 (t.rules#L6)"],
    );
    let floored = ToolFacts {
        auto_approve: false,
        definition_changed: true,
        ..tool("mcp.a.y")
    };
    check_named(
        &ask(&point, &floored, plain, "{}"),
        Answer::Ask,
        ReasonCode::AskFloor,
        &[
            "built-in/floor.cedar:3 (floor.person)",
            "built-in/floor.cedar:12 (floor.changed)",
        ],
    );
    let closed = DecisionPoint::load(&[file("t.rules", "allow mcp.a.*")]).unwrap();
    check_named(
        &ask(&closed, &tool("mcp.b.y"), plain, "{}"),
        Answer::Deny,
        ReasonCode::DenyByDefault,
        &[],
    );
}

#[test]
fn without_the_policies_of_the_floor_rust_still_asks() {
    let point = DecisionPoint::load_over(&[], &[file("t.rules", "allow mcp.*")]).unwrap();
    assert_eq!(point.policies().len(), 1, "no floor, no tiers");
    for tier in Tier::ALL {
        for (column, tool) in columns() {
            let decision = ask(&point, &tool, tier, "{}");
            let (answer, code, approver) = match column {
                "floor" => (Answer::Ask, ReasonCode::AskFloor, Some(Approver::PersonOnly)),
                "changed" => (
                    Answer::Ask,
                    ReasonCode::AskDefinitionChanged,
                    Some(Approver::PersonOnly),
                ),
                _ => (Answer::Allow, ReasonCode::Permitted, None),
            };
            assert_eq!(
                (decision.answer, decision.code, decision.approver),
                (answer, code, approver)
            );
            assert_eq!(decision.policies.len(), 1, "the rule that permits is named");
        }
    }
}

#[test]
fn a_policy_that_fails_denies_and_is_named() {
    let point = DecisionPoint::load(&[file("t.rules", "allow mcp.*"), file("x.cedar", OVERFLOW)]).unwrap();
    let decision = ask(&point, &tool("mcp.a.b"), Tier::FullAccess, "{}");
    check_named(
        &decision,
        Answer::Deny,
        ReasonCode::DenyEvaluationError,
        &["x.cedar:1 (broken)"],
    );
    assert!(
        decision.errors[0].starts_with("`broken`: integer overflow"),
        "{decision}"
    );
    // Under `always ask` a failure beside it denies too, and is not taken for the rule's forbid.
    let files = [
        file("t.rules", "always ask mcp.*"),
        file("x.cedar", OVERFLOW_UNATTENDED),
    ];
    let decision = ask(
        &DecisionPoint::load(&files).unwrap(),
        &tool("mcp.a.b"),
        Tier::FullAccess,
        "{}",
    );
    check_named(
        &decision,
        Answer::Deny,
        ReasonCode::DenyEvaluationError,
        &["x.cedar:1 (broken)"],
    );
    // A rule that denies is the better reason; the failure is told beside it.
    let files = [file("t.rules", "deny mcp.*"), file("x.cedar", OVERFLOW)];
    let decision = ask(
        &DecisionPoint::load(&files).unwrap(),
        &tool("mcp.a.b"),
        Tier::FullAccess,
        "{}",
    );
    assert_eq!(
        (decision.code, decision.errors.len()),
        (ReasonCode::DenyByPolicy, 1)
    );
}

/// In whatever order Cedar looked at them.
#[test]
fn of_several_that_fail_each_is_told_in_order() {
    let failing = |id: &str| OVERFLOW.replace("broken", id);
    let ids = ["e", "a", "d", "b", "c"];
    let point = DecisionPoint::load(&[file("x.cedar", &ids.map(failing).concat())]).unwrap();
    let decision = ask(&point, &tool("mcp.a.b"), Tier::Plan, "{}");
    let told: Vec<_> = decision.errors.iter().map(|error| error.get(..3)).collect();
    assert_eq!(told, ["`a`", "`b`", "`c`", "`d`", "`e`"].map(Some));
    let named: Vec<_> = decision
        .policies
        .iter()
        .map(|policy| policy.id.as_str())
        .collect();
    assert_eq!(named, ids, "by their lines");
}

/// Cedar would answer what the schema knows nothing of.
#[test]
fn a_request_that_does_not_fit_the_schema_is_none() {
    let model = load::load(&builtin::always_loaded(), &[]).unwrap().model;
    let agent = AgentId::default();
    let world = model.world(&agent, &agent, &tool("mcp.a.b")).unwrap();
    let request = |action| {
        let context = model.call_context(Tier::Plan, None, None).unwrap();
        model.request(&world, action, context)
    };
    assert!(request(Action::Call).is_ok());
    let told = request(Action::Elicit).unwrap_err();
    assert!(told.contains("elicit"), "{told}");
}

/// What a policy says where it fails stands in events and logs, where no argument may. The functions that would repeat
/// what they cannot take are not to be had for arguments.
#[test]
fn no_function_fails_on_an_argument() {
    for function in [
        "ip(context.args.getTag(\"k\")).isLoopback()",
        "decimal(context.args.getTag(\"k\")).lessThan(decimal(\"1.0\"))",
        "datetime(context.args.getTag(\"k\")) < context.now",
        "duration(context.args.getTag(\"k\")) < duration(\"1h\")",
    ] {
        let policy = format!(
            "@id(\"f\") @description(\"d\") permit (principal, action == Mcp::Action::\"call\", resource) when {{ context.args.hasTag(\"k\") && {function} }};"
        );
        let told = check_errors(&[file("f.cedar", &policy)]);
        assert!(
            told.contains("may not be called with non-literal expressions"),
            "{told}"
        );
    }
}

#[test]
fn a_missing_entity_denies() {
    let files = [file("t.rules", "allow mcp.*.*\ndefault ask")];
    let base = load::load(&builtin::always_loaded(), &files).unwrap();
    let agent = AgentId::default();
    let tool = tool("mcp.a.b");
    let asked = CallQuestion {
        agent: &agent,
        profile: &agent,
        tier: Tier::FullAccess,
        tool: &tool,
        arguments: "{}",
        now_ms: 0,
    };
    let world = base.model.world(&agent, &agent, &tool).unwrap();
    let world = base.model.with_arguments(&world, Vec::new()).unwrap();
    assert_eq!(base.decide_in(&world, &asked).unwrap().answer, Answer::Allow);
    assert_eq!(world.required.len(), 4, "agent, tool, server and arguments");
    for uid in &world.required {
        let mut world = world.clone();
        world.entities = world.entities.remove_entities([uid.clone()]).unwrap();
        let told = base.decide_in(&world, &asked).unwrap_err();
        assert_eq!(told, format!("the entity `{uid}` is missing"));
    }
}

#[test]
fn what_cannot_be_decided_on_denies_with_its_own_code() {
    let point = DecisionPoint::load(&[file("t.rules", "allow mcp.*")]).unwrap();
    for (arguments, code) in [
        ("[]", ReasonCode::DenyArgumentsInvalid),
        ("", ReasonCode::DenyArgumentsInvalid),
        (r#"{"a":1,"a":2}"#, ReasonCode::DenyArgumentsDuplicateKey),
        (
            &format!(r#"{{"a":{}{}}}"#, "[".repeat(64), "]".repeat(64)),
            ReasonCode::DenyArgumentsTooDeep,
        ),
        (
            &format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20)),
            ReasonCode::DenyArgumentsTooLarge,
        ),
    ] {
        let decision = ask(&point, &tool("mcp.a.b"), Tier::FullAccess, arguments);
        assert_eq!(
            (decision.answer, decision.code, decision.errors.len()),
            (Answer::Deny, code, 1),
            "{decision}"
        );
    }
    let agent = AgentId::default();
    let tool = tool("mcp.a.b");
    for now_ms in [i64::MIN, i64::MAX] {
        let asked = CallQuestion {
            agent: &agent,
            profile: &agent,
            tier: Tier::Plan,
            tool: &tool,
            arguments: "{}",
            now_ms,
        };
        assert_eq!(point.decide(&asked).code, ReasonCode::DenyInvalidRequest);
    }
}

#[test]
fn without_policies_all_is_denied() {
    for point in [
        DecisionPoint::deny_all(),
        DecisionPoint::load(&[]).unwrap(),
        DecisionPoint::load(&[file("a.cedar", "// later"), file("b.rules", "# later\n")]).unwrap(),
    ] {
        let decision = ask(&point, &tool("mcp.a.b"), Tier::FullAccess, "{}");
        check_named(&decision, Answer::Deny, ReasonCode::DenyNoPolicies, &[]);
    }
    // To say that nothing may be called is to say something.
    let closed = DecisionPoint::load(&[file("a.rules", "default deny")]).unwrap();
    let decision = ask(&closed, &tool("mcp.a.b"), Tier::FullAccess, "{}");
    check_named(&decision, Answer::Deny, ReasonCode::DenyByDefault, &[]);
    assert_ne!(
        DecisionPoint::deny_all().digest(),
        DecisionPoint::load(&[]).unwrap().digest()
    );
}

/// A server may list tools under ever new names.
#[test]
fn what_is_remembered_of_tools_has_a_bound() {
    let point = DecisionPoint::load(&[file("t.rules", "allow mcp.*")]).unwrap();
    for n in 0..=MAX_PREPARED {
        assert!(point.prepare(&tool(&format!("mcp.a.t{n}"))).is_some());
        assert!(point.prepared.read().unwrap().len() <= MAX_PREPARED);
    }
}

#[test]
fn policies_read_arguments_time_agent_and_hints() {
    let cedar = r#"
@id("write") @description("Writes below /srv only, in the morning.")
permit (principal in Mcp::Profile::"default", action in [Mcp::Action::"call", Mcp::Action::"unattended"], resource == Mcp::Tool::"mcp.fs.write")
when {
  context.args.hasTag("path") && context.args.getTag("path") like "/srv/*" && !(context.args.getTag("path") like "*..*") &&
  context.args.hasTag("mode#type") && context.args.getTag("mode#type") == "number" &&
  context.args.hasTag("mode") && context.args.getTag("mode") == "0.640" &&
  context.now < datetime("2026-07-28T12:00:00Z") && resource.destructive
};"#;
    let point = DecisionPoint::load(&[file("fs.cedar", cedar)]).unwrap();
    let write = tool("mcp.fs.write");
    let answer = |arguments: &str| ask(&point, &write, Tier::RequestApproval, arguments).answer;
    assert_eq!(answer(r#"{"path":"/srv/a","mode":0.640}"#), Answer::Allow);
    assert_eq!(answer(r#"{"path":"/srv/a","mode":"0.640"}"#), Answer::Deny);
    assert_eq!(answer(r#"{"path":"/srv/a","mode":0.64}"#), Answer::Deny);
    assert_eq!(answer(r#"{"path":"/srv/../etc","mode":0.640}"#), Answer::Deny);
    assert_eq!(
        answer(r#"{"path":{"__extn":{"fn":"ip","arg":"1.1.1.1"}}}"#),
        Answer::Deny
    );
    assert_eq!(answer("{}"), Answer::Deny);
    let harmless = ToolFacts {
        hints: ToolHints {
            destructive: false,
            ..ToolHints::default()
        },
        ..write.clone()
    };
    assert_eq!(
        ask(
            &point,
            &harmless,
            Tier::RequestApproval,
            r#"{"path":"/srv/a","mode":0.640}"#
        )
        .answer,
        Answer::Deny
    );
    let agent = AgentId::default();
    let other: AgentId = "other".parse().unwrap();
    let later = |now_ms, profile| {
        let asked = CallQuestion {
            agent: &agent,
            profile,
            tier: Tier::Plan,
            tool: &write,
            arguments: r#"{"path":"/srv/a","mode":0.640}"#,
            now_ms,
        };
        point.decide(&asked).answer
    };
    assert_eq!(later(1_785_239_999_999, &agent), Answer::Allow);
    assert_eq!(later(1_785_240_000_000, &agent), Answer::Deny, "noon");
    assert_eq!(later(1_785_239_999_999, &other), Answer::Deny, "another profile");
}

#[test]
fn the_hash_of_the_arguments_is_over_their_very_text() {
    let hash = Hash::of(br#"{ "a": 1 }"#);
    let cedar = format!(
        "@id(\"h\") @description(\"d\") permit (principal, action == Mcp::Action::\"call\", resource) when {{ context.argsHash == \"{hash}\" }};"
    );
    let point = DecisionPoint::load(&[file("h.cedar", &cedar)]).unwrap();
    assert_eq!(
        ask(&point, &tool("mcp.a.b"), Tier::Plan, r#"{ "a": 1 }"#).answer,
        Answer::Ask
    );
    assert_eq!(
        ask(&point, &tool("mcp.a.b"), Tier::Plan, r#"{"a":1}"#).answer,
        Answer::Deny
    );
}

#[track_caller]
fn check_errors(files: &[PolicyFile]) -> String {
    DecisionPoint::load(files).unwrap_err().to_string()
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let cedar = r#"@id("a") @description("d")
permit (principal, action == Mcp::Action::"call", resource == Mcp::Tool::"mcp.a.b")
when { context.args.getTag("x") == "y" };

@id("a") @description("the same id")
permit (principal, action, resource);

@id("b") @description("no such attribute")
permit (principal, action == Mcp::Action::"call", resource)
when {
  resource.nmae == "x"
};

@id("c") @description("Cyrillic")
forbid (principal, action == Mcp::Action::"call", resource == Mcp::Tool::"mcp.a.sсan");

@id("never") @description("a server is no tool")
permit (principal, action == Mcp::Action::"call", resource is Mcp::Server);
"#;
    let rules = "default ask\nallow mcp.git*\npermit mcp.*\ndefault deny\n";
    insta::assert_snapshot!(
        "errors",
        check_errors(&[
            file("team.rules", rules),
            file("x.cedar", cedar),
            file("y.txt", ""),
            file(
                "z.cedar",
                "permit (principal, action, resource) when { context. };"
            )
        ])
    );
}

#[test]
fn a_duplicate_id_names_both_places() {
    let policy = "@id(\"same\") @description(\"d\") permit (principal, action, resource);";
    let told = check_errors(&[file("b.cedar", policy), file("a.cedar", &format!("\n{policy}"))]);
    assert!(
        told.starts_with("a.cedar:2: the id `same` is taken by the policy at b.cedar:1"),
        "{told}"
    );
    let told = check_errors(&[file("a.cedar", &policy.replace("same", "floor.person"))]);
    assert!(
        told.contains("taken by the policy at built-in/floor.cedar:3"),
        "{told}"
    );
}

/// Wherever a policy may speak of one.
#[test]
fn the_profiles_are_those_that_policies_name_in_scopes_and_conditions() {
    let named = |text: &str| {
        let text = format!("@id(\"a\") @description(\"A.\") {text}");
        let file = PolicyFile {
            name: "a.cedar".to_owned(),
            text,
        };
        let names: Vec<_> = DecisionPoint::load(&[file])
            .unwrap()
            .profiles()
            .into_iter()
            .collect();
        names.join(" ")
    };
    let on = "action == Mcp::Action::\"call\", resource";
    assert_eq!(
        named(&format!("permit (principal in Mcp::Profile::\"night\", {on});")),
        "night"
    );
    assert_eq!(
        named(&format!(
            "forbid (principal, {on}) when {{ principal in [Mcp::Profile::\"b\", Mcp::Profile::\"a\"] || \
             resource.readOnly }} unless {{ principal is Mcp::Agent in Mcp::Profile::\"c \\u{{e4}}\" }};"
        )),
        "a b c ä"
    );
    assert_eq!(
        named(&format!("permit (principal == Mcp::Agent::\"night\", {on});")),
        ""
    );
    assert!(DecisionPoint::deny_all().profiles().is_empty());
}
