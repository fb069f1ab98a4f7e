//! Questions about a whole server.

use super::*;

#[test]
fn presets_permit_elicitation_and_rules_can_deny_it() {
    let agent = AgentId::default();
    let server: ServerId = "github".parse().unwrap();
    let decide = |point: &DecisionPoint, source| {
        point.decide_elicitation(&ElicitationQuestion {
            agent: &agent,
            profile: &agent,
            tier: Tier::Plan,
            source,
            server: &server,
            transport: "stdio",
            mode: "url",
            host: "example.com",
        })
    };
    for preset in Preset::ALL {
        let point = DecisionPoint::preset(preset).unwrap();
        assert_eq!(decide(&point, Source::Mcp).answer, Answer::Allow);
        assert_eq!(preset.as_str().parse::<Preset>().unwrap(), preset);
    }
    let rules = "allow elicit mcp.*\ndeny elicit mcp.git*\ndeny elicit host.github\n";
    let point = DecisionPoint::load(&[file("t.rules", rules)]).unwrap();
    check_named(
        &decide(&point, Source::Mcp),
        Answer::Deny,
        ReasonCode::DenyByPolicy,
        &["t.rules:2 (t.rules#L2)"],
    );
    check_named(
        &decide(&point, Source::Host),
        Answer::Deny,
        ReasonCode::DenyByPolicy,
        &["t.rules:3 (t.rules#L3)"],
    );
    assert_eq!(
        decide(&DecisionPoint::deny_all(), Source::Mcp).code,
        ReasonCode::DenyNoPolicies
    );
    // A rule that denies all tools leaves the questions alone.
    let point = DecisionPoint::load(&[file("t.rules", "deny mcp.*\nallow elicit mcp.github")]).unwrap();
    assert_eq!(decide(&point, Source::Mcp).answer, Answer::Allow);
}

/// What a missing entity, a failing policy and missing policies come to in questions about a whole server.
#[test]
fn questions_about_servers_deny_what_fails() {
    let agent = AgentId::default();
    let server: ServerId = "github".parse().unwrap();
    let question = |about| ServerQuestion {
        agent: &agent,
        profile: &agent,
        tier: Tier::FullAccess,
        source: Source::Mcp,
        server: &server,
        transport: "stdio",
        about,
    };
    let (elicit, read, get) = (
        ServerAction::Elicit {
            mode: "form",
            host: "",
        },
        ServerAction::ReadResource { uri: "file:///a" },
        ServerAction::GetPrompt { name: "a" },
    );
    let rules = "allow elicit mcp.*\nallow readResource mcp.*\nallow getPrompt mcp.*\n";
    for (about, action) in [(elicit, "elicit"), (read, "readResource"), (get, "getPrompt")] {
        let asked = question(about);
        let point = DecisionPoint::load(&[file("t.rules", rules)]).unwrap();
        assert_eq!(point.decide_server(&asked).answer, Answer::Allow, "{action}");
        let none = DecisionPoint::deny_all().decide_server(&asked);
        check_named(&none, Answer::Deny, ReasonCode::DenyNoPolicies, &[]);
        let closed = DecisionPoint::load(&[file("t.rules", "allow mcp.*")]).unwrap();
        check_named(
            &closed.decide_server(&asked),
            Answer::Deny,
            ReasonCode::DenyByDefault,
            &[],
        );
        let failing = OVERFLOW.replace("\"call\"", &format!("\"{action}\""));
        let failing = DecisionPoint::load(&[file("t.rules", rules), file("x.cedar", &failing)]).unwrap();
        check_named(
            &failing.decide_server(&asked),
            Answer::Deny,
            ReasonCode::DenyEvaluationError,
            &["x.cedar:1 (broken)"],
        );
        let (mut world, _) = point.base().unwrap().model.server_question(&asked).unwrap();
        for uid in world.required.clone() {
            let whole = world.entities.clone();
            world.entities = world.entities.remove_entities([uid.clone()]).unwrap();
            assert_eq!(
                world.check_complete().unwrap_err(),
                format!("the entity `{uid}` is missing")
            );
            world.entities = whole;
        }
    }
}
