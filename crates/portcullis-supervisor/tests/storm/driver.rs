//! Runs the misfits without a hub: a process of its own that starts them, says to them what a hub's callers say, reads
//! what they print and throws it away, and starts them again when they end, close their output or do not take up their
//! opening. It does less than any client could, and no less than what makes them do the same.

use std::{
    future::pending,
    io::{BufRead, Read, Write},
    path::Path,
    process::{Child, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use portcullis_testkit::Script;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_buf, sink},
    process::{ChildStderr, ChildStdin, ChildStdout, Command},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    load::{CALL, Plan, cure_some, pace},
    misfits::{MISFITS, misfit},
    rig::{MARK, marked, runtime},
};

/// The driver's process, as whoever started it sees it. It runs until it is stopped.
pub(crate) struct Driver(Child);

impl Driver {
    /// Starts the misfits in a process of their own; gives it when they have been started.
    pub(crate) fn start(mark: &str, folder: &Path, seed: u64) -> Self {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["drive", mark, folder.to_str().unwrap(), &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        std::io::BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        Self(child)
    }

    /// Ends the driver and all its servers; gives the number of calls that were written.
    pub(crate) fn stop(mut self) -> u64 {
        drop(self.0.stdin.take());
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.0.wait().unwrap().success());
        text.trim().parse().unwrap()
    }
}

/// The part of the driver: until the end of its input.
pub(crate) fn drive(mark: &str, folder: &Path, seed: u64) -> ExitCode {
    let written = Arc::new(AtomicU64::new(0));
    runtime().block_on(async {
        let (mut servers, mut inputs) = (JoinSet::new(), Vec::new());
        for number in 0..MISFITS {
            let (tell, lines) = mpsc::channel(256);
            inputs.push(tell);
            servers.spawn(keep_up(
                misfit(folder, number),
                mark.to_owned(),
                lines,
                Arc::clone(&written),
            ));
        }
        println!("up");
        let (mut plan, mut pace, mut number) = (Plan::new(seed), pace(), 0_u64);
        let call_on = async {
            loop {
                pace.tick().await;
                let (misfit, tool) = plan.next();
                number += 1;
                let line = format!(
                    r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"n":{number}}}}}}}"#
                );
                // One that does not keep up with its calls misses some, as a hub's callers would give them up.
                let _ = inputs.get(misfit).unwrap().try_send(line + "\n");
            }
        };
        tokio::select! {
            () = call_on => {}
            () = cure_some(folder, seed) => {}
            _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())) => {}
        }
        servers.shutdown().await;
    });
    // What they have left behind ends too; what is being started meanwhile is seen the next time.
    loop {
        let left = marked(mark);
        for pid in &left {
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
        }
        if left.is_empty() {
            break;
        }
    }
    println!("{}", written.load(Ordering::Relaxed));
    let _ = std::io::stdout().flush();
    ExitCode::SUCCESS
}

/// A pipe's whole capacity.
const PIPE_BYTES: usize = 64 * 1024;

/// What a client of the older era says before it calls.
const OPENING: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"open","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"driver","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#,
    "\n",
);

/// What the answer to the first line of the opening holds.
const OPENED: &[u8] = br#""id":"open""#;

/// Starts one server again and again, with the pauses that the chaos' hub makes, and hands it its lines.
async fn keep_up(script: Script, mark: String, mut lines: mpsc::Receiver<String>, written: Arc<AtomicU64>) {
    let script_text = script.to_json();
    let mut random = StdRng::from_rng(&mut rand::rng());
    let mut failures = 0;
    loop {
        // In a session of its own, as a keeper's server is: Linux may share the processors out between sessions first
        // (`sched_autogroup`), and fifty servers in one session would take no more from the healthy than one.
        let mut child = Command::new("setsid")
            .arg(std::env::current_exe().unwrap())
            .args(["server", "--script", &script_text])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env(MARK, &mark)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let over = tokio::select! {
            () = read_away(stdout, stderr) => false,
            over = hand_over(&mut stdin, &mut lines, &written) => over,
        };
        if over {
            return;
        }
        failures += 1;
        // Full jitter, as the hub has it; one that fails often waits until it is called.
        let pause = if failures < 5 {
            random.random_range(Duration::ZERO..Duration::from_millis(50 << failures))
        } else {
            Duration::from_secs(3)
        };
        let until = Instant::now() + pause;
        while let Ok(line) = timeout_at(until, lines.recv()).await {
            if line.is_none() {
                return;
            }
            if failures >= 5 {
                break;
            }
        }
    }
}

/// Reads what a server prints and throws it away, until no more comes or it has not taken up its opening in time.
async fn read_away(stdout: ChildStdout, stderr: ChildStderr) {
    let mut stdout = BufReader::with_capacity(PIPE_BYTES, stdout);
    let mut stderr = BufReader::with_capacity(PIPE_BYTES, stderr);
    let until_the_end = async {
        if timeout(CALL, is_opened(&mut stdout)).await == Ok(true) {
            let _ = copy_buf(&mut stdout, &mut sink()).await;
        }
    };
    let beside = async {
        let _ = copy_buf(&mut stderr, &mut sink()).await;
        pending::<()>().await;
    };
    tokio::select! {
        () = until_the_end => {}
        () = beside => {}
    }
}

/// Reads up to the answer to the opening; false where there is none.
async fn is_opened(stdout: &mut BufReader<ChildStdout>) -> bool {
    let mut line = Vec::new();
    while stdout
        .read_until(b'\n', &mut line)
        .await
        .is_ok_and(|size| size > 0)
    {
        if line.windows(OPENED.len()).any(|part| part == OPENED) {
            return true;
        }
        line.clear();
    }
    false
}

/// Writes lines to a server; true where no more come, false where it takes none.
async fn hand_over(stdin: &mut ChildStdin, lines: &mut mpsc::Receiver<String>, written: &AtomicU64) -> bool {
    let mut line = Some(OPENING.to_owned());
    while let Some(text) = line {
        match timeout(CALL, stdin.write_all(text.as_bytes())).await {
            Ok(Ok(())) => written.fetch_add(1, Ordering::Relaxed),
            _ => return false,
        };
        line = lines.recv().await;
    }
    true
}
