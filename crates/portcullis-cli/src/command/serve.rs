use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use portcullis::{Catalog, Event, EventRecord, EventStream, ReloadOutcome, ServerId, ServerState, Unlisted};
use portcullis_gateway::{GatewayOptions, serve};

use crate::{ExitStatus, arguments::ServeArguments, hub, output, stderr};

/// Serves the client at standard input and output until it leaves. Nothing but the protocol is on standard output.
pub(crate) async fn run(arguments: ServeArguments) -> ExitStatus {
    stderr::detach();
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

/// Says what a person has to know while a client has the output: which servers are not to be had, what of their lists is
/// not as the configuration or the protocol has it, and what becomes of edits of the folder of policies. With `PORTCULLIS_LOG=portcullis=debug` all that happens, each event as it is.
async fn tell(mut events: EventStream, catalog: Arc<Catalog>) {
    let mut told = Told::default();
    // What failed before anybody listened.
    for (id, server) in catalog.servers() {
        told.state(id, server.state, &server.reason);
    }
    told.unlisted(catalog.unlisted());
    told.reports(catalog.reports());
    while let Some(record) = events.next().await {
        log(&record);
        match &record.event {
            Event::ServerState {
                server, to, reason, ..
            } => told.state(server, *to, reason),
            Event::CatalogChanged {
                unlisted, reports, ..
            } => {
                told.unlisted(unlisted);
                told.reports(reports);
            }
            Event::PolicyReload { .. } => tell_reload(&record.event),
            _ => {}
        }
    }
}

/// How much of one server's trouble is shown.
const MOST_CHARACTERS: usize = 1_000;
/// How many reports are told of one server: it writes them in part, and can list something else each time.
const MOST_REPORTS: usize = 64;

/// What was told already. Nobody may be reading, so what is the same time and again is told once.
#[derive(Default)]
struct Told {
    /// What was told last of each server that is not to be had.
    troubles: HashMap<ServerId, String>,
    /// By server, field and name: the rest is the server's to change, and the configuration's are few.
    unlisted: HashSet<(ServerId, &'static str, String)>,
    reports: HashMap<Option<ServerId>, HashSet<String>>,
}

impl Told {
    fn state(&mut self, server: &ServerId, state: ServerState, reason: &str) {
        if state == ServerState::Ready {
            self.troubles.remove(server);
        }
        if !is_trouble(state) {
            return;
        }
        let trouble = output::inline(&format!("{server}: {state}, {reason}"), MOST_CHARACTERS);
        if self.troubles.get(server) != Some(&trouble) {
            output::note(&trouble);
            self.troubles.insert(server.clone(), trouble);
        }
    }

    fn unlisted(&mut self, unlisted: &[Unlisted]) {
        for told in unlisted {
            let key = (told.server.clone(), told.tool.field, told.tool.name.clone());
            if self.unlisted.insert(key) {
                output::note(&output::inline(&told.to_string(), MOST_CHARACTERS));
            }
        }
    }

    fn reports(&mut self, reports: &[String]) {
        self.new_reports(reports)
            .iter()
            .for_each(|told| output::note(told));
    }

    /// What is to be told of `reports`.
    fn new_reports(&mut self, reports: &[String]) -> Vec<String> {
        let mut new = Vec::new();
        for report in reports {
            let server = server_of(report);
            let told = self.reports.entry(server.clone()).or_default();
            let report = output::inline(report, MOST_CHARACTERS);
            if told.len() >= MOST_REPORTS || !told.insert(report.clone()) {
                continue;
            }
            new.push(report);
            if told.len() == MOST_REPORTS {
                let of = server.map_or("servers together".to_owned(), |server| format!("`{server}`"));
                new.push(format!(
                    "what else is to be said of the tools of {of} is not shown; `portcullis tools` shows what there is"
                ));
            }
        }
        new
    }
}

/// The server that a report is about; none where it is about several.
fn server_of(report: &str) -> Option<ServerId> {
    let (server, _) = report.split_once(": ")?;
    server.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_told_once_and_no_more_of_one_server_than_somebody_reads() {
        let mut told = Told::default();
        let reports = |server: &str, numbers: std::ops::Range<usize>| -> Vec<_> {
            numbers.map(|number| format!("{server}: {number}")).collect()
        };
        assert_eq!(told.new_reports(&reports("s", 0..2)), ["s: 0", "s: 1"]);
        assert_eq!(told.new_reports(&reports("s", 1..3)), ["s: 2"]);
        let last = told.new_reports(&reports("s", 0..MOST_REPORTS + 10));
        assert_eq!(last.len(), MOST_REPORTS - 3 + 1);
        assert!(last.last().unwrap().contains("`s` is not shown"), "{last:?}");
        assert_eq!(told.new_reports(&reports("s", 0..MOST_REPORTS + 20)), [""; 0]);
        // However much one of them has to say, the others are heard.
        assert_eq!(told.new_reports(&reports("t", 0..1)), ["t: 0"]);
        let clash = "alias `x` would stand for `mcp.s.a: b` and `mcp.t.a`; it is offered for none";
        assert_eq!(told.new_reports(&[clash.to_owned()]), [clash]);
    }
}
