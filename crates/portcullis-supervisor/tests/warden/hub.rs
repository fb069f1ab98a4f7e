//! A hub with one server.

use std::{io::BufRead, process::ExitCode, sync::Arc, time::Duration};

use portcullis_config::{NoEnvironment, Protocol, ServerSpec, StdioSpec, Timeouts};
use portcullis_supervisor::{StopSequence, Supervisor, SupervisorOptions};
use portcullis_testkit::{AtEof, Behaviour, Process, Script, Tool};
use tokio::{sync::mpsc, time::Instant};

/// How many descriptors each server may have.
pub(crate) const OPEN_FILES: u64 = 97;

/// Connects to a server of the kind `server`, says so, and ends as `mode` says at the end of its input.
pub(crate) fn play(mark: &str, mode: &str, server: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut options = SupervisorOptions::new(Arc::new(NoEnvironment));
        assert!(
            format!("{:?}", options.spawner).contains("WardenSpawner"),
            "the default where `init` was called"
        );
        if mode != "killed" {
            let wait = Duration::from_millis(300);
            options.stop = StopSequence {
                after_eof: wait,
                after_term: wait,
            };
        }
        let (events, _heard) = mpsc::unbounded_channel();
        let supervisor = Supervisor::start(vec![spec(mark, server)], options, events)
            .await
            .unwrap();
        let upstream = supervisor.upstream(&"server".parse().unwrap()).unwrap();
        let ready = upstream
            .ready(Instant::now() + Duration::from_secs(20), 0)
            .await
            .unwrap();
        let echo = ready
            .call("echo", r#"{"a":1}"#.into(), upstream.timeouts())
            .await
            .unwrap();
        assert!(echo.contains("hello"), "{echo}");
        println!("ready");
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).unwrap();
        match mode {
            "close" => supervisor.shutdown().await.unwrap(),
            "drop" => drop(supervisor),
            "panic" => panic!("a test asked for it"),
            other => panic!("`{other}` is no mode"),
        }
        println!("done");
        // The hub lives on: its own end is not what ends the server.
        tokio::time::sleep(Duration::from_secs(8)).await;
    });
    ExitCode::SUCCESS
}

fn spec(mark: &str, server: &str) -> ServerSpec {
    let mut script = Script::new("server").tool(Tool::new("echo", Behaviour::Template("hello".into())));
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let (program, args) = match server {
        "polite" => (program, vec!["server".to_owned(), mark.to_owned()]),
        "deaf" => {
            script = script.at_eof(AtEof::Ignore);
            script.process = Process {
                ignore_term: true,
                ..Process::default()
            };
            (program, vec!["server".to_owned(), mark.to_owned()])
        }
        // Report 11; `sleep` takes any fraction of a second, so the mark is one.
        "sleep" | "setsid" => {
            let session = if server == "setsid" { "setsid " } else { "" };
            let words = format!(r#"{session}sleep {mark} & exec "$0" "$@""#);
            ("/bin/sh".to_owned(), vec!["-c".to_owned(), words, program])
        }
        other => panic!("`{other}` is no server"),
    };
    let args = args.into_iter().chain(["--script".to_owned(), script.to_json()]);
    ServerSpec {
        timeouts: Timeouts::uniform(Duration::from_secs(20)),
        protocol: Protocol::Initialize,
        limits: portcullis_config::Limits {
            // Seen by the case, and enough for every server here.
            process: portcullis_config::ProcessLimits {
                open_files: Some(OPEN_FILES),
                ..Default::default()
            },
            ..Default::default()
        },
        ..ServerSpec::new("server".parse().unwrap(), StdioSpec::new(program, args))
    }
}
