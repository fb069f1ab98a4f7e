//! Approvals that hold for a while: what they are, and taking one back.

use clap::{Args, Subcommand};
use portcullis::Approval;
use serde::Serialize;

use super::pins::{StateArguments, at};
use crate::{ExitStatus, arguments::Format, hub, output};

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArguments {
    #[command(subcommand)]
    command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// List the calls that run without a question for a while, the newest first
    List(ListArguments),
    /// Take an approval back
    Revoke(RevokeArguments),
}

#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    state: StateArguments,
}

#[derive(Debug, Args)]
struct RevokeArguments {
    /// Its number, as `approvals list` shows it
    id: i64,
    #[command(flatten)]
    state: StateArguments,
}

#[derive(Serialize)]
struct ApprovalLine<'a> {
    id: i64,
    capability: &'a str,
    agent: &'a str,
    profile: &'a str,
    tier: &'a str,
    arguments_hash: String,
    policy_digest: String,
    by: &'a str,
    at_ms: i64,
    until_ms: i64,
}

pub(crate) fn run(arguments: &ApprovalsArguments) -> ExitStatus {
    let done = match &arguments.command {
        ApprovalsCommand::List(arguments) => list(arguments),
        ApprovalsCommand::Revoke(arguments) => revoke(arguments),
    };
    done.unwrap_or_else(|told| {
        output::error(&output::safe(&told));
        ExitStatus::Failed
    })
}

fn list(arguments: &ListArguments) -> Result<ExitStatus, String> {
    let state = arguments.state.open()?;
    let approvals = state
        .approvals(hub::now_ms())
        .map_err(|error| output::chain(&error))?;
    match arguments.state.format {
        Format::Json => output::json(&approvals.iter().map(ApprovalLine::of).collect::<Vec<_>>()),
        Format::Text => approvals
            .iter()
            .for_each(|approval| output::line(&listed(approval))),
    }
    Ok(ExitStatus::Done)
}

fn revoke(arguments: &RevokeArguments) -> Result<ExitStatus, String> {
    let state = arguments.state.open()?;
    if !state
        .revoke(arguments.id)
        .map_err(|error| output::chain(&error))?
    {
        return Err(format!("there is no approval `{}` (any more)", arguments.id));
    }
    match arguments.state.format {
        Format::Json => output::json(&serde_json::json!({"revoked": arguments.id})),
        Format::Text => output::line(&format!("{} is taken back", arguments.id)),
    }
    Ok(ExitStatus::Done)
}

impl<'a> ApprovalLine<'a> {
    fn of(approval: &'a Approval) -> Self {
        Self {
            id: approval.id,
            capability: &approval.call.capability,
            agent: &approval.call.agent,
            profile: &approval.call.profile,
            tier: &approval.call.tier,
            arguments_hash: approval.call.arguments_hash.to_string(),
            policy_digest: approval.call.policy_digest.to_string(),
            by: &approval.by,
            at_ms: approval.at_ms,
            until_ms: approval.until_ms,
        }
    }
}

fn listed(approval: &Approval) -> String {
    format!(
        "{}  {}  arguments {}  for {} of {} in {}, by {}, until {}",
        approval.id,
        output::inline(&approval.call.capability, 200),
        approval.call.arguments_hash,
        output::inline(&approval.call.agent, 100),
        output::inline(&approval.call.profile, 100),
        output::inline(&approval.call.tier, 100),
        output::inline(&approval.by, 100),
        at(approval.until_ms),
    )
}
