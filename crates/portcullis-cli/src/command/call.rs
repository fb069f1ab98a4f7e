use std::collections::BTreeMap;

use portcullis::{CallError, CallOutcome, CallRequest, DecidedBy, Decision, policy::Explanation};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    ExitStatus,
    arguments::{CallArguments, Format},
    hub, output,
};

#[derive(Serialize)]
struct Outcome<'a> {
    call: u64,
    result: &'a RawValue,
    is_error: bool,
    decision: &'a Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_by: Option<DecidedBy>,
    blobs: &'a [portcullis::BlobInfo],
    duration_ms: u128,
}

#[derive(Serialize)]
struct Failure<'a> {
    error: FailureReasons<'a>,
}

#[derive(Serialize)]
struct FailureReasons<'a> {
    code: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'a Explanation>,
}

/// Calls one tool and prints its result, or why there is none.
pub(crate) async fn run(arguments: CallArguments) -> ExitStatus {
    // Raw values: a number too large for this program may well mean something to the server.
    if let Err(error) = serde_json::from_str::<BTreeMap<String, &RawValue>>(&arguments.arguments) {
        output::error(&format!(
            "the arguments are no JSON object: {error}; write them as '{{\"name\": \"value\"}}'"
        ));
        return ExitStatus::Usage;
    }
    let started = match hub::start(&arguments.hub).await {
        Ok(started) => started,
        Err(status) => return status,
    };
    let router = started.router();
    hub::run(started, async move {
        let capability = match arguments.capability.parse() {
            Ok(capability) => Ok(capability),
            // An alias is known once its server has listed its tools.
            Err(error) => match router.settled().await.resolve_alias(&arguments.capability) {
                Some(capability) => Ok(capability.clone()),
                None => Err(CallError::NotACapability(error)),
            },
        };
        let result = match capability {
            Ok(capability) => {
                router
                    .call(CallRequest::new(capability, arguments.arguments))
                    .await
            }
            Err(error) => Err(error),
        };
        match &result {
            Ok(outcome) => print_outcome(outcome, arguments.format),
            Err(error) => print_failure(error, arguments.format),
        }
    })
    .await
}

fn print_outcome(outcome: &CallOutcome, format: Format) -> ExitStatus {
    match format {
        Format::Json => output::json(&Outcome {
            call: outcome.call,
            result: &outcome.result.result,
            is_error: outcome.result.is_error,
            decision: &outcome.decision,
            approved_by: outcome.approved_by,
            blobs: &outcome.result.blobs,
            duration_ms: outcome.duration.as_millis(),
        }),
        Format::Text => print_content(outcome.result.result.get()),
    }
    if outcome.result.is_error {
        ExitStatus::Upstream
    } else {
        ExitStatus::Done
    }
}

/// Text as text, everything else as JSON.
fn print_content(result: &str) {
    #[derive(Deserialize)]
    struct Result<'a> {
        #[serde(borrow, default)]
        content: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Block {
        Text { text: String },
    }
    match serde_json::from_str::<Result<'_>>(result) {
        Ok(Result { content }) if !content.is_empty() => {
            for block in content {
                match serde_json::from_str(block.get()) {
                    Ok(Block::Text { text }) => output::line(&output::safe(&text)),
                    Err(_) => output::line(&output::safe(block.get())),
                }
            }
        }
        _ => output::line(&output::safe(result)),
    }
}

fn print_failure(error: &CallError, format: Format) -> ExitStatus {
    match format {
        Format::Json => output::json(&Failure {
            error: FailureReasons {
                code: error.code(),
                message: error.to_string(),
                decision: error.explanation(),
            },
        }),
        Format::Text => output::error(&output::safe(&error.to_string())),
    }
    error.into()
}
