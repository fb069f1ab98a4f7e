//! The router over real servers: this very program, started again, plays them.

#![expect(clippy::unwrap_used, reason = "these are tests")]

mod approvals;
mod calls;
mod elicitation;
mod events;
mod large;
mod pins;
mod table;
mod watch;

use std::{process::ExitCode, sync::Arc, time::Duration};

use portcullis_blobs::{BlobStore, MemStore, TagName};
use portcullis_config::{
    Origin, Protocol, ServerSpec, Sources, StdioSpec, Template, Timeouts, TransportSpec,
};
use portcullis_policy::{DecisionPoint, PolicyFile};
use portcullis_router::{
    ApprovalHandler, BlobTag, CallError, CallOutcome, CallRequest, EventRecord, EventStream, Keeping, Router,
    RouterOptions, ShapeOptions,
};
use portcullis_supervisor::LifecycleOptions;
use portcullis_testkit::{Script, serve_stdio};
use portcullis_types::{AgentId, Tier};
use tokio::time::timeout;

const SCRIPT: &str = "SCRIPT";
const PATIENCE: Duration = Duration::from_secs(20);

/// No test by itself: the other tests start this program again, with a script, as their server.
#[test]
fn scripted_server() -> ExitCode {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the edge of the scripted server's own process"
    )]
    let Ok(script) = std::env::var(SCRIPT) else {
        return ExitCode::SUCCESS;
    };
    serve_stdio(&Script::from_json(&script).unwrap())
}

struct Host;

impl Sources for Host {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn file(&self, _: &str) -> Option<String> {
        None
    }
}

fn scripted(script: &Script) -> ServerSpec {
    let args = [
        "--exact",
        "scripted_server",
        "--nocapture",
        "-q",
        "--test-threads=2",
    ];
    ServerSpec {
        id: script.name.parse().unwrap(),
        display_name: script.name.clone(),
        description: None,
        transport: TransportSpec::Stdio(StdioSpec {
            program: std::env::current_exe().unwrap(),
            args: args.map(Template::literal).to_vec(),
            env: [(SCRIPT.to_owned(), Template::literal(&script.to_json()))].into(),
            inherit_env: [].into(),
            cwd: None,
        }),
        timeouts: Timeouts::uniform(PATIENCE),
        protocol: Protocol::Initialize,
        enabled: true,
        disabled_tools: ["off".to_owned()].into(),
        disabled_auto_approve_tools: ["floored".to_owned()].into(),
        origin: Origin::default(),
        isolation: Default::default(),
        limits: Default::default(),
        profile: Default::default(),
    }
}

/// What a router is started with in these tests.
fn options(rules: &str, approval: Option<Arc<dyn ApprovalHandler>>) -> RouterOptions {
    let rules = PolicyFile {
        name: "team.rules".to_owned(),
        text: rules.to_owned(),
    };
    RouterOptions {
        egress: None,
        policy_folder: None,
        keeping: Keeping::default(),
        policies: Arc::new(DecisionPoint::load(&[rules]).unwrap()),
        store: Arc::new(MemStore::default()),
        blob_tag: Some(BlobTag {
            name: TagName::session("router").unwrap(),
            life: None,
        }),
        shape: ShapeOptions::default(),
        approval,
        elicitation: None,
        agent: AgentId::default(),
        tier: Tier::RequestApproval,
        sources: Arc::new(Host),
        lifecycle: Some(LifecycleOptions {
            base: Duration::from_millis(20),
            cap: Duration::from_millis(40),
            ..LifecycleOptions::default()
        }),
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
