//! One server without a hub.

use std::{io, sync::Mutex};

use futures::future::BoxFuture;
use portcullis_testkit::{AtEof, Behaviour, Process, Tool};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    AgentTool, Connection, GroupSpawner, SpawnPlan, SpawnedProcess, Spawner, SupervisorError, connect,
    with_connection,
};

fn options() -> SupervisorOptions {
    let mut options = SupervisorOptions::new(Arc::new(Host));
    options.stop = StopSequence {
        after_eof: Duration::from_millis(300),
        after_term: Duration::from_millis(300),
    };
    options
}

/// A server that notes what it gets, and its process.
fn noting(folder: &Path) -> Script {
    Script::new("s")
        .at_eof(AtEof::Ignore)
        .process(Process {
            pid_file: Some(folder.join("pids")),
            ..Process::default()
        })
        .record_received(folder.join("received"))
        .record_cancelled(folder.join("cancelled"))
        .tool(
            Tool::new("é/*", Behaviour::Echo)
                .describe("Gives back.")
                .takes(&[("text", "string", "any")]),
        )
        .tool(Tool::new("off", Behaviour::Pid))
        .tool(Tool::new("mute", Behaviour::Mute))
        .tool(Tool::new("crash", Behaviour::crash(3)))
}

fn spec(folder: &Path) -> ServerSpec {
    let mut spec = scripted(&noting(folder));
    spec.disabled_tools = ["off".to_owned()].into();
    spec
}

async fn call(connection: &Connection, tool: &str, arguments: &str) -> Result<String, CallFault> {
    connection.call(tool, arguments, &CancellationToken::new()).await
}

/// Who has no store gets results whole, however long the strings in them.
#[tokio::test]
async fn a_result_with_a_long_string_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let connection = connect(spec(folder.path()), options()).await.unwrap();
    let text = "long ".repeat(60_000);
    let arguments = format!(r#"{{"text": "{text}"}}"#);
    let result = call(&connection, "é/*", &arguments).await.unwrap();
    assert!(result.contains(&text), "{} bytes", result.len());
    connection.close().await.unwrap();
}

/// Who has no catalog is told by the connection, also where the server has no tools at all.
#[tokio::test]
async fn a_tool_that_is_disabled_and_not_there_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let bare = Script {
        capabilities: Some(serde_json::json!({})),
        ..Script::new("s")
    };
    for (mut spec, name) in [(spec(folder.path()), "0ff"), (scripted(&bare), "off")] {
        spec.disabled_tools = [name.to_owned()].into();
        let connection = connect(spec, options()).await.unwrap();
        let told = format!(
            "`disabledTools` names `{name}`, which is not among the tools that were taken from the server: nothing is \
             restricted by it"
        );
        assert_eq!(connection.reports(), [told]);
        connection.close().await.unwrap();
    }
}

/// The servers that noted themselves in `folder` are dead.
async fn ended(folder: &Path) {
    all_gone(&pids(&folder.join("pids"))).await;
}

#[tokio::test]
async fn a_connection_lists_calls_and_closes() {
    let folder = tempfile::tempdir().unwrap();
    let connection = connect(spec(folder.path()), options()).await.unwrap();
    assert_eq!(connection.id().as_str(), "s");
    let tools: Vec<_> = connection.tools().into_iter().map(|tool| tool.name).collect();
    assert_eq!(tools, ["é/*", "mute", "crash"]);
    let arguments = r#"{"text": 1.10}"#;
    assert_eq!(
        text(&call(&connection, "é/*", arguments).await.unwrap()),
        arguments
    );
    assert_eq!(text(&call(&connection, "é/*", " ").await.unwrap()), "{}");
    // It is supervised: the next call finds the server that comes back.
    let fault = call(&connection, "crash", "{}").await.unwrap_err();
    assert!(matches!(fault, CallFault::OutcomeUnknown { .. }), "{fault:?}");
    assert_eq!(text(&call(&connection, "é/*", "{}").await.unwrap()), "{}");
    connection.close().await.unwrap();
    assert!(
        pids(&folder.path().join("pids"))
            .into_iter()
            .all(|pid| !is_alive(pid))
    );
}

#[tokio::test]
async fn what_is_not_offered_is_refused_without_a_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let connection = connect(spec(folder.path()), options()).await.unwrap();
    let received = || lines(&folder.path().join("received")).len();
    let before = received();
    for (tool, arguments, told) in [
        (
            "nope\u{1b}",
            "{}",
            r"the server offers no tool `nope\u{1b}`; there is `é/*`, `mute`, `crash`",
        ),
        (
            "off",
            "{}",
            "the tool `off` is disabled by the server's definition; there is",
        ),
        ("é/*", "[1]", "they are JSON, but no object"),
        ("é/*", "{", "they are no JSON"),
    ] {
        let began = Instant::now();
        let fault = call(&connection, tool, arguments).await.unwrap_err();
        assert!(fault.to_string().contains(told), "{fault}");
        assert!(began.elapsed() < AT_ONCE);
    }
    assert_eq!(text(&call(&connection, "é/*", "{}").await.unwrap()), "{}");
    assert_eq!(received(), before + 1, "the server has seen the last call alone");
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_and_the_server_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let connection = connect(spec(folder.path()), options()).await.unwrap();
    let cancel = CancellationToken::new();
    let calls = || {
        let received = lines(&folder.path().join("received"));
        received.iter().filter(|line| line.contains("tools/call")).count()
    };
    let watched = async {
        eventually("the server has the call", || calls() == 1).await;
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(connection.call("mute", "{}", &cancel), watched);
    assert_eq!(result, Err(CallFault::Cancelled { sent: true }));
    eventually("the server hears of it", || {
        lines(&folder.path().join("cancelled")).len() == 1
    })
    .await;
    let result = connection.call("mute", "{}", &cancel).await;
    assert_eq!(result, Err(CallFault::Cancelled { sent: false }));
    assert_eq!(calls(), 1);
}

#[tokio::test]
async fn agent_tools_are_what_a_model_is_told_and_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let connection = connect(spec(folder.path()), options()).await.unwrap();
    let tools = connection.agent_tools();
    let echo: &AgentTool = &tools[0];
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    assert!(
        echo.name().len() <= 64 && echo.name().chars().all(fits),
        "{}",
        echo.name()
    );
    assert_eq!((echo.tool(), echo.description()), ("é/*", "Gives back."));
    assert_eq!(echo.input_schema()["required"], serde_json::json!(["text"]));
    let cancel = CancellationToken::new();
    assert_eq!(text(&echo.call("{}", &cancel).await.unwrap()), "{}");
    // They keep nothing alive.
    drop(connection);
    let fault = echo.call("{}", &cancel).await.unwrap_err();
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
    ended(folder.path()).await;
}

#[tokio::test]
async fn a_dropped_connection_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    drop(connect(spec(folder.path()), options()).await.unwrap());
    ended(folder.path()).await;
    assert_eq!(pids(&folder.path().join("pids")).len(), 1);
}

/// A turn that fails, or panics, leaves nothing either.
#[tokio::test]
async fn a_turn_closes_its_connection_whatever_comes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let failed = with_connection(spec(folder.path()), options(), async |connection| {
        call(connection, "nope", "{}").await
    });
    let result = failed.await.unwrap();
    assert!(matches!(result, Err(CallFault::UnknownTool { .. })), "{result:?}");
    assert!(
        pids(&folder.path().join("pids"))
            .into_iter()
            .all(|pid| !is_alive(pid))
    );

    let spec = spec(folder.path());
    let panicked = tokio::spawn(with_connection(spec, options(), async |_: &Connection| {
        panic!("a bad turn")
    }));
    assert!(panicked.await.unwrap_err().is_panic());
    ended(folder.path()).await;
}

/// Process groups, and which processes led one.
#[derive(Debug, Default, Clone)]
struct Noting(Arc<Mutex<Vec<u32>>>);

impl Spawner for Noting {
    fn spawn<'a>(
        &'a self,
        plan: &'a SpawnPlan,
        stop: StopSequence,
    ) -> BoxFuture<'a, io::Result<SpawnedProcess>> {
        Box::pin(async move {
            let spawned = GroupSpawner.spawn(plan, stop).await?;
            self.0.lock().unwrap().push(spawned.process.pid());
            Ok(spawned)
        })
    }
}

#[tokio::test]
async fn what_cannot_be_connected_to_says_why_and_leaves_nothing() {
    let sh = Path::new("/bin/sh");
    let loud = stdio("loud", sh, &["-c", "echo 'no licence' >&2; exit 9"]);
    let mut off = loud.clone();
    off.enabled = false;
    let mut slow = stdio("slow", sh, &["-c", "exec sleep 600"]);
    slow.timeouts.connect = Duration::from_millis(50);
    for (spec, told, processes) in [
        (
            loud,
            "`loud` cannot be connected to: the handshake failed: the server ended (exit status: 9); it wrote `no licence`",
            1,
        ),
        (
            off,
            "`loud` cannot be connected to: it is disabled by its definition",
            0,
        ),
        (slow, "the handshake took over 0.05 s", 1),
    ] {
        let noting = Noting::default();
        let mut options = options();
        options.spawner = Arc::new(noting.clone());
        let began = Instant::now();
        let error = connect(spec, options).await.unwrap_err();
        let alive: Vec<_> = noting
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|pid| is_alive(*pid))
            .collect();
        assert_eq!(alive, vec![false; processes], "{error}");
        assert!(matches!(error, SupervisorError::Connect { .. }), "{error:?}");
        assert!(error.to_string().contains(told), "{error}");
        assert!(began.elapsed() < AT_ONCE, "once, and no more");
    }
}
