use tokio::signal::unix::{SignalKind, signal};

/// Resolves when somebody wants the program to end: an interrupt from the terminal, a terminal that
/// closes, or a polite kill. Servers lead process groups of their own, so nobody but the hub passes it on to them.
pub(crate) async fn interrupted() {
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else {
        // Without a handler the default of the operating system ends the program.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
