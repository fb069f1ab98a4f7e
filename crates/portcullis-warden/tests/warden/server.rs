//! What a server leaves behind.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::Duration,
};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{getpid, set_child_subreaper, setsid};

/// How many processes [`leave_behind`] leaves behind.
pub(crate) const LEFT_BEHIND: usize = 11;

/// Leaves eleven processes behind.
pub(crate) fn leave_behind(mark: &str) {
    // The eleven are the last words of each line, and the one that stays beside another.
    for verbs in [
        "",
        "deaf",
        "group",
        "session",
        "session deaf",
        "fork session",
        "session fork session deaf",
        "bare session fork",
        "group fork deaf",
        "session subreaper beside session fork session deaf",
    ] {
        spawn(mark, &verbs.split_whitespace().collect::<Vec<_>>());
    }
}

/// Does what each verb says, in order, and stays.
pub(crate) fn descend(mark: &str, verbs: &[&str]) {
    let Some((verb, rest)) = verbs.split_first() else {
        stay()
    };
    match *verb {
        "deaf" => be_deaf(),
        "group" => rustix::process::setpgid(None, None).unwrap(),
        "session" => drop(setsid().unwrap()),
        "subreaper" => set_child_subreaper(Some(getpid())).unwrap(),
        // A daemon: its parent is gone.
        "fork" => return spawn(mark, rest),
        "beside" => {
            spawn(mark, rest);
            stay();
        }
        other => panic!("`{other}` is no verb"),
    }
    descend(mark, rest);
}

fn spawn(mark: &str, verbs: &[&str]) {
    let (bare, verbs) = match verbs {
        ["bare", rest @ ..] => (true, rest),
        verbs => (false, verbs),
    };
    let mut command = Command::new("/proc/self/exe");
    // They hold the server's output open, as many do by accident.
    command
        .arg0("left-behind")
        .args(["descendant", mark])
        .args(verbs)
        .stdin(Stdio::null());
    if bare {
        command.env_clear().stdout(Stdio::null()).stderr(Stdio::null());
    }
    // Nobody waits for it: that is the point.
    drop(command.spawn().unwrap());
}

pub(crate) fn be_deaf() {
    let mut deaf = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        deaf.add(signal);
    }
    deaf.thread_block().unwrap();
}

/// Longer than any test, and not for ever.
pub(crate) fn stay() -> ! {
    rustix::thread::set_name(c"staying").unwrap();
    std::thread::sleep(Duration::from_secs(120));
    std::process::exit(0);
}
