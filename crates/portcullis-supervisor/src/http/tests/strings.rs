//! Long strings in bodies and in events: what goes beside its call, and what is put back.

use std::{
    sync::{Barrier, atomic::Ordering},
    thread,
};

use portcullis_config::Protocol;
use portcullis_wire::{Frame, Id, marker};
use tokio::{sync::oneshot, time::timeout};

use super::{
    super::{
        messages::{Messages, Refused},
        outstanding::Outstanding,
        reply::{Translated, translate_message},
    },
    supervised::{Hub, WAIT},
    *,
};
use crate::{
    strings::{LongString, RawReply, memory::Shelf},
    transport::Strings,
};

fn spooling(shelf: &Arc<Shelf>) -> HttpTerms {
    HttpTerms {
        spool: Some(Arc::clone(shelf) as _),
        ..terms()
    }
}

pub(super) fn long(letter: char) -> String {
    String::from(letter).repeat(100_000)
}

fn chunked(kind: &str, body: &[u8], size: usize) -> Vec<u8> {
    let mut all =
        format!("HTTP/1.1 200 OK\r\n{kind}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
            .into_bytes();
    for piece in body.chunks(size) {
        all.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        all.extend_from_slice(piece);
        all.extend_from_slice(b"\r\n");
    }
    all.extend_from_slice(b"0\r\n\r\n");
    all
}

/// The messages as an event each, between others.
fn events(messages: &[&str]) -> String {
    let mut stream = ": hello\n\n".to_owned();
    for message in messages {
        stream += "id: 1\n";
        for line in message.lines() {
            stream += &format!("data: {line}\n");
        }
        stream += "\n";
    }
    stream
}

/// Nobody holds any string any more. Its thread may still be on its way to drop one.
pub(super) async fn assert_none_is_left(shelf: &Shelf) {
    let gone = async {
        while shelf.there.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT, gone).await.unwrap();
}

/// Posts one call that is answered so: what its caller gets, or the failure, and the call's ticket.
async fn ask(answer: Vec<u8>, shelf: &Arc<Shelf>) -> (Result<String, String>, Arc<Ticket>) {
    let server = Server::new(move |_| answer.clone()).await;
    let client = http_client(&server.spec(), &NoEnvironment, spooling(shelf)).unwrap();
    let ticket = Arc::new(Ticket::default());
    let mut said = Err("nothing".to_owned());
    let mut hear = |message: &ServerJsonRpcMessage| {
        let text = seen_by_the_caller(message);
        said = match text.strip_prefix("7 raw ") {
            Some(raw) => Ok(raw.to_owned()),
            None => Err(text),
        };
    };
    match post(&client, &server.spec().url, None, &ticket).await {
        Ok(StreamableHttpPostResponse::Json(message, _)) => hear(&message),
        Ok(StreamableHttpPostResponse::Sse(mut events, _)) => {
            while let Some(event) = events.next().await {
                let data = event.ok().and_then(|event| event.data).unwrap_or_default();
                if let Ok(message) = serde_json::from_str(&data) {
                    hear(&message);
                }
            }
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => said = Err(error.to_string()),
    }
    (said, ticket)
}

/// The same result from a body and from an event, in pieces of all sizes, the id first or last, on one line or many.
#[tokio::test]
async fn a_long_string_goes_beside_its_result() {
    let result = format!(
        r#"{{"content":[{{"data":"{}\/\u002B\ud83d\ude00","b":"{}"}}],"n":1.10}}"#,
        long('a'),
        long('b')
    );
    let on_one_line = format!(r#"{{"result":{result},"jsonrpc":"2.0","id":7}}"#);
    let on_many = format!("{{\n \"jsonrpc\":\"2.0\",\r\n \"id\":7,\n \"result\":{result}\n}}\n");
    for message in [on_one_line, on_many] {
        for (kind, body) in [(JSON, message.clone()), (EVENTS, events(&["", &message]))] {
            for size in [7, 4_096, 1 << 20] {
                let shelf = Arc::<Shelf>::default();
                let (said, ticket) = ask(chunked(kind, body.as_bytes(), size), &shelf).await;
                let (json, strings) = (said.unwrap(), ticket.strings());
                assert!(json.len() < 300, "{json}");
                assert_eq!(strings.len(), 2, "{kind} by {size}");
                assert_eq!(RawReply { json, strings }.whole().await.unwrap(), result);
                assert_none_is_left(&shelf).await;
            }
        }
    }
}

/// A stream that stands may say anything at any time: while nobody waits for a reply the spool has no part in it, and what
/// is not finished leaves it once nobody waits.
#[tokio::test]
async fn what_nobody_asked_for_takes_no_room_in_the_store() {
    let shelf = Arc::<Shelf>::default();
    let address = "127.0.0.1:9".parse().unwrap();
    let client = http_client(&spec(address), &NoEnvironment, spooling(&shelf)).unwrap();
    let begun = format!(r#"{{"jsonrpc":"2.0","id":9,"result":["{}"#, long('a'));
    let mut stream = client.messages(64 << 20);
    stream.read(begun.as_bytes()).await.unwrap();
    stream.read(b"\"]}").await.unwrap();
    let [(_, strings)] = <[_; 1]>::try_from(stream.finish()).unwrap();
    stream.hand_over().await.unwrap();
    for string in strings {
        string.spooled().await.unwrap();
    }
    assert_eq!(shelf.begun.load(Ordering::SeqCst), 0);

    client.outstanding.note(&call(&Arc::default()));
    stream.read(begun.as_bytes()).await.unwrap();
    let there = async {
        while shelf.there.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT, there).await.unwrap();
    client.outstanding.forget(&RequestId::Number(7));
    assert_none_is_left(&shelf).await;
}

/// What nobody claims leaves nothing: late, foreign, broken off, no JSON, no message, of another type of event.
#[tokio::test]
async fn strings_that_nobody_claims_are_dropped() {
    let reply = |id: u8| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":["{}"]}}"#, long('a'));
    let good = r#"{"jsonrpc":"2.0","id":7,"result":["x"]}"#;
    let shelf = Arc::<Shelf>::default();
    for (body, wanted) in [
        (events(&[&reply(9)]), Err("which no request has")),
        (events(&[good, &reply(7)]), Ok(r#"["x"]"#)),
        (
            events(&[&format!("{{\"level\":\"{}\"}}", long('a')), good]),
            Ok(r#"["x"]"#),
        ),
        (
            format!("event: other\ndata: {}\n\n{}", reply(7), events(&[good])),
            Ok(r#"["x"]"#),
        ),
        (
            format!("data: {}\nevent: other\n\n{}", reply(7), events(&[good])),
            Ok(r#"["x"]"#),
        ),
        (events(&[&reply(7).replace("\"]", "\\x\"]")]), Err("not JSON")),
        (
            events(&[&reply(7).replace("\"]", "\n\"]")]),
            Err("broken off at the end of its line"),
        ),
        (
            reply(7).replace("\"]}", ""),
            Err("broken off at the end of its line"),
        ),
    ] {
        let kind = if body.starts_with('{') { JSON } else { EVENTS };
        let (said, ticket) = ask(chunked(kind, body.as_bytes(), 4_096), &shelf).await;
        match (said, wanted) {
            (Ok(said), Ok(wanted)) => assert_eq!(said, wanted),
            (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{said}"),
            (said, _) => panic!("{said:?} for {}", body.chars().take(60).collect::<String>()),
        }
        assert!(ticket.strings().is_empty());
        assert_none_is_left(&shelf).await;
    }
}

/// An error status has no result to bring, so nothing of it goes beside a call: what its error says comes up whole,
/// from a body that is read up to a MiB, and of a larger one its beginning.
#[tokio::test]
async fn an_error_status_brings_no_strings() {
    let shelf = Arc::<Shelf>::default();
    let error = |size: usize| {
        let (message, data) = ("m".repeat(size), long('d'));
        format!(
            r#"{{"error":{{"code":-32602,"message":"{message}","data":["{data}"]}},"jsonrpc":"2.0","id":7}}"#
        )
    };
    for (status, body, said, fault) in [
        (
            "400 Bad Request",
            error(300_000),
            format!("7 error -32602 {}", "m".repeat(300_000)),
            false,
        ),
        (
            "500 Oops",
            error(300_000),
            format!("7 error -32602 {}", "m".repeat(300_000)),
            false,
        ),
        (
            "400 Bad Request",
            error(1 << 20),
            "status 400 Bad Request: {".to_owned(),
            true,
        ),
        (
            "500 Oops",
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":["{}"]}}"#, long('a')),
            "status".to_owned(),
            true,
        ),
    ] {
        let (heard, ticket) = ask(reply(status, JSON, body.as_bytes()), &shelf).await;
        let heard = heard.unwrap_err();
        let told = ticket.fault().map(|fault| format!("{fault:?}"));
        assert_eq!(told.is_some(), fault, "{status}");
        let seen = told.unwrap_or_else(|| heard.clone());
        assert!(
            seen.contains(&said) && (!fault || seen.len() < 400),
            "{status}: {}",
            seen.len()
        );
        assert!(ticket.strings().is_empty());
        assert_eq!(shelf.written.load(Ordering::SeqCst), 0, "{status}");
    }
}

/// The end of a connection in the middle of a string leaves nothing of it.
#[tokio::test]
async fn a_string_that_the_end_cuts_off_is_dropped() {
    let shelf = Arc::<Shelf>::default();
    let message = format!(r#"{{"jsonrpc":"2.0","id":7,"result":["{}"]}}"#, long('a'));
    for (kind, body) in [(JSON, message.clone()), (EVENTS, events(&[&message]))] {
        let mut answer = chunked(kind, body.as_bytes(), 4_096);
        answer.truncate(60_000 + 20_000);
        let (said, ticket) = ask(answer, &shelf).await;
        said.unwrap_err();
        assert!(ticket.strings().is_empty() && ticket.fault().is_some());
        assert_none_is_left(&shelf).await;
    }
}

/// A marker that a server writes is text, also one that it has seen.
#[tokio::test]
async fn a_marker_of_the_servers_comes_through_as_text() {
    let shelf = Arc::<Shelf>::default();
    let forged = portcullis_wire::marker(0xf00d);
    let result = format!(r#"["{forged}","{}","{forged}"]"#, long('b'));
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
    let (said, ticket) = ask(chunked(JSON, body.as_bytes(), 4_096), &shelf).await;
    let (json, strings) = (said.unwrap(), ticket.strings());
    assert_eq!(
        strings.iter().map(LongString::size_bytes).collect::<Vec<_>>(),
        [100_000]
    );
    assert_eq!(RawReply { json, strings }.whole().await.unwrap(), result);
}

/// Of two replies to one call, on two streams at the same time, one goes up, with its own strings.
#[test]
fn a_reply_goes_up_with_its_own_strings() {
    let reply = |tag| {
        let result = format!("\"{}\"", marker(tag)).into();
        let string = LongString {
            tag,
            size_bytes: 1,
            spooled: oneshot::channel().1,
        };
        let id = Id::Number(7);
        (Frame::Response { id, result }, vec![string])
    };
    for _ in 0..2_000 {
        let (outstanding, ticket) = (Outstanding::default(), Arc::new(Ticket::default()));
        outstanding.note(&call(&ticket));
        let both = Barrier::new(2);
        let answer = |tag| {
            both.wait();
            futures::executor::block_on(translate_message(reply(tag), &outstanding))
        };
        let answers = thread::scope(|scope| {
            let first = scope.spawn(|| answer(1));
            [answer(2), first.join().unwrap()]
        });
        let up: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                Some(Translated::Up(message, _)) => Some(seen_by_the_caller(message)),
                _ => None,
            })
            .collect();
        let brought: Vec<_> = ticket
            .strings()
            .iter()
            .map(|string| format!("7 raw \"{}\"", string.marker()))
            .collect();
        assert_eq!(up.len(), 1);
        assert_eq!(up, brought);
    }
}

/// Whatever is no call's result is whole before the SDK sees it.
#[tokio::test]
async fn all_other_messages_get_their_strings_back() {
    let shelf = Arc::<Shelf>::default();
    for kind in [JSON, EVENTS] {
        let answer = move |message: String| match kind {
            JSON => reply("200 OK", JSON, message.as_bytes()),
            _ => reply("200 OK", EVENTS, events(&[&message]).as_bytes()),
        };
        let server = Server::new(move |request| {
            if request.contains(r#""method":"tools/list""#) {
                let tool = json_text(&[("name", "t"), ("description", &long('d'))]);
                let tool = tool.replacen('{', r#"{"inputSchema":{"type":"object"},"#, 1);
                let id = super::supervised::id_of(request);
                return answer(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tool}]}}}}"#
                ));
            }
            if request.contains(r#""method":"tools/call""#) {
                let error = json_text(&[("message", &long('m'))]).replacen('{', r#"{"code":-1,"#, 1);
                let id = super::supervised::id_of(request);
                return answer(format!(r#"{{"jsonrpc":"2.0","error":{error},"id":{id}}}"#));
            }
            legacy(request)
        })
        .await;
        let spool = Arc::clone(&shelf);
        let mut hub = Hub::with(server.spec(), Protocol::Initialize, |options| {
            options.spool = Some(spool as _);
        })
        .await;
        let described = hub
            .event(|event| match event {
                crate::SupervisorEvent::Tools { list, .. } => Some(
                    list.tools
                        .iter()
                        .filter_map(|tool| tool.description.clone())
                        .collect::<Vec<_>>(),
                ),
                _ => None,
            })
            .await;
        assert_eq!(described, [long('d')], "{kind}");
        assert_eq!(
            shelf.shares.swap(0, Ordering::SeqCst),
            1,
            "each server has its own"
        );
        let fault = hub.call("{}").await.unwrap_err().to_string();
        assert!(fault.contains(&long('m')), "{}", fault.len());
        assert_none_is_left(&shelf).await;
    }
}

fn json_text(members: &[(&str, &str)]) -> String {
    let members: serde_json::Map<_, _> = members
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Value::from(*value)))
        .collect();
    Value::Object(members).to_string()
}

/// A store that hangs is not waited for without end.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up() {
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":["{}"]}}"#,
        "x".repeat(4 << 20)
    );
    let shelf = Arc::<Shelf>::default();
    let (held_up, changed) = &*shelf.held_up;
    *held_up.lock().unwrap() = true;
    let spool = Arc::clone(&shelf) as _;
    let mut messages = Messages::new(64 << 20, Some(&spool), &Strings::room());
    let began = tokio::time::Instant::now();
    let refused = messages.read(message.as_bytes()).await;
    assert_eq!(refused, Err(Refused::Hangs));
    assert!(
        began.elapsed() <= Duration::from_secs(31),
        "{:?}",
        began.elapsed()
    );
    *held_up.lock().unwrap() = false;
    changed.notify_all();
    drop(messages);
    assert_none_is_left(&shelf).await;
}

/// What stays in memory is bounded, and so is what goes through.
#[tokio::test]
async fn what_stays_of_a_message_is_bounded() {
    let shelf = Arc::<Shelf>::default();
    let short = format!("\"{}\",", "x".repeat(60_000)).repeat(1_200);
    let message = format!(r#"{{"jsonrpc":"2.0","id":7,"result":[{short}1]}}"#);
    for (kind, body) in [(JSON, message.clone()), (EVENTS, events(&[&message]))] {
        let (said, ticket) = ask(chunked(kind, body.as_bytes(), 1 << 20), &shelf).await;
        let (said, fault) = (said.unwrap_err(), ticket.fault().cloned());
        let larger =
            |text: &str| text.contains("longer than 67108864 bytes") || text.contains("larger than allowed");
        assert!(larger(&said), "{kind}: {said}");
        assert!(
            matches!(fault, Some(WireFault::Unusable(text)) if larger(&text)),
            "{kind}"
        );
    }
}
