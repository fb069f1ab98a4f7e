use portcullis_egress::EgressRules;
use portcullis_types::{Decision, ReasonCode};

use super::*;
use crate::CallCode;

#[test]
fn a_refused_connection_is_one_line_that_says_why() {
    let refusal = EgressRules::default()
        .check_resolved("a.test", "10.0.0.1".parse().unwrap())
        .unwrap_err();
    let record = EgressRecord {
        target: "https://a.test:443".to_owned(),
        rule: None,
        address: None,
        proxy: None,
        outcome: EgressOutcome::Refused(refusal.clone()),
    };
    let json = serde_json::to_value(Event::egress("s".parse().unwrap(), record)).unwrap();
    let expected = serde_json::json!({
        "event": "egress",
        "server": "s",
        "target": "https://a.test:443",
        "outcome": "refused",
        "code": "host_not_allowed",
        "reason": refusal.to_string(),
    });
    assert_eq!(json, expected);
}

#[test]
fn every_listener_hears_all_events_in_the_order_of_their_numbers() {
    let bus = EventBus::default();
    let mut listener = bus.listen();
    let tell = || {
        for tools in 0..500 {
            bus.tell(Event::CatalogChanged {
                tools,
                unlisted: Vec::new(),
                reports: Vec::new(),
            });
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(tell);
        }
    });
    let heard: Vec<u64> = std::iter::from_fn(|| listener.try_next())
        .map(|record| record.seq)
        .collect();
    assert_eq!(heard, (1..=2_000).collect::<Vec<_>>());
}

/// Each word of a field is written so, in a line that is the same but for it.
fn check<W: Copy>(words: &[(W, &str)], event: impl Fn(W) -> Event, line: &str) {
    for (word, written) in words {
        let line = line.replace("HASH", &hash().to_string()).replace("WORD", written);
        assert_eq!(serde_json::to_string(&event(*word)).unwrap(), line);
    }
}

fn hash() -> Hash {
    Hash::of(b"")
}

fn capability() -> CapabilityId {
    "mcp.s.t".parse().unwrap()
}

fn server() -> ServerId {
    "s".parse().unwrap()
}

#[test]
fn a_state_is_written_to_the_letter() {
    let state = |(from, to)| Event::ServerState {
        server: server(),
        from,
        to,
        reason: "r".to_owned(),
        pid: None,
    };
    let words = [
        (ServerState::Disabled, "disabled"),
        (ServerState::Connecting, "connecting"),
        (ServerState::Ready, "ready"),
        (ServerState::Idle, "idle"),
        (ServerState::Draining, "draining"),
        (ServerState::BackingOff, "backing_off"),
        (ServerState::Parked, "parked"),
        (ServerState::Stopped, "stopped"),
    ];
    check(
        &words,
        |word| state((word, word)),
        r#"{"event":"server.state","server":"s","from":"WORD","to":"WORD","reason":"r"}"#,
    );
}

#[test]
fn a_decision_is_written_to_the_letter() {
    let permission = |by| Event::Permission {
        call: 7,
        capability: capability(),
        agent: AgentId::default(),
        tier: Tier::FullAccess,
        arguments_hash: hash(),
        decision: Box::new(Explanation {
            capability: capability(),
            agent: AgentId::default(),
            profile: AgentId::default(),
            tier: Tier::FullAccess,
            arguments_hash: hash(),
            policy_digest: hash(),
            decision: Decision::deny(ReasonCode::DenyPinUnknown, None),
            meaning: "m",
            missing: None,
            nearest: None,
        }),
        policy_digest: hash(),
        by,
    };
    let words = [
        (DecidedBy::Policies, "policies"),
        (DecidedBy::Hook, "hook"),
        (DecidedBy::Person, "person"),
        (DecidedBy::StoredApproval, "stored-approval"),
    ];
    check(
        &words,
        permission,
        r#"{"event":"permission","call":7,"capability":"mcp.s.t","agent":"default","tier":"full_access","arguments_hash":"HASH","decision":{"capability":"mcp.s.t","agent":"default","profile":"default","tier":"full_access","arguments_hash":"HASH","policy_digest":"HASH","answer":"deny","code":"deny.pin-unknown","policies":[],"meaning":"m"},"policy_digest":"HASH","by":"WORD"}"#,
    );
}

#[test]
fn an_approval_is_written_to_the_letter() {
    let approval = |(answer, by)| Event::Approval {
        call: 7,
        capability: capability(),
        answer,
        by,
        person: None,
        holds_until_ms: None,
        policy: None,
        error: None,
    };
    let words = [
        (ApprovalAnswer::Approved, "approved"),
        (ApprovalAnswer::Refused, "refused"),
        (ApprovalAnswer::Unanswered, "unanswered"),
    ];
    check(
        &words,
        |answer| approval((answer, AnsweredBy::Nobody)),
        r#"{"event":"approval","call":7,"capability":"mcp.s.t","answer":"WORD","by":"nobody"}"#,
    );
    let words = [(AnsweredBy::Hook, "hook"), (AnsweredBy::Person, "person")];
    check(
        &words,
        |by| approval((ApprovalAnswer::Approved, by)),
        r#"{"event":"approval","call":7,"capability":"mcp.s.t","answer":"approved","by":"WORD"}"#,
    );
}

#[test]
fn the_end_of_a_call_is_written_to_the_letter() {
    let result = |outcome| Event::ToolResult {
        call: 7,
        capability: capability(),
        outcome,
        error: None,
        duration_ms: 1,
        size_bytes: 2,
        blobs: Vec::new(),
        flags: ShapeFlags::default(),
    };
    let mut words = vec![(CallEnd::Ok, "ok"), (CallEnd::ToolError, "tool-error")];
    words.extend(
        CallCode::ALL
            .iter()
            .map(|code| (CallEnd::Failed(*code), code.as_str())),
    );
    check(
        &words,
        result,
        r#"{"event":"tool.result","call":7,"capability":"mcp.s.t","outcome":"WORD","duration_ms":1,"size_bytes":2}"#,
    );
}

#[test]
fn reloads_and_pins_are_written_to_the_letter() {
    let reload = |outcome| Event::PolicyReload {
        outcome,
        policy_digest: hash(),
        before: None,
        no_longer_forbidden: Vec::new(),
        errors: Vec::new(),
    };
    let words = [
        (ReloadOutcome::Taken, "taken"),
        (ReloadOutcome::Refused, "refused"),
        (ReloadOutcome::Restored, "restored"),
    ];
    let line = r#"{"event":"policy.reload","outcome":"WORD","policy_digest":"HASH"}"#;
    check(&words, reload, line);
    let pin = |state| Event::Pin {
        server: server(),
        state,
        pins: Vec::new(),
        reason: None,
    };
    let words = [
        (PinChange::Changed, "changed"),
        (PinChange::New, "new"),
        (PinChange::Recorded, "recorded"),
        (PinChange::Approved, "approved"),
        (PinChange::Unknown, "unknown"),
    ];
    check(&words, pin, r#"{"event":"pin","server":"s","state":"WORD"}"#);
}

#[test]
fn connections_and_questions_are_written_to_the_letter() {
    let egress = |outcome| Event::Egress {
        server: server(),
        target: "https://a.test:443".to_owned(),
        outcome,
        rule: None,
        address: None,
        proxy: None,
        code: None,
        reason: None,
    };
    let words = [
        (ConnectionOutcome::Allowed, "allowed"),
        (ConnectionOutcome::Refused, "refused"),
        (ConnectionOutcome::Failed, "failed"),
    ];
    let line = r#"{"event":"egress","server":"s","target":"https://a.test:443","outcome":"WORD"}"#;
    check(&words, egress, line);
    let elicitation = |(mode, answer)| Event::Elicitation {
        server: server(),
        mode,
        answer,
    };
    let words = [(ElicitationMode::Form, "form"), (ElicitationMode::Url, "url")];
    check(
        &words,
        |mode| elicitation((mode, ElicitationAnswer::Accepted)),
        r#"{"event":"elicitation","server":"s","mode":"WORD","answer":"accepted"}"#,
    );
    let words = [
        (ElicitationAnswer::Accepted, "accepted"),
        (ElicitationAnswer::Declined, "declined"),
        (ElicitationAnswer::Cancelled, "cancelled"),
        (ElicitationAnswer::Forbidden, "forbidden"),
        (ElicitationAnswer::Unanswered, "unanswered"),
    ];
    check(
        &words,
        |answer| elicitation((ElicitationMode::Form, answer)),
        r#"{"event":"elicitation","server":"s","mode":"form","answer":"WORD"}"#,
    );
}
