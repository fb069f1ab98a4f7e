//! Subscriptions of the newer era (MCP 2026-07-28, `subscriptions/listen`): there, a server says that its tools changed
//! only to who asked for it.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::{ErrorCode, ServerNotification, SubscriptionFilter},
    service::{Peer, ServiceError},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// The first pause before a subscription that ended is opened again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MOST_PAUSE: Duration = Duration::from_secs(30);

/// Keeps a subscription to changes of the tools open for as long as the connection lives, and passes them on. It ends
/// where the server does not offer it.
pub(crate) async fn watch_tools(peer: Peer<RoleClient>, changed: Arc<Notify>, closed: CancellationToken) {
    tokio::select! {
        () = subscribe(&peer, &changed) => {}
        () = closed.cancelled() => {}
    }
}

async fn subscribe(peer: &Peer<RoleClient>, changed: &Notify) {
    let mut pause = FIRST_PAUSE;
    let mut before = false;
    loop {
        let opened = Instant::now();
        let mut filter = SubscriptionFilter::new();
        filter.tools_list_changed = Some(true);
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                if subscription.acknowledged().tools_list_changed != Some(true) {
                    return;
                }
                if before {
                    // Nobody heard what changed since the last one ended.
                    changed.notify_one();
                }
                before = true;
                while let Ok(Some(notification)) = subscription.next().await {
                    if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
                        changed.notify_one();
                    }
                }
            }
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                tracing::debug!(%error, "the server takes no subscriptions");
                return;
            }
            Err(error) => tracing::debug!(%error, "a subscription could not be opened"),
        }
        // One that lived long was well: only those that end at once, again and again, are opened more slowly.
        if opened.elapsed() >= MOST_PAUSE {
            pause = FIRST_PAUSE;
        }
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(MOST_PAUSE);
    }
}
