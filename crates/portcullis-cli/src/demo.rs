//! `portcullis demo`: the main job on built-in servers, each step checked as it is told.
//!
//! The servers are this very program, started as children: the whole way is real, from the configuration to the
//! processes that are gone at the end.

mod story;
mod teller;

use std::path::Path;

use portcullis::{Document, Hub, PolicyFile};

use crate::{ExitStatus, arguments::DemoArguments, interrupt::interrupted, output};
use story::{ApproveAndSay, Story};
use teller::Teller;

/// The servers of the demo, of those that the test kit has.
const SERVERS: [&str; 4] = ["notes", "pictures", "crashy", "stuck"];

/// Tells the story; done only if each step went as it was told.
pub(crate) async fn run(arguments: DemoArguments) -> ExitStatus {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            output::error(&format!(
                "the program does not know where it stands, so it cannot start its servers: {error}"
            ));
            return ExitStatus::Failed;
        }
    };
    let teller = Teller::new(arguments.format);
    let hub = Hub::builder()
        .document(Document::new("demo.json", document(&program)))
        .policy_files([PolicyFile {
            name: "demo.rules".to_owned(),
            text: include_str!("demo/demo.rules").to_owned(),
        }])
        .approval(ApproveAndSay(teller.clone()))
        .start()
        .await;
    let hub = match hub {
        Ok(hub) => hub,
        Err(error) => {
            output::error(&error.to_string());
            return (&error).into();
        }
    };
    let story = Story::new(hub, teller);
    let told = tokio::select! {
        () = story.tell() => true,
        () = interrupted() => false,
    };
    // The gate closes in any case: an interrupted demo leaves no process either.
    let went_well = story.close().await;
    if told && went_well {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    }
}

/// An `mcpServers` file as a desktop client has it, with this program as every server.
fn document(program: &Path) -> String {
    let server = |name| {
        let definition = serde_json::json!({"command": program, "args": ["demo-server", name]});
        (String::from(name), definition)
    };
    let servers: serde_json::Map<_, _> = SERVERS.into_iter().map(server).collect();
    serde_json::json!({ "mcpServers": servers }).to_string()
}
