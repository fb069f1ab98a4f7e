//! The router over real servers: this very program, started again, plays them.

#![expect(clippy::unwrap_used, reason = "these are tests")]

mod approvals;
mod calls;
mod deadlines;
mod elicitation;
mod events;
mod large;
mod pins;
mod table;
mod watch;

#[expect(dead_code, reason = "other tests make more of it")]
#[path = "../shared/odd_store.rs"]
mod odd_store;

use std::{process::ExitCode, sync::Arc, time::Duration};

use portcullis_blobs::{BlobStore, MemStore, TagName};
use portcullis_config::{NoEnvironment, Protocol, ServerSpec, StdioSpec, Template, Timeouts};
use portcullis_policy::{DecisionPoint, PolicyFile};
use portcullis_router::{
    ApprovalHandler, BlobTag, CallError, CallOutcome, CallRequest, EventRecord, EventStream, Keeping, Router,
    RouterOptions, ShapeOptions,
};
use portcullis_supervisor::LifecycleOptions;
use portcullis_testkit::{OwnServer, Script, play_given};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// What the other tests start as their servers. No test by itself.
#[test]
fn scripted_server() -> ExitCode {
    play_given()
}

fn scripted(script: &Script) -> ServerSpec {
    let own = OwnServer::new("scripted_server", script).unwrap();
    let (name, value) = own.variable;
    let stdio = StdioSpec {
        env: [(name, Template::literal(&value))].into(),
        ..StdioSpec::new(own.program, own.args)
    };
    ServerSpec {
        timeouts: Timeouts::uniform(PATIENCE),
        protocol: Protocol::Initialize,
        disabled_tools: ["off".to_owned()].into(),
        disabled_auto_approve_tools: ["floored".to_owned()].into(),
        ..ServerSpec::new(script.name.parse().unwrap(), stdio)
    }
}

/// What a router is started with in these tests.
fn options(rules: &str, approval: Option<Arc<dyn ApprovalHandler>>) -> RouterOptions {
    let rules = PolicyFile {
        name: "team.rules".to_owned(),
        text: rules.to_owned(),
    };
    let policies = Arc::new(DecisionPoint::load(&[rules]).unwrap());
    RouterOptions {
        blob_tag: Some(BlobTag {
            name: TagName::session("router").unwrap(),
            life: None,
        }),
        approval,
        lifecycle: Some(LifecycleOptions {
            base: Duration::from_millis(20),
            cap: Duration::from_millis(40),
            ..LifecycleOptions::default()
        }),
        ..RouterOptions::new(policies, Arc::new(MemStore::default()), Arc::new(NoEnvironment))
    }
}

struct Rig {
    router: Arc<Router>,
    events: EventStream,
    heard: Vec<Arc<EventRecord>>,
}

impl Rig {
    /// `script` under `rules`, with `approval` to ask. All servers are up, and the events of that are heard.
    async fn start(script: &Script, rules: &str, approval: Option<Arc<dyn ApprovalHandler>>) -> Self {
        Self::start_spec(scripted(script), rules, approval).await
    }

    async fn start_spec(spec: ServerSpec, rules: &str, approval: Option<Arc<dyn ApprovalHandler>>) -> Self {
        Self::start_options(spec, options(rules, approval)).await
    }

    async fn start_keeping(
        spec: ServerSpec,
        rules: &str,
        approval: Option<Arc<dyn ApprovalHandler>>,
        keeping: Keeping,
    ) -> Self {
        let options = RouterOptions {
            keeping,
            ..options(rules, approval)
        };
        Self::start_options(spec, options).await
    }

    async fn start_on(
        store: Arc<dyn BlobStore>,
        shape: ShapeOptions,
        spec: ServerSpec,
        rules: &str,
        approval: Option<Arc<dyn ApprovalHandler>>,
    ) -> Self {
        let options = RouterOptions {
            store,
            shape,
            ..options(rules, approval)
        };
        Self::start_options(spec, options).await
    }

    async fn start_options(spec: ServerSpec, options: RouterOptions) -> Self {
        let router = Arc::new(Router::start(vec![spec], options).await.unwrap());
        let mut rig = Self {
            events: router.events(),
            heard: Vec::new(),
            router,
        };
        rig.router.settled().await;
        rig.until(|event| event["event"] == "server.state" && event["to"] != "connecting")
            .await;
        rig
    }

    async fn call(&self, tool: &str, arguments: &str) -> Result<CallOutcome, CallError> {
        let capability = format!("mcp.s.{tool}").parse().unwrap();
        timeout(
            PATIENCE,
            self.router.call(CallRequest::new(capability, arguments)),
        )
        .await
        .unwrap()
    }

    /// The code of the error that a call ends with.
    async fn refusal(&self, tool: &str) -> &'static str {
        self.call(tool, "{}").await.unwrap_err().code()
    }

    /// Hears events until one is as wanted.
    async fn until(&mut self, wanted: impl Fn(&serde_json::Value) -> bool) {
        loop {
            let record = timeout(PATIENCE, self.events.next()).await.unwrap().unwrap();
            self.heard.push(Arc::clone(&record));
            if wanted(&serde_json::to_value(&*record).unwrap()) {
                return;
            }
        }
    }

    /// The events of calls since this was last asked, as JSON.
    fn told(&mut self) -> Vec<serde_json::Value> {
        let fresh: Vec<_> = std::iter::from_fn(|| self.events.try_next()).collect();
        self.heard.extend(fresh.iter().cloned());
        let json = fresh
            .iter()
            .map(|record| serde_json::to_value(&**record).unwrap());
        json.filter(|event| event.get("call").is_some()).collect()
    }
}

/// Runs with one thread that may block, so that a test can keep it busy.
fn with_one_blocking_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build();
    runtime.unwrap().block_on(test);
}
