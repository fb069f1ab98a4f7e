//! The cases.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    panic::UnwindSafe,
    path::Path,
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use portcullis_config::{NoEnvironment, StdioSpec};
use portcullis_supervisor::{SpawnPlan, SpawnedProcess, Spawner, StopSequence, WardenSpawner};
use portcullis_warden::Program;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

use crate::{
    hub::OPEN_FILES,
    runner::{MOST, PATIENCE, start_again},
    server::LEFT_BEHIND,
    survivors::{await_marked, await_none, marked, new_mark},
};

/// One for each way in which a hub ends.
pub(crate) fn all() -> impl Iterator<Item = (String, Box<dyn FnOnce() + UnwindSafe>)> {
    type Case = Box<dyn FnOnce() + UnwindSafe>;
    let modes = ["close", "drop", "panic", "killed"];
    let endings = modes.into_iter().map(|mode| {
        (
            format!("nothing_survives_{mode}"),
            Box::new(move || check(mode)) as Case,
        )
    });
    let others: [(&str, fn()); 3] = [
        ("what_is_missing_is_named", name_what_is_missing),
        ("a_killed_warden_gets_a_successor", replace_a_killed_warden),
        (
            "a_process_may_be_given_for_ever_to_end",
            stop_one_that_has_for_ever,
        ),
    ];
    endings.chain(others.map(|(name, case)| (name.to_owned(), Box::new(case) as Case)))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn stop_one_that_has_for_ever() {
    let spec = StdioSpec::new("/bin/cat", [] as [&str; 0]);
    let plan = SpawnPlan::resolve(&spec, &NoEnvironment).unwrap();
    let spawner = WardenSpawner::new(Program::Itself);
    let for_ever = StopSequence {
        after_eof: Duration::MAX,
        after_term: Duration::MAX,
    };
    runtime().block_on(async {
        let spawned = match spawner.spawn(&plan, for_ever).await {
            Ok(spawned) => spawned,
            Err(error) => panic!("{error}"),
        };
        drop(spawned.stdin);
        spawned.process.stop();
        assert_eq!(spawned.process.ended().await, "exit status: 0");
    });
}

/// What it has started goes on meanwhile, and ends as ever.
fn replace_a_killed_warden() {
    let spec = StdioSpec::new("/bin/cat", [] as [&str; 0]);
    let plan = SpawnPlan::resolve(&spec, &NoEnvironment).unwrap();
    let spawner = WardenSpawner::new(Program::Itself);
    runtime().block_on(async {
        let start = async || match spawner.spawn(&plan, StopSequence::default()).await {
            Ok(spawned) => spawned,
            Err(error) => panic!("{error}"),
        };
        let warden_of = |spawned: &SpawnedProcess| parent(parent(spawned.process.pid()));
        let first = start().await;
        let warden = warden_of(&first);
        kill_process(Pid::from_raw(warden.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
        // What is asked of it a moment too early fails, as whatever it was asked last.
        let begun = Instant::now();
        while !field(warden, "State:").starts_with('Z') {
            assert!(begun.elapsed() < PATIENCE, "it does not end");
        }
        let second = start().await;
        assert_ne!(warden_of(&second), warden);
        for spawned in [first, second] {
            drop(spawned.stdin);
            assert_eq!(spawned.process.ended().await, "exit status: 0");
        }
    });
}

fn parent(pid: u32) -> u32 {
    field(pid, "PPid:").parse().unwrap()
}

/// What stands behind `name` in a process' status.
fn field(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap().trim().to_owned()
}

/// Whether it is the program that is missing, its interpreter or its working directory. Without a warden the tests of the
/// crate look at that.
fn name_what_is_missing() {
    let folder = std::env::temp_dir().join(new_mark());
    fs::create_dir(&folder).unwrap();
    let script = folder.join("script");
    fs::write(&script, "#!/nowhere/to/be/found\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let missing = folder.join("missing");
    let runtime = runtime();
    let spawner = WardenSpawner::new(Program::Itself);
    for (program, cwd, told) in [
        (Path::new("/bin/true"), &missing, "its working directory `"),
        (Path::new("/bin/true"), &script, "its working directory `"),
        (&missing, &folder, "No such file"),
        (&missing, &missing, "its working directory `"),
        (
            &script,
            &folder,
            "what its first line names, `/nowhere/to/be/found`, is not",
        ),
    ] {
        let none: [&str; 0] = [];
        let spec = StdioSpec {
            cwd: Some(cwd.clone()),
            ..StdioSpec::new(program, none)
        };
        let plan = SpawnPlan::resolve(&spec, &NoEnvironment).unwrap();
        let error = match runtime.block_on(spawner.spawn(&plan, StopSequence::default())) {
            Ok(_) => panic!("{program:?} started in {cwd:?}"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(told), "{error}");
        let names_folder = error.contains(&format!("`{}`", cwd.display()));
        assert_eq!(names_folder, told.starts_with("its working"), "{error}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// A hub that ends in `mode`, as root where this is root and as nobody, with a server of each kind.
fn check(mode: &str) {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("  as root: not tried, since this is not root");
    }
    for unprivileged in if root { &[false, true][..] } else { &[true][..] } {
        for server in ["polite", "deaf", "sleep", "setsid"] {
            check_server(mode, server, root && *unprivileged);
        }
    }
}

fn check_server(mode: &str, server: &str, step_down: bool) {
    // A number of seconds, so that `sleep` can carry it.
    let mark = new_mark().replace("mark-", "999.").replace('-', "00");
    let (mut hub, mut said) = start_hub(&mark, mode, server, step_down);
    expect_line(&mut said, "ready");
    let left = match server {
        "sleep" | "setsid" => 1,
        _ => {
            await_marked(&mark, LEFT_BEHIND);
            LEFT_BEHIND + 1
        }
    };
    // What a server leaves comes up beside it: the server may well be ready first.
    await_count(&mark, left);
    for pid in marked(&mark) {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        let open = limits.lines().find(|line| line.starts_with("Max open files"));
        let most = OPEN_FILES.to_string();
        assert!(
            open.is_none_or(|line| line.split_whitespace().any(|word| word == most)),
            "the limits of its definition hold for all that a server starts: {open:?}"
        );
    }
    if mode == "killed" {
        hub.kill().unwrap();
        hub.wait().unwrap();
    } else {
        hub.stdin.take().unwrap().write_all(b"\n").unwrap();
    }
    if mode == "close" {
        expect_line(&mut said, "done");
        assert_eq!(
            marked(&mark),
            Vec::<i32>::new(),
            "a hub that was closed has nothing left"
        );
    }
    let took = await_none(&mark, MOST).as_millis();
    let user = match (step_down, rustix::process::geteuid().is_root()) {
        (false, true) => "root",
        _ => "nobody",
    };
    println!("  {mode:6} {server:6} as {user:6}: 0 of {left} survive, after {took} ms");
    let _ = hub.kill();
    let _ = hub.wait();
}

#[track_caller]
fn expect_line(said: &mut BufReader<ChildStdout>, line: &str) {
    let mut read = String::new();
    said.read_line(&mut read).unwrap();
    assert_eq!(read.trim_end(), line);
}

fn start_hub(mark: &str, mode: &str, server: &str, step_down: bool) -> (Child, BufReader<ChildStdout>) {
    let mut hub = start_again(step_down, |command| {
        command
            .args(["hub", mark, mode, server])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if mode == "panic" {
            // Its message and its stack are of no use to anybody.
            command.stderr(Stdio::null()).env("RUST_BACKTRACE", "0");
        }
        command
    });
    let said = BufReader::new(hub.stdout.take().unwrap());
    (hub, said)
}

/// Waits until so many processes carry `mark`.
#[track_caller]
fn await_count(mark: &str, count: usize) {
    let begun = Instant::now();
    while marked(mark).len() != count {
        let there = marked(mark).len();
        assert!(begun.elapsed() < PATIENCE, "{there} of {count} processes are up");
        std::thread::sleep(Duration::from_millis(10));
    }
}
