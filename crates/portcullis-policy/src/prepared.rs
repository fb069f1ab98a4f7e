//! A tool under a set of policies: what can be settled once is settled here, what depends on the call is left.
//!
//! Settled for each tool: which policies can matter, and which of them hold whatever the call. Settled for each agent
//! and tier that asks for the tool: the entities, and the requests, both built and checked against the schema. Left
//! for the call: its arguments, as far as policies read them, and the policies that are left to Cedar.

mod slices;

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use cedar_policy::{Entities, PolicySet, Request};
use portcullis_types::{AgentId, Decision, Hash, ReasonCode, Tier};

use self::slices::{Open, Slices};
use crate::{
    CallQuestion, ToolFacts,
    arguments::{self, Tags},
    load::PolicyBase,
    model::{self, Unfit, World},
    resolve::Subject,
    verdict::{self, Put, Step, Verdict},
};

/// How many agents and tiers a tool remembers what is settled for. Were it more, all are forgotten and settled anew.
const MAX_REMEMBERED: usize = 64;

/// A tool under the policies of one decision point. A catalog may keep it beside the tool's definition; it answers as
/// [`DecisionPoint::decide`](crate::DecisionPoint::decide) does, and faster.
pub struct PreparedTool {
    base: Arc<PolicyBase>,
    tool: ToolFacts,
    slices: Slices,
    settled: Remembered<Settled>,
    standing: Remembered<Decision>,
}

/// Things remembered by who asks in which tier.
type Remembered<T> = RwLock<Vec<(Asker, Arc<T>)>>;

/// An agent, its profile, and the tier it is in.
struct Asker(AgentId, AgentId, Tier);

impl Asker {
    fn of(question: &CallQuestion<'_>) -> Self {
        Self(question.agent.clone(), question.profile.clone(), question.tier)
    }

    fn asks(&self, question: &CallQuestion<'_>) -> bool {
        self.2 == question.tier && self.0 == *question.agent && self.1 == *question.profile
    }
}

/// What is the same in all calls of the tool by one agent in one tier.
struct Settled {
    /// The world without the arguments of a call.
    world: World,
    /// The same with arguments of which no policy reads anything.
    unread: Entities,
    /// The requests, where no policy reads the hash of the arguments or the time; in the order of [`Step::ALL`].
    requests: Option<[Request; Step::ALL.len()]>,
}

impl PreparedTool {
    pub(crate) fn new(base: &Arc<PolicyBase>, tool: &ToolFacts) -> Self {
        Self {
            slices: Slices::of(base, &mut Subject::new(tool), tool.capability.tool()),
            base: Arc::clone(base),
            tool: tool.clone(),
            settled: RwLock::default(),
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
        if self.slices.reads.depend_on_the_call() {
            return None;
        }
        let question = CallQuestion {
            agent,
            profile,
            tier,
            tool: &self.tool,
            arguments: "{}",
            now_ms: 0,
        };
        Some(
            recalled(&self.standing, &question).unwrap_or_else(|| {
                remember(&self.standing, &question, self.evaluate(&question, Tags::new()))
            }),
        )
    }

    /// The answer to a question about this tool. The question's own facts are not looked at: the answer is about the
    /// tool as it was prepared.
    pub(crate) fn decide(&self, question: &CallQuestion<'_>) -> Decision {
        let tags = match arguments::tags(question.arguments, &self.slices.reads.tags) {
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

    fn evaluate(&self, question: &CallQuestion<'_>, tags: Tags) -> Decision {
        let decision = self.asked(question).and_then(|settled| {
            let mut asking = Asking::new(self, question, settled.as_deref(), tags)?;
            self.base
                .decide_call(&self.tool, question.tier, |step| asking.verdict(step))
        });
        decision.unwrap_or_else(|unfit| Decision::deny(ReasonCode::DenyInvalidRequest, Some(unfit)))
    }

    /// What is settled for who asks, where Cedar has to be asked at all.
    fn asked(&self, question: &CallQuestion<'_>) -> Result<Option<Arc<Settled>>, Unfit> {
        if !self.slices.any_open {
            return Ok(None);
        }
        if let Some(settled) = recalled(&self.settled, question) {
            return Ok(Some(settled));
        }
        let settled = Settled::new(self, question)?;
        Ok(Some(remember(&self.settled, question, settled)))
    }
}

impl Settled {
    fn new(tool: &PreparedTool, question: &CallQuestion<'_>) -> Result<Self, Unfit> {
        let model = tool.base.model;
        let world = model.world(question.agent, question.profile, &tool.tool)?;
        world.check_complete()?;
        let reads = &tool.slices.reads;
        let requests = if reads.arguments_hash || reads.now {
            None
        } else {
            let request = |step: Step| {
                let context = model.call_context(step.tier(question.tier), None, None)?;
                model.request(&world, step.action(), context)
            };
            let [call, unattended, in_full_access] = Step::ALL.map(request);
            Some([call?, unattended?, in_full_access?])
        };
        Ok(Self {
            unread: model.arguments_beside(&world.entities, Tags::new())?,
            world,
            requests,
        })
    }

    fn request(&self, step: Step) -> Option<&Request> {
        let requests = Step::ALL.into_iter().zip(self.requests.as_ref()?);
        requests
            .filter(|(of, _)| *of == step)
            .map(|(_, request)| request)
            .next()
    }
}

/// One decision on its way.
struct Asking<'a> {
    tool: &'a PreparedTool,
    question: &'a CallQuestion<'a>,
    /// Who asks, and the entities around the call, where Cedar has to be asked at all.
    asked: Option<(&'a Settled, Cow<'a, Entities>)>,
    /// What was last put to Cedar, and what it said.
    last: Option<(Arc<PolicySet>, Put)>,
}

impl<'a> Asking<'a> {
    fn new(
        tool: &'a PreparedTool,
        question: &'a CallQuestion<'a>,
        settled: Option<&'a Settled>,
        tags: Tags,
    ) -> Result<Self, Unfit> {
        let entities = match settled {
            None => None,
            Some(settled) if tags.is_empty() => Some(Cow::Borrowed(&settled.unread)),
            Some(settled) => Some(Cow::Owned(
                tool.base.model.arguments_beside(&settled.world.entities, tags)?,
            )),
        };
        Ok(Self {
            tool,
            question,
            asked: settled.zip(entities),
            last: None,
        })
    }

    fn verdict(&mut self, step: Step) -> Result<Verdict, Unfit> {
        let (tool, tier) = (self.tool, step.tier(self.question.tier));
        let slice = tool
            .slices
            .of_question(tier, step.action())
            .ok_or_else(|| format!("the tier `{tier}` has no policies"))?;
        let (mut permits, mut forbids) = (slice.permits.clone(), slice.forbids.clone());
        let mut errors = Vec::new();
        if let Some(open) = &slice.open {
            let (more_permits, more_forbids, failed) = self.put(step, open)?;
            permits.extend(more_permits);
            forbids.extend(more_forbids);
            errors = failed;
        }
        Ok(Verdict::of(permits, forbids, errors))
    }

    /// Puts a question to Cedar, or recalls what it said to the one before where that is the answer to this as well.
    fn put(&mut self, step: Step, open: &Open) -> Result<Put, Unfit> {
        let same = |(policies, _): &&(Arc<PolicySet>, Put)| Arc::ptr_eq(policies, &open.policies);
        if let Some((_, said)) = self
            .last
            .as_ref()
            .filter(same)
            .filter(|_| !open.read_the_question)
        {
            return Ok(said.clone());
        }
        let (settled, entities) = self
            .asked
            .as_ref()
            .ok_or_else(|| "the entities of the call are missing".to_owned())?;
        let request = match settled.request(step) {
            Some(request) => Cow::Borrowed(request),
            None => Cow::Owned(self.request(settled, step)?),
        };
        let said = verdict::put(&open.policies, &request, entities);
        self.last = Some((Arc::clone(&open.policies), said.clone()));
        Ok(said)
    }

    /// The request of this very call.
    fn request(&self, settled: &Settled, step: Step) -> Result<Request, Unfit> {
        let (base, reads) = (&self.tool.base, &self.tool.slices.reads);
        let hash = reads
            .arguments_hash
            .then(|| Hash::of(self.question.arguments.as_bytes()));
        let now_ms = reads.now.then_some(self.question.now_ms);
        let tier = step.tier(self.question.tier);
        let context = base.model.call_context(tier, hash.as_ref(), now_ms)?;
        base.model.request(&settled.world, step.action(), context)
    }
}

fn recalled<T>(from: &Remembered<T>, question: &CallQuestion<'_>) -> Option<Arc<T>> {
    let known = from.read().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().find(|(asker, _)| asker.asks(question));
    found.map(|(_, item)| Arc::clone(item))
}

fn remember<T>(into: &Remembered<T>, question: &CallQuestion<'_>, item: T) -> Arc<T> {
    let item = Arc::new(item);
    let mut known = into.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MAX_REMEMBERED {
        known.clear();
    }
    known.push((Asker::of(question), Arc::clone(&item)));
    item
}

impl fmt::Debug for PreparedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedTool")
            .field("tool", &self.tool)
            .field("depends_on_the_call", &self.slices.reads.depend_on_the_call())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecisionPoint, PolicyFile};

    #[test]
    fn what_is_remembered_of_those_who_ask_has_a_bound() {
        let file = PolicyFile {
            name: "t.rules".to_owned(),
            text: "default ask\nallow mcp.a.x when arg.k == \"v\"\n".to_owned(),
        };
        let point = DecisionPoint::load(&[file]).unwrap();
        // Of the one tool the answer depends on the call, of the other it stands.
        for (tool, remembered) in [("mcp.a.x", (true, false)), ("mcp.a.y", (false, true))] {
            let tool = ToolFacts::from_definition(tool.parse().unwrap(), "stdio", "{}", true);
            let prepared = point.prepare(&tool).unwrap();
            for n in 0..=MAX_REMEMBERED {
                let agent = format!("agent-{n}").parse().unwrap();
                let question = CallQuestion {
                    agent: &agent,
                    profile: &agent,
                    tier: Tier::Plan,
                    tool: &tool,
                    arguments: "{}",
                    now_ms: 0,
                };
                assert_eq!(prepared.decide(&question), point.decide_unindexed(&question));
                let (settled, standing) = (
                    prepared.settled.read().unwrap(),
                    prepared.standing.read().unwrap(),
                );
                assert_eq!((!settled.is_empty(), !standing.is_empty()), remembered);
                assert!(settled.len() <= MAX_REMEMBERED && standing.len() <= MAX_REMEMBERED);
            }
        }
    }
}
