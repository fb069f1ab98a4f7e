//! Policies beside the tools that there are.

use portcullis_types::{CapabilityId, PolicyRef};

use super::{Finding, Lint, is_about_all, literals};
use crate::{ToolFacts, load::IndexedPolicy, model::Action, resolve::Subject};

/// What a Cedar policy names and the catalog does not have.
pub(super) fn unknown(place: &PolicyRef, indexed: &IndexedPolicy, catalog: &[CapabilityId]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (kind, id) in literals(&indexed.policy) {
        let (lint, known) = match kind {
            "Mcp::Tool" => (
                Lint::UnknownTool,
                catalog.iter().any(|tool| tool.to_string() == id),
            ),
            _ => (
                Lint::UnknownServer,
                catalog.iter().any(|tool| server_id(tool) == id),
            ),
        };
        if !known {
            findings.push(Finding::at(place, lint, format!("the catalog has no `{id}`")));
        }
    }
    let about_tools = indexed.syntax.is_about(Action::Call) || indexed.syntax.is_about(Action::Unattended);
    if findings.is_empty()
        && about_tools
        && is_about_all(&indexed.syntax.resource)
        && !matches_one(indexed, catalog)
    {
        let message = "it applies to no tool of the catalog".to_owned();
        findings.push(Finding::at(place, Lint::MatchesNothing, message));
    }
    findings
}

/// Whether a tool of the catalog can be meant, with whatever hints its server may give.
fn matches_one(indexed: &IndexedPolicy, catalog: &[CapabilityId]) -> bool {
    catalog.iter().any(|capability| {
        [true, false].into_iter().any(|best| {
            let claims = format!(
                r#"{{"annotations":{{"readOnlyHint":{best},"destructiveHint":{},"idempotentHint":{best},"openWorldHint":{}}}}}"#,
                !best, !best
            );
            let tool = ToolFacts::from_definition(capability.clone(), "stdio", &claims, true);
            let floored = ToolFacts { requires_user_interaction: true, auto_approve: false, definition_changed: true, ..tool.clone() };
            [tool, floored].iter().any(|tool| Subject::new(tool).resolve(&indexed.syntax) != Some(false))
        })
    })
}

pub(super) fn server_id(tool: &CapabilityId) -> String {
    format!("{}.{}", tool.source().as_str(), tool.server())
}
