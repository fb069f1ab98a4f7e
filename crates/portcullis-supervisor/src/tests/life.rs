//! Coming up, failing, coming back.

use std::path::PathBuf;

use portcullis_testkit::{
    AtEof, Behaviour, Descendant, Detach, Discover, Era, Handshake, ListReply, Noise, Noises, Process, Tool,
    UnlessFile,
};
use rustix::process::{Signal, kill_process};

use super::*;

fn counted(script: Script, file: &Path) -> Script {
    script.process(Process {
        pid_file: Some(file.to_owned()),
        ..Process::default()
    })
}

fn pid_tool(script: Script) -> Script {
    script
        .tool(Tool::new("pid", Behaviour::Pid))
        .tool(Tool::new("crash", Behaviour::crash(3)))
}

/// How often `script` is started until it is ready, and then again after each of its `crashes`.
async fn starts(script: Script, protocol: Protocol, crashes: usize) -> Vec<usize> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let mut spec = scripted(&counted(pid_tool(script), &file));
    spec.protocol = protocol;
    let rig = Rig::start([spec]).await;
    let mut before = rig.text("s", "pid").await;
    let mut counts = vec![pids(&file).len()];
    for _ in 0..crashes {
        rig.call("s", "crash", "{}").await.unwrap_err();
        let after = rig.text("s", "pid").await;
        assert_ne!(before, after);
        before = after;
        counts.push(pids(&file).len() - counts.iter().sum::<usize>());
    }
    rig.supervisor.shutdown().await.unwrap();
    assert!(pids(&file).into_iter().all(|pid| !is_alive(pid)));
    counts
}

/// Each server comes up in the era that it speaks, and the era that was found is not looked for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_era_is_found_and_remembered() {
    let silent = Script::new("s").discover(Discover::Silence);
    let (modern, legacy, refusing, silent) = tokio::join!(
        starts(Script::new("s").era(Era::Modern), Protocol::Auto, 1),
        starts(Script::new("s"), Protocol::Initialize, 1),
        starts(Script::new("s"), Protocol::Auto, 1),
        starts(silent, Protocol::Auto, 2),
    );
    assert_eq!(modern, [1, 1]);
    assert_eq!(legacy, [1, 1]);
    // A fresh connection for the second handshake, and then the right one at once.
    assert_eq!(refusing, [2, 1]);
    // One that does not answer may just have been slow: it is asked once more.
    assert_eq!(silent, [2, 2, 1]);
}

/// However a server fails the newer era's question, the older handshake is tried on a process of its own, and what was
/// found is remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_era_is_found_however_the_newer_one_is_refused() {
    let refusals = [
        Discover::Error {
            code: -32_000,
            message: "what?".to_owned(),
        },
        Discover::EmptyResult,
        Discover::Exit { code: 1 },
        Discover::Raw("[]".to_owned()),
        Discover::Raw(r#"{"supportedVersions":7}"#.to_owned()),
    ];
    let found = refusals.map(|discover| starts(Script::new("s").discover(discover), Protocol::Auto, 1));
    assert_eq!(futures::future::join_all(found).await, [[2, 1]; 5]);
}

/// An era that is ordered is the only one that is tried.
#[tokio::test]
async fn no_other_era_is_tried_than_the_one_that_is_ordered() {
    for (protocol, speaks, asked, never) in [
        (
            Protocol::Modern,
            Era::Legacy,
            "server/discover",
            r#""initialize""#,
        ),
        (
            Protocol::Initialize,
            Era::Modern,
            r#""initialize""#,
            "server/discover",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let received = folder.path().join("received");
        let mut spec = scripted(&Script::new("s").era(speaks).record_received(&received));
        spec.protocol = protocol;
        let mut rig = Rig::start([spec]).await;
        rig.until("s", "backing_off").await;
        rig.until("s", "backing_off").await;
        let lines = lines(&received);
        assert!(lines.iter().any(|line| line.contains(asked)), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains(never)), "{lines:?}");
    }
}

/// A server that is slow to start and speaks the newer era alone comes up all the same.
#[tokio::test]
async fn a_slow_server_of_the_newer_era_is_found() {
    let script = Script::new("s")
        .era(Era::Modern)
        .handshake(Handshake::AfterMs(2_500));
    let mut spec = scripted(&pid_tool(script));
    spec.protocol = Protocol::Auto;
    let rig = Rig::start([spec]).await;
    rig.text("s", "pid").await;
}

/// A server that notes whether another one of it is there when it starts.
fn jealous(script: &Script, folder: &Path) -> ServerSpec {
    let mut spec = scripted(script);
    if let TransportSpec::Stdio(stdio) = &mut spec.transport {
        let look = r#"cd "$FOLDER"
            for pid in $(cat pids 2>/dev/null); do kill -0 "$pid" 2>/dev/null && echo "$pid" >> met; done
            echo $$ >> pids; exec "$0" "$@""#;
        let program = Template::literal(stdio.program.to_str().unwrap());
        stdio.args = [Template::literal("-c"), Template::literal(look), program]
            .into_iter()
            .chain(std::mem::take(&mut stdio.args))
            .collect();
        stdio.program = "/bin/sh".into();
        stdio
            .env
            .insert("FOLDER".to_owned(), Template::literal(folder.to_str().unwrap()));
    }
    spec
}

/// Report 38: one process at a time, also where the one before takes its time to end: for the second handshake, at
/// each restart, and for the successor of an actor that failed.
#[tokio::test]
async fn no_two_processes_of_one_server_are_there_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        pid_tool(Script::new("s").at_eof(AtEof::Ignore)).tool(Tool::new("mumble", Behaviour::CloseStdout));
    let mut spec = jealous(&script, folder.path());
    spec.protocol = Protocol::Auto;
    let mut rig = Rig::start([spec]).await;
    rig.text("s", "pid").await;
    // Two for the handshakes; the second is deaf to the end of its input, and so ends only a while after.
    rig.call("s", "mumble", "{}").await.unwrap_err();
    rig.text("s", "pid").await;
    rig.supervisor.restart(&server("s")).unwrap();
    rig.until("s", "connecting").await;
    eventually("it is started anew", || {
        pids(&folder.path().join("pids")).len() == 4
    })
    .await;
    rig.text("s", "pid").await;
    rig.supervisor.forward(&server("s"), ServerMessage::Panic);
    eventually("its actor gets a successor", || {
        pids(&folder.path().join("pids")).len() >= 5
    })
    .await;
    rig.text("s", "pid").await;
    assert_eq!(lines(&folder.path().join("met")), Vec::<String>::new());
}

/// Report 19: whatever is printed around the handshake, the server comes up, its tools with it.
#[tokio::test]
async fn a_server_comes_up_and_its_tools_are_listed() {
    let chatter = || {
        vec![
            Noise::Line("Welcome!".into()),
            Noise::Blank(2),
            Noise::BadUtf8,
            Noise::LogLine,
        ]
    };
    let noise = Noises {
        at_start: chatter(),
        before_handshake: vec![Noise::ListChanged, Noise::Ping, Noise::LogLine],
        after_handshake: chatter(),
        before_list: chatter(),
        per_message: vec![Noise::LogLine],
    };
    let script = Script::new("s")
        .noise(noise)
        .tool(Tool::new("echo", Behaviour::Echo))
        .tool(Tool::new("é / *", Behaviour::Pid));
    let mut rig = Rig::start([scripted(&script)]).await;
    rig.until("s", "connecting").await;
    let (version, list) = rig.tools("s").await;
    assert_eq!((version, names(&list)), (1, vec!["echo", "é / *"]));
    let (_, pid) = rig.until("s", "ready").await;
    let ready = rig.ready("s").await;
    assert!(
        ready
            .tool("echo")
            .is_some_and(|tool| tool.definition.contains("inputSchema"))
    );
    assert_eq!(rig.text("s", "é / *").await, pid.unwrap().to_string());
    let arguments = r#"{"n":1.10,"big":123456789012345678901234567890,"n":2, "s":"\u00e9"}"#;
    assert_eq!(text(&rig.call("s", "echo", arguments).await.unwrap()), arguments);
}

/// Reports 30, 57: the call is done once and its caller told that the outcome is unknown; the same `Upstream`
/// leads to the server that comes back.
#[tokio::test]
async fn a_crash_in_a_call_is_told_at_once_and_healed() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let crash = Behaviour::record(&done, Behaviour::crash(3));
    let script = Script::new("s")
        .tool(Tool::new("crash", crash))
        .tool(Tool::new("pid", Behaviour::Pid));
    let mut rig = Rig::start([scripted(&script)]).await;
    let upstream = rig.upstream("s").clone();
    let ready = rig.ready("s").await;
    let began = Instant::now();
    let fault = ready
        .call("crash", "{}".into(), upstream.timeouts())
        .await
        .unwrap_err();
    assert!(matches!(fault, CallFault::OutcomeUnknown { .. }), "{fault:?}");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!(reason.contains("the server ended"), "{reason}");
    // The old connection takes no more calls, and says so truly.
    let fault = ready
        .call("pid", "{}".into(), upstream.timeouts())
        .await
        .unwrap_err();
    assert!(matches!(fault, CallFault::NotSent { .. }), "{fault:?}");
    let again = upstream.ready(Instant::now() + PATIENCE, 0).await.unwrap();
    again.call("pid", "{}".into(), upstream.timeouts()).await.unwrap();
    assert!(again.version() > ready.version());
    assert_eq!(lines(&done).len(), 1);
}

/// A server that ends the moment that it is connected, often before its actor hears that it was: no call hangs, none is
/// answered, one process is there at a time, and it is given up as one that never comes up.
#[tokio::test]
async fn a_server_that_ends_once_it_is_listed_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("pids");
    let script = Script::new("s")
        .tool(Tool::new("echo", Behaviour::Echo))
        .list_reply(ListReply::ThenExit { code: 3 });
    let script = counted(script, &started);
    let mut rig = Rig::start_with([scripted(&script)], |options| {
        options.lifecycle.park_after = 12;
        options.lifecycle.base = Duration::from_millis(1);
        options.lifecycle.cap = Duration::from_millis(5);
    })
    .await;
    let upstream = rig.upstream("s").clone();
    let calling = tokio::spawn(async move {
        loop {
            let within = crate::CallDeadline::from_now(Timeouts::uniform(PATIENCE));
            match upstream.call("echo", "{}".into(), within).await {
                Err(CallFault::Unavailable { state, .. }) => break state,
                Err(CallFault::NotSent { .. } | CallFault::OutcomeUnknown { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let (reason, _) = rig.until("s", "parked").await;
    assert!(reason.contains("the server ended"), "{reason}");
    assert_eq!(
        timeout(PATIENCE, calling).await.unwrap().unwrap(),
        ServerState::Parked
    );
    rig.supervisor.shutdown().await.unwrap();
    assert!(pids(&started).len() >= 12);
    assert!(pids(&started).into_iter().all(|pid| !is_alive(pid)));
}

/// Report 40: a server that closes only its output has ended too; what is left of it is stopped.
#[tokio::test]
async fn a_closed_output_is_the_end() {
    let script = pid_tool(Script::new("s").tool(Tool::new("mumble", Behaviour::CloseStdout)));
    let rig = Rig::start([scripted(&script)]).await;
    let old: u32 = rig.text("s", "pid").await.parse().unwrap();
    let fault = timeout(AT_ONCE, rig.call("s", "mumble", "{}"))
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(fault, CallFault::OutcomeUnknown { .. }), "{fault:?}");
    assert_ne!(rig.text("s", "pid").await, old.to_string());
    gone(old).await;
}

/// What has left the group of a server may hold its output open for ever: that the server is gone is seen all the same.
#[tokio::test]
async fn a_server_that_ends_is_missed_although_its_output_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join("left");
    let descendant = Descendant {
        seconds: 60,
        detach: Detach::Session,
        ignore_term: false,
        holds_stdout: true,
        pid_file: Some(left.clone()),
    };
    let script = pid_tool(Script::new("s").process(Process {
        descendants: vec![descendant],
        ..Process::default()
    }));
    let rig = Rig::start([scripted(&script)]).await;
    let old = rig.text("s", "pid").await;
    eventually("its descendant is there", || pids(&left).len() == 1).await;
    let fault = timeout(AT_ONCE, rig.call("s", "crash", "{}")).await;
    let fault = fault.unwrap().unwrap_err();
    assert!(matches!(fault, CallFault::OutcomeUnknown { .. }), "{fault:?}");
    assert_ne!(rig.text("s", "pid").await, old);
    rig.supervisor.shutdown().await.unwrap();
    for pid in pids(&left) {
        let _ = kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL);
    }
}

/// The end of the process before takes nothing off the time of the new one, and is waited for within the attempt.
#[tokio::test]
async fn a_server_that_ends_slowly_has_all_its_time_to_start_again() {
    let script = Script::new("s").at_eof(AtEof::Ignore).handshake(Handshake::Hang);
    let mut spec = scripted(&script);
    spec.timeouts = Timeouts::uniform(Duration::from_secs(1));
    let mut rig = Rig::start_with([spec], |options| {
        options.stop.after_eof = Duration::from_secs(4);
        options.lifecycle.connect_within = Some(Duration::from_millis(100));
    })
    .await;
    for _ in 0..2 {
        let (reason, _) = rig.until("s", "backing_off").await;
        assert!(given_seconds(&reason) > 0.5, "{reason}");
    }
}

/// How long a handshake had that took longer.
#[track_caller]
fn given_seconds(reason: &str) -> f64 {
    let given = reason.strip_prefix("the handshake took over ");
    let given = given.and_then(|given| given.split(' ').next()?.parse().ok());
    given.unwrap_or_else(|| panic!("{reason}"))
}

/// Report 38: a server that always exits is given up after some tries, its calls fail at once, and a demand finds
/// it once it is well again.
#[tokio::test]
async fn a_server_that_always_exits_is_parked_until_it_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let (file, cure) = (folder.path().join("pids"), folder.path().join("cure"));
    let process = Process {
        pid_file: Some(file.clone()),
        exit_unless: Some(UnlessFile {
            file: cure.clone(),
            code: 3,
        }),
        ..Process::default()
    };
    let script = pid_tool(Script::new("s")).process(process);
    let mut rig = Rig::start_with([scripted(&script)], |options| options.lifecycle.park_after = 3).await;
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!(reason.contains("handshake"), "{reason}");
    let (reason, _) = rig.until("s", "parked").await;
    assert!(reason.contains("handshake"), "{reason}");
    assert_eq!(pids(&file).len(), 3);

    let fault = timeout(AT_ONCE, rig.call("s", "pid", "{}"))
        .await
        .unwrap()
        .unwrap_err();
    check_unavailable(&fault, ServerState::Parked);
    // That call had it tried once more, and it failed once more.
    rig.until("s", "parked").await;
    assert_eq!(pids(&file).len(), 4);

    #[expect(clippy::disallowed_methods, reason = "what the server waits for")]
    std::fs::File::create_new(&cure).unwrap();
    rig.call("s", "pid", "{}").await.unwrap_err();
    rig.until("s", "ready").await;
    rig.call("s", "pid", "{}").await.unwrap();
}

/// What a server offers stays known while it is away: backing off, calls wait for it within their deadline; parked, they
/// fail at once; well again, it is called as ever.
#[tokio::test]
async fn the_tools_of_a_server_that_is_away_stay_known() {
    let folder = tempfile::tempdir().unwrap();
    let well = tempfile::NamedTempFile::new_in(folder.path()).unwrap();
    let cure = well.path().to_owned();
    let process = Process {
        exit_unless: Some(UnlessFile {
            file: cure.clone(),
            code: 3,
        }),
        ..Process::default()
    };
    let script = pid_tool(Script::new("s")).process(process);
    let mut rig = Rig::start_with([scripted(&script)], |options| {
        options.lifecycle.base = Duration::from_millis(400);
        options.lifecycle.cap = Duration::from_millis(400);
        options.lifecycle.park_after = 4;
    })
    .await;
    let upstream = rig.upstream("s").clone();
    assert_eq!(
        names(&upstream.tools()),
        [""; 0],
        "nothing is known before it was asked"
    );
    rig.text("s", "pid").await;
    well.close().unwrap();
    rig.call("s", "crash", "{}").await.unwrap_err();
    rig.until("s", "backing_off").await;
    assert_eq!(names(&upstream.tools()), ["pid", "crash"]);
    let began = Instant::now();
    let short = Timeouts::uniform(Duration::from_millis(30));
    let within = crate::CallDeadline::from_now(short);
    let fault = upstream.call("pid", "{}".into(), within).await.unwrap_err();
    assert!(
        matches!(fault, CallFault::TimedOut { sent: false, .. }),
        "{fault:?}"
    );
    assert!(began.elapsed() >= short.call);
    rig.until("s", "parked").await;
    assert_eq!(names(&upstream.tools()), ["pid", "crash"]);
    let long = || crate::CallDeadline::from_now(Timeouts::uniform(PATIENCE));
    let fault = timeout(AT_ONCE, upstream.call("pid", "{}".into(), long())).await;
    let fault = fault.unwrap().unwrap_err();
    check_unavailable(&fault, ServerState::Parked);
    rig.until("s", "parked").await;
    #[expect(clippy::disallowed_methods, reason = "what the server waits for")]
    std::fs::File::create_new(&cure).unwrap();
    upstream.call("pid", "{}".into(), long()).await.unwrap_err();
    rig.until("s", "ready").await;
    upstream.call("pid", "{}".into(), long()).await.unwrap();
}

/// A limit that nobody would see to is not passed over in silence.
#[tokio::test]
async fn limits_of_the_process_need_a_warden() {
    let mut spec = scripted(&pid_tool(Script::new("s")));
    spec.limits.process.open_files = Some(64);
    let mut rig = Rig::start([spec]).await;
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!(reason.contains("limits of the process need a warden"), "{reason}");
}

/// Report 39: one that never answers holds up nobody.
#[tokio::test]
async fn one_hangs_in_the_handshake_and_the_others_are_ready() {
    let hung = Script::new("hung").handshake(Handshake::Hang);
    let well = ["a", "b", "c", "d", "e"];
    let specs = well
        .iter()
        .map(|id| scripted(&pid_tool(Script::new(id))))
        .chain([scripted(&hung)]);
    let mut rig = Rig::start(specs).await;
    for id in well {
        rig.call(id, "pid", "{}").await.unwrap();
    }
    // A call of the hung one waits no longer than its own deadline.
    let deadline = Instant::now() + Duration::from_millis(50);
    let fault = rig.upstream("hung").ready(deadline, 0).await.unwrap_err();
    assert!(
        matches!(fault, CallFault::TimedOut { sent: false, .. }),
        "{fault:?}"
    );
    rig.supervisor.shutdown().await.unwrap();
    rig.until("hung", "stopped").await;
    let reached = |id: &str, state: &str| {
        rig.heard.iter().any(
            |event| matches!(event, SupervisorEvent::State { server, to, .. } if server.as_str() == id && to.to_string() == state),
        )
    };
    assert!(well.iter().all(|id| reached(id, "ready")) && !reached("hung", "ready"));
}

#[tokio::test]
async fn a_handshake_that_fails_says_how() {
    let refuses = Script::new("refuses").handshake(Handshake::Error {
        code: -32000,
        message: "no thanks".to_owned(),
    });
    let mut slow = scripted(&Script::new("slow").handshake(Handshake::Hang));
    slow.timeouts.connect = Duration::from_millis(100);
    let sh = Path::new("/bin/sh");
    let loud = stdio("loud", sh, &["-c", "echo 'no licence found' >&2; exit 9"]);
    let mut rig = Rig::start([scripted(&refuses), slow, loud]).await;
    for _ in 0..3 {
        let (server, reason) = loop {
            if let SupervisorEvent::State {
                server,
                to: ServerState::BackingOff,
                reason,
                ..
            } = rig.next("a failure").await
            {
                break (server, reason);
            }
        };
        let told = match server.as_str() {
            "refuses" => "no thanks",
            "slow" => "the handshake took over 0.1 s",
            _ => "the server ended (exit status: 9); it wrote `no licence found`",
        };
        assert!(reason.contains(told), "{server}: {reason}");
    }
}

/// Report 42: the actor's children are cleaned up, it gets a successor, and nobody else notices.
#[tokio::test]
async fn an_actor_that_fails_is_replaced_and_its_neighbours_go_on() {
    let mut rig = Rig::start([
        scripted(&pid_tool(Script::new("a"))),
        scripted(&pid_tool(Script::new("b"))),
    ])
    .await;
    let (a, b): (u32, u32) = (
        rig.text("a", "pid").await.parse().unwrap(),
        rig.text("b", "pid").await.parse().unwrap(),
    );
    let before = rig.ready("a").await.version();
    while rig
        .heard
        .iter()
        .filter(|event| {
            matches!(
                event,
                SupervisorEvent::State {
                    to: ServerState::Ready,
                    ..
                }
            )
        })
        .count()
        < 2
    {
        rig.next("both ready").await;
    }
    rig.supervisor.forward(&server("a"), ServerMessage::Panic);
    rig.until("a", "ready").await;
    let ready = rig.ready("a").await;
    assert!(
        ready.version() > before,
        "listings are counted through all actors of a server"
    );
    assert_ne!(rig.text("a", "pid").await, a.to_string());
    gone(a).await;
    assert_eq!(rig.text("b", "pid").await, b.to_string());
}

/// What was switched off is not for a new actor to switch on.
#[tokio::test]
async fn a_server_that_was_switched_off_stays_so_through_its_actors() {
    let mut rig = Rig::start([scripted(&pid_tool(Script::new("s")))]).await;
    rig.text("s", "pid").await;
    rig.supervisor.set_enabled(&server("s"), false).unwrap();
    rig.until("s", "disabled").await;
    rig.supervisor.forward(&server("s"), ServerMessage::Panic);
    // A successor says nothing of itself; it is there once it answers.
    let successor = async {
        while rig.tasks("s").await.is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, successor).await.unwrap();
    let fault = rig.call("s", "pid", "{}").await.unwrap_err();
    check_unavailable(&fault, ServerState::Disabled);
    rig.supervisor.set_enabled(&server("s"), true).unwrap();
    // Until then nobody is told anything, least of all again that it is off.
    assert!(
        matches!(rig.next("a change").await, SupervisorEvent::State { reason, .. } if reason == "switched on")
    );
    rig.text("s", "pid").await;
}

/// Report 4: nothing is started with a reference that has no value, and the field is named.
#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let mut unset = scripted(&counted(Script::new("unset"), &file));
    if let TransportSpec::Stdio(stdio) = &mut unset.transport {
        stdio
            .env
            .insert("API_KEY".to_owned(), Template::parse("x${env:NOT_THERE}"));
    }
    let missing = stdio("missing", &PathBuf::from("/nowhere/to/be/found"), &[]);
    // Neither is looked up, in whatever path or directory.
    let bare = stdio("bare", Path::new("sh"), &["-c", "exit 1"]);
    let mut relative = stdio("relative", Path::new("bin/sh"), &["-c", "exit 1"]);
    if let TransportSpec::Stdio(stdio) = &mut relative.transport {
        stdio.cwd = Some("/".into());
    }
    // The program is there; what it is to run in, or by, is not.
    let in_folder = |name, cwd: &Path| {
        let mut spec = stdio(name, Path::new("/bin/sh"), &["-c", "exit 1"]);
        if let TransportSpec::Stdio(stdio) = &mut spec.transport {
            stdio.cwd = Some(cwd.to_owned());
        }
        spec
    };
    let homeless = in_folder("homeless", Path::new("/nowhere/to/be"));
    let filed = in_folder("filed", Path::new("/bin/sh"));
    let script = folder.path().join("script");
    #[expect(clippy::disallowed_methods, reason = "a test lays out a program")]
    std::fs::write(&script, "#! /nowhere/python -u\nprint()\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let orphan = stdio("orphan", &script, &[]);
    // What it is given may be a word that the hub has use for as well.
    let mut wordy = stdio(
        "wordy",
        Path::new("/bin/sh"),
        &["-c", "echo no server >&2; exit 3"],
    );
    if let TransportSpec::Stdio(stdio) = &mut wordy.transport {
        stdio.env.insert("ROLE".to_owned(), Template::literal("server"));
    }
    let mut rig = Rig::start([unset, missing, bare, relative, homeless, filed, orphan, wordy]).await;
    for _ in 0..8 {
        let (server, reason) = loop {
            if let SupervisorEvent::State {
                server,
                to: ServerState::BackingOff,
                reason,
                ..
            } = rig.next("a failure").await
            {
                break (server, reason);
            }
        };
        let told = match server.as_str() {
            "unset" => "env.API_KEY: the variable `NOT_THERE` is not set",
            "bare" => "cannot start `sh`: it is no absolute path",
            "relative" => "cannot start `bin/sh`: it is no absolute path",
            "homeless" => {
                "cannot start `/bin/sh`: its working directory `/nowhere/to/be` cannot be entered: No such"
            }
            "filed" => {
                "cannot start `/bin/sh`: its working directory `/bin/sh` cannot be entered: Not a directory"
            }
            "wordy" => "the server ended (exit status: 3); it wrote `no [redacted]`",
            "orphan" => "the file is there, but what its first line names, `/nowhere/python -u`, is not",
            _ => "cannot start `/nowhere/to/be/found`: No such file",
        };
        assert!(reason.contains(told), "{reason}");
    }
    assert!(!file.exists());
}

#[tokio::test]
async fn a_disabled_server_is_never_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let mut spec = scripted(&counted(pid_tool(Script::new("s")), &file));
    spec.enabled = false;
    let rig = Rig::start([spec, scripted(&pid_tool(Script::new("other")))]).await;
    rig.call("other", "pid", "{}").await.unwrap();
    let fault = timeout(AT_ONCE, rig.call("s", "pid", "{}"))
        .await
        .unwrap()
        .unwrap_err();
    check_unavailable(&fault, ServerState::Disabled);
    rig.supervisor.shutdown().await.unwrap();
    assert!(!file.exists());
}

#[tokio::test]
async fn two_specs_of_one_id_are_refused() {
    let (tell, _events) = mpsc::unbounded_channel();
    let specs = vec![scripted(&Script::new("s")), scripted(&Script::new("s"))];
    let error = Supervisor::start(specs, SupervisorOptions::new(Arc::new(Host)), tell)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "two servers are called `s`");
}

/// The backstop behind an attempt's deadlines comes after them, however long they are.
#[tokio::test]
async fn a_slow_server_has_the_time_that_its_definition_gives_it() {
    let mut slow = scripted(&Script::new("s").handshake(Handshake::Hang));
    slow.timeouts.connect = Duration::from_millis(400);
    let mut rig = Rig::start_with([slow], |options| {
        options.lifecycle.connect_within = Some(Duration::from_millis(100));
    })
    .await;
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!((0.2..=0.4).contains(&given_seconds(&reason)), "{reason}");
}

/// Whoever wants no deadline may say so by the longest time that there is.
#[tokio::test]
async fn times_that_no_clock_can_tell_are_never() {
    let mut spec = scripted(&pid_tool(Script::new("s")));
    spec.timeouts = Timeouts::uniform(Duration::MAX);
    let mut rig = Rig::start_with([spec], |options| {
        // No other time has its timer set first.
        options.lifecycle.idle_after = None;
        options.lifecycle.connect_within = None;
        options.lifecycle.park_after = 1;
        options.lifecycle.probe_every = Duration::MAX;
    })
    .await;
    rig.text("s", "pid").await;
    rig.call("s", "crash", "{}").await.unwrap_err();
    rig.until("s", "parked").await;
    assert!(rig.tasks("s").await.is_some(), "its actor is well");
    // Nothing but a call has it tried again.
    let fault = rig.call("s", "pid", "{}").await.unwrap_err();
    check_unavailable(&fault, ServerState::Parked);
    rig.until("s", "ready").await;
    rig.text("s", "pid").await;
}

/// What a server prints beside the protocol is for whoever reads the log, and that is not its owner alone.
#[tokio::test]
async fn a_line_that_is_no_message_is_logged_without_secrets() {
    let (_logging, mut lines) = logged();
    let noise = Noises {
        at_start: vec![Noise::Line("key: s3cret-canary".into())],
        ..Noises::default()
    };
    let script = pid_tool(Script::new("s").noise(noise));
    let rig = Rig::start([given(&script, "s3cret-canary")]).await;
    let line = line_with(&mut lines, "key: ").await;
    assert!(
        line.contains("not JSON-RPC") && line.contains("key: [redacted]"),
        "{line}"
    );
    rig.text("s", "pid").await;
}

/// As over HTTP: a server may say in its errors what it was given.
#[tokio::test]
async fn no_error_of_a_handshake_shows_what_the_server_was_given() {
    let refusing = Script::new("s").handshake(Handshake::Error {
        code: -32000,
        message: "bad key s3cret-canary".to_owned(),
    });
    let mut rig = Rig::start([given(&refusing, "s3cret-canary")]).await;
    let (reason, _) = rig.until("s", "backing_off").await;
    assert!(reason.contains("bad key [redacted]"), "{reason}");
    assert!(!reason.contains("canary"), "{reason}");
}
