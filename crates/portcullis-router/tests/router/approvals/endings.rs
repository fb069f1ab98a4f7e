//! Each question that was put ends, also where nobody waits for its answer any more, and how is told once.

use futures::poll;
use portcullis_router::HookAnswer;

use super::*;

/// A host that never answers: its hook does not, or its person.
#[derive(Debug)]
struct Silent {
    hook_answers: bool,
    asked: Notify,
}

impl ApprovalHandler for Silent {
    fn hook<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, HookAnswer> {
        Box::pin(async {
            if !self.hook_answers {
                self.asked.notify_one();
                std::future::pending::<()>().await;
            }
            HookAnswer::NoOpinion
        })
    }

    fn person<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        self.asked.notify_one();
        Box::pin(std::future::pending())
    }
}

/// The one approval that is told: its answer, by whom, and what else is said of it.
fn the_approval(rig: &mut Rig) -> (String, String, String) {
    let told = rig.told();
    let approvals = told.into_iter().filter(|event| event["event"] == "approval");
    let [approval] = approvals.collect::<Vec<_>>().try_into().unwrap();
    let text = |name: &str| {
        let text = approval.get(name).and_then(serde_json::Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    (text("answer"), text("by"), text("error"))
}

#[track_caller]
fn check(rig: &mut Rig, answer: &str, by: &str, says: &str) {
    let told = the_approval(rig);
    assert_eq!((told.0.as_str(), told.1.as_str()), (answer, by), "{told:?}");
    assert!(told.2.contains(says), "{told:?}");
}

#[tokio::test]
async fn a_question_whose_caller_is_gone_is_told() {
    for hook_answers in [false, true] {
        let silent = Arc::new(Silent {
            hook_answers,
            asked: Notify::new(),
        });
        let mut rig = Rig::start_options(spec(), options("default ask\n", Some(silent.clone()))).await;
        rig.told();
        tokio::select! {
            called = outcome(&rig, "t", "{}") => panic!("{called}"),
            () = silent.asked.notified() => {}
        }
        check(&mut rig, "unanswered", "nobody", "the caller no longer waits");
    }
}

#[tokio::test]
async fn a_question_that_other_policies_leave_none_of_is_told() {
    for (rules, expected) in [("deny mcp.s.t\n", "denied"), ("allow mcp.s.t\n", "policies")] {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a.rules", "default ask\n");
        let desk = Desk::slow([]);
        let mut rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
        let swap = async {
            desk.question.notified().await;
            write(root.path(), "b.rules", rules);
            assert_eq!(rig.router.reload_policies().await, PolicyReload::Taken);
        };
        let (called, ()) = tokio::join!(outcome(&rig, "t", "{}"), swap);
        assert_eq!(called, expected);
        check(&mut rig, "unanswered", "nobody", "other policies took over");
    }
}

/// The person has answered by then, and what they said goes on to be kept.
#[test]
fn an_answer_whose_caller_is_gone_before_it_is_kept_is_told_as_one_that_may_be() {
    for answer in [PersonAnswer::AllowFor, PersonAnswer::AllowAlways] {
        with_one_blocking_thread(async {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), "a.rules", "default ask\n");
            let desk = Desk::slow([answer.clone()]);
            let mut rig = Rig::start_options(spec(), from_folder(root.path(), &desk)).await;
            let mut call = Box::pin(outcome(&rig, "t", "{}"));
            tokio::select! {
                called = &mut call => panic!("{called}"),
                () = desk.question.notified() => {}
            }
            // The one thread that may block has something else to do.
            let (done, busy) = std::sync::mpsc::channel::<()>();
            drop(tokio::task::spawn_blocking(move || busy.recv()));
            desk.gate.as_ref().unwrap().notify_one();
            // The answer is heard, and waits for that thread.
            assert!(poll!(&mut call).is_pending());
            drop(call);
            check(&mut rig, "approved", "person", "may still be");
            drop(done);
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            let kept = rig.router.state().approvals(now_ms()).unwrap().len();
            let written = desk.last().always.unwrap().path.exists();
            assert_eq!(
                (kept == 1, written),
                (
                    answer == PersonAnswer::AllowFor,
                    answer == PersonAnswer::AllowAlways
                )
            );
        });
    }
}

/// Beside those above, so that nothing is told twice.
#[tokio::test]
async fn an_answer_is_told_once() {
    for (answer, ends, told) in [
        (PersonAnswer::Allow, "person", ("approved", "person", "")),
        (
            PersonAnswer::Deny("no".to_owned()),
            "refused",
            ("refused", "person", ""),
        ),
        (
            PersonAnswer::Nobody,
            "needs-approval",
            ("unanswered", "nobody", ""),
        ),
    ] {
        let desk = Desk::new([answer]);
        let mut rig = Rig::start_options(spec(), options("default ask\n", Some(desk))).await;
        assert_eq!(outcome(&rig, "t", "{}").await, ends);
        let (answer, by, error) = the_approval(&mut rig);
        assert_eq!((answer.as_str(), by.as_str(), error.as_str()), told);
    }
}
