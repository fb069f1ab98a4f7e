//! What is told of a question.

use std::path::Path;

use portcullis_state::StateError;
use portcullis_types::CapabilityId;

use super::always::Written;
use crate::{
    dispatch::Call,
    event::{AnsweredBy, ApprovalAnswer, Event, EventBus},
    pins::chain,
};

/// How one question ends. It is told when this is dropped, so that it is told once in any case: the caller may go away
/// at each step.
#[derive(Debug)]
pub(super) struct Told<'a> {
    events: &'a EventBus,
    call: u64,
    capability: CapabilityId,
    answer: ApprovalAnswer,
    by: AnsweredBy,
    pub(super) person: Option<String>,
    pub(super) holds_until_ms: Option<i64>,
    policy: Option<String>,
    pub(super) error: Option<String>,
}

impl<'a> Told<'a> {
    /// A question about `call`, of which it can be told so far that its caller has gone away.
    pub(super) fn of(events: &'a EventBus, call: &Call) -> Self {
        Self {
            events,
            call: call.number,
            capability: call.capability.clone(),
            answer: ApprovalAnswer::Unanswered,
            by: AnsweredBy::Nobody,
            person: None,
            holds_until_ms: None,
            policy: None,
            error: Some("the caller no longer waits".to_owned()),
        }
    }

    /// It was answered, or there is nobody to answer it.
    pub(super) fn ends(&mut self, answer: ApprovalAnswer, by: AnsweredBy) {
        (self.answer, self.by, self.error) = (answer, by, None);
    }

    /// How writing a policy to `path` went, as far as that is known by now. Whether it is there.
    pub(super) fn of_policy(&mut self, path: &Path, written: Option<Written>) -> bool {
        let is_there = matches!(
            written,
            Some(Written::Tried(Ok(()) | Err(StateError::Unsynced { .. })))
        );
        let path = path.display().to_string();
        self.error = match written {
            Some(Written::Tried(written)) => written.err().map(|error| chain(&error)),
            Some(Written::Void(why)) => Some(format!("nothing was written: {why}")),
            None => Some(format!(
                "the policy could not be written in time, and may still be: look for `{path}`"
            )),
        };
        self.policy = is_there.then_some(path);
        is_there
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.events.tell(Event::Approval {
            call: self.call,
            capability: self.capability.clone(),
            answer: self.answer,
            by: self.by,
            person: self.person.take(),
            holds_until_ms: self.holds_until_ms,
            policy: self.policy.take(),
            error: self.error.take(),
        });
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::{Hash, Tier};

    use super::*;

    /// What is told of an answer whose policy went so.
    fn told_of(path: &Path, written: Option<Written>, is_there: bool) -> serde_json::Value {
        let call = Call {
            number: 7,
            capability: "mcp.s.t".parse().unwrap(),
            arguments: "{}".into(),
            arguments_hash: Hash::of(b"{}"),
            agent: "bot".parse().unwrap(),
            profile: "default".parse().unwrap(),
            tier: Tier::default(),
            grant: None,
        };
        let events = EventBus::default();
        let mut heard = events.listen();
        let mut told = Told::of(&events, &call);
        told.ends(ApprovalAnswer::Approved, AnsweredBy::Person);
        assert_eq!(told.of_policy(path, written), is_there);
        assert!(heard.try_next().is_none());
        drop(told);
        let event = serde_json::to_value(&heard.try_next().unwrap().event).unwrap();
        assert!(heard.try_next().is_none());
        event
    }

    /// What is there takes over, now or when the folder is looked at, so it is told whatever failed.
    #[test]
    fn a_policy_is_told_where_it_is_there() {
        let path = Path::new("policies/always-a.cedar");
        let (owned, source) = (|| path.to_owned(), || std::io::ErrorKind::Other.into());
        let unsynced = StateError::Unsynced {
            path: owned(),
            source: source(),
        };
        let unwritten = StateError::Write {
            path: owned(),
            source: source(),
        };
        let tried = |written| Some(Written::Tried(written));
        let void = Some(Written::Void("it is sealed".to_owned()));
        for (written, is_there, says) in [
            (tried(Ok(())), true, None),
            (tried(Err(unsynced)), true, Some("a power cut may undo that")),
            (tried(Err(unwritten)), false, Some("cannot write")),
            (void, false, Some("nothing was written: it is sealed")),
            (None, false, Some("may still be")),
        ] {
            let event = told_of(path, written, is_there);
            assert_eq!(event.get("policy").is_some(), is_there, "{event}");
            assert_eq!(
                (&event["call"], &event["answer"]),
                (&7.into(), &"approved".into())
            );
            let error = event["error"].as_str().unwrap_or_default();
            assert_eq!(error.is_empty(), says.is_none(), "{event}");
            assert!(error.contains(says.unwrap_or_default()), "{event}");
        }
    }
}
