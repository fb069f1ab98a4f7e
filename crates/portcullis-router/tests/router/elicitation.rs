//! Questions of servers to the user: who answers them, and how each ending is told.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, Weak},
};

use futures::future::BoxFuture;
use portcullis_router::{ElicitationHandler, PolicyFolder, PolicyReload};
use portcullis_supervisor::{ElicitationReply, ElicitationRequest};
use portcullis_testkit::{Behaviour, Era, Tool};
use portcullis_types::ServerId;
use tokio::sync::Notify;

use super::*;

/// A person who answers so, or never.
#[derive(Debug)]
struct Person(Mutex<Option<ElicitationReply>>);

impl ElicitationHandler for Person {
    fn elicit(&self, _: ServerId, _: ElicitationRequest) -> BoxFuture<'_, ElicitationReply> {
        let answer = self.0.lock().unwrap().take();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

/// How the event tells of one question, and whether the call that it belongs to was answered.
async fn ending(rules: &str, answer: Option<ElicitationReply>) -> (String, bool) {
    let script = Script::new("s")
        .era(Era::Modern)
        .tool(Tool::new("t", Behaviour::elicit("Who are you?")));
    let mut spec = scripted(&script);
    spec.protocol = Protocol::Modern;
    if answer.is_none() {
        spec.timeouts.call = Duration::from_millis(300);
        spec.timeouts.call_max = Duration::from_millis(300);
    }
    let options = RouterOptions {
        elicitation: Some(Arc::new(Person(Mutex::new(answer)))),
        ..options(rules, None)
    };
    let mut rig = Rig::start_options(spec, options).await;
    let called = rig.call("t", "{}").await;
    rig.until(|event| event["event"] == "elicitation").await;
    let event = serde_json::to_value(&**rig.heard.last().unwrap()).unwrap();
    let text = |name: &str| event.get(name).unwrap().as_str().unwrap().to_owned();
    assert_eq!((text("server").as_str(), text("mode").as_str()), ("s", "form"));
    (text("answer"), called.is_ok())
}

#[tokio::test]
async fn each_ending_of_a_question_is_told() {
    let allowed = "allow mcp.*\nallow elicit mcp.*\n";
    for (rules, answer, told, answered) in [
        (allowed, Some(ElicitationReply::Accept(None)), "accepted", true),
        (allowed, Some(ElicitationReply::Decline), "declined", true),
        (allowed, Some(ElicitationReply::Cancel), "cancelled", true),
        // The call's time is over, and with it the question: the person is not told twice, and nobody hangs.
        (allowed, None, "unanswered", false),
        (
            "allow mcp.*\n",
            Some(ElicitationReply::Accept(None)),
            "forbidden",
            true,
        ),
    ] {
        assert_eq!(
            ending(rules, answer).await,
            (told.to_owned(), answered),
            "{rules}"
        );
    }
}

/// What becomes of a question whose policies are others by the time that it is answered.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Thinking {
    /// They take over while the person still thinks, who never answers.
    On,
    /// They take over, and in the same moment the person answers.
    AndThenAnswering,
}

/// A person who sees other policies take over while they are asked.
#[derive(Debug)]
struct Thinker {
    thinking: Thinking,
    folder: PathBuf,
    rules: &'static str,
    router: OnceLock<Weak<Router>>,
    /// Told once nobody waits for the answer.
    gone: Arc<Notify>,
}

impl Thinker {
    /// Lets the other policies take over.
    async fn swap(&self) {
        write(&self.folder, self.rules);
        let router = self.router.get().unwrap().upgrade().unwrap();
        assert_eq!(router.reload_policies().await, PolicyReload::Taken);
    }
}

impl ElicitationHandler for Thinker {
    fn elicit(&self, _: ServerId, _: ElicitationRequest) -> BoxFuture<'_, ElicitationReply> {
        Box::pin(async move {
            let gone = Arc::clone(&self.gone);
            let _gone = Gone(gone);
            self.swap().await;
            if self.thinking == Thinking::On {
                std::future::pending::<()>().await;
            }
            ElicitationReply::Accept(Some(r#"{"name":"secret of ann"}"#.to_owned()))
        })
    }
}

struct Gone(Arc<Notify>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn write(folder: &Path, rules: &str) {
    #[expect(clippy::disallowed_methods, reason = "a test edits a folder")]
    std::fs::write(folder.join("a.rules"), rules).unwrap();
}

/// What is forbidden while a person is asked is declined, and what they answered stays here.
#[tokio::test]
async fn a_question_is_decided_anew_when_other_policies_take_over() {
    let forbidden = "allow mcp.*\n";
    let permitted = "allow mcp.*\nallow elicit mcp.*\ndeny mcp.z.*\n";
    for (thinking, rules, told, is_sent) in [
        (Thinking::On, forbidden, "forbidden", false),
        (Thinking::AndThenAnswering, forbidden, "forbidden", false),
        (Thinking::AndThenAnswering, permitted, "accepted", true),
    ] {
        let root = tempfile::tempdir().unwrap();
        let (folder, received) = (root.path().join("policies"), root.path().join("received"));
        #[expect(clippy::disallowed_methods, reason = "a test lays out a folder")]
        std::fs::create_dir(&folder).unwrap();
        write(&folder, "allow mcp.*\nallow elicit mcp.*\n");
        let script = Script::new("s")
            .era(Era::Modern)
            .tool(Tool::new("t", Behaviour::elicit("Who are you?")))
            .record_received(&received);
        let mut spec = scripted(&script);
        spec.protocol = Protocol::Modern;
        let person = Arc::new(Thinker {
            thinking,
            folder: folder.clone(),
            rules,
            router: OnceLock::new(),
            gone: Arc::default(),
        });
        let folder = PolicyFolder::new(folder).watched(false);
        let options = RouterOptions {
            policies: Arc::new(folder.load().unwrap()),
            policy_folder: Some(folder),
            elicitation: Some(person.clone()),
            ..options("", None)
        };
        let mut rig = Rig::start_options(spec, options).await;
        person.router.set(Arc::downgrade(&rig.router)).unwrap();
        rig.call("t", "{}").await.unwrap();
        timeout(PATIENCE, person.gone.notified()).await.unwrap();
        rig.until(|event| event["event"] == "elicitation").await;
        let event = serde_json::to_value(&**rig.heard.last().unwrap()).unwrap();
        assert_eq!(event["answer"], told, "{thinking:?} {rules}");
        let received = std::fs::read_to_string(received).unwrap();
        assert_eq!(
            received.contains("secret of ann"),
            is_sent,
            "{thinking:?} {rules}"
        );
    }
}
