//! Sessions that are lost and cannot be set up anew, and connections that end while others' calls fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use portcullis_config::Protocol;
use tokio::time::timeout;

use super::{
    absent::{Live, until},
    supervised::{Hub, Site, WAIT},
    *,
};
use crate::{CallFault, SupervisorOptions};

/// However setting it up fails, the connection is of no use: a call would wait for a newer one until its deadline.
#[tokio::test]
async fn a_session_that_is_not_set_up_anew_to_its_end_ends_the_connection() {
    const FIRST: &str = r#""method":"initialize""#;
    const SECOND: &str = r#""method":"notifications/initialized""#;
    let broken = |step, answer: fn() -> (Vec<u8>, bool)| async move {
        let (site, fails) = (Arc::<Site>::default(), Arc::<AtomicBool>::default());
        let (shared, is_failing) = (Arc::clone(&site), Arc::clone(&fails));
        let server =
            Live::new(
                move |request| match is_failing.load(Ordering::SeqCst) && request.contains(step) {
                    true => answer(),
                    false => (shared.answer(request), false),
                },
            )
            .await;
        let mut hub = Hub::patient(spec(server.address), Protocol::Initialize, |_| {}).await;
        hub.state("ready").await;
        site.lose_sessions();
        fails.store(true, Ordering::SeqCst);
        let fault = timeout(WAIT, hub.call("{}")).await.unwrap().unwrap_err();
        let CallFault::NotSent { reason } = fault else {
            panic!("{fault:?}")
        };
        let told = hub.state("backing_off").await;
        assert!(told.contains(&reason), "{told}: {reason}");
        fails.store(false, Ordering::SeqCst);
        hub.state("ready").await;
        timeout(WAIT, hub.call("{}")).await.unwrap().unwrap();
        assert_eq!(site.executed.load(Ordering::SeqCst), 1);
    };
    let refused = || (reply("500 Oops", "content-type: text/plain", b"what?"), false);
    tokio::join!(
        broken(FIRST, || (Vec::new(), false)),
        broken(FIRST, || (Vec::new(), true)),
        broken(SECOND, refused),
        broken(SECOND, || (Vec::new(), false)),
    );
}

#[tokio::test]
async fn a_call_is_not_told_what_another_was_answered_with() {
    let held = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&held);
    let server = Live::new(move |request| match request {
        _ if request.contains(r#""held":true"#) => {
            count.fetch_add(1, Ordering::SeqCst);
            (Vec::new(), true)
        }
        _ if request.contains("tools/call") => {
            let head = "content-type: text/plain";
            (reply("400 Bad Request", head, b"a wrong argument"), false)
        }
        _ => (legacy(request), false),
    })
    .await;
    let change = |options: &mut SupervisorOptions| {
        options.lifecycle.drain_for = Duration::from_millis(50);
    };
    let mut hub = Hub::patient(spec(server.address), Protocol::Initialize, change).await;
    hub.state("ready").await;
    let others = async {
        until(&held, 1).await;
        let fault = hub.call("{}").await.unwrap_err();
        assert!(fault.to_string().contains("a wrong argument"), "{fault}");
        hub.supervisor.set_enabled(&"s".parse().unwrap(), false).unwrap();
    };
    let both = async { tokio::join!(hub.call(r#"{"held":true}"#), others) };
    let (answered, ()) = timeout(WAIT, both).await.unwrap();
    let fault = answered.unwrap_err();
    assert!(
        matches!(&fault, CallFault::OutcomeUnknown { reason } if reason == "the connection ended"),
        "{fault:?}"
    );
}
