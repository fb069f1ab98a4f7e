//! A hub with one server, and the server.

use std::{
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::Command,
    time::Duration,
};

use portcullis_warden::{Launch, Limits, Order, Program, Report, STOP, Warden};

use crate::server::{be_deaf, leave_behind, stay};

/// A server that is started by `warden`.
pub(crate) struct Running {
    pub(crate) launch: Launch,
    pub(crate) pid: u32,
}

/// `program` with `args`, an environment that holds a path alone, and short waits.
pub(crate) fn order(program: &str, args: &[&str]) -> Order {
    Order {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: None,
        limits: Limits::default(),
        after_eof: Duration::from_millis(300),
        after_term: Duration::from_millis(300),
    }
}

/// Has a keeper carry out `order`, and returns what it says first.
#[track_caller]
pub(crate) fn launch(warden: &Warden, order: &Order) -> (Launch, Report) {
    let mut launch = warden.launch().unwrap();
    launch
        .control
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    launch.control.write_all(&order.encode().unwrap()).unwrap();
    let report = next_report(&mut launch).expect("a report");
    (launch, report)
}

#[track_caller]
pub(crate) fn start(warden: &Warden, order: &Order) -> Running {
    match launch(warden, order) {
        (launch, Report::Started { pid }) => Running { launch, pid },
        (_, other) => panic!("{other:?}"),
    }
}

/// What the keeper says next; none at its end.
pub(crate) fn next_report(launch: &mut Launch) -> Option<Report> {
    let mut bytes = [0; Report::BYTES];
    match launch.control.read_exact(&mut bytes) {
        Ok(()) => Some(Report::decode(bytes).unwrap()),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
        Err(error) => panic!("no report in time: {error}"),
    }
}

/// Starts a server that leaves eleven behind, and ends as `mode` says when its input ends. With `killed` somebody
/// kills it.
pub(crate) fn play(mark: &str, mode: &str) {
    let (mode, server) = mode.split_once('-').unwrap();
    let warden = Warden::start(&Program::Itself).unwrap();
    let mut order = order("/proc/self/exe", &["server", mark, server]);
    order.program = std::env::current_exe().unwrap();
    if server == "bomb" {
        order = bomb(mark);
    }
    let mut running = start(&warden, &order);
    if mode == "held" {
        // Somebody else's process holds the hub's end of the keeper's socket: only the pidfd tells that it is dead.
        rustix::io::fcntl_setfd(&running.launch.control, rustix::io::FdFlags::empty()).unwrap();
        rustix::io::fcntl_setfd(&running.launch.stdin, rustix::io::FdFlags::empty()).unwrap();
        Command::new("sleep")
            .arg0("bystander")
            .arg("6")
            .spawn()
            .map(drop)
            .unwrap();
    }
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    match mode {
        "close" => {
            drop(running.launch.stdin);
            let launch = &mut running.launch.control;
            launch.write_all(STOP).unwrap();
            let mut bytes = [0; Report::BYTES];
            launch.read_exact(&mut bytes).unwrap();
            assert!(matches!(
                Report::decode(bytes),
                Some(Report::Ended { left: false, .. })
            ));
        }
        "drop" => {
            drop(running);
            // The hub lives on: its own end is not what ends the server.
            std::thread::sleep(Duration::from_secs(8));
        }
        "panic" => panic!("a test asked for it"),
        other => panic!("`{other}` is no mode"),
    }
}

/// A server whose processes each start two more, up to a limit that keeps the machine usable.
fn bomb(mark: &str) -> Order {
    let breed = "b() { sleep 0.05; b | b & }; b & b & exec cat";
    let mut order = order("/bin/sh", &["-c", breed, mark]);
    order.limits.processes = Some(200);
    // Enough, whatever goes wrong here.
    order.limits.cpu_seconds = Some(5);
    order
}

/// A server that leaves eleven processes behind, and then does as `kind` says: `polite` exits at the end of its input,
/// `deaf` does not and ignores SIGTERM too.
pub(crate) fn serve(mark: &str, kind: &str) {
    leave_behind(mark);
    if kind == "deaf" {
        be_deaf();
    }
    rustix::thread::set_name(c"staying").unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    if kind == "deaf" {
        stay();
    }
}
