//! A person's "always": a policy that is shown before it is written, and written only where it holds by then.

use std::{path::Path, sync::Arc};

use portcullis_policy::{AlwaysAllow, CallQuestion, DecisionPoint, PolicyFile};
use portcullis_state::{Privacy, StateError, write_new};
use portcullis_types::{AgentId, Answer, Hash, Tier};
use tokio::{task::spawn_blocking, time::timeout};

use super::{STATE_WITHIN, told::Told};
use crate::{
    approval::AlwaysOffer,
    catalog::CatalogTool,
    clock,
    decide::Decided,
    dispatch::{Call, Dispatch},
    pins::chain,
    policy_folder::PolicyFolder,
};

/// A policy that would permit one call for good, and what it takes to see whether it would.
#[derive(Debug, Clone)]
pub(super) struct Always {
    folder: PolicyFolder,
    /// The policy.
    file: PolicyFile,
    /// The policies that asked.
    asked_by: Hash,
    tool: Arc<CatalogTool>,
    agent: AgentId,
    profile: AgentId,
    tier: Tier,
    arguments: Arc<str>,
}

/// How writing a policy went.
#[derive(Debug)]
pub(super) enum Written {
    /// It was written, or that was tried.
    Tried(Result<(), StateError>),
    /// It could not hold any more, for this reason.
    Void(String),
}

impl Always {
    /// The policy of a call, where one can be written for it.
    fn of(
        folder: &PolicyFolder,
        call: &Call,
        tool: &Arc<CatalogTool>,
        decided: &Decided,
        by: &str,
    ) -> Option<Self> {
        let always = AlwaysAllow {
            capability: &call.capability,
            agent: &call.agent,
            by,
            call: call.number,
            arguments_hash: call.arguments_hash,
            at_ms: clock::unix_ms(),
        };
        Some(Self {
            folder: folder.clone(),
            file: always.policy().ok()?,
            asked_by: decided.policies.digest(),
            tool: Arc::clone(tool),
            agent: call.agent.clone(),
            profile: call.profile.clone(),
            tier: call.tier,
            arguments: Arc::clone(&call.arguments),
        })
    }

    /// What a person is shown of it.
    pub(super) fn offer(&self) -> AlwaysOffer {
        AlwaysOffer {
            path: self.folder.path().join(&self.file.name),
            text: self.file.text.clone(),
        }
    }

    /// Whether it can hold: nobody sealed the folder, it holds the policies that asked, and with this one more they
    /// allow the call. Blocks.
    ///
    /// # Errors
    /// Why not, for people.
    fn holds(&self) -> Result<(), String> {
        let mut texts = self
            .folder
            .texts()
            .map_err(|error| format!("the policies cannot be read: {}", chain(&error)))?;
        if texts.seal.is_some() {
            return Err("the folder of policies is sealed".to_owned());
        }
        if load(&texts.files)?.digest() != self.asked_by {
            return Err("the folder holds other policies than those that asked".to_owned());
        }
        texts.files.push(self.file.clone());
        let question = CallQuestion {
            agent: &self.agent,
            profile: &self.profile,
            tier: self.tier,
            tool: &self.tool.facts,
            arguments: &self.arguments,
            now_ms: clock::unix_ms(),
        };
        match load(&texts.files)?.decide(&question).answer {
            Answer::Allow => Ok(()),
            Answer::Ask | Answer::Deny => {
                Err("the policies would not allow it with that one either".to_owned())
            }
        }
    }

    fn write(&self, to: &Path) -> Result<(), StateError> {
        write_new(to, self.file.text.as_bytes(), Privacy::Shared)
    }
}

impl Dispatch {
    /// What "always" would write, where that answer can hold.
    pub(super) async fn always(
        &self,
        call: &Call,
        tool: &Arc<CatalogTool>,
        decided: &Decided,
        by: &str,
    ) -> Option<Always> {
        let always = Always::of(self.policies.folder()?, call, tool, decided, by)?;
        let held = spawn_blocking(move || always.holds().ok().map(|()| always));
        timeout(STATE_WITHIN, held).await.ok()?.ok()?
    }

    /// Writes the policy that was shown, and lets it take over. Only where it still holds when it is written: a person
    /// may think for long, and what was put into force or sealed meanwhile is not theirs to add to.
    pub(super) async fn write_always(&self, always: Always, told: &mut Told<'_>) {
        let path = always.offer().path;
        let (to, policies, catalog) = (path.clone(), Arc::clone(&self.policies), self.catalog.clone());
        let written = spawn_blocking(move || {
            if policies.current().digest() != always.asked_by {
                return Written::Void("other policies took over meanwhile".to_owned());
            }
            let now = catalog.borrow().get(&always.tool.capability).cloned();
            if now.is_none_or(|now| now.definition != always.tool.definition) {
                return Written::Void("the tool is listed otherwise by now".to_owned());
            }
            match always.holds() {
                Ok(()) => Written::Tried(always.write(&to)),
                Err(why) => Written::Void(why),
            }
        });
        // Until more is known.
        told.of_policy(&path, None);
        let written = timeout(STATE_WITHIN, written).await;
        if told.of_policy(&path, written.ok().and_then(Result::ok)) {
            let _ = self.policies.reload(None).await;
        }
    }
}

fn load(files: &[PolicyFile]) -> Result<DecisionPoint, String> {
    DecisionPoint::load(files)
        .map_err(|error| format!("the folder of policies cannot be loaded: {}", chain(&error)))
}
