use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::ServerNotification;

use super::*;
use crate::strings::{LongString, PUT_BACK, RawReply, memory::Shelf};

fn spooling() -> (Rig, Arc<Shelf>) {
    let (rig, shelf) = (Rig::new(), Arc::<Shelf>::default());
    let transport = rig.transport.with_spool(Some(Arc::clone(&shelf) as _));
    (Rig { transport, ..rig }, shelf)
}

impl Rig {
    /// Says a line while the transport listens, and gives what goes up.
    async fn answer(&mut self, line: &str) -> (RequestId, Result<String, String>) {
        let Self { transport, speak, .. } = self;
        let said = async {
            speak.write_all(line.as_bytes()).await.unwrap();
            speak.write_all(b"\n").await.unwrap();
        };
        let heard = timeout(Duration::from_secs(60), transport.receive());
        let (_, heard) = futures::join!(said, heard);
        up(heard.unwrap().unwrap())
    }
}

fn long(letter: char) -> String {
    String::from(letter).repeat(100_000)
}

/// Nobody holds any string any more. Its thread may still be on its way to drop one.
async fn assert_none_is_left(shelf: &Shelf) {
    let gone = async {
        while shelf.there.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), gone).await.unwrap();
}

/// Waits until something has happened, while the transport listens and hears no message.
async fn while_nothing_comes<R>(transport: &mut StdioTransport<R>, happened: impl Future<Output = ()>)
where
    R: AsyncRead + Send + Unpin + 'static,
{
    let listening = async {
        tokio::select! {
            () = happened => {}
            heard = transport.receive() => panic!("{heard:?}"),
        }
    };
    timeout(Duration::from_secs(60), listening).await.unwrap();
}

async fn whole(ticket: &Ticket, json: String) -> String {
    let strings = ticket.strings();
    RawReply { json, strings }.whole().await.unwrap()
}

#[tokio::test]
async fn a_long_string_goes_beside_its_result_and_the_id_may_come_last() {
    let (mut rig, shelf) = spooling();
    let ticket = rig.call(7).await;
    let result = format!(
        r#"{{"content":[{{"data":"{}","b":"{}"}}]}}"#,
        long('a'),
        long('b')
    );
    let (id, up) = rig
        .answer(&format!(r#"{{"result":{result},"jsonrpc":"2.0","id":7}}"#))
        .await;
    let json = up.unwrap();
    assert_eq!(id, RequestId::Number(7));
    assert!(json.len() < 300, "{json}");
    let strings = ticket.strings();
    assert_eq!(
        strings.iter().map(LongString::size_bytes).collect::<Vec<_>>(),
        [100_000; 2]
    );
    assert!(strings.iter().all(|string| json.contains(&string.marker())));
    assert_eq!(RawReply { json, strings }.whole().await.unwrap(), result);
    assert_none_is_left(&shelf).await;
    rig.assert_lives().await;
}

/// A server cannot write a marker that means something: each has a number that was chosen when its string began.
#[tokio::test]
async fn a_marker_of_the_servers_comes_through_as_text() {
    let (mut rig, _) = spooling();
    let first = rig.call(1).await;
    let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":["{}"]}}"#, long('a'));
    let (_, json) = rig.answer(&line).await;
    // The marker of another message, should the server come to know it.
    let known = first.strings()[0].marker();
    assert!(json.unwrap().contains(&known));
    let second = rig.call(2).await;
    let result = format!(r#"["{known}","{}","{known}"]"#, long('b'));
    let (_, json) = rig
        .answer(&format!(r#"{{"jsonrpc":"2.0","id":2,"result":{result}}}"#))
        .await;
    let (json, strings) = (json.unwrap(), second.strings());
    assert_eq!(strings.len(), 1);
    assert_eq!(RawReply { json, strings }.whole().await.unwrap(), result);
}

#[tokio::test]
async fn strings_that_nobody_claims_are_dropped() {
    let (mut rig, shelf) = spooling();
    let answer = |id: u8| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":["{}"]}}"#, long('a'));
    rig.call(7).await;
    rig.transport.send(cancel(7)).await.unwrap();
    rig.hear().await;
    // Two that wait, so that nobody is blamed for what is not theirs.
    rig.call(8).await;
    rig.call(10).await;
    // Late, foreign, broken off, not JSON, and noise.
    for line in [
        answer(7),
        answer(99),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":[\"{}", long('a')),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":[\"{}\\x\"]}}",
            long('a')
        ),
        format!("{{\"level\":\"{}\"}}", long('a')),
    ] {
        rig.say(&line).await;
        assert!(
            timeout(Duration::from_millis(20), rig.transport.receive())
                .await
                .is_err()
        );
    }
    let (_, result) = rig
        .answer(&format!(
            r#"{{"jsonrpc":"2.0","id":8,"result":NaN,"x":"{}"}}"#,
            long('a')
        ))
        .await;
    assert!(result.unwrap_err().contains("not JSON"));
    rig.transport.send(cancel(10)).await.unwrap();
    rig.hear().await;
    assert_none_is_left(&shelf).await;
    rig.assert_lives().await;
}

/// Nor does a notification that nobody heeds get its strings back first, while all that comes after it waits.
#[tokio::test]
async fn strings_of_what_nobody_heeds_are_not_put_back() {
    let (mut rig, shelf) = spooling();
    rig.call(7).await;
    let told = |method: &str| {
        let params = format!(r#"{{"progressToken":1,"progress":1,"message":"{}"}}"#, long('p'));
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#)
    };
    let lines = [
        told("message"),
        told("made_up"),
        told("message"),
        told("progress"),
    ];
    let Rig { transport, speak, .. } = &mut rig;
    let said = async {
        speak
            .write_all(lines.map(|line| line + "\n").concat().as_bytes())
            .await
    };
    let heard = timeout(Duration::from_secs(60), transport.receive());
    let (said, heard) = futures::join!(said, heard);
    said.unwrap();
    let heard = heard.unwrap().unwrap();
    assert!(matches!(heard, JsonRpcMessage::Notification(_)), "{heard:?}");
    assert_eq!(shelf.put_back.load(Ordering::SeqCst), 1);
    assert_eq!(rig.transport.counters.counts().unheeded, 3);
    assert_none_is_left(&shelf).await;
    rig.transport.send(cancel(7)).await.unwrap();
    rig.hear().await;
    rig.assert_lives().await;
}

/// While nobody waits for a reply the spool has no part in what a server says, and what is no reply arrives all the same.
#[tokio::test]
async fn what_nobody_asked_for_takes_no_room_in_the_store() {
    let (mut rig, shelf) = spooling();
    let begun = format!(
        r#"{{"jsonrpc":"2.0","params":{{"progressToken":1,"progress":1,"message":"{}"#,
        long('p')
    );
    let Rig { transport, speak, .. } = &mut rig;
    let written = async {
        speak.write_all(begun.as_bytes()).await.unwrap();
        // The connection listens on. What it had of the line is with the thread by the time the rest is there.
        speak.write_all(long('p').as_bytes()).await.unwrap();
        speak
            .write_all(b"\"},\"method\":\"notifications/progress\"}\n")
            .await
            .unwrap();
    };
    let heard = timeout(Duration::from_secs(60), transport.receive());
    let (_, heard) = futures::join!(written, heard);
    let JsonRpcMessage::Notification(told) = heard.unwrap().unwrap() else {
        panic!("it is a notification")
    };
    let ServerNotification::ProgressNotification(progress) = told.notification else {
        panic!("it is progress")
    };
    assert_eq!(progress.params.message, Some(long('p') + &long('p')));
    assert_eq!(shelf.begun.load(Ordering::SeqCst), 0);
    rig.assert_lives().await;
}

/// A line has no end that anybody could wait for: what it holds must not take room from others once nobody does.
#[tokio::test]
async fn an_unfinished_line_takes_no_room_in_the_store_once_nobody_waits() {
    for (whole, trickles) in [(1, false), (0, true)] {
        let (mut rig, shelf) = spooling();
        rig.call(7).await;
        let first = format!(r#"{{"jsonrpc":"2.0","id":7,"result":["{}"#, long('a'));
        let second = match whole {
            1 => format!(r#"","{}"#, long('b')),
            _ => String::new(),
        };
        let line = first + &second;
        let Rig { transport, speak, .. } = &mut rig;
        let there = async {
            speak.write_all(line.as_bytes()).await.unwrap();
            while shelf.there.load(Ordering::SeqCst) < 1 + whole {
                tokio::task::yield_now().await;
            }
        };
        while_nothing_comes(transport, there).await;
        rig.transport.send(cancel(7)).await.unwrap();
        let Rig { transport, speak, .. } = &mut rig;
        let gone = async {
            while shelf.there.load(Ordering::SeqCst) > 0 {
                if trickles {
                    speak.write_all(b"a").await.unwrap();
                }
                tokio::task::yield_now().await;
            }
        };
        while_nothing_comes(transport, gone).await;
        // The line ends some time, and the next is one like any other.
        rig.say("\"]}").await;
        rig.hear().await;
        rig.assert_lives().await;
    }
}

/// Once a reply has come whole nobody waits for it any more, however far its strings are.
#[tokio::test]
async fn a_reply_that_has_come_is_not_given_up_while_its_strings_are_written() {
    let (mut rig, shelf) = spooling();
    let (held_up, changed) = &*shelf.held_up;
    *held_up.lock().unwrap() = true;
    let ticket = rig.call(7).await;
    let result = format!(r#"["{}","{}"]"#, long('a'), long('b'));
    let (_, json) = rig
        .answer(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#))
        .await;
    *held_up.lock().unwrap() = false;
    changed.notify_all();
    assert_eq!(whole(&ticket, json.unwrap()).await, result);
    assert_none_is_left(&shelf).await;
}

/// The end of a connection in the middle of a string leaves nothing of it.
#[tokio::test]
async fn a_string_that_the_end_cuts_off_is_dropped() {
    let (mut rig, shelf) = spooling();
    let ticket = rig.call(7).await;
    rig.speak
        .write_all(format!(r#"{{"jsonrpc":"2.0","id":7,"result":["{}"#, long('a')).as_bytes())
        .await
        .unwrap();
    rig.speak.shutdown().await.unwrap();
    assert!(rig.next().await.1.is_err());
    assert!(ticket.fault().is_some() && rig.transport.receive().await.is_none());
    drop(rig);
    assert_none_is_left(&shelf).await;
}

/// Whatever is no call's result is whole before the SDK sees it.
#[tokio::test]
async fn all_other_messages_get_their_strings_back() {
    for spool in [true, false] {
        let mut rig = if spool { spooling().0 } else { Rig::new() };
        let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
        rig.transport
            .send(ClientJsonRpcMessage::request(list, RequestId::Number(3)))
            .await
            .unwrap();
        rig.hear().await;
        let result = format!(
            r#"{{"tools":[{{"name":"t","description":"{}\u00e9"}}]}}"#,
            long('d')
        );
        let listed = rig
            .answer(&format!(r#"{{"jsonrpc":"2.0","id":3,"result":{result}}}"#))
            .await;
        assert_eq!(listed, (RequestId::Number(3), Ok(result)));

        rig.call(4).await;
        let error = format!(
            r#"{{"code":-1,"message":"{}","data":["{}"]}}"#,
            long('m'),
            long('n')
        );
        let (_, refused) = rig
            .answer(&format!(r#"{{"jsonrpc":"2.0","error":{error},"id":4}}"#))
            .await;
        assert_eq!(refused, Err(long('m')));

        let params = format!(r#"{{"progressToken":1,"progress":1,"message":"{}"}}"#, long('p'));
        rig.say(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#
        ))
        .await;
        let JsonRpcMessage::Notification(told) = rig.transport.receive().await.unwrap() else {
            panic!("it is a notification")
        };
        let ServerNotification::ProgressNotification(progress) = told.notification else {
            panic!("it is progress")
        };
        assert_eq!(progress.params.message, Some(long('p')));
        rig.assert_lives().await;
    }
}

/// Without a store the call fails with its reply, and tells how large the string was.
#[tokio::test]
async fn without_a_store_a_call_with_a_long_string_fails_and_names_its_size() {
    let mut rig = Rig::new();
    let ticket = rig.call(7).await;
    let (_, result) = rig
        .answer(&format!(
            r#"{{"jsonrpc":"2.0","result":["short","{}"],"id":7}}"#,
            long('a')
        ))
        .await;
    let error = result.unwrap_err();
    assert!(error.contains("a string of 100000 bytes"), "{error}");
    assert_eq!(ticket.fault(), Some(&WireFault::Unusable(error)));
    // As long as one may be, and no longer.
    let ticket = rig.call(8).await;
    let most = format!("[\"{}\"]", "x".repeat(65_536));
    let (_, result) = rig
        .answer(&format!(r#"{{"jsonrpc":"2.0","id":8,"result":{most}}}"#))
        .await;
    assert_eq!((result.unwrap(), ticket.fault()), (most, None));
    rig.assert_lives().await;
}

/// What is no call's result has its strings in memory then, each up to a size.
#[tokio::test]
async fn without_a_store_a_very_long_string_fails_its_message_and_names_its_size() {
    let mut rig = Rig::new();
    for (size, fits) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
        rig.transport
            .send(ClientJsonRpcMessage::request(list, RequestId::Number(3)))
            .await
            .unwrap();
        rig.hear().await;
        let result = format!(r#"{{"tools":[{{"description":"{}"}}]}}"#, "d".repeat(size));
        let (_, listed) = rig
            .answer(&format!(r#"{{"jsonrpc":"2.0","id":3,"result":{result}}}"#))
            .await;
        match fits {
            true => assert!(listed == Ok(result)),
            false => {
                let error = listed.unwrap_err();
                assert!(
                    error.contains("a string of 1048577 bytes stands in it, and it may have 1048576 bytes where no store takes it"),
                    "{error}"
                );
            }
        }
    }
    rig.assert_lives().await;
}

/// While the store is slow the pipe is not read, and nothing piles up.
#[tokio::test]
async fn a_slow_store_holds_up_the_pipe_and_not_the_memory() {
    let (mut rig, shelf) = spooling();
    let (held_up, changed) = &*shelf.held_up;
    *held_up.lock().unwrap() = true;
    let ticket = rig.call(7).await;
    let size = 32 << 20;
    let line = format!(r#"{{"jsonrpc":"2.0","id":7,"result":["{}"]}}"#, "x".repeat(size));
    let Rig { transport, speak, .. } = &mut rig;
    let sent = AtomicUsize::new(0);
    let speaking = async {
        for piece in line.as_bytes().chunks(65_536) {
            speak.write_all(piece).await.unwrap();
            sent.fetch_add(piece.len(), Ordering::SeqCst);
        }
        speak.write_all(b"\n").await.unwrap();
    };
    let listening = async {
        // Dropped and begun again in the middle, as the SDK does it.
        loop {
            match timeout(Duration::from_millis(50), transport.receive()).await {
                Ok(message) => return up(message.unwrap()),
                Err(_) => {
                    let came = sent.load(Ordering::SeqCst);
                    // The pipe of the test holds a MiB, and half a one is on its way to the thread.
                    assert!(
                        came < 4 << 20 || !*held_up.lock().unwrap(),
                        "{came} bytes were taken"
                    );
                    *held_up.lock().unwrap() = false;
                    changed.notify_all();
                }
            }
        }
    };
    let (_, (_, json)) = futures::join!(speaking, listening);
    let back = whole(&ticket, json.unwrap()).await;
    assert_eq!(back.len(), size + 4);
    assert_eq!(shelf.written.load(Ordering::SeqCst), size);
    assert_none_is_left(&shelf).await;
}

/// One that hangs for good ends the connection in time, however often the SDK begins to listen anew.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_ends_the_connection() {
    let (mut rig, shelf) = spooling();
    let (held_up, changed) = &*shelf.held_up;
    *held_up.lock().unwrap() = true;
    let ticket = rig.call(7).await;
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":["{}"]}}"#,
        "x".repeat(8 << 20)
    );
    let Rig { transport, speak, .. } = &mut rig;
    let began = tokio::time::Instant::now();
    let listening = async {
        loop {
            if let Ok(message) = timeout(Duration::from_secs(7), transport.receive()).await {
                return up(message.unwrap());
            }
        }
    };
    let (_, result) = tokio::select! {
        result = listening => result,
        _ = speak.write_all(line.as_bytes()) => panic!("all of it was read"),
    };
    assert!(began.elapsed() <= 2 * SPOOL_WAIT, "{:?}", began.elapsed());
    let error = result.unwrap_err();
    assert!(error.contains("hangs"), "{error}");
    assert_eq!(ticket.fault(), Some(&WireFault::Closed(error)));
    *held_up.lock().unwrap() = false;
    changed.notify_all();
    drop(rig);
    assert_none_is_left(&shelf).await;
}

/// One from which nothing can be read costs the message that waits for it, in time, and not the connection.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_on_reading_costs_the_message_and_the_pipe_is_read_on() {
    let (mut rig, shelf) = spooling();
    let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
    rig.transport
        .send(ClientJsonRpcMessage::request(list, RequestId::Number(3)))
        .await
        .unwrap();
    rig.hear().await;
    let hanging = shelf.hang();
    rig.say(&format!(
        r#"{{"jsonrpc":"2.0","id":3,"result":{{"tools":[{{"description":"{}"}}]}}}}"#,
        long('d')
    ))
    .await;
    let (id, listed) = tokio::select! {
        heard = rig.transport.receive() => up(heard.unwrap()),
        () = hanging.lasts(PUT_BACK) => panic!("the pipe is not read any more"),
    };
    assert_eq!(id, RequestId::Number(3));
    let told = listed.unwrap_err();
    assert!(told.contains("could not be put back within 30 s"), "{told}");
    assert_eq!(rig.count(), [0, 0, 1]);
    // It hangs still.
    rig.assert_lives().await;
    drop(hanging);
    assert_none_is_left(&shelf).await;
}
