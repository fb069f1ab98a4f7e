//! Streams of calls that die: what goes on where it broke off, and what is told where nothing can.

use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_config::Protocol;

use super::{
    supervised::{Hub, header_of, id_of},
    *,
};
use crate::CallFault;

/// A server of the older era whose stream of a call breaks off after `events`, and which sends the reply to whoever
/// goes on from event `7` with the `turn`th try.
async fn breaking(events: &'static str, turn: usize) -> (Server, Arc<AtomicUsize>) {
    let asked = Arc::<Mutex<Option<Value>>>::default();
    let tries = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&tries);
    let server = Server::new(move |request| {
        if request.contains(r#""method":"tools/call""#) {
            *asked.lock().unwrap() = Some(id_of(request));
            return reply("200 OK", EVENTS, events.as_bytes());
        }
        if request.starts_with("GET") && header_of(request, "last-event-id") == Some("7") {
            assert_eq!(header_of(request, "mcp-session-id"), Some("s1"));
            if count.fetch_add(1, Ordering::SeqCst) + 1 < turn {
                return reply("200 OK", EVENTS, b": not yet\n\n");
            }
            let id = asked.lock().unwrap().clone().unwrap();
            let reply_event =
                format!("id: 8\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"x\":1.0}}}}\n\n");
            return reply("200 OK", EVENTS, reply_event.as_bytes());
        }
        legacy(request)
    })
    .await;
    (server, tries)
}

fn calls(server: &Server) -> usize {
    let seen = server.seen();
    seen.iter().filter(|seen| seen.contains("tools/call")).count()
}

#[tokio::test]
async fn a_stream_that_breaks_off_after_an_event_goes_on_from_there() {
    for turn in [1, 2] {
        let (server, tries) = breaking("id: 7\nretry: 10\ndata:\n\n", turn).await;
        let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
        hub.state("ready").await;
        assert_eq!(hub.call("{}").await.unwrap(), r#"{"x":1.0}"#);
        assert_eq!(tries.load(Ordering::SeqCst), turn);
        assert_eq!(calls(&server), 1, "the call itself is sent once");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_without_one_leaves_the_outcome_unknown() {
    for events in [": working\n\n", "retry: 10\ndata: {\"a\n\n", ""] {
        let (server, tries) = breaking(events, 1).await;
        let mut hub = Hub::new(server.spec(), Protocol::Initialize).await;
        hub.state("ready").await;
        let fault = hub.call("{}").await.unwrap_err();
        assert!(
            matches!(
                &fault,
                CallFault::OutcomeUnknown { .. } | CallFault::BadReply { .. }
            ),
            "{events}: {fault:?}"
        );
        assert_eq!(
            (tries.load(Ordering::SeqCst), calls(&server)),
            (0, 1),
            "it is never sent again"
        );
    }
}
