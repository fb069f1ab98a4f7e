//! How a session, or the lack of one, begins: `initialize`, `server/discover`, `subscriptions/listen`.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    BUSY, Busy, Engine, Flow, INVALID_PARAMS, INVALID_REQUEST, LIST_CHANGED, UNSUPPORTED_VERSION,
    message::{Request, error_frame},
};
use crate::{Discover, Handshake};

/// The one revision without sessions.
const MODERN: &str = "2026-07-28";

impl Engine {
    /// `initialize` (MCP 2025-11-25, section "Lifecycle").
    pub(super) fn on_initialize(self: &Arc<Self>, request: &Request<'_>) -> Flow {
        if !self.script.era.is_legacy() && !matches!(self.script.handshake, Handshake::Hang) {
            self.no_such_method(request);
            return Flow::Go;
        }
        let asked = request.params.protocol_version.as_deref();
        let version = self
            .script
            .versions
            .iter()
            .find(|version| Some(version.as_str()) == asked);
        let version = version
            .or(self.script.versions.first())
            .map_or("", String::as_str);
        let mut result = self.introduction();
        result.insert("protocolVersion".to_owned(), version.into());
        result.insert("serverInfo".to_owned(), self.server_info());
        self.open(request.id, Value::Object(result).to_string(), true)
    }

    /// `server/discover` (MCP 2026-07-28, section "Discovery").
    pub(super) fn on_discover(self: &Arc<Self>, request: &Request<'_>) -> Flow {
        match &self.script.discover {
            Discover::Silence => {}
            Discover::EmptyResult => self.reply(request.id, "{}"),
            Discover::Raw(result) => self.reply(request.id, result),
            Discover::Exit { code } => return Flow::Exit(*code),
            Discover::Error { code, message } => {
                self.sink.line(error_frame(request.id, *code, message, None))
            }
            Discover::ByEra if matches!(self.script.handshake, Handshake::Hang) => {}
            Discover::ByEra if !self.script.era.is_modern() => self.no_such_method(request),
            Discover::ByEra => match self.refuse_version(request) {
                Some(refusal) => self.sink.line(refusal),
                None => return self.open(request.id, self.discovery(), false),
            },
        }
        Flow::Go
    }

    /// `subscriptions/listen` stays open; its first message says what was accepted.
    pub(super) fn on_listen(&self, request: &Request<'_>) {
        let wanted = request
            .params
            .notifications
            .as_ref()
            .and_then(|wanted| wanted.get("toolsListChanged"));
        let accepted = match wanted {
            Some(Value::Bool(true)) => r#"{"toolsListChanged":true}"#,
            _ => "{}",
        };
        let method = "notifications/subscriptions/acknowledged";
        let more = format!(r#","notifications":{accepted}"#);
        let mut state = self.state();
        self.sink.line(subscribed(method, request.id, &more));
        if accepted != "{}" {
            state.listeners.push(request.id.to_owned());
        }
    }

    /// Tells whoever listens, in the way of its era, that the tools have changed.
    pub(super) fn tell_changed(&self) {
        // The lock is held while the lines are written, so that no listener is told before its acknowledgement.
        let state = self.state();
        if state.initialized {
            self.sink.line(LIST_CHANGED);
        }
        for listener in &state.listeners {
            self.sink
                .line(subscribed("notifications/tools/list_changed", listener, ""));
        }
    }

    /// Whether a request may be answered, or the frame that refuses it.
    pub(super) fn admit(&self, request: &Request<'_>) -> Result<(), String> {
        let era = self.script.era;
        if self.is_modern(request) || !era.is_legacy() {
            return self.refuse_version(request).map_or(Ok(()), Err);
        }
        if self.state().initialized {
            return Ok(());
        }
        let message = format!("`{}` came before `initialize` was answered", request.method);
        Err(error_frame(request.id, INVALID_REQUEST, &message, None))
    }

    /// Whether a request is a modern one: it says so, and the server understands it.
    pub(super) fn is_modern(&self, request: &Request<'_>) -> bool {
        self.script.era.is_modern() && request.meta_version.is_some()
    }

    /// The members that every result of a modern request has.
    pub(super) fn modern_members(&self) -> [(String, Value); 2] {
        [
            ("resultType".to_owned(), "complete".into()),
            (
                "_meta".to_owned(),
                json!({"io.modelcontextprotocol/serverInfo": self.server_info()}),
            ),
        ]
    }

    /// Plays the handshake; `result` is what an answer says, and `session` whether it opens one.
    fn open(self: &Arc<Self>, id: &str, result: String, session: bool) -> Flow {
        if matches!(self.script.handshake, Handshake::Hang) {
            return Flow::Go;
        }
        self.make_noise(&self.script.noise.before_handshake);
        match &self.script.handshake {
            Handshake::Answer => self.opened(id, &result, session),
            Handshake::Raw(raw) => self.opened(id, raw, session),
            Handshake::AfterMs(ms) => {
                let time = Duration::from_millis(*ms);
                let late = id.to_owned();
                let waiting = self.spawn(move |engine| {
                    super::rendezvous::pause(time);
                    engine.opened(&late, &result, session);
                    Flow::Go
                });
                if let Err(Busy) = waiting {
                    self.sink
                        .line(error_frame(id, BUSY, "too many calls at once", None));
                }
            }
            Handshake::Error { code, message } => self.sink.line(error_frame(id, *code, message, None)),
            Handshake::CloseStdout => self.sink.close(),
            Handshake::Exit { code } | Handshake::ExitAtStart { code } => return Flow::Exit(*code),
            Handshake::Hang => {}
        }
        Flow::Go
    }

    fn opened(&self, id: &str, result: &str, session: bool) {
        if session {
            self.state().initialized = true;
        }
        self.reply(id, result);
        self.make_noise(&self.script.noise.after_handshake);
    }

    /// The frame that refuses a request whose revision is missing or not spoken here.
    fn refuse_version(&self, request: &Request<'_>) -> Option<String> {
        match request.meta_version.as_deref() {
            Some(MODERN) => None,
            Some(other) => {
                let data = json!({"requested": other, "supported": self.supported()});
                Some(error_frame(
                    request.id,
                    UNSUPPORTED_VERSION,
                    "unsupported protocol version",
                    Some(data),
                ))
            }
            None => {
                let message = "`_meta` lacks `io.modelcontextprotocol/protocolVersion`";
                Some(error_frame(request.id, INVALID_PARAMS, message, None))
            }
        }
    }

    fn discovery(&self) -> String {
        let mut result = self.introduction();
        result.extend(self.modern_members());
        result.insert("supportedVersions".to_owned(), self.supported().into());
        result.insert("ttlMs".to_owned(), 0.into());
        result.insert("cacheScope".to_owned(), "private".into());
        Value::Object(result).to_string()
    }

    /// What both handshakes say.
    fn introduction(&self) -> Map<String, Value> {
        let usual = || json!({"tools": {"listChanged": true}});
        let capabilities = self.script.capabilities.clone().unwrap_or_else(usual);
        let mut members = Map::from_iter([("capabilities".to_owned(), capabilities)]);
        if let Some(text) = &self.script.instructions {
            members.insert("instructions".to_owned(), text.as_str().into());
        }
        members
    }

    fn server_info(&self) -> Value {
        json!({"name": self.script.name, "version": self.script.version})
    }

    fn supported(&self) -> Vec<String> {
        let legacy = self
            .script
            .versions
            .iter()
            .filter(|_| self.script.era.is_legacy());
        std::iter::once(MODERN.to_owned())
            .chain(legacy.cloned())
            .collect()
    }
}

/// A notification that belongs to an open `subscriptions/listen`.
fn subscribed(method: &str, listener: &str, more: &str) -> String {
    let meta = format!(r#"{{"io.modelcontextprotocol/subscriptionId":{listener}}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{meta}{more}}}}}"#)
}
