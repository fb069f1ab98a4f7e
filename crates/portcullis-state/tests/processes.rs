//! The state under processes that are killed: this very program, started again, plays them.

#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
};

use portcullis_state::{FirstSight, SeenTool, Sighting, State};
use portcullis_types::Hash;

const FOLDER: &str = "FOLDER";

/// No test by itself: the test below starts it as a process of its own.
#[test]
fn writer() {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the edge of the writer's own process"
    )]
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let state = State::open(Path::new(&folder)).unwrap();
    let mut written = 0;
    for number in 0_u64.. {
        let text = number.to_string();
        let (server, hash) = ("s".parse().unwrap(), Hash::of(text.as_bytes()));
        let tool = |tool| SeenTool {
            tool,
            hash,
            definition: &text,
        };
        // Both change in one transaction: no reader may ever see one of them alone.
        let seen = Sighting {
            server: &server,
            launch: Hash::of(b""),
            launch_text: "",
            tools: &[tool("a"), tool("b")],
        };
        match state.see(&seen, FirstSight::Ask, 0) {
            Ok(_) => written += 1,
            Err(portcullis_state::StateError::Busy { .. }) => continue,
            Err(error) => panic!("{error}"),
        }
        if written == 3 {
            println!("at work");
        }
    }
}

/// A writer, which writes until it is killed; so it is, whatever becomes of the test.
struct Writer(Child);

impl Writer {
    fn kill(&mut self) {
        // One that has ended is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start(folder: &Path) -> Writer {
    #[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "writer", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped());
    let mut writer = Writer(command.spawn().unwrap());
    let mut lines = BufReader::new(writer.0.stdout.take().unwrap()).lines();
    let at_work = lines.any(|line| line.is_ok_and(|line| line.contains("at work")));
    assert!(at_work, "the writer ended before it wrote");
    writer
}

#[test]
fn processes_that_are_killed_while_they_write_leave_whole_transactions() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("state");
    for round in 0..6 {
        let mut writers = [start(&folder), start(&folder)];
        let state = State::open(&folder).unwrap();
        for writer in &mut writers {
            let pins = state.pins().unwrap();
            let waiting: Vec<_> = pins.iter().filter_map(|pin| pin.waiting.clone()).collect();
            assert_eq!(waiting.len(), 2, "round {round}");
            assert_eq!(waiting[0].hash, waiting[1].hash, "round {round}");
            writer.kill();
        }
        drop(state);
    }
    let waiting: Vec<_> = State::open(&folder).unwrap().pins().unwrap();
    assert_eq!(waiting.len(), 3);
}
