//! Every way of going wrong that the testkit knows, over stdio and over HTTP.

use futures::{StreamExt, future::join_all, stream};
use portcullis_testkit::{Case, Ends, HttpReplies, HttpServer, cases};

use super::*;

/// How many cases are played side by side.
const AT_A_TIME: usize = 6;

/// How long what is well may take: a thousand pages, or calls, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a call may take that is to end by its deadline.
const CALL: Duration = Duration::from_millis(600);

/// How a case's server is reached.
#[derive(Debug, Clone, Copy)]
enum Over {
    Stdio,
    Http(HttpReplies),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_known_fault_over_stdio() {
    play_all(Over::Stdio).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_known_fault_over_http_with_events() {
    play_all(Over::Http(HttpReplies::Events)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_known_fault_over_http_with_single_replies() {
    play_all(Over::Http(HttpReplies::Json)).await;
}

async fn play_all(over: Over) {
    let folder = tempfile::tempdir().unwrap();
    stream::iter(cases(folder.path()))
        .filter(|case| std::future::ready(matches!(over, Over::Stdio) || !case.stdio_only))
        .map(|case| async move {
            let name = case.name.clone();
            let played = timeout(2 * PATIENCE, play(case, over)).await;
            played.unwrap_or_else(|_| panic!("`{name}` over {over:?} never ends"));
        })
        .buffer_unordered(AT_A_TIME)
        .collect::<Vec<()>>()
        .await;
}

async fn play(case: Case, over: Over) {
    let at = format!("`{}` ({}) over {over:?}", case.name, case.report);
    // Held until the end of the case.
    let (mut spec, _http) = match over {
        Over::Stdio => (scripted(&case.script), None),
        Over::Http(replies) => {
            let http = HttpServer::start(&case.script, replies).unwrap();
            let mut spec = over_http::reached(&http);
            spec.id = server(&case.name);
            (spec, Some(http))
        }
    };
    spec.timeouts = timeouts(case.ends);
    let mut rig = Rig::start([spec]).await;
    let first = rig.upstream(&case.name).ready(Instant::now() + PATIENCE, 0).await;
    if case.ends == Ends::NeverUp {
        let fault = first.map(|_| ()).unwrap_err();
        assert!(matches!(fault, CallFault::Unavailable { .. }), "{at}: {fault:?}");
    } else {
        let first = first.unwrap_or_else(|fault| panic!("{at}: {fault}"));
        if let Err(answer) = check_calls(&case, over, &rig).await {
            rig.heard
                .extend(std::iter::from_fn(|| rig.events.try_recv().ok()));
            panic!("{at}: {answer}; heard {:#?}", rig.heard);
        }
        let upstream = rig.upstream(&case.name);
        let within = crate::CallDeadline::from_now(Timeouts::uniform(PATIENCE));
        let echo = upstream.call(Case::ECHO, r#"{"n":1}"#.into(), within).await;
        let echo = echo.unwrap_or_else(|fault| panic!("{at}: afterwards: {fault}"));
        assert_eq!(text(&echo), r#"{"n":1}"#, "{at}");
        let stayed = rig.ready(&case.name).await.connection.generation == first.connection.generation;
        assert!(
            stayed || case.ends == Ends::Lost,
            "{at}: the connection did not stay"
        );
        let listed = || {
            case.listed
                .iter()
                .all(|name| names(&upstream.tools()).contains(name))
        };
        eventually(&at, listed).await;
    }
    if let Some(file) = &case.one_line {
        eventually(&at, || !lines(file).is_empty()).await;
    }
    rig.supervisor.shutdown().await.unwrap();
    if let Some(file) = &case.one_line {
        assert_eq!(lines(file).len(), 1, "{at}");
    }
    let pids = case.pids.as_deref().map(pids).unwrap_or_default();
    assert_eq!(pids.is_empty(), case.pids.is_none(), "{at}");
    all_gone(&pids).await;
}

fn timeouts(ends: Ends) -> Timeouts {
    let patient = Timeouts::uniform(PATIENCE);
    match ends {
        Ends::NeverUp => Timeouts {
            connect: CALL,
            list: CALL,
            ..patient
        },
        Ends::CallTimesOut => Timeouts {
            call: CALL,
            call_max: CALL,
            ..patient
        },
        Ends::Well | Ends::CallEnds | Ends::Lost => patient,
    }
}

/// Calls as the case says; the error is what should not have come.
async fn check_calls(case: &Case, over: Over, rig: &Rig) -> Result<(), String> {
    let began = Instant::now();
    let calls = (0..case.calls).map(|_| rig.call(&case.name, Case::TOOL, "{}"));
    let answers = join_all(calls).await;
    let took = began.elapsed();
    for answer in &answers {
        let as_it_should = match case.ends {
            Ends::Well => answer.is_ok(),
            Ends::CallEnds => matches!(
                answer,
                Ok(_) | Err(CallFault::BadReply { .. } | CallFault::Rpc { .. })
            ),
            // What comes on a call's own stream or in its own body is the call's, even where it is no message.
            Ends::CallTimesOut => match answer {
                Err(CallFault::TimedOut { sent: true, .. }) => true,
                Err(CallFault::BadReply { .. } | CallFault::OutcomeUnknown { .. }) => {
                    matches!(over, Over::Http(_)) && case.one_line.is_none()
                }
                _ => false,
            },
            // Half a reply tells which call it is that got none.
            Ends::Lost => matches!(
                answer,
                Err(CallFault::OutcomeUnknown { .. } | CallFault::BadReply { .. })
            ),
            Ends::NeverUp => false,
        };
        if !as_it_should {
            return Err(format!("{answer:?}"));
        }
    }
    let soon = matches!(case.ends, Ends::CallEnds | Ends::CallTimesOut | Ends::Lost);
    if soon && took > CALL + AT_ONCE {
        return Err(format!("it took {took:?}"));
    }
    Ok(())
}
