//! Subscriptions of the newer era (MCP 2026-07-28, `subscriptions/listen`): there, a server says that its tools changed
//! only to who asked for it. Over HTTP the stream of a subscription is also what shows, while nobody calls, that the
//! server is gone; the era has no other request that stands.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::{ErrorCode, ServerNotification, SubscriptionFilter},
    service::{Peer, ServiceError, SubscriptionEnd},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// The first pause before a subscription that ended is opened again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MOST_PAUSE: Duration = Duration::from_secs(30);

/// How often a server that promised nothing is asked for a subscription that it does not give.
const MOST_TRIES: u32 = 3;

/// Keeps a subscription to changes of the tools open for as long as the connection lives, and passes them on. It ends
/// where the server does not offer it. `promised` says that the server declares that it tells such changes.
pub(crate) async fn watch_tools(
    peer: Peer<RoleClient>,
    changed: Arc<Notify>,
    closed: CancellationToken,
    promised: bool,
) {
    tokio::select! {
        () = subscribe(&peer, &changed, promised) => {}
        () = closed.cancelled() => {}
    }
}

async fn subscribe(peer: &Peer<RoleClient>, changed: &Notify, promised: bool) {
    let mut pause = FIRST_PAUSE;
    let (mut before, mut failures) = (false, 0);
    loop {
        let opened = Instant::now();
        let mut filter = SubscriptionFilter::new();
        filter.tools_list_changed = Some(true);
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                let tells = subscription.acknowledged().tools_list_changed == Some(true);
                if before && tells {
                    // Nobody heard what changed since the last one ended.
                    changed.notify_one();
                }
                before = true;
                while let Ok(Some(notification)) = subscription.next().await {
                    if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
                        changed.notify_one();
                    }
                }
                let let_go = matches!(
                    subscription.end(),
                    Some(SubscriptionEnd::Graceful(_) | SubscriptionEnd::Cancelled)
                );
                if let_go && !tells {
                    // It has nothing to tell, and does not keep the stream for that.
                    return;
                }
            }
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                tracing::debug!("the server takes no subscriptions");
                return;
            }
            Err(error) => {
                // Not in the server's words, which may hold what it was given.
                let code = match &error {
                    ServiceError::McpError(said) => Some(said.code.0),
                    _ => None,
                };
                tracing::debug!(?code, "a subscription could not be opened");
                failures += 1;
                if !before && !promised && failures >= MOST_TRIES {
                    return;
                }
            }
        }
        // One that lived long was well: only those that end at once, again and again, are opened more slowly.
        if opened.elapsed() >= MOST_PAUSE {
            pause = FIRST_PAUSE;
        }
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(MOST_PAUSE);
    }
}
