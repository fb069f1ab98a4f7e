use std::collections::BTreeMap;

use portcullis::{Catalog, Decision, ServerId, ServerStatus};
use serde::Serialize;

use crate::{
    ExitStatus,
    arguments::{Format, HubArguments},
    hub, output,
};

#[derive(Serialize)]
struct Listing<'a> {
    servers: &'a BTreeMap<ServerId, ServerStatus>,
    tools: Vec<ToolLine>,
    reports: &'a [String],
}

#[derive(Serialize)]
struct ToolLine {
    capability: String,
    alias: String,
    description: Option<String>,
    /// What the policies say with no arguments; a call is decided anew.
    outlook: Decision,
}

/// Lists the servers and their tools once each server is ready or has failed.
pub(crate) async fn run(arguments: HubArguments) -> ExitStatus {
    let started = match hub::start(&arguments).await {
        Ok(started) => started,
        Err(status) => return status,
    };
    let router = started.router();
    hub::run(started, async move {
        let catalog = router.settled().await;
        let tools = catalog
            .tools()
            .map(|tool| ToolLine {
                capability: tool.capability.to_string(),
                alias: tool.alias.to_string(),
                description: tool.description.clone(),
                outlook: router.outlook(tool),
            })
            .collect();
        let listing = Listing {
            servers: catalog.servers(),
            tools,
            reports: catalog.reports(),
        };
        match arguments.format {
            Format::Json => output::json(&listing),
            Format::Text => listing.print(),
        }
        status(&catalog)
    })
    .await
}

/// Failed where servers were wanted and none came up.
fn status(catalog: &Catalog) -> ExitStatus {
    let mut wanted = catalog
        .servers()
        .values()
        .filter(|server| server.state != "disabled")
        .peekable();
    let none_wanted = wanted.peek().is_none();
    if none_wanted || wanted.any(|server| server.state == "ready") {
        ExitStatus::Done
    } else {
        ExitStatus::Upstream
    }
}

impl Listing<'_> {
    fn print(&self) {
        for (id, server) in self.servers {
            let tools = match server.state {
                "ready" => format!("{} tools", server.tools),
                _ => output::inline(&server.reason, 400),
            };
            output::note(&format!("{id}: {}, {tools}", server.state));
        }
        let width = self
            .tools
            .iter()
            .map(|tool| tool.capability.chars().count())
            .max()
            .unwrap_or(0)
            .min(60);
        for tool in &self.tools {
            let description = tool
                .description
                .as_deref()
                .and_then(|text| text.lines().next())
                .unwrap_or_default();
            output::line(&format!(
                "{:<5} {:<width$}  {}",
                tool.outlook.answer.to_string(),
                output::inline(&tool.capability, 200),
                output::inline(description, 100),
            ));
        }
        self.reports
            .iter()
            .for_each(|report| output::note(&format!("note: {}", output::safe(report))));
    }
}
