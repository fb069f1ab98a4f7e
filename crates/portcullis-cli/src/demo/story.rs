use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use portcullis::{
    ApprovalHandler, ApprovalRequest, CallError, CallOutcome, Catalog, DecidedBy, Event, EventStream, Hash,
    Hub, PersonAnswer, ServerId, ServerState,
};
use portcullis_testkit::demo::PICTURE_BYTES;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::teller::Teller;

/// How long any one step may take.
const STEP: Duration = Duration::from_secs(8);
/// How often it is looked whether all is gone.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The person at the demo's desk.
#[derive(Debug)]
pub(super) struct ApproveAndSay(pub(super) Teller);

impl ApprovalHandler for ApproveAndSay {
    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        self.0.aside(&format!(
            "asked: may {} run with {}?  The demo says yes.",
            request.capability, request.arguments
        ));
        Box::pin(std::future::ready(PersonAnswer::Allow))
    }
}

/// The demo, step by step.
pub(super) struct Story {
    hub: Hub,
    teller: Teller,
    pids: Arc<Mutex<BTreeSet<u32>>>,
    watch: JoinHandle<()>,
    began: Instant,
}

impl Story {
    pub(super) fn new(hub: Hub, teller: Teller) -> Self {
        let pids = Arc::default();
        let watch = tokio::spawn(watch(hub.events(), teller.clone(), Arc::clone(&pids)));
        Self {
            hub,
            teller,
            pids,
            watch,
            began: Instant::now(),
        }
    }

    /// Tells it all but the end.
    pub(super) async fn tell(&self) {
        self.come_up().await;
        self.show_catalog();
        self.allowed().await;
        self.asked().await;
        self.denied().await;
        self.picture().await;
        self.crash().await;
    }

    /// Stops the servers and looks whether they are gone; true if each step of the story went as told.
    pub(super) async fn close(self) -> bool {
        self.teller.chapter("The gate closes");
        let stopped = self.hub.shutdown().await;
        // The hub is gone, so its events end; the last of them are still told.
        let _ = timeout(STEP, self.watch).await;
        self.teller.step(
            "stopped",
            stopped.is_ok(),
            "every server was told to stop, and did",
        );
        gone(&self.teller, &self.pids).await;
        if self.teller.all_went_well() {
            let seconds = self.began.elapsed().as_secs_f64();
            self.teller
                .aside(&format!("That was the main job, in {seconds:.1} s."));
        }
        self.teller.all_went_well()
    }

    async fn come_up(&self) {
        self.teller
            .chapter("Four servers come up side by side; one of them never answers");
        let ready = |catalog: &Catalog| {
            ["notes", "pictures", "crashy"]
                .iter()
                .all(|name| state(catalog, name) == Some(ServerState::Ready))
        };
        let up = self.wait_for(ready).await;
        let catalog = self.hub.catalog();
        for (id, server) in catalog.servers() {
            let more = if server.state == ServerState::Ready {
                format!(", {} tools", server.tools)
            } else {
                String::new()
            };
            self.teller
                .aside(&format!("{:<9} {}{more}", id.to_string(), server.state));
        }
        let told = format!(
            "three are ready after {} ms; nobody waited for the fourth",
            self.began.elapsed().as_millis()
        );
        self.teller.step(
            "servers",
            up && state(&catalog, "stuck") == Some(ServerState::Connecting),
            &told,
        );
    }

    fn show_catalog(&self) {
        self.teller
            .chapter("One catalog: a name for policies and people, an alias for the model");
        let catalog = self.hub.catalog();
        for tool in catalog.tools() {
            let answer = self.hub.outlook(tool).answer.to_string();
            self.teller.aside(&format!(
                "{answer:<5} {:<24} {}",
                tool.capability.to_string(),
                tool.alias
            ));
        }
        let aliases = catalog
            .tools()
            .all(|tool| catalog.resolve_alias(tool.alias.as_str()) == Some(&tool.capability));
        let told = format!(
            "{} tools, each alias leads back to its tool",
            catalog.tools().count()
        );
        self.teller
            .step("catalog", aliases && catalog.tools().count() == 8, &told);
    }

    async fn allowed(&self) {
        self.teller.chapter("A call that the policies allow");
        match self.call("mcp.notes.list_notes", json!({})).await {
            Ok(outcome) => {
                let notes = text(&outcome).replace('\n', ", ");
                self.teller.step(
                    "allowed",
                    notes.contains("siege plans"),
                    &format!("mcp.notes.list_notes: {notes}"),
                );
            }
            Err(error) => self.teller.step("allowed", false, &error.to_string()),
        }
    }

    async fn asked(&self) {
        self.teller.chapter("A call that a person has to approve");
        match self
            .call(
                "mcp.notes.write_note",
                json!({"title": "drawbridge", "text": "oil the chains"}),
            )
            .await
        {
            Ok(outcome) => {
                let by_person = outcome.approved_by == Some(DecidedBy::Person);
                let by = if by_person {
                    "a person"
                } else {
                    "nobody who was asked"
                };
                let told = format!("approved by {by}: {}", text(&outcome));
                self.teller.step("asked", by_person, &told);
            }
            Err(error) => self.teller.step("asked", false, &error.to_string()),
        }
    }

    async fn denied(&self) {
        self.teller.chapter("A call that the policies deny");
        let result = self
            .call("mcp.notes.delete_note", json!({"title": "siege plans"}))
            .await;
        let policy = match &result {
            Err(CallError::Denied { explanation, .. }) => explanation.decision.policies.first(),
            _ => None,
        };
        let told = match (policy, &result) {
            (Some(policy), _) => {
                format!(
                    "mcp.notes.delete_note: denied by {}:{}: {}",
                    policy.file, policy.line, policy.description
                )
            }
            (None, Ok(_)) => "mcp.notes.delete_note ran, and should not have".to_owned(),
            (None, Err(error)) => error.to_string(),
        };
        self.teller
            .step("denied", policy.is_some_and(|policy| policy.line > 0), &told);
    }

    async fn picture(&self) {
        self.teller
            .chapter("A picture of 5 MiB: it goes to the store, a reference goes to the model");
        let outcome = match self.call("mcp.pictures.render", json!({})).await {
            Ok(outcome) => outcome,
            Err(error) => return self.teller.step("picture", false, &error.to_string()),
        };
        let Some(info) = outcome.result.blobs.first() else {
            return self.teller.step("picture", false, "nothing went to the store");
        };
        let stored = self.hub.blob(info.blob).await;
        let right = stored
            .as_ref()
            .is_ok_and(|bytes| bytes.len() as u64 == PICTURE_BYTES && Hash::of(bytes) == info.blob.0);
        let told = format!(
            "{}, {} of {} bytes; the model's part is {} bytes",
            info.blob, info.media_type, info.size_bytes, outcome.result.size_bytes
        );
        self.teller
            .step("picture", right && outcome.result.size_bytes < 4_096, &told);
    }

    async fn crash(&self) {
        self.teller.chapter("A server dies in the middle of a call");
        let before = pid(&self.hub.catalog(), "crashy");
        let (died, meanwhile) = tokio::join!(
            self.call("mcp.crashy.die", json!({})),
            self.call("mcp.notes.read_note", json!({"title": "groceries"})),
        );
        let (told, unknown) = match &died {
            Ok(_) => ("mcp.crashy.die came back".to_owned(), false),
            Err(error) => (error.to_string(), error.code() == "outcome-unknown"),
        };
        self.teller
            .step("outcome-unknown", unknown, &format!("its caller is told: {told}"));
        let others = meanwhile.as_ref().is_ok_and(|outcome| !outcome.result.is_error);
        self.teller.step(
            "undisturbed",
            others,
            "meanwhile mcp.notes.read_note ran as if nothing were",
        );
        let back = self
            .wait_for(|catalog| {
                state(catalog, "crashy") == Some(ServerState::Ready) && pid(catalog, "crashy") != before
            })
            .await;
        let alive = self.call("mcp.crashy.alive", json!({})).await;
        let told = match (&alive, pid(&self.hub.catalog(), "crashy")) {
            (Ok(outcome), Some(pid)) => format!(
                "after its back-off it is back as process {pid}: {}",
                text(outcome)
            ),
            (Ok(_), None) => "it is back, but nobody knows its process".to_owned(),
            (Err(error), _) => error.to_string(),
        };
        self.teller.step("restarted", back && alive.is_ok(), &told);
    }

    async fn call(&self, capability: &str, arguments: Value) -> Result<CallOutcome, CallError> {
        self.hub.call(capability, &arguments).await
    }

    async fn wait_for(&self, mut condition: impl FnMut(&Catalog) -> bool) -> bool {
        let mut changes = self.hub.router().catalog_changes();
        timeout(STEP, changes.wait_for(|catalog| condition(catalog)))
            .await
            .is_ok_and(|seen| seen.is_ok())
    }
}

/// Passes events on, and remembers each process that ever was.
async fn watch(mut events: EventStream, teller: Teller, pids: Arc<Mutex<BTreeSet<u32>>>) {
    while let Some(record) = events.next().await {
        if let Event::ServerState { pid: Some(pid), .. } = &record.event {
            pids.lock().unwrap_or_else(PoisonError::into_inner).insert(*pid);
        }
        teller.event(&record);
    }
}

/// All children are gone: those that were seen, and any that this process still has, the hung server's for one. The warden
/// ends by itself, a moment after the last server.
async fn gone(teller: &Teller, pids: &Mutex<BTreeSet<u32>>) {
    let seen = pids.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let until = Instant::now() + STEP;
    let left = loop {
        let mut left: Vec<_> = seen.iter().copied().filter(|pid| is_alive(*pid)).collect();
        left.extend(children());
        if left.is_empty() || Instant::now() >= until {
            break left;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    let told = match left.as_slice() {
        [] => format!(
            "of {} processes that came up none is left, nor the one that never did",
            seen.len()
        ),
        left => format!("still there: {left:?}"),
    };
    // Three came up, and one of them a second time.
    teller.step("gone", left.is_empty() && seen.len() >= 4, &told);
}

/// This process's children, where the system tells: proc(5), `/proc/PID/task/TID/children`.
fn children() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

fn state(catalog: &Catalog, name: &str) -> Option<ServerState> {
    let id: ServerId = name.parse().ok()?;
    Some(catalog.servers().get(&id)?.state)
}

fn pid(catalog: &Catalog, name: &str) -> Option<u32> {
    let id: ServerId = name.parse().ok()?;
    catalog.servers().get(&id)?.pid
}

/// The text of a result's first block.
fn text(outcome: &CallOutcome) -> String {
    let result: Value = serde_json::from_str(outcome.result.result.get()).unwrap_or_default();
    result
        .pointer("/content/0/text")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
