//! The table of answers, cell by cell, with a hook that says yes, one that says no, and none.

use futures::future::BoxFuture;
use portcullis_router::{ApprovalRequest, HookAnswer, PersonAnswer};
use portcullis_state::{FirstSight, SeenTool, Sighting, State};
use portcullis_testkit::{Behaviour, Tool};
use portcullis_types::{AgentId, Hash, Tier};

use super::*;

/// A hook that always says the same, and nobody behind it.
#[derive(Debug)]
struct Hook(HookAnswer);

impl ApprovalHandler for Hook {
    fn hook<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, HookAnswer> {
        Box::pin(std::future::ready(self.0.clone()))
    }

    fn person<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        Box::pin(std::future::ready(PersonAnswer::Nobody))
    }
}

/// What comes of a call, by who is there: nobody, a hook that says yes, one that says no.
type Cell = [&'static str; 3];

const DENIED: Cell = ["denied", "denied", "denied"];
const ALLOWED: Cell = ["ok", "ok", "ok"];
/// The hook's word counts either way.
const ASKED: Cell = ["needs-approval", "ok", "refused"];
/// A person's yes is needed; the hook may only say no.
const PERSON: Cell = ["needs-approval", "needs-approval", "refused"];

/// A policy that fails on each call.
const FAILS: &str = "@id(\"fails\") @description(\"It overflows.\")
    permit (principal, action == Mcp::Action::\"call\", resource) when { 9223372036854775807 + 1 == 0 };";

/// The rows: what the rules say, then the cells of an ordinary tier, of full access, and of a tool that is under the
/// floor or no longer what was trusted. With `!` in front, [`FAILS`] stands beside the rules.
const ROWS: [(&str, [Cell; 3]); 8] = [
    ("default deny\nallow mcp.other.*", [DENIED, DENIED, DENIED]),
    ("default ask", [ASKED, ALLOWED, PERSON]),
    ("ask mcp.s.*", [ASKED, ALLOWED, PERSON]),
    ("always ask mcp.s.*", [PERSON, PERSON, PERSON]),
    ("allow mcp.s.*", [ALLOWED, ALLOWED, PERSON]),
    ("allow mcp.s.*\ndeny mcp.s.*", [DENIED, DENIED, DENIED]),
    ("!allow mcp.s.*", [DENIED, DENIED, DENIED]),
    ("!always ask mcp.s.*", [DENIED, DENIED, DENIED]),
];

fn policies(row: &str) -> DecisionPoint {
    let file = |name: &str, text: &str| PolicyFile {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let files = match row.strip_prefix('!') {
        Some(rules) => vec![file("team.rules", rules), file("fails.cedar", FAILS)],
        None => vec![file("team.rules", row)],
    };
    DecisionPoint::load(&files).unwrap()
}

/// A state in which the tool `changed` of this server was trusted for something else.
fn trusted_before(spec: &ServerSpec) -> Keeping {
    let state = State::in_memory().unwrap();
    let definition = r#"{"name":"changed"}"#;
    let changed = SeenTool {
        tool: "changed",
        hash: Hash::of(definition.as_bytes()),
        definition,
    };
    let seen = Sighting {
        server: &spec.id,
        launch: spec.launch_fingerprint(),
        launch_text: "{}",
        tools: &[changed],
    };
    state.see(&seen, FirstSight::Trust, 0).unwrap();
    Keeping {
        state: Some(Arc::new(state)),
        ..Keeping::default()
    }
}

#[tokio::test]
async fn every_cell_with_and_without_a_hook() {
    let script = ["plain", "floored", "changed"]
        .iter()
        .fold(Script::new("s"), |script, name| {
            script.tool(Tool::new(name, Behaviour::Text("it ran".to_owned())))
        });
    let hooks = [
        None,
        Some(HookAnswer::Allow),
        Some(HookAnswer::Deny("not today".to_owned())),
    ];
    for (rules, [ordinary, full_access, person]) in ROWS {
        for (position, hook) in hooks.iter().enumerate() {
            let handler = hook
                .clone()
                .map(|hook| Arc::new(Hook(hook)) as Arc<dyn ApprovalHandler>);
            let spec = scripted(&script);
            let options = RouterOptions {
                keeping: trusted_before(&spec),
                policies: Arc::new(policies(rules)),
                ..options("", handler)
            };
            let rig = Rig::start_options(spec, options).await;
            for tier in Tier::ALL {
                let cell = if tier == Tier::FullAccess {
                    full_access
                } else {
                    ordinary
                };
                for (tool, cell) in [("plain", cell), ("floored", person), ("changed", person)] {
                    let request = CallRequest {
                        tier: Some(tier),
                        ..CallRequest::new(format!("mcp.s.{tool}").parse().unwrap(), "{}")
                    };
                    let result = timeout(PATIENCE, rig.router.call(request)).await.unwrap();
                    assert_eq!(
                        result.as_ref().map_or_else(CallError::code, |_| "ok"),
                        cell[position],
                        "{rules:?}, {tool}, {tier}, {hook:?}"
                    );
                }
            }
        }
    }
}

/// The event and the error tell what an explanation tells, which is what `policy explain` prints.
#[tokio::test]
async fn a_refusal_is_told_as_it_is_explained() {
    let script = Script::new("s").tool(Tool::new("plain", Behaviour::Text("it ran".to_owned())));
    let rules = "allow mcp.s.plain when arg.path == \"/srv\"\n";
    let mut rig = Rig::start(&script, rules, None).await;
    let error = rig.call("plain", r#"{"path":"/etc"}"#).await.unwrap_err();
    let explanation = serde_json::to_value(error.explanation().unwrap()).unwrap();
    assert_eq!(explanation["code"], "deny.default", "{explanation}");
    assert_eq!(explanation["nearest"]["policy"]["line"], 1, "{explanation}");
    let file = PolicyFile {
        name: "team.rules".to_owned(),
        text: rules.to_owned(),
    };
    let tool =
        portcullis_policy::ToolFacts::from_definition("mcp.s.plain".parse().unwrap(), "stdio", "{}", true);
    let agent = AgentId::default();
    let explained = DecisionPoint::load(&[file])
        .unwrap()
        .explain(&portcullis_policy::CallQuestion {
            agent: &agent,
            profile: &agent,
            tier: Tier::RequestApproval,
            tool: &tool,
            arguments: r#"{"path":"/etc"}"#,
            now_ms: 0,
        });
    assert_eq!(explanation, serde_json::to_value(explained).unwrap());
    let events = rig.told();
    let permission = events
        .iter()
        .find(|event| event["event"] == "permission")
        .unwrap();
    assert_eq!(permission["decision"], explanation);
}
