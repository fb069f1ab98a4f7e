//! Fifty servers that crash, hang, flood, babble and recover.

use std::path::Path;

use portcullis_testkit::{
    AtEof, BadReply, Behaviour, Descendant, Detach, Handshake, Noise, Noises, Process, Script, Tool,
    UnlessFile,
};

/// How many there are.
pub(crate) const MISFITS: u64 = 50;

/// The tools that each of them has. What `record` executes it notes.
pub(crate) const TOOLS: [&str; 14] = [
    "echo", "echo", "record", "record", "slow", "crash", "mute", "mumble", "stderr", "notify", "storm",
    "bad-0", "bad-1", "bad-2",
];

/// The file without which the server of this number exits at once, where it is one of those.
pub(crate) fn cure(folder: &Path, number: u64) -> Option<std::path::PathBuf> {
    (number % 5 == 1).then(|| folder.join(format!("cure-{number}")))
}

/// Where each notes that it starts.
pub(crate) fn starts(folder: &Path) -> std::path::PathBuf {
    folder.join("starts")
}

/// What one notes that it executes.
pub(crate) fn record(folder: &Path, number: u64) -> std::path::PathBuf {
    folder.join(format!("executed-{number}"))
}

/// The one of this number.
pub(crate) fn misfit(folder: &Path, number: u64) -> Script {
    let bad = |which: u64| {
        let at = usize::try_from(number * 3 + which).unwrap() % BadReply::KINDS.len();
        Behaviour::BadReply(*BadReply::KINDS.get(at).unwrap())
    };
    let mut script = Script::new(&format!("misfit-{number}"))
        .handshake(match number % 10 {
            3 => Handshake::AfterMs(300),
            7 => Handshake::Hang,
            _ => Handshake::AfterMs(0),
        })
        .noise(noise(number))
        .process(process(folder, number))
        .tool(Tool::new("echo", Behaviour::Echo))
        .tool(Tool::new(
            "record",
            Behaviour::record(record(folder, number), Behaviour::Echo),
        ))
        .tool(Tool::new("slow", Behaviour::delay(200, Behaviour::Echo)))
        .tool(Tool::new("crash", Behaviour::crash(3)))
        .tool(Tool::new("mute", Behaviour::Mute))
        .tool(Tool::new("mumble", Behaviour::CloseStdout))
        .tool(Tool::new(
            "stderr",
            Behaviour::Stderr {
                bytes: 1 << 20,
                then: Box::new(Behaviour::Echo),
            },
        ))
        .tool(Tool::new(
            "notify",
            Behaviour::Notify {
                method: "notifications/made_up".to_owned(),
                params: serde_json::json!({"text": "x".repeat(200)}),
                count: 500,
                then: Box::new(Behaviour::Echo),
            },
        ))
        .tool(Tool::new(
            "storm",
            Behaviour::ListChanged {
                count: 100,
                interval_ms: 1,
            },
        ));
    for which in 0..3 {
        script = script.tool(Tool::new(&format!("bad-{which}"), bad(which)));
    }
    if number % 4 == 2 {
        script = script.at_eof(AtEof::Ignore);
    }
    script
}

fn noise(number: u64) -> Noises {
    let chatter = || {
        vec![
            Noise::Line("Welcome!".into()),
            Noise::Blank(3),
            Noise::BadUtf8,
            Noise::LogLine,
        ]
    };
    Noises {
        at_start: chatter(),
        before_handshake: if number.is_multiple_of(2) {
            vec![Noise::ListChanged, Noise::Ping]
        } else {
            Vec::new()
        },
        per_message: if number.is_multiple_of(3) {
            chatter()
        } else {
            Vec::new()
        },
        ..Noises::default()
    }
}

fn process(folder: &Path, number: u64) -> Process {
    let descendant = Descendant {
        seconds: 600,
        detach: Detach::Session,
        ignore_term: true,
        holds_stdout: false,
        pid_file: None,
    };
    Process {
        pid_file: Some(starts(folder)),
        exit_unless: cure(folder, number).map(|file| UnlessFile { file, code: 3 }),
        ignore_term: number % 8 == 2,
        descendants: if number % 10 == 4 {
            vec![descendant]
        } else {
            Vec::new()
        },
        stderr_bytes: if number % 6 == 5 { 1 << 18 } else { 0 },
    }
}
