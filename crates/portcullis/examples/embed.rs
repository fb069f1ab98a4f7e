//! A host that embeds the hub: servers from the user's own file, policies in a few lines, and the host's own say on
//! calls that must be asked about.
//!
//! ```text
//! cargo run -p portcullis --example embed -- mcp.json mcp.files.list_allowed_directories '{}'
//! ```

use anyhow::Context;
use futures::future::BoxFuture;
use portcullis::{
    ApprovalHandler, ApprovalRequest, HookAnswer, Hub, PersonAnswer, PolicyFile, read_documents,
};

/// The host's hook lets reading tools run; for all else it would ask a person, and here nobody is there.
#[derive(Debug)]
struct ReadingIsFine;

impl ApprovalHandler for ReadingIsFine {
    fn hook<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, HookAnswer> {
        let reading = ["list", "read", "get"]
            .iter()
            .any(|verb| request.capability.tool().starts_with(verb));
        Box::pin(async move {
            if reading {
                HookAnswer::Allow
            } else {
                HookAnswer::NoOpinion
            }
        })
    }

    fn person<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, PersonAnswer> {
        Box::pin(async { PersonAnswer::Nobody })
    }
}

fn main() -> anyhow::Result<()> {
    // Before the runtime starts its threads: this very program, executed once more, parents the servers.
    portcullis::warden::init();
    run()
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let config = arguments
        .next()
        .context("usage: embed CONFIG CAPABILITY [ARGUMENTS]")?;
    let capability = arguments
        .next()
        .context("usage: embed CONFIG CAPABILITY [ARGUMENTS]")?;
    let input: serde_json::Value =
        serde_json::from_str(&arguments.next().unwrap_or_else(|| "{}".to_owned()))?;

    let rules = PolicyFile {
        name: "host.rules".to_owned(),
        text: "default ask\ndeny mcp.*.delete_*\n".to_owned(),
    };
    let hub = Hub::builder()
        .documents(read_documents(&[config.into()])?)
        .policy_files([rules])
        .approval(ReadingIsFine)
        .start()
        .await?;

    println!("{} tools", hub.settled().await.tools().count());
    match hub.call(&capability, &input).await {
        Ok(outcome) => println!("{}", outcome.result.result),
        Err(error) => println!("{}: {error}", error.code()),
    }
    hub.shutdown().await?;
    Ok(())
}
