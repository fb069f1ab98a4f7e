//! Replies that name no request that waits: whom they are blamed on.

use rmcp::model::PingRequest;

use super::*;

/// Who else there is when the answer to request 7 comes.
#[derive(Default, Clone, Copy)]
struct Others {
    /// Request 8 waits as well.
    waiting: bool,
}

/// What the caller of request 7 sees of this answer, with the fault that it is told. Request 5 was given up before.
async fn seen(answer: Vec<u8>, others: Others) -> (String, Option<WireFault>) {
    let server = Server::new(move |_| answer.clone()).await;
    let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
    let note = |id| {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let message = ClientJsonRpcMessage::request(ping, RequestId::Number(id));
        client.outstanding.note(&message);
    };
    note(5);
    client.outstanding.forget(&RequestId::Number(5));
    if others.waiting {
        note(8);
    }
    let ticket = Arc::new(Ticket::default());
    let mut seen = Vec::new();
    match post(&client, &server.spec().url, None, &ticket).await.unwrap() {
        StreamableHttpPostResponse::Json(message, _) => seen.push(seen_by_the_caller(&message)),
        StreamableHttpPostResponse::Sse(mut events, _) => {
            while let Some(event) = events.next().await {
                let data = event.unwrap().data.unwrap_or_default();
                if let Ok(message) = serde_json::from_str::<ServerJsonRpcMessage>(&data) {
                    seen.push(seen_by_the_caller(&message));
                }
            }
        }
        _ => panic!("neither json nor a stream"),
    }
    let seven = RequestId::Number(7);
    assert!(
        client.outstanding.waiting(&seven).is_none(),
        "nothing is left of it"
    );
    if others.waiting {
        let eight = RequestId::Number(8);
        assert!(
            client.outstanding.waiting(&eight).is_some(),
            "request 8 is not touched"
        );
    }
    (seen.join(" & "), ticket.fault().cloned())
}

fn stream(messages: &[&str]) -> Vec<u8> {
    let events: String = messages
        .iter()
        .map(|message| format!("data: {message}\n\n"))
        .collect();
    reply("200 OK", EVENTS, events.as_bytes())
}

fn body(messages: &[&str]) -> Vec<u8> {
    reply("200 OK", JSON, format!("[{}]", messages.join(",")).as_bytes())
}

const OWN: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
const FOREIGN: &str = r#"{"jsonrpc":"2.0","id":99,"result":{}}"#;
const FOREIGN_ERROR: &str = r#"{"jsonrpc":"2.0","id":99,"error":{"code":-32602,"message":"no such tool"}}"#;
const NULL_ERROR: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no such tool"}}"#;
const UNUSABLE: &str = r#"{"jsonrpc":"2.0","id":99,"result":{},"error":{"code":1,"message":"x"}}"#;
const LATE: &str = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
const LATE_TEXT: &str = r#"{"jsonrpc":"2.0","id":"5","error":{"code":1,"message":"too late"}}"#;

#[tokio::test]
async fn a_stray_reply_fails_no_call_whose_own_reply_may_yet_come() {
    let waiting = Others { waiting: true };
    for stray in [FOREIGN, FOREIGN_ERROR, NULL_ERROR, UNUSABLE, LATE, LATE_TEXT] {
        let (text, fault) = seen(stream(&[stray, OWN]), waiting).await;
        assert_eq!((text.as_str(), fault), ("7 raw {}", None), "{stray}");
        // One body is read to its end before anybody is blamed, whoever else waits.
        for others in [waiting, Others::default()] {
            let (text, fault) = seen(body(&[stray, OWN]), others).await;
            assert_eq!((text.as_str(), fault), ("7 raw {}", None), "{stray}");
        }
    }
}

#[tokio::test]
async fn a_late_reply_is_blamed_on_nobody_however_few_wait() {
    for late in [LATE, LATE_TEXT] {
        let (text, fault) = seen(stream(&[late, OWN]), Others::default()).await;
        assert_eq!((text.as_str(), fault), ("7 raw {}", None), "{late}");
        let (text, _) = seen(body(&[late]), Others::default()).await;
        assert_eq!(
            text, "7 error -32603 the answer holds no reply to the request",
            "{late}"
        );
        let (text, fault) = seen(stream(&[late]), Others::default()).await;
        assert_eq!(text, "");
        assert!(matches!(fault, Some(WireFault::Closed(_))), "{fault:?}");
    }
}

#[tokio::test]
async fn the_only_call_that_waits_is_blamed_at_once() {
    for (stray, part) in [
        (
            FOREIGN,
            "7 error -32603 the reply is for the id `99`, which no request has",
        ),
        (FOREIGN_ERROR, "7 error -32602 no such tool"),
        (NULL_ERROR, "7 error -32602 no such tool"),
        (UNUSABLE, "7 error -32603"),
    ] {
        let (text, _) = seen(stream(&[stray, OWN]), Others::default()).await;
        assert!(text.starts_with(part) && !text.contains("raw"), "{stray}: {text}");
    }
}

#[tokio::test]
async fn a_stream_or_body_that_ends_with_nothing_else_was_the_answer() {
    for others in [Others { waiting: true }, Others::default()] {
        for (stray, part, told) in [
            (FOREIGN, "7 error -32603 the reply is for the id `99`", true),
            (UNUSABLE, "7 error -32603", true),
            (FOREIGN_ERROR, "7 error -32602 no such tool", false),
            (NULL_ERROR, "7 error -32602 no such tool", false),
        ] {
            for answer in [stream(&[stray]), body(&[stray]), stream(&[stray, LATE])] {
                let (text, fault) = seen(answer, others).await;
                assert!(text.starts_with(part), "{stray}: {text}");
                assert_eq!(
                    matches!(fault, Some(WireFault::Unusable(_))),
                    told,
                    "{stray}: {fault:?}"
                );
            }
        }
    }
}

/// Else that one would fail for nothing, and the one that was answered would wait for its deadline.
#[tokio::test]
async fn an_error_status_ends_its_own_request_whichever_its_body_names() {
    for id in ["8", "\"8\""] {
        let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"x"}}}}"#);
        let server = Server::new(move |_| reply("400 Bad Request", JSON, error.as_bytes())).await;
        let client = http_client(&server.spec(), &NoEnvironment, terms()).unwrap();
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let other = ClientJsonRpcMessage::request(ping, RequestId::Number(8));
        client.outstanding.note(&other);
        let ticket = Arc::new(Ticket::default());
        post(&client, &server.spec().url, None, &ticket)
            .await
            .unwrap_err();
        let fault = ticket.fault();
        assert!(
            matches!(fault, Some(WireFault::Unusable(told)) if told.contains("status 400")),
            "{fault:?}"
        );
        assert!(client.outstanding.waiting(&RequestId::Number(7)).is_none());
        assert!(client.outstanding.waiting(&RequestId::Number(8)).is_some());
    }
}

/// Noise costs nothing however much of it there is, and of a page that never comes to an error so much is read.
#[tokio::test]
async fn an_error_is_found_in_noise_and_not_looked_for_without_end() {
    let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool"}}"#;
    for (lines, said, fault) in [
        (1_000, "7 error -32602 no such tool", None),
        (400_000, "7 error -32602 no such tool", None),
        (600_000, "failure", Some("status 400 Bad Request: \" x x")),
    ] {
        let body = format!("\"{}\n{error}", "\nx".repeat(lines));
        let (text, told, _) = outcome(reply("400 Bad Request", JSON, body.as_bytes()), None).await;
        assert!(text.starts_with(said), "{lines}: {text}");
        match (told, fault) {
            (None, None) => {}
            (Some(WireFault::Unusable(told)), Some(fault)) => assert!(told.contains(fault), "{told}"),
            (told, _) => panic!("{lines}: {told:?}"),
        }
    }
}

/// It is a server's text, in an error that people and models read.
#[tokio::test]
async fn the_id_of_a_stray_reply_is_shown_short_and_as_it_is() {
    let id = format!("a\u{202e}b\u{7f}{}", "c".repeat(10_000));
    let stray = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#);
    let (text, _) = seen(stream(&[&stray, OWN]), Others::default()).await;
    assert!(text.contains("a\\u{202e}b\\u{7f}cc"), "{text}");
    assert!(text.len() < 300, "{}", text.len());
}
