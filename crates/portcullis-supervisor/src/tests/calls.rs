//! Calls over real pipes: many at once, cancelled, beside floods.

use std::collections::BTreeSet;

use portcullis_testkit::{BadReply, Behaviour, Era, Tool};
use serde_json::json;

use super::*;

fn one(behaviour: Behaviour) -> ServerSpec {
    scripted(
        &Script::new("s")
            .tool(Tool::new("t", behaviour))
            .tool(Tool::new("pid", Behaviour::Pid)),
    )
}

/// Report 22: each gets its own answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_at_once_are_all_answered() {
    let rig = Rig::start([one(Behaviour::Echo)]).await;
    let ready = rig.ready("s").await;
    let timeouts = rig.upstream("s").timeouts();
    let calls = (0..1_000).map(|n| {
        let ready = ready.clone();
        tokio::spawn(async move {
            let arguments = format!(r#"{{"n":{n}}}"#);
            (
                text(
                    &ready
                        .call("t", arguments.as_str().into(), timeouts)
                        .await
                        .unwrap(),
                ),
                arguments,
            )
        })
    });
    let answers: Vec<_> = futures::future::join_all(calls)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(answers.iter().all(|(answer, arguments)| answer == arguments));
    assert_eq!(answers.into_iter().collect::<BTreeSet<_>>().len(), 1_000);
}

/// Report 29: the server hears of it exactly once, with the right id, and its late reply harms nobody.
#[tokio::test]
async fn a_call_that_times_out_is_cancelled_once() {
    let folder = tempfile::tempdir().unwrap();
    let (calls, cancelled) = (folder.path().join("calls"), folder.path().join("cancelled"));
    let late = Behaviour::LateReply {
        ms: 300,
        then: Box::new(Behaviour::Text("late".to_owned())),
    };
    let script = Script::new("s")
        .tool(Tool::new("late", Behaviour::record(&calls, late)))
        .tool(Tool::new(
            "wait",
            Behaviour::delay(600, Behaviour::Text("waited".to_owned())),
        ))
        .record_cancelled(&cancelled);
    let rig = Rig::start([scripted(&script)]).await;
    let ready = rig.ready("s").await;
    let short = Timeouts::uniform(Duration::from_millis(100));
    let fault = ready.call("late", "{}".into(), short).await.unwrap_err();
    assert_eq!(
        fault,
        CallFault::TimedOut {
            after: short.call,
            sent: true
        }
    );
    // While this one waits, the late reply to the first arrives.
    assert_eq!(rig.text("s", "wait").await, "waited");
    let id = lines(&calls)[0].split(' ').next().unwrap().to_owned();
    assert_eq!(lines(&cancelled), [id]);
    assert_eq!(rig.upstream("s").dropped().unclaimed, 1);
}

#[tokio::test]
async fn a_call_whose_caller_is_gone_is_cancelled_once() {
    let folder = tempfile::tempdir().unwrap();
    let (until, cancelled) = (folder.path().join("until"), folder.path().join("cancelled"));
    let script = Script::new("s")
        .tool(Tool::new("t", Behaviour::UntilCancelled { file: until.clone() }))
        .tool(Tool::new("pid", Behaviour::Pid))
        .record_received(folder.path().join("received"))
        .record_cancelled(&cancelled);
    let rig = Rig::start([scripted(&script)]).await;
    let ready = rig.ready("s").await;
    let timeouts = rig.upstream("s").timeouts();
    let call = tokio::spawn(async move { ready.call("t", "{}".into(), timeouts).await });
    let received = folder.path().join("received");
    eventually("the server has the call", || {
        lines(&received).iter().any(|line| line.contains("tools/call"))
    })
    .await;
    call.abort();
    eventually("the server ends the call", || lines(&until).len() == 1).await;
    rig.call("s", "pid", "{}").await.unwrap();
    assert_eq!(lines(&cancelled), lines(&until));
}

/// Report 10: with and without an `env` section of its own, a server sees the base and what is declared.
#[tokio::test]
async fn the_hubs_environment_stays_with_the_hub() {
    let rig = Rig::start([one(Behaviour::Env)]).await;
    let seen = environment(&rig.call("s", "t", "{}").await.unwrap());
    assert_eq!(
        seen.keys().map(String::as_str).collect::<Vec<_>>(),
        ["PATH", "PORTCULLIS_TESTKIT_SCRIPT"]
    );

    let sh = Path::new("/bin/sh");
    let print = r#"read -r line; env | tr '\n' ' ' >&2; exit 1"#;
    let mut rig = Rig::start([stdio("bare", sh, &["-c", print])]).await;
    let (reason, _) = rig.until("bare", "backing_off").await;
    assert!(
        reason.contains("PATH=") && !reason.contains("CANARY") && !reason.contains("CARGO"),
        "{reason}"
    );
}

/// In the directory that its definition names, without a warden too.
#[tokio::test]
async fn a_server_starts_in_its_own_working_directory() {
    let mut spec = stdio("s", Path::new("/bin/sh"), &["-c", "pwd >&2; exit 1"]);
    if let TransportSpec::Stdio(stdio) = &mut spec.transport {
        stdio.cwd = Some("/usr".into());
    }
    let mut rig = Rig::start([spec]).await;
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!(reason.ends_with("it wrote `/usr`"), "{reason}");
}

/// Report 16: a flood on the standard error blocks nobody.
#[tokio::test]
async fn a_flood_on_stderr_does_not_hold_up_the_reply() {
    let flood = Behaviour::Stderr {
        bytes: 1 << 20,
        then: Box::new(Behaviour::Text("dry".to_owned())),
    };
    let rig = Rig::start([one(flood)]).await;
    assert_eq!(rig.text("s", "t").await, "dry");
}

/// Report 47: with nobody to ask, a server is told so at once, in either era.
#[tokio::test]
async fn an_elicitation_is_declined_at_once() {
    for era in [Era::Legacy, Era::Modern] {
        let script = Script::new("s")
            .era(era)
            .tool(Tool::new("t", Behaviour::elicit("Who are you?")));
        let mut spec = scripted(&script);
        spec.protocol = if era == Era::Legacy {
            Protocol::Initialize
        } else {
            Protocol::Modern
        };
        let rig = Rig::start([spec]).await;
        rig.ready("s").await;
        let answer = timeout(AT_ONCE, rig.text("s", "t")).await.unwrap();
        assert!(answer.contains(r#""action":"decline""#), "{era:?}: {answer}");
    }
}

/// What this client does not offer is answered as an unknown method, not with silence.
#[tokio::test]
async fn what_a_server_may_not_ask_is_refused() {
    let ask = |method: &str| Behaviour::Ask {
        method: method.to_owned(),
        params: json!({}),
        wait_ms: 10_000,
    };
    for behaviour in [Behaviour::ask_sampling(), Behaviour::ask_roots(), ask("made/up")] {
        let rig = Rig::start([one(behaviour)]).await;
        let answer = rig.text("s", "t").await;
        assert!(answer.contains("-32601"), "{answer}");
    }
}

/// Report 18 with another call in flight: a bad reply that says whose it is fails its own call at once; one that does
/// not is blamed on nobody, and its call ends by its deadline. The other call waits on.
#[tokio::test]
async fn a_bad_reply_beside_another_call_fails_its_own_alone() {
    const WAIT: Duration = Duration::from_millis(500);
    let folder = tempfile::tempdir().unwrap();
    let waits = folder.path().join("waits");
    let script = BadReply::KINDS.iter().fold(
        Script::new("s").tool(Tool::new("wait", Behaviour::record(&waits, Behaviour::Mute))),
        |script, kind| script.tool(Tool::new(&kind.name(), Behaviour::BadReply(*kind))),
    );
    let rig = Rig::start([scripted(&script)]).await;
    let ready = rig.ready("s").await;
    let other = ready.clone();
    let other =
        tokio::spawn(async move { other.call("wait", "{}".into(), Timeouts::uniform(PATIENCE)).await });
    eventually("it waits", || !lines(&waits).is_empty()).await;
    for kind in BadReply::KINDS {
        let patience = if kind.names_its_call() { PATIENCE } else { WAIT };
        let began = Instant::now();
        let answer = ready
            .call(&kind.name(), "{}".into(), Timeouts::uniform(patience))
            .await;
        assert!(began.elapsed() < WAIT + AT_ONCE, "{kind:?}: {answer:?}");
        match answer {
            Ok(_) | Err(CallFault::BadReply { .. } | CallFault::Rpc { .. }) if kind.names_its_call() => {}
            Err(CallFault::TimedOut { sent: true, .. }) if !kind.names_its_call() => {}
            other => panic!("{kind:?}: {other:?}"),
        }
        assert!(!other.is_finished(), "{kind:?}: another call was blamed");
    }
    other.abort();
}
