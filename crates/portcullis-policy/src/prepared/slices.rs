//! The policies that can matter to a tool, by the question that is put.

use std::sync::Arc;

use cedar_policy::{PolicyId, PolicySet};
use portcullis_types::Tier;

use crate::{
    load::{IndexedPolicy, PolicyBase},
    model::Action,
    resolve::Subject,
    syntax::Reads,
};

/// The policies that can matter to a tool.
pub(super) struct Slices {
    /// In the order of [`Tier::ALL`].
    tiers: [TierSlices; Tier::ALL.len()],
    /// What the policies that are left to Cedar read, in whatever tier.
    pub(super) reads: Reads,
    /// Whether any policy is left to Cedar, in whatever tier.
    pub(super) any_open: bool,
}

struct TierSlices {
    tier: Tier,
    call: Slice,
    unattended: Slice,
}

/// The policies that can matter to one question.
#[derive(Default)]
pub(super) struct Slice {
    /// Satisfied, whoever asks for whatever.
    pub(super) permits: Vec<PolicyId>,
    pub(super) forbids: Vec<PolicyId>,
    /// For Cedar to decide, each time.
    pub(super) open: Option<Open>,
    positions: Vec<usize>,
}

/// Policies that are left to Cedar.
pub(super) struct Open {
    pub(super) policies: Arc<PolicySet>,
    /// Some of them read which question is put. Where none does, what they say to one question about a call they say
    /// to the others that are put to the same set.
    pub(super) read_the_question: bool,
}

impl Slices {
    pub(super) fn of(base: &PolicyBase, subject: &mut Subject<'_>, name: &str) -> Self {
        let mut slices = Self {
            tiers: Tier::ALL.map(|tier| TierSlices {
                tier,
                call: Slice::default(),
                unattended: Slice::default(),
            }),
            reads: Reads::NOTHING,
            any_open: false,
        };
        for position in base.index.candidates(subject, name) {
            let Some(policy) = base.indexed.get(position) else {
                continue;
            };
            match subject.resolve(&policy.syntax) {
                Some(false) => {}
                Some(true) => slices.satisfied_in_every_tier(policy),
                None => slices.tier_by_tier(policy, position, subject),
            }
        }
        slices.make_sets(base);
        slices
    }

    pub(super) fn of_question(&self, tier: Tier, action: Action) -> Option<&Slice> {
        let slices = self.tiers.iter().find(|slices| slices.tier == tier)?;
        match action {
            Action::Call => Some(&slices.call),
            Action::Unattended => Some(&slices.unattended),
            _ => None,
        }
    }

    fn satisfied_in_every_tier(&mut self, policy: &IndexedPolicy) {
        for tier in &mut self.tiers {
            tier.each_about(policy, Slice::satisfied);
        }
    }

    fn tier_by_tier(&mut self, policy: &IndexedPolicy, position: usize, subject: &mut Subject<'_>) {
        let mut open = false;
        for tier in &mut self.tiers {
            match subject.in_tier(tier.tier).resolve(&policy.syntax) {
                Some(false) => {}
                Some(true) => tier.each_about(policy, Slice::satisfied),
                None => {
                    open = true;
                    tier.each_about(policy, |slice, _| slice.positions.push(position));
                }
            }
        }
        subject.in_no_tier();
        if open {
            self.reads.extend(&policy.syntax.reads);
        }
    }

    fn make_sets(&mut self, base: &PolicyBase) {
        let slices = self
            .tiers
            .iter_mut()
            .flat_map(|tier| [&mut tier.call, &mut tier.unattended]);
        for slice in slices.filter(|slice| !slice.positions.is_empty()) {
            let mut policies = slice
                .positions
                .iter()
                .filter_map(|position| base.indexed.get(*position));
            slice.open = Some(Open {
                read_the_question: policies.any(|policy| policy.syntax.reads.question),
                policies: base.set_of(&slice.positions),
            });
            self.any_open = true;
        }
    }
}

impl TierSlices {
    fn each_about(&mut self, policy: &IndexedPolicy, mut with: impl FnMut(&mut Slice, &IndexedPolicy)) {
        for (action, slice) in [
            (Action::Call, &mut self.call),
            (Action::Unattended, &mut self.unattended),
        ] {
            if policy.syntax.is_about(action) {
                with(slice, policy);
            }
        }
    }
}

impl Slice {
    fn satisfied(&mut self, policy: &IndexedPolicy) {
        let into = match policy.syntax.permits {
            true => &mut self.permits,
            false => &mut self.forbids,
        };
        into.push(policy.policy.id().clone());
    }
}
