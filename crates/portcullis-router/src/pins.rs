//! Whether a tool is what it was when it was trusted. What was granted was granted to that one: a tool that changed,
//! or whose server is started in another way, asks a person until one approves the difference.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use portcullis_config::{ServerSpec, TransportSpec};
use portcullis_state::{FirstSight, PinState, SeenTool, Sighted, Sighting, State, StateError, Trusting};
use portcullis_supervisor::ToolDefinition;
use portcullis_types::{Hash, ServerId};
use serde_json::json;
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    clock,
    definition::Pinned,
    event::{PinChange, PinnedTool},
};

/// How long the state may take for one listing, other processes that hold it included.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// How often a listing is looked up again while another process holds the state.
const TRIES: usize = 3;

/// What outlives a run, and what becomes of a tool that is new.
#[derive(Debug, Clone)]
pub struct Keeping {
    /// Where it is kept. Without a state, it is in memory and ends with the router: then each tool is trusted as it
    /// is listed first in the run.
    pub state: Option<Arc<State>>,
    /// What becomes of a tool that was never seen before.
    pub first_sight: FirstSight,
    /// How long somebody may take to approve a call: 120 s by default.
    pub approval_wait: Duration,
    /// How long an approval holds that was given for a while: 1 h by default.
    pub approval_hold: Duration,
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            state: None,
            first_sight: FirstSight::default(),
            approval_wait: Duration::from_secs(120),
            approval_hold: Duration::from_secs(3_600),
        }
    }
}

/// Whether a tool is what was trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPin {
    /// The hash of what is pinned of its definition.
    pub hash: Hash,
    /// Where it stands.
    pub standing: PinStanding,
}

/// Where a tool stands beside what was trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinStanding {
    /// It is what was trusted.
    Trusted,
    /// It was never trusted in any form, and first sight is not enough.
    New,
    /// Another definition was trusted.
    Changed,
    /// What its server is started with is not what was trusted.
    CommandChanged,
    /// It cannot be told; its calls are denied.
    Unknown(Arc<str>),
}

/// What a listing comes to: the tools in its order, and what is to be told.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) pins: Vec<ToolPin>,
    pub(crate) news: Vec<PinNews>,
}

/// Pins of one server that came to stand in one way.
#[derive(Debug)]
pub(crate) struct PinNews {
    pub(crate) state: PinChange,
    pub(crate) pins: Vec<PinnedTool>,
    pub(crate) reason: Option<String>,
}

/// A tool as it is listed, and what is pinned of that.
#[derive(Debug)]
struct SeenDefinition {
    tool: String,
    pinned: Pinned,
}

/// What a server is started with or reached at.
#[derive(Debug)]
struct Launch {
    hash: Hash,
    /// What may be shown of it.
    text: String,
}

/// Looks tools up in the state. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Pinning {
    state: Arc<State>,
    first_sight: FirstSight,
    launches: Arc<BTreeMap<ServerId, Launch>>,
}

impl Pinning {
    pub(crate) fn new(keeping: &Keeping, specs: &[ServerSpec]) -> Result<Self, StateError> {
        let state = match &keeping.state {
            Some(state) => Arc::clone(state),
            None => Arc::new(State::in_memory()?),
        };
        let launches = specs.iter().map(|spec| (spec.id.clone(), Launch::of(spec)));
        Ok(Self {
            state,
            first_sight: keeping.first_sight,
            launches: Arc::new(launches.collect()),
        })
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Looks up what a server lists, on a thread that may block. Where that fails each tool stands as unknown, under the
    /// hash that it has in any case: a later look may tell more of the same definition.
    pub(crate) async fn look(&self, server: &ServerId, tools: &[ToolDefinition]) -> Looked {
        let definitions = named(tools);
        // A listing may be large.
        let Ok(seen) = spawn_blocking(move || SeenDefinition::all(&definitions)).await else {
            return Looked::unknown(&[], "reading the definitions failed");
        };
        let (this, name) = (self.clone(), server.clone());
        let given_up = Arc::new(AtomicBool::new(false));
        let (definitions, is_given_up) = (Arc::clone(&seen), Arc::clone(&given_up));
        let looked = spawn_blocking(move || this.look_blocking(&name, &definitions, &is_given_up));
        match timeout(LOOK_WITHIN, looked).await {
            Ok(Ok(Ok(looked))) => looked,
            Ok(Ok(Err(error))) => Looked::unknown(&seen, &chain(&error)),
            Ok(Err(_)) => Looked::unknown(&seen, "looking up the pins failed"),
            Err(_) => {
                given_up.store(true, Ordering::Release);
                let why = format!("looking up the pins took over {} s", LOOK_WITHIN.as_secs());
                Looked::unknown(&seen, &why)
            }
        }
    }

    fn look_blocking(
        &self,
        server: &ServerId,
        definitions: &[SeenDefinition],
        is_given_up: &AtomicBool,
    ) -> Result<Looked, StateError> {
        let seen: Vec<_> = definitions
            .iter()
            .map(|SeenDefinition { tool, pinned }| SeenTool {
                tool,
                hash: pinned.hash,
                definition: &pinned.text,
            })
            .collect();
        let unknown = Launch {
            hash: Hash::of(b""),
            text: "{}".to_owned(),
        };
        let launch = self.launches.get(server).unwrap_or(&unknown);
        let sighting = Sighting {
            server,
            launch: launch.hash,
            launch_text: &launch.text,
            tools: &seen,
        };
        let mut tries = 1;
        loop {
            // What nobody hears of is not to be known as told.
            if is_given_up.load(Ordering::Acquire) {
                return Ok(Looked::default());
            }
            match self.state.see(&sighting, self.first_sight, clock::unix_ms()) {
                Ok(sighted) => return Ok(Looked::of(launch, &seen, &sighted)),
                Err(StateError::Busy { .. }) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Trusts a definition that waits; see [`State::trust`].
    pub(crate) async fn trust(
        &self,
        subject: String,
        hash: Hash,
        by: String,
    ) -> Result<Trusting, StateError> {
        let state = Arc::clone(&self.state);
        let trusted = spawn_blocking(move || state.trust(&subject, hash, &by, clock::unix_ms()));
        trusted.await.unwrap_or_else(|_| Ok(Trusting::Unknown))
    }
}

impl Looked {
    /// What these come to where it cannot be told.
    fn unknown(seen: &[SeenDefinition], why: &str) -> Self {
        let reason: Arc<str> = why.into();
        let unknown = |seen: &SeenDefinition| ToolPin {
            hash: seen.pinned.hash,
            standing: PinStanding::Unknown(Arc::clone(&reason)),
        };
        Self {
            pins: seen.iter().map(unknown).collect(),
            news: vec![PinNews {
                state: PinChange::Unknown,
                pins: Vec::new(),
                reason: Some(why.to_owned()),
            }],
        }
    }

    fn of(launch: &Launch, tools: &[SeenTool<'_>], sighted: &Sighted) -> Self {
        let command_changed = sighted.launch.state != PinState::Trusted;
        let pin = |(tool, sighted): (&SeenTool<'_>, &portcullis_state::SightedTool)| ToolPin {
            hash: tool.hash,
            standing: match sighted.state {
                _ if command_changed => PinStanding::CommandChanged,
                PinState::Trusted => PinStanding::Trusted,
                PinState::New => PinStanding::New,
                PinState::Changed => PinStanding::Changed,
            },
        };
        let pins = tools.iter().zip(&sighted.tools).map(pin).collect();
        let mut news: BTreeMap<PinChange, Vec<PinnedTool>> = BTreeMap::new();
        let launch = [(None, launch.hash, &sighted.launch)];
        let each = tools.iter().zip(&sighted.tools);
        let each = each.map(|(tool, sighted)| (Some(tool.tool.to_owned()), tool.hash, sighted));
        for (tool, hash, sighted) in launch.into_iter().chain(each).filter(|(.., seen)| seen.is_news) {
            let (state, trusted) = match sighted.state {
                PinState::Trusted => (PinChange::Recorded, None),
                PinState::New => (PinChange::New, None),
                PinState::Changed => (PinChange::Changed, sighted.trusted),
            };
            news.entry(state)
                .or_default()
                .push(PinnedTool { tool, hash, trusted });
        }
        let news = news.into_iter().map(|(state, pins)| PinNews {
            state,
            pins,
            reason: None,
        });
        Self {
            pins,
            news: news.collect(),
        }
    }
}

impl Launch {
    /// Names and places without values: any of those may be a secret.
    fn of(spec: &ServerSpec) -> Self {
        let text = match &spec.transport {
            TransportSpec::Stdio(stdio) => json!({
                "program": stdio.program.display().to_string(),
                "arguments": stdio.args.len(),
                "environment": stdio.env.keys().collect::<Vec<_>>(),
                "inheritEnvironment": stdio.inherit_env,
                "cwd": stdio.cwd.as_ref().map(|cwd| cwd.display().to_string()),
            }),
            TransportSpec::Http(http) => json!({
                "url": http.shown_url(),
                "headers": http.headers.keys().collect::<Vec<_>>(),
                "egress": http.egress.iter().map(ToString::to_string).collect::<Vec<_>>(),
            }),
        };
        Self {
            hash: spec.launch_fingerprint(),
            text: text.to_string(),
        }
    }
}

impl SeenDefinition {
    /// Takes time with a large listing.
    fn all(tools: &[(String, Arc<str>)]) -> Arc<[Self]> {
        let seen = |(tool, definition): &(String, Arc<str>)| Self {
            tool: tool.clone(),
            pinned: Pinned::of(definition),
        };
        tools.iter().map(seen).collect()
    }
}

fn named(tools: &[ToolDefinition]) -> Vec<(String, Arc<str>)> {
    let named = |tool: &ToolDefinition| (tool.name.clone(), Arc::clone(&tool.definition));
    tools.iter().map(named).collect()
}

/// An error with what caused it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
