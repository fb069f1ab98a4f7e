use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;
use portcullis::{
    AgentId, Answer, CapabilityId, Preset, Source, Tier,
    policy::{CallQuestion, DecisionPoint, ToolFacts},
};
use serde::de::IgnoredAny;

use super::{folder, write::refused};
use crate::{ExitStatus, arguments::Format, hub, output};

#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    /// What is called: mcp.SERVER.TOOL
    capability: CapabilityId,
    /// The arguments: a JSON object
    #[arg(default_value = "{}", value_name = "JSON")]
    arguments: String,
    /// The folder of policies
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "preset",
        conflicts_with = "preset"
    )]
    policies: Option<PathBuf>,
    /// Policies that come with the program: deny-by-default, ask-by-default or read-only
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,
    /// Who calls
    #[arg(long, value_name = "AGENT", default_value_t)]
    r#as: AgentId,
    /// The profile that the agent belongs to
    #[arg(long, value_name = "PROFILE", default_value_t)]
    profile: AgentId,
    /// How freely the agent may act
    #[arg(long, default_value_t)]
    tier: Tier,
    /// The tool's definition as its server sent it, a JSON file; without it, the tool says nothing of itself
    #[arg(long, value_name = "FILE")]
    definition: Option<PathBuf>,
    /// Auto-approve is switched off for the tool
    #[arg(long)]
    auto_approve_off: bool,
    /// The definition is not the one that was trusted
    #[arg(long)]
    definition_changed: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(arguments: &ExplainArguments) -> Result<ExitStatus, ExitStatus> {
    let point = match (&arguments.policies, arguments.preset) {
        (Some(folder), _) => {
            let files = folder::policies(folder)?;
            // A hub would not load what is not as it was sealed, so there is nothing to explain.
            let sealed = folder::seal(folder)?.map_or(Ok(()), |seal| seal.check(&files));
            sealed.and_then(|()| DecisionPoint::load(&files))
        }
        (None, Some(preset)) => DecisionPoint::preset(preset),
        (None, None) => Ok(DecisionPoint::deny_all()),
    };
    let point = point.map_err(|errors| refused(&errors))?;
    let definition = match &arguments.definition {
        Some(path) => definition(path)?,
        None => "{}".to_owned(),
    };
    let transport = match arguments.capability.source() {
        Source::Mcp => "stdio",
        Source::Host => "host",
    };
    let capability = arguments.capability.clone();
    let tool = ToolFacts {
        definition_changed: arguments.definition_changed,
        ..ToolFacts::from_definition(capability, transport, &definition, !arguments.auto_approve_off)
    };
    let explanation = point.explain(&CallQuestion {
        agent: &arguments.r#as,
        profile: &arguments.profile,
        tier: arguments.tier,
        tool: &tool,
        arguments: &arguments.arguments,
        now_ms: hub::now_ms(),
    });
    match arguments.format {
        Format::Json => output::json(&explanation),
        Format::Text => output::line(output::safe(&explanation.to_string()).trim_end()),
    }
    Ok(match explanation.decision.answer {
        Answer::Allow => ExitStatus::Done,
        Answer::Ask => ExitStatus::NeedsApproval,
        Answer::Deny => ExitStatus::Denied,
    })
}

/// A tool's definition. One that cannot be read would pass for a tool that says nothing of itself.
fn definition(path: &Path) -> Result<String, ExitStatus> {
    let text = folder::text(path)?;
    match serde_json::from_str::<BTreeMap<String, IgnoredAny>>(&text) {
        Ok(_) => Ok(text),
        Err(error) => {
            output::error(&format!(
                "`{}` is no tool's definition: {error}; give the JSON object that its server lists under `tools`",
                path.display()
            ));
            Err(ExitStatus::BadConfig)
        }
    }
}
