//! The policies in force: one snapshot for each decision, and how another takes its place.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use arc_swap::ArcSwap;
use portcullis_policy::{DecisionPoint, Reload, Reloaded};
use tokio::{
    sync::{Mutex, watch},
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    event::{Event, EventBus, ReloadOutcome},
    policy_folder::{FolderStamp, PolicyFolder, PolicyFolderError},
};

/// How long reading and loading a folder may take.
const RELOAD_WITHIN: Duration = Duration::from_secs(60);

/// What a reload came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyReload {
    /// There is no folder to load from: the policies came as texts.
    NoFolder,
    /// The policies of the folder are those in force.
    Unchanged,
    /// They took over.
    Taken,
    /// Something is wrong, a sentence each; the policies in force stay.
    Refused(Vec<String>),
}

/// The policies in force, and the folder that they come from.
pub(crate) struct Policies {
    current: ArcSwap<DecisionPoint>,
    folder: Option<PolicyFolder>,
    /// Counts the swaps.
    swaps: watch::Sender<u64>,
    /// Why the folder was refused last; empty where it was not.
    refused: RwLock<Vec<String>>,
    /// One reload at a time.
    reloading: Mutex<()>,
    events: EventBus,
}

impl Policies {
    pub(crate) fn new(first: Arc<DecisionPoint>, folder: Option<PolicyFolder>, events: EventBus) -> Self {
        Self {
            current: ArcSwap::new(first),
            folder,
            swaps: watch::channel(0).0,
            refused: RwLock::default(),
            reloading: Mutex::default(),
            events,
        }
    }

    /// The snapshot to decide by: whoever decides takes one, and asks it alone.
    pub(crate) fn current(&self) -> Arc<DecisionPoint> {
        self.current.load_full()
    }

    pub(crate) fn folder(&self) -> Option<&PolicyFolder> {
        self.folder.as_ref()
    }

    /// Changes whenever other policies take over.
    pub(crate) fn swaps(&self) -> watch::Receiver<u64> {
        self.swaps.subscribe()
    }

    /// What is wrong with the folder, where it was refused last.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.refused
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Loads the folder, and lets what it holds take over. With `standing`, only if the folder still looks so when it
    /// has been read: what somebody is writing is left to them, and `None` says so.
    pub(crate) async fn reload(&self, standing: Option<FolderStamp>) -> Option<PolicyReload> {
        let Some(folder) = self.folder.clone() else {
            return Some(PolicyReload::NoFolder);
        };
        let _one = self.reloading.lock().await;
        let current = self.current();
        let loading = spawn_blocking(move || {
            let texts = folder.texts();
            if standing.is_some_and(|standing| folder.stamp() != standing) {
                return None;
            }
            Some(texts.map(
                |texts| match Reload::of(&current, &texts.files, texts.seal.as_ref()) {
                    Reload::Refused(errors) => Reload::Refused(folder.place(errors)),
                    reload => reload,
                },
            ))
        });
        let loaded = match timeout(RELOAD_WITHIN, loading).await {
            Ok(Ok(None)) => return None,
            Ok(Ok(Some(loaded))) => loaded,
            Ok(Err(_)) => return Some(self.refuse(vec!["loading the policies failed".to_owned()])),
            Err(_) => {
                let told = format!("loading the policies took over {} s", RELOAD_WITHIN.as_secs());
                return Some(self.refuse(vec![told]));
            }
        };
        Some(match loaded {
            Ok(Reload::Unchanged) => self.unchanged(),
            Ok(Reload::Changed(reloaded)) => self.take(*reloaded),
            Ok(Reload::Refused(errors)) => self.refuse(errors.0.iter().map(ToString::to_string).collect()),
            Err(PolicyFolderError::Policies(errors)) => {
                self.refuse(errors.0.iter().map(ToString::to_string).collect())
            }
            Err(error) => self.refuse(vec![error.to_string()]),
        })
    }

    fn take(&self, reloaded: Reloaded) -> PolicyReload {
        let digest = reloaded.policies.digest();
        self.current.store(Arc::new(reloaded.policies));
        self.set_refused(Vec::new());
        self.swaps.send_modify(|swaps| *swaps += 1);
        for policy in &reloaded.vanished_forbids {
            tracing::warn!(%policy, "a policy that forbids is gone");
        }
        self.events.tell(Event::PolicyReload {
            outcome: ReloadOutcome::Taken,
            policy_digest: digest,
            before: Some(reloaded.digest_before),
            no_longer_forbidden: reloaded.vanished_forbids,
            errors: Vec::new(),
        });
        PolicyReload::Taken
    }

    /// The last good policies stay, and that is told, once for each thing that is wrong.
    fn refuse(&self, errors: Vec<String>) -> PolicyReload {
        if self.set_refused(errors.clone()) {
            tracing::error!(?errors, "policies cannot be used; those in force stay");
            self.tell(ReloadOutcome::Refused, errors.clone());
        }
        PolicyReload::Refused(errors)
    }

    fn unchanged(&self) -> PolicyReload {
        // Somebody took back what was refused: that is news.
        if self.set_refused(Vec::new()) {
            self.tell(ReloadOutcome::Restored, Vec::new());
        }
        PolicyReload::Unchanged
    }

    fn tell(&self, outcome: ReloadOutcome, errors: Vec<String>) {
        self.events.tell(Event::PolicyReload {
            outcome,
            policy_digest: self.current().digest(),
            before: None,
            no_longer_forbidden: Vec::new(),
            errors,
        });
    }

    /// Whether that is another state than before.
    fn set_refused(&self, errors: Vec<String>) -> bool {
        let mut refused = self.refused.write().unwrap_or_else(PoisonError::into_inner);
        let changed = *refused != errors;
        *refused = errors;
        changed
    }
}
