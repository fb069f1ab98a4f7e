use serde_json::json;

use super::*;

#[track_caller]
fn check_round_trip(script: &Script) {
    let text = script.to_json();
    assert!(!text.contains('\n'), "one line, for an argument: {text}");
    assert_eq!(Script::from_json(&text).unwrap(), *script, "{text}");
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let error = Script::from_json(text).expect_err(text).to_string();
    assert_eq!(error, expected);
    assert!(
        !["struct ", "enum ", "::", "Script"]
            .iter()
            .any(|word| error.contains(word)),
        "{error}"
    );
}

/// A behaviour of each shape that JSON has for them.
fn one_of_each() -> Vec<Behaviour> {
    let text = || Box::new(Behaviour::Text("then".into()));
    vec![
        Behaviour::Text("a".into()),
        Behaviour::Sum,
        Behaviour::Structured(json!({"a": [1, null]})),
        Behaviour::image(9, 8),
        Behaviour::Audio { bytes: 1, seed: 2 },
        Behaviour::LateReply { ms: 1, then: text() },
        Behaviour::UntilCancelled { file: "f".into() },
        Behaviour::Progress {
            count: 1,
            interval_ms: 2,
            then: text(),
        },
        Behaviour::Stderr {
            bytes: 1,
            then: text(),
        },
        Behaviour::record("f", Behaviour::delay(3, Behaviour::Mute)),
        Behaviour::Crash {
            code: 1,
            point: CrashPoint::MidReply,
        },
        Behaviour::BadReply(BadReply::Nesting(200)),
        Behaviour::BadReply(BadReply::NotANumber),
        Behaviour::elicit("who?"),
        Behaviour::ask_sampling(),
        Behaviour::ask_roots(),
        Behaviour::log(3),
        Behaviour::ListChanged {
            count: 3,
            interval_ms: 4,
        },
    ]
}

#[test]
fn scripts_survive_json() {
    let mut script = Script::new("all")
        .era(Era::Both)
        .handshake(Handshake::Error {
            code: -1,
            message: "no".into(),
        })
        .discover(Discover::Exit { code: 3 })
        .noise(Noises {
            at_start: vec![Noise::Line("hi".into()), Noise::Blank(2)],
            ..Noises::default()
        })
        .at_eof(AtEof::Ignore)
        .paging(Paging::Pages(vec![Page {
            at: None,
            tools: vec![0],
            next: Some(String::new()),
        }]))
        .list_reply(ListReply::AfterMs(1))
        .method("prompts/list", r#"{"prompts":[]}"#)
        .record_received("r.txt")
        .record_cancelled("c.txt")
        .process(Process {
            pid_file: Some("p".into()),
            exit_unless: Some(UnlessFile {
                file: "u".into(),
                code: 9,
            }),
            ignore_term: true,
            descendants: vec![Descendant {
                seconds: 5,
                detach: Detach::Session,
                ignore_term: true,
                holds_stdout: true,
                pid_file: Some("d".into()),
            }],
            stderr_bytes: 7,
        });
    for (place, behaviour) in one_of_each().into_iter().enumerate() {
        script = script.tool(
            Tool::new(&format!("tool {place}"), behaviour)
                .describe("d")
                .title("t")
                .output_schema(json!(true))
                .meta(json!({"k": 1}))
                .shown(Shown::AfterChange),
        );
    }
    script = script.tool(Tool::new("raw", Behaviour::Echo).raw("not JSON {"));
    check_round_trip(&script);
    check_round_trip(&Script::default());
    for name in crate::demo::NAMES {
        check_round_trip(&crate::demo::script(name).unwrap());
    }
}

#[test]
fn an_empty_object_is_a_well_kept_server() {
    assert_eq!(Script::from_json("{}").unwrap(), Script::default());
}

#[test]
fn errors_name_the_place_and_what_to_do() {
    check_error(
        "{\n  \"nmae\": \"x\"}",
        "the script cannot be read at line 2, column 8: unknown field `nmae`, expected one of `name`, `version`, \
         `instructions`, `era`, `versions`, `capabilities`, `handshake`, `discover`, `noise`, `process`, `at_eof`, \
         `listing`, `tools`, `methods`, `received_file`, `cancelled_file`; correct that place",
    );
    check_error(
        "[]",
        "the script cannot be read at line 1, column 1: an array is no script, which is an object in braces; correct \
         that place",
    );
    check_error(
        "7",
        "the script cannot be read at line 1, column 1: invalid type: integer `7`, expected a script: an object in \
         braces; correct that place",
    );
    check_error(
        "",
        "the script cannot be read at line 1, column 0: EOF while parsing a value; correct that place",
    );
    check_error(
        r#"{"tools": [{"name": "slow", "behaviour": {"delay": {"ms": 600001, "then": "echo"}}}]}"#,
        "`tools.slow.ms` of the script is 600001, above the limit of 600000; lower it",
    );
    check_error(
        r#"{"tools": [{"name": "s", "behaviour": {"record": {"file": "f", "then": {"image": {"bytes": 268435457}}}}}]}"#,
        "`tools.s.bytes` of the script is 268435457, above the limit of 268435456; lower it",
    );
    check_error(
        r#"{"tools": [{"name": "p", "behaviour": {"progress": {"count": 601, "interval_ms": 1000, "then": "echo"}}}]}"#,
        "`tools.p.count times interval_ms` of the script is 601000, above the limit of 600000; lower it",
    );
    check_error(
        r#"{"tools": [{"name": "r", "behaviour": {"raw": "{"}}]}"#,
        "`tools.r.raw` of the script: is not JSON (EOF while parsing an object at line 1 column 1); write JSON on \
         one line, or use `bad_reply` for what is meant to be broken",
    );
    check_error(
        r#"{"methods": {"prompts/list": "{\n}"}}"#,
        "`methods.prompts/list` of the script: is JSON on more than one line; write JSON on one line, or use \
         `bad_reply` for what is meant to be broken",
    );
    check_error(
        r#"{"listing": {"paging": {"pages": [{"tools": [0]}]}}}"#,
        "`listing.paging.pages` of the script: names the tool at place 0, but there are only 0",
    );
    check_error(
        r#"{"listing": {"paging": {"size": 0}}}"#,
        "`listing.paging.size` of the script: is 0; give at least 1 tool a page",
    );
    check_error(
        r#"{"versions": []}"#,
        "`versions` of the script: is empty; give at least one revision, for example `2025-11-25`",
    );
}

#[test]
fn behaviours_nested_too_deep_are_refused() {
    let nested = |depth| (0..depth).fold(Behaviour::Echo, |then, _| Behaviour::delay(1, then));
    assert!(Script::new("x").tool(Tool::new("t", nested(100))).check().is_ok());
    let error = Script::new("x")
        .tool(Tool::new("t", nested(101)))
        .check()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`tools.t.then` of the script is 101, above the limit of 100; lower it"
    );
}

/// A scripted server that waited, sent or looped without end would hang whoever tests with it.
#[test]
fn every_wait_size_and_count_has_a_limit() {
    let check = |text: &str, expected: &str| match Script::from_json(text) {
        Err(Error::TooMuch { field, .. }) => assert_eq!(field, expected, "{text}"),
        other => panic!("{text}: {other:?}"),
    };
    for (behaviour, field) in [
        (r#"{"image": {"bytes": 268435457}}"#, "bytes"),
        (r#"{"audio": {"bytes": 268435457}}"#, "bytes"),
        (r#"{"embedded_blob": {"bytes": 268435457}}"#, "bytes"),
        (r#"{"twin": {"bytes": 268435457}}"#, "bytes"),
        (r#"{"stderr": {"bytes": 268435457, "then": "echo"}}"#, "bytes"),
        (r#"{"bad_reply": {"nesting": 1000001}}"#, "nesting"),
        (r#"{"bad_reply": {"endless_line": 268435457}}"#, "endless_line"),
        (r#"{"delay": {"ms": 600001, "then": "echo"}}"#, "ms"),
        (r#"{"late_reply": {"ms": 600001, "then": "echo"}}"#, "ms"),
        (
            r#"{"ask": {"method": "a/b", "params": {}, "wait_ms": 600001}}"#,
            "wait_ms",
        ),
        (
            r#"{"notify": {"method": "a/b", "params": {}, "count": 1000001, "then": "echo"}}"#,
            "count",
        ),
        (r#"{"list_changed": {"count": 1000001}}"#, "count"),
        (
            r#"{"progress": {"count": 1000001, "interval_ms": 0, "then": "echo"}}"#,
            "count",
        ),
        (
            r#"{"list_changed": {"count": 2, "interval_ms": 300001}}"#,
            "count times interval_ms",
        ),
    ] {
        // Also where something else comes first.
        let recorded = format!(r#"{{"record": {{"file": "f", "then": {behaviour}}}}}"#);
        for behaviour in [behaviour, &recorded] {
            let tool = format!(r#"{{"tools": [{{"name": "t", "behaviour": {behaviour}}}]}}"#);
            check(&tool, &format!("tools.t.{field}"));
        }
    }
    for place in [
        "at_start",
        "before_handshake",
        "after_handshake",
        "before_list",
        "per_message",
    ] {
        let noise = format!(r#"{{"noise": {{"{place}": ["log_line", {{"blank": 1000001}}]}}}}"#);
        check(&noise, &format!("noise.{place}.blank"));
    }
    check(r#"{"handshake": {"after_ms": 600001}}"#, "handshake.after_ms");
    check(
        r#"{"listing": {"reply": {"after_ms": 600001}}}"#,
        "listing.reply.after_ms",
    );
    check(
        r#"{"process": {"stderr_bytes": 268435457}}"#,
        "process.stderr_bytes",
    );
    check(
        r#"{"process": {"descendants": [{"seconds": 3601}]}}"#,
        "process.descendants.seconds",
    );
}

#[test]
fn nothing_limits_what_may_be_malformed() {
    let script = Script::new("x").tool(Tool::new("t", Behaviour::Echo).raw("{\"name\": null"));
    assert!(script.check().is_ok());
}
