//! Who may call what, and what becomes of it.

use std::sync::Mutex;

use futures::future::BoxFuture;
use portcullis_router::{ApprovalRequest, HookAnswer, PersonAnswer};
use portcullis_testkit::{Behaviour, Shown, Tool};
use portcullis_types::Answer;
use serde_json::json;

use super::*;

/// Gives fixed answers, and keeps what was asked.
#[derive(Debug)]
pub(crate) struct Answers {
    hook: HookAnswer,
    person: PersonAnswer,
    asked: Mutex<Vec<(&'static str, ApprovalRequest)>>,
}

impl Answers {
    pub(crate) fn new(hook: HookAnswer, person: PersonAnswer) -> Arc<Self> {
        Arc::new(Self {
            hook,
            person,
            asked: Mutex::default(),
        })
    }

    /// Who was asked, in order.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().unwrap().iter().map(|(who, _)| *who).collect()
    }
}

impl ApprovalHandler for Answers {
    fn hook<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, HookAnswer> {
        self.asked.lock().unwrap().push(("hook", request.clone()));
        Box::pin(std::future::ready(self.hook.clone()))
    }

    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        self.asked.lock().unwrap().push(("person", request.clone()));
        Box::pin(std::future::ready(self.person.clone()))
    }
}

fn deny(reason: &str) -> (HookAnswer, PersonAnswer) {
    (
        HookAnswer::Deny(reason.to_owned()),
        PersonAnswer::Deny(reason.to_owned()),
    )
}

fn tools(names: &[&str]) -> Script {
    names.iter().fold(Script::new("s"), |script, name| {
        script.tool(Tool::new(name, Behaviour::Echo))
    })
}

/// Report 52: a denied call says denied, with the policy; the server never hears of it.
#[tokio::test]
async fn what_is_denied_never_reaches_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let received = folder.path().join("received");
    let script = tools(&["read", "drop"]).record_received(&received);
    let rules = "default ask\nallow mcp.s.*\ndeny mcp.s.drop\n";
    let answers = Answers::new(HookAnswer::Allow, PersonAnswer::Allow);
    let rig = Rig::start(&script, rules, Some(answers.clone())).await;
    let error = rig.call("drop", "{}").await.unwrap_err();
    assert_eq!(error.code(), "denied");
    assert!(error.to_string().contains("team.rules:3"), "{error}");
    assert_eq!(error.decision().unwrap().answer, Answer::Deny);
    rig.call("read", "{}").await.unwrap();
    let received = std::fs::read_to_string(received).unwrap();
    assert!(
        received.contains(r#""read""#) && !received.contains(r#""drop""#),
        "{received}"
    );
    assert_eq!(answers.asked(), [""; 0], "a denial is nobody's to lift");
}

#[tokio::test]
async fn without_any_policy_all_is_denied() {
    let rig = Rig::start(&tools(&["read"]), "", None).await;
    assert_eq!(rig.refusal("read").await, "denied");
}

/// What a definition says of how many calls there may be at a time is held to.
#[tokio::test]
async fn a_server_with_room_for_one_call_is_given_one() {
    let script = tools(&["t"]).tool(Tool::new("mute", Behaviour::Mute));
    let mut spec = scripted(&script);
    spec.limits.calls_in_flight = 1;
    spec.limits.calls_waiting = 1;
    let mut rig = Rig::start_spec(spec, "allow mcp.s.*\n", None).await;
    let spawned = |tool: &'static str| {
        let router = Arc::clone(&rig.router);
        tokio::spawn(async move {
            let call = CallRequest::new(format!("mcp.s.{tool}").parse().unwrap(), "{}");
            router.call(call).await.map(drop).map_err(|error| error.code())
        })
    };
    let first = spawned("mute");
    let second = spawned("t");
    // In the order of their decisions.
    for _ in 0..2 {
        rig.until(|event| event["event"] == "permission").await;
    }
    assert_eq!(rig.refusal("t").await, "busy");
    first.abort();
    assert_eq!(timeout(PATIENCE, second).await.unwrap().unwrap(), Ok(()));
}

/// A policy about a profile is about each agent that belongs to it, whatever is asked.
#[tokio::test]
async fn policies_about_a_profile_hold_for_its_agents() {
    let forbid = |action: &str| {
        format!(
            "@id(\"{action}\") @description(\"Not at night.\")\nforbid (principal in Mcp::Profile::\"night\", \
             action == Mcp::Action::\"{action}\", resource);\n"
        )
    };
    let files = [
        ("team.rules", "allow mcp.s.read\nask mcp.s.ask\n".to_owned()),
        ("night.cedar", forbid("call")),
    ];
    let files = files.map(|(name, text)| PolicyFile {
        name: name.to_owned(),
        text,
    });
    let answers = Answers::new(HookAnswer::Allow, PersonAnswer::Allow);
    let bot: portcullis_types::AgentId = "bot".parse().unwrap();
    let mut options = options("", Some(answers));
    options.policies = Arc::new(DecisionPoint::load(&files).unwrap());
    options.profiles = [(bot.clone(), "night".parse().unwrap())].into();
    let rig = Rig::start_options(scripted(&tools(&["read", "ask"])), options).await;
    for (agent, tool, expected) in [
        (None, "read", "ok"),
        (None, "ask", "ok"),
        (Some("other"), "read", "ok"),
        (Some("bot"), "read", "denied"),
        (Some("bot"), "ask", "denied"),
    ] {
        let mut call = CallRequest::new(format!("mcp.s.{tool}").parse().unwrap(), "{}");
        call.agent = agent.map(|agent| agent.parse().unwrap());
        let called = timeout(PATIENCE, rig.router.call(call)).await.unwrap();
        if let Err(error) = &called {
            assert_eq!(error.explanation().unwrap().profile.as_str(), "night");
        }
        let outcome = called.as_ref().map_or_else(CallError::code, |_| "ok");
        assert_eq!(outcome, expected, "{agent:?} {tool}");
    }
    rig.router.shutdown().await.unwrap();

    // The hub's own agent, of whom lists and menus speak.
    let mut options = self::options("", None);
    options.policies = Arc::new(DecisionPoint::load(&files).unwrap());
    options.profiles = [(bot.clone(), "night".parse().unwrap())].into();
    options.agent = bot;
    let rig = Rig::start_options(scripted(&tools(&["read"])), options).await;
    let catalog = rig.router.catalog();
    assert_eq!(
        rig.router.outlook(catalog.tools().next().unwrap()).answer,
        Answer::Deny
    );
}

/// Who is asked, and whose word counts.
#[tokio::test]
async fn an_asked_call_runs_only_with_the_word_of_somebody_who_may_give_it() {
    let rules = "default deny\nask mcp.s.asked\nalways ask mcp.s.always\nallow mcp.s.floored\n";
    let script = tools(&["asked", "always", "floored"]);
    let (hook_denies, person_denies) = deny("not today");
    let ok = "ok";
    let (hook, both, none): (&[&str], &[&str], &[&str]) = (&["hook"], &["hook", "person"], &[]);
    let cases = [
        ("asked", None, "needs-approval", none),
        ("asked", Some((HookAnswer::Allow, PersonAnswer::Nobody)), ok, hook),
        (
            "asked",
            Some((HookAnswer::NoOpinion, PersonAnswer::Nobody)),
            "needs-approval",
            both,
        ),
        (
            "asked",
            Some((HookAnswer::NoOpinion, PersonAnswer::Allow)),
            ok,
            both,
        ),
        (
            "asked",
            Some((HookAnswer::NoOpinion, person_denies)),
            "refused",
            both,
        ),
        (
            "asked",
            Some((hook_denies.clone(), PersonAnswer::Allow)),
            "refused",
            hook,
        ),
        // Only a person may: the hook's yes does not count, its no does.
        (
            "always",
            Some((HookAnswer::Allow, PersonAnswer::Nobody)),
            "needs-approval",
            both,
        ),
        ("always", Some((HookAnswer::Allow, PersonAnswer::Allow)), ok, both),
        (
            "floored",
            Some((HookAnswer::Allow, PersonAnswer::Nobody)),
            "needs-approval",
            both,
        ),
        (
            "floored",
            Some((HookAnswer::Allow, PersonAnswer::Allow)),
            ok,
            both,
        ),
        (
            "floored",
            Some((hook_denies, PersonAnswer::Allow)),
            "refused",
            hook,
        ),
    ];
    for (tool, answers, outcome, asked) in cases {
        check_asked(&script, rules, tool, answers, outcome, asked).await;
    }
}

/// Calls `tool` with these answers of hook and person: what comes of it, and who was asked.
async fn check_asked(
    script: &Script,
    rules: &str,
    tool: &str,
    answers: Option<(HookAnswer, PersonAnswer)>,
    outcome: &str,
    asked: &[&str],
) {
    let answers = answers.map(|(hook, person)| Answers::new(hook, person));
    let handler = answers.clone().map(|answers| answers as Arc<dyn ApprovalHandler>);
    let rig = Rig::start(script, rules, handler).await;
    let arguments = r#"{"n":1.10}"#;
    let result = rig.call(tool, arguments).await;
    let context = format!("{tool} {answers:?}");
    assert_eq!(
        result.as_ref().map_or_else(CallError::code, |_| "ok"),
        outcome,
        "{context}"
    );
    let Some(answers) = answers else { return };
    assert_eq!(answers.asked(), asked, "{context}");
    for (_, request) in answers.asked.lock().unwrap().iter() {
        assert_eq!(
            (request.arguments.as_str(), request.capability.tool()),
            (arguments, tool)
        );
    }
    if let Ok(outcome) = result {
        let by = outcome.approved_by.map(|by| by.to_string());
        assert_eq!(by.as_deref(), asked.last().copied(), "{context}");
        assert_eq!(outcome.decision.answer, Answer::Ask, "{context}");
    }
    // Nothing stays approved: the next call is asked about anew.
    let _ = rig.call(tool, arguments).await;
    assert_eq!(answers.asked().len(), 2 * asked.len(), "{context}");
}

/// Changes the tool while a person looks at it, then says yes.
#[derive(Debug, Default)]
struct Late {
    router: Mutex<Option<Arc<Router>>>,
    shown: Mutex<Vec<Option<String>>>,
}

impl ApprovalHandler for Late {
    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        Box::pin(async {
            let first = {
                let mut shown = self.shown.lock().unwrap();
                shown.push(request.description.clone());
                shown.len() == 1
            };
            if first {
                let router = self.router.lock().unwrap().clone().unwrap();
                let mut changes = router.catalog_changes();
                router
                    .call(CallRequest::new("mcp.s.change".parse().unwrap(), "{}"))
                    .await
                    .unwrap();
                let capability = request.capability.clone();
                let new =
                    |tool: &Arc<portcullis_router::CatalogTool>| tool.description.as_deref() == Some("after");
                changes
                    .wait_for(|catalog| catalog.get(&capability).is_some_and(new))
                    .await
                    .unwrap();
            }
            PersonAnswer::Allow
        })
    }
}

/// Report 46: what was approved is the definition that was shown, and no other.
#[tokio::test]
async fn an_approval_is_void_once_the_definition_has_changed() {
    let script = Script::new("s")
        .tool(
            Tool::new("t", Behaviour::Text("a".into()))
                .describe("before")
                .shown(Shown::BeforeChange),
        )
        .tool(
            Tool::new("t", Behaviour::Text("b".into()))
                .describe("after")
                .shown(Shown::AfterChange),
        )
        .tool(Tool::new(
            "change",
            Behaviour::ListChanged {
                count: 1,
                interval_ms: 0,
            },
        ));
    let late = Arc::new(Late::default());
    let rig = Rig::start(&script, "default ask\nallow mcp.s.change\n", Some(late.clone())).await;
    *late.router.lock().unwrap() = Some(Arc::clone(&rig.router));
    let outcome = rig.call("t", "{}").await.unwrap();
    assert!(outcome.result.result.get().contains(r#""b""#));
    assert_eq!(
        *late.shown.lock().unwrap(),
        [Some("before".to_owned()), Some("after".to_owned())]
    );
    *late.router.lock().unwrap() = None;
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let rig = Rig::start(&tools(&["read_file", "off"]), "allow mcp.*\n", None).await;
    let error = rig.call("read_fiel", "{}").await.unwrap_err();
    assert_eq!(error.code(), "unknown-tool");
    assert!(
        error.to_string().contains("did you mean `mcp.s.read_file`?"),
        "{error}"
    );
    assert!(
        !rig.call("zzz", "{}")
            .await
            .unwrap_err()
            .to_string()
            .contains("did you mean")
    );
    assert_eq!(rig.refusal("off").await, "disabled");
    assert!(
        rig.router
            .catalog()
            .tools()
            .all(|tool| tool.capability.tool() != "off")
    );
    let nowhere = CallRequest::new("mcp.nowhere.t".parse().unwrap(), "{}");
    let error = rig.router.call(nowhere).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no server `nowhere` is configured, or what configures it cannot be used; there are: s"
    );
}

#[tokio::test]
async fn a_disabled_server_refuses_at_once() {
    let mut spec = scripted(&tools(&["t"]));
    spec.enabled = false;
    let options = options("allow mcp.*\n", None);
    let router = Router::start(vec![spec], options).await.unwrap();
    let request = CallRequest::new("mcp.s.t".parse().unwrap(), "{}");
    let error = timeout(Duration::from_secs(2), router.call(request))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains("disabled"), "{error}");
}

/// Reports 30, 57: never sent twice, and the next call finds the server that came back.
#[tokio::test]
async fn a_crash_is_told_and_the_next_call_runs() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let script = tools(&["t"]).tool(Tool::new("crash", Behaviour::record(&done, Behaviour::crash(3))));
    let rig = Rig::start(&script, "allow mcp.*\n", None).await;
    assert_eq!(rig.refusal("crash").await, "outcome-unknown");
    rig.call("t", "{}").await.unwrap();
    assert_eq!(std::fs::read_to_string(done).unwrap().lines().count(), 1);
}

/// A server of whose end nobody has heard yet gets nothing of a call, so the next one gets it, decided anew.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_call_of_which_nothing_was_sent_goes_to_the_server_that_comes_next() {
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
    let mut rig = Rig::start(&tools(&["t"]), "allow mcp.*\n", None).await;
    let pid = rig
        .router
        .catalog()
        .servers()
        .values()
        .next()
        .unwrap()
        .pid
        .unwrap();
    let process = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    // Nothing else goes on while it ends, since all is on this thread; and it is left to its hub to reap.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(process), ended).unwrap();
    rig.call("t", "{}").await.unwrap();
    let told = rig.told();
    let count = |kind: &str| told.iter().filter(|event| event["event"] == kind).count();
    assert!(count("tool.call") == 2 && count("permission") >= 2, "{told:?}");
    assert_eq!(told.last().unwrap()["outcome"], "ok");
}

/// More calls than are admitted: the rest is told so at once, and those that wait are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_calls_are_busy() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::new("s")
        .tool(Tool::new(
            "hold",
            Behaviour::UntilCancelled {
                file: folder.path().join("held"),
            },
        ))
        .tool(Tool::new("t", Behaviour::Echo));
    let mut rig = Rig::start(&script, "allow mcp.*\n", None).await;
    let call = |tool: &str| {
        let (router, capability) = (Arc::clone(&rig.router), format!("mcp.s.{tool}").parse().unwrap());
        tokio::spawn(async move { router.call(CallRequest::new(capability, "{}")).await })
    };
    let held: Vec<_> = (0..64).map(|_| call("hold")).collect();
    let mut sent = 0;
    while sent < 64 {
        rig.until(|event| event["event"] == "tool.call").await;
        sent += 1;
    }
    let call = |tool: &str| {
        let (router, capability) = (Arc::clone(&rig.router), format!("mcp.s.{tool}").parse().unwrap());
        tokio::spawn(async move { router.call(CallRequest::new(capability, "{}")).await })
    };
    // One more than may wait: exactly one is refused, at once.
    let waiting: Vec<_> = (0..=1_024).map(|_| call("t")).collect();
    rig.until(|event| event["event"] == "tool.result").await;
    held.iter().for_each(tokio::task::JoinHandle::abort);
    let results: Vec<_> = futures::future::join_all(waiting)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let refused: Vec<_> = results
        .iter()
        .filter_map(|result| result.as_ref().err())
        .map(CallError::code)
        .collect();
    assert_eq!(refused, ["busy"]);
}

#[tokio::test]
async fn arguments_that_are_no_object_are_refused() {
    let rig = Rig::start(&tools(&["t"]), "allow mcp.*\n", None).await;
    for arguments in ["[]", "7", "{", "{}{}", "\"text\""] {
        let error = rig.call("t", arguments).await.unwrap_err();
        assert_eq!(error.code(), "denied", "{arguments}: {error}");
    }
    for arguments in [
        "",
        "  ",
        "{}",
        "{\n}",
        r#"{"n":1.10,"big":123456789012345678901234567890}"#,
    ] {
        rig.call("t", arguments).await.unwrap();
    }
    let outcome = rig
        .call("t", r#"{"big":123456789012345678901234567890}"#)
        .await
        .unwrap();
    let result: serde_json::Value = serde_json::from_str(outcome.result.result.get()).unwrap();
    assert_eq!(
        result["content"][0]["text"],
        json!(r#"{"big":123456789012345678901234567890}"#)
    );
}
