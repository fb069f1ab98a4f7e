//! Calls whose replies have come, and whose long strings cannot be read back.

use portcullis_egress::EgressLog;

use super::*;
use crate::{
    strings::{
        PUT_BACK,
        memory::{Hanging, turns},
    },
    upstream::{Ready, Slot, Upstream},
};

/// A call on the way that callers take.
struct Called {
    rig: Rig,
    hanging: Hanging,
    cancel: CancellationToken,
    call: JoinHandle<Result<String, CallFault>>,
}

/// A call that may take so long at all and is answered with `result`, which holds a long string that reading hangs on.
async fn answered_with(result: Value, cap: Duration) -> Called {
    let mut rig = Rig::new(1 << 20).await;
    let none: [&str; 0] = [];
    let spec = ServerSpec::new("s".parse().unwrap(), StdioSpec::new("/bin/true", none));
    let upstream = Upstream::new(spec, EgressLog::new(|_| {}));
    upstream.shared().publish(Slot::Ready(Ready {
        connection: Arc::clone(&rig.connection),
        tools: Arc::default(),
        version: 1,
    }));
    let hanging = rig.shelf.hang();
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let call = tokio::spawn(async move {
        let within = CallDeadline::from_now(Timeouts {
            call: IDLE,
            call_max: cap,
            ..Timeouts::default()
        });
        let called = upstream.call_until_cancelled("t", "{}".into(), within, &cancelled);
        called.await
    });
    let id = rig.hear().await["id"].clone();
    rig.say(&json!({"jsonrpc": "2.0", "result": result, "id": id}))
        .await;
    Called {
        rig,
        hanging,
        cancel,
        call,
    }
}

/// The result of a call, and what a tool needs first: that goes back to the server, and so is read on the way.
fn results() -> [Value; 2] {
    let text = "x".repeat(100_000);
    [
        json!({"content": [{"type": "text", "text": text}]}),
        json!({"requestState": text, "resultType": "input_required", "inputRequests": {}}),
    ]
}

/// The call has ended by now.
async fn outcome(call: JoinHandle<Result<String, CallFault>>) -> CallFault {
    assert!(call.is_finished(), "it is waited for still");
    call.await.unwrap().unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_by_its_deadline_also_while_its_strings_are_read() {
    for result in results() {
        let after = PUT_BACK / 2;
        let called = answered_with(result, after).await;
        called.hanging.lasts(after).await;
        let fault = outcome(called.call).await;
        assert_eq!(fault, CallFault::TimedOut { after, sent: true });
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_when_it_is_cancelled_also_while_its_strings_are_read() {
    for result in results() {
        let called = answered_with(result, PUT_BACK * 2).await;
        called.hanging.lasts(Duration::ZERO).await;
        assert!(!called.call.is_finished());
        called.cancel.cancel();
        turns().await;
        let fault = outcome(called.call).await;
        assert_eq!(fault, CallFault::Cancelled { sent: true });
    }
}

#[tokio::test(start_paused = true)]
async fn strings_that_cannot_be_read_in_time_make_a_bad_reply() {
    for result in results() {
        let called = answered_with(result, PUT_BACK * 2).await;
        called.hanging.lasts(PUT_BACK).await;
        let fault = outcome(called.call).await;
        assert!(
            matches!(&fault, CallFault::BadReply { reason } if reason.contains("within 30 s")),
            "{fault:?}"
        );
        assert_eq!(called.rig.connection.gate.inside(), 0);
    }
}
