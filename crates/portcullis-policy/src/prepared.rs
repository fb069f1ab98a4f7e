//! A tool under a set of policies: what can be settled once is settled here, what depends on the call is left.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use cedar_policy::{Context, PolicyId, PolicySet};
use portcullis_types::{AgentId, Decision, Hash, ReasonCode, Tier};

use crate::{
    CallQuestion, ToolFacts, arguments,
    load::PolicyBase,
    model::{self, Action, Unfit, World},
    resolve::Subject,
    syntax::Reads,
    verdict::{self, Verdict},
};

/// How many agents a tool remembers worlds and answers of; those of more agents are made anew each time.
const MAX_REMEMBERED: usize = 64;

/// A tool under the policies of one decision point. A catalog may keep it beside the tool's definition; it answers as
/// [`DecisionPoint::decide`](crate::DecisionPoint::decide) does, and faster.
pub struct PreparedTool {
    base: Arc<PolicyBase>,
    tool: ToolFacts,
    /// In the order of [`Tier::ALL`].
    tiers: [TierSlices; Tier::ALL.len()],
    /// What the policies that are left to Cedar read, in whatever tier.
    reads: Reads,
    worlds: RwLock<Vec<(Asker, World)>>,
    standing: RwLock<Vec<(Asker, Tier, Arc<Decision>)>>,
}

/// An agent and its profile.
struct Asker(AgentId, AgentId);

impl Asker {
    fn is(&self, agent: &AgentId, profile: &AgentId) -> bool {
        self.0 == *agent && self.1 == *profile
    }
}

struct TierSlices {
    tier: Tier,
    call: Slice,
    unattended: Slice,
}

/// The policies that can matter to one question.
#[derive(Default)]
struct Slice {
    /// Satisfied, whoever asks for whatever.
    permits: Vec<PolicyId>,
    forbids: Vec<PolicyId>,
    /// For Cedar to decide, each time.
    open: Option<Arc<PolicySet>>,
}

impl PreparedTool {
    pub(crate) fn new(base: &Arc<PolicyBase>, tool: &ToolFacts) -> Self {
        let mut subject = Subject::new(tool);
        let mut candidates = base.index.candidates(&subject, tool.capability.tool());
        let mut reads = Reads::NOTHING;
        candidates.retain(|position| {
            let Some(policy) = base.indexed.get(*position) else {
                return false;
            };
            let resolved = subject.resolve(&policy.syntax);
            if resolved.is_none() {
                reads.extend(&policy.syntax.reads);
            }
            resolved != Some(false)
        });
        let tiers = Tier::ALL.map(|tier| {
            subject.in_tier(tier);
            let slice = |action| Slice::of(base, &subject, &candidates, action);
            TierSlices {
                tier,
                call: slice(Action::Call),
                unattended: slice(Action::Unattended),
            }
        });
        Self {
            base: Arc::clone(base),
            tool: tool.clone(),
            tiers,
            reads,
            worlds: RwLock::default(),
            standing: RwLock::default(),
        }
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &ToolFacts {
        &self.tool
    }

    /// The answer to every call by this agent in this tier, whatever its arguments and whenever: where no policy that
    /// matters reads arguments or time. Arguments that cannot be decided on at all are denied nevertheless.
    #[must_use]
    pub fn standing(&self, agent: &AgentId, profile: &AgentId, tier: Tier) -> Option<Arc<Decision>> {
        if self.reads.depend_on_the_call() {
            return None;
        }
        let known = self.standing.read().unwrap_or_else(PoisonError::into_inner);
        let found = known
            .iter()
            .find(|(asker, known, _)| *known == tier && asker.is(agent, profile))
            .map(|(.., decision)| Arc::clone(decision));
        drop(known);
        Some(found.unwrap_or_else(|| {
            let question = CallQuestion {
                agent,
                profile,
                tier,
                tool: &self.tool,
                arguments: "{}",
                now_ms: 0,
            };
            let decision = Arc::new(self.evaluate(&question, Vec::new()));
            remember(
                &self.standing,
                (Asker(agent.clone(), profile.clone()), tier, Arc::clone(&decision)),
            );
            decision
        }))
    }

    pub(crate) fn decide(&self, question: &CallQuestion<'_>) -> Decision {
        let tags = match arguments::tags(question.arguments, &self.reads.tags) {
            Ok(tags) => tags,
            Err((code, told)) => return Decision::deny(code, Some(told)),
        };
        if let Err(unfit) = model::check_time(question.now_ms) {
            return Decision::deny(ReasonCode::DenyInvalidRequest, Some(unfit));
        }
        match self.standing(question.agent, question.profile, question.tier) {
            Some(decision) => decision.as_ref().clone(),
            None => self.evaluate(question, tags),
        }
    }

    fn evaluate(&self, question: &CallQuestion<'_>, tags: Vec<(String, String)>) -> Decision {
        let decision = self.world(question, tags).and_then(|world| {
            self.base.decide_call(&self.tool, question.tier, |action, tier| {
                self.verdict(world.as_ref(), question, action, tier)
            })
        });
        decision.unwrap_or_else(|unfit| Decision::deny(ReasonCode::DenyInvalidRequest, Some(unfit)))
    }

    /// The world to ask Cedar in, where it has to be asked at all.
    fn world(
        &self,
        question: &CallQuestion<'_>,
        tags: Vec<(String, String)>,
    ) -> Result<Option<World>, Unfit> {
        if self
            .tiers
            .iter()
            .all(|slices| slices.call.open.is_none() && slices.unattended.open.is_none())
        {
            return Ok(None);
        }
        let (agent, profile) = (question.agent, question.profile);
        let known = self.worlds.read().unwrap_or_else(PoisonError::into_inner);
        let found = known
            .iter()
            .find(|(asker, _)| asker.is(agent, profile))
            .map(|(.., world)| self.base.model.with_arguments(world, tags.clone()));
        drop(known);
        if let Some(world) = found {
            return world.map(Some);
        }
        let world = self.base.model.world(agent, profile, &self.tool)?;
        let whole = self.base.model.with_arguments(&world, tags)?;
        remember(&self.worlds, (Asker(agent.clone(), profile.clone()), world));
        Ok(Some(whole))
    }

    fn verdict(
        &self,
        world: Option<&World>,
        question: &CallQuestion<'_>,
        action: Action,
        tier: Tier,
    ) -> Result<Verdict, Unfit> {
        let slices = self.tiers.iter().find(|slices| slices.tier == tier);
        let slice = slices.map(|slices| match action {
            Action::Call => &slices.call,
            _ => &slices.unattended,
        });
        let slice = slice.ok_or_else(|| format!("the tier `{tier}` has no policies"))?;
        let (mut permits, mut forbids) = (slice.permits.clone(), slice.forbids.clone());
        let mut errors = Vec::new();
        if let (Some(open), Some(world)) = (&slice.open, world) {
            verdict::check_complete(world)?;
            let request = self
                .base
                .model
                .request(world, action, self.context(question, tier)?)?;
            let (more_permits, more_forbids, failed) = verdict::put(open, &request, &world.entities);
            permits.extend(more_permits);
            forbids.extend(more_forbids);
            errors = failed;
        }
        Ok(Verdict::of(permits, forbids, errors))
    }

    fn context(&self, question: &CallQuestion<'_>, tier: Tier) -> Result<Context, Unfit> {
        if !self.reads.arguments_hash && !self.reads.now {
            return self.base.model.placeholder_context(tier);
        }
        let hash = self
            .reads
            .arguments_hash
            .then(|| Hash::of(question.arguments.as_bytes()));
        let now_ms = self.reads.now.then_some(question.now_ms);
        self.base.model.call_context(tier, hash.as_ref(), now_ms)
    }
}

impl Slice {
    fn of(base: &PolicyBase, subject: &Subject<'_>, candidates: &[usize], action: Action) -> Self {
        let mut slice = Self::default();
        let mut open = Vec::new();
        for position in candidates {
            let Some(policy) = base
                .indexed
                .get(*position)
                .filter(|policy| policy.syntax.is_about(action))
            else {
                continue;
            };
            match subject.resolve(&policy.syntax) {
                Some(false) => {}
                Some(true) if policy.syntax.permits => slice.permits.push(policy.policy.id().clone()),
                Some(true) => slice.forbids.push(policy.policy.id().clone()),
                None => open.push(*position),
            }
        }
        if !open.is_empty() {
            slice.open = Some(base.set_of(open));
        }
        slice
    }
}

fn remember<T>(into: &RwLock<Vec<T>>, item: T) {
    let mut known = into.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() < MAX_REMEMBERED {
        known.push(item);
    }
}

impl fmt::Debug for PreparedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedTool")
            .field("tool", &self.tool)
            .field("depends_on_the_call", &self.reads.depend_on_the_call())
            .finish_non_exhaustive()
    }
}
