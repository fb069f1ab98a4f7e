//! What goes wrong in calls.

use std::path::Path;

use super::{Case, Ends};
use crate::{BadReply, Behaviour, CrashPoint};

pub(super) fn bad_replies() -> Vec<Case> {
    let case = |kind: &BadReply| {
        let ends = match kind {
            // Nothing tells it from a banner.
            BadReply::NotJson => Ends::CallTimesOut,
            _ => Ends::CallEnds,
        };
        let name = format!("reply-{}", kind.name().replace('_', "-"));
        Case::call(&name, "rust-sdk#940", Behaviour::BadReply(*kind), ends)
    };
    BadReply::KINDS.iter().map(case).collect()
}

pub(super) fn calls(folder: &Path) -> Vec<Case> {
    let well = |name: &str, report, behaviour| Case::call(name, report, behaviour, Ends::Well);
    let cancelled = folder.join("cancelled");
    let late = Behaviour::LateReply {
        ms: 1_500,
        then: Box::new(Behaviour::Echo),
    };
    vec![
        Case {
            calls: 1_000,
            ..well("a-thousand-calls-at-once", "toolhive#5952", Behaviour::Echo)
        },
        Case {
            one_line: Some(cancelled.clone()),
            ..Case::call("late-reply", "codex#26956", late, Ends::CallTimesOut)
                .with(|script| script.record_cancelled(cancelled))
        },
        Case::call("mute-call", "codex#26956", Behaviour::Mute, Ends::CallTimesOut),
        well(
            "sound",
            "hermes-agent#64061",
            Behaviour::Audio {
                bytes: 1_000,
                seed: 1,
            },
        ),
        well(
            "embedded-resource",
            "hermes-agent#64061",
            Behaviour::EmbeddedBlob {
                bytes: 1_000,
                seed: 1,
            },
        ),
        well(
            "block-of-unknown-type",
            "hermes-agent#64061",
            Behaviour::UnknownBlock,
        ),
        well("no-content", "rust-sdk#750", Behaviour::NoContent),
        well(
            "question-to-nobody",
            "claude-code#94806",
            Behaviour::elicit("Who are you?"),
        ),
        well("request-for-sampling", "SEP-2577", Behaviour::ask_sampling()),
        well("request-for-roots", "SEP-2577", Behaviour::ask_roots()),
        well("storm-of-log-messages", "rust-sdk#938", Behaviour::log(500)),
    ]
}

pub(super) fn ends(folder: &Path) -> Vec<Case> {
    let executed = folder.join("executed");
    let crash = |point| Behaviour::Crash { code: 3, point };
    let lost = |name: &str, report, behaviour| Case::call(name, report, behaviour, Ends::Lost);
    vec![
        Case {
            one_line: Some(executed.clone()),
            ..lost(
                "exit-after-the-deed",
                "smg#2441",
                Behaviour::record(executed, Behaviour::crash(3)),
            )
        },
        lost("exit-in-a-call", "python-sdk#1577", Behaviour::crash(3)),
        lost(
            "exit-in-the-reply",
            "python-sdk#1577",
            crash(CrashPoint::MidReply),
        ),
        lost("output-closed", "python-sdk#1577", Behaviour::CloseStdout),
    ]
}
