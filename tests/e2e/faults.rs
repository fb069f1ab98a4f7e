//! Servers that fail, through `Hub`: only their own calls feel it.

use std::time::Duration;

use portcullis::{
    Catalog, Document, Event, EventStream, Hub, LifecycleOptions, PolicyFile, ServerId, ServerState,
};
use portcullis_e2e::{DEADLINE, Folder, check_gone, pids};
use portcullis_testkit::{Behaviour, CrashPoint, Handshake, Process, Script, Tool};
use serde_json::json;
use tokio::time::timeout;

use crate::document;

/// A hub of scripted servers under these rules.
pub(crate) async fn start(servers: &[(&str, Script)], rules: &str) -> Hub {
    let rules = PolicyFile {
        name: "test.rules".to_owned(),
        text: rules.to_owned(),
    };
    // Back-off as short as it can be: what is tested is what happens, not how long it takes.
    let lifecycle = LifecycleOptions {
        base: Duration::from_millis(20),
        cap: Duration::from_millis(40),
        ..LifecycleOptions::default()
    };
    Hub::builder()
        .document(Document::new("mcp.json", document(servers)))
        .policy_files([rules])
        .lifecycle(lifecycle)
        .start()
        .await
        .unwrap()
}

/// Waits until the catalog is as wanted.
pub(crate) async fn until(hub: &Hub, mut wanted: impl FnMut(&Catalog) -> bool) {
    let mut changes = hub.router().catalog_changes();
    let seen = timeout(DEADLINE, changes.wait_for(|catalog| wanted(catalog))).await;
    assert!(
        seen.is_ok_and(|seen| seen.is_ok()),
        "the catalog never came to be as wanted: {:?}",
        hub.catalog()
    );
}

pub(crate) fn state(catalog: &Catalog, server: &str) -> ServerState {
    catalog.servers()[&server.parse::<ServerId>().unwrap()].state
}

/// All states that a server went through until now, as `from>to`.
fn states(events: &mut EventStream, wanted: &str) -> Vec<String> {
    let mut states = Vec::new();
    while let Some(record) = events.try_next() {
        if let Event::ServerState { server, from, to, .. } = &record.event
            && server.as_str() == wanted
        {
            states.push(format!("{from}>{to}"));
        }
    }
    states
}

fn text(outcome: &portcullis::CallOutcome) -> String {
    let result: serde_json::Value = serde_json::from_str(outcome.result.result.get()).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

const ALL: &str = "default deny\nallow mcp.*\n";

fn well(folder: &Folder) -> Script {
    Script::new("well")
        .process(Process {
            pid_file: Some(folder.path("well")),
            ..Process::default()
        })
        .tool(Tool::new("pid", Behaviour::Pid))
}

fn crashy(folder: &Folder) -> Script {
    let die = |point| Behaviour::record(folder.path("acted"), Behaviour::Crash { code: 70, point });
    Script::new("crashy")
        .process(Process {
            pid_file: Some(folder.path("crashy")),
            ..Process::default()
        })
        .tool(Tool::new("die", die(CrashPoint::BeforeReply)))
        .tool(Tool::new("die_halfway", die(CrashPoint::MidReply)))
        .tool(Tool::new("pid", Behaviour::Pid))
}

/// Field reports 30, 39, 40 and 57.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hangs_one_crashes_and_the_one_that_is_well_notices_nothing() {
    let folder = Folder::new();
    let servers = [
        ("well", well(&folder)),
        ("crashy", crashy(&folder)),
        ("stuck", Script::new("stuck").handshake(Handshake::Hang)),
    ];
    let hub = start(&servers, ALL).await;
    let mut events = hub.events();
    until(&hub, |catalog| {
        state(catalog, "well") == ServerState::Ready && state(catalog, "crashy") == ServerState::Ready
    })
    .await;
    assert_eq!(
        state(&hub.catalog(), "stuck"),
        ServerState::Connecting,
        "nobody waited for it"
    );
    let before = text(&hub.call("mcp.well.pid", &json!({})).await.unwrap());

    // The first way up takes a process for each of the handshakes that are tried.
    let (mut starts, well) = (pids(&folder.path("crashy")).len(), pids(&folder.path("well")));
    for (tool, code) in [("die", "outcome-unknown"), ("die_halfway", "bad-reply")] {
        let capability = format!("mcp.crashy.{tool}");
        let arguments = json!({});
        let (died, beside) = tokio::join!(
            hub.call(&capability, &arguments),
            hub.call("mcp.well.pid", &arguments)
        );
        let died = died.unwrap_err();
        assert_eq!(died.code(), code, "{died}");
        assert_eq!(text(&beside.unwrap()), before);
        // A call that comes while the server is away waits for its return.
        let back = text(&hub.call("mcp.crashy.pid", &arguments).await.unwrap());
        let crashy = pids(&folder.path("crashy"));
        starts += 1;
        assert_eq!(crashy.len(), starts, "one start for each death: {crashy:?}");
        assert_eq!(back, crashy.last().unwrap().to_string());
    }
    let acted = std::fs::read_to_string(folder.path("acted")).unwrap();
    assert_eq!(
        acted.lines().count(),
        2,
        "a call whose outcome is unknown is never sent again: {acted}"
    );
    assert_eq!(
        pids(&folder.path("well")),
        well,
        "the one that is well was not restarted"
    );
    let after = text(&hub.call("mcp.well.pid", &json!({})).await.unwrap());
    assert_eq!(after, before);
    // What came before it was ready may still have been on its way.
    let changes = states(&mut events, "well");
    let away = changes.iter().find(|change| change.starts_with("ready>"));
    assert_eq!(away, None, "and it was ready all the time: {changes:?}");
    hub.shutdown().await.unwrap();
    for file in ["well", "crashy"] {
        check_gone(&pids(&folder.path(file)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_shows_as_events_with_its_reason() {
    let folder = Folder::new();
    let hub = start(&[("crashy", crashy(&folder))], ALL).await;
    hub.settled().await;
    let mut events = hub.events();
    hub.call("mcp.crashy.die", &json!({})).await.unwrap_err();
    let came_back = async {
        let mut seen = Vec::new();
        while let Some(record) = events.next().await {
            if let Event::ServerState { to, reason, .. } = &record.event {
                // What came before the crash may still be on its way.
                if !seen.is_empty() || *to == ServerState::BackingOff {
                    seen.push((*to, reason.clone()));
                }
                if *to == ServerState::Ready && !seen.is_empty() {
                    break;
                }
            }
        }
        seen
    };
    let seen = timeout(DEADLINE, came_back).await.unwrap();
    let order: Vec<_> = seen.iter().map(|(to, _)| *to).collect();
    assert_eq!(
        order,
        [
            ServerState::BackingOff,
            ServerState::Connecting,
            ServerState::Ready
        ],
        "{seen:?}"
    );
    assert!(seen[0].1.contains("70"), "the exit code is told: {seen:?}");
    hub.shutdown().await.unwrap();
}

/// Field report 38, the first half: five failures in a row park it, and a call of it fails at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_comes_up_is_parked_and_says_why() {
    let script = Script::new("dead").handshake(Handshake::ExitAtStart { code: 9 });
    let hub = start(&[("dead", script)], ALL).await;
    let mut events = hub.events();
    until(&hub, |catalog| state(catalog, "dead") == ServerState::Parked).await;
    let states = states(&mut events, "dead");
    let failures = states
        .iter()
        .filter(|change| change.ends_with(">backing_off"))
        .count();
    assert_eq!(failures, 4, "and the fifth parks it: {states:?}");
    let error = hub.call("mcp.dead.anything", &json!({})).await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains("parked"), "{error}");
    hub.shutdown().await.unwrap();
}

/// The figure of ten servers, as an order of events: nine are ready while the tenth has not said a word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nine_servers_are_ready_while_the_tenth_never_answers() {
    let names: Vec<_> = (0..10).map(|number| format!("s{number}")).collect();
    let servers: Vec<_> = names
        .iter()
        .map(|name| {
            let script = Script::new(name).tool(Tool::new("hello", Behaviour::Text(name.clone())));
            let handshake = if name == "s4" {
                Handshake::Hang
            } else {
                Handshake::Answer
            };
            (name.as_str(), script.handshake(handshake))
        })
        .collect();
    let hub = start(&servers, ALL).await;
    let ready = |catalog: &Catalog| {
        catalog
            .servers()
            .values()
            .filter(|server| server.state == ServerState::Ready)
            .count()
    };
    until(&hub, |catalog| ready(catalog) == 9).await;
    assert_eq!(state(&hub.catalog(), "s4"), ServerState::Connecting);
    for name in names.iter().filter(|name| *name != "s4") {
        let outcome = hub.call(&format!("mcp.{name}.hello"), &json!({})).await.unwrap();
        assert_eq!(text(&outcome), *name);
    }
    assert_eq!(
        state(&hub.catalog(), "s4"),
        ServerState::Connecting,
        "it held nobody up"
    );
    hub.shutdown().await.unwrap();
}
