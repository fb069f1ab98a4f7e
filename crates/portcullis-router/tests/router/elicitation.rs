//! Questions of servers to the user: who answers them, and how each ending is told.

use std::sync::Mutex;

use futures::future::BoxFuture;
use portcullis_router::ElicitationHandler;
use portcullis_supervisor::{ElicitationReply, ElicitationRequest};
use portcullis_testkit::{Behaviour, Era, Tool};
use portcullis_types::ServerId;

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
