use std::{collections::HashMap, sync::Arc, time::Duration};

use portcullis::{Catalog, Event, EventRecord, EventStream, ReloadOutcome, ServerId, ServerState};
use portcullis_gateway::{GatewayOptions, serve};

use crate::{ExitStatus, arguments::ServeArguments, hub, output};

/// Serves the client at standard input and output until it leaves. Nothing but the protocol is on standard output.
pub(crate) async fn run(arguments: ServeArguments) -> ExitStatus {
    let started = match hub::start_for_client(&arguments.hub).await {
        Ok(started) => started,
        Err(status) => return status,
    };
    let router = started.router();
    tokio::spawn(tell(router.events(), router.catalog()));
    hub::run(started, async move {
        let options = GatewayOptions {
            list_wait: Duration::from_secs(arguments.wait),
        };
        match serve(router.clone(), options, tokio::io::stdin(), tokio::io::stdout()).await {
            Ok(()) => status(&router.policies_refused()),
            Err(error) => {
                output::error(&error.to_string());
                ExitStatus::Failed
            }
        }
    })
    .await
}

/// Says what a person has to know while a client has the output: which servers are not to be had, and what becomes of
/// edits of the folder of policies. With `PORTCULLIS_LOG=portcullis=debug` all that happens, each event as it is.
async fn tell(mut events: EventStream, catalog: Arc<Catalog>) {
    let mut told = Told::default();
    // What failed before anybody listened.
    for (id, server) in catalog.servers() {
        told.state(id, server.state, &server.reason);
    }
    while let Some(record) = events.next().await {
        log(&record);
        match &record.event {
            Event::ServerState {
                server, to, reason, ..
            } => told.state(server, *to, reason),
            Event::PolicyReload { .. } => tell_reload(&record.event),
            _ => {}
        }
    }
}

/// How much of one server's trouble is shown.
const MOST_CHARACTERS: usize = 1_000;

/// What was told last of each server that is not to be had. One that fails in the same way time and again is told of once:
/// nobody may be reading.
#[derive(Default)]
struct Told(HashMap<ServerId, String>);

impl Told {
    fn state(&mut self, server: &ServerId, state: ServerState, reason: &str) {
        if state == ServerState::Ready {
            self.0.remove(server);
        }
        if !is_trouble(state) {
            return;
        }
        let trouble = output::inline(&format!("{server}: {state}, {reason}"), MOST_CHARACTERS);
        if self.0.get(server) != Some(&trouble) {
            output::note(&trouble);
            self.0.insert(server.clone(), trouble);
        }
    }
}

fn log(record: &EventRecord) {
    if tracing::enabled!(tracing::Level::DEBUG)
        && let Ok(event) = serde_json::to_string(record)
    {
        tracing::debug!("{}", output::escaped(&event));
    }
}

/// Whether a server is not to be had for a while, or until somebody does something.
fn is_trouble(state: ServerState) -> bool {
    matches!(
        state,
        ServerState::BackingOff | ServerState::Parked | ServerState::Disabled
    )
}

fn tell_reload(event: &Event) {
    let Event::PolicyReload {
        outcome,
        policy_digest,
        no_longer_forbidden,
        errors,
        ..
    } = event
    else {
        return;
    };
    match outcome {
        ReloadOutcome::Refused => {
            output::error("the folder of policies cannot be used; the policies in force stay");
            errors.iter().for_each(|error| output::note(&output::safe(error)));
        }
        outcome => output::note(&format!("policies {outcome}: {policy_digest}")),
    }
    for policy in no_longer_forbidden {
        let told = format!("no longer forbidden: {policy}: {}", policy.description);
        output::note(&output::safe(&told));
    }
}

/// A run whose policies on the disk could not be used at its end has not done what was asked.
fn status(refused: &[String]) -> ExitStatus {
    if refused.is_empty() {
        return ExitStatus::Done;
    }
    output::error("the policies that were in force to the end are older than those in their folder");
    refused
        .iter()
        .for_each(|error| output::note(&output::safe(error)));
    ExitStatus::BadConfig
}
