//! `tools/call` (MCP, section "Calling Tools"): what each behaviour does.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value, json, value::RawValue};

use super::{
    BUSY, Busy, Engine, Flow, INVALID_PARAMS, bad_reply,
    content::{self, Members},
    message::{Request, error_frame, result_frame},
    rendezvous::{Rendezvous, pause},
};
use crate::{Behaviour, CrashPoint, script::LONGEST_WAIT};

/// How long a server waits for the client's user.
const ELICITATION: Duration = Duration::from_secs(120);

/// A call, owned, so that a thread can keep it.
struct Call {
    /// The raw id.
    id: String,
    /// The raw arguments.
    arguments: String,
    /// The raw progress token.
    progress_token: Option<String>,
    /// The raw answers to the questions of an earlier round.
    input_responses: Option<String>,
    modern: bool,
    cancelled: Arc<Rendezvous<()>>,
}

/// What comes of a call.
enum Outcome {
    Result(Members),
    Frame(String),
    /// Bytes with their own line ends.
    Bytes(Vec<u8>),
    Silence,
    CloseStdout,
    Crash(u8, CrashPoint),
}

impl Engine {
    pub(super) fn on_call(self: &Arc<Self>, request: &Request<'_>) -> Flow {
        let name = request.params.name.as_deref().unwrap_or_default();
        let behaviour = self
            .shown()
            .find(|(_, tool)| tool.name == name)
            .map(|(_, tool)| tool.behaviour.clone());
        let Some(behaviour) = behaviour else {
            let message = format!("there is no tool `{name}`");
            self.sink
                .line(error_frame(request.id, INVALID_PARAMS, &message, None));
            return Flow::Go;
        };
        let call = Call {
            id: request.id.to_owned(),
            arguments: request.params.arguments.map_or("{}", RawValue::get).to_owned(),
            progress_token: request.progress_token.map(str::to_owned),
            input_responses: request.params.input_responses.map(|raw| raw.get().to_owned()),
            modern: self.is_modern(request),
            cancelled: Arc::new(Rendezvous::new()),
        };
        if !behaviour.is_slow() {
            return self.run(&call, &behaviour);
        }
        self.state()
            .calls
            .insert(call.id.clone(), Arc::clone(&call.cancelled));
        let running = self.spawn(move |engine| {
            let flow = engine.run(&call, &behaviour);
            engine.state().calls.remove(&call.id);
            flow
        });
        if let Err(Busy) = running {
            self.state().calls.remove(request.id);
            self.sink
                .line(error_frame(request.id, BUSY, "too many calls at once", None));
        }
        Flow::Go
    }

    fn run(&self, call: &Call, behaviour: &Behaviour) -> Flow {
        match self.outcome(call, behaviour) {
            Outcome::Result(members) => self.sink.line(self.frame(call, members)),
            Outcome::Frame(frame) => self.sink.line(frame),
            Outcome::Bytes(bytes) => self.sink.bytes(&bytes),
            Outcome::Silence => {}
            Outcome::CloseStdout => self.sink.close(),
            Outcome::Crash(code, point) => {
                let frame = self.frame(call, content::text("and that was all"));
                match point {
                    CrashPoint::BeforeReply => {}
                    CrashPoint::MidReply => self.sink.bytes(frame.as_bytes().split_at(frame.len() / 2).0),
                    CrashPoint::AfterReply => self.sink.line(frame),
                }
                return Flow::Exit(code);
            }
        }
        Flow::Go
    }

    fn frame(&self, call: &Call, mut members: Members) -> String {
        if call.modern {
            for (key, value) in self.modern_members() {
                members.entry(key).or_insert(value);
            }
        }
        result_frame(&call.id, &Value::Object(members).to_string())
    }

    fn outcome(&self, call: &Call, behaviour: &Behaviour) -> Outcome {
        Outcome::Result(match behaviour {
            Behaviour::Text(text) => content::text(text),
            Behaviour::Template(template) => content::text(&filled(template, &call.arguments)),
            Behaviour::Sum => content::text(&sum(&call.arguments)),
            Behaviour::Echo => content::text(&call.arguments),
            Behaviour::Env => content::text(&environment()),
            Behaviour::Pid => content::text(&std::process::id().to_string()),
            Behaviour::Structured(value) => content::structured(value),
            Behaviour::Image {
                bytes,
                seed,
                media_type,
            } => content::image(*bytes, *seed, media_type),
            Behaviour::Audio { bytes, seed } => content::audio(*bytes, *seed),
            Behaviour::EmbeddedBlob { bytes, seed } => content::embedded_blob(*bytes, *seed),
            Behaviour::Twin { bytes, seed } => content::twin(*bytes, *seed),
            Behaviour::UnknownBlock => content::unknown_block(),
            Behaviour::NoContent => Members::new(),
            Behaviour::Error(message) => content::failure(message),
            Behaviour::Raw(result) => return Outcome::Frame(result_frame(&call.id, result)),
            Behaviour::JsonRpcError { code, message } => {
                return Outcome::Frame(error_frame(&call.id, *code, message, None));
            }
            Behaviour::BadReply(kind) => return Outcome::Bytes(bad_reply::bytes(*kind, &call.id)),
            Behaviour::Mute => return Outcome::Silence,
            Behaviour::CloseStdout => return Outcome::CloseStdout,
            Behaviour::Crash { code, point } => return Outcome::Crash(*code, *point),
            other => return self.stepwise(call, other),
        })
    }

    /// The behaviours that do something first.
    fn stepwise(&self, call: &Call, behaviour: &Behaviour) -> Outcome {
        match behaviour {
            Behaviour::Delay { ms, then } => match call.cancelled.wait(Duration::from_millis(*ms)) {
                Some(()) => Outcome::Silence,
                None => self.outcome(call, then),
            },
            Behaviour::LateReply { ms, then } => {
                pause(Duration::from_millis(*ms));
                self.outcome(call, then)
            }
            Behaviour::UntilCancelled { file } => match call.cancelled.wait(LONGEST_WAIT) {
                Some(()) => {
                    self.trace(file, &call.id);
                    Outcome::Silence
                }
                None => Outcome::Result(content::failure("nobody cancelled this call")),
            },
            Behaviour::Progress {
                count,
                interval_ms,
                then,
            } => {
                for done in 1..=*count {
                    if call.cancelled.wait(Duration::from_millis(*interval_ms)).is_some() {
                        return Outcome::Silence;
                    }
                    self.tell_progress(call, done, *count);
                }
                self.outcome(call, then)
            }
            Behaviour::Stderr { bytes, then } => {
                flood_stderr(*bytes);
                self.outcome(call, then)
            }
            Behaviour::Record { file, then } => {
                self.trace(file, &format!("{} {}", call.id, call.arguments));
                self.outcome(call, then)
            }
            Behaviour::Notify {
                method,
                params,
                count,
                then,
            } => {
                let method = Value::from(method.as_str());
                let line = format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#);
                (0..*count).for_each(|_| self.sink.line(line.as_str()));
                self.outcome(call, then)
            }
            Behaviour::ListChanged { count, interval_ms } => self.change_list(call, *count, *interval_ms),
            Behaviour::Elicit { message, schema } => {
                let params = json!({"message": message, "requestedSchema": schema});
                self.ask(call, "elicitation/create", &params, ELICITATION)
            }
            Behaviour::Ask {
                method,
                params,
                wait_ms,
            } => self.ask(call, method, params, Duration::from_millis(*wait_ms)),
            // Every other behaviour is answered where this is called from.
            _ => Outcome::Silence,
        }
    }

    /// Asks the client. A legacy session is sent a request; a modern request is answered with what the client must
    /// find out before it calls again (MCP 2026-07-28, section "Multi Round-Trip Requests").
    fn ask(&self, call: &Call, method: &str, params: &Value, at_most: Duration) -> Outcome {
        match (&call.input_responses, call.modern) {
            (Some(answers), true) => Outcome::Result(content::text(answers)),
            (None, true) => Outcome::Result(Members::from_iter([
                ("resultType".to_owned(), "input_required".into()),
                (
                    "inputRequests".to_owned(),
                    json!({"answer": {"method": method, "params": params}}),
                ),
                ("requestState".to_owned(), "asked once".into()),
            ])),
            (_, false) => {
                let id = self.next_id();
                let answer = Arc::new(Rendezvous::new());
                self.state().asks.insert(id.clone(), Arc::clone(&answer));
                let method = Value::from(method);
                self.sink.line(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#
                ));
                let answered = answer.wait(at_most);
                self.state().asks.remove(&id);
                Outcome::Result(match answered {
                    Some(raw) => content::text(&raw),
                    None => content::failure("the client did not answer in time"),
                })
            }
        }
    }

    fn change_list(&self, call: &Call, count: u64, interval_ms: u64) -> Outcome {
        for sent in 0..count {
            if sent > 0 && call.cancelled.wait(Duration::from_millis(interval_ms)).is_some() {
                return Outcome::Silence;
            }
            if sent.saturating_add(1) == count {
                self.state().changed = true;
            }
            self.tell_changed();
        }
        Outcome::Result(content::text(&format!("sent {count} notifications")))
    }

    fn tell_progress(&self, call: &Call, done: u64, total: u64) {
        if let Some(token) = &call.progress_token {
            let params = format!(r#"{{"progressToken":{token},"progress":{done},"total":{total}}}"#);
            self.sink.line(format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#
            ));
        }
    }
}

/// Writes that many bytes to stderr, in lines of 64 bytes.
pub(crate) fn flood_stderr(bytes: u64) {
    let line: &[u8; 64] = b"this line is of no use to anybody and there are many more of it\n";
    let mut stderr = io::stderr().lock();
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let part = line.get(..left.min(line.len())).unwrap_or(line);
        // Where stderr is closed there is nobody to flood.
        if stderr.write_all(part).is_err() {
            return;
        }
        left = left.saturating_sub(part.len());
    }
}

/// The template with each `{x}` replaced by the argument `x`, in one pass: what an argument holds is never taken for
/// a place of its own.
fn filled(template: &str, arguments: &str) -> String {
    let arguments: Map<String, Value> = serde_json::from_str(arguments).unwrap_or_default();
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let place = after
            .split_once('}')
            .and_then(|(name, after)| Some((arguments.get(name)?, after)));
        match place {
            Some((Value::String(value), after)) => {
                text.push_str(value);
                rest = after;
            }
            Some((value, after)) => {
                text.push_str(&value.to_string());
                rest = after;
            }
            None => {
                text.push('{');
                rest = after;
            }
        }
    }
    text + rest
}

fn sum(arguments: &str) -> String {
    let arguments: Map<String, Value> = serde_json::from_str(arguments).unwrap_or_default();
    arguments
        .values()
        .filter_map(Value::as_f64)
        .sum::<f64>()
        .to_string()
}

/// The environment as the text of a JSON object; what is not Unicode is shown with replacement characters.
fn environment() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "the tool's very purpose is to show the server's environment"
    )]
    let variables = std::env::vars_os();
    let readable: BTreeMap<String, String> = variables
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    json!(readable).to_string()
}
