//! Files of policies as one validated set.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
};

use cedar_policy::{Policy, PolicyId, PolicySet, ValidationMode, ValidationWarning, Validator, pst};
use miette::Diagnostic;
use portcullis_types::{Hash, PolicyRef};

use crate::{
    PolicyError, PolicyErrors, PolicyFile, PolicyProblem, builtin, depth,
    index::Index,
    model::{Action, Model},
    rules,
    source::{self, LoadedPolicy},
    syntax::Syntax,
};

/// Policies that may be asked.
pub(crate) struct PolicyBase {
    pub(crate) model: &'static Model,
    /// All of them.
    pub(crate) policies: PolicySet,
    /// The same one by one, at the positions that the index knows.
    pub(crate) indexed: Vec<IndexedPolicy>,
    pub(crate) index: Index,
    /// Sets of some of the policies, by their positions: many tools share one.
    sets: Mutex<HashMap<Vec<usize>, Arc<PolicySet>>>,
    /// The policies about each action, in the order of [`Action::ALL`].
    about: [OnceLock<Arc<PolicySet>>; Action::ALL.len()],
    /// Where each policy stands.
    pub(crate) places: HashMap<PolicyId, PolicyRef>,
    /// The same, in order of file and line.
    pub(crate) references: Vec<PolicyRef>,
    pub(crate) digest: Hash,
    /// Whether the given files say anything at all: a policy, or a default.
    pub(crate) says_something: bool,
}

/// A policy and what its syntax tells.
pub(crate) struct IndexedPolicy {
    pub(crate) policy: Policy,
    pub(crate) syntax: Syntax,
    written: OnceLock<Vec<pst::Clause>>,
}

impl IndexedPolicy {
    /// The conditions as they were written, for people. To find them takes as long as to parse the policy, so it is
    /// done for those that are asked for.
    pub(crate) fn clauses(&self) -> &[pst::Clause] {
        self.written.get_or_init(|| match self.policy.to_pst() {
            Ok(pst::Policy::Static(tree)) => tree.body().clauses().clone(),
            // What decides says the same in other words.
            _ => self.syntax.clauses.clone(),
        })
    }
}

/// How many sets of policies are kept for tools to share.
const MAX_SETS: usize = 4_096;

impl PolicyBase {
    /// The set of the policies at these positions.
    pub(crate) fn set_of(&self, positions: &[usize]) -> Arc<PolicySet> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(set) = sets.get(positions) {
            return Arc::clone(set);
        }
        let policies = positions
            .iter()
            .filter_map(|position| self.indexed.get(*position));
        let set = PolicySet::from_policies(policies.map(|indexed| indexed.policy.clone()));
        // The ids were unique in the whole set; were a set ever refused, all policies are as good, only slower.
        let set = Arc::new(set.unwrap_or_else(|_| self.policies.clone()));
        if sets.len() >= MAX_SETS {
            sets.clear();
        }
        sets.insert(positions.to_vec(), Arc::clone(&set));
        set
    }

    /// All policies with their places.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (&PolicyRef, &IndexedPolicy)> {
        let place = |policy: &Policy| self.places.get(policy.id());
        self.indexed
            .iter()
            .filter_map(move |indexed| Some((place(&indexed.policy)?, indexed)))
    }

    /// The annotation of this name of the policy of this id.
    pub(crate) fn annotation(&self, id: &str, name: &str) -> Option<&str> {
        self.policies.annotation(&PolicyId::new(id), name)
    }

    /// The set of all policies about `action`.
    pub(crate) fn about(&self, action: Action) -> Arc<PolicySet> {
        let collect = || {
            let positions = (0..).zip(&self.indexed);
            let about = positions.filter(|(_, indexed)| indexed.syntax.is_about(action));
            self.set_of(&about.map(|(position, _)| position).collect::<Vec<_>>())
        };
        let known = Action::ALL.into_iter().zip(&self.about);
        let known = known
            .filter(|(known, _)| *known == action)
            .map(|(_, set)| set)
            .next();
        known.map_or_else(collect, |set| Arc::clone(set.get_or_init(collect)))
    }
}

/// Loads `files` over `always_loaded`: all of them or none.
pub(crate) fn load(always_loaded: &[PolicyFile], files: &[PolicyFile]) -> Result<PolicyBase, PolicyErrors> {
    depth::with_room("", || load_here(always_loaded, files))
}

fn load_here(always_loaded: &[PolicyFile], files: &[PolicyFile]) -> Result<PolicyBase, PolicyErrors> {
    let model = Model::embedded().map_err(|error| {
        PolicyErrors(vec![PolicyError::new(
            builtin::SCHEMA_NAME,
            1,
            PolicyProblem::Internal(error),
        )])
    })?;
    let mut errors = Vec::new();
    let mut defaults = Vec::new();
    let mut loaded = Vec::new();
    for file in always_loaded {
        loaded.extend(policies_of(file, &mut defaults, &mut errors));
    }
    let built_in = loaded.len();
    for file in files {
        loaded.extend(policies_of(file, &mut defaults, &mut errors));
    }
    let says_something = loaded.len() > built_in || !defaults.is_empty();
    errors.extend(second_defaults(&defaults));
    let (policies, places) = joined(loaded, &mut errors);
    let texts: HashMap<_, _> = always_loaded
        .iter()
        .chain(files)
        .map(|file| (file.name.as_str(), file.text.as_str()))
        .collect();
    // Cedar's validation takes about as long as all that is done with the syntax, and both only read.
    let validate = || validation_errors(model, &policies, &places, &texts);
    let (invalid, indexed) = thread::scope(|scope| {
        let index = || indexed(&policies, &places);
        let beside = thread::Builder::new().spawn_scoped(scope, index);
        // Where there is no second thread, one does both.
        (
            validate(),
            beside.map_or_else(|_| Ok(index()), |beside| beside.join()),
        )
    });
    errors.extend(invalid);
    if !errors.is_empty() {
        errors.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        return Err(PolicyErrors(errors));
    }
    let mut references: Vec<_> = places.values().cloned().collect();
    in_order(&mut references);
    let digest = digest(always_loaded.iter().chain(files));
    let (indexed, index) =
        indexed.unwrap_or_else(|_| Err(PolicyErrors(vec![PolicyError::new("", 1, depth::ended())])))?;
    Ok(PolicyBase {
        model,
        policies,
        index,
        indexed,
        sets: Mutex::default(),
        about: Default::default(),
        places,
        references,
        digest,
        says_something,
    })
}

fn indexed(
    policies: &PolicySet,
    places: &HashMap<PolicyId, PolicyRef>,
) -> Result<(Vec<IndexedPolicy>, Index), PolicyErrors> {
    let each = policies.policies().map(|policy| {
        let syntax = Syntax::of(policy).map_err(|error| {
            let place = places.get(policy.id());
            let (file, line) = place.map_or(("", 1), |place| (place.file.as_str(), place.line));
            PolicyErrors(vec![PolicyError::new(file, line, PolicyProblem::Internal(error))])
        })?;
        Ok(IndexedPolicy {
            policy: policy.clone(),
            syntax,
            written: OnceLock::new(),
        })
    });
    let indexed: Vec<_> = each.collect::<Result<_, _>>()?;
    let index = Index::of(indexed.iter().map(|policy| &policy.syntax));
    Ok((indexed, index))
}

/// Sorts by file, line and id.
pub(crate) fn in_order(references: &mut [PolicyRef]) {
    references.sort_by(|a, b| (&a.file, a.line, &a.id).cmp(&(&b.file, b.line, &b.id)));
}

/// The hash of all policy texts and the schema, whatever the order of the files. Each part goes in with its length,
/// so that no two sets of files run together into the same bytes.
pub(crate) fn digest<'a>(files: impl Iterator<Item = &'a PolicyFile>) -> Hash {
    let texts: BTreeSet<_> = files.map(|file| (&file.name, &file.text)).collect();
    let mut bytes = Vec::new();
    let parts = texts
        .into_iter()
        .flat_map(|(name, text)| [name.as_str(), text.as_str()]);
    for part in [builtin::SCHEMA].into_iter().chain(parts) {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    Hash::of(&bytes)
}

fn policies_of(
    file: &PolicyFile,
    defaults: &mut Vec<(String, usize)>,
    errors: &mut Vec<PolicyError>,
) -> Vec<LoadedPolicy> {
    source::check_text(file, errors);
    if file.name.ends_with(".cedar") {
        source::load_cedar(file, errors)
    } else if file.name.ends_with(".rules") {
        let compiled = rules::compile(file, errors);
        defaults.extend(
            compiled
                .defaults
                .into_iter()
                .map(|line| (file.name.clone(), line)),
        );
        compiled.policies
    } else {
        errors.push(PolicyError::new(&file.name, 1, PolicyProblem::FileKind));
        Vec::new()
    }
}

fn second_defaults(defaults: &[(String, usize)]) -> Vec<PolicyError> {
    let Some(((first_file, first_line), others)) = defaults.split_first() else {
        return Vec::new();
    };
    let problem = || PolicyProblem::SecondDefault {
        file: first_file.clone(),
        line: *first_line,
    };
    others
        .iter()
        .map(|(file, line)| PolicyError::new(file, *line, problem()))
        .collect()
}

fn joined(
    loaded: Vec<LoadedPolicy>,
    errors: &mut Vec<PolicyError>,
) -> (PolicySet, HashMap<PolicyId, PolicyRef>) {
    let mut set = PolicySet::new();
    let mut places: HashMap<PolicyId, PolicyRef> = HashMap::new();
    for LoadedPolicy { policy, reference } in loaded {
        let mut report = |problem| errors.push(PolicyError::new(&reference.file, reference.line, problem));
        if let Some(first) = places.get(policy.id()) {
            report(PolicyProblem::DuplicateId {
                id: reference.id.clone(),
                file: first.file.clone(),
                line: first.line,
            });
            continue;
        }
        let id = policy.id().clone();
        match set.add(policy) {
            Ok(()) => _ = places.insert(id, reference),
            Err(error) => report(PolicyProblem::Internal(error.to_string())),
        }
    }
    (set, places)
}

/// What strict validation finds, warnings too: a policy that can never apply, or that reads as another, is a trap.
fn validation_errors(
    model: &Model,
    policies: &PolicySet,
    places: &HashMap<PolicyId, PolicyRef>,
    texts: &HashMap<&str, &str>,
) -> Vec<PolicyError> {
    let report = |id: &PolicyId, error: &dyn Diagnostic, problem: PolicyProblem| {
        let place = places.get(id);
        let file = place.map_or("", |place| place.file.as_str());
        // Rules are compiled without text, so what is wrong with them stands at the rule.
        let text = texts.get(file).filter(|_| file.ends_with(".cedar"));
        let line = text.and_then(|text| source::error_line(text, error));
        let line = line.or(place.map(|place| place.line)).unwrap_or(1);
        PolicyError::new(file, line, problem)
    };
    let invalid = |error: &dyn Diagnostic| PolicyProblem::Invalid {
        message: error.to_string(),
        help: error.help().map(|help| help.to_string()),
    };
    let result = Validator::new(model.schema().clone()).validate(policies, ValidationMode::Strict);
    let errors = result
        .validation_errors()
        .map(|error| report(error.policy_id(), error, invalid(error)));
    let warnings = result.validation_warnings().map(|warning| {
        let problem = match warning {
            ValidationWarning::MixedScriptString(_)
            | ValidationWarning::BidiCharsInString(_)
            | ValidationWarning::BidiCharsInIdentifier(_)
            | ValidationWarning::MixedScriptIdentifier(_)
            | ValidationWarning::ConfusableIdentifier(_) => PolicyProblem::LooksAlike(warning.to_string()),
            _ => invalid(warning),
        };
        report(warning.policy_id(), warning, problem)
    });
    errors.chain(warnings).collect()
}
