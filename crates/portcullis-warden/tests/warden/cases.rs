//! The cases.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::Instant,
};

use portcullis_warden::{Error, Limits, Order, Program, Report, STOP, Step, Warden};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};

use crate::{
    hub::{launch, next_report, order, start},
    runner::{self, MOST, PATIENCE, program, start_again},
    server::LEFT_BEHIND,
    survivors::{await_marked, await_none, marked, new_mark},
};

/// What this program is called where it starts a thread before it calls `init`.
pub(crate) const HASTY: &str = "hasty";

/// Runs the cases whose names hold one of `filters`, or all.
pub(crate) fn run(filters: &[&str]) -> ExitCode {
    let cases: [(&str, fn()); 20] = [
        ("nothing_survives_a_close", || check_end("close")),
        ("nothing_survives_a_drop", || check_end("drop")),
        ("nothing_survives_a_panic", || check_end("panic")),
        ("nothing_survives_the_killing_of_the_hub", || check_end("killed")),
        ("nothing_survives_a_hub_whose_socket_somebody_holds", || {
            check_end("held")
        }),
        (
            "a_server_that_exits_takes_all_with_it",
            a_server_that_exits_takes_all_with_it,
        ),
        (
            "processes_that_breed_do_not_get_away",
            processes_that_breed_do_not_get_away,
        ),
        ("a_fork_bomb_ends", a_fork_bomb_ends),
        (
            "what_a_killed_keeper_leaves_goes_too",
            what_a_killed_keeper_leaves_goes_too,
        ),
        (
            "a_killed_warden_is_seen_and_its_keepers_work_on",
            a_killed_warden_is_seen_and_its_keepers_work_on,
        ),
        (
            "orphans_are_reaped_while_a_server_runs",
            orphans_are_reaped_while_a_server_runs,
        ),
        ("a_stop_goes_step_by_step", a_stop_goes_step_by_step),
        ("a_server_starts_clean", a_server_starts_clean),
        (
            "what_the_hub_ignores_changes_nothing",
            what_the_hub_ignores_changes_nothing,
        ),
        (
            "a_warden_holds_nothing_of_the_host_open",
            a_warden_holds_nothing_of_the_host_open,
        ),
        ("limits_hold", limits_hold),
        ("what_cannot_be_executed_is_said", what_cannot_be_executed_is_said),
        ("a_large_order_arrives", a_large_order_arrives),
        (
            "a_program_that_is_no_warden_is_said",
            a_program_that_is_no_warden_is_said,
        ),
        (
            "warden_and_keepers_are_small",
            crate::figures::warden_and_keepers_are_small,
        ),
    ];
    runner::run(filters, cases)
}

/// A hub that ends in `mode`, as root where this is root and as nobody, with a server of either kind.
fn check_end(mode: &str) {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("  as root: not tried, since this is not root");
    }
    for unprivileged in [false, true] {
        for server in ["polite", "deaf"] {
            let mark = new_mark();
            let mut hub = start_hub(&mark, &format!("{mode}-{server}"), root && unprivileged);
            await_marked(&mark, LEFT_BEHIND + 1);
            if matches!(mode, "killed" | "held") {
                hub.kill().unwrap();
                hub.wait().unwrap();
            }
            drop(hub.stdin.take());
            let took = await_none(&mark, MOST);
            let user = if root && !unprivileged { "root" } else { "nobody" };
            println!(
                "  {mode:6} {server:6} as {user:6}: 0 of 12 survive, after {} ms",
                took.as_millis()
            );
            let _ = hub.kill();
            let _ = hub.wait();
        }
        if !root {
            break;
        }
    }
}

fn start_hub(mark: &str, mode: &str, step_down: bool) -> Child {
    start_again(step_down, |command| {
        command
            .args(["hub", mark, mode])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .env("RUST_BACKTRACE", "0")
    })
}

fn warden() -> Warden {
    Warden::start(&Program::Path(env!("CARGO_BIN_EXE_portcullis-warden").into())).unwrap()
}

fn shell(script: &str, mark: &str) -> Order {
    order("/bin/sh", &["-c", script, mark])
}

fn read_line(launch: &mut portcullis_warden::Launch) -> String {
    let mut line = String::new();
    BufReader::new(&launch.stdout).read_line(&mut line).unwrap();
    line
}

/// How many children a process has, those that only wait to be reaped too.
fn children(pid: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap().split_whitespace().count()
}

/// Report 11, both variants, and a server whose own exit is the end.
fn a_server_that_exits_takes_all_with_it() {
    let warden = warden();
    for script in [
        "sleep 99 & exec cat",
        "setsid sleep 99 & exec cat",
        "setsid sh -c 'sleep 99 & sleep 99' & cat; exit 7",
    ] {
        // `sleep` shows no mark, so the shell's own name does not count: it is looked for as a child of nobody else.
        let mark = new_mark();
        let script = script.replace("sleep 99", &format!("{} descendant {mark}", program()));
        let mut running = start(&warden, &shell(&script, &mark));
        let up = script.matches("descendant").count() + usize::from(script.contains("exit 7"));
        let begun = Instant::now();
        while marked(&mark).len() < up {
            assert!(begun.elapsed() < PATIENCE, "{:?}", marked(&mark));
        }
        drop(running.launch.stdin);
        drop(running.launch.stdout);
        let mut bytes = [0; Report::BYTES];
        running.launch.control.read_exact(&mut bytes).unwrap();
        let code = if script.contains("exit 7") { 7 } else { 0 };
        assert_eq!(
            Report::decode(bytes),
            Some(Report::Ended {
                status: code << 8,
                left: false
            })
        );
        assert_eq!(marked(&mark), [], "the report comes when nothing is left");
    }
}

/// Processes that are gone before their number can be read, and whose children have other numbers: within a group,
/// and each in a session of its own. They stop by themselves when their folder is gone.
fn processes_that_breed_do_not_get_away() {
    let warden = warden();
    for script in [
        r#"r() { [ -d "$1" ] && r "$1" & }; r "$1"; r "$1"; r "$1"; r "$1"; exec cat"#,
        r#"for i in 1 2 3 4; do setsid sh -c '[ -d "$1" ] && { setsid sh -c "$2" "$0" "$1" "$2" & }' "$0" "$1" '[ -d "$1" ] && { setsid sh -c "$2" "$0" "$1" "$2" & }' & done; exec cat"#,
    ] {
        let mark = new_mark();
        let folder = tempfile::tempdir().unwrap();
        let mut order = shell(script, &mark);
        order.args.push(folder.path().into());
        let mut running = start(&warden, &order);
        // They have bred for a while.
        let (first, begun) = (kernel_number("ns_last_pid"), Instant::now());
        let most = kernel_number("pid_max");
        // The last number that was given to a process begins anew after the largest.
        while (kernel_number("ns_last_pid") - first).rem_euclid(most) < 200 {
            assert!(begun.elapsed() < PATIENCE, "they do not breed");
        }
        running.launch.control.write_all(STOP).unwrap();
        let begun = Instant::now();
        let report = next_report(&mut running.launch);
        assert!(
            matches!(report, Some(Report::Ended { left: false, .. })),
            "{report:?}"
        );
        assert_eq!(marked(&mark), []);
        println!(
            "  gone {} ms after the order to stop",
            begun.elapsed().as_millis()
        );
    }
}

fn kernel_number(name: &str) -> i32 {
    let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).unwrap();
    text.trim().parse().unwrap()
}

/// As nobody: root is exempt from the limit of processes that keeps the machine usable.
fn a_fork_bomb_ends() {
    let mark = new_mark();
    let mut hub = start_hub(&mark, "killed-bomb", rustix::process::geteuid().is_root());
    let begun = Instant::now();
    while marked(&mark).len() < 40 {
        assert!(begun.elapsed() < PATIENCE, "it does not go off");
    }
    hub.kill().unwrap();
    hub.wait().unwrap();
    let took = await_none(&mark, MOST);
    println!("  gone {} ms after the hub was killed", took.as_millis());
}

/// A server that kills its parent.
fn what_a_killed_keeper_leaves_goes_too() {
    let warden = warden();
    let mark = new_mark();
    let script = format!(
        "setsid {} descendant {mark} deaf & read word; kill -9 $PPID; exec cat",
        program()
    );
    let mut running = start(&warden, &shell(&script, &mark));
    await_marked(&mark, 1);
    running.launch.stdin.write_all(b"now\n").unwrap();
    assert_eq!(
        next_report(&mut running.launch),
        None,
        "the hub hears of the keeper's end"
    );
    await_none(&mark, MOST);
    // And the warden goes on.
    start(&warden, &shell("exec cat", &mark));
}

fn a_killed_warden_is_seen_and_its_keepers_work_on() {
    let warden = warden();
    let mark = new_mark();
    let mut running = start(&warden, &order(program(), &["server", &mark, "deaf"]));
    await_marked(&mark, LEFT_BEHIND + 1);
    kill_process(
        Pid::from_raw(warden.pid().try_into().unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    let begun = Instant::now();
    while !matches!(warden.launch(), Err(Error::Gone)) {
        assert!(begun.elapsed() < PATIENCE, "the warden's end is not seen");
    }
    assert_eq!(marked(&mark).len(), LEFT_BEHIND + 1, "its servers live");
    running.launch.control.write_all(STOP).unwrap();
    assert_eq!(
        next_report(&mut running.launch),
        Some(Report::Ended {
            status: 9,
            left: false
        })
    );
    assert_eq!(marked(&mark), []);
}

/// What a server leaves and what ends by itself does not stay as a zombie while the server runs, and ends nobody else.
fn orphans_are_reaped_while_a_server_runs() {
    let warden = warden();
    let mark = new_mark();
    let script = format!(
        "for i in 1 2 3; do (exec true &) ; done; {} descendant {mark} fork & exec cat",
        program()
    );
    let running = start(&warden, &shell(&script, &mark));
    let keeper = crate::figures::parent(running.pid);
    // The server, which shows no mark once it is `cat`, and the daemon.
    let begun = Instant::now();
    while (children(keeper), marked(&mark).len()) != (2, 1) {
        assert!(begun.elapsed() < PATIENCE, "{} children", children(keeper));
    }
}

/// First the end of input, then SIGTERM, then SIGKILL, each after its time.
fn a_stop_goes_step_by_step() {
    let warden = warden();
    for (script, close, status, least) in [
        ("exec cat", true, 0, 0),
        ("exec sleep 99", true, 15, 300),
        (
            "trap 'exit 3' TERM; while :; do sleep 0.01; done",
            false,
            3 << 8,
            300,
        ),
        ("trap '' TERM; while :; do sleep 0.01; done", false, 9, 600),
    ] {
        let mut running = start(&warden, &shell(&format!("echo up; {script}"), "stop"));
        assert_eq!(read_line(&mut running.launch), "up\n");
        let begun = Instant::now();
        running.launch.control.write_all(STOP).unwrap();
        if close {
            running.launch.stdin = std::io::pipe().unwrap().1;
        }
        assert_eq!(
            next_report(&mut running.launch),
            Some(Report::Ended { status, left: false }),
            "{script}"
        );
        let took = begun.elapsed().as_millis();
        assert!(
            (least..least + 4_000).contains(&took),
            "`{script}` took {took} ms"
        );
        assert_eq!(next_report(&mut running.launch), None);
    }
}

/// No descriptor, no signal blocked or ignored, no variable and no session that it was not given; the working
/// directory that was ordered. Programs with limits are started in a way of their own, and so are scripts without `#!`.
fn a_server_starts_clean() {
    let warden = warden();
    let limited = Limits {
        core_bytes: Some(0),
        ..Limits::default()
    };
    for limits in [Limits::default(), limited] {
        starts_clean(&warden, limits);
    }
}

/// Signals that are ignored stay so through each program that is executed: by a hub under `nohup`, or one that a shell
/// has put into the background. Where SIGCHLD is among them, the kernel tells nobody of a child's end.
fn what_the_hub_ignores_changes_nothing() {
    let cases = [
        "a_server_starts_clean",
        "a_stop_goes_step_by_step",
        "a_server_that_exits_takes_all_with_it",
        "what_a_killed_keeper_leaves_goes_too",
    ];
    let tried = Command::new("env")
        .args([
            "--ignore-signal=HUP,INT,QUIT,USR1,USR2,ALRM,TERM,CHLD,WINCH",
            program(),
        ])
        .args(cases)
        .output()
        .expect("`env` of coreutils, to ignore signals");
    let said = String::from_utf8_lossy(&tried.stdout);
    assert!(
        tried.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&tried.stderr)
    );
    for case in cases {
        assert!(said.contains(&format!("test {case} ... ok")), "{said}");
    }
}

fn starts_clean(warden: &Warden, limits: Limits) {
    let folder = tempfile::tempdir().unwrap();
    let nameless = folder.path().join("script");
    let script = "grep 'SigBlk\\|SigIgn' /proc/$$/status | cut -f2; env | grep -v '^PWD=\\|^_=\\|^SHLVL='; \
        pwd; cut -d' ' -f5,6 /proc/$$/stat; echo $$ $$; umask";
    let script = format!("{script}; exec 1>&-; exec cat\n");
    fs::write(&nameless, &script).unwrap();
    fs::set_permissions(&nameless, fs::Permissions::from_mode(0o755)).unwrap();
    for mut ordered in [shell(&script, "clean"), order(nameless.to_str().unwrap(), &[])] {
        ordered.cwd = Some("/usr".into());
        ordered.limits = limits;
        let mut running = start(warden, &ordered);
        let mut text = String::new();
        running.launch.stdout.read_to_string(&mut text).unwrap();
        let pid = running.pid;
        let lines: Vec<&str> = text.lines().collect();
        let own = format!("{pid} {pid}");
        assert_eq!(
            lines.get(2..6).unwrap(),
            ["PATH=/usr/bin:/bin", "/usr", &own, &own],
            "{text}"
        );
        // Of the signals that programs know: two more are the C library's own.
        for line in lines.get(..2).unwrap() {
            assert_eq!(u64::from_str_radix(line, 16).unwrap() & 0x7fff_ffff, 0, "{text}");
        }
    }

    let mut ordered = order("/bin/ls", &["/proc/self/fd"]);
    ordered.limits = limits;
    let mut running = start(warden, &ordered);
    let mut text = String::new();
    running.launch.stdout.read_to_string(&mut text).unwrap();
    assert_eq!(
        text, "0\n1\n2\n3\n",
        "the standard ones, and the one with which `ls` looks"
    );
}

/// Nor does a keeper: not what the host left open for its children, and not the server's pipes.
fn a_warden_holds_nothing_of_the_host_open() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    let warden = warden();
    drop(writer);
    let mut running = start(&warden, &shell("exec 1>&- 2>&-; exec cat", "held"));
    // Each read ends at once where nobody else holds the other end, and else never.
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        running.launch.stdout.read_to_end(&mut all).unwrap();
        running.launch.stderr.read_to_end(&mut all).unwrap();
        done.send(all).unwrap();
    });
    assert_eq!(ended.recv_timeout(MOST), Ok(Vec::new()));
}

fn limits_hold() {
    let warden = warden();
    let mut order = shell(
        "ulimit -n; ulimit -c; ulimit -Hf; ulimit -t; ulimit -Hv; exec 1>&-; exec cat",
        "limits",
    );
    order.limits = Limits {
        open_files: Some(37),
        core_bytes: Some(0),
        file_bytes: Some(512 * 1_000),
        cpu_seconds: Some(77),
        memory_bytes: Some(1 << 30),
        ..Limits::default()
    };
    let mut running = start(&warden, &order);
    let mut text = String::new();
    running.launch.stdout.read_to_string(&mut text).unwrap();
    assert_eq!(text, "37\n0\n1000\n77\n1048576\n");

    // No more than the hub itself may have.
    let mut order = shell("ulimit -Hn; exec 1>&-; exec cat", "limits");
    order.limits.open_files = Some(u64::MAX);
    let mut running = start(&warden, &order);
    let mut text = String::new();
    running.launch.stdout.read_to_string(&mut text).unwrap();
    let own = getrlimit(Resource::Nofile).maximum.unwrap();
    assert_eq!(text, format!("{own}\n"));
}

fn what_cannot_be_executed_is_said() {
    let warden = warden();
    let missing = order("/nowhere/program", &[]);
    let (mut launched, report) = launch(&warden, &missing);
    assert_eq!(
        report,
        Report::Failed {
            step: Step::Program,
            errno: 2
        }
    );
    assert_eq!(next_report(&mut launched), None);
    let elsewhere = Order {
        cwd: Some("/nowhere".into()),
        ..order("/bin/cat", &[])
    };
    assert_eq!(
        launch(&warden, &elsewhere).1,
        Report::Failed {
            step: Step::WorkingDirectory,
            errno: 2
        }
    );
    // No system call takes such an argument, whichever way the program is started.
    for core_bytes in [None, Some(0)] {
        let mut nul = order("/bin/cat", &["a\0b"]);
        nul.limits.core_bytes = core_bytes;
        let invalid = Report::Failed {
            step: Step::Program,
            errno: 22,
        };
        assert_eq!(launch(&warden, &nul).1, invalid, "{core_bytes:?}");
    }
    let mut launched = warden.launch().unwrap();
    launched
        .control
        .write_all(&[1, 0, 0, 0, 0, 0, 0, 0, b'x'])
        .unwrap();
    assert_eq!(
        next_report(&mut launched),
        Some(Report::Failed {
            step: Step::Order,
            errno: 22
        })
    );
    // A hub that goes away before it has said anything leaves no keeper waiting.
    let await_keepers = |count: usize| {
        let begun = Instant::now();
        while children(warden.pid()) != count {
            assert!(begun.elapsed() < PATIENCE, "not {count} keepers");
        }
    };
    await_keepers(0);
    let silent = warden.launch().unwrap();
    await_keepers(1);
    drop(silent);
    await_keepers(0);
}

fn a_large_order_arrives() {
    let warden = warden();
    let mut order = shell("env | wc -c; exec cat", "large");
    order
        .environment
        .extend((0..15).map(|at| (format!("V{at}").into(), "x".repeat(64 * 1024).into())));
    let mut running = start(&warden, &order);
    let bytes: usize = read_line(&mut running.launch).trim().parse().unwrap();
    assert!(bytes > 15 * 64 * 1024, "{bytes}");
}

fn a_program_that_is_no_warden_is_said() {
    let error = Warden::start(&Program::Path("/bin/true".into())).unwrap_err();
    assert!(matches!(error, Error::NotAWarden { .. }), "{error}");
    let error = Warden::start(&Program::Path("/nowhere/warden".into())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot execute `/nowhere/warden` as the warden"
    );
    // One that cannot fork in peace.
    let folder = tempfile::tempdir().unwrap();
    let hasty = folder.path().join(HASTY);
    fs::copy("/proc/self/exe", &hasty).unwrap();
    let error = Warden::start(&Program::Path(hasty)).unwrap_err();
    assert!(
        error.to_string().contains("a thread runs already; call"),
        "{error}"
    );
    // One that stays, whatever it says on its standard input, which is the socket.
    for (says, told) in [("x", "does not act as the warden"), ("xy", "of another version")] {
        let (folder, mark) = (tempfile::tempdir().unwrap(), new_mark());
        let script = folder.path().join("stays");
        let stays = format!(
            "#!/bin/sh\nprintf {says} >&0\nexec {} descendant {mark}\n",
            program()
        );
        fs::write(&script, stays).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let error = Warden::start(&Program::Path(script)).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
        await_none(&mark, MOST);
    }
}
