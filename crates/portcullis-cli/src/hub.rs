//! From a command line to a running hub.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis::{AgentId, FirstSight, Hub, HubBuilder, HubError, read_documents};

use crate::{
    ExitStatus, approval::Terminal, arguments::HubArguments, host::Host, interrupt::interrupted, output,
};

/// How many names are listed.
const MOST_NAMES: usize = 8;

/// Starts the hub that `arguments` describe. A person at the terminal is asked what must be asked.
pub(crate) async fn start(arguments: &HubArguments) -> Result<Hub, ExitStatus> {
    started_by(
        build(arguments).map(|builder| builder.approval(Terminal)),
        arguments,
    )
    .await
}

/// The same, with standard input for somebody else: a client, who would be asked, and answer, in the person's place.
pub(crate) async fn start_for_client(arguments: &HubArguments) -> Result<Hub, ExitStatus> {
    started_by(build(arguments), arguments).await
}

async fn started_by(
    builder: Result<HubBuilder, HubError>,
    arguments: &HubArguments,
) -> Result<Hub, ExitStatus> {
    match builder {
        Ok(builder) => started(builder.start().await, arguments),
        Err(error) => Err(failed(&error)),
    }
}

/// Runs `work` on the hub, unless somebody interrupts it, and stops the hub in any case.
pub(crate) async fn run(hub: Hub, work: impl Future<Output = ExitStatus>) -> ExitStatus {
    let status = tokio::select! {
        status = work => status,
        () = interrupted() => {
            output::note("interrupted; stopping the servers");
            ExitStatus::Failed
        }
    };
    match hub.shutdown().await {
        Ok(()) => status,
        Err(error) => {
            output::error(&error.to_string());
            if status == ExitStatus::Done {
                ExitStatus::Failed
            } else {
                status
            }
        }
    }
}

fn build(arguments: &HubArguments) -> Result<HubBuilder, HubError> {
    let mut builder = Hub::builder()
        .documents(read_documents(&arguments.config)?)
        .environment(Arc::new(Host::capture()))
        .sealed(arguments.sealed);
    if let Some(folder) = &arguments.policies {
        builder = builder.policies_dir(folder);
    }
    if let Some(preset) = arguments.preset {
        builder = builder.preset(preset);
    }
    if let Some(tier) = arguments.tier {
        builder = builder.tier(tier);
    }
    if let Some(agent) = &arguments.r#as {
        builder = builder.agent(agent.clone());
    }
    if let Some(folder) = arguments.blobs.clone().or_else(default_blobs) {
        builder = builder.blob_dir(folder);
    }
    if let Some(name) = &arguments.session {
        builder = builder.blob_tag(name.clone());
    }
    if let Some(folder) = arguments.state.clone().or_else(default_state) {
        builder = builder.state_dir(folder);
    }
    if arguments.ask_new_tools {
        builder = builder.first_sight(FirstSight::Ask);
    }
    Ok(builder)
}

fn started(hub: Result<Hub, HubError>, arguments: &HubArguments) -> Result<Hub, ExitStatus> {
    let hub = hub.map_err(|error| failed(&error))?;
    for diagnostic in hub.diagnostics() {
        output::note(&diagnostic.to_string());
    }
    if arguments.state.is_none() && default_state().is_none() {
        output::note(
            "note: neither XDG_DATA_HOME nor HOME names a folder, so each tool is trusted anew in every run; name a \
             folder for what was trusted with --state",
        );
    }
    if arguments.policies.is_none()
        && arguments.preset.is_none()
        && hub.router().policies().policies().is_empty()
    {
        output::note(
            "note: there are no policies, so every call is denied; name a folder with --policies, or try \
             --preset ask-by-default",
        );
    }
    if let Some(agent) = &arguments.r#as
        && let Some(told) = without_profile(agent, hub.router().profiles())
    {
        output::note(&told);
    }
    let router = hub.router();
    // To find the names takes a look at every policy.
    if !router.profiles().is_empty()
        && let Some(told) = unnamed(router.profiles(), &router.policies().profiles())
    {
        output::note(&told);
    }
    Ok(hub)
}

/// What to say of profiles that no policy names, though policies name others: a name that is not quite theirs would part
/// its agents from the policies that are meant for them.
fn unnamed(profiles: &BTreeMap<AgentId, AgentId>, named: &BTreeSet<String>) -> Option<String> {
    let unnamed: BTreeSet<_> = profiles
        .values()
        .filter(|profile| !named.contains(profile.as_str()))
        .collect();
    if named.is_empty() || unnamed.is_empty() {
        return None;
    }
    Some(format!(
        "note: no policy names {}, which agents of the configuration belong to; policies name {}; names count to the letter",
        listed(unnamed),
        listed(named)
    ))
}

/// Names for a person, the first of them.
fn listed(names: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let mut names = names.into_iter().map(|name| format!("`{name}`"));
    let mut listed: Vec<_> = names.by_ref().take(MOST_NAMES).collect();
    match names.count() {
        0 => {}
        more => listed.push(format!("{more} more")),
    }
    listed.join(", ")
}

/// What to say of an agent that is held to what policies say of no profile, though others have one: a name that is not
/// quite theirs would part it from the policies that are meant for it.
fn without_profile(agent: &AgentId, profiles: &BTreeMap<AgentId, AgentId>) -> Option<String> {
    if profiles.is_empty() || profiles.contains_key(agent) {
        return None;
    }
    Some(format!(
        "note: `{agent}` (--as) is none of the configuration's `agents` ({}), so its profile is `default`; names count to \
         the letter",
        listed(profiles.keys())
    ))
}

fn failed(error: &HubError) -> ExitStatus {
    output::error(&match error {
        HubError::State(cause) => output::chain(cause),
        HubError::Blobs(cause) => format!("the blob store cannot be opened: {}", output::chain(cause)),
        other => other.to_string(),
    });
    error.into()
}

/// `$XDG_DATA_HOME/portcullis/blobs`.
pub(crate) fn default_blobs() -> Option<PathBuf> {
    Some(default_state()?.join("blobs"))
}

/// Whether there is nothing of this name. What cannot be told is none of that.
pub(crate) fn is_missing(path: &Path) -> bool {
    path.symlink_metadata()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// `$XDG_DATA_HOME/portcullis`, by the XDG base directory specification.
pub(crate) fn default_state() -> Option<PathBuf> {
    // By that specification a relative path is none; what `HOME` says would lie wherever the program was started.
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("portcullis"))
}

/// Who is at the terminal, as what they approve says.
pub(crate) fn user_name() -> String {
    let name = variable("USER").or_else(|| variable("LOGNAME"));
    name.map_or_else(
        || "somebody".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Now, in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the program's edge: the wall clock")]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "the program's edge: read once")]
    std::env::var_os(name).filter(|value| !value.is_empty())
}
