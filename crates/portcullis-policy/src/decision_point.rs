use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use cedar_policy::Policy;
use portcullis_types::{AgentId, Answer, Decision, Hash, PolicyRef, ReasonCode, ServerId, Source, Tier};

use crate::{
    PolicyErrors, PolicyFile, PreparedTool, Preset, ToolFacts,
    arguments::{self, TagKeys},
    builtin,
    load::{self, PolicyBase},
    model::{Action, Unfit, World},
    verdict::{self, Verdict},
};

/// How many tools are remembered with what is settled about them.
const MAX_PREPARED: usize = 8_192;

/// May this agent make this call?
#[derive(Debug, Clone, Copy)]
pub struct CallQuestion<'a> {
    /// Who asks.
    pub agent: &'a AgentId,
    /// The profile that the agent belongs to.
    pub profile: &'a AgentId,
    /// How freely the agent may act in this session.
    pub tier: Tier,
    /// The tool.
    pub tool: &'a ToolFacts,
    /// The arguments: the JSON text of an object, exactly as it will be sent.
    pub arguments: &'a str,
    /// Now, in milliseconds since 1970-01-01T00:00:00Z.
    pub now_ms: i64,
}

/// May this server ask the user something (MCP 2026-07-28, client/elicitation)?
#[derive(Debug, Clone, Copy)]
pub struct ElicitationQuestion<'a> {
    /// Whose call the server is working on.
    pub agent: &'a AgentId,
    /// The profile that the agent belongs to.
    pub profile: &'a AgentId,
    /// How freely the agent may act in this session.
    pub tier: Tier,
    /// Where the server comes from.
    pub source: Source,
    /// The server that asks.
    pub server: &'a ServerId,
    /// How the server is reached: `stdio`, `http` or `host`.
    pub transport: &'a str,
    /// `form` or `url`.
    pub mode: &'a str,
    /// The host of the address in URL mode; empty in form mode.
    pub host: &'a str,
}

/// May this be done with this whole server?
#[derive(Debug, Clone, Copy)]
pub struct ServerQuestion<'a> {
    /// Who asks, or whose call the server is working on.
    pub agent: &'a AgentId,
    /// The profile that the agent belongs to.
    pub profile: &'a AgentId,
    /// How freely the agent may act in this session.
    pub tier: Tier,
    /// Where the server comes from.
    pub source: Source,
    /// The server.
    pub server: &'a ServerId,
    /// How the server is reached: `stdio`, `http` or `host`.
    pub transport: &'a str,
    /// What is to be done.
    pub about: ServerAction<'a>,
}

/// What can be asked about a whole server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAction<'a> {
    /// The server asks the user something (MCP 2026-07-28, client/elicitation).
    Elicit {
        /// `form` or `url`.
        mode: &'a str,
        /// The host of the address in URL mode; empty in form mode.
        host: &'a str,
    },
    /// A resource of the server is read (MCP 2026-07-28, server/resources).
    ReadResource {
        /// The resource's URI, as the server wrote it.
        uri: &'a str,
    },
    /// A prompt of the server is got (MCP 2026-07-28, server/prompts).
    GetPrompt {
        /// The prompt's name.
        name: &'a str,
    },
}

impl ServerAction<'_> {
    fn action(self) -> Action {
        match self {
            Self::Elicit { .. } => Action::Elicit,
            Self::ReadResource { .. } => Action::ReadResource,
            Self::GetPrompt { .. } => Action::GetPrompt,
        }
    }
}

/// Decides what may be called, by Cedar policies. Immutable: new policies make a new decision point.
///
/// The floor and the tiers are always loaded. Whatever fails while deciding denies.
pub struct DecisionPoint {
    base: Option<Arc<PolicyBase>>,
    digest: Hash,
    prepared: RwLock<HashMap<ToolFacts, Arc<PreparedTool>>>,
}

impl DecisionPoint {
    /// The decision point without policies: it denies all, with [`ReasonCode::DenyNoPolicies`].
    #[must_use]
    pub fn deny_all() -> Self {
        Self {
            base: None,
            digest: load::digest(std::iter::empty()),
            prepared: RwLock::default(),
        }
    }

    /// The decision point of a preset alone.
    ///
    /// # Errors
    /// Never for the presets as they are; the signature is that of [`load`](Self::load).
    pub fn preset(preset: Preset) -> Result<Self, PolicyErrors> {
        Self::load(&[preset.file()])
    }

    /// Loads Cedar files and files of rules, in any order. Files that say nothing deny all.
    ///
    /// # Errors
    /// All that is wrong in all files, in order of file and line: nothing is loaded then.
    pub fn load(files: &[PolicyFile]) -> Result<Self, PolicyErrors> {
        Self::load_over(&builtin::always_loaded(), files)
    }

    fn load_over(always_loaded: &[PolicyFile], files: &[PolicyFile]) -> Result<Self, PolicyErrors> {
        let base = load::load(always_loaded, files)?;
        Ok(Self {
            digest: base.digest,
            base: Some(Arc::new(base)),
            prepared: RwLock::default(),
        })
    }

    /// The hash of all policy texts and the schema; it does not depend on the order of the files.
    #[must_use]
    pub fn digest(&self) -> Hash {
        self.digest
    }

    /// All loaded policies, the floor and tiers included, in order of file and line.
    #[must_use]
    pub fn policies(&self) -> &[PolicyRef] {
        self.base.as_ref().map_or(&[], |base| &base.references)
    }

    /// The profiles that policies name, in their scopes or in conditions. Agents of any other are all the same to them.
    #[must_use]
    pub fn profiles(&self) -> BTreeSet<String> {
        let Some(base) = self.base() else {
            return BTreeSet::new();
        };
        let literals = base.policies.policies().flat_map(Policy::entity_literals);
        literals
            .filter(|uid| base.model.is_profile(uid))
            .map(|uid| uid.id().unescaped().to_owned())
            .collect()
    }

    /// The answer to a call. For an allow it names the policies that permit; for an ask, those that forbid running
    /// it unattended, or else those that permit the call; for a deny, those that forbid it or failed.
    #[must_use]
    pub fn decide(&self, question: &CallQuestion<'_>) -> Decision {
        match self.prepare(question.tool) {
            Some(tool) => tool.decide(question),
            None => Decision::deny(ReasonCode::DenyNoPolicies, None),
        }
    }

    /// The same answer, with every policy put to Cedar as it stands, no index and nothing remembered. It is what
    /// [`decide`](Self::decide) must agree with on every question; tests and benchmarks compare the two.
    #[must_use]
    pub fn decide_unindexed(&self, question: &CallQuestion<'_>) -> Decision {
        let Some(base) = self.speaking() else {
            return Decision::deny(ReasonCode::DenyNoPolicies, None);
        };
        let tags = match arguments::tags(question.arguments, &TagKeys::All) {
            Ok(tags) => tags,
            Err((code, told)) => return Decision::deny(code, Some(told)),
        };
        let decision = base.model.world(question.agent, question.profile, question.tool);
        let decision = decision
            .and_then(|world| base.model.with_arguments(&world, tags))
            .and_then(|world| base.decide_in(&world, question));
        decision.unwrap_or_else(|unfit| Decision::deny(ReasonCode::DenyInvalidRequest, Some(unfit)))
    }

    /// The tool under these policies, with what does not depend on the call settled. It is remembered, so that
    /// [`decide`](Self::decide) settles it once for each set of facts. `None` where there are no policies.
    #[must_use]
    pub fn prepare(&self, tool: &ToolFacts) -> Option<Arc<PreparedTool>> {
        let base = self.speaking()?;
        let known = self.prepared.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(tool) {
            return Some(Arc::clone(found));
        }
        drop(known);
        let prepared = Arc::new(PreparedTool::new(base, tool));
        let mut known = self.prepared.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_PREPARED {
            known.clear();
        }
        known.insert(tool.clone(), Arc::clone(&prepared));
        Some(prepared)
    }

    /// Whether a server may ask the user something: allow or deny, never ask.
    #[must_use]
    pub fn decide_elicitation(&self, question: &ElicitationQuestion<'_>) -> Decision {
        let ElicitationQuestion {
            agent,
            profile,
            tier,
            source,
            server,
            transport,
            mode,
            host,
        } = *question;
        self.decide_server(&ServerQuestion {
            agent,
            profile,
            tier,
            source,
            server,
            transport,
            about: ServerAction::Elicit { mode, host },
        })
    }

    /// The answer to a question about a whole server: allow or deny, never ask.
    #[must_use]
    pub fn decide_server(&self, question: &ServerQuestion<'_>) -> Decision {
        let Some(base) = self.speaking() else {
            return Decision::deny(ReasonCode::DenyNoPolicies, None);
        };
        let decision = base.server_verdict(question).map(|verdict| {
            if verdict.permitted {
                base.decision(Answer::Allow, ReasonCode::Permitted, &verdict)
            } else {
                base.deny(&verdict)
            }
        });
        decision.unwrap_or_else(|unfit| Decision::deny(ReasonCode::DenyInvalidRequest, Some(unfit)))
    }

    /// All policies, where some were loaded.
    pub(crate) fn base(&self) -> Option<&PolicyBase> {
        self.base.as_deref()
    }

    /// The policies, where they say anything at all.
    fn speaking(&self) -> Option<&Arc<PolicyBase>> {
        self.base.as_ref().filter(|base| base.says_something)
    }
}

impl PolicyBase {
    /// The decision of all policies together on a call, in its whole world.
    fn decide_in(&self, world: &World, question: &CallQuestion<'_>) -> Result<Decision, Unfit> {
        let hash = Hash::of(question.arguments.as_bytes());
        world.check_complete()?;
        self.decide_call(question.tool, question.tier, |step| {
            let tier = step.tier(question.tier);
            let context = self
                .model
                .call_context(tier, Some(&hash), Some(question.now_ms))?;
            let request = self.model.request(world, step.action(), context)?;
            let (permits, forbids, errors) = verdict::put(&self.policies, &request, &world.entities);
            Ok(Verdict::of(permits, forbids, errors))
        })
    }

    fn server_verdict(&self, question: &ServerQuestion<'_>) -> Result<Verdict, Unfit> {
        let action = question.about.action();
        let (world, context) = self.model.server_question(question)?;
        world.check_complete()?;
        let request = self.model.request(&world, action, context)?;
        let (permits, forbids, errors) = verdict::put(&self.about(action), &request, &world.entities);
        Ok(Verdict::of(permits, forbids, errors))
    }
}

impl fmt::Debug for DecisionPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionPoint")
            .field("digest", &self.digest)
            .field("policies", &self.policies())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
