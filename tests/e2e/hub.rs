//! What embedders see of `Hub`: handlers, events, blobs.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use portcullis::{
    ApprovalHandler, ApprovalRequest, DecidedBy, Document, ElicitationHandler, ElicitationReply,
    ElicitationRequest, Event, Hash, HookAnswer, Hub, PersonAnswer, PolicyFile, ReloadOutcome, ServerId,
};
use portcullis_e2e::Folder;
use portcullis_testkit::{Behaviour, Script, Tool, pseudo_random};
use serde_json::json;

use crate::document;

const RULES: &str = "default deny\nask mcp.notes.write\nalways ask mcp.notes.burn\nallow mcp.notes.who\nallow \
                     mcp.notes.draw\nallow elicit mcp.*\n";

/// Answers as it is told, and counts the persons that were asked.
#[derive(Debug)]
struct Desk {
    hook: HookAnswer,
    person: PersonAnswer,
    asked: Arc<AtomicUsize>,
}

impl ApprovalHandler for Desk {
    fn hook<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, HookAnswer> {
        Box::pin(std::future::ready(self.hook.clone()))
    }

    fn person<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert_eq!(request.arguments, r#"{"title":"keys"}"#);
        assert_eq!(request.decision.policies[0].file, "notes.rules");
        Box::pin(std::future::ready(self.person.clone()))
    }
}

/// Says its name.
#[derive(Debug)]
struct Ada;

impl ElicitationHandler for Ada {
    fn elicit(&self, _: ServerId, _: ElicitationRequest) -> BoxFuture<'_, ElicitationReply> {
        Box::pin(async { ElicitationReply::Accept(Some(r#"{"name":"Ada"}"#.to_owned())) })
    }
}

fn notes(folder: &Folder) -> Script {
    let acts = |text: &str| Behaviour::record(folder.path("ran"), Behaviour::Text(text.to_owned()));
    Script::new("notes")
        .tool(Tool::new("write", acts("written")))
        .tool(Tool::new("burn", acts("ashes")))
        .tool(Tool::new("who", Behaviour::elicit("Who are you?")))
        .tool(Tool::new("draw", Behaviour::image(70_000, 3)))
}

fn builder(folder: &Folder) -> portcullis::HubBuilder {
    let rules = PolicyFile {
        name: "notes.rules".to_owned(),
        text: RULES.to_owned(),
    };
    Hub::builder()
        .document(Document::new("mcp.json", document(&[("notes", notes(folder))])))
        .policy_files([rules])
}

/// `outcome` is who approved it, or the code of the error.
async fn check(
    tool: &str,
    hook: HookAnswer,
    person: PersonAnswer,
    outcome: Result<DecidedBy, &str>,
    persons: usize,
) {
    let folder = Folder::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let desk = Desk {
        hook,
        person,
        asked: Arc::clone(&asked),
    };
    let hub = builder(&folder).approval(desk).start().await.unwrap();
    let mut events = hub.events();
    let called = hub
        .call(&format!("mcp.notes.{tool}"), &json!({"title": "keys"}))
        .await;
    let became = match &called {
        Ok(done) => Ok(done.approved_by.unwrap()),
        Err(error) => {
            assert_eq!(error.decision().unwrap().policies[0].file, "notes.rules");
            Err(error.code())
        }
    };
    assert_eq!(became, outcome, "{called:?}");
    assert_eq!(asked.load(Ordering::Relaxed), persons, "persons asked");
    assert_eq!(
        folder.path("ran").exists(),
        outcome.is_ok(),
        "it runs only with a yes"
    );
    let mut kinds = Vec::new();
    while let Some(record) = events.try_next() {
        match &record.event {
            Event::Permission { .. } => kinds.push("permission"),
            Event::Approval { .. } => kinds.push("approval"),
            Event::ToolCall { .. } => kinds.push("tool.call"),
            Event::ToolResult { .. } => kinds.push("tool.result"),
            _ => {}
        }
    }
    let expected: &[_] = if outcome.is_ok() {
        // What was approved is decided anew, since time has passed.
        &["permission", "approval", "permission", "tool.call", "tool.result"]
    } else {
        &["permission", "approval", "tool.result"]
    };
    assert_eq!(kinds, expected);
    hub.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asked_call_runs_when_the_handler_says_yes() {
    let no = || PersonAnswer::Deny("not today".to_owned());
    check("write", HookAnswer::Allow, no(), Ok(DecidedBy::Hook), 0).await;
    check(
        "write",
        HookAnswer::NoOpinion,
        PersonAnswer::Allow,
        Ok(DecidedBy::Person),
        1,
    )
    .await;
    check("write", HookAnswer::NoOpinion, no(), Err("refused"), 1).await;
    check(
        "write",
        HookAnswer::Deny("never".to_owned()),
        PersonAnswer::Allow,
        Err("refused"),
        0,
    )
    .await;
    check(
        "write",
        HookAnswer::NoOpinion,
        PersonAnswer::Nobody,
        Err("needs-approval"),
        1,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_always_asks_only_a_person_can_allow() {
    check(
        "burn",
        HookAnswer::Allow,
        PersonAnswer::Nobody,
        Err("needs-approval"),
        1,
    )
    .await;
    check(
        "burn",
        HookAnswer::Allow,
        PersonAnswer::Allow,
        Ok(DecidedBy::Person),
        1,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_elicitation_reaches_the_handler_and_without_one_is_declined() {
    let folder = Folder::new();
    for (with_handler, action) in [(true, "accept"), (false, "decline")] {
        let builder = builder(&folder);
        let hub = if with_handler {
            builder.elicitation(Ada)
        } else {
            builder
        }
        .start()
        .await
        .unwrap();
        let outcome = hub.call("mcp.notes.who", &json!({})).await.unwrap();
        let result = outcome.result.result.get();
        assert!(result.contains(action), "{result}");
        assert_eq!(result.contains("Ada"), with_handler, "{result}");
        hub.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blob_can_be_read_back_by_its_reference() {
    let folder = Folder::new();
    let hub = builder(&folder).start().await.unwrap();
    let outcome = hub.call("mcp.notes.draw", &json!({})).await.unwrap();
    let info = &outcome.result.blobs[0];
    let bytes = hub.blob(info.blob).await.unwrap();
    assert!(bytes == pseudo_random("image/png", 70_000, 3));
    assert_eq!(info.blob.0, Hash::of(&bytes));
    hub.shutdown().await.unwrap();
}

/// A server whose definition lies in a file, in a hub that keeps its state.
fn keeping(folder: &Folder, description: &str) -> portcullis::HubBuilder {
    let tool = Tool::new("read", Behaviour::Text("bread".to_owned())).describe(description);
    folder.write("notes.json", Script::new("notes").tool(tool).to_json());
    let definition =
        json!({"command": crate::SCRIPTED, "args": ["--script-file", folder.path("notes.json")]});
    Hub::builder()
        .document(Document::new(
            "mcp.json",
            portcullis_e2e::mcp_servers([("notes", definition)]),
        ))
        .state_dir(folder.path("state"))
}

fn rules(text: &str) -> [PolicyFile; 1] {
    [PolicyFile {
        name: "notes.rules".to_owned(),
        text: text.to_owned(),
    }]
}

#[tokio::test]
async fn what_one_hub_trusted_holds_for_the_next() {
    let folder = Folder::new();
    let call = async |hub: &Hub| hub.call("mcp.notes.read", &json!({})).await;
    let hub = keeping(&folder, "Reads.")
        .policy_files(rules("allow mcp.*\n"))
        .start()
        .await
        .unwrap();
    call(&hub).await.unwrap();
    hub.shutdown().await.unwrap();
    let hub = keeping(&folder, "Reads, and mails.")
        .policy_files(rules("allow mcp.*\n"))
        .start()
        .await
        .unwrap();
    let error = call(&hub).await.unwrap_err();
    assert_eq!(error.decision().unwrap().code.as_str(), "ask.definition-changed");
    let router = hub.router();
    let waiting = router
        .state()
        .pin("mcp.notes.read")
        .unwrap()
        .unwrap()
        .waiting
        .unwrap();
    router.trust("mcp.notes.read", waiting.hash, "ann").await.unwrap();
    call(&hub).await.unwrap();
    let tool = hub.tools().into_iter().next().unwrap();
    assert_eq!(
        hub.outlook(&tool).answer,
        portcullis::Answer::Allow,
        "the catalog knows"
    );
    hub.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_approval_for_a_while_holds_in_the_next_hub() {
    let folder = Folder::new();
    let asked = Arc::new(AtomicUsize::new(0));
    for by in [DecidedBy::Person, DecidedBy::StoredApproval] {
        let desk = Desk {
            hook: HookAnswer::NoOpinion,
            person: PersonAnswer::AllowFor,
            asked: Arc::clone(&asked),
        };
        let builder = keeping(&folder, "Reads.").policy_files(rules("default ask\n"));
        let hub = builder.approval(desk).start().await.unwrap();
        let outcome = hub
            .call("mcp.notes.read", &json!({"title": "keys"}))
            .await
            .unwrap();
        assert_eq!(outcome.approved_by, Some(by));
        hub.shutdown().await.unwrap();
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn policies_of_a_folder_take_over_in_a_running_hub() {
    let folder = Folder::new();
    let policies = folder.rules("allow mcp.*\n");
    let hub = keeping(&folder, "Reads.")
        .policies_dir(policies)
        .start()
        .await
        .unwrap();
    hub.call("mcp.notes.read", &json!({})).await.unwrap();
    let mut events = hub.events();
    folder.rules("deny mcp.*\n");
    let told = async {
        loop {
            if let Event::PolicyReload { outcome, .. } = &events.next().await.unwrap().event {
                return *outcome;
            }
        }
    };
    let told = tokio::time::timeout(portcullis_e2e::DEADLINE, told)
        .await
        .unwrap();
    assert_eq!(told, ReloadOutcome::Taken);
    let error = hub.call("mcp.notes.read", &json!({})).await.unwrap_err();
    assert_eq!(error.code(), "denied");
    hub.shutdown().await.unwrap();
}
