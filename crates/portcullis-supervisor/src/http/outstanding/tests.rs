use super::*;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ListToolsRequest, PingRequest, SubscriptionFilter,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};

fn note(all: &Outstanding, request: ClientRequest, id: i64) {
    all.note(&ClientJsonRpcMessage::request(request, RequestId::Number(id)));
}

#[test]
fn a_request_is_claimed_once_by_its_id_or_its_ids_text() {
    let all = Outstanding::default();
    note(
        &all,
        ClientRequest::ListToolsRequest(ListToolsRequest::default()),
        1,
    );
    note(&all, ClientRequest::PingRequest(PingRequest::default()), 2);
    assert!(all.claim(&Id::Number(3)).is_none());
    let (id, waiting, _) = all.claim(&Id::String("1".to_owned())).unwrap();
    assert_eq!((id, waiting.raw_result), (RequestId::Number(1), true));
    assert!(all.claim(&Id::Number(1)).is_none());
    assert!(!all.claim(&Id::Number(2)).unwrap().1.raw_result);
}

#[tokio::test(start_paused = true)]
async fn a_reply_on_its_way_is_waited_for_but_not_for_ever() {
    let all = Outstanding::default();
    note(&all, ClientRequest::PingRequest(PingRequest::default()), 1);
    let (id, _, on_its_way) = all.claim(&Id::Number(1)).unwrap();
    let began = Instant::now();
    timeout(ARRIVES_WITHIN * 2, all.arrived(&id)).await.unwrap();
    assert_eq!(began.elapsed(), ARRIVES_WITHIN);
    drop(on_its_way);
    all.arrived(&id).await;
    assert_eq!(began.elapsed(), ARRIVES_WITHIN);
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_without_a_word_is_not_waited_for_for_ever() {
    let all = Outstanding::default();
    note(&all, ClientRequest::PingRequest(PingRequest::default()), 1);
    assert!(all.awaits());
    tokio::time::advance(all.patience - Duration::from_millis(1)).await;
    assert!(all.awaits());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!all.awaits());
    // Nor does it take the blame from one that is waited for.
    note(&all, ClientRequest::PingRequest(PingRequest::default()), 2);
    assert!(all.is_alone(&RequestId::Number(2)));
}

#[test]
fn memory_is_bounded_and_the_newest_stay() {
    let all = Outstanding::default();
    for id in 0..5_000 {
        note(&all, ClientRequest::PingRequest(PingRequest::default()), id);
    }
    assert_eq!(all.lock().waiting.len(), MOST);
    assert!(all.is_over(&Id::Number(0)));
    assert!(all.claim(&Id::Number(4_999)).is_some());
    assert!(all.claim(&Id::Number(0)).is_none());
    // Of replies, those are kept in mind that have not arrived.
    let under_way = all.claim(&Id::Number(4_000)).unwrap();
    for id in 4_001..4_100 {
        drop(all.claim(&Id::Number(id)).unwrap());
    }
    assert!(all.lock().on_their_way.len() <= 2);
    assert!(all.is_on_its_way(&under_way.0) && !all.is_on_its_way(&RequestId::Number(4_099)));
}

#[test]
fn a_reply_is_late_however_long_ago_its_request_was() {
    let all = Outstanding::default();
    for id in 0..2_000 {
        note(&all, ClientRequest::PingRequest(PingRequest::default()), id);
        assert!(!all.is_over(&Id::Number(id)), "{id} waits");
        assert!(all.claim(&Id::Number(id)).is_some() && all.claim(&Id::Number(id)).is_none());
    }
    for (id, is_over) in [
        (Id::Number(0), true),
        (Id::String("2".into()), true),
        (Id::Number(1_999), true),
        (Id::Number(2_000), false),
        (Id::Number(-1), false),
        (Id::String("x".into()), false),
        (Id::String("02".into()), false),
    ] {
        assert_eq!(all.is_over(&id), is_over, "{id}");
    }
}

/// Else the answer of a call that is forgotten would be nobody's.
#[test]
fn as_many_are_remembered_as_the_server_may_have_and_what_is_over_goes_first() {
    let all = Outstanding {
        most: 4,
        ..Outstanding::default()
    };
    let listen =
        SubscriptionsListenRequest::new(SubscriptionsListenRequestParams::new(SubscriptionFilter::new()));
    note(&all, ClientRequest::SubscriptionsListenRequest(listen), 0);
    let tickets = [1, 2, 3].map(|id| {
        let ticket = Arc::<Ticket>::default();
        let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
        call.extensions.insert(Arc::clone(&ticket));
        note(&all, ClientRequest::CallToolRequest(call), id);
        ticket
    });
    let [_, second, _] = &tickets;
    second.give_up();
    for (next, forgotten) in [(4, 2), (5, 1), (6, 3)] {
        note(&all, ClientRequest::PingRequest(PingRequest::default()), next);
        assert!(all.is_over(&Id::Number(forgotten)), "{forgotten} for {next}");
        assert_eq!(all.lock().waiting.len(), 4);
    }
    assert!(all.waiting(&RequestId::Number(0)).is_some());
}

#[test]
fn what_is_over_is_known_as_such_and_one_that_waits_alone_as_that() {
    let all = Outstanding::default();
    for id in 1..=2 {
        note(&all, ClientRequest::PingRequest(PingRequest::default()), id);
    }
    assert!(!all.is_alone(&RequestId::Number(1)));
    all.forget(&RequestId::Number(1));
    assert!(all.is_alone(&RequestId::Number(2)) && !all.is_alone(&RequestId::Number(1)));
    for (id, retired) in [
        (Id::Number(1), true),
        (Id::String("1".into()), true),
        (Id::Number(2), false),
        (Id::Number(9), false),
    ] {
        assert_eq!(all.is_over(&id), retired, "{id}");
    }
    // A subscription waits for ever, and is no call.
    let listen =
        SubscriptionsListenRequest::new(SubscriptionsListenRequestParams::new(SubscriptionFilter::new()));
    note(&all, ClientRequest::SubscriptionsListenRequest(listen), 3);
    assert!(all.is_alone(&RequestId::Number(2)));
    assert!(all.awaits());
    all.forget(&RequestId::Number(2));
    assert!(!all.awaits());
    // A call whose caller is gone waits for nobody, whether or not the server was told.
    let ticket = Arc::<Ticket>::default();
    let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
    call.extensions.insert(Arc::clone(&ticket));
    note(&all, ClientRequest::CallToolRequest(call), 4);
    note(&all, ClientRequest::PingRequest(PingRequest::default()), 5);
    assert!(!all.is_alone(&RequestId::Number(5)));
    ticket.give_up();
    assert!(all.is_alone(&RequestId::Number(5)));
    all.forget(&RequestId::Number(5));
    assert!(!all.awaits());
    // Sent once more, it waits again.
    note(&all, ClientRequest::PingRequest(PingRequest::default()), 1);
    assert!(!all.is_over(&Id::Number(1)));
}
