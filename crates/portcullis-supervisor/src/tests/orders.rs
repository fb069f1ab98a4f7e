//! Orders, and actors that fail before, while and after they carry them out.

use portcullis_testkit::{Behaviour, Process, Tool};

use super::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    On,
    Off,
    Restart,
    End,
    /// The actor fails, with whatever it still had to do.
    Fail,
    /// There is no actor.
    Gone,
    /// There is one again.
    There,
}

impl Rig {
    async fn take(&self, step: Step) {
        let id = server("s");
        match step {
            Step::On => self.supervisor.set_enabled(&id, true).unwrap(),
            Step::Off => self.supervisor.set_enabled(&id, false).unwrap(),
            Step::Restart => self.supervisor.restart(&id).unwrap(),
            Step::End => self.supervisor.drain(&id).unwrap(),
            Step::Fail => self.supervisor.forward(&id, ServerMessage::Panic),
            Step::Gone => assert_eq!(self.tasks("s").await, None),
            Step::There => {
                let is_there = async {
                    while self.tasks("s").await.is_none() {
                        tokio::task::yield_now().await;
                    }
                };
                timeout(PATIENCE, is_there).await.unwrap();
            }
        }
    }
}

/// A server that writes its process' number into `file` each time it is started.
fn counted(name: &str, file: &Path) -> ServerSpec {
    let script = Script::new(name)
        .tool(Tool::new("pid", Behaviour::Pid))
        .tool(Tool::new("mute", Behaviour::Mute))
        .process(Process {
            pid_file: Some(file.to_owned()),
            ..Process::default()
        });
    scripted(&script)
}

/// How often such a server was started once it has come to `state` after `steps`, which are taken while one of its calls
/// is in flight.
async fn starts(steps: &[Step], state: ServerState) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let mut rig = Rig::start([counted("s", &file)]).await;
    let (ready, timeouts) = (rig.ready("s").await, rig.upstream("s").timeouts());
    rig.until("s", "ready").await;
    let caller = ready.clone();
    let call = tokio::spawn(async move { caller.call("mute", "{}".into(), timeouts).await });
    eventually("the call is on its way", || ready.connection.gate.inside() == 1).await;
    for step in steps {
        rig.take(*step).await;
    }
    rig.until("s", &state.to_string()).await;
    call.await.unwrap().unwrap_err();
    // Whatever else its actor was told by now has been done.
    rig.tasks("s").await;
    match state {
        ServerState::Ready => drop(rig.text("s", "pid").await),
        _ => check_unavailable(&rig.call("s", "pid", "{}").await.unwrap_err(), state),
    }
    pids(&file).len()
}

#[tokio::test]
async fn an_order_outlives_the_actor_that_had_it() {
    use ServerState::{Disabled, Ready, Stopped};
    use Step::{End, Fail, Gone, Off, On, Restart, There};
    for (steps, state, expected) in [
        // Carried out in part: the call in flight was waited for.
        (&[Off, Fail][..], Disabled, 1),
        (&[End, Fail], Stopped, 1),
        (&[Off, End, Fail], Stopped, 1),
        (&[Restart, Fail], Ready, 2),
        // Never seen.
        (&[Fail, Off], Disabled, 1),
        (&[Fail, End], Stopped, 1),
        (&[Fail, Restart], Ready, 2),
        // With nobody there.
        (&[Fail, Gone, Off], Disabled, 1),
        (&[Fail, Gone, End], Stopped, 1),
        (&[Fail, Gone, Restart], Ready, 2),
        // Several: the last one counts, and an end is for good.
        (&[Off, Fail, On], Ready, 2),
        (&[Off, Fail, Gone, On], Ready, 2),
        (&[Fail, On, Off], Disabled, 1),
        (&[Fail, End, On, Restart], Stopped, 1),
        // One failure after another, each of an actor that had begun.
        (&[Fail, Gone, Off, There, Fail, Fail], Disabled, 1),
        (&[Off, Fail, There, Fail, Gone, There, On], Ready, 2),
        (&[Fail, Off, There, End, Fail], Stopped, 1),
    ] {
        assert_eq!(starts(steps, state).await, expected, "{steps:?}");
    }
}

/// One that has ended needs nobody any more.
#[tokio::test]
async fn what_has_ended_gets_no_new_actor() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other] = ["pids", "other"].map(|name| folder.path().join(name));
    let mut rig = Rig::start([counted("s", &file), counted("other", &other)]).await;
    rig.text("s", "pid").await;
    rig.text("other", "pid").await;
    rig.take(Step::End).await;
    rig.until("s", "stopped").await;
    rig.take(Step::Fail).await;
    rig.take(Step::Gone).await;
    // Whose turn comes later.
    rig.supervisor.forward(&server("other"), ServerMessage::Panic);
    eventually("another one gets its successor", || pids(&other).len() == 2).await;
    rig.take(Step::Gone).await;
    assert_eq!(pids(&file).len(), 1);
}
