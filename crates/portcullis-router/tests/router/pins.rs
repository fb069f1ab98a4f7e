//! A tool is trusted for what it was when it was trusted, in every run.

use std::path::Path;

use futures::poll;
use portcullis_config::TransportSpec;
use portcullis_router::{DecidedBy, Event, HookAnswer, PersonAnswer};
use portcullis_state::{FirstSight, State, Trusting};
use portcullis_testkit::{Behaviour, Shown, Tool};
use portcullis_types::Answer;
use tokio::time::Instant;

use super::{calls::Answers, *};

/// A server whose tool `t` is described otherwise once `change` was called.
pub(super) fn turncoat() -> ServerSpec {
    scripted(&turncoat_script())
}

fn turncoat_script() -> Script {
    let t = |text: &str| Tool::new("t", Behaviour::Text(text.to_owned())).describe(text);
    let change = Behaviour::ListChanged {
        count: 1,
        interval_ms: 0,
    };
    Script::new("s")
        .tool(t("before").shown(Shown::BeforeChange))
        .tool(t("after").shown(Shown::AfterChange))
        .tool(Tool::new("change", change))
}

fn kept(folder: &Path, first_sight: FirstSight) -> Keeping {
    Keeping {
        state: Some(Arc::new(State::open(folder).unwrap())),
        first_sight,
        ..Keeping::default()
    }
}

impl Rig {
    /// The code of the decision that a call is refused by.
    async fn refused_as(&self, tool: &str) -> &'static str {
        let error = self.call(tool, "{}").await.unwrap_err();
        error.decision().unwrap().code.as_str()
    }

    /// How pins came to stand, in order, each with the tools that it names.
    fn pinned(&mut self) -> Vec<String> {
        self.heard.extend(std::iter::from_fn(|| self.events.try_next()));
        let told = self.heard.iter().filter_map(|record| match &record.event {
            Event::Pin { state, pins, .. } => {
                let tools = pins
                    .iter()
                    .map(|pin| pin.tool.as_deref().unwrap_or("the command"));
                Some(format!("{state} {}", tools.collect::<Vec<_>>().join(" ")))
            }
            _ => None,
        });
        told.collect()
    }
}

/// Report 46, across runs and processes.
#[tokio::test]
async fn a_changed_tool_asks_until_a_person_approves_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "allow mcp.s.*\n";
    let folder = folder.path().join("state");
    let mut rig = Rig::start_keeping(turncoat(), rules, None, kept(&folder, FirstSight::Trust)).await;
    rig.call("t", "{}").await.unwrap();
    rig.call("change", "{}").await.unwrap();
    rig.until(|event| event["event"] == "pin" && event["state"] == "changed")
        .await;
    assert_eq!(rig.refused_as("t").await, "ask.definition-changed");
    rig.call("change", "{}").await.unwrap();

    // Another process reads the difference, and approves it.
    let other = State::open(&folder).unwrap();
    let pin = other.pin("mcp.s.t").unwrap().unwrap();
    assert!(pin.trusted.unwrap().0.text.unwrap().contains("before"));
    let waiting = pin.waiting.unwrap();
    assert!(waiting.text.unwrap().contains("after"));
    other.trust("mcp.s.t", waiting.hash, "ann", 1).unwrap();
    rig.call("t", "{}").await.unwrap();
    rig.until(|event| event["event"] == "pin" && event["state"] == "approved")
        .await;
    assert_eq!(
        rig.pinned(),
        ["recorded the command t change", "changed t", "approved t"]
    );
    rig.router.shutdown().await.unwrap();

    // Another run: the server is as it was first, which is no longer what is trusted.
    let mut rig = Rig::start_keeping(turncoat(), rules, None, kept(&folder, FirstSight::Trust)).await;
    assert_eq!(rig.refused_as("t").await, "ask.definition-changed");
    rig.call("change", "{}").await.unwrap();
    rig.until(|event| event["event"] == "tool.result").await;
    assert_eq!(rig.pinned(), ["changed t"]);
}

/// Without a folder for the state it holds for the run.
#[tokio::test]
async fn a_tool_that_changes_within_a_run_asks_without_any_state() {
    let answers = Answers::new(HookAnswer::Allow, PersonAnswer::Allow);
    let mut rig = Rig::start_spec(turncoat(), "allow mcp.s.*\n", Some(answers.clone())).await;
    rig.call("t", "{}").await.unwrap();
    rig.call("change", "{}").await.unwrap();
    rig.until(|event| event["event"] == "pin" && event["state"] == "changed")
        .await;
    for _ in 0..2 {
        let outcome = rig.call("t", "{}").await.unwrap();
        assert_eq!(outcome.approved_by, Some(DecidedBy::Person));
    }
    assert_eq!(
        answers.asked(),
        ["hook", "person", "hook", "person"],
        "each time anew"
    );
    let waiting = rig
        .router
        .state()
        .pin("mcp.s.t")
        .unwrap()
        .unwrap()
        .waiting
        .unwrap()
        .hash;
    let trusting = rig.router.trust("mcp.s.t", waiting, "ann").await.unwrap();
    assert!(matches!(trusting, Trusting::Done { before: Some(_) }));
    assert_eq!(rig.call("t", "{}").await.unwrap().approved_by, None);
}

/// An approval for a while is one of the definition that was shown, also once the next one is trusted.
#[tokio::test]
async fn an_approval_for_a_while_ends_with_its_definition() {
    let answers = Answers::new(HookAnswer::NoOpinion, PersonAnswer::AllowFor);
    let rules = "default ask\nallow mcp.s.change\n";
    let mut rig = Rig::start_spec(turncoat(), rules, Some(answers.clone())).await;
    for by in [DecidedBy::Person, DecidedBy::StoredApproval] {
        assert_eq!(rig.call("t", "{}").await.unwrap().approved_by, Some(by));
    }
    rig.call("change", "{}").await.unwrap();
    rig.until(|event| event["event"] == "pin" && event["state"] == "changed")
        .await;
    let pin = rig.router.state().pin("mcp.s.t").unwrap().unwrap();
    let waiting = pin.waiting.unwrap().hash;
    rig.router.trust("mcp.s.t", waiting, "ann").await.unwrap();
    for by in [DecidedBy::Person, DecidedBy::StoredApproval] {
        assert_eq!(rig.call("t", "{}").await.unwrap().approved_by, Some(by));
    }
}

/// What was decided on is the listing of the connection that is called, also while the catalog does not know it yet.
#[test]
fn a_call_is_decided_on_what_its_server_lists_by_then() {
    with_one_blocking_thread(async {
        let mut rig = Rig::start_spec(turncoat(), "allow mcp.s.*\n", None).await;
        rig.call("t", "{}").await.unwrap();
        // The one thread on which a listing is looked up has something else to do, so the catalog stays as it is.
        let (done, busy) = std::sync::mpsc::channel::<()>();
        let occupied = tokio::task::spawn_blocking(move || busy.recv());
        rig.call("change", "{}").await.unwrap();
        let router = Arc::clone(&rig.router);
        // Before the looking up is given up.
        let until = Instant::now() + Duration::from_secs(5);
        let call = loop {
            assert!(Instant::now() < until, "it is never waited for");
            rig.told();
            let mut call = Box::pin(router.call(CallRequest::new("mcp.s.t".parse().unwrap(), "{}")));
            // Within its first step it is decided on, and sent where the listing is that of the catalog.
            assert!(poll!(&mut call).is_pending());
            if !rig.told().iter().any(|event| event["event"] == "tool.call") {
                break call;
            }
            timeout(PATIENCE, call).await.unwrap().unwrap();
        };
        drop(done);
        let error = timeout(PATIENCE, call).await.unwrap().unwrap_err();
        assert_eq!(error.decision().unwrap().code.as_str(), "ask.definition-changed");
        occupied.await.unwrap().unwrap_err();
    });
}

#[tokio::test]
async fn a_changed_command_needs_approval_anew() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("state");
    let keeping = || kept(&folder, FirstSight::Trust);
    let rules = "allow mcp.s.*\n";
    let rig = Rig::start_keeping(turncoat(), rules, None, keeping()).await;
    rig.call("t", "{}").await.unwrap();
    rig.router.shutdown().await.unwrap();

    let mut moved = turncoat();
    if let TransportSpec::Stdio(stdio) = &mut moved.transport {
        stdio.env.insert("PRELOAD".to_owned(), Template::literal("evil"));
    }
    let mut rig = Rig::start_keeping(moved, rules, None, keeping()).await;
    assert_eq!(rig.refused_as("t").await, "ask.command-changed");
    assert_eq!(rig.refused_as("change").await, "ask.command-changed");
    assert_eq!(rig.pinned(), ["changed the command"]);
    let pin = rig.router.state().pin("mcp.s").unwrap().unwrap();
    let waiting = pin.waiting.unwrap();
    let shown = waiting.text.unwrap();
    assert!(shown.contains("PRELOAD") && !shown.contains("evil"), "{shown}");
    rig.router.trust("mcp.s", waiting.hash, "ann").await.unwrap();
    rig.call("t", "{}").await.unwrap();
}

#[tokio::test]
async fn a_new_tool_asks_where_first_sight_is_not_enough() {
    let answers = Answers::new(HookAnswer::Allow, PersonAnswer::Nobody);
    let keeping = Keeping {
        first_sight: FirstSight::Ask,
        ..Keeping::default()
    };
    let mut rig = Rig::start_keeping(turncoat(), "allow mcp.s.*\n", Some(answers.clone()), keeping).await;
    assert_eq!(rig.refused_as("t").await, "ask.definition-new");
    assert_eq!(answers.asked(), ["hook", "person"], "the hook may not");
    let waiting = rig
        .router
        .state()
        .pin("mcp.s.t")
        .unwrap()
        .unwrap()
        .waiting
        .unwrap();
    rig.router.trust("mcp.s.t", waiting.hash, "ann").await.unwrap();
    // The catalog has it without any call.
    rig.until(|event| event["event"] == "pin" && event["state"] == "approved")
        .await;
    let answers = |tool: &str| {
        let catalog = rig.router.catalog();
        let tool = catalog
            .get(&format!("mcp.s.{tool}").parse().unwrap())
            .unwrap()
            .clone();
        rig.router.outlook(&tool).answer
    };
    assert_eq!((answers("t"), answers("change")), (Answer::Allow, Answer::Ask));
    rig.call("t", "{}").await.unwrap();
}

/// Whatever fails while deciding denies.
#[tokio::test]
async fn a_tool_whose_pin_cannot_be_read_is_denied() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("state");
    let keeping = kept(&folder, FirstSight::Trust);
    #[expect(clippy::disallowed_methods, reason = "a test breaks the file")]
    std::fs::write(folder.join(State::FILE_NAME), [0x5a; 8_192]).unwrap();
    let answers = Answers::new(HookAnswer::Allow, PersonAnswer::Allow);
    let mut rig = Rig::start_keeping(turncoat(), "allow mcp.s.*\n", Some(answers.clone()), keeping).await;
    assert_eq!(rig.refused_as("t").await, "deny.pin-unknown");
    assert_eq!(answers.asked(), [""; 0]);
    let error = rig.call("t", "{}").await.unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
    assert_eq!(rig.pinned(), ["unknown "]);
}

/// A changed tool that was listed while another process had the state for longer than is waited for it.
async fn listed_while_the_state_was_busy(folder: &Path) -> Rig {
    let script = turncoat_script().tool(Tool::new("same", Behaviour::Echo));
    let keeping = kept(folder, FirstSight::Trust);
    let mut rig = Rig::start_keeping(scripted(&script), "allow mcp.s.*\n", None, keeping).await;
    rig.call("t", "{}").await.unwrap();
    let other = rusqlite::Connection::open(folder.join(State::FILE_NAME)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    rig.call("change", "{}").await.unwrap();
    rig.until(|event| event["event"] == "pin" && event["state"] == "unknown")
        .await;
    assert_eq!(outlook(&rig, "t"), "deny.pin-unknown");
    other.execute_batch("ROLLBACK").unwrap();
    rig
}

/// The code of what the catalog has a tool decided as.
fn outlook(rig: &Rig, tool: &str) -> &'static str {
    let catalog = rig.router.catalog();
    let tool = catalog.get(&format!("mcp.s.{tool}").parse().unwrap()).unwrap();
    rig.router.outlook(tool).code.as_str()
}

/// What it finds is told: the state has it as seen from then on.
#[tokio::test]
async fn what_could_not_be_told_while_the_state_was_busy_heals_with_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = listed_while_the_state_was_busy(&folder.path().join("state")).await;
    assert_eq!(rig.refused_as("t").await, "ask.definition-changed");
    rig.until(|event| event["event"] == "pin" && event["state"] == "changed")
        .await;
    assert_eq!(outlook(&rig, "t"), "ask.definition-changed");
    // What is as it was trusted is no news, but it stands otherwise.
    assert_eq!(outlook(&rig, "same"), "deny.pin-unknown");
    rig.call("same", "{}").await.unwrap();
    rig.until(|event| event["event"] == "catalog.changed").await;
    assert_eq!(outlook(&rig, "same"), "permitted");
    assert_eq!(
        rig.pinned(),
        ["recorded the command t change same", "unknown ", "changed t"]
    );
}

/// Nobody else would look for it.
#[test]
fn what_a_call_finds_is_told_though_its_caller_is_gone() {
    with_one_blocking_thread(async {
        let folder = tempfile::tempdir().unwrap();
        let mut rig = listed_while_the_state_was_busy(&folder.path().join("state")).await;
        let (done, busy) = std::sync::mpsc::channel::<()>();
        drop(tokio::task::spawn_blocking(move || busy.recv()));
        let mut call = Box::pin(rig.call("t", "{}"));
        assert!(poll!(&mut call).is_pending());
        drop(call);
        drop(done);
        rig.until(|event| event["event"] == "pin" && event["state"] == "changed")
            .await;
        assert_eq!(outlook(&rig, "t"), "ask.definition-changed");
    });
}
