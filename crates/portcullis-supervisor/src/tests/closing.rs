//! Connections that are closed on purpose: idle ones, and those of servers that are restarted or switched off.

use futures::future::BoxFuture;
use portcullis_testkit::{Behaviour, Tool};
use rustix::process::{Signal, kill_process};
use tokio::{sync::Notify, task::JoinHandle};

use super::*;
use crate::{ElicitationReply, ElicitationRequest, ElicitationResponder};

/// A user who answers when the test says so: until then the call that asked is in flight.
#[derive(Debug, Clone, Default)]
struct Released(Arc<Notify>);

impl ElicitationResponder for Released {
    fn respond(&self, _: ServerId, _: ElicitationRequest) -> BoxFuture<'_, ElicitationReply> {
        Box::pin(async {
            self.0.notified().await;
            ElicitationReply::Decline
        })
    }
}

/// A call of the tool `asks` that is in flight.
async fn in_flight(ready: &Ready, timeouts: Timeouts) -> JoinHandle<Result<String, CallFault>> {
    let caller = ready.clone();
    let call = tokio::spawn(async move { caller.call("asks", "{}".into(), timeouts).await });
    eventually("the call is on its way", || ready.connection.gate.inside() == 1).await;
    call
}

fn pid_tool(script: Script) -> Script {
    script.tool(Tool::new("pid", Behaviour::Pid))
}

#[tokio::test]
async fn an_idle_server_is_closed_and_the_next_call_opens_it() {
    let idle =
        |options: &mut SupervisorOptions| options.lifecycle.idle_after = Some(Duration::from_millis(200));
    let mut rig = Rig::start_with([scripted(&pid_tool(Script::new("s")))], idle).await;
    let old: u32 = rig.text("s", "pid").await.parse().unwrap();
    rig.until("s", "idle").await;
    gone(old).await;
    assert_ne!(rig.text("s", "pid").await, old.to_string());
}

/// Calls that come just when a connection is to be closed for want of calls: each is answered, on that connection or
/// on the next one, and none is in doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_and_an_idle_close_do_not_collide() {
    let idle =
        |options: &mut SupervisorOptions| options.lifecycle.idle_after = Some(Duration::from_millis(2));
    let mut rig = Rig::start_with([scripted(&pid_tool(Script::new("s")))], idle).await;
    rig.text("s", "pid").await;
    let upstream = rig.upstream("s").clone();
    let callers = (0..4_u64).map(|caller| {
        let upstream = upstream.clone();
        tokio::spawn(async move {
            for n in 0..60_u64 {
                // Around the idle deadline, a little earlier and a little later.
                tokio::time::sleep(Duration::from_micros((caller * 911 + n * 137) % 4_000)).await;
                let within = crate::CallDeadline::from_now(upstream.timeouts());
                upstream.call("pid", "{}".into(), within).await.unwrap();
            }
        })
    });
    for caller in futures::future::join_all(callers).await {
        caller.unwrap();
    }
    rig.until("s", "idle").await;
}

/// Calls that ended with their connection do not count for the next one.
#[tokio::test]
async fn a_server_that_ended_in_a_drain_rests_again_later() {
    let script = pid_tool(Script::new("s")).tool(Tool::new("mute", Behaviour::Mute));
    let idle = |options: &mut SupervisorOptions| options.lifecycle.idle_after = Some(Duration::from_secs(2));
    let mut rig = Rig::start_with([scripted(&script)], idle).await;
    let (ready, timeouts) = (rig.ready("s").await, rig.upstream("s").timeouts());
    let mute = {
        let ready = ready.clone();
        tokio::spawn(async move { ready.call("mute", "{}".into(), timeouts).await })
    };
    eventually("the call is on its way", || ready.connection.gate.inside() == 1).await;
    let (_, pid) = rig.until("s", "ready").await;
    rig.supervisor.restart(&server("s")).unwrap();
    rig.until("s", "draining").await;
    let pid = pid.and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
    mute.await.unwrap().unwrap_err();
    rig.until("s", "ready").await;
    rig.until("s", "idle").await;
}

/// Calls in flight end before their connection does; those that come meanwhile go to the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_lets_calls_in_flight_end() {
    let asks = Behaviour::Elicit {
        message: "now?".to_owned(),
        schema: serde_json::json!({"type": "object", "properties": {}}),
    };
    let script = pid_tool(Script::new("s")).tool(Tool::new("asks", asks));
    let user = Released::default();
    let asked = |options: &mut SupervisorOptions| options.elicitation = Some(Arc::new(user.clone()));
    let mut rig = Rig::start_with([scripted(&script)], asked).await;
    let old = rig.text("s", "pid").await;
    let upstream = rig.upstream("s").clone();
    let timeouts = upstream.timeouts();
    let within = || crate::CallDeadline::from_now(timeouts);
    let ready = rig.ready("s").await;
    let call = in_flight(&ready, timeouts).await;
    rig.supervisor.restart(&server("s")).unwrap();
    rig.until("s", "draining").await;
    let fault = ready.call("pid", "{}".into(), timeouts).await.unwrap_err();
    assert!(matches!(fault, CallFault::NotSent { .. }), "{fault:?}");
    let next = {
        let (upstream, within) = (upstream.clone(), within());
        tokio::spawn(async move { upstream.call("pid", "{}".into(), within).await })
    };
    user.0.notify_one();
    assert!(text(&call.await.unwrap().unwrap()).contains("decline"));
    assert_ne!(text(&next.await.unwrap().unwrap()), old);

    // Switched off while a call is in flight, and on again.
    rig.until("s", "ready").await;
    let call = in_flight(&rig.ready("s").await, timeouts).await;
    rig.supervisor.set_enabled(&server("s"), false).unwrap();
    rig.until("s", "draining").await;
    user.0.notify_one();
    assert!(text(&call.await.unwrap().unwrap()).contains("decline"));
    rig.until("s", "disabled").await;
    let fault = rig.call("s", "pid", "{}").await.unwrap_err();
    check_unavailable(&fault, ServerState::Disabled);
    rig.supervisor.set_enabled(&server("s"), true).unwrap();
    rig.until("s", "ready").await;
    rig.text("s", "pid").await;

    // A call has nothing to wait for where the server ends, until that is taken back.
    let call = in_flight(&rig.ready("s").await, timeouts).await;
    rig.supervisor.set_enabled(&server("s"), false).unwrap();
    rig.until("s", "draining").await;
    let fault = upstream.call("pid", "{}".into(), within()).await.unwrap_err();
    let told = "the server is draining: it ends once its calls in flight have";
    assert_eq!(fault.to_string(), told);
    rig.supervisor.set_enabled(&server("s"), true).unwrap();
    user.0.notify_one();
    assert!(text(&call.await.unwrap().unwrap()).contains("decline"));
    rig.until("s", "ready").await;
    upstream.call("pid", "{}".into(), within()).await.unwrap();

    let error = rig.supervisor.restart(&server("nobody")).unwrap_err();
    assert_eq!(error.to_string(), "no server is called `nobody`");
}
