//! Which tools are trusted, how one differs from what was, and the approval of a difference.

mod difference;

use std::path::PathBuf;

use chrono::{DateTime, SecondsFormat};
use clap::{Args, Subcommand};
use portcullis::{CapabilityId, Hash, Pin, PinnedText, State, Trusting};
use serde::Serialize;

use crate::{ExitStatus, arguments::Format, hub, output};

#[derive(Debug, Args)]
pub(crate) struct PinsArguments {
    #[command(subcommand)]
    command: PinsCommand,
}

#[derive(Debug, Subcommand)]
enum PinsCommand {
    /// List the tools, and what servers are started with, as they were trusted
    List(ListArguments),
    /// Show how a tool differs from the one that was trusted
    Diff(DiffArguments),
    /// Trust the difference that was shown
    Approve(ApproveArguments),
    /// Forget a tool, or a server with all its tools: what is seen next is seen first
    Forget(ForgetArguments),
}

#[derive(Debug, Args)]
pub(crate) struct StateArguments {
    /// The folder of the state [default: $XDG_DATA_HOME/portcullis, else ~/.local/share/portcullis]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
struct ListArguments {
    /// Only what waits for a person
    #[arg(long)]
    waiting: bool,
    #[command(flatten)]
    state: StateArguments,
}

#[derive(Debug, Args)]
struct DiffArguments {
    /// The tool, mcp.SERVER.TOOL, or mcp.SERVER for what the server is started with
    #[arg(value_name = "WHAT")]
    subject: String,
    #[command(flatten)]
    state: StateArguments,
}

#[derive(Debug, Args)]
struct ForgetArguments {
    /// The tool, mcp.SERVER.TOOL, or mcp.SERVER for the server and all its tools
    #[arg(value_name = "WHAT")]
    subject: String,
    #[command(flatten)]
    state: StateArguments,
}

#[derive(Debug, Args)]
struct ApproveArguments {
    /// The tool, mcp.SERVER.TOOL, or mcp.SERVER for what the server is started with
    #[arg(value_name = "WHAT")]
    subject: String,
    /// The hash of the definition that was read, or its first 12 digits at least: `pins diff` shows it
    hash: String,
    #[command(flatten)]
    state: StateArguments,
}

/// How many digits of a hash are enough.
const SHORTEST_HASH: usize = 12;

#[derive(Serialize)]
struct PinLine<'a> {
    subject: &'a str,
    state: &'static str,
    first_seen_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trusted: Option<TextLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<TextLine<'a>>,
}

#[derive(Serialize)]
struct TextLine<'a> {
    hash: Hash,
    since_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    /// Only where the definitions are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<&'a str>,
}

pub(crate) fn run(arguments: &PinsArguments) -> ExitStatus {
    let done = match &arguments.command {
        PinsCommand::List(arguments) => list(arguments),
        PinsCommand::Diff(arguments) => diff(arguments),
        PinsCommand::Approve(arguments) => approve(arguments),
        PinsCommand::Forget(arguments) => forget(arguments),
    };
    done.unwrap_or_else(|told| {
        output::error(&output::safe(&told));
        ExitStatus::Failed
    })
}

impl StateArguments {
    pub(crate) fn open(&self) -> Result<State, String> {
        let folder = self.state.clone().or_else(hub::default_state);
        let folder = folder.ok_or("there is no home folder: name the folder of the state with --state")?;
        // To look at a state does not make one. Whatever else is wrong with it, opening it says.
        if hub::is_missing(&folder.join(State::FILE_NAME)) {
            return Err(format!(
                "there is no state in `{}`: no hub has run with it yet",
                folder.display()
            ));
        }
        State::open(&folder).map_err(|error| output::chain(&error))
    }

    fn pin(&self, state: &State, subject: &str) -> Result<Pin, String> {
        let found = state.pin(subject).map_err(|error| output::chain(&error))?;
        found.ok_or_else(|| format!("`{subject}` was never seen; `portcullis pins list` shows what was"))
    }
}

fn list(arguments: &ListArguments) -> Result<ExitStatus, String> {
    let state = arguments.state.open()?;
    let mut pins = state.pins().map_err(|error| output::chain(&error))?;
    pins.retain(|pin| !arguments.waiting || pin.waiting.is_some());
    match arguments.state.format {
        Format::Json => {
            let lines: Vec<_> = pins.iter().map(|pin| PinLine::of(pin, false)).collect();
            output::json(&lines);
        }
        Format::Text => pins.iter().for_each(|pin| output::line(&listed(pin))),
    }
    Ok(ExitStatus::Done)
}

fn diff(arguments: &DiffArguments) -> Result<ExitStatus, String> {
    let pin = arguments
        .state
        .pin(&arguments.state.open()?, &arguments.subject)?;
    if arguments.state.format == Format::Json {
        output::json(&PinLine::of(&pin, true));
        return Ok(ExitStatus::Done);
    }
    let Some(waiting) = &pin.waiting else {
        output::note(&format!(
            "{} is what was trusted",
            output::inline(&pin.subject, 200)
        ));
        return Ok(ExitStatus::Done);
    };
    match &pin.trusted {
        Some((trusted, by)) => output::line(&format!("--- trusted {}", placed(trusted, Some(by)))),
        None => output::line("--- nothing was trusted yet"),
    }
    output::line(&format!("+++ seen {}", placed(waiting, None)));
    let before = pin.trusted.as_ref().map(|(trusted, _)| trusted);
    let is_lacking = waiting.text.is_none() || before.is_some_and(|trusted| trusted.text.is_none());
    if is_lacking {
        output::line("one of the two was too long to keep: only their hashes tell them apart");
    }
    let text =
        |pinned: Option<&PinnedText>| pinned.and_then(|pinned| pinned.text.clone()).unwrap_or_default();
    let lines = difference::lines(&text(before), &text(Some(waiting)));
    if lines.is_empty() && !is_lacking {
        output::line(unseen(&pin.subject));
    }
    lines.iter().for_each(|line| output::line(line));
    output::note(&format!(
        "to trust it: portcullis pins approve {} {}",
        quoted(&pin.subject),
        waiting.hash
    ));
    Ok(ExitStatus::Done)
}

fn approve(arguments: &ApproveArguments) -> Result<ExitStatus, String> {
    let state = arguments.state.open()?;
    let pin = arguments.state.pin(&state, &arguments.subject)?;
    let wanted = arguments.hash.as_str();
    if wanted.len() < SHORTEST_HASH {
        return Err(format!(
            "`{wanted}` is too short: give at least {SHORTEST_HASH} digits of the hash"
        ));
    }
    let Some(waiting) = &pin.waiting else {
        return Err(format!(
            "nothing of `{}` waits: it is what was trusted",
            pin.subject
        ));
    };
    let differs = || {
        format!(
            "what waits of `{}` is {}, not `{wanted}`: look at it first with `portcullis pins diff`",
            pin.subject, waiting.hash
        )
    };
    if !waiting.hash.to_string().starts_with(wanted) {
        return Err(differs());
    }
    let by = hub::user_name();
    let trusting = state.trust(&pin.subject, waiting.hash, &by, hub::now_ms());
    match trusting.map_err(|error| output::chain(&error))? {
        Trusting::Done { .. } | Trusting::Already => {
            match arguments.state.format {
                Format::Json => {
                    let pin = arguments.state.pin(&state, &arguments.subject)?;
                    output::json(&PinLine::of(&pin, false));
                }
                Format::Text => output::line(&format!("{} is trusted", output::inline(&pin.subject, 200))),
            }
            Ok(ExitStatus::Done)
        }
        // It changed between the look and the word.
        Trusting::Other { .. } | Trusting::Unknown => Err(differs()),
    }
}

fn forget(arguments: &ForgetArguments) -> Result<ExitStatus, String> {
    let state = arguments.state.open()?;
    let subject = arguments.state.pin(&state, &arguments.subject)?.subject;
    let forgotten = state.forget(&subject).map_err(|error| output::chain(&error))?;
    match arguments.state.format {
        Format::Json => output::json(&serde_json::json!({"forgotten": forgotten})),
        Format::Text => output::line(&format!("{forgotten} forgotten")),
    }
    Ok(ExitStatus::Done)
}

impl<'a> PinLine<'a> {
    fn of(pin: &'a Pin, with_text: bool) -> Self {
        let line = |pinned: &'a PinnedText, by| TextLine {
            hash: pinned.hash,
            since_ms: pinned.since_ms,
            by,
            definition: pinned.text.as_deref().filter(|_| with_text),
        };
        Self {
            subject: &pin.subject,
            state: state_of(pin),
            first_seen_ms: pin.first_seen_ms,
            trusted: pin
                .trusted
                .as_ref()
                .map(|(trusted, by)| line(trusted, Some(by.as_str()))),
            waiting: pin.waiting.as_ref().map(|waiting| line(waiting, None)),
        }
    }
}

fn state_of(pin: &Pin) -> &'static str {
    match (&pin.trusted, &pin.waiting) {
        (_, None) => "trusted",
        (None, Some(_)) => "new",
        (Some(_), Some(_)) => "changed",
    }
}

fn listed(pin: &Pin) -> String {
    let shown = match (&pin.waiting, &pin.trusted) {
        (Some(waiting), _) => placed(waiting, None),
        (None, Some((trusted, by))) => placed(trusted, Some(by)),
        (None, None) => String::new(),
    };
    format!(
        "{:<7} {}  {shown}",
        state_of(pin),
        output::inline(&pin.subject, 200)
    )
}

/// A time for people.
pub(crate) fn at(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms)
        .map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true))
        .unwrap_or_default()
}

fn placed(pinned: &PinnedText, by: Option<&str>) -> String {
    let since = at(pinned.since_ms);
    let by = by
        .map(|by| format!(" by {}", output::inline(by, 100)))
        .unwrap_or_default();
    format!("{} since {since}{by}", pinned.hash)
}

/// Where two things differ whose texts say the same.
fn unseen(subject: &str) -> &'static str {
    match subject.parse::<CapabilityId>() {
        Ok(_) => "they differ only in the blanks between their parts",
        Err(_) => {
            "what differs is not kept, as it may be secret: an argument, or the value of a variable or a header; \
             look at the configuration"
        }
    }
}

/// A word that a shell takes as it stands; what could not be typed is left for the person to find.
fn quoted(subject: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    if subject.chars().all(plain) {
        return subject.to_owned();
    }
    format!("'{}'", output::inline(&subject.replace('\'', r"'\''"), 400))
}
