use std::collections::BTreeMap;

use portcullis::{Catalog, Decision, ServerId, ServerState, ServerStatus, Unlisted};
use serde::Serialize;

use crate::{
    ExitStatus,
    arguments::{Format, ToolsArguments},
    hub, output,
};

#[derive(Serialize)]
struct Listing<'a> {
    servers: &'a BTreeMap<ServerId, ServerStatus>,
    tools: Vec<ToolLine>,
    /// Restricted by names that restrict nothing.
    unlisted: &'a [Unlisted],
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
pub(crate) async fn run(arguments: ToolsArguments) -> ExitStatus {
    let started = match hub::start(&arguments.hub).await {
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
            unlisted: catalog.unlisted(),
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
        .filter(|server| server.state != ServerState::Disabled)
        .peekable();
    let none_wanted = wanted.peek().is_none();
    if none_wanted || wanted.any(|server| server.state == ServerState::Ready) {
        ExitStatus::Done
    } else {
        ExitStatus::Upstream
    }
}

impl Listing<'_> {
    /// What a plain `deny` would hide, and how many tools it is about.
    fn what_went_wrong(&self) -> BTreeMap<&str, usize> {
        let mut wrong = BTreeMap::new();
        for error in self.tools.iter().flat_map(|tool| &tool.outlook.errors) {
            *wrong.entry(error.as_str()).or_default() += 1;
        }
        wrong
    }

    fn print(&self) {
        for (id, server) in self.servers {
            let tools = match server.state {
                ServerState::Ready => format!("{} tools", server.tools),
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
        for (error, count) in self.what_went_wrong() {
            let told = format!("note: {count} tools are denied, since deciding went wrong: {error}");
            output::note(&output::inline(&told, 1_000));
        }
        let unlisted = self.unlisted.iter().map(ToString::to_string);
        for told in unlisted.chain(self.reports.iter().cloned()) {
            output::note(&format!("note: {}", output::safe(&told)));
        }
    }
}

#[cfg(test)]
mod tests {
    use portcullis::ReasonCode;

    use super::*;

    #[test]
    fn an_error_that_denies_is_told_once_for_all_its_tools() {
        let tool = |name: &str, code, error: Option<&str>| ToolLine {
            capability: format!("mcp.a.{name}"),
            alias: name.to_owned(),
            description: None,
            outlook: Decision::deny(code, error.map(str::to_owned)),
        };
        let listing = Listing {
            servers: &BTreeMap::new(),
            tools: vec![
                tool("a", ReasonCode::DenyPinUnknown, Some("the disk is full")),
                tool("b", ReasonCode::DenyPinUnknown, Some("the disk is full")),
                tool("c", ReasonCode::DenyByPolicy, None),
            ],
            unlisted: &[],
            reports: &[],
        };
        assert_eq!(
            listing.what_went_wrong(),
            BTreeMap::from([("the disk is full", 2)])
        );
    }
}
