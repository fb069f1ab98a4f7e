//! What goes wrong before the first call, and with the process.

use std::path::Path;

use super::{Case, Ends};
use crate::{
    AtEof, Behaviour, Descendant, Detach, Handshake, ListReply, Noise, Noises, Page, Paging, Process, Script,
    Shown, Tool,
};

pub(super) fn handshakes() -> Vec<Case> {
    let banner = Noises {
        at_start: vec![
            Noise::Line("Welcome!".to_owned()),
            Noise::Blank(3),
            Noise::BadUtf8,
        ],
        before_handshake: vec![Noise::LogLine],
        ..Noises::default()
    };
    let early = Noises {
        before_handshake: vec![Noise::ListChanged, Noise::Ping],
        ..Noises::default()
    };
    let log_lines = Noises {
        per_message: vec![Noise::LogLine],
        ..Noises::default()
    };
    let chatty = Case::call(
        "log-line-for-each-message",
        "rust-sdk#938",
        Behaviour::Echo,
        Ends::Well,
    );
    let hangs = |script: Script| script.handshake(Handshake::Hang);
    vec![
        Case {
            stdio_only: true,
            ..Case::new("banner", "rust-sdk#412").with(|script| script.noise(banner))
        },
        Case::new("early-messages", "rust-sdk#412").with(|script| script.noise(early)),
        Case {
            stdio_only: true,
            ..chatty.with(|script| script.noise(log_lines))
        },
        Case::never_up("hung-handshake", "hermes-agent#59349", hangs),
        Case::never_up("exit-at-start", "copilot-cli#3782", |script| {
            script.handshake(Handshake::ExitAtStart { code: 1 })
        }),
        Case::never_up("exit-in-the-handshake", "copilot-cli#3782", |script| {
            script.handshake(Handshake::Exit { code: 1 })
        }),
        Case::never_up("output-closed-in-the-handshake", "python-sdk#1577", |script| {
            script.handshake(Handshake::CloseStdout)
        }),
        Case::never_up("exit-in-the-listing", "copilot-cli#3782", |script| {
            script.list_reply(ListReply::Exit { code: 1 })
        }),
        Case::never_up("mute-listing", "agentgateway#1266", |script| {
            script.list_reply(ListReply::Silence)
        }),
    ]
}

pub(super) fn listings() -> Vec<Case> {
    let page = |at: Option<&str>, next: Option<&str>| Page {
        at: at.map(str::to_owned),
        tools: if at.is_none() { vec![0] } else { Vec::new() },
        next: next.map(str::to_owned),
    };
    let paged = |name: &str, pages: Vec<Page>| {
        Case::new(name, "codebase-memory-mcp#1247").with(|script| script.paging(Paging::Pages(pages)))
    };
    let mut all = vec![
        paged(
            "the-same-cursor-again",
            vec![page(None, Some("a")), page(Some("a"), Some("a"))],
        ),
        paged(
            "cursors-in-a-circle",
            vec![
                page(None, Some("a")),
                page(Some("a"), Some("b")),
                page(Some("b"), Some("a")),
            ],
        ),
        paged(
            "an-empty-cursor",
            vec![page(None, Some("")), page(Some(""), None)],
        ),
        Case::new("pages-without-end", "codebase-memory-mcp#1247")
            .with(|script| script.paging(Paging::Endless)),
    ];
    for (name, entry) in [
        ("schema-null", r#"{"name":"x","inputSchema":null}"#),
        ("schema-missing", r#"{"name":"x"}"#),
        ("schema-text", r#"{"name":"x","inputSchema":"object"}"#),
        ("schema-true", r#"{"name":"x","inputSchema":true}"#),
        ("name-null", r#"{"name":null,"inputSchema":{"type":"object"}}"#),
        (
            "hint-as-text",
            r#"{"name":"x","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}"#,
        ),
        ("entry-null", "null"),
        (
            "icons-no-list",
            r#"{"name":"x","inputSchema":{"type":"object"},"icons":7}"#,
        ),
    ] {
        let bad = Tool::new("x", Behaviour::Echo).raw(entry);
        all.push(Case::new(name, "claude-code#88049").with(|script| script.tool(bad)));
    }
    for (name, count, interval_ms) in [
        ("burst-of-changes", 200, 0),
        ("one-change-after-the-other", 3, 1_100),
    ] {
        let changes = Behaviour::ListChanged { count, interval_ms };
        let later = Tool::new("later", Behaviour::Echo).shown(Shown::AfterChange);
        all.push(Case {
            listed: &[Case::ECHO, "later"],
            ..Case::call(name, "hermes-agent#115502", changes, Ends::Well).with(|script| script.tool(later))
        });
    }
    let meanwhile = Noises {
        before_list: vec![Noise::ListChanged],
        ..Noises::default()
    };
    all.push(
        Case::new("a-change-during-the-listing", "hermes-agent#115502")
            .with(|script| script.noise(meanwhile)),
    );
    all
}

pub(super) fn processes(folder: &Path) -> Vec<Case> {
    let noted = |name: &str| Some(folder.join(format!("pids-{name}")));
    let flood = Behaviour::Stderr {
        bytes: 1 << 20,
        then: Box::new(Behaviour::Echo),
    };
    // As a shell leaves it behind that goes on as the server.
    let child = Descendant {
        seconds: 600,
        detach: Detach::No,
        ignore_term: false,
        holds_stdout: true,
        pid_file: noted("child"),
    };
    vec![
        Case {
            pids: noted("child"),
            ..Case::new("child-left-behind", "claude-code#76306").of_process(Process {
                descendants: vec![child],
                ..Process::default()
            })
        },
        Case {
            pids: noted("deaf"),
            ..Case::new("deaf-to-its-end", "MCPJungle#207")
                .with(|script| script.at_eof(AtEof::Ignore))
                .of_process(Process {
                    ignore_term: true,
                    pid_file: noted("deaf"),
                    ..Process::default()
                })
        },
        Case::new("flood-on-stderr-at-the-start", "mcp-go#956").of_process(Process {
            stderr_bytes: 1 << 20,
            ..Process::default()
        }),
        Case {
            stdio_only: true,
            ..Case::call("flood-on-stderr-in-a-call", "mcp-go#956", flood, Ends::Well)
        },
    ]
}
