//! The whole crate against real processes: this very program, started again as a scripted server.

mod calls;
mod cases;
mod closing;
mod life;
mod lists;
mod orders;
mod over_http;
mod single;
mod stop;

use std::{collections::BTreeMap, path::Path, process::ExitCode, sync::Arc, time::Duration};

use portcullis_config::{
    Profile, Protocol, ServerSpec, Sources, StdioSpec, Template, Timeouts, TransportSpec,
};
use portcullis_testkit::{OwnServer, Script, play_given};
use portcullis_types::ServerId;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use crate::{
    CallFault, LifecycleOptions, Ready, ServerState, StopSequence, Supervisor, SupervisorEvent,
    SupervisorOptions, ToolList, Upstream, server::ServerMessage,
};

/// How long anything may take here before it counts as never: generous, since machines are slow at times.
const PATIENCE: Duration = Duration::from_secs(20);
/// What "at once" may take, on such a machine.
const AT_ONCE: Duration = Duration::from_secs(2);

/// What the other tests start as their servers. No test by itself.
#[test]
fn scripted_server() -> ExitCode {
    play_given()
}

/// A hub's surroundings with little in them, and a canary that no server may see.
struct Host;

impl Sources for Host {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "PATH" => Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
            "CANARY" => Some("tweet".to_owned()),
            _ => None,
        }
    }

    fn file(&self, _: &str) -> Option<String> {
        None
    }
}

fn stdio(id: &str, program: &Path, args: &[&str]) -> ServerSpec {
    of_older_era(id, StdioSpec::new(program, args))
}

fn of_older_era(id: &str, transport: impl Into<TransportSpec>) -> ServerSpec {
    ServerSpec {
        timeouts: Timeouts::uniform(PATIENCE),
        protocol: Protocol::Initialize,
        ..ServerSpec::new(id.parse().unwrap(), transport)
    }
}

/// A server that plays `script`, spoken to in the older era unless the spec is changed.
fn scripted(script: &Script) -> ServerSpec {
    let own = OwnServer::new("tests::scripted_server", script).unwrap();
    let (name, value) = own.variable;
    let stdio = StdioSpec {
        env: [(name, Template::literal(&value))].into(),
        ..StdioSpec::new(own.program, own.args)
    };
    of_older_era(&script.name, stdio)
}

/// The same, given a key in its environment.
fn given(script: &Script, key: &str) -> ServerSpec {
    let mut spec = scripted(script);
    if let TransportSpec::Stdio(stdio) = &mut spec.transport {
        stdio.env.insert("API_KEY".to_owned(), Template::literal(key));
    }
    spec
}

/// A log whose lines a test may wait for.
#[derive(Clone)]
struct Log(mpsc::UnboundedSender<String>);

impl std::io::Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What this crate logs on this thread, as long as the first is held.
pub(crate) fn logged() -> (tracing::subscriber::DefaultGuard, mpsc::UnboundedReceiver<String>) {
    let (tell, lines) = mpsc::unbounded_channel();
    let log = Log(tell);
    // The SDK's own lines hold whole messages.
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("portcullis_supervisor=debug")
        .with_ansi(false)
        .with_writer(move || log.clone());
    (tracing::subscriber::set_default(subscriber.finish()), lines)
}

/// Waits for the line that holds `words`.
async fn line_with(lines: &mut mpsc::UnboundedReceiver<String>, words: &str) -> String {
    let found = async {
        loop {
            let line = lines.recv().await.unwrap();
            if line.contains(words) {
                break line;
            }
        }
    };
    timeout(PATIENCE, found).await.unwrap()
}

/// A running supervisor, and what it has told so far.
struct Rig {
    supervisor: Supervisor,
    events: mpsc::UnboundedReceiver<SupervisorEvent>,
    heard: Vec<SupervisorEvent>,
}

/// A call was not taken, since its server is in this state.
#[track_caller]
fn check_unavailable(fault: &CallFault, expected: ServerState) {
    assert!(
        matches!(fault, CallFault::Unavailable { state, .. } if *state == expected),
        "{fault:?}"
    );
}

impl Rig {
    async fn start(specs: impl IntoIterator<Item = ServerSpec>) -> Self {
        Self::start_with(specs, |_| {}).await
    }

    async fn start_with(
        specs: impl IntoIterator<Item = ServerSpec>,
        change: impl FnOnce(&mut SupervisorOptions),
    ) -> Self {
        let mut options = SupervisorOptions::new(Arc::new(Host));
        options.lifecycle = LifecycleOptions {
            base: Duration::from_millis(20),
            cap: Duration::from_millis(40),
            ..LifecycleOptions::default()
        };
        options.stop = StopSequence {
            after_eof: Duration::from_millis(500),
            after_term: Duration::from_millis(500),
        };
        change(&mut options);
        let (tell, events) = mpsc::unbounded_channel();
        let supervisor = Supervisor::start(specs.into_iter().collect(), options, tell)
            .await
            .unwrap();
        Self {
            supervisor,
            events,
            heard: Vec::new(),
        }
    }

    fn upstream(&self, id: &str) -> &Upstream {
        self.supervisor.upstream(&server(id)).unwrap()
    }

    async fn ready(&self, id: &str) -> Ready {
        self.upstream(id)
            .ready(Instant::now() + PATIENCE, 0)
            .await
            .unwrap()
    }

    async fn call(&self, id: &str, tool: &str, arguments: &str) -> Result<String, CallFault> {
        let upstream = self.upstream(id);
        let ready = upstream.ready(Instant::now() + PATIENCE, 0).await?;
        ready.call(tool, arguments.into(), upstream.timeouts()).await
    }

    /// The text that a call gives.
    async fn text(&self, id: &str, tool: &str) -> String {
        text(&self.call(id, tool, "{}").await.unwrap())
    }

    /// The next event, or a failure that tells what came instead of what was waited for.
    async fn next(&mut self, what: &str) -> SupervisorEvent {
        match timeout(PATIENCE, self.events.recv()).await {
            Ok(Some(event)) => {
                self.heard.push(event.clone());
                event
            }
            _ => panic!("waited for {what} in vain; heard {:#?}", self.heard),
        }
    }

    /// Waits until `id` is in state `to`; the reason, and the process.
    async fn until(&mut self, id: &str, to: &str) -> (String, Option<u32>) {
        loop {
            if let SupervisorEvent::State {
                server,
                to: now,
                reason,
                pid,
                ..
            } = self.next(to).await
                && (server.as_str(), now.to_string().as_str()) == (id, to)
            {
                return (reason, pid);
            }
        }
    }

    /// How many tasks the actor of `id` holds; none where there is no actor just now.
    async fn tasks(&self, id: &str) -> Option<usize> {
        let (reply, count) = tokio::sync::oneshot::channel();
        self.supervisor.forward(&server(id), ServerMessage::Tasks(reply));
        timeout(PATIENCE, count).await.unwrap().ok()
    }

    /// Waits for the next list of `id`.
    async fn tools(&mut self, id: &str) -> (u64, Arc<ToolList>) {
        loop {
            if let SupervisorEvent::Tools {
                server,
                version,
                list,
            } = self.next("tools").await
                && server.as_str() == id
            {
                return (version, list);
            }
        }
    }
}

fn server(id: &str) -> ServerId {
    id.parse().unwrap()
}

/// The text of a result that is one text block.
fn text(result: &str) -> String {
    let result: serde_json::Value = serde_json::from_str(result).unwrap();
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {result}"))
        .to_owned()
}

fn names(list: &ToolList) -> Vec<&str> {
    list.tools.iter().map(|tool| tool.name.as_str()).collect()
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn pids(file: &Path) -> Vec<u32> {
    lines(file).iter().map(|line| line.parse().unwrap()).collect()
}

/// Whether a process is there. One that is dead and only waits to be reaped is not.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|state| state != "Z")
}

/// Resolves once a process is dead; whether it was reaped makes no difference.
async fn gone(pid: u32) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => return error == Errno::SRCH,
        };
        let patience = Timespec::try_from(PATIENCE).unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)) == Ok(1)
    });
    assert!(ended.await.unwrap(), "process {pid:?} is still there");
}

async fn all_gone(pids: &[u32]) {
    for pid in pids {
        gone(*pid).await;
    }
}

/// Looks again and again until `holds`, which no event tells of.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What is in the environment of a server, as it told in a result.
fn environment(result: &str) -> BTreeMap<String, String> {
    serde_json::from_str(&text(result)).unwrap()
}
