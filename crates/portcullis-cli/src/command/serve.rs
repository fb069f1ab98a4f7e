use portcullis::{Event, EventStream, ReloadOutcome};

use crate::{ExitStatus, arguments::ServeArguments, hub, output};

/// Serves the client at standard input and output until it leaves. Nothing but the protocol is on standard output.
pub(crate) async fn run(arguments: ServeArguments) -> ExitStatus {
    let started = match hub::start_for_client(&arguments.hub).await {
        Ok(started) => started,
        Err(status) => return status,
    };
    let router = started.router();
    tokio::spawn(tell_reloads(router.events()));
    hub::run(started, async move {
        match portcullis_gateway::serve(router.clone(), tokio::io::stdin(), tokio::io::stdout()).await {
            Ok(()) => status(&router.policies_refused()),
            Err(error) => {
                output::error(&error.to_string());
                ExitStatus::Failed
            }
        }
    })
    .await
}

/// Says what becomes of edits of the folder of policies.
async fn tell_reloads(mut events: EventStream) {
    while let Some(record) = events.next().await {
        let Event::PolicyReload {
            outcome,
            policy_digest,
            no_longer_forbidden,
            errors,
            ..
        } = &record.event
        else {
            continue;
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
