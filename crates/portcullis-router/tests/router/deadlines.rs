//! How long a call may take, whatever keeps it: what is over is not sent.

use futures::poll;
use portcullis_router::PersonAnswer;
use portcullis_testkit::{Behaviour, Tool};

use super::{approvals::Desk, *};

fn echo() -> ServerSpec {
    scripted(&Script::new("s").tool(Tool::new("t", Behaviour::Echo)))
}

fn within(mut spec: ServerSpec, call: Duration) -> ServerSpec {
    spec.timeouts.call = call;
    spec.timeouts.call_max = call;
    spec
}

/// Calls `t` while the one thread that may block has something else to do, until the call's time is over.
async fn late(rig: &mut Rig, over: Duration) -> CallError {
    rig.told();
    let (done, busy) = std::sync::mpsc::channel::<()>();
    drop(tokio::task::spawn_blocking(move || busy.recv()));
    let mut call = Box::pin(rig.call("t", "{}"));
    // Within its first step it is decided on, but for what is kept.
    assert!(poll!(&mut call).is_pending());
    tokio::time::pause();
    tokio::time::advance(over).await;
    tokio::time::resume();
    drop(done);
    call.await.unwrap_err()
}

/// Whether a call ended because its time was over, and without its server having heard of it.
#[track_caller]
fn check(error: &CallError, rig: &mut Rig) {
    assert_eq!(error.code(), "timed-out", "{error}");
    assert!(error.to_string().contains("it was not sent"), "{error}");
    let told = rig.told();
    assert!(
        !told.iter().any(|event| event["event"] == "tool.call"),
        "{told:?}"
    );
}

/// A time beyond all clocks is as good as none.
#[tokio::test]
async fn a_host_may_say_that_a_server_has_all_the_time_there_is() {
    let mut spec = echo();
    spec.timeouts = Timeouts::uniform(Duration::MAX);
    let rig = Rig::start_spec(spec, "allow mcp.s.*\n", None).await;
    rig.router.settled_within(Duration::MAX).await;
    rig.call("t", "{}").await.unwrap();
}

#[tokio::test]
async fn what_is_over_is_not_sent_though_its_server_is_there() {
    let spec = within(echo(), Duration::ZERO);
    let mut rig = Rig::start_spec(spec, "allow mcp.s.*\n", None).await;
    let error = rig.call("t", "{}").await.unwrap_err();
    check(&error, &mut rig);
}

#[test]
fn what_is_over_once_its_pin_is_known_is_not_sent() {
    with_one_blocking_thread(async {
        let spec = within(pins::turncoat(), Duration::from_secs(4));
        let mut rig = Rig::start_spec(spec, "allow mcp.s.*\n", None).await;
        rig.call("t", "{}").await.unwrap();
        rig.call("change", "{}").await.unwrap();
        rig.until(|event| event["event"] == "pin" && event["state"] == "changed")
            .await;
        // Somebody trusts it, which the catalog does not know.
        let state = rig.router.state();
        let waiting = state.pin("mcp.s.t").unwrap().unwrap().waiting.unwrap();
        state.trust("mcp.s.t", waiting.hash, "ann", 1).unwrap();
        let error = late(&mut rig, Duration::from_secs(5)).await;
        check(&error, &mut rig);
        rig.call("t", "{}").await.unwrap();
    });
}

#[test]
fn what_is_over_once_its_approval_is_found_is_not_sent() {
    with_one_blocking_thread(async {
        let desk = Desk::new([PersonAnswer::AllowFor]);
        let spec = within(echo(), Duration::from_secs(2));
        let mut rig = Rig::start_spec(spec, "default ask\n", Some(desk.clone())).await;
        rig.call("t", "{}").await.unwrap();
        let error = late(&mut rig, Duration::from_secs(3)).await;
        check(&error, &mut rig);
        assert_eq!(desk.count(), 1, "nobody is asked about a call that is over");
        rig.call("t", "{}").await.unwrap();
    });
}
