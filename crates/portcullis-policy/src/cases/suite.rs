//! One decision table.

use std::{collections::BTreeMap, str::FromStr};

use portcullis_types::{AgentId, CapabilityId, Decision, ServerId, Source, Tier};
use saphyr::{LoadableYamlNode, MarkedYaml};

use super::{
    CaseFailure, depth,
    expected::Expected,
    fields::{Fields, Wrong, line_of, text},
};
use crate::{
    CallQuestion, DecisionPoint, PolicyErrors, PolicyFile, Preset, ServerAction, ServerQuestion, ToolFacts,
    ToolHints,
};

pub(super) struct Suite {
    pub(super) name: String,
    pub(super) policies: DecisionPoint,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Row {
    pub(super) line: usize,
    /// What the row is about, for messages.
    pub(super) subject: String,
    pub(super) tiers: Vec<Tier>,
    agent: AgentId,
    profile: AgentId,
    asked: Asked,
    pub(super) expected: Expected,
}

enum Asked {
    Call {
        tool: Box<ToolFacts>,
        arguments: String,
        now_ms: i64,
    },
    Server {
        source: Source,
        server: ServerId,
        transport: String,
        about: AboutServer,
    },
}

/// A question about a whole server.
enum AboutServer {
    Elicit { mode: String, host: String },
    ReadResource { uri: String },
    GetPrompt { name: String },
}

impl AboutServer {
    fn action(&self) -> ServerAction<'_> {
        match self {
            Self::Elicit { mode, host } => ServerAction::Elicit { mode, host },
            Self::ReadResource { uri } => ServerAction::ReadResource { uri },
            Self::GetPrompt { name } => ServerAction::GetPrompt { name },
        }
    }
}

/// 2026-07-28T00:00:00Z, where a row gives no time.
const NOW_MS: i64 = 1_785_196_800_000;

impl Suite {
    pub(super) fn read(table: &PolicyFile, given: &[PolicyFile]) -> Result<Self, Vec<CaseFailure>> {
        let failure = |(line, message)| {
            vec![CaseFailure {
                file: table.name.clone(),
                line,
                message,
            }]
        };
        depth::check(&table.text).map_err(failure)?;
        let documents = MarkedYaml::load_from_str(&table.text)
            .map_err(|error| failure((error.marker().line(), error.info().to_owned())))?;
        // A `---` with nothing behind it is a document too.
        let mut tables = documents.iter().filter(|document| !document.data.is_null());
        let root = tables
            .next()
            .ok_or_else(|| failure((1, "the table is empty".to_owned())))?;
        if let Some(second) = tables.next() {
            let told = "a second table begins here: write it into a file of its own";
            return Err(failure((line_of(second), told.to_owned())));
        }
        let mut fields = Fields::of(root).map_err(failure)?;
        let policies = policies(table, &mut fields, given).map_err(|wrong| match wrong {
            Unusable::Table(wrong) => failure(wrong),
            Unusable::Policies(errors) => errors.0.into_iter().map(CaseFailure::from).collect(),
        })?;
        let rows = rows(fields).map_err(failure)?;
        Ok(Self {
            name: table.name.clone(),
            policies,
            rows,
        })
    }
}

impl From<crate::PolicyError> for CaseFailure {
    fn from(error: crate::PolicyError) -> Self {
        let help = error
            .problem
            .help()
            .map(|help| format!("; {help}"))
            .unwrap_or_default();
        Self {
            message: format!("{}{help}", error.problem),
            file: error.file,
            line: error.line,
        }
    }
}

impl Row {
    pub(super) fn decide(&self, policies: &DecisionPoint, tier: Tier) -> Decision {
        let (agent, profile) = (&self.agent, &self.profile);
        match &self.asked {
            Asked::Call {
                tool,
                arguments,
                now_ms,
            } => policies.decide(&CallQuestion {
                agent,
                profile,
                tier,
                tool,
                arguments,
                now_ms: *now_ms,
            }),
            Asked::Server {
                source,
                server,
                transport,
                about,
            } => policies.decide_server(&ServerQuestion {
                agent,
                profile,
                tier,
                source: *source,
                server,
                transport,
                about: about.action(),
            }),
        }
    }
}

enum Unusable {
    Table(Wrong),
    Policies(PolicyErrors),
}

fn policies(
    table: &PolicyFile,
    fields: &mut Fields<'_>,
    given: &[PolicyFile],
) -> Result<DecisionPoint, Unusable> {
    let preset = fields.text("preset").map_err(Unusable::Table)?;
    let inline = fields.take("policies");
    let loaded = match (preset, inline) {
        (Some(_), Some(node)) => {
            return Err(Unusable::Table((
                line_of(node),
                "`policies` cannot stand beside `preset`".to_owned(),
            )));
        }
        (Some((line, name)), None) => {
            let preset: Preset = parsed(line, name).map_err(Unusable::Table)?;
            DecisionPoint::preset(preset)
        }
        (None, Some(node)) => DecisionPoint::load(&inline_files(table, node).map_err(Unusable::Table)?),
        (None, None) if given.is_empty() => {
            let told = "no policies: name a `preset` or write `policies`".to_owned();
            return Err(Unusable::Table((fields.line(), told)));
        }
        (None, None) => DecisionPoint::load(given),
    };
    loaded.map_err(Unusable::Policies)
}

fn inline_files(table: &PolicyFile, node: &MarkedYaml<'_>) -> Result<Vec<PolicyFile>, Wrong> {
    let mut files = Vec::new();
    let mapping = node
        .data
        .as_mapping()
        .ok_or_else(|| (line_of(node), "a mapping is expected".to_owned()))?;
    for (name, content) in mapping {
        let (_, name) = text("a file's name", name)?;
        let (_, content) = text(name, content)?;
        files.push(PolicyFile {
            name: format!("{}/{name}", table.name),
            text: content.to_owned(),
        });
    }
    Ok(files)
}

fn rows(mut fields: Fields<'_>) -> Result<Vec<Row>, Wrong> {
    let mut catalog = BTreeMap::new();
    for node in fields.list("tools")?.map_or(&[][..], |(_, items)| items) {
        let line = line_of(node);
        let tool = tool(Fields::of(node)?)?;
        if let Some(first) = catalog.insert(tool.capability.clone(), tool) {
            return Err((
                line,
                format!("`{}` stands twice among the `tools`", first.capability),
            ));
        }
    }
    let line = fields.line();
    let (line, cases) = fields
        .list("cases")?
        .ok_or_else(|| (line, "`cases` is missing".to_owned()))?;
    fields.end()?;
    if cases.is_empty() {
        return Err((line, "there are no cases".to_owned()));
    }
    cases
        .iter()
        .map(|node| row(Fields::of(node)?, &catalog))
        .collect()
}

fn tool(mut fields: Fields<'_>) -> Result<ToolFacts, Wrong> {
    let missing = (fields.line(), "`tool` is missing".to_owned());
    let (line, capability) = fields.text("tool")?.ok_or(missing)?;
    let capability: CapabilityId = parsed(line, capability)?;
    let default = if capability.source() == Source::Host {
        "host"
    } else {
        "stdio"
    };
    let worst = ToolHints::default();
    let tool = ToolFacts {
        capability,
        transport: fields
            .text("transport")?
            .map_or(default, |(_, transport)| transport)
            .to_owned(),
        hints: ToolHints {
            read_only: fields.flag("readOnly", worst.read_only)?,
            destructive: fields.flag("destructive", worst.destructive)?,
            idempotent: fields.flag("idempotent", worst.idempotent)?,
            open_world: fields.flag("openWorld", worst.open_world)?,
        },
        requires_user_interaction: fields.flag("requiresUserInteraction", false)?,
        auto_approve: fields.flag("autoApprove", true)?,
        definition_changed: fields.flag("definitionChanged", false)?,
    };
    fields.end()?;
    Ok(tool)
}

fn row(mut fields: Fields<'_>, catalog: &BTreeMap<CapabilityId, ToolFacts>) -> Result<Row, Wrong> {
    let line = fields.line();
    let (subject, asked) = asked(&mut fields, catalog)?;
    let mut agent = |key| match fields.text(key)? {
        Some((line, name)) => parsed(line, name),
        None => Ok(AgentId::default()),
    };
    let (agent, profile) = (agent("agent")?, agent("profile")?);
    let tiers = tiers(&mut fields)?;
    let expected = Expected::read(&mut fields)?;
    fields.end()?;
    Ok(Row {
        line,
        subject,
        tiers,
        agent,
        profile,
        asked,
        expected,
    })
}

fn asked(
    fields: &mut Fields<'_>,
    catalog: &BTreeMap<CapabilityId, ToolFacts>,
) -> Result<(String, Asked), Wrong> {
    if let Some((line, name)) = fields.text("tool")? {
        let capability: CapabilityId = parsed(line, name)?;
        let tool = catalog
            .get(&capability)
            .ok_or_else(|| (line, format!("`{capability}` is not among the `tools`")))?;
        let arguments = fields
            .text("arguments")?
            .map_or("{}", |(_, arguments)| arguments)
            .to_owned();
        let now_ms = fields.number("nowMs", NOW_MS)?;
        let call = Asked::Call {
            tool: Box::new(tool.clone()),
            arguments,
            now_ms,
        };
        return Ok((format!("`{capability}`"), call));
    }
    about_server(fields)
}

fn about_server(fields: &mut Fields<'_>) -> Result<(String, Asked), Wrong> {
    let mut found = None;
    for (key, what) in [
        ("elicit", "elicitation by"),
        ("readResource", "a resource of"),
        ("getPrompt", "a prompt of"),
    ] {
        if let Some((line, name)) = fields.text(key)? {
            found = Some((key, what, line, name.to_owned()));
            break;
        }
    }
    let needed = "a case needs `tool`, `elicit`, `readResource` or `getPrompt`";
    let (key, what, line, name) = found.ok_or_else(|| (fields.line(), needed.to_owned()))?;
    let unknown = || {
        (
            line,
            format!("`{name}` is not a server: write `mcp.<server>` or `host.<group>`"),
        )
    };
    let (source, server) = name.split_once('.').ok_or_else(unknown)?;
    let source = [Source::Mcp, Source::Host]
        .into_iter()
        .find(|known| known.as_str() == source);
    let mut text = |key, default: &str| Ok(fields.text(key)?.map_or(default, |(_, text)| text).to_owned());
    let about = match key {
        "elicit" => AboutServer::Elicit {
            mode: text("mode", "form")?,
            host: text("host", "")?,
        },
        "readResource" => AboutServer::ReadResource {
            uri: text("uri", "")?,
        },
        _ => AboutServer::GetPrompt {
            name: text("name", "")?,
        },
    };
    let asked = Asked::Server {
        source: source.ok_or_else(unknown)?,
        server: parsed(line, server)?,
        transport: text("transport", "stdio")?,
        about,
    };
    Ok((format!("{what} `{name}`"), asked))
}

/// One tier, a list of them, or `every`.
fn tiers(fields: &mut Fields<'_>) -> Result<Vec<Tier>, Wrong> {
    let Some(node) = fields.take("tier") else {
        return Ok(vec![Tier::default()]);
    };
    if let Some(items) = node.data.as_sequence() {
        if items.is_empty() {
            let told = "`tier` names no tier, so nothing would be compared";
            return Err((line_of(node), told.to_owned()));
        }
        return items
            .iter()
            .map(|item| text("tier", item).and_then(|(line, tier)| parsed(line, tier)))
            .collect();
    }
    let (line, tier) = text("tier", node)?;
    if tier == "every" {
        Ok(Tier::ALL.to_vec())
    } else {
        Ok(vec![parsed(line, tier)?])
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(line: usize, text: &str) -> Result<T, Wrong> {
    text.parse().map_err(|error: T::Err| (line, error.to_string()))
}
