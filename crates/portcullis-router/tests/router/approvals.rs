//! Whose yes holds for how long, and what "always" writes.

mod always;
mod endings;
mod turns;

use std::{collections::VecDeque, path::Path, sync::Mutex};

use futures::future::BoxFuture;
use portcullis_policy::Seal;
use portcullis_router::{ApprovalRequest, DecidedBy, PersonAnswer, PolicyFolder, PolicyReload};
use portcullis_state::State;
use portcullis_testkit::{Behaviour, Shown, Tool};
use portcullis_types::{AgentId, Answer, Tier};
use tokio::sync::Notify;

use super::*;

/// A person with answers prepared; afterwards they say no.
#[derive(Debug, Default)]
pub(super) struct Desk {
    answers: Mutex<VecDeque<PersonAnswer>>,
    asked: Mutex<Vec<ApprovalRequest>>,
    /// Where it is there, an answer takes until it is told.
    gate: Option<Arc<Notify>>,
    /// Told with each question.
    question: Notify,
}

impl Desk {
    pub(super) fn new(answers: impl IntoIterator<Item = PersonAnswer>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            ..Self::default()
        })
    }

    pub(super) fn slow(answers: impl IntoIterator<Item = PersonAnswer>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            gate: Some(Arc::default()),
            ..Self::default()
        })
    }

    pub(super) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// The last question.
    pub(super) fn last(&self) -> ApprovalRequest {
        self.asked.lock().unwrap().last().unwrap().clone()
    }
}

impl ApprovalHandler for Desk {
    fn name(&self) -> String {
        "ann".to_owned()
    }

    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(request.clone());
            self.question.notify_one();
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            let answer = self.answers.lock().unwrap().pop_front();
            answer.unwrap_or_else(|| PersonAnswer::Deny("no".to_owned()))
        })
    }
}

fn spec() -> ServerSpec {
    let script = ["t", "u", "floored"]
        .iter()
        .fold(Script::new("s"), |script, name| {
            script.tool(Tool::new(name, Behaviour::Echo))
        });
    scripted(&script)
}

fn write(folder: &Path, name: &str, text: &str) {
    #[expect(clippy::disallowed_methods, reason = "a test edits a folder")]
    std::fs::write(folder.join(name), text).unwrap();
}

fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "approvals end by the wall clock")]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Options with policies from a folder that is not watched: what happens in a test happens when it says so.
fn from_folder(folder: &Path, desk: &Arc<Desk>) -> RouterOptions {
    let folder = PolicyFolder::new(folder).watched(false);
    let mut options = options("", Some(desk.clone()));
    options.policies = Arc::new(folder.load().unwrap());
    options.policy_folder = Some(folder);
    options
}

fn kept(folder: &Path, rules: &str, desk: &Arc<Desk>) -> RouterOptions {
    let mut options = options(rules, Some(desk.clone()));
    options.keeping.state = Some(Arc::new(State::open(folder).unwrap()));
    options
}

/// Who let a call run, or the code of the error.
fn outcome_of(called: Result<CallOutcome, CallError>) -> String {
    match called {
        Ok(outcome) => outcome.approved_by.unwrap_or(DecidedBy::Policies).to_string(),
        Err(error) => error.code().to_owned(),
    }
}

async fn outcome(rig: &Rig, tool: &str, arguments: &str) -> String {
    outcome_of(rig.call(tool, arguments).await)
}

#[tokio::test]
async fn an_approval_for_a_while_holds_for_the_same_call_alone() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("state");
    let desk = Desk::new([PersonAnswer::AllowFor]);
    let mut rig = Rig::start_options(spec(), kept(&folder, "default ask\n", &desk)).await;
    assert_eq!(outcome(&rig, "t", r#"{"n":1}"#).await, "person");
    assert_eq!(desk.last().hold, Some(Duration::from_secs(3_600)));
    for (tool, arguments, expected) in [
        ("t", r#"{"n":1}"#, "stored-approval"),
        ("t", r#"{"n": 1}"#, "refused"),
        ("u", r#"{"n":1}"#, "refused"),
        ("t", r#"{"n":1}"#, "stored-approval"),
    ] {
        assert_eq!(
            outcome(&rig, tool, arguments).await,
            expected,
            "{tool} {arguments}"
        );
    }
    let told = rig.told();
    let decided: Vec<_> = told
        .iter()
        .filter(|event| event["event"] == "permission")
        .map(|event| event["by"].as_str().unwrap())
        .collect();
    assert_eq!(
        decided,
        [
            "policies",
            "person",
            "stored-approval",
            "policies",
            "policies",
            "stored-approval"
        ]
    );
    let approved = told.iter().find(|event| event["event"] == "approval").unwrap();
    assert_eq!(
        (&approved["by"], &approved["person"]),
        (&"person".into(), &"ann".into())
    );
    assert!(approved["holds_until_ms"].is_i64(), "{approved}");
    let refused = told.iter().find(|event| event["answer"] == "refused").unwrap();
    assert_eq!(
        (&refused["by"], &refused["person"]),
        (&"person".into(), &"ann".into())
    );
    let same = || CallRequest::new("mcp.s.t".parse().unwrap(), r#"{"n":1}"#);
    let mut as_another = same();
    as_another.agent = Some("another".parse().unwrap());
    let mut in_another_tier = same();
    in_another_tier.tier = Some(Tier::AllowEdits);
    for (call, expected) in [
        (as_another, "refused"),
        (in_another_tier, "refused"),
        (same(), "stored-approval"),
    ] {
        let called = timeout(PATIENCE, rig.router.call(call)).await.unwrap();
        assert_eq!(outcome_of(called), expected);
    }
    rig.router.shutdown().await.unwrap();

    // Another run under the same policies, then one under others, then one in which the agent is of another profile.
    let desk = Desk::new([]);
    for (rules, profile, expected) in [
        ("default ask\n", "default", "stored-approval"),
        ("default ask\ndeny mcp.z.*\n", "default", "refused"),
        ("default ask\n", "night", "refused"),
    ] {
        let mut options = kept(&folder, rules, &desk);
        options.profiles = [(AgentId::default(), profile.parse().unwrap())].into();
        let rig = Rig::start_options(spec(), options).await;
        assert_eq!(
            outcome(&rig, "t", r#"{"n":1}"#).await,
            expected,
            "{rules} {profile}"
        );
        rig.router.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn an_approval_ends_with_its_time() {
    let desk = Desk::new([PersonAnswer::AllowFor, PersonAnswer::AllowFor]);
    let mut options = options("default ask\n", Some(desk.clone()));
    options.keeping.approval_hold = Duration::ZERO;
    let rig = Rig::start_options(spec(), options).await;
    assert_eq!(outcome(&rig, "t", "{}").await, "person");
    assert_eq!(outcome(&rig, "t", "{}").await, "person");
}

/// Under the floor and `always ask` a yes serves once, however it was meant.
#[tokio::test]
async fn what_always_asks_is_approved_once_each_time() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        "a.rules",
        "allow mcp.s.floored\nalways ask mcp.s.t\n",
    );
    for tool in ["t", "floored"] {
        let desk = Desk::new([PersonAnswer::AllowFor, PersonAnswer::AllowAlways]);
        let rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
        for _ in 0..2 {
            assert_eq!(outcome(&rig, tool, "{}").await, "person", "{tool}");
            let asked = desk.last();
            assert_eq!((asked.hold, asked.always), (None, None), "{tool}");
        }
        assert_eq!(outcome(&rig, tool, "{}").await, "refused", "{tool}");
        assert_eq!(rig.router.state().approvals(now_ms()).unwrap(), []);
    }
    assert_eq!(
        std::fs::read_dir(root.path()).unwrap().count(),
        1,
        "nothing was written"
    );
}

#[tokio::test]
async fn always_writes_a_policy_that_takes_over_at_once() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a.rules", "default ask\n");
    let desk = Desk::new([PersonAnswer::AllowAlways]);
    let mut rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
    let before = rig.router.policies().digest();
    assert_eq!(
        outcome(&rig, "t", "{}").await,
        "policies",
        "decided anew, by the new policy"
    );
    let offer = desk.last().always.unwrap();
    assert_eq!(std::fs::read_to_string(&offer.path).unwrap(), offer.text);
    assert!(offer.text.contains("Always allowed by ann at "), "{}", offer.text);
    assert!(
        offer.text.contains("resource == Mcp::Tool::\"mcp.s.t\""),
        "{}",
        offer.text
    );
    assert_ne!(rig.router.policies().digest(), before);
    assert_eq!(outcome(&rig, "t", r#"{"other":1}"#).await, "policies");
    assert_eq!(outcome(&rig, "u", "{}").await, "refused");
    rig.until(|event| event["event"] == "approval" && event["answer"] == "refused")
        .await;
    let told: Vec<_> = rig
        .heard
        .iter()
        .map(|record| serde_json::to_value(&**record).unwrap())
        .collect();
    let approved = told.iter().find(|event| event["event"] == "approval").unwrap();
    assert_eq!(approved["policy"], offer.path.display().to_string());
    assert!(
        told.iter()
            .any(|event| event["event"] == "policy.reload" && event["outcome"] == "taken")
    );
}

/// Where "always" could not hold it is not offered, and an answer that says it all the same runs the call once.
#[tokio::test]
async fn always_is_offered_only_where_it_can_hold() {
    let cases: [(&str, &str, bool); 4] = [
        ("default ask\n", "", true),
        ("default ask\nask mcp.s.t\n", "", false),
        ("default ask\n", "seal", false),
        ("default ask\n", "b.rules", false),
    ];
    for (rules, also, offered) in cases {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a.rules", rules);
        if also == "seal" {
            let files = PolicyFolder::new(root.path()).files().unwrap();
            write(
                root.path(),
                Seal::FILE_NAME,
                &Seal::of(&files).unwrap().to_string(),
            );
        }
        let desk = Desk::new([PersonAnswer::AllowAlways]);
        let rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
        if also == "b.rules" {
            // Somebody is editing: what is on the disk is not what is in force.
            write(root.path(), also, "deny mcp.z.*\n");
        }
        let expected = if offered { "policies" } else { "person" };
        assert_eq!(outcome(&rig, "t", "{}").await, expected, "{rules} {also}");
        assert_eq!(desk.last().always.is_some(), offered, "{rules} {also}");
    }
    let desk = Desk::new([PersonAnswer::AllowAlways]);
    let rig = Rig::start_options(spec(), options("default ask\n", Some(desk.clone()))).await;
    assert_eq!(outcome(&rig, "t", "{}").await, "person");
    assert_eq!(desk.last().always, None, "there is no folder");
}

/// What goes on after its time is not told as if it had ended.
#[test]
fn an_answer_that_is_not_kept_in_time_is_told_as_one_that_may_still_be() {
    for answer in [PersonAnswer::AllowFor, PersonAnswer::AllowAlways] {
        with_one_blocking_thread(async {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), "a.rules", "default ask\n");
            let desk = Desk::slow([answer.clone()]);
            let mut rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
            let (done, busy) = std::sync::mpsc::channel::<()>();
            let meanwhile = async {
                desk.question.notified().await;
                // The one thread that may block has something else to do.
                drop(tokio::task::spawn_blocking(move || busy.recv()));
                desk.gate.as_ref().unwrap().notify_one();
                // The answer is heard, and waits for that thread.
                for _ in 0..2 {
                    tokio::task::yield_now().await;
                }
                tokio::time::pause();
                tokio::time::advance(Duration::from_secs(6)).await;
                tokio::time::resume();
            };
            let (called, ()) = tokio::join!(outcome(&rig, "t", "{}"), meanwhile);
            assert_eq!(called, "person", "it runs this once");
            let told = rig.told();
            let approved = told.iter().find(|event| event["event"] == "approval").unwrap();
            assert!(approved.get("policy").is_none() && approved.get("holds_until_ms").is_none());
            let error = approved["error"].as_str().unwrap();
            assert!(error.contains("may still be"), "{error}");
            drop(done);
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            let kept = rig.router.state().approvals(now_ms()).unwrap().len();
            let written = desk.last().always.unwrap().path.exists();
            let expected = (
                answer == PersonAnswer::AllowFor,
                answer == PersonAnswer::AllowAlways,
            );
            assert_eq!((kept == 1, written), expected);
        });
    }
}

#[tokio::test]
async fn a_person_who_does_not_answer_is_waited_for_no_longer_than_said() {
    let desk = Desk::slow([]);
    let mut options = options("default ask\n", Some(desk.clone()));
    options.keeping.approval_wait = Duration::from_millis(50);
    let mut rig = Rig::start_options(spec(), options).await;
    assert_eq!(rig.refusal("t").await, "needs-approval");
    rig.until(|event| event["event"] == "approval" && event["answer"] == "unanswered")
        .await;
}

/// A time beyond all clocks is as good as none.
#[tokio::test]
async fn a_host_may_say_that_an_approval_has_all_the_time_there_is() {
    let desk = Desk::new([PersonAnswer::AllowFor]);
    let mut options = options("default ask\n", Some(desk.clone()));
    options.keeping.approval_wait = Duration::MAX;
    options.keeping.approval_hold = Duration::MAX;
    let rig = Rig::start_options(spec(), options).await;
    assert_eq!(outcome(&rig, "t", "{}").await, "person");
    assert_eq!(outcome(&rig, "t", "{}").await, "stored-approval");
}

/// However long they think, the server has as long as it ever has.
#[tokio::test]
async fn the_time_that_a_person_takes_is_none_of_the_servers() {
    let desk = Desk::slow([PersonAnswer::Allow]);
    let mut spec = spec();
    spec.timeouts.call = Duration::from_secs(4);
    spec.timeouts.call_max = Duration::from_secs(4);
    let rig = Rig::start_options(spec, options("default ask\n", Some(desk.clone()))).await;
    let thinking = async {
        desk.question.notified().await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(5)).await;
        tokio::time::resume();
        desk.gate.as_ref().unwrap().notify_one();
    };
    let (called, ()) = tokio::join!(outcome(&rig, "t", "{}"), thinking);
    assert_eq!(called, "person");
}

/// A call that waits is decided anew when other policies take over.
#[tokio::test]
async fn a_call_that_waits_is_decided_anew_after_a_swap() {
    for (rules, expected) in [("deny mcp.s.t\n", "denied"), ("allow mcp.s.t\n", "policies")] {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a.rules", "default ask\n");
        let desk = Desk::slow([]);
        let rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
        let swap = async {
            desk.question.notified().await;
            write(root.path(), "b.rules", rules);
            assert_eq!(rig.router.reload_policies().await, PolicyReload::Taken);
        };
        let (called, ()) = tokio::join!(outcome(&rig, "t", "{}"), swap);
        assert_eq!((called.as_str(), desk.count()), (expected, 1), "{rules}");
    }
}

/// Also where they take over before anybody is asked.
#[test]
fn a_swap_while_an_approval_is_looked_for_is_noticed() {
    with_one_blocking_thread(async {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a.rules", "default ask\n");
        let desk = Desk::slow([]);
        let rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
        write(root.path(), "b.rules", "deny mcp.s.t\n");
        // The one thread that may block reads the folder before it looks for an approval.
        let (done, busy) = std::sync::mpsc::channel::<()>();
        drop(tokio::task::spawn_blocking(move || busy.recv()));
        let free = async { drop(done) };
        let (reloaded, called, ()) =
            tokio::join!(biased; rig.router.reload_policies(), outcome(&rig, "t", "{}"), free);
        assert_eq!((reloaded, called.as_str()), (PolicyReload::Taken, "denied"));
    });
}

/// What was approved was approved under the policies that asked.
#[tokio::test]
async fn a_yes_to_other_policies_asks_again() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a.rules", "default ask\n");
    let desk = Desk::slow([PersonAnswer::Allow, PersonAnswer::Allow]);
    let rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
    let swap = async {
        desk.question.notified().await;
        write(root.path(), "b.rules", "always ask mcp.s.t\n");
        assert_eq!(rig.router.reload_policies().await, PolicyReload::Taken);
        let gate = desk.gate.as_ref().unwrap();
        gate.notify_one();
        desk.question.notified().await;
        gate.notify_one();
    };
    let (called, ()) = tokio::join!(rig.call("t", "{}"), swap);
    let called = called.unwrap();
    assert_eq!((called.approved_by, desk.count()), (Some(DecidedBy::Person), 2));
    assert_eq!(called.decision.answer, Answer::Ask);
    assert_eq!(called.decision.code.as_str(), "ask.always");
}
