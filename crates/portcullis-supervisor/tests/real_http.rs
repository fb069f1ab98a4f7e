//! Real servers over HTTP: server-everything, and one of ours on FastMCP, with sessions and without.
//! `cargo xtask real-servers` installs them; without them these tests fail and say so.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use portcullis_config::{HttpSpec, NoEnvironment, Protocol, ServerSpec, Timeouts};
use portcullis_supervisor::{CallFault, Supervisor, SupervisorEvent, SupervisorOptions, Upstream};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use url::Url;

/// How long a server may take to start on a machine that is busy.
const START: Duration = Duration::from_secs(150);

/// A server's process; it ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

// Marked as tests from here on, so that they may unwrap as tests may.
#[cfg(test)]
fn installed(path: &str) -> PathBuf {
    let path = workspace().join("target/real-servers").join(path);
    assert!(
        path.exists(),
        "there is no {}: run `cargo xtask real-servers`",
        path.display()
    );
    path
}

#[cfg(test)]
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the servers of these tests are reached, not started, by the hub"
)]
fn start(program: &Path, arguments: &[&str], port: u16) -> Server {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Server(command.spawn().unwrap())
}

#[cfg(test)]
fn everything(port: u16) -> Server {
    start(
        &installed("node_modules/.bin/mcp-server-everything"),
        &["streamableHttp"],
        port,
    )
}

#[cfg(test)]
fn fastmcp(port: u16, mode: &str) -> Server {
    let script = workspace().join("tests/real-servers/fastmcp_server.py");
    let arguments = [script.to_str().unwrap(), &port.to_string(), mode];
    start(&installed("venv/bin/python"), &arguments, port)
}

struct Hub {
    supervisor: Supervisor,
    events: mpsc::UnboundedReceiver<SupervisorEvent>,
}

#[cfg(test)]
impl Hub {
    async fn new(port: u16, protocol: Protocol) -> Self {
        let url = Url::parse(&format!("http://127.0.0.1:{port}/mcp")).unwrap();
        let egress = vec![url.as_str().parse().unwrap()];
        let spec = ServerSpec {
            timeouts: Timeouts::uniform(Duration::from_secs(20)),
            protocol,
            ..ServerSpec::new("s".parse().unwrap(), HttpSpec::new(url, egress))
        };
        let (tell, events) = mpsc::unbounded_channel();
        let mut options = SupervisorOptions::new(Arc::new(NoEnvironment));
        // The server is still starting: each failure is one more look.
        options.lifecycle.cap = Duration::from_millis(500);
        options.lifecycle.park_after = 1_000;
        let supervisor = Supervisor::start(vec![spec], options, tell).await.unwrap();
        Self { supervisor, events }
    }

    fn upstream(&self) -> Upstream {
        self.supervisor.upstream(&"s".parse().unwrap()).unwrap().clone()
    }

    async fn state(&mut self, wanted: &str) {
        let mut last = String::new();
        let came = async {
            loop {
                if let SupervisorEvent::State { to, reason, .. } = self.events.recv().await.unwrap() {
                    if to.to_string() == wanted {
                        return;
                    }
                    last = format!("{to}: {reason}");
                }
            }
        };
        let came = timeout(START, came).await;
        assert!(came.is_ok(), "not {wanted}; last: {last}");
    }

    async fn call(&self, tool: &str, arguments: &str) -> Result<String, CallFault> {
        let upstream = self.upstream();
        let ready = upstream.ready(Instant::now() + START, 0).await?;
        ready.call(tool, arguments.into(), upstream.timeouts()).await
    }
}

#[tokio::test]
async fn server_everything_is_called_goes_away_and_comes_back() {
    let port = free_port();
    let server = everything(port);
    let mut hub = Hub::new(port, Protocol::Auto).await;
    hub.state("ready").await;
    let ready = hub.upstream().ready(Instant::now() + START, 0).await.unwrap();
    assert!(ready.tool("echo").is_some());
    let result = hub.call("echo", r#"{"message":"grüße"}"#).await.unwrap();
    assert!(result.contains("Echo: grüße"), "{result}");
    let calls = (0..20).map(|n| {
        let hub = &hub;
        async move {
            hub.call("get-sum", &format!(r#"{{"a":{n},"b":1}}"#))
                .await
                .unwrap()
        }
    });
    for (n, result) in futures::future::join_all(calls).await.into_iter().enumerate() {
        assert!(result.contains(&format!(" {}.", n + 1)), "{result}");
    }

    // Nobody calls: the stream that the server keeps open is what shows that it is gone.
    drop(server);
    hub.state("backing_off").await;
    let _server = everything(port);
    hub.state("ready").await;
    hub.call("echo", r#"{"message":"again"}"#).await.unwrap();
    assert!(hub.upstream().egress().connections > 1);
    hub.supervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn server_everything_is_called_by_the_era_that_it_speaks_and_says_so_of_the_other() {
    let port = free_port();
    let _server = everything(port);
    for protocol in [Protocol::Auto, Protocol::Initialize] {
        let mut hub = Hub::new(port, protocol).await;
        hub.state("ready").await;
        let result = hub.call("echo", r#"{"message":"hi"}"#).await.unwrap();
        assert!(result.contains("Echo: hi"), "{protocol:?}: {result}");
        hub.supervisor.shutdown().await.unwrap();
    }
    // It speaks the older era alone: held to the newer one, it is no server, and the reason is its own answer.
    let mut hub = Hub::new(port, Protocol::Modern).await;
    hub.state("backing_off").await;
    let fault = hub
        .upstream()
        .ready(Instant::now() + Duration::from_millis(200), 0)
        .await;
    assert!(fault.is_err());
    hub.supervisor.shutdown().await.unwrap();
}

#[cfg(test)]
async fn check_fastmcp(mode: &str) {
    let port = free_port();
    let _server = fastmcp(port, mode);
    for protocol in [Protocol::Initialize, Protocol::Auto] {
        let mut hub = Hub::new(port, protocol).await;
        hub.state("ready").await;
        let result = hub.call("add", r#"{"a":40,"b":2}"#).await.unwrap();
        assert!(result.contains("42"), "{mode} {protocol:?}: {result}");
        // A tool's own error is a result, not a fault.
        let result = hub.call("fail", r#"{"why":"because"}"#).await.unwrap();
        assert!(
            result.contains("isError") && result.contains("because"),
            "{mode} {protocol:?}: {result}"
        );
        let result = hub.call("count", r#"{"to":5}"#).await.unwrap();
        assert!(result.contains('5'), "{mode} {protocol:?}: {result}");
        hub.supervisor.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn fastmcp_with_sessions_is_called_in_both_eras() {
    check_fastmcp("stateful").await;
}

#[tokio::test]
async fn fastmcp_without_sessions_is_called_in_both_eras() {
    check_fastmcp("stateless").await;
}
