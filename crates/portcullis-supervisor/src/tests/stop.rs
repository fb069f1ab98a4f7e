//! No process outlives its hub.

use std::path::PathBuf;

use portcullis_testkit::{AtEof, Behaviour, Descendant, Detach, Handshake, Process, Tool};

use super::*;

/// Servers of which each resists its end in its own way, all writing their process ids to one file, and how many
/// processes they are.
fn stubborn(file: &Path) -> (Vec<Script>, usize) {
    let process = || Process {
        pid_file: Some(file.to_owned()),
        ..Process::default()
    };
    let descendant = Descendant {
        seconds: 600,
        detach: Detach::No,
        ignore_term: true,
        holds_stdout: true,
        pid_file: Some(file.to_owned()),
    };
    let scripts = vec![
        Script::new("tame").process(process()),
        Script::new("deaf-to-eof")
            .at_eof(AtEof::Ignore)
            .process(process()),
        Script::new("deaf-to-term")
            .at_eof(AtEof::Ignore)
            .process(Process {
                ignore_term: true,
                ..process()
            }),
        Script::new("parent").process(Process {
            descendants: vec![descendant],
            ..process()
        }),
        Script::new("hung")
            .handshake(Handshake::Hang)
            .at_eof(AtEof::Ignore)
            .process(process()),
    ];
    let scripts: Vec<_> = scripts
        .into_iter()
        .map(|script| script.tool(Tool::new("pid", Behaviour::Pid)))
        .collect();
    let count = scripts.len() + 1;
    (scripts, count)
}

async fn up(folder: &Path) -> (Rig, Vec<u32>) {
    let file: PathBuf = folder.join("pids");
    let (scripts, count) = stubborn(&file);
    let rig = Rig::start(scripts.iter().map(scripted)).await;
    for script in scripts.iter().filter(|script| script.name != "hung") {
        rig.call(&script.name, "pid", "{}").await.unwrap();
    }
    eventually("all processes are there", || pids(&file).len() == count).await;
    let pids = pids(&file);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    (rig, pids)
}

/// Reports 11, 12: within the stop sequence's time, whatever a server does against it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (mut rig, pids) = up(folder.path()).await;
    let began = Instant::now();
    rig.supervisor.shutdown().await.unwrap();
    // The sequence of this test, and a little for a slow machine.
    assert!(
        began.elapsed() < Duration::from_secs(1) + AT_ONCE,
        "{:?}",
        began.elapsed()
    );
    all_gone(&pids).await;
    rig.until("tame", "stopped").await;
    let fault = timeout(AT_ONCE, rig.call("tame", "pid", "{}"))
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(
            fault,
            CallFault::Unavailable {
                state: ServerState::Stopped,
                ..
            }
        ),
        "{fault:?}"
    );
    // Twice is no harm.
    rig.supervisor.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_supervisor_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (rig, pids) = up(folder.path()).await;
    drop(rig);
    all_gone(&pids).await;
}

/// Who holds an `Upstream` of a hub that is gone does not wait for it.
#[tokio::test]
async fn a_dropped_supervisor_is_heard_at_once() {
    let script = Script::new("s").tool(Tool::new("mute", Behaviour::Mute));
    let hung = Script::new("hung").handshake(Handshake::Hang);
    let rig = Rig::start([scripted(&script), scripted(&hung)]).await;
    let ready = rig.ready("s").await;
    let upstreams = [rig.upstream("s").clone(), rig.upstream("hung").clone()];
    let timeouts = upstreams[0].timeouts();
    let waiting = {
        let hung = upstreams[1].clone();
        tokio::spawn(async move { hung.ready(Instant::now() + PATIENCE, 0).await })
    };
    let call = tokio::spawn(async move { ready.call("mute", "{}".into(), timeouts).await });
    tokio::task::yield_now().await;
    let began = Instant::now();
    drop(rig);
    let stopped = |fault: &CallFault| {
        matches!(
            fault,
            CallFault::Unavailable {
                state: ServerState::Stopped,
                ..
            }
        )
    };
    let fault = waiting.await.unwrap().unwrap_err();
    assert!(stopped(&fault), "{fault:?}");
    for upstream in upstreams {
        let fault = upstream.ready(Instant::now() + PATIENCE, 0).await.unwrap_err();
        assert!(stopped(&fault), "{fault:?}");
    }
    let fault = call.await.unwrap().unwrap_err();
    assert!(
        matches!(
            fault,
            CallFault::OutcomeUnknown { .. } | CallFault::NotSent { .. }
        ),
        "{fault:?}"
    );
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

/// A hub whose runtime is gone can do nothing in the background any more: its end kills.
#[test]
fn a_runtime_that_ends_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (rig, pids) = runtime.block_on(up(folder.path()));
    runtime.shutdown_timeout(AT_ONCE);
    drop(rig);
    let waits = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    waits.block_on(all_gone(&pids));
}

#[tokio::test]
async fn a_server_may_be_given_for_ever_to_end() {
    let script = Script::new("server").tool(Tool::new("pid", Behaviour::Pid));
    let rig = Rig::start_with([scripted(&script)], |options| {
        options.stop = StopSequence {
            after_eof: Duration::MAX,
            after_term: Duration::MAX,
        };
    })
    .await;
    let pid: u32 = rig.text("server", "pid").await.parse().unwrap();
    rig.supervisor.shutdown().await.unwrap();
    assert!(!is_alive(pid));
}

/// Who listens until the end hears it at once, whoever still knows the servers.
#[tokio::test]
async fn events_end_with_the_supervisor() {
    let mut off = scripted(&Script::new("off"));
    off.enabled = false;
    let mut rig = Rig::start([scripted(&Script::new("on")), off]).await;
    rig.ready("on").await;
    let known = rig.supervisor.upstreams().clone();
    rig.supervisor.shutdown().await.unwrap();
    let ended = async { while rig.events.recv().await.is_some() {} };
    timeout(PATIENCE, ended).await.expect("the events do not end");
    drop(rig);
    assert_eq!(known.len(), 2);
}
