//! Report 13: counts stay flat however often a handshake fails. Alone in its program, since it counts what the
//! whole process holds.

#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::{sync::Arc, time::Duration};

use portcullis_config::{NoEnvironment, Protocol, ServerSpec, StdioSpec, Timeouts};
use portcullis_supervisor::{
    LifecycleOptions, ServerState, StopSequence, Supervisor, SupervisorEvent, SupervisorOptions,
};
use tokio::{sync::mpsc, time::timeout};

fn spec(id: &str, line: &str) -> ServerSpec {
    ServerSpec {
        timeouts: Timeouts {
            connect: Duration::from_millis(20),
            ..Timeouts::default()
        },
        protocol: Protocol::Initialize,
        ..ServerSpec::new(id.parse().unwrap(), StdioSpec::new("/bin/sh", ["-c", line]))
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The children of all threads, those that only wait to be reaped too.
fn processes() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default())
        .map(|children| children.split_whitespace().count())
        .sum()
}

/// How often each of the three servers is tried: 201 handshakes fail.
const TRIES: u32 = 67;

#[tokio::test]
async fn failed_handshakes_leave_nothing_behind() {
    let mut options = SupervisorOptions::new(Arc::new(NoEnvironment));
    options.lifecycle = LifecycleOptions {
        base: Duration::from_millis(1),
        cap: Duration::from_millis(1),
        park_after: TRIES,
        ..LifecycleOptions::default()
    };
    options.stop = StopSequence {
        after_eof: Duration::from_millis(20),
        after_term: Duration::from_millis(20),
    };
    // The first never answers, the second ends, the third closes its output and stays.
    let specs = vec![
        spec("hangs", "exec sleep 600"),
        spec("exits", "exit 1"),
        spec("closes", "exec 1>&-; exec sleep 600"),
    ];
    // One descriptor that the first child of all makes the runtime open, and keep.
    let (warm, _) = mpsc::unbounded_channel();
    let first = Supervisor::start(vec![spec("exits", "exit 1")], options.clone(), warm)
        .await
        .unwrap();
    first.shutdown().await.unwrap();
    let before = descriptors();

    let (tell, mut events) = mpsc::unbounded_channel();
    let supervisor = Supervisor::start(specs, options, tell).await.unwrap();
    let (mut failures, mut most) = (0, (0, 0));
    let mut parked = 0;
    while parked < 3 {
        let event = timeout(Duration::from_secs(30), events.recv())
            .await
            .unwrap()
            .unwrap();
        if let SupervisorEvent::State { to, .. } = event {
            failures += u32::from(matches!(to, ServerState::BackingOff | ServerState::Parked));
            parked += usize::from(to == ServerState::Parked);
            most = (most.0.max(descriptors()), most.1.max(processes()));
        }
    }
    assert_eq!(failures, 3 * TRIES);
    // Three pipes of each server, twice where the one before is just being closed; and no second process of any.
    assert!(most.0 <= before + 3 * 6, "{most:?} of {before}");
    assert!(most.1 <= 3, "{most:?}");
    // Waits for the last children, which are stopped in the background.
    supervisor.shutdown().await.unwrap();
    assert_eq!((descriptors(), processes()), (before, 0));
}
